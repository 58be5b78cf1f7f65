"""Whether figures of several groups differ by more than chance: values with their variances in, a share out."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float


def i_squared(values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"]) -> float:
    """The share of the variation between g groups that is beyond chance, between 0 and 1.

    Formula: max(0, (Q - (g - 1)) / Q), Q = sum_g w_g (x_g - x̄)², w_g = 1 / variance, x̄ the mean weighted by w.
    Assumption: each value is near normal with the variance given. Groups without a variance above 0 are left out.
    Source: Cochran 1954, doi:10.2307/3001666; Higgins & Thompson 2002, doi:10.1002/sim.1186.

    Returns
    -------
    float; NaN with fewer than two groups.

    Examples
    --------
    >>> round(i_squared(np.array([0.6, 0.8]), np.array([0.005, 0.005])), 2)
    0.75
    """
    usable = variances > 0  # false for NaN
    if usable.sum() < 2:
        return math.nan
    values, weights = values[usable], 1 / variances[usable]
    q = float((weights * (values - (weights * values).sum() / weights.sum()) ** 2).sum())
    return max(0.0, (q - (len(values) - 1)) / q) if q else 0.0
