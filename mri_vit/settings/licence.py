"""Licence: the terms under which a file of weights was published, as text that stands wherever the weights were used."""

from __future__ import annotations

import re

NOT_STATED = "not stated"
OWN = "own"  # of weights that this package has learned from random ones: whoever owns the run decides
# Words of licences that do not allow commercial use: Creative Commons' NC, and how others say it; not the Academic Free License.
NON_COMMERCIAL = re.compile(
    r"\bnc(?![a-z])|\b(non|not for|no)[- ]?commercial|\bresearch([ -](use|purposes?))?[ -]only|\bonly for research"
    r"|\bacademic[ -](use|purposes?|research|only|non)"
)


def stated(licence: str | None) -> str:
    """The licence, or that none is stated."""
    return (licence or "").strip() or NOT_STATED


def is_non_commercial(licence: str) -> bool:
    """Whether a licence says that it does not allow commercial use: CC-BY-NC-4.0, "academic use"."""
    return bool(NON_COMMERCIAL.search(licence.lower().replace("_", "-")))


def in_words(licence: str | None) -> str:
    """For a sentence about weights: licence CC-BY-4.0; licence not stated."""
    return f"licence {stated(licence)}"


def caution(file: str, licence: str) -> str:
    """What whoever uses the weights of `file` has to know of their licence; "" where nothing speaks against them."""
    if licence == NOT_STATED:
        return f"{file}: the licence of these weights is not stated; ask who made them whether they may be used and shared"
    if is_non_commercial(licence):
        return f"{file}: the licence of these weights, {licence}, does not allow commercial use, nor of what is made from them"
    return ""
