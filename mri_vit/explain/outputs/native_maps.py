"""A value per place back to where it belongs: onto the prepared grid, and onto the voxels of each of the patient's own scans.

A map is made on every scan straight from its places, so it is interpolated once however the scan lies. Where a scan's voxels lie
is read from the prepared patient's record instead of the scan.

Letters: x, y, z a scan's voxels, v those of them that are brain, f places that have a value, e grid edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from jaxtyping import Bool, Float, Integer
from scipy.sparse import csr_array

from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, read, resample
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.run import files
from mri_vit.run.integrity import as_written
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid


@dataclass(frozen=True, eq=False)
class Frame:
    """The voxels of a scan as its file has them, and where they lie.

    `affine` carries a voxel's index to RAS+ mm, `to_grid` the scan's RAS+ mm to the prepared grid's.
    """

    shape: tuple[int, int, int]
    affine: Float[np.ndarray, "4 4"]
    to_grid: Float[np.ndarray, "4 4"]


def frames_of_patient(patient: Patient, reference: Volume, study: Study) -> dict[str, Frame]:
    """The frame of every scan that the patient has, in the order of the study's channels; that of `reference` is its own.

    A scan whose frame the record lacks, as a version before 0.5 left it, is read.
    """
    prepared = study.prepared / patient.id
    to_grid, stored = load_record(prepared)["to_grid"], _stored(prepared)
    frames = {}
    for name in study.channels:
        if (file := patient.scans[name]) is None:  # which prepare.needs allows
            continue
        if name == study.prepare.reference:
            shape, affine = reference.shape, reference.affine
        elif name in stored:
            shape, affine = stored[name]
        else:
            scan = read(file)
            shape, affine = scan.shape, scan.affine
        frames[name] = Frame(shape, affine, np.array(to_grid[name]))
    return frames


def frame_of_grid(grid: Grid) -> Frame:
    """The prepared grid's own."""
    return Frame((grid.edge, grid.edge, grid.edge), np.array(grid.affine), np.eye(4))


def scans_read(patient: Patient, study: Study) -> list[Path]:
    """Which of a patient's scans are read where maps are drawn: the reference, and those whose frame the record lacks."""
    stored = _stored(study.prepared / patient.id)
    return [file for name, file in patient.scans.items() if file and (name == study.prepare.reference or name not in stored)]


def _stored(prepared: Path) -> dict[str, tuple[tuple[int, int, int], Float[np.ndarray, "4 4"]]]:
    """By scan the shape and the affine of its file, as far as the record has them."""
    steps = load_record(prepared)["steps"]
    with as_written(prepared / files.PATIENT, PREPARE_AGAIN):
        scans = next((step["scans"] for step in steps if step["step"] == "read"), {})
        return {name: _shape_and_affine(scan["stored"]) for name, scan in scans.items() if "stored" in scan}


def _shape_and_affine(stored: dict[str, list]) -> tuple[tuple[int, int, int], Float[np.ndarray, "4 4"]]:
    (x, y, z), affine = stored["shape"], np.array(stored["affine"], float)
    if affine.shape != (4, 4):
        raise ValueError("an affine that is not 4×4")
    return (int(x), int(y), int(z)), affine


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
        row = row_of[ends[x][0] + ends[y][1] + ends[z][2]]
        column[:, corner] = row.clip(0)
        share[:, corner] = nearness[x][0] * nearness[y][1] * nearness[z][2] * (row >= 0)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-6)  # 1e-6: a voxel all of whose places lack a value stays 0
    rows = np.arange(0, column.size + 1, 8, dtype=np.int32)
    return Space(affine, inside, csr_array((share.ravel(), column.ravel(), rows), shape=(at.shape[1], len(place))))


def on_scan(value: Float[np.ndarray, "f"], space: Space, decimals: int | None = None) -> Volume:
    """The map on the voxels of a space, rounded where so wanted; zero outside the brain."""
    array = np.zeros(space.inside.shape, np.float32)
    array[space.inside] = space.share @ value.astype(np.float32)
    return Volume(array if decimals is None else array.round(decimals), space.affine)


def _of_places(grid: Grid) -> Float[np.ndarray, "4 4"]:
    """The affine of a grid whose voxels are the places: index among them to RAS+ mm of a place's centre."""
    affine = np.array(grid.affine)
    coarse = affine @ np.diag([grid.patch, grid.patch, grid.patch, 1.0])
    coarse[:3, 3] = affine[:3, 3] + grid.spacing_mm * (grid.patch - 1) / 2  # the first place's centre
    return coarse
