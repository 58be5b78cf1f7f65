"""Hashes: the SHA-256 of files that others rest on, written down when they are made and held against them once per stage.

A run's folder and each of its folds' has a `hashes.json` that names its files. It is written just before the table of
predictions whose presence says that the folder is done, so that a done folder has one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path

from mri_vit.errors import IntegrityError
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes

SCHEMA = "mri-vit hashes 1"


def sha256(path: Path) -> str:
    """Of a file's content: 12 ms for 21 MB."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_changed(folder: Path, known: Mapping[str, str], remedy: str) -> None:
    """Raise IntegrityError naming the first file in `folder` that is gone or has another hash than the `known` one."""
    for name, expected in known.items():
        path = folder / name
        if not path.is_file():
            raise IntegrityError(f"{path}: it was written, but is not there; {remedy}")
        found = sha256(path)
        if found != expected:
            raise IntegrityError(f"{path}: it was changed after it was written (SHA-256 {found}, expected {expected}); {remedy}")


def write(folder: Path, names: Collection[str], last: Mapping[str, bytes]) -> None:
    """Write `last`, files by name, into `folder`, and before them the hashes of these and of the files `names` that are there."""
    found = {name: sha256(folder / name) for name in names if (folder / name).is_file()}
    found |= {name: hashlib.sha256(content).hexdigest() for name, content in last.items()}
    write_bytes(json.dumps({"schema": SCHEMA, "files": found}, indent=1).encode(), folder / files.HASHES)
    for name, content in last.items():
        write_bytes(content, folder / name)


def verify(folder: Path, remedy: str, names: Collection[str] | None = None) -> bool:
    """Hold the files of a folder (or those of them in `names`) against its `hashes.json`; False where it has none.

    Versions before 0.5 wrote none, and their runs are taken as they are.

    Raises
    ------
    IntegrityError
        A file is gone or was changed, or the hashes cannot be read.
    """
    file = folder / files.HASHES
    if not file.is_file():
        return False
    try:
        content = json.loads(file.read_bytes())
        known = {str(name): str(expected) for name, expected in content["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise IntegrityError(f"{file}: damaged; {remedy}") from None
    refuse_changed(folder, {name: one for name, one in known.items() if names is None or name in names}, remedy)
    return True
