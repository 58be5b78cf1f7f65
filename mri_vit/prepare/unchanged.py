"""Unchanged: prepared patients that are still those which a run was trained on, held against what the run wrote of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.prepare.prepared import PREPARE_AGAIN, config_sha256, load_record, verify, voxels
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written, read_json, read_json_or_empty
from mri_vit.settings.schema import Study


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
    refuse_changed_patients(study, patients, run)
    remember_patients(study, patients, run)  # before inputs.json, which alone is an older version's
    write_bytes(json.dumps(found, indent=1).encode(), file)
    seen = {patient.id: voxels(study.prepared / patient.id) for patient in patients}
    write_bytes(json.dumps(seen, indent=1).encode(), run / files.VOXELS)


def _scans(study: Study, patient: Patient) -> dict[str, str]:
    """SHA-256 of the files that a patient was prepared from, by what they are."""
    folder = study.prepared / patient.id
    if not (folder / files.PATIENT).exists():
        raise UsageError(f"{study.prepared}: patient {patient.id} is not prepared; run `mri-vit prepare` first")
    found = load_record(folder)
    if found["config_sha256"] != config_sha256(study):
        raise UsageError(f"{study.prepared}: patient {patient.id} was prepared with other settings; run `mri-vit prepare` again")
    with as_written(folder / files.PATIENT, PREPARE_AGAIN):
        return {name: scan["sha256"] for name, scan in found["inputs"].items()}


def refuse_changed_patients(study: Study, patients: Sequence[Patient], run: Path) -> None:
    """Raise UsageError when a prepared patient is not there, or not the one that the run was trained on; IntegrityError when
    one's files are another's or changed.

    A run that a version before 0.5 trained knows no hash of its patients, nor do these, as long as they are the same: they are
    taken as they are.
    """
    before = read_json_or_empty(run / files.PREPARED)
    for patient in patients:
        folder = study.prepared / patient.id
        if not (folder / files.PATIENT).is_file():
            raise UsageError(
                f"{study.prepared}: patient {patient.id} is not prepared here; run `mri-vit prepare` first, or, where the run was"
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


def remember_patients(study: Study, patients: Sequence[Patient], run: Path) -> None:
    """Write down which prepared patients the run is trained on, unless that was done before."""
    if not (run / files.PREPARED).is_file():
        found = {patient.id: _tokens(study.prepared / patient.id) for patient in patients}
        write_bytes(json.dumps(found, indent=1).encode(), run / files.PREPARED)


def refuse_missing_scans(needed: Iterable[tuple[Patient, Path]]) -> None:
    """Raise UsageError naming the first file that is not there: maps are drawn on scans, and scored on tumour masks."""
    for patient, path in needed:
        if not path.is_file():
            raise UsageError(f"patient {patient.id}: {path} is not there; maps need it: copy the scans together with the run")


def _tokens(folder: Path) -> str:
    """Of a prepared patient that has been verified."""
    return str(load_record(folder)["files"][files.TOKENS])
