"""On the grid: scans and the 4×4s to them go in; each resampled once and scaled, and the brain, come out on the prepared grid.

Letters: c channels, e voxels along an edge of the grid, x y z voxels of a scan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.data.volume import Volume, resample
from mri_vit.errors import UnusablePatient
from mri_vit.prepare import brain, intensity, register
from mri_vit.prepare.log import Log
from mri_vit.settings.schema import CHANNELS, REFERENCE, Grid

MISSED = 0.005  # of the brain outside the grid: a rim that needs no warning
LEAST_SHARE = 0.05  # of a grid voxel's sources that must be brain for it to have a value; less is rounding


def on_grid(
    scans: Mapping[str, Volume], mask: Volume, from_grid: Mapping[str, Float[np.ndarray, "4 4"]], grid: Grid, log: Log
) -> tuple[Float[np.ndarray, "c e e e"], Bool[np.ndarray, "e e e"]]:
    """Every scan resampled once and scaled, and the brain, on the prepared grid.

    `mask` is the brain on the T1ce's voxels; the 4×4s carry a point of the grid to each scan, RAS+ mm.
    """
    inside = _brain(mask, from_grid[REFERENCE], grid, log)
    volume = np.zeros((len(CHANNELS), grid.edge, grid.edge, grid.edge), np.float32)
    figures: dict[str, Any] = {}
    for channel, scan in scans.items():
        scaled = intensity.zscore(_brain_only(scan, mask, from_grid[channel], from_grid[REFERENCE], grid), inside)
        if scaled.deviation == 0:
            raise UnusablePatient(f"{channel} is constant inside the brain ({scaled.mean:g})")
        volume[CHANNELS.index(channel)] = scaled.array
        figures[channel] = {"mean": scaled.mean, "deviation": scaled.deviation}
    log.add(
        "intensity",
        f"Intensities were z-scored inside the brain over all but the outer {intensity.TAIL_PERCENT} % at each end.",
        limit=intensity.LIMIT,
        scans=figures,
    )
    return volume, inside


def _brain(mask: Volume, from_grid: Float[np.ndarray, "4 4"], grid: Grid, log: Log) -> Bool[np.ndarray, "e e e"]:
    """The brain on the grid. Raises UnusablePatient when none of it lies there."""
    inside = _resampled(mask, from_grid, grid, 0.0) > 0.5
    share = float(inside.sum() * grid.spacing_mm**3 / 1000 / brain.volume_ml(mask.array > 0, mask))
    log.add(
        "resample",
        f"All scans were resampled once, from brain voxels alone, to {grid.edge}³ voxels of {grid.spacing_mm:g} mm in the"
        " MNI152 frame.",
        brain_on_grid=round(share, 4),
    )
    if not inside.any():
        raise UnusablePatient("empty brain: none of it lies on the prepared grid")
    if share < 1 - MISSED:
        log.warnings.append(f"{1 - share:.1%} of the brain lies outside the prepared grid")
    return inside


def _brain_only(
    scan: Volume, mask: Volume, from_grid: Float[np.ndarray, "4 4"], t1ce_from_grid: Float[np.ndarray, "4 4"], grid: Grid
) -> Float[np.ndarray, "e e e"]:
    """Means over brain voxels alone: neither skull nor an emptied background reaches into the brain's border."""
    inside = resample(mask, scan.shape, scan.affine, t1ce_from_grid @ np.linalg.inv(from_grid)).array > 0.5
    total = _resampled(Volume(np.where(inside, scan.array, 0), scan.affine), from_grid, grid, math.nan)
    share = _resampled(Volume(inside.astype(np.float32), scan.affine), from_grid, grid, math.nan)
    return np.divide(total, share, out=np.full_like(total, math.nan), where=share > LEAST_SHARE)


def _resampled(scan: Volume, from_grid: Float[np.ndarray, "4 4"], grid: Grid, outside: float) -> Float[np.ndarray, "e e e"]:
    soft = register.smoothed(scan, [max(grid.spacing_mm, mm) for mm in scan.spacing_mm])
    return resample(soft, (grid.edge, grid.edge, grid.edge), np.array(grid.affine), from_grid, outside=outside).array
