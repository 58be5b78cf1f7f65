"""Spellings: what others call the columns of a cohort table, scans and patients. Any spelling goes in, ours comes out.

Ids that differ only in form are one patient's: in zeros, case, signs, a prefix or a notation. A spreadsheet writes 00012 as 12,
pandas as 12.0, and 100000 may stand as 1E+05; BIDS writes 01 as sub-01.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product

# Spellings are compared by `key`: T1-Gd, t1_gd and T1GD are one. A word that could mean two of ours ("status") is none.
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

MISSING = {
    "",
    "na",
    "n/a",
    "nan",
    "none",
    "not available",
    "not applicable",
    "not reported",
    "unknown",
    "--",
}  # how public tables write a missing value


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
    return meant[0] if meant else difflib.get_close_matches(column, header, n=1, cutoff=0.0)[0]


NOTATION = re.compile(r"(?i)\d{1,15}\.0+|\d(\.\d{1,15})?e\+?\d{1,2}")  # of a whole number: 12.0, 1E+05
LONGEST = 12  # digits to which a number is filled up with zeros: ids of hospitals have 5 to 10
Form = tuple[str, ...]


def form(name: str) -> Form:
    """Letters and digits of an id in runs, without case, leading zeros and signs: `P-001` and `p1` are ("p", "1")."""
    return tuple(run.lstrip("0") or "0" if run.isdecimal() else run for run in _runs(name))


def _runs(name: str) -> list[str]:
    """The runs of letters and of digits in an id, in small letters; a number's notation is written out."""
    text = unicodedata.normalize("NFKC", name).casefold().strip()
    if NOTATION.fullmatch(text):
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

    Parameters
    ----------
    names : all ids of the one side.
    pairs : as `counterparts` gives them.
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


def spellings(name: str) -> list[str]:
    """Forms in which an id may stand elsewhere, for a side that is known by hashes alone: with other zeros, case and signs."""
    own = tuple(_runs(name))
    prefixed = dict.fromkeys((own, _number_behind_letters(own), *([("sub", *own)] if own and own[0].isdecimal() else [])))
    made: dict[str, None] = {}
    for parts, sign, width in product(prefixed, ("", "-", "_", ".", " "), range(1, LONGEST + 1)):
        filled = [(run.lstrip("0") or "0").zfill(width) if run.isdecimal() else run for run in parts]
        for runs in (filled, [*parts[:-1], *filled[-1:]]):
            made |= dict.fromkeys(case(sign.join(runs)) for case in (str.lower, str.upper, str.capitalize))
    return [spelling for spelling in made if spelling != name]


def hint(name: str, other: str) -> str:
    """What may have become of an id that is spelled otherwise elsewhere, as a question."""
    if name.casefold() == other.casefold():
        return "another case?"
    if any(NOTATION.fullmatch(each) for each in (name, other)):
        return "a number's notation, or zeros lost?"
    without = [re.sub(r"(?<!\d)0+(?=\d)", "", each) for each in (name, other)]
    zeros = "zeros lost" if sum(map(len, without)) < len(name) + len(other) else ""
    prefix = "a prefix" if len(form(name)) != len(form(other)) else ""
    return f"{' and '.join(filter(None, (prefix, zeros))) or 'other signs'}?"


def elsewhere(name: str, others: Collection[str]) -> str:
    """What to say behind an id that is not among others, where one of them differs only in form; else nothing."""
    like = counterparts([name], others).get(name)
    return f"; {like[0]!r} is: {hint(name, like[0])}" if like else ""
