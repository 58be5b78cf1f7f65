"""How the page and the terminal write what was measured: values of metrics.json in (null where undefined), text out."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping
from typing import Any

from mri_vit.settings.models import CLINICAL, SHUFFLED, VOLUME

TITLES = {  # the defaults' full names; any other endpoint goes by its own
    "mgmt": "MGMT promoter methylation",
    "tertp": "TERT promoter mutation",
    "pten": "PTEN alteration",
    "os": "Overall survival",
}
EXPLAINED = {  # what each control is, for the reader who meets the name first
    CLINICAL: "clinical columns only",
    VOLUME: "brain and tumour volume only",
    SHUFFLED: "the study on permuted labels",
}
KINDS = {"better": "better", "chance": "chance", "worse": "worse", "undefined": "not judged"}
MARKS = {"better": "▲", "chance": "○", "worse": "▼", "undefined": "–"}  # the kind once more, for those who see no colour
MAP_KINDS = {
    "passes": "passes",
    "unsettled": "not settled",
    "fails": "fails a check",
    "none": "no finding",
    "undefined": "not judged",
}
MAP_MARKS = {"passes": "▲", "unsettled": "○", "fails": "▼", "none": "○", "undefined": "–"}
FINEST = 4  # decimals of a cost: a tenth of a millisecond is less than a clock's noise
SMALLEST_P = 0.0001  # below it the digits say how many permutations were drawn, and no more


def number(value: float | int | None, digits: int = 3, n: int | None = None) -> str:
    """A number as the page writes it; an undefined one says so, and of how many patients."""
    if value is None or math.isnan(value):
        return "undefined" if n is None else f"undefined (n = {n})"
    text = f"{value:.{digits}f}"
    text = text.removeprefix("-") if float(text) == 0 else text  # no minus before a rounded zero
    return text.replace("-", "\N{MINUS SIGN}")


def interval(estimate: Mapping[str, Any], n: int) -> str:
    """An estimate as the page writes it: 0.912 [0.850, 0.974]."""
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    if value is None or math.isnan(value):
        return number(value, n=n)
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return f"{number(value)} [undefined (n = {n})]"
    return f"{number(value)} [{number(low)}, {number(high)}]"


def signed(estimate: Mapping[str, Any], n: int) -> str:
    """A difference with its interval: +0.120 [+0.030, +0.210]."""
    ends = (estimate["difference"], estimate["low"], estimate["high"])
    if any(end is None or math.isnan(end) for end in ends):
        return number(estimate["difference"], n=n)
    value, low, high = ("+" * (end is not None and end > 0) + number(end) for end in ends)
    return f"{value} [{low}, {high}]"


def p_value(value: float | int | None) -> str:
    """A p value: p = 0.0312, and never p = 0."""
    if value is None or math.isnan(value):
        return "p undefined"
    return f"p < {SMALLEST_P:g}".replace("1e-04", "0.0001") if value < SMALLEST_P else f"p = {value:.4f}"


def significant(value: float | int | None) -> str:
    """A cost with three digits that count, 0.0312, 4.56, 789; nothing where it is not known."""
    if value is None or math.isnan(value):
        return ""
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:,.{min(max(digits, 0), FINEST)}f}"


def duration(seconds: float | int | None) -> str:
    """Hours, minutes and seconds: 1:02:03; nothing where it is not known."""
    if seconds is None or math.isnan(seconds):
        return ""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def tied(sentence: str) -> str:
    """The sentence with numbers and their per cent sign kept on one line."""
    return sentence.replace(" %", "\N{NO-BREAK SPACE}%")


def title(name: str) -> str:
    """An endpoint's full name."""
    return TITLES.get(name, name)


def short(method: str) -> str:
    """A map method's name where there is little room: gradient attention."""
    return method.replace("_", " ").replace("cls", "CLS")


def absence(known: int, design: str) -> str:
    """Why an endpoint that was asked for, with so many labels known in the table, has no result."""
    if known:
        return "labels known, but of nobody with a prediction"
    # Only cross-validation trains on the labels that are shown.
    return "no label known: not trained" if design == "cross-validation" else "no label known: not judged"


def file_name(*parts: str) -> str:
    """File name of a figure or table; whatever a model is called, it stays one name in one folder, and its own."""
    return "_".join(_plain(part) for part in parts)


def _plain(part: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", part)
    return plain if plain == part else f"{plain}{zlib.crc32(part.encode()):08x}"  # so that a/b and a-b stay apart


def setting(value: Any) -> str:
    """A setting's value in words."""
    if value is None or value in ([], ()):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(inner) for inner in value)
    return str(value)
