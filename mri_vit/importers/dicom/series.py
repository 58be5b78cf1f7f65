"""Series: a folder of DICOM files goes in; its series, with what their headers say, come out. No pixel is decoded.

What a `Series` holds is as personal as the headers that it comes from: it lives in memory and is written nowhere.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mri_vit.importers.dicom import dicomdir, header
from mri_vit.importers.dicom.header import File, Header, Image, NoImage, Tags
from mri_vit.run.hashes import sha256
from mri_vit.settings import source


@dataclass(frozen=True)
class Series:
    """Images that a scanner stored as one series, or the part of it that makes up one volume."""

    patient_id: str
    study_uid: str
    study_date: str  # YYYYMMDD, or "" where the header has none
    series_uid: str
    part: int  # 0, or which of several volumes (echoes, images of several kinds) of the series
    tags: Tags
    files: tuple[File, ...]
    images: tuple[Image, ...]  # a slice each: one per file, or one per frame of a multi-frame file

    @property
    def name(self) -> str:
        """What its hash in tables is made from: no two series of an import have the same."""
        if self.files[0].frames > 1:
            return f"{self.series_uid}/{self.files[0].sop_uid}"
        return f"{self.series_uid}/{self.part}" if self.part else self.series_uid


@dataclass(frozen=True)
class Contents:
    """What a folder holds: series, files that start as DICOM does and cannot be read, and files that a DICOMDIR misses."""

    series: tuple[Series, ...]
    unreadable: tuple[Path, ...]
    missing: tuple[Path, ...]


def find(folder: Path) -> Contents:
    """All series in a folder, at any depth; a file is known as DICOM by its content, whatever its name.

    Raises
    ------
    IntegrityError
        A DICOMDIR names a file outside the folder.
    """
    found: dict[tuple[str, ...], list[Header]] = defaultdict(list)
    unreadable = []
    missing: list[Path] = []
    seen: dict[str, Path] = {}
    for path in _files(folder):
        content = header.read(path)
        if content is NoImage.UNREADABLE:
            unreadable.append(path)
        elif content is NoImage.DIRECTORY:
            missing += dicomdir.missing(path, folder)
        elif isinstance(content, Header):
            first = seen.setdefault(content.file.sop_uid, path)
            if first is not path and sha256(first) == sha256(path):
                continue  # the same file twice, which says nothing new
            apart = content.file.sop_uid if content.file.frames > 1 else ""  # a multi-frame file is a volume of its own
            found[content.patient_id, content.study_uid, content.series_uid, apart].append(content)
    series = [part for key in sorted(found) for part in _parts(found[key])]
    return Contents(tuple(series), tuple(unreadable), tuple(missing))


def _files(folder: Path) -> Iterator[Path]:
    """Files that start as DICOM part 10 does, in the order of their names; links to folders are not followed."""
    for home, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        for name in sorted(names):
            path = Path(home, name)
            if not path.is_file():
                continue
            with path.open("rb") as file:
                if source.is_dicom(file.read(132)):
                    yield path


def _parts(headers: Sequence[Header]) -> list[Series]:
    """A series as one, or, where slices lie at the same place, by echo, kind of image, b-value and time, if that parts them."""
    first = headers[0]
    images = tuple(image for one in headers for image in one.images)
    files = tuple(one.file for one in headers)
    whole = Series(first.patient_id, first.study_uid, first.study_date, first.series_uid, 0, first.tags, files, images)
    if files[0].frames > 1 or _apart(images):
        return [whole]
    parts: dict[tuple[object, ...], list[Header]] = defaultdict(list)
    for one in headers:
        parts[one.images[0].kind].append(one)
    alike = [tuple(one.images[0] for one in part) for part in parts.values()]
    if len(alike) == 1 or not all(len(part) > 1 and _apart(part) for part in alike):
        return [whole]  # the checks say what is wrong with it
    return [
        replace(
            whole,
            part=number,
            tags=part[0].tags,
            files=tuple(one.file for one in part),
            images=tuple(one.images[0] for one in part),
        )
        for number, part in enumerate(parts.values(), start=1)
    ]


def _apart(images: Sequence[Image]) -> bool:
    """Whether no two slices lie at the same place, to 0.01 mm."""
    places = {tuple(round(x, 2) for x in image.position_mm) for image in images}
    return len(places) == len(images)


def _raise(error: OSError) -> None:
    raise error  # a folder without the right to read it is no empty one
