"""Uploads: what a browser or program sends of one patient goes in; scans in a folder come out, or words that say why not.

A file is either a sequence under its own field, or an archive (zip) of DICOM series or NIfTI files. No path of an archive is
used: its files get numbers, and of a NIfTI file its own name without folders. So nothing lands elsewhere.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from mri_vit.errors import OutOfResource, UsageError
from mri_vit.run.resource import lack

NIFTI = (".nii", ".nii.gz")
ARCHIVE, TUMOUR = "archive", "tumour_mask"  # fields of the form beside the sequences
BLOCK = 2**20  # bytes copied at a time
# APPNOTE.TXT 4.3.16: the record at an archive's end, of 22 bytes and a comment of at most 65,535.
END_MARK, END_FIXED, END_BYTES = b"PK\x05\x06", 22, 22 + 65_535
LISTED_BYTES = 256  # of a file in the list: 46 and its path, with what writers add
LONGEST_NAME = 100  # letters of a NIfTI file's own name; file systems take 255
DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, struct.error)
GIB = 2**30


@dataclass(frozen=True)
class Limits:
    """What is more is refused."""

    sent: int = 2 * GIB  # bytes of a request; four uncompressed scans of 512 × 512 × 200 voxels in single precision have 0.8
    unpacked: int = 8 * GIB  # bytes of an archive's files; DICOM packs to a half, seldom to a quarter
    files: int = 20_000  # of an archive; an exam of ten series of 200 images, each in a file, has 2,000
    waiting: int = 100  # patients in the queue, half an hour of work and more
    spare: int = GIB  # bytes that stay free on the disk


class TooMuch(UsageError):
    """More than the limits allow."""


@dataclass(frozen=True)
class Sent:
    """A file of a form."""

    name: str
    content: Any  # a binary file: read, and sought by zipfile


def store(sent: Mapping[str, Sent], channels: Collection[str], folder: Path, limits: Limits) -> None:
    """Write what was sent of a patient into an empty folder: `t1ce.nii.gz` …, or an archive's files.

    Parameters
    ----------
    sent : by field: sequences of `channels`, `tumour_mask`; or `archive` alone.

    Raises
    ------
    UsageError
        Nothing was sent, or a file is no NIfTI file, or the archive is damaged, locked or has no scans.
    TooMuch
        The archive unpacks to more than the limits allow.
    OSError
        The disk is full.
    """
    folder.mkdir(parents=True)
    if not sent:
        raise UsageError(f"no file was sent; expected {', '.join(channels)} as NIfTI files, or an archive (.zip)")
    if ARCHIVE in sent:
        if len(sent) > 1:
            raise UsageError("an archive and single scans were sent; expected either")
        unpack(sent[ARCHIVE], folder, limits)
        return
    for field, file in sent.items():
        suffix = next((ending for ending in sorted(NIFTI, key=len, reverse=True) if file.name.lower().endswith(ending)), None)
        if suffix is None:
            raise UsageError(f"{field}: found {PurePosixPath(file.name).name!r}; expected a NIfTI file (.nii or .nii.gz)")
        with (folder / f"{field}{suffix}").open("wb") as target:
            while block := file.content.read(BLOCK):
                refuse_full_disk(folder, limits)
                target.write(block)


def unpack(archive: Sent, folder: Path, limits: Limits) -> None:
    """Write the files of a zip archive into a folder, by numbers."""
    _refuse_long_list(archive, limits)
    try:
        with zipfile.ZipFile(archive.content) as opened:
            files = [entry for entry in opened.infolist() if not entry.is_dir() and not _is_junk(entry.filename)]
            if not files:
                raise UsageError(f"{archive.name}: the archive is empty; expected DICOM series or NIfTI files of one patient")
            if len(files) > limits.files:
                raise TooMuch(f"{archive.name}: holds {len(files):,} files; at most {limits.files:,} are accepted")
            left = limits.unpacked
            for number, entry in enumerate(files):
                left -= _copy(opened, entry, folder / _name(entry.filename, number), left, limits)
    except RuntimeError as error:  # as zipfile says that a password is needed, or that it lacks a method
        raise UsageError(f"{archive.name}: {error}; expected an archive without a password, packed as .zip") from None
    except DAMAGE as error:
        raise UsageError(f"{archive.name}: no zip archive that can be read ({error}); pack it again as .zip") from None
    except OSError as error:
        if lack(error, folder):
            raise
        raise UsageError(f"{archive.name}: damaged ({error.strerror or error}); pack it again as .zip") from None


def _refuse_long_list(archive: Sent, limits: Limits) -> None:
    """Refuse an archive whose list of files is too long to be read, by the record at its end that states the list's size."""
    archive.content.seek(0, os.SEEK_END)
    archive.content.seek(max(0, archive.content.tell() - END_BYTES))
    tail = archive.content.read()
    place = tail.rfind(END_MARK)
    if place < 0 or len(tail) < place + END_FIXED:
        raise UsageError(f"{archive.name}: no zip archive that can be read (it has no end); pack it again as .zip")
    (size,) = struct.unpack_from("<I", tail, place + 12)
    if size > limits.files * LISTED_BYTES:
        raise TooMuch(f"{archive.name}: its list of files has {size / 1e6:.1f} MB; at most {limits.files:,} files are accepted")
    archive.content.seek(0)


def _copy(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, left: int, limits: Limits) -> int:
    """Unpack one file, counting what really comes out: the sizes that an archive states may be lies."""
    if target.exists():
        raise UsageError(f"the archive holds two files called {target.name}; expected the scans of one patient and one visit")
    written = 0
    with opened.open(entry) as source, target.open("wb") as file:
        while block := source.read(BLOCK):
            written += len(block)
            if written > left:
                raise TooMuch(f"the archive unpacks to more than {limits.unpacked / GIB:g} GiB, which is accepted at most")
            refuse_full_disk(target.parent, limits)
            file.write(block)
    return written


def refuse_full_disk(folder: Path, limits: Limits, announced: int = 0) -> None:
    """Raise OutOfResource where less stays free than has to, once what was `announced` is written as it arrives, and unpacked."""
    free = shutil.disk_usage(folder).free
    if free < limits.spare + 2 * announced:
        raise OutOfResource(
            f"the disk of the service has {free / GIB:.1f} GiB free, too little for this patient; nothing was kept, and the"
            " patients in the queue are not lost"
        )


def _name(path: str, number: int) -> str:
    """A file's name without folders where it is a NIfTI file, whose name says the sequence; else a number."""
    name = re.split(r"[/\\]", path)[-1]
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".-")
    return safe[-LONGEST_NAME:] if safe.lower().endswith(NIFTI) else f"{number:06d}"


def _is_junk(path: str) -> bool:
    """What macOS puts into archives beside the files."""
    return path.startswith("__MACOSX/") or path.endswith(".DS_Store")


def patient_name(text: str) -> str:
    """A patient's name as a folder may be called: what the sender wrote, or "patient"."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64]
    return safe or "patient"
