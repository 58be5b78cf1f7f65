"""Sequences: whether scans are what the table calls them. Copies go in; contrasts that tell sequences apart come out.

FLAIR is a T2 whose fluid is dark. T1ce is a T1 in which vessels, the choroid plexus and most glioblastomas are bright.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from jaxtyping import Float
from scipy.ndimage import binary_dilation, distance_transform_edt

from mri_vit.data.volume import Volume
from mri_vit.prepare import register
from mri_vit.prepare.outliers import BY_MAD
from mri_vit.prepare.quality import coverage
from mri_vit.prepare.quality.copies import Copies

FLUID_T1 = 0.45  # of the template's brightest voxel: fluid has 0.2 to 0.4 in it, grey matter 0.55
SHIFTED = 2  # voxels of 2 mm around the template's fluid: no two brains have it in one place
FLUID_DARKEST = 0.25  # of the voxels there, in T1: fluid is darker than oedema, and than all of a tumour but its necrosis
LEAST_VOXELS = 20  # fewer say nothing
DEEP_MM = 8.0  # within the brain: fat that stripping left at its rim is brighter in T1 than anything that takes up contrast
TAIL = 0.002  # of the deep voxels at each end: vessels and choroid plexus are about a hundredth


def fluid_contrast(copies: Copies, from_mni: Float[np.ndarray, "4 4"]) -> float | None:
    """T2 less FLAIR in the fluid, in standard deviations of the brain; None without either of them or without fluid.

    `from_mni` carries a point of the grid's frame to that of the MNI152 brain, in which the brain has its size.
    """
    dark = next((copies.scans[channel] for channel in ("t1", "t1ce") if channel in copies.scans), None)
    if dark is None or not {"t2", "flair"} <= copies.scans.keys():
        return None
    near = copies.brain & (copies.seen(_fluid(), from_mni) > 0.5)
    if near.sum() < LEAST_VOXELS / FLUID_DARKEST:
        return None
    fluid = near & (dark <= np.quantile(dark[near], FLUID_DARKEST))
    return float(np.median(copies.scans["t2"][fluid] - copies.scans["flair"][fluid]))


def enhancement(copies: Copies) -> float | None:
    """How much further T1ce rises above T1 than it falls below, deep in the brain; exchanged scans have it with a minus.

    The two ends of T1ce less T1 added up, from its median and in robust standard deviations; None without either scan.
    """
    if not {"t1", "t1ce"} <= copies.scans.keys():
        return None
    deep = np.asarray(distance_transform_edt(copies.brain, sampling=copies.voxel_mm)) > DEEP_MM
    if deep.sum() < LEAST_VOXELS / TAIL:
        return None
    change = (copies.scans["t1ce"] - copies.scans["t1"])[deep]
    change -= np.median(change)
    low, high = np.quantile(change, (TAIL, 1 - TAIL))
    return float((low + high) / max(BY_MAD * np.median(np.abs(change)), 1e-6))


@cache
def _fluid() -> Volume:
    """Where (1) the MNI152 brain is fluid away from its rim: the ventricles and the fissures between and beside them."""
    brain, _ = register.template()
    dark = (brain.array < FLUID_T1) & coverage.core()
    return Volume(np.asarray(binary_dilation(dark, iterations=SHIFTED)).astype(np.float32), brain.affine)
