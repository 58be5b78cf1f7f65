"""Faults: a patient's scans go in, the same with one thing wrong that happens in real cohorts come out.

Each is planted as it would arrive: in voxels or headers of the files, before anything is prepared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import nibabel as nib
import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.transform import Rotation

from mri_vit.data.volume import Volume

Scans = dict[str, Volume]


def mirrored(scan: Volume) -> Volume:
    """Left and right exchanged in the voxels, and not in the header."""
    return Volume(np.flip(scan.array, _axis_along(scan, 0)).copy(), scan.affine)


def exchanged(scans: Mapping[str, Volume], one: str, other: str) -> Scans:
    """Two scans under each other's names."""
    return {**scans, one: scans[other], other: scans[one]}


def tilted(scans: Mapping[str, Volume], axis: int, degrees: float) -> Scans:
    """The whole head turned about an axis of the scanner (0 to the right, 1 to the front, 2 to the top)."""
    turn = np.eye(4)
    turn[:3, :3] = Rotation.from_rotvec(np.eye(3)[axis] * math.radians(degrees)).as_matrix()
    return {channel: Volume(scan.array, turn @ scan.affine) for channel, scan in scans.items()}


def emptied(scan: Volume) -> Volume:
    """Nothing but zeros."""
    return Volume(np.zeros_like(scan.array), scan.affine)


def cut(scan: Volume, away: Bool[np.ndarray, "x y z"]) -> Volume:
    """A part of the scan set to its background, the value of its first voxel."""
    return Volume(np.where(away, scan.array.flat[0], scan.array), scan.affine)


def shaded(scan: Volume, axis: int, ratio: float, extent_mm: float) -> Volume:
    """A coil that sees one end `ratio` times as bright as the other, `extent_mm` away."""
    along = points(scan)[..., axis]
    along = (along - along.mean()) / extent_mm
    return Volume((scan.array * np.exp(math.log(ratio) * along)).astype(np.float32), scan.affine)


def ghosted(scan: Volume, share: float) -> Volume:
    """The image again at half the field of view, along the axis nearest to the front, where phase is most often encoded."""
    axis = _axis_along(scan, 1)
    array = scan.array.astype(np.float32)
    return Volume(array + share * np.roll(array, scan.shape[axis] // 2, axis), scan.affine)


def points(scan: Volume) -> Float[np.ndarray, "x y z 3"]:
    """Where each voxel lies, RAS+ mm."""
    index = np.stack(np.meshgrid(*map(np.arange, scan.shape), indexing="ij"), axis=-1)
    return index @ scan.affine[:3, :3].T + scan.affine[:3, 3]


def _axis_along(scan: Volume, world: int) -> int:
    """The axis of the array that runs closest to an axis of the world."""
    return int(np.flatnonzero(nib.io_orientation(scan.affine)[:, 0] == world)[0])
