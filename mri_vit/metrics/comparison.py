"""Differences of two models or two groups: tests (normal, from bootstrap draws, over folds), Holm's correction, and sizes.

r is the number of differences of repeated folds, h of p-values, b of bootstrap draws, k of levels. Groups get a standardised
difference and no p: between random folds the null hypothesis is true by design, and a p grows with the patients rather than
with the difference (Austin 2009; STROBE's explanation, item 14a, doi:10.1371/journal.pmed.0040297).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import ndtr, ndtri, stdtr

from mri_vit.metrics.checked import refuse_unequal

Z_95 = float(ndtri(0.975))  # the two-sided 95 % of a normal distribution
PAIRED_RESAMPLES = 2000  # of a standard error, which they know to 2 %: 1 / sqrt(2 b)


@dataclass(frozen=True)
class Comparison:
    """Two models side by side: the difference a - b, its 95 % interval, the test statistic and its two-sided p.

    Without variance nothing can be tested: equal AUCs get p = 1, z = 0 and an interval without width; unequal ones (a
    model without an error against a constant one) get NaN, because a p of 0 would claim certainty from few patients.
    """

    difference: float
    low: float
    high: float
    z: float
    p: float


def by_normal_law(difference: float, variance: float) -> Comparison:
    """z, p and interval of a difference by the normal law; see `Comparison` for a variance of zero."""
    if variance > 0:
        z = difference / math.sqrt(variance)
        reach = Z_95 * math.sqrt(variance)
        return Comparison(difference, difference - reach, difference + reach, z, float(2 * ndtr(-abs(z))))
    if variance == 0 and difference == 0:
        return Comparison(0.0, 0.0, 0.0, 0.0, 1.0)
    return Comparison(difference, math.nan, math.nan, math.nan, math.nan)


def nadeau_bengio(differences: Float[np.ndarray, " r"], n_train: int, n_test: int) -> tuple[float, float]:
    """Corrected resampled t-test of the differences of two models over repeated cross-validation.

    Definition: is the mean difference (a - b, one value for each fold of each repeat) greater than zero? The plain t-test
    takes the differences for independent, but their training sets overlap, so its p is far too small.
    Formula: t = mean / sqrt((1/r + n_test/n_train) s²), s² the sample variance; p = P(T > t), T of r - 1 degrees of freedom.
    Assumption: differences are near normal, and two folds correlate by n_test / (n_train + n_test), a rule of thumb.
    Source: Nadeau & Bengio 2003, doi:10.1023/A:1024068626366; over repeats: Bouckaert & Frank 2004,
    doi:10.1007/978-3-540-24775-3_3.
    `differences`: float [r], one for each fold of each repeat; NaN (undefined in a fold) are left out.
    `n_train`, `n_test`: patients in a training and in a test set.
    Returns: (t, p_greater); both NaN with fewer than two differences or when they do not vary.

    >>> t, p = nadeau_bengio(np.array([0.02, 0.05, 0.01, 0.04, 0.03]), n_train=80, n_test=20)
    >>> print(f"{t:.2f}, p {p:.3f}")
    2.83, p 0.024
    """
    if n_train < 1 or n_test < 1:
        raise ValueError(f"found {n_train} training and {n_test} test patients; expected at least one of each")
    defined = differences[~np.isnan(differences)]
    # Equal numbers can have a variance of rounding alone, so their range decides whether they vary.
    if len(defined) < 2 or np.ptp(defined) == 0:
        return math.nan, math.nan
    error = math.sqrt((1 / len(defined) + n_test / n_train) * float(defined.var(ddof=1)))
    t = float(defined.mean()) / error
    return t, float(stdtr(len(defined) - 1, -t))


def holm(p: Float[np.ndarray, " h"]) -> Float[np.ndarray, " h"]:
    """Holm's step-down adjustment, which keeps the chance of even one false finding among h tests below the level.

    Formula: for the i-th smallest (i from 1) of the h defined p, max over j <= i of (h - j + 1) p_j, at most 1.
    Assumption: none about how the tests depend on each other.
    Source: Holm 1979, Scandinavian Journal of Statistics 6:65, https://www.jstor.org/stable/4615733.
    Returns: float [h], in the order given; NaN stay NaN and are not counted among the tests.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    adjusted = np.full(len(p), math.nan)
    known = np.flatnonzero(~np.isnan(p))
    if ((p[known] < 0) | (p[known] > 1)).any():
        raise ValueError(f"found p-values from {p[known].min():g} to {p[known].max():g}; expected them within 0 and 1")
    order = known[np.argsort(p[known], kind="stable")]
    left = np.arange(len(order), 0, -1)  # tests not yet passed, this one included
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(left * p[order]))
    return adjusted


def paired_comparison(difference: float, draws: Float[np.ndarray, " b"], inflated: float) -> Comparison:
    """A difference with what its bootstrap draws say of it.

    Definition: the standard error is the sample standard deviation of the draws, times `inflated` (see
    `within_fold.inflation`); interval (95 %) and p are normal, so that p has no least value. Draws where the difference is
    undefined are left out.
    Assumption: each draw was of the same patients for both models, and the difference is near normal.
    Source: Efron & Tibshirani 1993, chapters 13 and 16.
    Returns: Comparison; see there for draws that are all equal; all but the difference NaN where fewer than two are defined.

    >>> found = paired_comparison(0.2, np.random.default_rng(0).normal(0.2, 0.05, 999), 2.0)
    >>> print(f"{found.low:.2f} to {found.high:.2f}, p {found.p:.2f}")
    0.01 to 0.39, p 0.04
    """
    defined = draws[~np.isnan(draws)]
    if len(defined) < 2:
        return by_normal_law(difference, math.nan)
    variance = float(defined.var(ddof=1)) if np.ptp(defined) > 0 else 0.0  # equal draws may have one of rounding
    return by_normal_law(difference, inflated**2 * variance)


def difference_of_means(mean: float, deviation: float, other_mean: float, other_deviation: float) -> float:
    """The absolute difference of two means in standard deviations.

    Formula: abs(m1 - m2) / sqrt((s1² + s2²) / 2), s the sample standard deviations.
    Source: Austin 2009, doi:10.1002/sim.3697.
    Returns: float, 0 or more; NaN where a group has no mean or no deviation, or neither group varies and the means differ.

    >>> difference_of_means(60.0, 10.0, 65.0, 10.0)
    0.5
    """
    spread = math.sqrt((deviation**2 + other_deviation**2) / 2)
    apart = abs(mean - other_mean)
    if spread == 0:
        return 0.0 if apart == 0 else math.nan
    return apart / spread


def difference_of_shares(counts: Integer[np.ndarray, " k"], others: Integer[np.ndarray, " k"]) -> float:
    """The standardised difference of two groups' shares of k levels.

    Formula: sqrt(d' S⁻ d), d the differences of the shares of all levels but the first and S the mean of both groups' multinomial
    covariances; with two levels abs(p1 - p2) / sqrt((p1 (1 - p1) + p2 (1 - p2)) / 2).
    Source: Austin 2009, doi:10.1002/sim.3697, for two levels; Yang & Dalton 2012, SAS Global Forum, paper 335, for more.
    Returns: float, 0 or more; NaN where a group is empty, or where a share is all of one group and none of the other's.

    >>> round(difference_of_shares(np.array([50, 50]), np.array([40, 60])), 3)
    0.202
    """
    refuse_unequal(counts=len(counts), others=len(others))
    if not counts.sum() or not others.sum():
        return math.nan
    shares = [found[1:] / found.sum() for found in (counts, others)]
    away = shares[0] - shares[1]
    covariance = sum(np.diag(share) - np.outer(share, share) for share in shares) / 2
    inverse = np.linalg.pinv(np.atleast_2d(covariance))
    explained = np.atleast_2d(covariance) @ inverse @ away
    if not np.allclose(explained, away, atol=1e-9):  # a direction in which neither group varies
        return math.nan
    return float(math.sqrt(max(0.0, away @ inverse @ away)))
