"""Intensity: MR intensities have no unit, so each scan is put on the scale of its own brain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

TAIL_PERCENT = 0.5  # at each end: vessels and leftovers of the skull, which must not set a scan's scale
LIMIT = 10.0  # standard deviations; enhancing tumour lies at 3 to 7, so that only faults of the image are cut


@dataclass(frozen=True, eq=False)
class Scaled:
    """A scan in standard deviations from the mean of its brain, 0 outside; with the mean and deviation that did it."""

    array: Float[np.ndarray, "x y z"]
    mean: float
    deviation: float


def zscore(array: Float[np.ndarray, "x y z"], brain: Bool[np.ndarray, "x y z"]) -> Scaled:
    """z = (intensity - mean) / deviation inside the brain, both over the brain's voxels with their tails pulled in.

    The tails (`TAIL_PERCENT` at each end) are moved to their percentile before the mean and deviation are taken, and kept as
    they are in the result, which is limited to ±`LIMIT`: an enhancing rim stays as bright as it is, yet neither a vessel nor a
    spike changes the scale of the rest. Voxels that are NaN (outside the scan's field of view) count nowhere and become 0, the
    brain's mean.
    """
    known = brain & np.isfinite(array)
    values = array[known].astype(np.float64)
    pulled = values.clip(*np.percentile(values, (TAIL_PERCENT, 100 - TAIL_PERCENT)))
    mean, deviation = float(pulled.mean()), float(pulled.std())
    scaled = np.zeros(array.shape, np.float32)
    if deviation > 0:
        scaled[known] = ((values - mean) / deviation).clip(-LIMIT, LIMIT)
    return Scaled(scaled, mean, deviation)
