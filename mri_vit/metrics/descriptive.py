"""Descriptive figures: a share with its interval, and how far two groups are apart in one characteristic.

b is the number of shares, k of levels. Groups get a standardised difference and no p: between random folds the null hypothesis
is true by design, and a p grows with the patients rather than with the difference (Austin 2009; STROBE's explanation, item
14a, doi:10.1371/journal.pmed.0040297).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from scipy.stats import binomtest

from mri_vit.metrics.checked import refuse_unequal


class Rate(NamedTuple):
    """A share with its confidence interval; all three NaN when it is a share of nobody."""

    value: float
    low: float
    high: float


def wilson_interval(
    count: Integer[np.ndarray, " b"], total: Integer[np.ndarray, " b"], confidence: float = 0.95
) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Confidence interval of each share, by Wilson's score method (without continuity correction), by scipy.

    Definition: the shares p that a two-sided score test does not reject.
    Formula: (q + z²/2N ± z sqrt(q (1 - q) / N + z²/4N²)) / (1 + z²/N), with q = count / N and z the normal quantile.
    Assumption: independent patients, each with the same chance.
    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.

    Returns
    -------
    (low, high), each float [b] in [0, 1]; NaN where the total is 0.

    Raises
    ------
    ValueError when a count is negative or above its total, or arrays are of unequal length.

    Examples
    --------
    >>> low, high = wilson_interval(np.array([8]), np.array([10]))
    >>> print(f"{low[0]:.3f} to {high[0]:.3f}")
    0.490 to 0.943
    """
    refuse_unequal(counts=len(count), totals=len(total))
    if ((count < 0) | (count > total)).any():
        raise ValueError(f"found counts {count.tolist()} of totals {total.tolist()}; expected counts from 0 to the total")
    bounds = [_wilson(int(k), int(n), confidence) for k, n in zip(count, total, strict=True)]
    low, high = np.array(bounds, dtype=float).reshape(-1, 2).T
    return low, high


def rate(count: int, total: int) -> Rate:
    """The share `count / total` with its 95 % Wilson interval (see `wilson_interval`); NaN three times when the total is 0.

    Raises
    ------
    ValueError when the count is negative or above the total.

    Examples
    --------
    >>> rate(8, 10).value
    0.8
    """
    low, high = wilson_interval(np.array([count]), np.array([total]))
    return Rate(count / total if total else math.nan, float(low[0]), float(high[0]))


def _wilson(count: int, total: int, confidence: float) -> tuple[float, float]:
    if not total:
        return math.nan, math.nan
    interval = binomtest(count, total).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def difference_of_means(mean: float, deviation: float, other_mean: float, other_deviation: float) -> float:
    """The absolute difference of two means in standard deviations.

    Formula: abs(m1 - m2) / sqrt((s1² + s2²) / 2), s the sample standard deviations.
    Source: Austin 2009, doi:10.1002/sim.3697.

    Returns
    -------
    float, 0 or more; NaN where a group has no mean or no deviation, or neither group varies and the means differ.

    Examples
    --------
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

    Returns
    -------
    float, 0 or more; NaN where a group is empty, or where a share is all of one group and none of the other's.

    Raises
    ------
    ValueError for arrays of unequal length.

    Examples
    --------
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
