"""DICOMDIR: the table of contents of a medium, believed about files inside the folder and refused where it points outside."""

from __future__ import annotations

from pathlib import Path

from mri_vit.errors import IntegrityError
from mri_vit.importers.dicom import header


def missing(path: Path, folder: Path) -> list[Path]:
    """Files that the DICOMDIR at `path` lists and `folder` does not hold, upper and lower case being one.

    Raises
    ------
    IntegrityError
        It lists a file outside the folder.
    """
    root = folder.resolve()
    absent = []
    for listed in _listed(path):
        if not listed.resolve().is_relative_to(root):
            raise IntegrityError(f"{path}: lists a file outside {folder}; nothing outside is read: copy the whole medium")
        if not _exists(listed, path.parent):
            absent.append(listed)
    return absent


def _listed(path: Path) -> list[Path]:
    """Files that a DICOMDIR lists, by names of which some systems write the parts as one with backslashes."""
    with header.lenient():
        records = header.dataset(path).get("DirectoryRecordSequence") or ()
        names = [record.get("ReferencedFileID") or () for record in records]
        parted = [[name] if isinstance(name, str) else list(name) for name in names]
    return [path.parent.joinpath(*(part for name in parts for part in str(name).split("\\"))) for parts in parted if parts]


def _exists(listed: Path, home: Path) -> bool:
    if listed.is_file():
        return True
    place = home
    for part in listed.relative_to(home).parts:
        near = [one for one in place.iterdir() if one.name.lower() == part.lower()] if place.is_dir() else []
        if not near:
            return False
        place = near[0]
    return place.is_file()
