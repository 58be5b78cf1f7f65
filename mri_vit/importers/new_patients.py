"""New patients: a table, or a folder with one patient's scans as they come from elsewhere, goes in; patients come out."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.data.columns import OURS, key
from mri_vit.errors import UsageError
from mri_vit.importers import dicom
from mri_vit.importers.collections import LAYOUTS
from mri_vit.importers.layout import Visit, files_below
from mri_vit.importers.layout_reader import visits_among
from mri_vit.run import atomic
from mri_vit.run.atomic import complete
from mri_vit.settings import source as source_file

CONVERTED = "scans"  # folder in the output, for scans converted from DICOM
NAMES = "P001_t1ce.nii.gz or t1ce.nii.gz"
SHOWN_FILES = 8  # files that a message names
HASH_DIGITS = 8  # hexadecimal digits: among 1,000 names that differ only in punctuation, two agree once in 8,600 times


@dataclass(frozen=True)
class NewPatients:
    """Patients from outside a study, the folder that their files are named from, and remarks for the reader."""

    patients: list[Patient]
    home: Path
    remarks: tuple[str, ...] = ()


def read_new_patients(
    source: Path, channels: tuple[str, ...], needs: Sequence[str], output: Path, say: Callable[[str], None]
) -> NewPatients:
    """The patients of a cohort table, or the one whose folder it is.

    Parameters
    ----------
    source
        A table (CSV, TSV); or a folder with one patient's scans, as NIfTI files named in any layout that can be imported, or as
        DICOM series. Masks of the brain and the tumour may lie beside NIfTI files.
    channels, needs
        The sequences that are looked for, and those that must be there.
    output
        DICOM series are converted into its folder `scans`.
    say
        Prints a line for each refused series. These lines are personal data.

    Raises
    ------
    UsageError
        The table is wrong; or the scans of a folder cannot be identified, are of several patients, or a needed one is missing:
        the message names what was found and what is missing.
    """
    if not source.is_dir():
        return NewPatients(cohort.read(source, (), needs, channels), source.parent)
    if output.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"output {output} lies inside the patient's folder {source}; choose a folder outside it")
    patient, changed = safe_id(source.resolve().name)
    niftis, _, images = files_below(source)
    if not niftis and (other := next(filter(source_file.other_format, images), None)):
        raise UsageError(f"{other}: {source_file.other_format(other)}")
    if niftis:
        home, (scans, unread) = source, _identified(source, niftis, channels)
    else:
        home, scans = _converted(source, patient, output, say)
        unread = []
    if lacking := [channel for channel in needs if channel not in scans]:
        names = ", ".join(f"{name} ({file.relative_to(home).as_posix()})" for name, file in scans.items()) or "no sequence"
        others = f"; not identified: {_first_few(unread)}" if unread else ""
        raise UsageError(f"{source}: found {names}{others}; need {', '.join(lacking)} as well, with names like {NAMES}")
    remarks = [f"the patient is called {patient}, because the folder's own name cannot be an id"] if changed else []
    if unread:
        remarks.append(f"files not read: {_first_few(unread)}")
    by_channel = {channel: scans.get(channel) for channel in channels}
    found = Patient(patient, by_channel, {}, {}, brain_mask=scans.get("brain_mask"), tumour_mask=scans.get("tumour_mask"))
    return NewPatients([found], home, tuple(remarks))


def safe_id(name: str) -> tuple[str, bool]:
    """A folder's name as a patient's id, and whether it was changed.

    Characters that no id may have become a hyphen; a hash of the name then ends the id, so that two names get two ids.
    """
    if (safe := _hyphenated(name)) == name:
        return name, False
    return f"{safe[: 64 - HASH_DIGITS - 1]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:HASH_DIGITS]}", True


def _hyphenated(name: str) -> str:
    """The part of a folder's name that an id may have; several names can give the same."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64].rstrip("-._")
    if not cohort.is_patient_id(safe):
        safe = f"patient-{safe}"[:64].rstrip("-._")  # nothing was left, or a device's name
    return safe


def _identified(source: Path, niftis: Sequence[Path], channels: tuple[str, ...]) -> tuple[dict[str, Path], list[str]]:
    """Scans and masks by name, from the layout that identifies most sequences; and the files that were not read."""
    scans: dict[str, Path] = {}
    for root in (Path("/", _hyphenated(source.resolve().name)), Path("/")):  # layouts read the patient's id in the folder or file
        real = {root / PurePosixPath(file.relative_to(source).as_posix()): file for file in niftis}
        for layout in LAYOUTS.values():
            if not layout.scans or layout.read_sequences:
                continue
            visits, left_out, _ = visits_among(layout, Path("/"), list(real))
            if len({(visit.patient, visit.session) for visit in visits}) > 1:
                names = sorted({" ".join(filter(None, (visit.patient, visit.session))) for visit in visits})
                raise UsageError(
                    f"{source}: scans of {len(names)} patients or visits ({_first_few(names)}); expected one: name one's folder,"
                    " or make a table of all with `mri-vit import`"
                )
            if not visits and (several := [row.reason for row in left_out if row.reason.startswith("several files")]):
                raise UsageError(f"{source}: {'; '.join(several)}")
            by_name = _files(visits[0], real) if visits else {}
            if sum(channel in by_name for channel in channels) > sum(channel in scans for channel in channels):
                scans = by_name
    scans |= {name: file for name, file in _by_ending(niftis, channels).items() if name not in scans}
    read = set(scans.values())
    return scans, [file.relative_to(source).as_posix() for file in niftis if file not in read]


def _files(visit: Visit, real: Mapping[Path, Path]) -> dict[str, Path]:
    masks = {"brain_mask": visit.brain_mask, "tumour_mask": visit.tumour_mask}
    return {name: real[path] for name, path in {**visit.scans, **masks}.items() if path}


def _by_ending(niftis: Sequence[Path], channels: tuple[str, ...]) -> dict[str, Path]:
    """Files whose name ends with a word for one of the study's sequences, where only one file does."""
    wanted = {key(channel): channel for channel in channels} | {w: o for w, o in OURS.items() if o in channels}
    candidates: dict[str, list[Path]] = {}
    for file in niftis:
        words = re.split(r"[^A-Za-z0-9]+", re.sub(r"(?i)\.nii(\.gz)?$", "", file.name))
        if name := wanted.get(words[-1].lower()):
            candidates.setdefault(name, []).append(file)
    return {name: matching[0] for name, matching in candidates.items() if len(matching) == 1}


def _converted(source: Path, patient: str, output: Path, say: Callable[[str], None]) -> tuple[Path, dict[str, Path]]:
    """The folder and scans converted from DICOM to NIfTI; nothing that identifies the person is kept from the headers."""
    no_scan = UsageError(f"{source}: neither a NIfTI file nor a DICOM image; expected names like {NAMES}")
    if not any(path.is_file() for path in source.rglob("*")):
        raise no_scan  # before what reads DICOM is imported
    importer = dicom.reader()
    target = output.resolve() / CONVERTED / patient
    with TemporaryDirectory(prefix="mri-vit-") as secret, complete(target, _refuse_foreign) as beside:
        try:
            imported = importer.read(source, beside / "dicom", Path(secret) / "key", say=say)
        except UsageError as error:
            if "holds no DICOM image" in str(error):
                raise no_scan from None
            raise
        if len(imported.visits) != 1:
            reasons = "; ".join(dict.fromkeys(row.reason for row in imported.left_out)) or "no series is one of the sequences"
            what = f"{len(imported.visits)} patients or visits" if imported.visits else f"no usable scan ({reasons})"
            raise UsageError(f"{source}: DICOM series of {what}; expected one patient's visit: name its folder")
        scans = {name: file.relative_to(beside) for name, file in imported.visits[0].scans.items()}
    return target, {name: target / file for name, file in scans.items()}


def _refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is absent, or holds only converted scans."""
    atomic.refuse_link(folder)
    if foreign := [name for name in atomic.entries(folder) if name != "dicom"]:
        raise UsageError(f"{folder} holds {foreign[0]}, which is no converted scan; it is left unchanged: choose another output")


def _first_few(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_FILES
    return ", ".join(names[:SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")
