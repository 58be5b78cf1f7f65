"""How page, texts and terminal write what was measured: values of metrics.json in (NaN where undefined), text out."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeGuard, TypeVar, runtime_checkable

from mri_vit.crossval import power
from mri_vit.metrics import within_fold
from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.survival import SurvivalResult
from mri_vit.settings.endpoint import TITLES
from mri_vit.settings.recipe import CLINICAL, INTENSITY, RADIOMICS, RESHUFFLED, SHUFFLED, SITE, SLICES, VOLUME, is_candidate

EXPLAINED = {  # what each control is, for the reader who meets the name first
    CLINICAL: "clinical columns only",
    VOLUME: "brain and tumour volume only",
    INTENSITY: "brightness of the sequences only",
    SLICES: "a frozen 2D network's features of slices only",
    SITE: "the site only",
    SHUFFLED: "the study on permuted labels",
    RESHUFFLED: "the study on a fresh permutation",
    RADIOMICS: "given the true tumour mask, an upper reference",
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
SMALLEST_P = 0.001  # below it digits say nothing more: the normal law is rough out there, and so is a share of few permutations
ROUGH_P = 0.1  # from here on two digits are enough; near the level of a test a third one counts

Write = Callable[[float], str]
R = TypeVar("R", bound=BinaryResult | SurvivalResult)


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


def judged(result: BinaryResult | SurvivalResult) -> str:
    """The figure that is judged, with its interval; alone where it cannot be judged, for an interval would vouch for it."""
    if result.verdict_kind == "undefined":
        return number(result.estimate.value, n=result.n)
    return interval(result.estimate, result.n)


def signed(test: Paired, n: int | None = None) -> str:
    """A difference with its interval: +0.120 [+0.030, +0.210]."""
    return change(test.difference, test.low, test.high, n)


def change(difference: float | None, low: float | None, high: float | None, n: int | None = None) -> str:
    """A difference and the ends of its interval; the difference alone where these are undefined, or one: nobody is that sure."""
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
    return f"{value:,.{min(max(digits, 0), FINEST)}f}"


def duration(seconds: float | int | None) -> str:
    """Hours, minutes and seconds: 1:02:03; nothing where it is not known."""
    if not is_defined(seconds):
        return ""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def percent(share: float, digits: int = 0) -> str:
    """A share in per cent, which stay on one line: 20 %."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def tied(sentence: str) -> str:
    """The sentence with numbers and their per cent sign, and p and its number, kept on one line."""
    for words in (" %", "p = ", "p < ", "p > "):
        sentence = sentence.replace(words, words.replace(" ", "\N{NO-BREAK SPACE}"))
    return sentence


def symbol(result: BinaryResult | SurvivalResult) -> str:
    """The symbol of the measure that a result is judged by: AUC or C."""
    return "AUC" if isinstance(result, BinaryResult) else "C"


def could_show(result: BinaryResult | SurvivalResult) -> str:
    """What the patients could have shown at all, as is said before a run; "" where all scores are equal or there is no pair."""
    test = result.chance_test
    if not test.error > 0:
        return ""
    return power.sentence(symbol(result), within_fold.least_above_chance(test.error, test.inflation))


def visible(metrics: Metrics, models: Mapping[str, R]) -> dict[str, R]:
    """Of these models, the candidates that are shown (see `numbers.comparators`) and the controls."""
    return {model: result for model, result in models.items() if model in metrics.shown or not is_candidate(model)}


def chief(metrics: Metrics) -> tuple[str, ...]:
    """Models that are reported at length: the study's own, or every model shown where there is none of its own."""
    return (OWN,) if OWN in metrics.shown else metrics.shown


def title(name: str) -> str:
    """An endpoint's full name."""
    return TITLES.get(name, name)


def short(method: str) -> str:
    """A map method's name where there is little room: gradient attention."""
    return method.replace("_", " ").replace("cls", "CLS").replace("gradcam", "Grad-CAM")


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


def setting(value: object) -> str:
    """A setting's value in words."""
    if value is None or value in ([], ()):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(str(inner) for inner in value)
    return str(value)
