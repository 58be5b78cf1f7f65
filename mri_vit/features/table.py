"""Table: frozen features of patients as one file, with what they were read from and under which licence.

Letters: n patients, d numbers of each.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Float

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.run.atomic import replacing
from mri_vit.run.integrity import as_written, sort_header
from mri_vit.settings import source

SCHEMA = "mri-vit features 1"
TUPLES = ("channels", "taught", "seen")


@dataclass(frozen=True)
class Origin:
    """What features were read from: everything on which a number depends but the patient.

    `weights` is the file's name and `weights_sha256` its content; `fusion` how sequences that were read one by one were put
    together, "none" where they were read at once; `expected` the scans that the encoder was given, in words of `scan.Expected`;
    `taught` and `seen` are subjects whose labels, or scans, an encoder of ours has learned from.
    """

    weights: str
    weights_sha256: str
    licence: str
    architecture: str
    source: str
    channels: tuple[str, ...]
    fusion: str
    heads: int | None = None
    expected: dict[str, Any] | None = None
    taught: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the encoder, for tables: Primus (weights.pth)."""
        return f"{self.architecture} ({Path(self.weights).stem})"


@dataclass(frozen=True, eq=False)
class Features:
    """Of each of `patients` a row [n d], by the way the encoder is read."""

    origin: Origin
    patients: tuple[str, ...]
    vectors: dict[str, Float[np.ndarray, "n _"]]


def save(features: Features, path: Path) -> None:
    """Write the file atomically."""
    metadata = {"schema": SCHEMA, "origin": json.dumps(asdict(features.origin)), "patients": json.dumps(features.patients)}
    with replacing(path) as beside:
        safetensors.numpy.save_file(
            {name: np.ascontiguousarray(rows) for name, rows in features.vectors.items()}, beside, metadata
        )
        sort_header(beside)


def load(path: Path) -> Features:
    """Read a file of features. Raises UsageError when there is none, IntegrityError when it is damaged or is something else."""
    if wrong := source.fault(path):
        raise UsageError(f"{source.shown(path)}: {wrong}; a file that `mri-vit features` wrote is expected")
    try:
        with safetensors.safe_open(str(path), "numpy") as file:
            metadata = file.metadata() or {}
            vectors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        raise IntegrityError(f"{path}: not a file of features: {error}") from None
    if metadata.get("schema") != SCHEMA:
        raise IntegrityError(f"{path}: found {metadata.get('schema')}; expected {SCHEMA}")
    with as_written(path):
        written = json.loads(metadata["origin"])
        origin = Origin(**written | {key: tuple(written[key]) for key in TUPLES})
        patients = tuple(str(name) for name in json.loads(metadata["patients"]))
        if any(rows.ndim != 2 or len(rows) != len(patients) for rows in vectors.values()) or not vectors:
            raise ValueError(f"features of shape {[rows.shape for rows in vectors.values()]} for {len(patients)} patients")
    return Features(origin, patients, vectors)
