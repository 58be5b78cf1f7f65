"""A value per place back to where it belongs: onto the prepared grid, and onto the voxels of each of the patient's own scans.

A map is made on every scan straight from its places, so it is interpolated once however the scan lies.

Letters: x, y, z a scan's voxels, v those of them that are brain, f places that have a value, e grid edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import SimpleITK as sitk
from jaxtyping import Bool, Float, Integer
from scipy.sparse import csr_array

from mri_vit.data.volume import Volume, resample
from mri_vit.settings.sections import Grid


@dataclass(frozen=True, eq=False)
class Space:
    """The voxels that maps are laid on: which are brain, and of which places each brain voxel is made (rows sum to 1)."""

    affine: Float[np.ndarray, "4 4"]
    inside: Bool[np.ndarray, "x y z"]
    share: csr_array  # [v f]


def space(
    shape: tuple[int, int, int],
    affine: Float[np.ndarray, "4 4"],
    to_grid: Float[np.ndarray, "4 4"],
    brain: Bool[np.ndarray, "e e e"],
    place: Integer[np.ndarray, "f"],
    grid: Grid,
) -> Space:
    """How the voxels of a scan are made of places: trilinear between the places' centres.

    Near the brain's border only places that have a value count, so a map does not fade there for lack of neighbours.

    Parameters
    ----------
    shape, affine
        Of the scan; the affine carries a voxel's index to RAS+ mm.
    to_grid
        4×4, the scan's RAS+ mm to the grid's RAS+ mm.
    brain
        On the prepared grid; a scan's voxel is brain where the grid's nearest one is.
    place
        The places that will have a value, in the order of the values.
    grid
        The prepared grid.

    Returns
    -------
    Space
        For `on_scan`; it serves every map of the same places.
    """
    on_grid = Volume(brain.astype(np.uint8), np.array(grid.affine))
    inside = resample(on_grid, shape, affine, to_source=to_grid, interpolation=sitk.sitkNearestNeighbor).array > 0
    to_place = np.linalg.inv(_of_places(grid)) @ to_grid @ affine  # a voxel's index to an index among the places
    at = np.argwhere(inside).astype(np.float32) @ to_place[:3, :3].T.astype(np.float32) + to_place[:3, 3].astype(np.float32)
    at = at.clip(0, grid.side - 1).T  # [3 v]; half a place beyond the outermost centres their value holds on
    below = at.astype(np.int32)
    beyond = at - below
    strides = np.array([[grid.side**2], [grid.side], [1]], np.int32)  # place = (i·side + j)·side + k
    ends = (below * strides, np.minimum(below + 1, grid.side - 1) * strides)  # the neighbours on either side, per axis
    nearness = (1 - beyond, beyond)
    row_of = np.full(grid.places, -1, np.int32)
    row_of[place] = np.arange(len(place), dtype=np.int32)
    column, share = (np.empty((at.shape[1], 8), kind) for kind in (np.int32, np.float32))
    for corner, (x, y, z) in enumerate(product((0, 1), repeat=3)):
        found = row_of[ends[x][0] + ends[y][1] + ends[z][2]]
        column[:, corner] = found.clip(0)
        share[:, corner] = nearness[x][0] * nearness[y][1] * nearness[z][2] * (found >= 0)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-6)  # 1e-6: a voxel all of whose places lack a value stays 0
    rows = np.arange(0, column.size + 1, 8, dtype=np.int32)
    return Space(affine, inside, csr_array((share.ravel(), column.ravel(), rows), shape=(at.shape[1], len(place))))


def on_scan(value: Float[np.ndarray, "f"], space: Space) -> Volume:
    """The map on the voxels of a space; zero outside the brain."""
    array = np.zeros(space.inside.shape, np.float32)
    array[space.inside] = space.share @ value.astype(np.float32)
    return Volume(array, space.affine)


def on_grid(
    value: Float[np.ndarray, "f"], place: Integer[np.ndarray, "f"], brain: Bool[np.ndarray, "e e e"], grid: Grid
) -> Volume:
    """The map on the prepared grid; zero outside the brain."""
    return on_scan(value, space((grid.edge, grid.edge, grid.edge), np.array(grid.affine), np.eye(4), brain, place, grid))


def _of_places(grid: Grid) -> Float[np.ndarray, "4 4"]:
    """The affine of a grid whose voxels are the places: index among them to RAS+ mm of a place's centre."""
    affine = np.array(grid.affine)
    coarse = affine @ np.diag([grid.patch, grid.patch, grid.patch, 1.0])
    coarse[:3, 3] = affine[:3, 3] + grid.spacing_mm * (grid.patch - 1) / 2  # the first place's centre
    return coarse
