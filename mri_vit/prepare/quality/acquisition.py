"""Acquisition: how well a scan was taken. A scan and its brain go in; signal to noise, ghosts and shading come out."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import binary_dilation, binary_erosion

from mri_vit.data.volume import Volume
from mri_vit.prepare import box
from mri_vit.prepare.outliers import BY_MAD

SPARSE_MM = 2.0
NEGATIVE_SHARE = 0.01  # of the brain: interpolation leaves fewer negative voxels, standardised scans about half
IMAGED = 0.3  # of the brain's signal: what is brighter is head, and no ghost of it
INSIDE = 2  # voxels within the brain's border: its edge is no noise
OUTSIDE = 2  # voxels around what was imaged: its blur and its ringing are no background
ENDS = (0.02, 0.98)  # quantiles of the field over the brain
LEAST = 500  # voxels of background that a mean needs


def signal_to_noise(scan: Volume, brain: Bool[np.ndarray, "x y z"]) -> float | None:
    """Median signal over noise in the middle half of the brain along each axis.

    Noise is by what a voxel differs from its six neighbours (Coupé et al. 2008, doi:10.1109/TMI.2007.906087). None where too
    little brain is left to tell, or where the scan was standardised, so that its zero is no absence of signal.
    """
    if (scan.array[brain] < 0).mean() > NEGATIVE_SHARE:
        return None
    part_of = box.halved(box.around(brain))
    part = scan.array[part_of].astype(np.float32)
    deep = np.asarray(binary_erosion(brain[part_of], iterations=INSIDE), bool)
    if deep.sum() < LEAST:
        return None
    beside = (
        sum(np.roll(part, step, axis) for axis in range(3) for step in (-1, 1)) / 6
    )  # what rolls over the box's ends is not deep
    noise = BY_MAD * np.median(np.abs(np.sqrt(6 / 7) * (part - beside)[deep]))
    return float(np.median(part[deep]) / max(noise, 1e-6))


def sparse(scan: Volume) -> Volume:
    """Every n-th voxel of a fine scan, `SPARSE_MM` apart: what is as large as a head needs no more."""
    steps = [max(1, round(SPARSE_MM / mm)) for mm in scan.spacing_mm]
    array = scan.array[:: steps[0], :: steps[1], :: steps[2]]
    return Volume(np.ascontiguousarray(array), scan.affine @ np.diag([*steps, 1.0]))


def ghosts(scan: Volume, brain: Bool[np.ndarray, "x y z"], background: float) -> float | None:
    """The brightest half-field-of-view ghost among the three axes, as a share of the brain's signal.

    What was imaged, shifted by half the field of view, against the rest of the background (Giannelli et al. 2010,
    doi:10.1120/jacmp.v11i4.3237; the ghost-to-signal ratio of MRIQC). None where no background is left to compare. A scan that
    was stripped after it was taken shows no ghost: its background was emptied.
    """
    array = scan.array - background
    signal = float(np.median(array[brain]))
    imaged = np.asarray(binary_dilation((array > IMAGED * signal) | brain, iterations=OUTSIDE))
    shares = []
    for axis, n in enumerate(array.shape):
        shifted, beyond = np.roll(imaged, n // 2, axis), np.logical_not(imaged)
        ghost, rest = shifted & beyond, np.logical_not(shifted) & beyond
        if min(ghost.sum(), rest.sum()) >= LEAST:
            shares.append((array[ghost].mean() - array[rest].mean()) / max(signal, 1e-6))
    return float(max(shares)) if shares else None


def shading(before: Float[np.ndarray, "n"], after: Float[np.ndarray, "n"]) -> float | None:
    """Greatest over least of the bias field that was taken out of the brain's voxels, without its outer hundredths."""
    known = (before > 0) & (after > 0)
    if not known.any():
        return None
    low, high = np.quantile(before[known] / after[known], ENDS)
    return float(high / low)
