"""Frames: the voxels that a patient's scans were stored on, from the prepared patient's record instead of the scans."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, read
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


def of_patient(patient: Patient, reference: Volume, study: Study) -> dict[str, Frame]:
    """The frame of every scan that the patient has, in the order of the study's channels; that of `reference` is its own.

    A scan whose frame the record lacks, as a version before 0.5 left it, is read.
    """
    to_grid = load_record(study.prepared / patient.id)["to_grid"]
    stored = _stored(study.prepared / patient.id)
    found = {}
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
        found[name] = Frame(shape, affine, np.array(to_grid[name]))
    return found


def of_grid(grid: Grid) -> Frame:
    """The prepared grid's own."""
    return Frame((grid.edge, grid.edge, grid.edge), np.array(grid.affine), np.eye(4))


def files_read(patient: Patient, study: Study) -> list[Path]:
    """Which of a patient's scans are read where maps are drawn: the reference, and those whose frame the record lacks."""
    stored = _stored(study.prepared / patient.id)
    return [file for name, file in patient.scans.items() if file and (name == study.prepare.reference or name not in stored)]


def _stored(prepared: Path) -> dict[str, tuple[tuple[int, int, int], Float[np.ndarray, "4 4"]]]:
    """By scan the shape and the affine of its file, as far as the record has them."""
    steps = load_record(prepared)["steps"]
    with as_written(prepared / files.PATIENT, PREPARE_AGAIN):
        scans = next((step["scans"] for step in steps if step["step"] == "read"), {})
        return {name: _frame(scan["stored"]) for name, scan in scans.items() if "stored" in scan}


def _frame(stored: dict[str, list]) -> tuple[tuple[int, int, int], Float[np.ndarray, "4 4"]]:
    (x, y, z), affine = stored["shape"], np.array(stored["affine"], float)
    if affine.shape != (4, 4):
        raise ValueError("an affine that is not 4×4")
    return (int(x), int(y), int(z)), affine
