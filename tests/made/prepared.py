"""Synthetic records of prepared patients whose tokens a test has written: what `prepare` leaves beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from made.quality import RECORD
from mri_vit.prepare.patient import CONTENT, SCHEMA, config_sha256
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
            "config_sha256": config_sha256(study),
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
