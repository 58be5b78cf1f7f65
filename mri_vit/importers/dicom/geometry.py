"""Geometry: where the slices of a series lie goes in; their order, steps and the affine of their volume come out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from mri_vit.data.nifti import AFFINE_TOLERANCE
from mri_vit.data.volume import LPS
from mri_vit.importers.dicom.header import Image

FEWEST_SLICES = 4  # as dicom2nifti has it: fewer are a localizer, a test shot or a remnant
SAME_PLACE_MM = 0.01  # a tenth of the finest step; positions are written to 0.001 mm or finer
UNEVEN = 0.05  # of the step between slices; dicom2nifti's rtol in validate_slice_increment
DIRECTION = AFFINE_TOLERANCE  # cosine: what the reader of volumes takes for a skew


def normal(image: Image) -> Float[np.ndarray, "3"]:
    """Unit vector that stands upright on a slice, LPS+."""
    row, column = np.reshape(image.orientation, (2, 3))
    across = np.cross(row, column)
    return across / np.linalg.norm(across)


def ordered(images: Sequence[Image]) -> list[Image]:
    """Slices in the order of their places along the normal of the first."""
    direction = normal(images[0])
    return sorted(images, key=lambda image: float(np.dot(image.position_mm, direction)))


def places_mm(images: Sequence[Image]) -> Float[np.ndarray, "n"]:
    """Where each slice lies along the normal of the first."""
    return positions_mm(images) @ normal(images[0])


def positions_mm(images: Sequence[Image]) -> Float[np.ndarray, "n 3"]:
    """Centre of each slice's first pixel, LPS+ mm."""
    return np.array([image.position_mm for image in images], np.float64)


def shape(images: Sequence[Image]) -> tuple[int, int, int]:
    """Of the volume: columns, rows, slices."""
    rows, columns = images[0].matrix
    return columns, rows, len(images)


def affine(images: Sequence[Image]) -> Float[np.ndarray, "4 4"]:
    """From (column, row, slice) to RAS+ mm, of ordered, parallel, evenly spaced slices (DICOM PS3.3, C.7.6.2.1.1)."""
    first = images[0]
    row, column = np.reshape(first.orientation, (2, 3))
    between_rows, between_columns = first.spacing_mm
    positions = positions_mm(images)
    lps = np.eye(4)
    lps[:3, 0] = row / np.linalg.norm(row) * between_columns
    lps[:3, 1] = column / np.linalg.norm(column) * between_rows
    lps[:3, 2] = (positions[-1] - positions[0]) / (len(images) - 1)
    lps[:3, 3] = positions[0]
    return LPS @ lps


def drift_mm(images: Sequence[Image]) -> float:
    """How far the last of ordered slices would be off if all steps were the one that differs most from their mean."""
    steps = np.diff(positions_mm(images), axis=0)
    return float(np.linalg.norm(steps - steps.mean(axis=0), axis=1).max() * len(steps))


def alike(one: Image, other: Image) -> bool:
    """Whether two slices may be of one volume: of one direction, matrix and spacing."""
    return (
        one.matrix == other.matrix
        and np.allclose(one.orientation, other.orientation, atol=DIRECTION)
        and np.allclose(one.spacing_mm, other.spacing_mm, rtol=AFFINE_TOLERANCE)
    )


def is_stack(images: Sequence[Image]) -> bool:
    """Whether slices make up a volume by themselves: enough of them, alike, in places of their own and evenly spaced."""
    if len(images) < FEWEST_SLICES or not all(alike(images[0], image) for image in images):
        return False
    with np.errstate(invalid="ignore"):  # of directions that are none; the checks name them
        steps = np.diff(places_mm(ordered(images)))
    usual = float(np.median(steps))
    return bool(steps.min() >= SAME_PLACE_MM and (np.abs(steps - usual) <= UNEVEN * usual).all())
