"""How a model stands against chance and against clinical-only, by rules that are fixed before any result is seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from mri_vit.report.numbers.pooled import Caveats
from mri_vit.report.schema.binary import BinaryResult
from mri_vit.report.schema.comparison import Comparison, Kind
from mri_vit.report.schema.metrics import Result
from mri_vit.settings.models import CLINICAL, SHUFFLED, is_candidate

ALPHA = 0.05  # Fisher 1925; with 95 % intervals throughout
CHANCE = 0.5  # AUC and concordance of a model that knows nothing
FEWEST = 5  # a perfect order of d deaths has a chance of 1/d!; five are the fewest with less than 1 %

Standing = Literal["better", "not better", "undefined", "no shared patient", "not run"]


@dataclass(frozen=True)
class BesideClinical:
    """How a candidate that is better than chance stands beside clinical-only."""

    standing: Standing
    clinical_is_weak: bool  # no better than chance itself: to beat it then says no more than to beat chance


@dataclass(frozen=True)
class Verdict:
    """What is to be said of a model on an endpoint."""

    kind: Kind  # undefined where the design leaks
    against_chance: Kind
    is_tied: bool  # all scores are equal
    leaks: bool  # the shuffled control of the endpoint is better than chance
    clinical: BesideClinical | None = None  # only of a candidate that is better than chance


def of_endpoint(models: Mapping[str, Result], caveats: Mapping[str, Caveats]) -> dict[str, Verdict]:
    """The verdict on every model of an endpoint.

    When the shuffled control is better than chance, the design lets labels through, and every other verdict becomes a
    warning of the kind "undefined".
    """
    kinds: dict[str, Kind] = {model: against_chance(result) for model, result in models.items()}
    leaks = kinds.get(SHUFFLED) == "better"
    found = {model: Verdict(kind, kind, caveats[model].tied, leaks) for model, kind in kinds.items()}
    for model, kind in kinds.items():
        if is_candidate(model) and kind == "better":
            beside = beside_clinical(models[model].versus_clinical, kinds.get(CLINICAL))
            found[model] = replace(found[model], clinical=beside)
        if leaks and model != SHUFFLED:
            found[model] = replace(found[model], kind="undefined")
    return found


def against_chance(result: Result) -> Kind:
    """Better or worse than chance, indistinguishable from it, or not to be judged, from the interval and the permutation p."""
    binary = isinstance(result, BinaryResult)
    rarer = min(result.positive, result.n - result.positive) if binary else result.events
    estimate, test = result.estimate, result.permutation
    figures = (estimate.value, estimate.low, estimate.high, test.p_adjusted, test.p_below_adjusted)
    if any(math.isnan(figure) for figure in figures) or rarer < FEWEST:
        return "undefined"
    if estimate.high < CHANCE:
        return "worse" if test.p_below_adjusted <= ALPHA else "chance"
    return "better" if estimate.low > CHANCE and test.p_adjusted <= ALPHA else "chance"


def beside_clinical(test: Comparison | None, clinical: Kind | None) -> BesideClinical:
    """Whether a candidate beats clinical-only by the paired test; over several repeats the corrected t-test must agree."""
    if not test:
        return BesideClinical("no shared patient" if clinical else "not run", clinical_is_weak=False)
    is_weak = clinical in ("chance", "worse")
    if math.isnan(test.p_adjusted):
        return BesideClinical("undefined", is_weak)
    better = test.p_adjusted <= ALPHA and test.difference > 0
    if test.nadeau_bengio:
        better = better and test.nadeau_bengio.p <= ALPHA
    return BesideClinical("better" if better else "not better", is_weak)
