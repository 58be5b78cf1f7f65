"""Prepared patients: prepared as a study says, or tokens that a test has written with the records that `prepare` leaves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from made.quality import RECORD
from mri_vit.data.cohort import Patient
from mri_vit.prepare.patient import CONTENT, SCHEMA, config_sha256, prepare_patient
from mri_vit.run import files, integrity
from mri_vit.settings.schema import Study


def add_records(study: Study, names: Iterable[str]) -> None:
    """Write each patient's picture, which is none, and record, with the hashes of what is there."""
    for name in names:
        folder = study.prepared / name
        (folder / "qc.png").write_bytes(b"no picture")
        record = {
            "schema": SCHEMA,
            "patient": name,
            "config_sha256": config_sha256(study.channels, study.grid, study.prepare),
            "inputs": {},
            "reference": study.prepare.reference,
            "to_grid": {study.prepare.reference: np.eye(4).tolist()},
            "files": {file: integrity.sha256(folder / file) for file in CONTENT},
            **RECORD,
            "steps": [
                {
                    "step": "read",
                    "methods": "Scans were read.",
                    "scans": {scan: {"voxels_sha256": f"{name} {scan}"} for scan in study.channels},
                }
            ],
        }
        (folder / files.PATIENT).write_text(json.dumps(record))


def prepared_by(study: Study, patient: Patient) -> Path:
    """Prepare a patient as the study says; returns the patient's folder."""
    return prepare_patient(patient, study.prepared, study.channels, study.grid, study.prepare)
