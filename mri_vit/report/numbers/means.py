"""Means over patients and ratios of means, with 95 % intervals: one row per patient in, value, low, high and n out.

n is patients, m what is measured of each. NaN is a patient of whom it is not known, who is left out.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from jaxtyping import Float

from mri_vit.metrics import bootstrap
from mri_vit.report.schema.maps import MeanCurve
from mri_vit.report.schema.part import Mean


def mean(values: Float[np.ndarray, " n"], seed: int) -> Mean:
    """The mean over the patients of whom it is known."""
    found = means(values[:, None], seed)
    return Mean(value=found.value[0], low=found.low[0], high=found.high[0], n=found.n)


def means(values: Float[np.ndarray, "n m"], seed: int) -> MeanCurve:
    """Likewise for several measures at once, of the patients of whom all are known; value, low and high are of length m."""
    known = values[~np.isnan(values).any(axis=1)]
    if not len(known):
        nothing = (math.nan,) * values.shape[1]
        return MeanCurve(value=nothing, low=nothing, high=nothing, n=0)
    low, high = bootstrap.percentile_interval(_weights(len(known), seed) @ known)
    return MeanCurve(value=known.mean(axis=0).tolist(), low=low.tolist(), high=high.tolist(), n=len(known))


def ratio(above: Float[np.ndarray, " n"], below: Float[np.ndarray, " n"], seed: int) -> Mean:
    """The mean of `above` over the mean of `below`, of the patients of whom both are known.

    A ratio of means, not a mean of ratios: a patient whose `below` is next to nothing would rule that mean.
    """
    known = ~(np.isnan(above) | np.isnan(below))
    above, below = above[known], below[known]
    if not below.sum() > 0:
        return Mean(value=math.nan, low=math.nan, high=math.nan, n=int(known.sum()))
    weights = _weights(len(below), seed)
    lower = weights @ below
    drawn = np.where(lower > 0, weights @ above, np.nan) / np.where(lower > 0, lower, 1)
    low, high = bootstrap.percentile_interval(drawn)
    return Mean(value=float(above.sum() / below.sum()), low=float(low), high=float(high), n=len(below))


@cache
def _weights(n: int, seed: int) -> Float[np.ndarray, "draws n"]:
    """Each resample's weight of each patient; equal for equal n, so that methods are compared on the same resamples."""
    return bootstrap.counts(np.zeros(n), np.random.default_rng(seed)) / n
