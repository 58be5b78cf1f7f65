"""Columns: what a column of a table, or a patient, is called and what a column holds.

Others' names of columns and patients go in, ours come out; a column's cells go in, whether they are numbers or a category, and
what in them is odd, come out.

A number stands in one notation throughout its column: with a point, with a decimal comma, or as an age of DICOM (`061Y`). A value
that cannot be (an age of -1 or 999) or that is a code far from all others (999 among weights) counts as unknown. Ids that differ
only in form are one patient's: a spreadsheet writes 00012 as 12, pandas as 12.0, 100000 may stand as 1E+05, BIDS writes sub-01.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Literal

MAX_NUMBER = 1e100  # its square, which a variance takes, is still a number
MAX_LEVELS = 10  # a column of more different words is a name or a note, not a category
MAX_GRADES = 6  # numbers that words may stand among as a grade does (2, 3, 4, NOS): ECOG's scale has as many
NUMERIC_SHARE = 0.5  # of filled cells: a column with so many numbers is meant as numbers; words do not look like them by chance
MIN_ROWS = 5  # of fewer, numbers in a row and words that stand once are no evidence

PLAIN_NUMBER = re.compile(r"(?i)[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf(inity)?")
COMMA_NUMBER = re.compile(r"[+-]?[0-9]+(,[0-9]+)?")
THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")  # 1,234: which of the two the comma is, the cell does not say
DICOM_AGE = re.compile(r"([0-9]{3})([DWMY])")  # value representation AS: DICOM PS3.5, table 6.2-1
YEARS_IN = {"D": 1 / 365.25, "W": 7 / 365.25, "M": 1 / 12, "Y": 1.0}
LIKE_NUMBER = re.compile(r"[<>≤≥~=±]*\s*[+-]?[0-9]+([.,][0-9]+)*\s*(%|\+|[A-Za-z]{0,6}\.?)")  # >89, 90+, 62y, 61 years

AGE = re.compile(r"(?<![A-Za-z])([Aa]ge|AGE|[Aa]lter|ALTER)(?![a-z])|(?<=[a-z])Age(?![a-z])")
OTHER_UNIT = re.compile(r"(?i)day|week|month|tage|woche|monat")  # of an age that is not in years
KARNOFSKY = re.compile(r"(?i)(?<![a-z])(kps|karnofsky\w*)(?![a-z])")
ECOG = re.compile(r"(?i)(?<![a-z])ecog(?![a-z])")
OLDEST_YEARS = 120.0  # two people are known to have become older
SMALL_CHILD_YEARS = 5.0  # where all others are older, an age of 0 stands for none: in TCGA's table for five, beside 14 to 89
MISSING_CODES = (-1.0, -9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0)  # by which tables say that nothing is known

UNNAMED_COLUMN = re.compile(r"(?i)\s*|unnamed:? ?\d+(_level_\d+)?|\.\.\.\d+")  # as pandas and readr call a column without a name
IDENTIFIER = re.compile(r"(?i)(?<![a-z])(u?id|ids|pid|mrn|n[ro]|num|number|nummer|accession|record|case|fall|code|key)(?![a-z])")
MIN_ID_DIGITS = 6  # of a number that may be an id: an age, a dose or a volume in ml has fewer
DATE = re.compile(r"(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])")
REPEAT_TOL = 0.02  # of the numbers in a row, that may stand twice by a slip
SORTED_FILL, SHUFFLED_FILL = 0.5, 0.8  # of its span a running number fills, in the rows' order and in any: rows are left out
ALIASES: dict[str, tuple[str, ...]] = {
    "patient": (
        *("patientid", "patientname", "pid", "subject", "subjectid", "participantid", "participant", "id", "case", "caseid"),
        *("brats21id", "brats2021id", "brats20id", "brats2020id", "bratsid", "bratssubjectid"),
    ),
    "session": ("sessionid", "ses", "visit", "visitid", "timepoint"),
    "t1": ("t1w", "t1n", "t1pre", "t1native", "nativet1"),
    "t1ce": ("t1c", "t1gd", "t1gad", "t1post", "t1wce", "t1wgd", "t1contrast", "cet1", "ct1", "t1km", "t1cegd"),
    "t2": ("t2w",),
    "flair": ("t2f", "t2flair", "fl", "flairw"),
    "brain_mask": ("brainmask", "brainsegmentation"),
    "tumour_mask": ("tumourmask", "tumormask", "tumorsegmentation", "tumoursegmentation", "seg", "segm", "segmentation"),
    "site": ("centre", "center", "hospital", "institution", "institute", "clinic"),
    "age": ("ageyears", "ageatmri", "ageatscan", "ageatscanyears", "ageatdiagnosis"),
    "sex": ("gender", "sexatbirth"),
    "mgmt": ("mgmtstatus", "mgmtvalue", "mgmtmethylation", "mgmtpromoter", "mgmtpromoterstatus", "mgmtmethylationstatus"),
    "pten": ("ptenmutation", "ptenstatus"),
    "tertp": ("tertpromoter", "tertpromotermutation", "tertpromoterstatus", "tertpstatus"),
    "idh": ("idhstatus", "idhmutation"),
    "os_days": (
        *("osmonths", "osweeks", "survivaldays", "survivalmonths", "survivalweeks", "daystodeathorlastfollowup"),
        *("overallsurvivaldays", "overallsurvivalmonths", "overallsurvivalweeks", "os", "overallsurvival", "survival"),
    ),
    "os_event": ("death", "dead", "deceased", "vitalstatus", "survivalstatus", "overallsurvivalstatus", "osstatus"),
}
# How public tables write a missing value.
MISSING = {"", "na", "n/a", "nan", "none", "unknown", "--", "not available", "not applicable", "not reported"}
WHOLE_NUMBER = re.compile(r"(?i)\d{1,15}\.0+|\d(\.\d{1,15})?e\+?\d{1,2}")  # of a whole number: 12.0, 1E+05
MAX_ID_DIGITS = 12  # digits to which a number is filled up with zeros: ids of hospitals have 5 to 10
Form = tuple[str, ...]


@dataclass(frozen=True)
class Contents:
    """What a column holds: numbers, a category, or None of these, which `why` explains.

    `remark` is what a person should look at, "" where there is nothing; `rows` are the positions of the cells that it is about.
    """

    kind: Literal["number", "category"] | None
    why: str = ""
    remark: str = ""
    rows: tuple[int, ...] = ()


def filled(cell: str) -> bool:
    """Whether a cell says something."""
    return cell.strip().lower() not in MISSING


def numbers(name: str, cells: Sequence[str]) -> list[float] | None:
    """The number of each cell, NaN where it is missing or unknown; None where a filled cell is no number."""
    values = _parsed(cells)
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    apart = _unknown(name, known)
    return [math.nan if value in apart else value for value in known]


def contents(name: str, cells: Sequence[str], subjects: Sequence[str]) -> Contents:
    """What a column holds.

    `cells`, `subjects`: of each visit, in the table's order, its cell and its patient.
    """
    if UNNAMED_COLUMN.fullmatch(name):
        return Contents(None, "it has no name")
    there = [row for row, cell in enumerate(cells) if filled(cell)]
    words = {cells[row] for row in there}
    if not there:
        return Contents(None, "no cell is filled")
    if any(word.endswith((".nii", ".nii.gz")) for word in words):
        return Contents(None, "it names files")
    values = _parsed(cells)
    odd = [row for row in there if values[row] is None]
    if not odd:
        return _of_numbers(name, cells, [value for value in values if value is not None], subjects)
    plain, like = 1 - len(odd) / len(there), sum(bool(LIKE_NUMBER.fullmatch(cells[row])) for row in there) / len(there)
    measured = (plain >= NUMERIC_SHARE and _limits(name)[2]) or len(words) - len({cells[row] for row in odd}) > MAX_GRADES
    if max(plain, like) >= NUMERIC_SHARE and (measured or len(words) > MAX_LEVELS or 2 * len(words) > len(there)):
        why = f"{_counted(odd, there)} not numbers, such as {cells[odd[0]]!r}"
        remark = f"{_counted(odd, there)} not numbers ({_examples(cells, odd)}), so that the column is not read"
        return Contents(None, why, f"{remark}; expected numbers with a point, without a unit, or empty cells", tuple(odd))
    named = len(words) > MAX_LEVELS or (len(there) >= MIN_ROWS and len(words) == len(there))
    if named and _limits(name)[2]:  # an age that a spreadsheet shows as a date
        remark = f"{_counted(odd, there)} not numbers ({_examples(cells, odd)}), so that the column is not read; expected numbers"
        return Contents(None, f"{_counted(odd, there)} not numbers, such as {cells[odd[0]]!r}", remark, tuple(odd))
    if len(words) > MAX_LEVELS:
        return Contents(None, f"{len(words)} different words, as of names or notes")
    if named:
        return Contents(None, "each of its words stands once, as ids do")
    if len(words) == 1:
        return Contents(None, f"every filled cell is {words.pop()!r}")
    if plain >= NUMERIC_SHARE:
        remark = f"{_counted(odd, there)} not numbers ({_examples(cells, odd)}); its {len(words)} values are read as a category"
        return Contents("category", "", remark, tuple(odd))
    return Contents("category")


def _of_numbers(name: str, cells: Sequence[str], values: Sequence[float], subjects: Sequence[str]) -> Contents:
    """What a column holds whose filled cells are all numbers; `values` are NaN where missing."""
    apart = _unknown(name, values)
    known = [value for value in values if not math.isnan(value) and value not in apart]
    remark, rows = _remarked(name, cells, values)
    if len(set(known)) < 2:
        why = f"every known value is {known[0]:g}" if known else "no value is known"
        return Contents(None, why, remark, rows)
    if why := _dates(cells) or _identifies(name, cells, values, subjects):
        return Contents(None, why)
    long = all(value % 1 == 0 and abs(value) >= 10 ** (MIN_ID_DIGITS - 1) for value in known)  # as ids are, and volumes in mm³
    if not remark and len(known) >= MIN_ROWS and len(set(known)) == len(known) and long:
        remark = (
            f"each of its numbers stands once and has {MIN_ID_DIGITS} digits or more: if it is an id, leave it out of the table"
        )
    return Contents("number", "", remark, rows)


def _dates(cells: Sequence[str]) -> str:
    """That a column of numbers holds dates, such as 20240131; "" where it does not."""
    there = [cell for cell in cells if filled(cell)]
    return f"it holds dates, such as {there[0]}" if all(DATE.fullmatch(cell) for cell in there) else ""


def _remarked(name: str, cells: Sequence[str], values: Sequence[float]) -> tuple[str, tuple[int, ...]]:
    """What a person should look at in a column of numbers, and its rows: values that cannot be, codes, a few decimal commas."""
    there = [row for row, value in enumerate(values) if not math.isnan(value)]
    apart = _unknown(name, values)
    if rows := tuple(row for row in there if values[row] in apart):
        low, high, unit = _limits(name)
        expected = f"; expected {low:g} to {high:g} {unit}" if unit else ", far from all others"
        return f"{_counted(rows, there)} not possible values ({_examples(cells, rows)}{expected}) and counted as unknown", rows
    if codes := _only_negative([values[row] for row in there]):
        rows = tuple(row for row in there if values[row] in codes)
        code = f"{_counted(rows, there)} {cells[rows[0]]}, the only negative value, and read as that number"
        return f"{code}; leave the cell empty if it means unknown", rows
    rows = tuple(row for row in there if "," in cells[row])
    if 0 < len(rows) < NUMERIC_SHARE * len(there):
        return f"{_counted(rows, there)} written with a comma ({_examples(cells, rows)}), which is read as a point", rows
    return "", ()


def _parsed(cells: Sequence[str]) -> list[float | None]:
    """The number of each cell in the notation that most filled cells have; NaN where missing, None where it is no number."""
    there = [cell for cell in cells if filled(cell)]
    commas = [cell for cell in there if "," in cell]
    notations: list[Callable[[str], float | None]] = [_plain]
    if commas and not all(THOUSANDS.fullmatch(cell) for cell in commas):
        notations.append(_with_comma)
    notations.append(dicom_age)
    best = max(notations, key=lambda notation: sum(notation(cell) is not None for cell in there))
    return [best(cell) if filled(cell) else math.nan for cell in cells]


def _plain(cell: str) -> float | None:
    return float(cell) if PLAIN_NUMBER.fullmatch(cell) else None


def _with_comma(cell: str) -> float | None:
    return float(cell.replace(",", ".")) if COMMA_NUMBER.fullmatch(cell) else None


def dicom_age(cell: str) -> float | None:
    """The years of an age as DICOM writes it (`061Y`, `018M`); None of anything else."""
    age = DICOM_AGE.fullmatch(cell)
    return int(age[1]) * YEARS_IN[age[2]] if age else None


def is_age(name: str) -> bool:
    """Whether a column is an age in years by its name."""
    return (our_column(name) == "age" or AGE.search(name) is not None) and not OTHER_UNIT.search(name)


def _limits(name: str) -> tuple[float, float, str]:
    """Between which values a column of this name can lie, and their unit; without a unit where nothing is known of it."""
    if is_age(name):
        return 0.0, OLDEST_YEARS, "years"
    if KARNOFSKY.search(name):
        return 0.0, 100.0, "of Karnofsky's scale"
    return (0.0, 5.0, "of ECOG's scale") if ECOG.search(name) else (-math.inf, math.inf, "")


def _unknown(name: str, values: Sequence[float]) -> set[float]:
    """The values that count as unknown: those that cannot be, and codes.

    A code lies further from all others than these lie apart, or is the only negative one of a measured quantity. An age of 0 is
    one where no other patient is a small child.
    """
    low, high, _ = _limits(name)
    distinct = {value for value in values if not math.isnan(value)}
    apart = {value for value in distinct if not low <= value <= high}
    others = distinct - apart - set(MISSING_CODES)
    if is_age(name) and others and min(others - {0.0}, default=0.0) >= SMALL_CHILD_YEARS:
        apart.add(0.0)
    if len(others) > 1:
        width = max(others) - min(others)
        apart |= {code for code in distinct & set(MISSING_CODES) if not min(others) - width <= code <= max(others) + width}
    return (apart | _only_negative(list(distinct - apart)) if len(others) > MAX_LEVELS else apart) & distinct


def _only_negative(values: Sequence[float]) -> set[float]:
    """The code that is the only negative one among these values; none where there is no such code."""
    negative = {value for value in values if value < 0}
    return negative & set(MISSING_CODES) if len(negative) == 1 and len(negative) < len(set(values)) else set()


def _identifies(name: str, cells: Sequence[str], values: Sequence[float], subjects: Sequence[str]) -> str:
    """Why a column of numbers counts or names patients instead of describing them; "" where it does not."""
    known = [(who, value, cell) for who, value, cell in zip(subjects, values, cells, strict=True) if not math.isnan(value)]
    once = list(dict.fromkeys(known))  # all visits of a patient may have the patient's number
    own = [value for _, value, _ in (once if len({who for who, *_ in once}) == len(once) else known)]
    if len(own) < MIN_ROWS or any(value % 1 for value in own):
        return ""
    if not _limits(name)[2] and (counted := _counts_on(own)):
        return counted
    if len(set(own)) < len(own):
        return ""
    if not _limits(name)[2] or min(own) in (0, 1):  # sorted by age, a table of few rows may have all ages of a range
        steady = own in (sorted(own), sorted(own, reverse=True))
        if len(own) >= (SORTED_FILL if steady else SHUFFLED_FILL) * (max(own) - min(own) + 1):
            return f"it numbers the rows, {min(own):g} to {max(own):g}"
    if any(re.fullmatch("0[0-9]+", cell) for *_, cell in known):
        return "each number stands once, with leading zeros, as ids do"
    if IDENTIFIER.search(name) or our_column(name) in ("patient", "session"):
        return "each number stands once, under the name of an id"
    return ""


def _counts_on(own: Sequence[float]) -> str:
    """That numbers rise by equal steps, but for a slip, or begin anew, as for each site; "" where they do not."""
    steps = [after - before for before, after in pairwise(own)]
    ((usual, _),) = Counter(steps).most_common(1)
    slips = [at for at, step in enumerate(steps, start=1) if step != usual]
    blocks = [after - before for before, after in pairwise([0, *slips])]  # the last may be short
    if usual and len(slips) <= REPEAT_TOL * len(own):
        return f"it numbers the rows from {own[0]:g} in steps of {usual:g}"
    if usual and all(own[at] == own[0] for at in slips) and min(blocks) >= MAX_LEVELS:  # shorter ones may be a grade
        return f"it numbers the rows from {own[0]:g} on, again and again"
    return ""


def _counted(rows: Sequence[int], there: Sequence[int]) -> str:
    return f"{len(rows)} of {len(there)} filled cells are"


def _examples(cells: Sequence[str], rows: Sequence[int]) -> str:
    """The first different cells of these rows."""
    different = list(dict.fromkeys(cells[row] for row in rows))
    return ", ".join(map(repr, different[:3])) + ", …" * (len(different) > 3)


def key(name: str) -> str:
    """A name without case, spaces and signs: `T1-Gd` is t1gd."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


OURS = {spelling: column for column, others in ALIASES.items() for spelling in (key(column), *others)}


def our_column(name: str) -> str | None:
    """The column of a cohort table that a name stands for, whatever its case and signs; None where it stands for none."""
    return OURS.get(key(name))


def suggestion(name: str) -> str | None:
    """The column that a name may mean although it is none of its known spellings; None where none is like it."""
    like = difflib.get_close_matches(key(name), OURS, n=1, cutoff=0.75)
    return OURS[like[0]] if like else None


def nearest(column: str, header: Sequence[str]) -> str:
    """The name in a header that is meant by `column` in another spelling, or else the one that looks most like it."""
    meant = [name for name in header if our_column(name) == column]
    in_small = {name.casefold(): name for name in header}
    return meant[0] if meant else in_small[difflib.get_close_matches(column.casefold(), in_small, n=1, cutoff=0.0)[0]]


def form(name: str) -> Form:
    """Letters and digits of an id in runs, without case, leading zeros and signs: `P-001` and `p1` are ("p", "1")."""
    return tuple(run.lstrip("0") or "0" if run.isdecimal() else run for run in _runs(name))


def _runs(name: str) -> list[str]:
    """The runs of letters and of digits in an id, in small letters; a number's notation is written out."""
    text = unicodedata.normalize("NFKC", name).casefold().strip()
    if WHOLE_NUMBER.fullmatch(text):
        text = f"{float(text):.0f}"
    return re.findall(r"\d+|[^\W\d_]+", text)


def alike(ids: Iterable[str]) -> list[list[str]]:
    """Groups of ids of one form: `1`, `001` and `0001`."""
    groups: dict[Form, list[str]] = defaultdict(list)
    for name in dict.fromkeys(ids):
        groups[form(name)].append(name)
    return [names for names in groups.values() if len(names) > 1]


def counterparts(names: Iterable[str], others: Collection[str]) -> dict[str, list[str]]:
    """For each name that is not among the others those of them that differ only in form; names without any are left out.

    A number alone is also the same number behind letters, `1` and `sub-01`, as long as these are one word.
    """
    of_form: dict[Form, list[str]] = defaultdict(list)
    for other in others:
        own = form(other)
        for key in dict.fromkeys((own, _number_behind_letters(own))):
            of_form[key].append(other)
    pairs: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        if name in others or not (own := form(name)):
            continue
        of_name = of_form[own] if own[0].isdecimal() else [o for o in of_form[own] if form(o) == own]
        bare = _number_behind_letters(own)
        like = [*of_name, *(o for o in of_form[bare] if bare != own and form(o) == bare)]
        if like:
            pairs[name] = list(dict.fromkeys(like))
    return pairs


def _number_behind_letters(own: Form) -> Form:
    """The form without the word that it starts with; itself where it does not, or where nothing else is there."""
    return own[1:] if len(own) > 1 and not own[0].isdecimal() and own[1].isdecimal() else own


def unambiguous(names: Collection[str], pairs: Mapping[str, Collection[str]]) -> dict[str, str]:
    """The pairs in which each is the only counterpart of the other; a counterpart that is itself among `names` is taken.

    `names`: all ids of the one side.
    `pairs`: as `counterparts` gives them.
    """
    claimed: dict[str, list[str]] = defaultdict(list)
    for name, others in pairs.items():
        for other in others:
            claimed[other].append(name)
    return {
        name: other
        for name, (other, *more) in ((name, list(others)) for name, others in pairs.items())
        if not more and claimed[other] == [name] and other not in names
    }


def id_spellings(name: str) -> list[str]:
    """Forms in which an id may stand elsewhere, for a side that is known by hashes alone: with other zeros, case and signs."""
    own = tuple(_runs(name))
    prefixed = dict.fromkeys((own, _number_behind_letters(own), *([("sub", *own)] if own and own[0].isdecimal() else [])))
    made: dict[str, None] = {}
    for parts, sign, width in product(prefixed, ("", "-", "_", ".", " "), range(1, MAX_ID_DIGITS + 1)):
        filled = [(run.lstrip("0") or "0").zfill(width) if run.isdecimal() else run for run in parts]
        for runs in (filled, [*parts[:-1], *filled[-1:]]):
            made |= dict.fromkeys(case(sign.join(runs)) for case in (str.lower, str.upper, str.capitalize))
    return [spelling for spelling in made if spelling != name]


def hint(name: str, other: str) -> str:
    """What may have become of an id that is spelled otherwise elsewhere, as a question."""
    if name.casefold() == other.casefold():
        return "another case?"
    if any(WHOLE_NUMBER.fullmatch(each) for each in (name, other)):
        return "a number's notation, or zeros lost?"
    without = [re.sub(r"(?<!\d)0+(?=\d)", "", each) for each in (name, other)]
    zeros = "zeros lost" if sum(map(len, without)) < len(name) + len(other) else ""
    prefix = "a prefix" if len(form(name)) != len(form(other)) else ""
    return f"{' and '.join(filter(None, (prefix, zeros))) or 'other signs'}?"


def elsewhere(name: str, others: Collection[str]) -> str:
    """What to say behind an id that is not among others, where one of them differs only in form; else nothing."""
    like = counterparts([name], others).get(name)
    return f"; {like[0]!r} is: {hint(name, like[0])}" if like else ""
