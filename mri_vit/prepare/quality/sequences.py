"""Sequences: whether scans are what the table calls them. Copies go in; contrasts that tell sequences apart come out.

FLAIR is a T2 whose fluid is dark. T1ce is a T1 in which vessels, the choroid plexus and most glioblastomas are bright. Both
figures add up the two ends of a difference of scans: of noise and motion the two ends are alike, and exchanged scans have the
figure with a minus. Brightness is in standard deviations of the brain.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.ndimage import distance_transform_edt

from mri_vit.prepare.quality.copies import Copies

DEEP_MM = 8.0  # within the brain: fat that stripping left at its rim is brighter in T1 than anything that takes up contrast
TAIL = 0.001  # of the deep voxels at each end, about 0.8 ml: some vessels, or a narrow ventricle
LEAST_VOXELS = 20  # of an end: fewer say nothing
DARK = -0.5  # from the brain's mean: grey matter in T1. How dark fluid and oedema are differs from one kind of T1 to another
BRIGHT = 1.5  # from the brain's mean: fluid is brighter in T2. How bright oedema is beyond that differs between T2 and FLAIR


def fluid_contrast(copies: Copies) -> float | None:
    """How much further T2 rises above FLAIR than it falls below, in standard deviations of the brain; None without either scan.

    It rises in fluid, such as that of the ventricles. What is brighter than `BRIGHT` counts as `BRIGHT` in both.
    """
    return _asymmetry(copies, "t2", "flair", (-np.inf, BRIGHT))


def enhancement(copies: Copies) -> float | None:
    """How much further T1ce rises above T1 than it falls below, in standard deviations of the brain; None without either scan.

    It rises in what takes up contrast. What is darker than `DARK` counts as `DARK` in both.
    """
    return _asymmetry(copies, "t1ce", "t1", (DARK, np.inf))


def _asymmetry(copies: Copies, bright: str, other: str, limits: tuple[float, float]) -> float | None:
    """The two ends of a scan less another, both within `limits`, added up; from the median, deep in the brain."""
    if not {bright, other} <= copies.scans.keys():
        return None
    deep = np.asarray(distance_transform_edt(copies.brain, sampling=copies.voxel_mm)) > DEEP_MM
    if deep.sum() < LEAST_VOXELS / TAIL:
        return None
    values: list[Float[np.ndarray, "n"]] = [copies.scans[scan][deep].clip(*limits) for scan in (bright, other)]
    low, middle, high = np.quantile(values[0] - values[1], (TAIL, 0.5, 1 - TAIL))
    return float(low + high - 2 * middle)
