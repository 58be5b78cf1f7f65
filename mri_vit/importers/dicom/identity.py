"""Identity: header fields on the person who was scanned; keyed hashes for ids and UIDs; and reasons that name no person.

All of it is personal data: it stays in memory, and messages name the kind of field that disagrees, never its value. The hash is
an HMAC-SHA-256 (RFC 2104): without the key, ids of a hospital cannot be tried against the output.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import re
import secrets
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path

from mri_vit.errors import IntegrityError, UsageError


@dataclass(frozen=True)
class Fault:
    """A reason with a placeholder `{}` for each UID; the text around them is our own words and numbers, nothing from a header."""

    reason: str
    uids: tuple[str, ...] = ()

    def with_uids(self) -> str:
        """For a terminal."""
        return self.reason.format(*self.uids)

    def with_hashes(self, short: Callable[[str], str]) -> str:
        """For a file: `short` gives the hash of a UID."""
        return self.reason.format(*map(short, self.uids))


class Refused(Exception):
    """A series cannot be converted; `fault` is the reason."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


KEY_BYTES = 32  # the length of the hash, RFC 2104 section 3
PATIENT_DIGITS = 16  # hexadecimal, 64 bits: among a million patients two are alike with a probability of 3e-8
SERIES_DIGITS = 12


@dataclass(frozen=True)
class Hasher:
    """Keyed hashes; the same id gets the same hash in every import with the same key."""

    key: bytes

    def patient(self, patient_id: str) -> str:
        """The pseudonym of a patient's id in every output; it starts with a letter, so that no spreadsheet reads a number."""
        return f"P{self._digest('patient', patient_id)[:PATIENT_DIGITS]}"

    def uid(self, uid: str) -> str:
        """The pseudonym of a UID, or of the name of a series."""
        return f"U{self._digest('uid', uid)[:SERIES_DIGITS]}"

    def _digest(self, kind: str, text: str) -> str:
        return hmac.new(self.key, f"{kind}\0{text}".encode(), hashlib.sha256).hexdigest()


def default_key(output: Path) -> Path:
    """Beside the output folder, so that the key is not shared with the folder."""
    folder = output.resolve()  # "." has a name as well
    return folder.parent / f"{folder.name}.key"


def load_hasher(path: Path, output: Path) -> Hasher:
    """The hasher of a key file, which is made with mode 0600 where there is none.

    Raises
    ------
    UsageError
        The key would lie in the output, is no key, or can be read by others.
    IntegrityError
        It is a link.
    """
    if path.resolve().is_relative_to(output.resolve()):
        raise UsageError(f"key {path} lies in the output {output}, with which it would be shared; expected a place outside")
    if path.is_symlink():
        raise IntegrityError(f"key {path} is a link to {os.readlink(path)}; name the file itself")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(f"{secrets.token_hex(KEY_BYTES)}\n")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise UsageError(f"key {path} can be read by others (mode {path.stat().st_mode & 0o777:o}); run chmod 600 on it")
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except (ValueError, OSError):
        key = b""
    if len(key) != KEY_BYTES:
        raise UsageError(f"key {path} is not a key of mri-vit: expected {2 * KEY_BYTES} hexadecimal digits")
    return Hasher(key)


# Ids and names that identify no person: letters and digits alone, in lower case, without accents.
PLACEHOLDER = re.compile(
    r"(?:anon(?:[iy]m[a-z]*)?|de(?:ident|person)[a-z]*|deid|pseudonym[a-z]*"
    r"|unknown|unk|unbekannte?r?|inconnue?|desconocid[oa]|desconhecid[oa]|sconosciut[oa]|onbekend"
    r"|(?:gean|an)onimi[sz]e[a-z]*|test(?:e|er|ing)?|prueba|prova|essai|dummy|demo|sample|example|phantom|default|temp"
    r"|study|research|project|control|volunteer|proband"
    r"|none|null|nil|nan?|nn|no|not|(?:un)?set|(?:un)?assigned|id|noid|noname|name|available|applicable|unspecified|undefined|unnamed|missing|empty|blank|tbd"
    r"|removed|redacted|deleted|hidden|masked|cleared|private|confidential|withheld"
    r"|phi|patient(?:id|in)?|pid|mrn|xyz|abc|paciente|paziente|subject|person|mri?|x|익명화?|匿名|무명|미상|불명|없음|환자|테스트)+"
    r"|0+|9{4,}|([1-8])\1{5,}|0?123456(?:7(?:8(?:90?)?)?)?"  # one digit over and over, or in a row
)
MADE_UP = {"john", "jane", "doe", "max", "erika", "mustermann"}  # words of made-up ids; as names they may be real
# Dates that software writes where it has none: the first day that a system counts from, or round years.
PLACEHOLDER_DATES = {
    *(date(year, 1, 1) for year in (1, 1000, 1600, 1700, 1753, 1800, 1900, 1901, 1970, 1980, 2000, 2100, 3000, 9999)),
    *(date(1111, 11, 11), date(1858, 11, 17), date(1899, 12, 30), date(1899, 12, 31), date(1969, 12, 31)),
    *(date(2099, 12, 31), date(2999, 12, 31), date(9999, 12, 31)),
}
YEAR_ALONE = {(1, 1), (6, 15), (6, 30), (7, 1), (12, 31)}  # month and day that are written where a year alone is kept
AGE_SLACK_YEARS = 1  # beside the year that an age in whole years leaves open: ages are typed, and dates are shifted
CAPPED_YEARS = 89  # HIPAA's safe harbour, 45 CFR 164.514(b)(2)(i)(C): all older ages become one
OLDEST_YEARS = 120
FOLLOWED_YEARS = 10  # the longest that a patient is followed, where dates are unknown; a judgement
DAYS_PER_YEAR = 365.25
TITLES = {"mr", "mrs", "ms", "miss", "dr", "prof", "herr", "frau", "jr", "sr"}
SEXES = {"M": "M", "F": "F", "W": "F"}  # O, empty and all else never disagree; W is German
LETTERS = str.maketrans({"ø": "o", "æ": "a", "œ": "o", "ł": "l", "đ": "d", "ı": "i", "ð": "d", "þ": "th"})


@dataclass(frozen=True)
class Person:
    """The person in the header of one image; "", None or NaN where a field is missing or not comparable."""

    study_uid: str
    study_date: date | None
    sex: str
    birth_date: date | None
    age_years: float  # at the study's date
    name: frozenset[str]  # its words, folded
    issuer: str = ""  # of the id, folded: another hospital may give the same id to another person


def is_placeholder(text: str) -> bool:
    """Whether an id or a name is a placeholder; case, accents, blanks and punctuation do not matter."""
    letters = "".join(filter(str.isalnum, folded(text)))
    return not letters or PLACEHOLDER.fullmatch(letters) is not None


def is_placeholder_id(patient_id: str) -> bool:
    """Whether an id is a placeholder, or the name of a made-up person, as JOHNDOE or Mustermann^Max."""
    letters = "".join(filter(str.isalnum, folded(patient_id)))
    return is_placeholder(patient_id) or re.fullmatch(f"(?:{'|'.join(MADE_UP)}){{2,}}", letters) is not None


def folded(text: str) -> str:
    """Text in lower case, without accents, with one spelling of each letter."""
    apart = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(letter for letter in apart if unicodedata.category(letter) != "Mn")
    return unicodedata.normalize("NFC", plain).translate(LETTERS)


def date_of(text: str) -> date | None:
    """The day of a date in DICOM's form, None for an invalid date or a placeholder."""
    digits = re.sub(r"\D", "", text)
    if len(digits) != 8:
        return None
    try:
        when = date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
    except ValueError:
        return None
    return None if when in PLACEHOLDER_DATES else when


@lru_cache(maxsize=4096)  # all images of a study have the same
def person_of(
    patient_id: str, study_uid: str, study_date: str, sex: str, birth_date: str, age: str, name: str, issuer: str = ""
) -> Person:
    """The person of a header, from the text of its fields."""
    studied, born = date_of(study_date), date_of(birth_date)
    if born and studied and born >= studied:
        born = None  # software that writes the date of the study in place of a birth date
    known_sex = SEXES.get(sex.strip().upper()[:1], "")
    known_issuer = "" if is_placeholder(issuer) else "".join(filter(str.isalnum, folded(issuer)))
    return Person(study_uid, studied, known_sex, born, _years(age), _words(name, patient_id), known_issuer)


def disagreements(one: Person, other: Person, of_placeholder: bool) -> list[str]:
    """Kinds of fields by which two headers cannot be of one person; a field that either lacks does not count.

    Under an id that is a person's own, a name may change where the birth date stays, as by marriage.
    """
    kinds = []
    if one.sex and other.sex and one.sex != other.sex:
        kinds.append("sex")
    born_alike = None
    if one.birth_date and other.birth_date:
        born_alike = _same_birth(one.birth_date, other.birth_date)
        kinds += [] if born_alike else ["birth date"]
    if _ages_apart(one, other):
        kinds.append("age")
    elif _age_off_birth(one, other) or _age_off_birth(other, one):
        kinds.append("birth date against age")
    may_change = bool(born_alike) and one.birth_date == other.birth_date and not of_placeholder
    if one.name and other.name and not _same_name(one.name, other.name, may_change):
        kinds.append("name")
    if one.issuer and other.issuer and one.issuer != other.issuer:
        kinds.append("issuer of the PatientID")
    return kinds


def _years(age: str) -> float:
    """An age such as 061Y or 018M in years; NaN for none, for 0 and for impossible ages."""
    parsed = re.fullmatch(r"(\d{1,3})([DWMY]?)", re.sub(r"\s", "", age.upper()))
    if not parsed:
        return math.nan
    years = int(parsed[1]) / {"D": DAYS_PER_YEAR, "W": DAYS_PER_YEAR / 7, "M": 12}.get(parsed[2], 1)
    return years if 0 < years <= OLDEST_YEARS else math.nan


def _same_birth(one: date, other: date) -> bool:
    return one == other or (one.year == other.year and bool({(one.month, one.day), (other.month, other.day)} & YEAR_ALONE))


def _ages_apart(one: Person, other: Person) -> bool:
    """Whether two ages, each at the date of its study, differ by more than the tolerance."""
    ages = one.age_years, other.age_years
    if not all(map(math.isfinite, ages)) or min(ages) >= CAPPED_YEARS:
        return False
    if one.study_date and other.study_date:
        passed = (other.study_date - one.study_date).days / DAYS_PER_YEAR
        return abs(ages[1] - ages[0] - passed) > 1 + AGE_SLACK_YEARS
    return abs(ages[1] - ages[0]) > (AGE_SLACK_YEARS if one.study_uid == other.study_uid else FOLLOWED_YEARS)


def _age_off_birth(one: Person, other: Person) -> bool:
    """Whether an age contradicts the birth date that only the other header has."""
    if not one.birth_date or other.birth_date or math.isfinite(one.age_years) or not math.isfinite(other.age_years):
        return False
    if not other.study_date:
        return False
    expected = (other.study_date - one.birth_date).days / DAYS_PER_YEAR
    return min(expected, other.age_years) < CAPPED_YEARS and abs(expected - other.age_years) > 1 + AGE_SLACK_YEARS


def _words(name: str, patient_id: str) -> frozenset[str]:
    """Family, given and middle names of a DICOM name, in all its scripts; none of a placeholder, the id, or with digits."""
    if is_placeholder(name) or folded(name) == folded(patient_id) or re.search(r"\d", name):
        return frozenset()
    parts = [" ".join(group.split("^")[:3]) for group in name.split("=")]  # behind them: prefix and suffix
    words = re.findall(r"[^\W_]+", folded(" ".join(parts)))
    if any(len(word) > 3 and is_placeholder(word) for word in words):  # as in Anonymous^Male
        return frozenset()
    return frozenset(re.sub("([aou])e", r"\1", word) for word in words if word not in TITLES)  # Mueller is Müller


def _same_name(one: Collection[str], other: Collection[str], may_change: bool) -> bool:
    """Whether all words of the shorter name are in the longer one, script by script; initials stand for words."""
    for latin in (True, False):
        ours, theirs = ([word for word in sorted(words) if word.isascii() == latin] for words in (one, other))
        if not ours or not theirs:
            continue
        short, long = sorted((ours, theirs), key=len)
        if all(any(_same_word(word, candidate) for candidate in long) for word in short):
            return True
        return sorted("".join(short)) == sorted("".join(long)) or (may_change and bool(set(short) & set(long)))
    return True


def _same_word(one: str, other: str) -> bool:
    return one == other or (min(len(one), len(other)) == 1 and one[0] == other[0])
