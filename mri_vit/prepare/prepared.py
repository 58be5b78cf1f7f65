"""A prepared patient on disk: what its record says, which settings made it, and whether its files are those that were written.

The folder `<prepared>/<patient>` has the files `CONTENT` and their record; nothing here needs an imaging library.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.run import files, integrity, ownership
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.schema import Study
from mri_vit.settings.sequences import REFERENCE

SCHEMA = 4  # of patient.json, of its figures and of the steps: a higher number prepares every patient anew
CONTENT = (files.TOKENS, files.QC)  # what lies beside the record; and a tumour's mask where a command made one
OF_RECORD = ("config_sha256", "inputs", "steps", "to_grid")  # what later stages read of every patient.json
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


def _reference(record: Mapping[str, Any]) -> str:
    return str(record.get("reference", REFERENCE))  # a version before 0.5 knew no other


def voxels(folder: Path) -> list[str]:
    """SHA-256 of the voxels of each scan of a prepared patient, whatever file they came in."""
    record = load_record(folder)
    with as_written(folder / files.PATIENT, PREPARE_AGAIN):
        read_step = next(step for step in record["steps"] if step["step"] == "read")
        return [scan["voxels_sha256"] for scan in read_step["scans"].values()]


def config_sha256(study: Study) -> str:
    """Hash of the settings that the prepared patient depends on: `channels`, and all of `grid` and `prepare` but the number of
    workers, but `needs`, which says who is prepared and not how, and but `tumour_command`, whose hash is held against the steps.
    """
    how = study.prepare.model_dump(exclude={"workers", "needs", "tumour_command"})
    matter = {"schema": SCHEMA, "channels": study.channels, "grid": study.grid.model_dump(), "prepare": how}
    return hashlib.sha256(json.dumps(matter, sort_keys=True).encode()).hexdigest()


def holds(folder: Path, settings: str, inputs: dict[str, dict[str, str]], segmented: str = "") -> bool:
    """Whether the folder is this patient prepared with these settings from these files, and its tumour segmented by the command
    of this hash, if there is one.
    """
    try:
        record = load_record(folder)
    except (OSError, ValueError, IntegrityError):  # none, or damaged: the patient is prepared anew
        return False
    looked = not segmented or any(step.get("command_sha256") == segmented for step in record["steps"])
    return record.get("config_sha256") == settings and record.get("inputs") == inputs and looked


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
    ownership.refuse_strangers(folder, (files.PATIENT, *CONTENT, files.TUMOUR).__contains__, "a prepared patient")
    found = integrity.read_json_or_empty(folder / files.PATIENT)
    ours = isinstance(found.get("schema"), int) and re.fullmatch("[0-9a-f]{64}", str(found.get("config_sha256")))
    if ownership.entries(folder) and not ours:
        raise UsageError(
            f"{folder} is no prepared patient: its {files.PATIENT} is not there, damaged or another program's; it is left alone:"
            " choose another folder for prepared patients, or delete it"
        )
