"""Scan: a prepared patient as the cube of voxels that an encoder of others was trained on: spacing, extent, axes, intensities.

Letters: c sequences, g edge of the prepared grid, e edge of the encoder's cube.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import nibabel as nib
import numpy as np
from jaxtyping import Bool, Float

from mri_vit.data.tokens import Tokens, to_volume
from mri_vit.data.volume import Volume, resample
from mri_vit.errors import UnusablePatient
from mri_vit.settings.sections import GRID_CENTRE_MM, Grid

# What a prepared brain is held against, which is z-scored with its tails pulled in (`prepare.intensity`): of 46 synthetic
# patients the mean lies within 0.006 of 0 and the deviation between 1.00 and 1.04; bright tails of real ones raise the latter.
FARTHEST_MEAN, LEAST_DEVIATION, LARGEST_DEVIATION = 0.1, 0.9, 1.4
TAIL_PERCENT = 0.5  # at each end of a brain that is laid between 0 and 1, as `prepare.intensity` has it


@dataclass(frozen=True)
class Expected:
    """What an encoder reads: a cube of `edge`³ voxels of `spacing_mm`, in the middle of the prepared grid."""

    edge: int
    patch: int
    spacing_mm: float
    intensity: Literal["zscore", "unit"]
    axes: str

    @property
    def affine(self) -> Float[np.ndarray, "4 4"]:
        """Voxel index, axes RAS+, to mm of the MNI152 frame; the cube has the prepared grid's centre."""
        half = (self.edge - 1) / 2 * self.spacing_mm
        affine = np.diag([self.spacing_mm] * 3 + [1.0])
        affine[:3, 3] = np.array(GRID_CENTRE_MM) - half
        return affine


@dataclass(frozen=True, eq=False)
class Scan:
    """`volumes` [c e e e] in the order of `channels`, those that the patient has."""

    volumes: Float[np.ndarray, "c e e e"]
    channels: tuple[str, ...]


def of_patient(prepared: Tokens, expected: Expected, channels: tuple[str, ...]) -> Scan:
    """The patient's sequences among `channels` as the encoder expects them; one that is empty is missing.

    Raises UnusablePatient where a sequence's mean and deviation over the brain are not those of a prepared patient.
    """
    dense = to_volume(prepared).astype(np.float32)
    brain = (dense != 0).any(axis=0)
    known = {name: dense[prepared.channels.index(name)] for name in channels}
    known = {name: array for name, array in known.items() if array.any()}
    for name, array in known.items():
        _refuse_other_scale(array[brain], name)
    affine = np.array(prepared.grid.affine)
    mask = on_cube(brain.astype(np.float32), affine, expected) > 0.5
    found = [
        turned(scaled(on_cube(array, affine, expected), mask, expected.intensity), expected.axes) for array in known.values()
    ]
    volumes = np.stack(found) if found else np.zeros((0, *[expected.edge] * 3), np.float32)
    return Scan(volumes, tuple(known))


def _refuse_other_scale(values: Float[np.ndarray, " n"], name: str) -> None:
    mean, deviation = float(values.mean()), float(values.std())
    if not (abs(mean) <= FARTHEST_MEAN and LEAST_DEVIATION <= deviation <= LARGEST_DEVIATION):
        raise UnusablePatient(
            f"{name} has a mean of {mean:.2f} and a deviation of {deviation:.2f} in the brain; expected a z-score, 0 within"
            f" {FARTHEST_MEAN} and {LEAST_DEVIATION} to {LARGEST_DEVIATION}"
        )


def on_cube(
    array: Float[np.ndarray, "g g g"], affine: Float[np.ndarray, "4 4"], expected: Expected
) -> Float[np.ndarray, "e e e"]:
    """The prepared array seen on the encoder's cube, axes RAS+, by one trilinear interpolation; 0 beyond what was prepared."""
    edge = expected.edge
    return resample(Volume(array, affine), (edge, edge, edge), expected.affine).array


def scaled(
    array: Float[np.ndarray, "e e e"], brain: Bool[np.ndarray, "e e e"], intensity: Literal["zscore", "unit"]
) -> Float[np.ndarray, "e e e"]:
    """The brain's voxels on the scale that is expected, over the brain as it is in the cube; 0 outside."""
    found = np.zeros_like(array)
    values = array[brain]
    if not values.size:
        return found
    if intensity == "zscore":
        found[brain] = (values - values.mean()) / max(float(values.std()), np.finfo(np.float32).tiny)
    else:
        low, high = np.percentile(values, (TAIL_PERCENT, 100 - TAIL_PERCENT))
        found[brain] = np.clip((values - low) / max(high - low, np.finfo(np.float32).tiny), 0, 1)
    return found


def turned(array: Float[np.ndarray, "e e e"], axes: str) -> Float[np.ndarray, "e e e"]:
    """An RAS+ array with its axes put in another order and direction; no voxel is changed."""
    orientation = nib.orientations.ornt_transform(nib.orientations.axcodes2ornt("RAS"), nib.orientations.axcodes2ornt(axes))
    return np.ascontiguousarray(nib.orientations.apply_orientation(array, orientation))


def share_inside(brain: Bool[np.ndarray, "g g g"], grid: Grid, expected: Expected) -> float:
    """The share of the brain's voxels whose centre lies in the cube."""
    at = np.argwhere(brain)
    from_centre_mm = (at - (grid.edge - 1) / 2) * grid.spacing_mm
    within = (np.abs(from_centre_mm) <= expected.edge * expected.spacing_mm / 2).all(axis=1)
    return float(within.mean()) if len(at) else 1.0
