"""Net benefit over a range of thresholds: what acting on a model is worth, less what acting on all, on none or on another is.

Times are in days; event is True for a death. n is the number of patients, t of thresholds, b of draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Real

from mri_vit.metrics.checked import Flags, Numbers, numbers, predicted, probabilities
from mri_vit.metrics.comparison import Z_95, Comparison, by_normal_law
from mri_vit.metrics.decision import ByDay, odds, survival_influence, survival_net_benefit
from mri_vit.metrics.intervals import CONFIDENCE

BAND_DRAWS = 4000  # of a band's critical value, whose quantile they know to 0.03: Efron & Tibshirani 1993, section 13.3


@dataclass(frozen=True, eq=False)
class Policy:
    """Who is treated at each threshold, and what each patient adds to the net benefit, which is the mean over the patients."""

    worth: Float[np.ndarray, "t n"]
    treated: Bool[np.ndarray, "t n"]

    @property
    def net_benefit(self) -> Float[np.ndarray, " t"]:
        return self.worth.mean(axis=1)


@dataclass(frozen=True, eq=False)
class Band:
    """By threshold, a policy's net benefit less the larger one of several others', with a simultaneous 95 % band."""

    difference: Float[np.ndarray, " t"]
    low: Float[np.ndarray, " t"]
    high: Float[np.ndarray, " t"]
    critical: float  # standard errors on either side; 1.96 would be pointwise


def of_markers(truth: Flags, probability: Numbers, thresholds: Real[np.ndarray, " t"]) -> Policy:
    """Treating patients whose probability of a binary outcome reaches the threshold.

    Formula: a patient who is treated adds 1 with the outcome and -t / (1 - t) without, any other 0 (`decision.net_benefit`).
    Source: Vickers & Elkin 2006, doi:10.1177/0272989X06295361.

    >>> truth, probability = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> of_markers(truth, probability, np.array([0.3])).net_benefit.round(3)
    array([0.393])
    """
    truth, probability = predicted(truth, probability)
    thresholds = numbers(thresholds, "thresholds")
    treated = probability >= thresholds[:, None]
    return Policy(treated * np.where(truth, 1.0, -odds(thresholds)[:, None]), treated)


def of_survival(people: ByDay, thresholds: Real[np.ndarray, " t"]) -> Policy:
    """Treating patients whose predicted chance of the event by a day reaches the threshold.

    Formula: a patient adds the net benefit (`decision.survival_net_benefit`) plus the patient's influence on it.
    """
    worth = survival_net_benefit(people, thresholds)[:, None] + survival_influence(people, thresholds)
    return Policy(worth, probabilities(people.chance) >= numbers(thresholds, "thresholds")[:, None])


def none_treated(like: Policy) -> Policy:
    """Treating none of the same patients."""
    return Policy(np.zeros_like(like.worth), np.zeros_like(like.treated))


def better_of(first: Policy, other: Policy) -> Policy:
    """At each threshold the policy of the larger net benefit: what a clinic without the model would best do."""
    better = (first.net_benefit >= other.net_benefit)[:, None]
    known = ~np.isnan(first.net_benefit + other.net_benefit)[:, None]  # less an undefined one nothing is known to be better
    return Policy(
        np.where(known, np.where(better, first.worth, other.worth), math.nan), np.where(better, first.treated, other.treated)
    )


def comparable(ours: Policy, other: Policy) -> Bool[np.ndarray, " t"]:
    """The thresholds at which both net benefits are defined; one that treats none has a net benefit of 0."""
    return np.isfinite(ours.worth + other.worth).all(axis=1) & (ours.worth.shape[1] > 0)


def mean_difference(ours: Policy, other: Policy, inflated: float) -> Comparison:
    """The mean over the thresholds of one policy's net benefit less another's, and the two-sided test that it is zero.

    Formula: the mean of patients' w_i, w_i the mean over the thresholds of what the patient adds to ours less to the other;
    variance s² / n of these, times the square of `inflated`. Against `better_of`, the thresholds at which either is better are
    taken as known: to first order the mean over a range does not depend on where exactly they change.
    Assumption: each threshold of the range is as likely to be a patient's; patients are independent.
    Source: Vickers, Van Calster & Steyerberg 2019, doi:10.1186/s41512-019-0064-7, for differences over a range of thresholds;
    the variance is that of a mean.
    `inflated`: what refitting does to the error of scores as given (see `within_fold.interval_inflation`).
    A threshold at which either net benefit is undefined (`comparable`) is left out of the mean.
    Returns: Comparison, per patient; see there for a variance of zero. All NaN where no threshold is left.

    >>> truth, probability = np.tile([0, 0, 1, 1], 10), np.tile([0.1, 0.4, 0.35, 0.8], 10)
    >>> ours = of_markers(truth, probability, np.array([0.3, 0.35]))
    >>> found = mean_difference(ours, none_treated(ours), 1.0)
    >>> print(f"{found.difference:.3f} [{found.low:.3f}, {found.high:.3f}]")
    0.379 [0.177, 0.581]
    """
    known = comparable(ours, other)
    if not known.any():
        return by_normal_law(math.nan, math.nan)
    each = (ours.worth - other.worth)[known].mean(axis=0)
    if len(each) < 2:
        return by_normal_law(float(each.mean()), math.nan)
    variance = float(each.var(ddof=1)) if np.ptp(each) > 0 else 0.0  # equal values may have a variance of rounding
    return by_normal_law(float(each.mean()), inflated**2 * variance / len(each))


def band_over(
    ours: Policy, others: Sequence[Policy], thresholds: Real[np.ndarray, " t"], inflated: float, generator: np.random.Generator
) -> Band:
    """A policy's net benefit less the largest of the others', at each threshold, in a band that holds at all of them at once.

    Formula: D_j(t) ± c SE_j(t) for each other j, and of these intervals, by threshold, the least of the lower ends and the least
    of the upper ones, since less the largest is the least of the differences. SE² is the larger of the sample variance of
    what patients add and u t / (1 - t), u the share of patients treated by one and not by the other, over n, times the
    square of `inflated`. The latter is the variance where the difference is zero: then t of those patients have the outcome.
    Without it eight patients left untreated, by chance all negatives, would prove a model at a threshold of 0.1. One patient more
    is counted among them, so that no difference is certain. c is the 95 % quantile of the largest standardised difference, by
    draws of a normal distribution with the patients' correlations.
    Assumption: patients are independent, and enough for differences to be near normal.
    Source: Vickers et al. 2008, doi:10.1186/1472-6947-8-53, for the pointwise form; the largest of correlated normals: Hothorn,
    Bretz & Westfall 2008, doi:10.1002/bimj.200810425.
    Returns: Band, per patient; NaN where a net benefit is, or with fewer than two patients.
    """
    thresholds = numbers(thresholds, "thresholds")
    n = ours.worth.shape[1]
    apart = np.concatenate([ours.worth - other.worth for other in others])  # (j t, n)
    share = np.concatenate([(ours.treated != other.treated).sum(axis=1) + 1 for other in others]) / n
    difference = apart.mean(axis=1)
    own = apart.var(axis=1, ddof=1) if n > 1 else np.full(len(apart), math.nan)
    error = np.sqrt(np.maximum(own, share * np.tile(odds(thresholds), len(others))) / n)
    known = np.isfinite(error)
    critical = _largest((apart - difference[:, None])[known] / (error[known, None] * n), generator) if known.any() else Z_95
    reach = critical * inflated * error
    least, low, high = (
        np.min(values.reshape(len(others), -1), axis=0) for values in (difference, difference - reach, difference + reach)
    )
    return Band(least, low, high, critical)


def _largest(influence: Float[np.ndarray, "k n"], generator: np.random.Generator) -> float:
    """The quantile of the largest absolute value of k normal numbers whose covariance is that of the influences."""
    values, axes = np.linalg.eigh(influence @ influence.T)
    drawn = generator.standard_normal((BAND_DRAWS, len(values))) @ (axes * np.sqrt(np.maximum(values, 0.0))).T
    return max(Z_95, float(np.quantile(np.abs(drawn).max(axis=1), CONFIDENCE)))
