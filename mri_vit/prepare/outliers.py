"""Outliers: what in a brain looks unlike most of it. A scan and its brain go in, the voxels that stand out come out.

They serve twice: the bias field is estimated without them, because a smooth field looks like a large bright lesion, and
how far they stand out before and after correction shows whether a lesion survived it. No tumour mask is asked: preparation must
be the same whether or not someone drew one, and the figure must exist for every patient.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage

CORE = 2.5  # robust standard deviations: 1 in 80 of a normal distribution, so that grey and white matter stay on both sides
FRINGE = 1.5  # around such voxels: oedema fades, and its weak border pulls a field as well
LEAST_ML = 3.0  # a piece of 18 mm across; vessels, sulci and noise make smaller ones
DARK = ("t1",)  # lesions are darker than brain on T1, brighter on the other scans
LOST = 1 / 3  # of the contrast; more is worth a look
BY_MAD = 1.4826  # standard deviations of a normal distribution in its median absolute deviation


def score(log: Float[np.ndarray, "x y z"], brain: Bool[np.ndarray, "x y z"]) -> Float[np.ndarray, "x y z"]:
    """Distance of log intensities from the brain's median in robust standard deviations (1.4826 MAD), with sign; 0 outside."""
    values = log[brain]
    centre = np.median(values)
    spread = BY_MAD * np.median(np.abs(values - centre))
    scores = np.zeros(log.shape, np.float32)
    if spread > 0:
        scores[brain] = (values - centre) / spread
    return scores


def around(scores: Iterable[Float[np.ndarray, "x y z"]]) -> Bool[np.ndarray, "x y z"]:
    """Voxels that stand out in any of the scans, with their fringe and one voxel more, which holds a share of them."""
    farthest = np.maximum.reduce([np.abs(one) for one in scores])
    grown = ndimage.binary_propagation(farthest > CORE, mask=farthest > FRINGE)
    return np.asarray(ndimage.binary_dilation(grown))


def lesion_like(scores: Float[np.ndarray, "x y z"], channel: str, voxel_ml: float) -> Bool[np.ndarray, "x y z"]:
    """Pieces of `LEAST_ML` or more that stand out as a lesion does: dark on T1, bright elsewhere. Ventricles are among them."""
    standing_out = scores < -CORE if channel in DARK else scores > CORE
    pieces = np.zeros(scores.shape, np.int32)
    ndimage.label(standing_out, output=pieces)
    large = np.bincount(pieces.ravel()) * voxel_ml >= LEAST_ML
    large[0] = False
    return large[pieces]


def contrast(
    array: Float[np.ndarray, "x y z"], piece: Bool[np.ndarray, "x y z"], brain: Bool[np.ndarray, "x y z"]
) -> float | None:
    """Mean of a piece less the mean of the rest of the brain, in standard deviations of the rest; None where either is empty."""
    rest = array[brain & ~piece].astype(np.float64)
    if not piece.any() or not rest.size or not rest.std() > 0:
        return None
    return float((array[piece].mean(dtype=np.float64) - rest.mean()) / rest.std())
