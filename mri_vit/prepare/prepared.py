"""A prepared patient on disk: its record, the settings that made it, and whether its files are still those that were written.

The folder `<prepared>/<patient>` has the files `CONTENT` and their record (`Log` gathers its steps). A run keeps what its
patients were and refuses those that have changed since. Nothing here needs an imaging library.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume, read_mask, resample
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.run import atomic, files, integrity
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written, read_json, read_json_or_empty
from mri_vit.settings.recipe import REFERENCE
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid, Prepare

SCHEMA = 5  # of patient.json, of its figures and of the steps: a higher number prepares every patient anew
CONTENT = (files.TOKENS, files.QC)  # what lies beside the record; and a tumour's mask where one was found
OF_RECORD = ("config_sha256", "inputs", "steps", "to_grid")  # what later stages read of every patient.json
NEAREST = 1  # sitk.sitkNearestNeighbor
PREPARE_AGAIN = "delete its folder and run `mri-vit prepare` again"


def load_record(folder: Path) -> dict[str, Any]:
    """`patient.json` of a prepared patient. Raises IntegrityError when it is damaged."""
    file = folder / files.PATIENT
    record = read_json(file, OF_RECORD, PREPARE_AGAIN)
    with as_written(file, PREPARE_AGAIN):
        matrices = [record["to_grid"][_reference(record)], *record["to_grid"].values()]
        if any(np.array(matrix, float).shape != (4, 4) for matrix in matrices):
            raise ValueError("a matrix that is not 4×4")
    return record


def reference_of(folder: Path) -> str:
    """The sequence whose space is a prepared patient's own."""
    return _reference(load_record(folder))


def reference_to_grid(folder: Path) -> Float[np.ndarray, "4 4"]:
    """From a prepared patient's own space to the grid's, RAS+ mm."""
    record = load_record(folder)
    return np.array(record["to_grid"][_reference(record)], float)


def mask_on_grid(mask: Path, prepared: Path, grid: Grid) -> Bool[np.ndarray, "e e e"]:
    """Which voxels of the grid of e voxels along an edge are tumour: the mask, in the reference's space, by nearest neighbour.

    `prepared` is the patient's folder. Raises UnusablePatient where the mask cannot be read.
    """
    return drawn_on_grid(read_mask(mask), np.linalg.inv(reference_to_grid(prepared)), grid)


def drawn_on_grid(mask: Volume, from_grid: Float[np.ndarray, "4 4"], grid: Grid) -> Bool[np.ndarray, "e e e"]:
    whole = Volume((mask.array != 0).astype(np.uint8), mask.affine)
    return resample(whole, (grid.edge, grid.edge, grid.edge), np.array(grid.affine), from_grid, NEAREST).array != 0


def _reference(record: Mapping[str, Any]) -> str:
    return str(record.get("reference", REFERENCE))  # a version before 0.5 knew no other


def voxels(folder: Path) -> list[str]:
    """SHA-256 of the voxels of each scan of a prepared patient, whatever file they came in."""
    record = load_record(folder)
    with as_written(folder / files.PATIENT, PREPARE_AGAIN):
        read_step = next(step for step in record["steps"] if step["step"] == "read")
        return [scan["voxels_sha256"] for scan in read_step["scans"].values()]


def config_sha256(channels: Sequence[str], grid: Grid, prepare: Prepare) -> str:
    """Hash of the settings that the prepared patient depends on: `channels`, and all of `grid` and `prepare` but the number of
    workers, and but `needs`, which says who is prepared and not how.
    """
    how = prepare.model_dump(exclude={"workers", "needs"})
    matter = {"schema": SCHEMA, "channels": channels, "grid": grid.model_dump(), "prepare": how}
    return hashlib.sha256(json.dumps(matter, sort_keys=True).encode()).hexdigest()


def holds(folder: Path, settings: str, inputs: dict[str, dict[str, str]]) -> bool:
    """Whether the folder is this patient prepared with these settings from these files."""
    try:
        record = load_record(folder)
    except (OSError, ValueError, IntegrityError):  # none, or damaged: the patient is prepared anew
        return False
    return record.get("config_sha256") == settings and record.get("inputs") == inputs


def verify(folder: Path) -> None:
    """Raise IntegrityError when a prepared patient is another's, or a file of it not the one that was written."""
    record, remedy = load_record(folder), f"delete {folder} and run `mri-vit prepare` again"
    if record.get("patient") != folder.name or not isinstance(record.get("files"), dict):
        found = f"is of patient {record.get('patient')!r}, with files {record.get('files')}"
        raise IntegrityError(f"{folder / files.PATIENT}: {found}; expected {folder.name!r} and the hashes of its files; {remedy}")
    written = (*CONTENT, files.TUMOUR) if files.TUMOUR in record["files"] else CONTENT
    integrity.refuse_changed_files(folder, {name: str(record["files"].get(name)) for name in written}, remedy)


def refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless there is nothing at `folder`, or a prepared patient of ours and nothing else.

    Ours is what has a record with a schema and the hash of settings, and no files but those that are written beside it.
    """
    atomic.refuse_strangers(folder, (files.PATIENT, *CONTENT, files.TUMOUR).__contains__, "a prepared patient")
    found = integrity.read_json_or_empty(folder / files.PATIENT)
    ours = isinstance(found.get("schema"), int) and re.fullmatch("[0-9a-f]{64}", str(found.get("config_sha256")))
    if atomic.entries(folder) and not ours:
        raise UsageError(
            f"{folder} is no prepared patient: its {files.PATIENT} is not there, damaged or another program's; it is left alone:"
            " choose another folder for prepared patients, or delete it"
        )


@dataclass
class Log:
    """What was done, in order, and what someone should look at."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, step: str, methods: str, **figures: Any) -> None:
        self.steps.append({"step": step, "methods": methods, **figures})


def freeze_patients(study: Study, patients: Sequence[Patient], run: Path) -> None:
    """See that the prepared patients are of this study's settings and those that training began with; write down which they are.

    Raises UsageError naming a patient who is not prepared, was prepared with other settings, or whose scans have changed.
    """
    found = {patient.id: _scans(study, patient) for patient in patients}
    file = run / files.INPUTS
    before = read_json(file) if file.exists() else found
    changed = sorted(i for i in before | found if before.get(i) != found.get(i))
    if changed:
        raise UsageError(f"{run}: scans of {', '.join(changed)} changed since training began; choose another output or delete it")
    refuse_changed_patients(study.prepared, patients, run)
    remember_patients(study.prepared, patients, run)  # before inputs.json, which alone is an older version's
    write_bytes(json.dumps(found, indent=1).encode(), file)
    seen = {patient.id: voxels(study.prepared / patient.id) for patient in patients}
    write_bytes(json.dumps(seen, indent=1).encode(), run / files.VOXELS)


def _scans(study: Study, patient: Patient) -> dict[str, str]:
    """SHA-256 of the files that a patient was prepared from, by what they are."""
    folder = study.prepared / patient.id
    if not (folder / files.PATIENT).exists():
        raise UsageError(f"{study.prepared}: patient {patient.id} is not prepared; run `mri-vit prepare` first")
    found = load_record(folder)
    if found["config_sha256"] != config_sha256(study.channels, study.grid, study.prepare):
        raise UsageError(f"{study.prepared}: patient {patient.id} was prepared with other settings; run `mri-vit prepare` again")
    with as_written(folder / files.PATIENT, PREPARE_AGAIN):
        return {name: scan["sha256"] for name, scan in found["inputs"].items()}


def refuse_changed_patients(prepared: Path, patients: Sequence[Patient], run: Path) -> None:
    """Raise UsageError when a prepared patient is not there, or not the one that the run was trained on; IntegrityError when
    one's files are another's or changed.

    A run that a version before 0.5 trained knows no hash of its patients, nor do these, as long as they are the same: they are
    taken as they are.
    """
    before = read_json_or_empty(run / files.PREPARED)
    for patient in patients:
        folder = prepared / patient.id
        if not (folder / files.PATIENT).is_file():
            raise UsageError(
                f"{prepared}: patient {patient.id} is not prepared here; run `mri-vit prepare` first, or, where the run was"
                " copied, copy its prepared patients too or name their folder with --prepared"
            )
        if not before and (run / files.INPUTS).is_file():
            if "files" not in load_record(folder):
                continue
            raise UsageError(
                f"{run}: its training began with a version before 0.5, and patient {patient.id} was prepared anew"
                " since, by another procedure; choose another output and train anew, or go on with that version"
            )
        verify(folder)
        if before.get(patient.id, _tokens(folder)) != _tokens(folder):
            raise UsageError(
                f"{run}: patient {patient.id} was prepared anew, with another result, since training began; choose another output"
            )


def remember_patients(prepared: Path, patients: Sequence[Patient], run: Path) -> None:
    """Write down which prepared patients the run is trained on, unless that was done before."""
    if not (run / files.PREPARED).is_file():
        found = {patient.id: _tokens(prepared / patient.id) for patient in patients}
        write_bytes(json.dumps(found, indent=1).encode(), run / files.PREPARED)


def refuse_missing_scans(needed: Iterable[tuple[Patient, Path]]) -> None:
    """Raise UsageError naming the first file that is not there: maps are drawn on scans, and scored on tumour masks."""
    for patient, path in needed:
        if not path.is_file():
            raise UsageError(f"patient {patient.id}: {path} is not there; maps need it: copy the scans together with the run")


def _tokens(folder: Path) -> str:
    """Of a prepared patient that has been verified."""
    return str(load_record(folder)["files"][files.TOKENS])
