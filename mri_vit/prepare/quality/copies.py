"""Copies: scans on a grid go in; the same on voxels of 2 or 4 mm, boxed around the brain, come out to be looked at.

No figure that a limit holds depends on the study's grid: scans are resampled onto `GRID` for it.

Letters: c channels, e voxels along an edge of the grid, x y z voxels of a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy.ndimage import find_objects

from mri_vit.data.volume import Volume, resample
from mri_vit.settings.sections import Grid

GRID = Grid(edge=112, spacing_mm=2.0)  # the default grid at an eighth of the work: the cortex's folds are still seen


@dataclass(frozen=True, eq=False)
class Copies:
    """A patient's scans in standard deviations (see `intensity`), 0 outside the brain, on one grid of the MNI152 frame."""

    scans: Mapping[str, Float[np.ndarray, "x y z"]]
    brain: Bool[np.ndarray, "x y z"]
    affine: Float[np.ndarray, "4 4"]

    @property
    def voxel_mm(self) -> float:
        return float(self.affine[0, 0])

    def seen(self, volume: Volume, from_copy: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "x y z"]:
        """Another volume at the copies' voxels; the 4×4 carries a point of the MNI152 frame to it."""
        return resample(volume, self.brain.shape, self.affine, from_copy).array


def of_grid(
    volume: Float[np.ndarray, "c e e e"],
    inside: Bool[np.ndarray, "e e e"],
    channels: Sequence[str],
    grid: Grid,
    voxel_mm: float = GRID.spacing_mm,
) -> Copies:
    """Means over blocks of the grid's voxels, of the brain's alone, as near to `voxel_mm` as it has them; without empty scans."""
    step = max(1, round(voxel_mm / grid.spacing_mm))
    (box,) = find_objects(inside.astype(np.uint8))
    box = tuple(slice(part.start // step * step, min(part.stop + step, grid.edge)) for part in box)
    share = _blocks(inside[box], step)
    brain = share >= 0.5
    scans = {
        channel: np.where(brain, _blocks(np.where(inside[box], scan[box], 0), step) / np.maximum(share, 0.5), 0)
        for channel, scan in zip(channels, volume, strict=True)
        if scan[box].any()
    }
    affine = np.array(grid.affine)
    affine[:3, 3] += (step - 1) / 2 * grid.spacing_mm + np.array([part.start for part in box]) * grid.spacing_mm
    affine[:3, :3] *= step
    return Copies(scans, brain, affine)


def _blocks(array: Shaped[np.ndarray, "_ _ _"], step: int) -> Float[np.ndarray, "x y z"]:
    """Means over cubes of `step` voxels; last, incomplete ones are left out."""
    x, y, z = (n // step for n in array.shape)
    cut = array[: x * step, : y * step, : z * step]
    return cut.reshape(x, step, y, step, z, step).mean((1, 3, 5), dtype=np.float32)
