"""A value per place back to where it belongs: onto the prepared grid, and into the T1ce scan's own space.

Letters: f places that have a value, e grid edge.
"""

from __future__ import annotations

import numpy as np
import SimpleITK as sitk
from jaxtyping import Bool, Float, Integer

from mri_vit.config import Grid
from mri_vit.volume import Volume, resample


def on_grid(
    value: Float[np.ndarray, "f"], place: Integer[np.ndarray, "f"], brain: Bool[np.ndarray, "e e e"], grid: Grid
) -> Volume:
    """Values laid on their places and interpolated trilinearly between the places' centres; zero outside the brain.

    Near the brain's border only places that have a value count, so a map does not fade there for lack of neighbours.
    """
    side, patch, affine = grid.side, grid.patch, np.array(grid.affine)
    coarse = affine @ np.diag([patch, patch, patch, 1.0])  # of a grid whose voxels are the places
    coarse[:3, 3] = affine[:3, 3] + grid.spacing_mm * (patch - 1) / 2  # the first place's centre
    laid, given = np.zeros((2, grid.places), np.float32)
    laid[place], given[place] = value, 1
    dense = [_interpolated(part.reshape(side, side, side), coarse, grid) for part in (laid, given)]
    return Volume(np.where(brain, dense[0] / np.maximum(dense[1], 1e-6), 0).astype(np.float32), affine)


def _interpolated(laid: Float[np.ndarray, "s s s"], affine: Float[np.ndarray, "4 4"], grid: Grid) -> Float[np.ndarray, "e e e"]:
    """Half a place beyond the outermost centres the border's value holds on; ITK alone would leave it empty."""
    padded = np.pad(laid, 1, mode="edge")
    beyond = affine.copy()
    beyond[:3, 3] -= affine[:3, :3].sum(axis=1)
    return resample(Volume(padded, beyond), (grid.edge, grid.edge, grid.edge), np.array(grid.affine)).array


def to_native(
    on_grid: Volume, native: Volume, native_to_grid: Float[np.ndarray, "4 4"], interpolation: int = sitk.sitkLinear
) -> Volume:
    """A grid volume seen on the native scan's voxels; `native_to_grid` carries native RAS+ mm to grid RAS+ mm."""
    return resample(on_grid, native.shape, native.affine, to_source=native_to_grid, interpolation=interpolation)
