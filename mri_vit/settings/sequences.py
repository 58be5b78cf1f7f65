"""Sequences: what the scans of a study are called, in its settings and for people. Plain data."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

CHANNELS: tuple[str, ...] = (
    "t1",
    "t1ce",
    "t2",
    "flair",
)  # of a study that names no others; their order is that of every stored array
REFERENCE = "t1ce"  # to which the other scans are aligned, and whose space is the patient's own, unless a study names another
T1_LIKE = ("t1ce", "t1")
NAME = r"[a-z][a-z0-9_]{0,31}"  # a column of the cohort table, and a part of the names of maps' files
COLUMNS = (  # of the cohort table, or words that stand beside sequences in files of maps: no names of sequences
    *("patient", "session", "site", "cohort", "scan_cohort", "same_as", "brain_mask", "tumour_mask"),
    *("grid", "evidence", "empty"),
)
# Maps of a quantity, by a word of their name. What a receive coil does to the signal has been divided out of them, so that a
# smooth trend is the brain's, and N4 would take it for bias.
QUANTITATIVE = {
    *("adc", "md", "fa", "ad", "rd", "mk"),  # diffusion
    *("asl", "cbf", "cbv", "rcbf", "rcbv", "mtt", "ttp", "tmax", "ktrans"),  # perfusion
    *("t1map", "t2map", "r1", "r2", "r2star", "qsm"),  # relaxation and susceptibility
}
TITLES = {"t1": "T1", "t1ce": "T1ce", "t2": "T2", "flair": "FLAIR"}
LONG = {"t1ce": "contrast-enhanced T1"}  # where a text names it first


def title(sequence: str) -> str:
    """A sequence's name for people: T1ce, FLAIR; of one that is not known here its letters as capitals, ASL CBF."""
    return TITLES.get(sequence, sequence.upper().replace("_", " "))


def names_of(written: str) -> tuple[str, ...]:
    """The names in a file's header, a list in JSON. Raises ValueError where it is none."""
    found = json.loads(written)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"sequences {written}")
    return tuple(found)


def is_quantitative(sequence: str) -> bool:
    """Whether a name is of a map of a quantity: adc, asl_cbf."""
    return not QUANTITATIVE.isdisjoint(sequence.split("_"))


def like_the_template(sequences: Collection[str], reference: str) -> str:
    """Which of some sequences is aligned to the template, a T1: the reference if it is one, else T1ce or T1 where there is one.

    FLAIR as the reference lay 0.8 mm from where T1ce puts a brain's edge, T1 0.5 (medians over five real patients).
    """
    return next((name for name in (reference, *T1_LIKE) if name in T1_LIKE and name in sequences), reference)


def titles(sequences: Sequence[str]) -> str:
    """Several names for people: T1, T2 and FLAIR."""
    return _listed([title(sequence) for sequence in sequences])


def named(sequences: Sequence[str]) -> str:
    """The same where a text names them first: T1, contrast-enhanced T1 (T1ce), T2 and FLAIR."""
    return _listed([f"{LONG[name]} ({title(name)})" if name in LONG else title(name) for name in sequences])


def _listed(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
