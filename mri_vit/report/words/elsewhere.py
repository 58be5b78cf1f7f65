"""What an evaluation on another cohort says of calibration and of a new hospital, in words: figures in, a sentence out."""

from __future__ import annotations

from mri_vit.report.numbers.other_hospitals import FEWEST_OF_SITE, FEWEST_SITES
from mri_vit.report.schema.parts import Estimate
from mri_vit.report.schema.run import CalibrationDrift, NewHospital
from mri_vit.report.words.notation import is_defined, number

SYMBOLS = {"auc": "AUC", "harrell_c": "C"}
RARER = {"auc": "of each class", "harrell_c": "deaths"}


def with_drift(drift: CalibrationDrift) -> CalibrationDrift:
    """The same with its sentence."""
    return drift.model_copy(update={"sentence": _shift(drift)})


def with_expectation(found: NewHospital) -> NewHospital:
    """The same with its sentence."""
    return found.model_copy(update={"sentence": _expectation(found)})


def _shift(drift: CalibrationDrift) -> str:
    """How far probabilities are off here on the whole, whether they were in the run, and whether that changed."""
    what = "Probabilities" if not is_defined(drift.days) else f"Probabilities to die within {drift.days:.0f} days"
    here, before, change = drift.excess.external, drift.excess.internal, drift.excess.difference
    if not is_defined(here.value):
        return f"{what} cannot be judged here: nobody was followed up so far"
    if not is_defined(here.low):
        return f"{what} differ from what is observed here by {_points(here.value)}; how sure that is cannot be told"
    if here.low <= 0 <= here.high:
        said = f"{what} are not shown to be off on the whole here: {_off(here)}"
    else:
        ends = f"[{_signed(here.low)}, {_signed(here.high)}]"
        said = f"{what} run {_points(abs(here.value)).lstrip('+')} too {'high' if here.value > 0 else 'low'} here {ends}"
    if not (is_defined(change.low) and is_defined(before.value)):
        return said
    changed = "from which no change is shown" if change.low <= 0 <= change.high else "so calibration changed"
    return f"{said}; in the run it was {_off(before)}, {changed}"


def _off(found: Estimate) -> str:
    """Points by which probabilities exceed the observed share, with the interval: +8 points [+2, +14]."""
    ends = f" [{_signed(found.low)}, {_signed(found.high)}]" if is_defined(found.low) else ""
    return f"{_points(found.value)}{ends}"


def _points(share: float) -> str:
    rounded = _signed(share)
    return f"{rounded} point{'' if rounded[1:] == '1' else 's'}"


def _signed(share: float) -> str:
    text = number(100 * share, 0)
    return text if text == "0" or not text[0].isdigit() else f"+{text}"


def _expectation(found: NewHospital) -> str:
    """In which range the figure of a new hospital lies, and what that rests on."""
    symbol = SYMBOLS[found.measure]
    between = f"{number(found.low, 2)} to {number(found.high, 2)}"
    range_ = f"In a hospital that is in neither cohort {symbol} {between} is to be expected"
    few = f"fewer than {FEWEST_OF_SITE} {RARER[found.measure]}"
    left = f"; {found.left_out} with {few} left out" if found.left_out else ""
    if found.method == "sites":
        return f"{range_}, from how {len(found.sites)} sites of this cohort differ{left}"
    held = f"{len(found.sites)} of its sites {'has' if len(found.sites) == 1 else 'have'}" if found.sites else "no site has"
    return (
        f"{range_} by assumption: this cohort cannot say how sites differ ({held} at least {FEWEST_OF_SITE} "
        f"{RARER[found.measure]}; {FEWEST_SITES} are needed), so they are taken to differ as those of models for heart disease"
    )
