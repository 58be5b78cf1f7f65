"""How comparators stand beside the study's own model: results with paired tests in, who is better by more than chance out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from mri_vit.report.numbers.chance import ALPHA
from mri_vit.report.reading.run import OWN
from mri_vit.report.schema.comparison import Comparison
from mri_vit.report.schema.metrics import Result
from mri_vit.report.verdicts.models import Verdict

Standing = Literal["better", "worse", "alike", "undefined"]


@dataclass(frozen=True)
class Sides:
    """The comparators of an endpoint by their standing, each side with the largest difference in its favour first."""

    better: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    leaks: bool = False  # labels may leak, so that nobody wins


def standing(test: Comparison) -> Standing:
    """Whether a comparator is better or worse than the study's own model by more than chance, from its `versus_own`.

    The p after Holm must be at most ALPHA; over several repeats the corrected resampled t-test must agree, each way one-sided.
    """
    p, difference, repeated = test.p_adjusted, test.difference, test.nadeau_bengio
    if math.isnan(p) or math.isnan(difference):
        return "undefined"
    sides = (repeated.p, 1 - repeated.p) if repeated else (0.0, 0.0)  # NaN agrees with nobody
    if p <= ALPHA and difference > 0 and sides[0] <= ALPHA:
        return "better"
    return "worse" if p <= ALPHA and difference < 0 and sides[1] <= ALPHA else "alike"


def sides(models: Mapping[str, Result], verdicts: Mapping[str, Verdict]) -> Sides | None:
    """The comparators of one endpoint by their standing; None where none is compared with another model.

    A model that learned labels it should not know would win by that; where labels may leak, nobody wins.
    """
    tests = {model: result.versus_own for model, result in models.items() if result.versus_own}
    if not tests:
        return None
    if verdicts[OWN].leaks:
        return Sides(leaks=True)
    found: dict[Standing, list[str]] = {side: [] for side in get_args(Standing)}
    for model in sorted(tests, key=lambda model: -tests[model].difference):
        found[standing(tests[model])].append(model)
    return Sides(
        better=tuple(found["better"]),
        worse=tuple(found["worse"][::-1]),
        alike=tuple(found["alike"]),
        undefined=tuple(found["undefined"]),
    )
