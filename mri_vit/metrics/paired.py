"""Two models judged on the same resamples of patients: b differences in, interval and test of the difference out."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from mri_vit.metrics.bootstrap import percentile_interval
from mri_vit.metrics.delong import Z_95, Comparison

RESAMPLES = 2000  # twice an interval's, because p is read at its tail


def compared(difference: float, draws: Float[np.ndarray, " b"]) -> Comparison:
    """A difference with what its bootstrap draws say of it.

    Definition: the interval (95 %) runs between the quantiles of the draws. p is twice the smaller share of draws on either
    side of zero, (b + 1) / (m + 1), at most 1; z is the difference over the standard deviation of the draws. Draws where the
    difference is undefined are left out.
    Assumption: each draw was of the same patients for both models. p is approximate and not below 2 / (m + 1).
    Source: Efron & Tibshirani 1993, chapters 13 and 16; Davison & Hinkley 1997, section 4.2.

    Returns
    -------
    Comparison; all else NaN where the difference is, or no draw is defined. Where no draw differs from zero z = 0 and p = 1;
    where all draws differ by one same amount z is NaN.

    Examples
    --------
    >>> found = compared(0.2, np.linspace(-0.1, 0.5, 999))
    >>> print(f"{found.low:.2f} to {found.high:.2f}, p {found.p:.2f}")
    -0.08 to 0.48, p 0.34
    """
    defined = draws[~np.isnan(draws)]
    if math.isnan(difference) or not len(defined):
        return Comparison(difference, math.nan, math.nan, math.nan, math.nan)
    low, high = (float(bound) for bound in percentile_interval(defined))
    tail = min(int((defined <= 0).sum()), int((defined >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(defined) + 1))
    spread = float(defined.std(ddof=1)) if np.ptp(defined) > 0 else 0.0
    if spread == 0:
        return Comparison(difference, low, high, 0.0 if difference == 0 else math.nan, p)
    return Comparison(difference, low, high, difference / spread, p)


def widened(found: Comparison, inflated: float) -> Comparison:
    """A comparison with its standard error multiplied (see `within_fold.inflation`), normal interval and p.

    Definition: the error is the difference over its z; low and high lie 1.96 errors from the difference, and p is that of a
    two-sided normal test, which has no least value. Without variance the comparison stays as it is.

    Examples
    --------
    >>> found = widened(Comparison(0.2, 0.1, 0.3, 4.0, 0.0001), 2.0)
    >>> print(f"{found.low:.2f} to {found.high:.2f}, p {found.p:.2f}")
    0.00 to 0.40, p 0.05
    """
    if not found.z or math.isnan(found.z) or not found.difference:
        return found
    z, reach = found.z / inflated, Z_95 * inflated * found.difference / found.z
    return Comparison(found.difference, found.difference - reach, found.difference + reach, z, float(2 * norm.sf(abs(z))))
