"""Geometry: where the slices of a series lie goes in; their order, steps and the affine of their volume come out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from mri_vit.data.volume import LPS
from mri_vit.importers.dicom.header import Image


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
