"""Drift: how much less, or more, probabilities can be taken at their word in another cohort than in the first.

Both cohorts' truths and probabilities in; each measure in both, and the difference, with bootstrap intervals out. Times are in
days; event is True for a death. n is the number of patients of a cohort, b that of resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.metrics.bootstrap import CONFIDENCE, RESAMPLES, distribution, percentile_interval
from mri_vit.metrics.calibration import calibration_line, drawn_lines
from mri_vit.metrics.checked import Flags, Numbers, followed, numbers, predicted, refuse_unequal

Measures = Callable[[Float[np.ndarray, "b n"]], Float[np.ndarray, "b measures"]]
Ends = tuple[float, float, float]  # a value, and the low and the high end of its 95 % interval


@dataclass(frozen=True)
class Cohort:
    """One cohort's measures: how many patients, what takes draws of them to a column for each measure, and whether any varies."""

    n: int
    measures: Measures
    varies: bool  # whether some have the outcome and some have not; else resamples would all agree


@dataclass(frozen=True)
class Drift:
    """One measure in the first cohort, in the other, and the other's less the first's."""

    inside: Ends
    outside: Ends
    difference: Ends


def of_markers(truth: Flags, probability: Numbers) -> Cohort:
    """Calibration slope, intercept, O:E ratio and excess of one cohort's probabilities of a binary outcome.

    Formula: slope and intercept as by `calibration.calibration_line`; O:E = sum y_i / sum p_i; excess = mean of p_i - y_i, by
    which the probabilities run too high. A draw has no slope and intercept where no finite line exists, and where one in forty
    has none, the interval has no ends, for a quantile may lie among them. Of one class nothing has ends, and no slope is
    defined: nothing then shows how the outcome varies.
    Source: Van Calster et al. 2016, doi:10.1016/j.jclinepi.2015.12.005; Debray et al. 2017, doi:10.1136/bmj.i6460.
    """
    truth, probability = predicted(truth, probability)
    line = calibration_line(truth, probability)

    def measures(drawn: Float[np.ndarray, "b n"]) -> Float[np.ndarray, "b measures"]:
        slope, intercept = drawn_lines(truth, probability, drawn, line)
        return np.column_stack([slope, intercept, *_whole(drawn @ truth, drawn @ probability, len(truth))])

    return Cohort(len(truth), measures, bool(truth.any() and not truth.all()))


def of_survival(time_days: Numbers, event: Flags, alive: Numbers, at_day: float) -> Cohort:
    """O:E ratio and excess of one cohort's probabilities to die by a day, of whom `alive` are the probabilities to live.

    Formula: as for markers, the observed share being 1 - S(day), S the Kaplan-Meier curve.
    Assumption: censoring is unrelated to survival.
    Source: Debray et al. 2019, doi:10.1177/0962280218785504, for O:E with censoring.
    """
    time_days, event = followed(time_days, event)
    alive = numbers(alive, "probabilities of survival")
    refuse_unequal(times=len(time_days), probabilities=len(alive))
    last = time_days.max(initial=0)
    beyond = at_day > last and not event[time_days == last].all()  # nobody was followed up to that day

    def measures(drawn: Float[np.ndarray, "b n"]) -> Float[np.ndarray, "b measures"]:
        died = 1 - drawn_survival(time_days, event, drawn, at_day)
        observed = np.full(len(drawn), math.nan) if beyond else died * len(alive)
        return np.column_stack(_whole(observed, drawn @ (1 - alive), len(alive)))

    return Cohort(len(alive), measures, bool((event & (time_days <= at_day)).any() and (time_days > at_day).any()))


def drawn_survival(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], drawn: Float[np.ndarray, "b n"], at_day: float
) -> Float[np.ndarray, " b"]:
    """The Kaplan-Meier survival at a day of each of b draws; `drawn` says how often each patient came up."""
    days = np.unique(time_days[event & (time_days <= at_day)])
    at_risk = drawn @ (time_days[:, None] >= days)  # (b, days)
    died = drawn @ ((time_days[:, None] == days) & event[:, None])
    return (1 - died / np.where(at_risk > 0, at_risk, 1)).prod(axis=1)


def drift(
    inside: Cohort, outside: Cohort, seed: int, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> tuple[Drift, ...]:
    """Each measure of two cohorts without a patient in common, and the outside's less the inside's.

    Definition: either cohort's patients are drawn with replacement, independently of the other's; the difference's interval
    runs between the quantiles of the differences of draws.
    Assumption: patients are independent; the model is taken as given. Out-of-fold scores of the first cohort are taken as one
    model's.
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 8.

    Returns
    -------
    A Drift for each of the cohorts' measures; the ends are NaN where more than one in forty draws is undefined.

    Examples
    --------
    Half of those who are given 0.5 are positive in the one, a quarter in the other:

    >>> half = np.full(40, 0.5)
    >>> found = drift(of_markers(np.arange(40) % 2, half), of_markers(np.arange(40) % 4 == 0, half), seed=0)
    >>> print(f"{found[3].difference[0]:.2f}")
    0.25
    """
    values = [cohort.measures(np.ones((1, cohort.n)))[0] for cohort in (inside, outside)]
    draws = [
        distribution(cohort.measures, np.zeros(cohort.n), np.random.default_rng([seed, stream]), resamples)
        for stream, cohort in enumerate((inside, outside))
    ]
    draws = [one if cohort.varies else np.full_like(one, math.nan) for one, cohort in zip(draws, (inside, outside), strict=True)]
    rows = [_with_ends(*one, confidence) for one in zip(values, draws, strict=True)]
    rows.append(_with_ends(values[1] - values[0], draws[1] - draws[0], confidence))
    return tuple(Drift(*each) for each in zip(*rows, strict=True))


def _with_ends(value: Float[np.ndarray, " m"], draws: Float[np.ndarray, "b m"], confidence: float) -> list[Ends]:
    """Each measure's value with its percentile interval."""
    undefined = np.isnan(value) | (np.isnan(draws).mean(axis=0) > (1 - confidence) / 2)
    low, high = percentile_interval(np.where(undefined, 0.0, draws), confidence)
    ends = np.where(undefined, math.nan, np.stack([low, high]))
    return [(float(one), float(a), float(b)) for one, a, b in zip(value, *ends, strict=True)]


def _whole(observed: Float[np.ndarray, " b"], expected: Float[np.ndarray, " b"], n: int) -> list[Float[np.ndarray, " b"]]:
    """O:E and the excess of what was expected, per patient."""
    return [observed / np.where(expected > 0, expected, math.nan), (expected - observed) / n]
