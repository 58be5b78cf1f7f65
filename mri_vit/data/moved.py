"""Moved: patches of scans that lie some voxels elsewhere, cut from the patches as they are stored.

A place's window into moved scans shows parts of up to eight stored patches, its own and neighbours'. Nothing is interpolated: a
move of whole voxels changes no number, only which patch it is in.

Letters: f stored patches of a patient, p places that are asked for, c channels, x y z voxels of a patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from jaxtyping import Float16, Int, Int64
from torch import Tensor

NONE = -1  # as a neighbour: there is no patch, only air


def neighbours(place: Int[np.ndarray, " f"], side: int) -> Int64[np.ndarray, "f 3 3 3"]:
    """Which patches lie at each place's neighbours, from one before it to one behind along i, j and k; `NONE` where none does."""
    at = np.full((side + 2,) * 3, NONE, np.int64)
    i, j, k = (1 + index for index in np.unravel_index(place.astype(np.int64), (side,) * 3))
    at[i, j, k] = np.arange(len(place))
    step = np.arange(-1, 2)
    return at[i[:, None, None, None] + step[:, None, None], j[:, None, None, None] + step[:, None], k[:, None, None, None] + step]


def windows(
    rows: Float16[Tensor, "r c x y z"], near: Int64[Tensor, "p 3 3 3"], by: Sequence[int]
) -> Float16[Tensor, "p c x y z"]:
    """What each place shows when the scans are moved `by` so many voxels along x, y and z, less than a patch's edge each.

    `near` are indices into `rows`; one of these is a patch of air.
    """
    out = rows.new_empty(len(near), *rows.shape[1:])
    edge = rows.shape[-1]
    for (a, to_x, from_x), (b, to_y, from_y), (c, to_z, from_z) in product(*(_parts(edge, step) for step in by)):
        out[:, :, to_x, to_y, to_z] = rows[:, :, from_x, from_y, from_z][near[:, a, b, c]]
    return out


def _parts(edge: int, by: int) -> list[tuple[int, slice, slice]]:
    """Along one axis: from which neighbour (0, 1 or 2; 1 is the place itself), to which voxels of the window, from which."""
    own = (1, slice(max(by, 0), edge + min(by, 0)), slice(max(-by, 0), edge - max(by, 0)))
    if by == 0:
        return [own]
    before = (0, slice(0, by), slice(edge - by, edge))
    behind = (2, slice(edge + by, edge), slice(0, -by))
    return [own, before if by > 0 else behind]
