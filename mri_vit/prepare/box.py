"""Box: the block of voxels that holds a brain, a third of a scan's or of the grid's. What looks at the brain alone uses it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.data.volume import Volume, resample

Box = tuple[slice, slice, slice]


def around(mask: Bool[np.ndarray, "x y z"]) -> Box:
    """The smallest block that holds all of a mask, which must not be empty."""
    x = _ends(mask, (1, 2))
    y = _ends(mask[x], (0, 2))
    return x, y, _ends(mask[x, y], (0, 1))


def _ends(mask: Bool[np.ndarray, "x y z"], others: tuple[int, int]) -> slice:
    """Along one axis, from the first to the last where a mask has a voxel."""
    at = np.flatnonzero(mask.any(axis=others))
    return slice(int(at[0]), int(at[-1]) + 1)


def middle(mask: Bool[np.ndarray, "x y z"]) -> Float[np.ndarray, "3"]:
    """Mean index of the voxels of a mask, which must not be empty."""
    part = around(mask)
    counts = [np.count_nonzero(mask[part], axis=others) for others in ((1, 2), (0, 2), (0, 1))]
    return np.array([np.average(np.arange(p.start, p.stop), weights=n) for p, n in zip(part, counts, strict=True)])


def of_brain(
    scan: Volume, mask: Volume, brain: Box, to_scan: Float[np.ndarray, "4 4"], margin_mm: float
) -> tuple[Volume, Bool[np.ndarray, "x y z"]]:
    """The box of a scan that holds the brain and a margin, and the brain on its voxels.

    `mask` is the brain (1) on another scan's voxels and `brain` its box there; `to_scan` carries a point of that scan to this
    one, RAS+ mm.
    """
    there = carried(brain, np.linalg.inv(scan.affine) @ to_scan @ mask.affine)
    box = widened(there, [math.ceil(margin_mm / mm) for mm in scan.spacing_mm], scan.shape)
    part = cut(scan, box)
    if scan.shape == mask.shape and np.array_equal(to_scan @ mask.affine, scan.affine):
        return part, np.ascontiguousarray(mask.array[box] > 0.5)
    source = cut(mask, widened(brain, (1, 1, 1), mask.shape))
    return part, resample(source, part.shape, part.affine, np.linalg.inv(to_scan)).array > 0.5


def widened(box: Box, voxels: Sequence[int], shape: Sequence[int]) -> Box:
    """The box with so many voxels more on both sides of each axis, inside a grid of `shape`; always one voxel or more."""
    starts = [min(max(part.start - more, 0), n - 1) for part, more, n in zip(box, voxels, shape, strict=True)]
    x, y, z = (
        slice(start, max(min(part.stop + more, n), start + 1))
        for start, part, more, n in zip(starts, box, voxels, shape, strict=True)
    )
    return x, y, z


def halved(box: Box) -> Box:
    """The middle half of a box along each axis."""
    quarters = [(part.stop - part.start) // 4 for part in box]
    x, y, z = (slice(part.start + n, part.stop - n) for part, n in zip(box, quarters, strict=True))
    return x, y, z


def carried(box: Box, matrix: Float[np.ndarray, "4 4"]) -> Box:
    """The block of another grid that covers a box, also where that grid ends; `matrix` carries a voxel index to one there."""
    faces = [(part.start - 0.5, part.stop - 0.5) for part in box]
    index = (matrix @ np.array([[*corner, 1.0] for corner in product(*faces)]).T)[:3]
    low, high = np.floor(index.min(axis=1)).astype(int), np.ceil(index.max(axis=1)).astype(int) + 1
    x, y, z = (slice(int(start), int(stop)) for start, stop in zip(low, high, strict=True))
    return x, y, z


def shape_of(box: Box) -> tuple[int, int, int]:
    x, y, z = (part.stop - part.start for part in box)
    return x, y, z


def within(outer: Box, inner: Box) -> Box:
    """A box of a box as one of the whole grid."""
    x, y, z = (slice(o.start + i.start, o.start + i.stop) for o, i in zip(outer, inner, strict=True))
    return x, y, z


def cut(volume: Volume, box: Box) -> Volume:
    """A box of a volume as a volume of its own, at the same place."""
    return Volume(np.ascontiguousarray(volume.array[box]), placed(volume.affine, box), volume.notes)


def placed(affine: Float[np.ndarray, "4 4"], box: Box) -> Float[np.ndarray, "4 4"]:
    """The affine of a box of a grid."""
    moved = affine.copy()
    moved[:3, 3] = (affine @ [*(part.start for part in box), 1])[:3]
    return moved


def laid(part: Volume, whole: Volume) -> Volume:
    """A box on the whole that it was cut from, which is 0 elsewhere."""
    start = np.rint(np.linalg.inv(whole.affine) @ part.affine[:, 3])[:3].astype(int)
    x, y, z = (slice(first, first + n) for first, n in zip(start.tolist(), part.shape, strict=True))
    array = np.zeros(whole.shape, part.array.dtype)
    array[x, y, z] = part.array
    return Volume(array, whole.affine, part.notes)
