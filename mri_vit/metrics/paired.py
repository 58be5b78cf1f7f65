"""Two models judged on the same resamples of patients: b differences in, interval and test of the difference out."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from mri_vit.metrics.delong import Comparison, by_normal_law

RESAMPLES = 2000  # of a standard error, which they know to 2 %: 1 / sqrt(2 b)


def compared(difference: float, draws: Float[np.ndarray, " b"], inflated: float) -> Comparison:
    """A difference with what its bootstrap draws say of it.

    Definition: the standard error is the sample standard deviation of the draws, times `inflated` (see
    `within_fold.inflation`); interval (95 %) and p are normal, so that p has no least value. Draws where the difference is
    undefined are left out.
    Assumption: each draw was of the same patients for both models, and the difference is near normal.
    Source: Efron & Tibshirani 1993, chapters 13 and 16.

    Returns
    -------
    Comparison; see there for draws that are all equal; all but the difference NaN where fewer than two are defined.

    Examples
    --------
    >>> found = compared(0.2, np.random.default_rng(0).normal(0.2, 0.05, 999), 2.0)
    >>> print(f"{found.low:.2f} to {found.high:.2f}, p {found.p:.2f}")
    0.01 to 0.39, p 0.04
    """
    defined = draws[~np.isnan(draws)]
    if len(defined) < 2:
        return by_normal_law(difference, math.nan)
    variance = float(defined.var(ddof=1)) if np.ptp(defined) > 0 else 0.0  # equal draws may have one of rounding
    return by_normal_law(difference, inflated**2 * variance)
