"""The uncertainty of a share: how often out of how many in, its interval out.

b is the number of shares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import norm


class Rate(NamedTuple):
    """A share with its confidence interval; all three NaN when it is a share of nobody."""

    value: float
    low: float
    high: float


def wilson_interval(
    count: Int[np.ndarray, " b"], total: Int[np.ndarray, " b"], confidence: float = 0.95
) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Confidence interval of a share, by Wilson's score method (without continuity correction).

    Definition: the shares p that a two-sided score test does not reject.
    Formula: (q + z²/2N ± z sqrt(q (1 - q) / N + z²/4N²)) / (1 + z²/N), with q = count / N and z the normal quantile.
    Assumption: independent patients, each with the same chance.
    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.

    Returns
    -------
    (low, high), each float [b] in [0, 1]; NaN where the total is 0.
    """
    z = float(norm.ppf((1 + confidence) / 2))
    known = np.where(total > 0, total, np.nan).astype(float)
    share = count / known
    middle = share + z**2 / (2 * known)
    reach = z * np.sqrt(share * (1 - share) / known + z**2 / (4 * known**2))
    scale = 1 + z**2 / known
    low, high = (middle - reach) / scale, (middle + reach) / scale
    # Rounding must not push the bound of "none" above 0 or that of "all" below 1.
    low, high = np.where(count == 0, 0 * known, low), np.where(count == total, 0 * known + 1, high)
    return low, high


def rate(count: int, total: int) -> Rate:
    """The share `count / total` with its 95 % Wilson interval; NaN three times when the total is 0."""
    low, high = wilson_interval(np.array([count]), np.array([total]))
    return Rate(count / total if total else float("nan"), float(low[0]), float(high[0]))
