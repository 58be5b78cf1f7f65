"""Coarse: a scan goes in, blurred copies of it on larger voxels come out, on which it is registered and looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float
from scipy.ndimage import gaussian_filter1d

from mri_vit.data.volume import Volume
from mri_vit.prepare import box

_COPIES: WeakKeyDictionary[Volume, dict[float, Volume]] = WeakKeyDictionary()  # by spacing


def smoothed(volume: Volume, spacing_mm: Sequence[float]) -> Volume:
    """The scan blurred along each axis finer than `spacing_mm`, so that sampling it at that spacing does not alias.

    The blur makes the widths at half maximum add up to the new voxel's (Cardoso et al. 2015, doi:10.1007/978-3-319-24571-3_81).
    """
    array = np.asarray(volume.array, np.float32)
    for axis, (old, new) in enumerate(zip(volume.spacing_mm, spacing_mm, strict=True)):
        array = _blurred(array, new / old, axis)
    return Volume(array, volume.affine, volume.notes)


def _blurred(array: Float[np.ndarray, "*shape"], wider: float, axis: int) -> Float[np.ndarray, "*shape"]:
    """An array blurred along an axis for voxels that are so many times as wide."""
    if wider <= 1.05:  # within 5 % there is nothing to alias
        return array
    return gaussian_filter1d(array, math.sqrt((wider**2 - 1) / (8 * math.log(2))), axis, mode="nearest", truncate=3)


def copy(volume: Volume, spacing_mm: float) -> Volume:
    """A copy over the same field of view whose voxels are no finer than `spacing_mm`: made once, and kept while the scan is.

    One scan takes part in up to seven registrations.
    """
    copies = _COPIES.setdefault(volume, {})
    if spacing_mm not in copies:
        copies[spacing_mm] = _copied(volume, spacing_mm)
    return copies[spacing_mm]


def _copied(volume: Volume, spacing_mm: float) -> Volume:
    old = np.array(volume.spacing_mm)
    shape = np.maximum(np.round(np.array(volume.shape) * old / np.maximum(old, spacing_mm)), 1).astype(int)
    step = np.array(volume.shape) / shape  # in voxels of the scan; the outer faces stay where they are
    to_fine = np.block([[np.diag(step), (step - 1)[:, None] / 2], [np.zeros((1, 3)), np.ones((1, 1))]])
    background = float(volume.array[0, 0, 0])  # around a stripped brain all else is that, and stays so
    differs = volume.array != background
    if not differs.any():  # a mask that fills its grid
        return Volume(np.full(shape, background, np.float32), volume.affine @ to_fine, volume.notes)
    content = box.around(differs)
    source = box.widened(content, np.ceil(1.3 * step + 1).astype(int).tolist(), volume.shape)  # 1.3: three sigma of the blur
    target = box.widened(box.carried(source, np.linalg.inv(to_fine)), (0, 0, 0), shape.tolist())
    part = np.asarray(volume.array[source], np.float32)
    for kept, wanted, wide in zip(source, target, step.tolist(), strict=True):  # blur and interpolation in one matrix per axis
        index = np.arange(wanted.start, wanted.stop) * wide + (wide - 1) / 2 - kept.start
        part = np.tensordot(part, _interpolation(index, kept.stop - kept.start, wide), axes=(0, 1))  # its new axis is the last
    array = np.full(shape, background, np.float32)
    array[target] = part
    return Volume(array, volume.affine @ to_fine, volume.notes)


def _interpolation(index: Float[np.ndarray, "new"], voxels: int, wide: float) -> Float[np.ndarray, "new old"]:
    """What each of a line's voxels gives to the linear interpolation at an index, once it is blurred for voxels so wide."""
    blur = _blurred(np.eye(voxels, dtype=np.float32), wide, 0)
    low = np.floor(index.clip(0, voxels - 1)).astype(int)
    share = (index.clip(0, voxels - 1) - low)[:, None].astype(np.float32)
    return blur[low] * (1 - share) + blur[np.minimum(low + 1, voxels - 1)] * share
