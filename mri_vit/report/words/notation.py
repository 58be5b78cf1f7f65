"""How page, texts and terminal write values: numbers, intervals, p, names, counts and lists, and text safe in Markdown.

Values are those of `metrics.json`, NaN where undefined.
"""

from __future__ import annotations

import html
import math
import re
import tomllib
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Protocol, TypeGuard, runtime_checkable

from mri_vit.report.schema.kinds import Result
from mri_vit.report.schema.parts import Part
from mri_vit.run.screen import counted as counted
from mri_vit.settings.recipe import CLINICAL, INTENSITY, RADIOMICS, RESHUFFLED, SHUFFLED, SITE, SLICES, VOLUME
from mri_vit.settings.schema import ENDPOINT_TITLES
from mri_vit.style import tied as tied

EXPLAINED = {  # what each control is, for the reader who meets the name first
    CLINICAL: "clinical columns only",
    VOLUME: "brain and tumour volume only",
    INTENSITY: "brightness of the sequences only",
    SLICES: "a frozen 2D network's features of slices only",
    SITE: "the site only",
    SHUFFLED: "the study on permuted labels",
    RESHUFFLED: "the study on a fresh permutation",
    RADIOMICS: "given the tumour mask, an upper reference",
}
SYMBOLS = {"auc": "AUC", "harrell_c": "C", "hand_till_m": "M", "generalised_c": "C"}  # of the measures that a result is judged by
CHANCE_TESTS: Mapping[str, str] = {
    "refitted": "refitted to permuted labels",
    "within folds": "corrected for refitting",
    "scores as given": "scores as given",
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
COST_DECIMALS = 4  # decimals of a cost: a tenth of a millisecond is less than a clock's noise
SMALLEST_P = 0.001  # below it digits say nothing more: the normal law is rough out there, and so is a share of few permutations
ROUGH_P = 0.1  # from here on two digits are enough; near the level of a test a third one counts

Write = Callable[[float], str]


@runtime_checkable
class Bounded(Protocol):
    """An estimate with the ends of its 95 % interval."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@runtime_checkable
class Paired(Protocol):
    """A difference with the ends of its 95 % interval."""

    @property
    def difference(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def number(value: float | int | None, digits: int = 3, n: int | None = None) -> str:
    """A number as the page writes it; an undefined one says so, and of how many patients."""
    if not is_defined(value):
        return "undefined" if n is None else f"undefined (n = {n})"
    text = f"{value:.{digits}f}"
    text = text.removeprefix("-") if float(text) == 0 else text  # no minus before a rounded zero
    return text.replace("-", "\N{MINUS SIGN}")


def interval(estimate: Bounded, n: int | None = None, digits: int = 3) -> str:
    """An estimate with its interval: 0.912 [0.850, 0.974]."""
    return between(estimate.value, estimate.low, estimate.high, n, digits)


def estimate(found: Bounded, n: int | None = None) -> str:
    """An estimate with its interval, or alone where that is undefined."""
    return interval(found, n) if is_defined(found.low) else number(found.value, n=n)


def judged(result: Result) -> str:
    """The figure that is judged, with its interval; alone where it cannot be judged, for an interval would vouch for it."""
    if result.verdict_kind == "undefined":
        return number(result.judged.value, n=result.n)
    return interval(result.judged, result.n)


def signed(test: Paired, n: int | None = None) -> str:
    """A difference with its interval: +0.120 [+0.030, +0.210]."""
    return change(test.difference, test.low, test.high, n)


def change(difference: float | None, low: float | None, high: float | None, n: int | None = None) -> str:
    """A difference and the ends of its interval; the difference alone where these are undefined, or one: no test is that sure."""
    if not (is_defined(difference) and is_defined(low) and is_defined(high)) or low == high:
        return with_sign(difference) if is_defined(difference) else number(difference, n=n)
    return f"{with_sign(difference)} {ends(low, high, n, with_sign)}"


def between(value: float | None, low: float | None, high: float | None, n: int | None = None, digits: int = 3) -> str:
    """A value and the ends of its 95 % interval, in one form for page, tables, texts and terminal; n is of how many patients."""
    if not is_defined(value):
        return number(value, n=n)
    return f"{number(value, digits)} {ends(low, high, n, partial(number, digits=digits))}"


def ends(low: float | None, high: float | None, n: int | None = None, write: Write | None = None) -> str:
    """The ends of a 95 % interval alone, each as `write` writes it, else `number`: [0.850, 0.974]."""
    write = write or number
    return f"[{write(low)}, {write(high)}]" if is_defined(low) and is_defined(high) else f"[{number(None, n=n)}]"


def with_sign(value: float | None) -> str:
    """A difference: +0.120, −0.030."""
    return "+" * (is_defined(value) and value > 0) + number(value)


def is_defined(value: float | int | None) -> TypeGuard[float]:
    """Whether there is a number: neither null, as in the file, nor NaN."""
    return value is not None and not math.isnan(value)


def p_value(value: float | None) -> str:
    """A p that is not adjusted: p = 0.031, p = 0.21, and never p = 0."""
    return f"p {_related(value)}"


def adjusted_p(value: float | None) -> str:
    """A p that is adjusted for several tests, by Holm's method throughout, and says so: adjusted p = 0.031."""
    return f"adjusted p {_related(value)}"


def p_alone(value: float | None) -> str:
    """A p in a column whose head says what it is, and whether it is adjusted: 0.031, 0.21, < 0.001."""
    return _related(value).removeprefix("= ")


def _related(p: float | None) -> str:
    if not is_defined(p):
        return "undefined"
    if p < SMALLEST_P:
        return f"< {SMALLEST_P:g}"
    return f"= {p:.2f}" if p >= ROUGH_P else f"= {p:.3f}"


def significant(value: float | int | None) -> str:
    """A cost with three digits that count, 0.0312, 4.56, 789; nothing where it is not known."""
    if not is_defined(value):
        return ""
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:,.{min(max(digits, 0), COST_DECIMALS)}f}"


def duration(seconds: float | int | None) -> str:
    """Hours, minutes and seconds: 1:02:03; nothing where it is not known."""
    if not is_defined(seconds):
        return ""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def percent(share: float, digits: int = 0) -> str:
    """A share in per cent, which stay on one line: 20 %."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def symbol(result: Result) -> str:
    """The symbol of the measure that a result is judged by: AUC, C or M."""
    return result.symbol


def title(name: str) -> str:
    """An endpoint's full name."""
    return ENDPOINT_TITLES.get(name, name)


def short(method: str) -> str:
    """A map method's name where there is little room: gradient attention."""
    return method.replace("_", " ").replace("cls", "CLS").replace("gradcam", "Grad-CAM")


def file_name(*parts: str) -> str:
    """File name of a figure or table; whatever a model is called, it stays one name in one folder, and its own."""
    return "_".join(_plain(part) for part in parts)


def _plain(part: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", part)
    return plain if plain == part else f"{plain}{zlib.crc32(part.encode()):08x}"  # so that a/b and a-b stay apart


def setting(value: object) -> str:
    """A setting's value in words."""
    if value is None or value in ([], ()):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(inner) for inner in value)
    return str(value)


NUMBERS = dict(enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight"), 1)) | {16: "sixteen"}
MARKUP = re.compile(r"([\\`*_\[\]|~$])")  # what Markdown reads as markup within a line or a table's cell


def escape(value: object) -> str:
    """Any text on one line that Markdown shows as it is: no markup, no HTML, no new cell."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())
    return MARKUP.sub(r"\\\1", html.escape(line, quote=False))


def is_known(value: object) -> bool:
    """Whether there is anything to report: not missing, not NaN, not empty; an estimate needs its value, a test its p."""
    if isinstance(value, Part):
        inner = {key: getattr(value, key) for key in type(value).model_fields}
        chief = next((key for key in ("value", "p") if key in inner), None)
        return is_known(inner[chief] if chief else inner)
    if isinstance(value, Mapping):
        return any(is_known(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return any(is_known(inner) for inner in value)
    return value is not None and value != "" and not (isinstance(value, float) and math.isnan(value))


def capitalize_first(text: str) -> str:
    """The text with its first letter as a capital, the others as they are."""
    return text[:1].upper() + text[1:]


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def in_words(number: int) -> str:
    """Small numbers as texts have them."""
    return NUMBERS.get(number, str(number))


def word_list(name: str) -> dict[str, Any]:
    """What `items/<name>.toml` holds: a checklist, the glossary, references, published figures."""
    return tomllib.loads((files("mri_vit.report.words") / "items" / f"{name}.toml").read_text(encoding="utf-8"))
