"""On the grid: scans and the 4×4s to them go in; each resampled once and scaled, and the brain, come out on the prepared grid.

Letters: c channels, e voxels along an edge of the grid, x y z voxels of a scan, or of the grid's box around the brain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.data.volume import Volume, resample
from mri_vit.errors import UnusablePatient
from mri_vit.prepare import box, brain, coarse, intensity
from mri_vit.prepare.log import Log
from mri_vit.settings.sections import Grid

MISSED = 0.005  # of the brain outside the grid: a rim that needs no warning
LEAST_SHARE = 0.05  # of a grid voxel's sources that must be brain for it to have a value; less is rounding


def on_grid(
    scans: Mapping[str, Volume],
    channels: Sequence[str],
    reference: str,
    brains: Mapping[str, Bool[np.ndarray, "..."]],
    from_grid: Mapping[str, Float[np.ndarray, "4 4"]],
    grid: Grid,
    log: Log,
) -> tuple[Float[np.ndarray, "c e e e"], Bool[np.ndarray, "e e e"]]:
    """Every scan resampled once and scaled, in the order of `channels`, and the brain, on the prepared grid.

    `brains` are the brain on each scan's voxels; the 4×4s carry a point of the grid to each scan, RAS+ mm.
    """
    mask = Volume(brains[reference].astype(np.float32), scans[reference].affine)
    part = _box(mask, from_grid[reference], grid)
    share = _resampled(mask, from_grid[reference], grid, part)
    _check(share > 0.5, mask, grid, log)
    tight = box.around(share > 0.5)  # a box turned onto the grid is larger than the brain's
    part, share = box.within(part, tight), share[tight]
    shares, inside = {reference: share}, share > 0.5
    volume = np.zeros((len(channels), grid.edge, grid.edge, grid.edge), np.float16)  # as tokens are stored
    figures: dict[str, Any] = {}
    for channel, scan in scans.items():
        share = shares.get(channel)
        if share is None:
            share = _resampled(Volume(brains[channel].astype(np.float32), scan.affine), from_grid[channel], grid, part)
        total = _resampled(Volume(np.where(brains[channel], scan.array, 0), scan.affine), from_grid[channel], grid, part)
        # means over brain voxels alone: neither skull nor an emptied background reaches into the brain's border
        means = np.divide(total, share, out=np.full_like(total, math.nan), where=share > LEAST_SHARE)
        scaled = intensity.zscore(means, inside)
        if scaled.deviation == 0:
            raise UnusablePatient(f"{channel} is constant inside the brain ({scaled.mean:g})")
        volume[channels.index(channel)][part] = scaled.array
        figures[channel] = {"mean": scaled.mean, "deviation": scaled.deviation}
    log.add(
        "intensity",
        f"Intensities were z-scored inside the brain over all but the outer {intensity.TAIL_PERCENT} % at each end.",
        limit=intensity.LIMIT,
        scans=figures,
    )
    on_whole = np.zeros(volume.shape[1:], bool)
    on_whole[part] = inside
    return volume, on_whole


def _box(mask: Volume, from_grid: Float[np.ndarray, "4 4"], grid: Grid) -> box.Box:
    """The grid's box around the brain."""
    to_index = np.linalg.inv(from_grid @ np.array(grid.affine)) @ mask.affine
    return box.widened(box.carried(box.around(mask.array > 0), to_index), (0, 0, 0), (grid.edge,) * 3)


def _check(inside: Bool[np.ndarray, "x y z"], mask: Volume, grid: Grid, log: Log) -> None:
    """How much of the brain lies on the grid. Raises UnusablePatient when none does."""
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


def _resampled(scan: Volume, from_grid: Float[np.ndarray, "4 4"], grid: Grid, part: box.Box) -> Float[np.ndarray, "x y z"]:
    """A scan on the grid's box; 0 outside the scan, where the brain's share is 0 as well."""
    soft = coarse.smoothed(scan, [max(grid.spacing_mm, mm) for mm in scan.spacing_mm])
    return resample(soft, box.shape_of(part), box.placed(np.array(grid.affine), part), from_grid).array
