"""What acting on a model is worth over the study's range of thresholds: rows of an endpoint in; net benefits and bands out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.metrics import benefit, within_fold
from mri_vit.metrics.comparison import Comparison
from mri_vit.report.numbers import chance, measures
from mri_vit.report.numbers.judged import THRESHOLDS, chances_alive, first_repeat, rarer
from mri_vit.report.numbers.results import BARS
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.kinds import Numbers
from mri_vit.report.schema.measured import MIN_EVENTS
from mri_vit.settings.schema import Endpoint

BEST = "better of both"  # acting on all or on none, at each threshold


@dataclass(frozen=True, eq=False)
class BenefitFigures:
    """One model over the range, by one day for survival (else NaN)."""

    model: str
    days: float
    n: int
    mean: Mapping[str, Comparison]  # by what the net benefit is held against
    undefined: Mapping[str, tuple[float, ...]]  # thresholds that such a mean leaves out
    thresholds: Float[np.ndarray, " t"]
    band: benefit.Band


def thresholds_of(least: float, most: float) -> Float[np.ndarray, " t"]:
    """Whole per cents of the range, and its ends."""
    inside = [one for one in THRESHOLDS.tolist() if least < one < most]
    return np.unique(np.r_[least, inside, most])


def measure(
    run: Run, endpoint: Endpoint, tables: Mapping[str, pd.DataFrame], numbers: Mapping[str, Numbers], shown: Sequence[str]
) -> list[BenefitFigures] | str:
    """The models shown, or why there are none. `tables` and `numbers` are by model, of labels that are the patients' own."""
    if run.study.report.thresholds is None:
        raise ValueError("the study names no thresholds")
    at = thresholds_of(*run.study.report.thresholds)
    of_kind, models = measures.of(endpoint), [model for model in shown if model in tables]
    risks = {
        name: of_kind.risks(endpoint, tables[name], chances_alive(run.survival, endpoint, tables[name]))
        for name in dict.fromkeys((*models, *BARS))
        if name in tables
    }
    if not any(risks[model] for model in models):
        return of_kind.without_risks
    found = [one for model in models for one in _of_model(run, endpoint, tables[model], numbers[model], risks, at, model)]
    return found or f"fewer than {MIN_EVENTS} {of_kind.rare(endpoint)} have a probability"


def _of_model(
    run: Run,
    endpoint: Endpoint,
    rows: pd.DataFrame,
    numbers: Numbers,
    risks: Mapping[str, Mapping[float, pd.DataFrame]],
    at: Float[np.ndarray, " t"],
    model: str,
) -> Iterator[BenefitFigures]:
    inflated = within_fold.interval_inflation(numbers.judged.value, chance.inflation(first_repeat(rows), run.design))
    policy = measures.of(endpoint).policy
    for day, people in risks[model].items():
        if rarer(endpoint, people) < MIN_EVENTS:
            continue
        ours, of_all = policy(people, at, day), policy(people.assign(score=1.0), at, day)
        of_none = benefit.none_treated(ours)
        pairs = {"all": (ours, of_all), "none": (ours, of_none), BEST: (ours, benefit.better_of(of_all, of_none))}
        for control in (name for name in BARS if name in risks and day in risks[name]):
            both = people.index.intersection(risks[control][day].index)
            pairs[control] = policy(people.loc[both], at, day), policy(risks[control][day].loc[both], at, day)
        mean = {name: benefit.mean_difference(*pair, inflated) for name, pair in pairs.items()}
        left_out = {name: tuple(at[~benefit.comparable(*pair)].tolist()) for name, pair in pairs.items()}
        band = benefit.band_over(ours, [of_all, of_none], at, inflated, np.random.default_rng(run.study.seed))
        yield BenefitFigures(model, day, len(people), mean, {name: t for name, t in left_out.items() if t}, at, band)


def parts(thresholds: Float[np.ndarray, " t"], those: Bool[np.ndarray, " t"]) -> list[tuple[float, float]]:
    """The parts of the range in which those thresholds lie, each from its first one to its last."""
    edges = np.flatnonzero(np.diff(np.r_[False, those, False].astype(int))).reshape(-1, 2)
    return [(float(thresholds[first]), float(thresholds[last - 1])) for first, last in edges]


def is_better(figures: BenefitFigures) -> bool | None:
    """Whether the model is worth more than the better of both; False where it is worth less, None where neither is shown."""
    found = figures.mean[BEST]
    if math.isnan(found.low) or found.low <= 0 <= found.high:
        return None
    return found.low > 0
