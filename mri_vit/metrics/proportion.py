"""The uncertainty of a share: how often out of how many in, its interval out.

b is the number of shares.
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
