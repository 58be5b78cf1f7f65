"""Scans: a cohort table, or one patient's folder of NIfTI files or DICOM series, goes in; patients with their files come out."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from mri_vit.data import cohort
from mri_vit.data.cohort import MASKS, Patient
from mri_vit.data.columns import OURS, key
from mri_vit.errors import UsageError
from mri_vit.importers import dicom
from mri_vit.importers.collections import LAYOUTS
from mri_vit.importers.layout import Visit, files_below
from mri_vit.importers.layout_reader import visits_among
from mri_vit.run import atomic
from mri_vit.run.atomic import complete
from mri_vit.settings import source as source_file
from mri_vit.settings.schema import Study

CONVERTED = "scans"  # in the output, where DICOM series were given
NAMES = "P001_t1ce.nii.gz or t1ce.nii.gz"
SHOWN = 8  # files that a message names
HASH = 8  # hexadecimal digits: among 1,000 names that differ in other signs alone, two agree once in 8,600 times
Say = Callable[[str], None]


@dataclass(frozen=True)
class NewPatients:
    """Who is to be predicted, the folder that their files are named from, and what a reader must know of them."""

    patients: list[Patient]
    home: Path
    remarks: tuple[str, ...] = ()


def read_new_patients(source: Path, study: Study, output: Path, say: Say) -> NewPatients:
    """The patients of a cohort table, or the one whose folder it is.

    Parameters
    ----------
    source
        A table (CSV, TSV); or a folder with one patient's scans, as NIfTI files under the names of any layout that can be
        imported, or as DICOM series. Masks of the brain and the tumour may lie beside NIfTI files.
    study
        Of the run: its `channels` are looked for, and those that `prepare.needs` names must be there.
    output
        DICOM series are converted into its folder `scans`.
    say
        Told of each refused series. For a terminal: its lines are personal data.

    Raises
    ------
    UsageError
        The table is wrong; or the scans of a folder cannot be told apart, are of several patients, or one that is needed lacks:
        the message names what was found and what is missing.
    """
    if not source.is_dir():
        return NewPatients(cohort.read(source, (), study.prepare.needs, study.channels), source.parent)
    if output.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"output {output} lies in {source}, whose files are the patient's; choose a folder outside of it")
    patient, changed = safe_id(source.resolve().name)
    files, _, images = files_below(source)
    if not files and (other := next(filter(source_file.other_format, images), None)):
        raise UsageError(f"{other}: {source_file.other_format(other)}")
    home, found, unread = (source, *_told_apart(source, files, study)) if files else _converted(source, patient, output, say)
    scans = {channel: found.get(channel) for channel in study.channels}
    lacking = [channel for channel in study.prepare.needs if scans.get(channel) is None]
    if lacking:
        raise UsageError(f"{source}: {_listed(found, home, unread)}; need {', '.join(lacking)} as well, under names like {NAMES}")
    remarks = [f"the patient is called {patient}: the folder's own name cannot be an id"] if changed else []
    if unread:
        remarks.append(f"not read: {_short(unread)}")
    masks = {name: found.get(name) for name in MASKS}
    return NewPatients([Patient(patient, scans, {}, {}, masks["brain_mask"], masks["tumour_mask"])], home, tuple(remarks))


def safe_id(name: str) -> tuple[str, bool]:
    """A folder's name as a patient's id, and whether that is another.

    What no id may hold becomes a hyphen; a hash of the name then ends the id, so that two names have two ids.
    """
    if (safe := _hyphenated(name)) == name:
        return name, False
    return f"{safe[: 64 - HASH - 1]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:HASH]}", True


def _hyphenated(name: str) -> str:
    """The part of a folder's name that an id may hold; several names can have the same."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64].rstrip("-._")
    if not cohort.is_patient_id(safe):
        safe = f"patient-{safe}"[:64].rstrip("-._")  # nothing was left, or a device's name
    return safe


def _told_apart(source: Path, files: Sequence[Path], study: Study) -> tuple[dict[str, Path], list[str]]:
    """Which file holds what, by the layout that tells most, and the files that were not read."""
    found: dict[str, Path] = {}
    for way in ("patient", ""):  # patterns of layouts read the patient's name in the folder, or in the file
        for visits, faults in _by_layout(source, files, way):
            if faults and not visits:
                raise UsageError(f"{source}: {'; '.join(faults)}")
            if len({(visit.patient, visit.session) for visit in visits}) > 1:
                names = sorted({" ".join(filter(None, (visit.patient, visit.session))) for visit in visits})
                raise UsageError(
                    f"{source}: scans of {len(names)} patients or visits ({_short(names)}); expected one: name one's folder, or"
                    " make a table of all with `mri-vit import`"
                )
            told = _files(visits[0]) if visits else {}
            if sum(channel in told for channel in study.channels) > sum(channel in found for channel in study.channels):
                found = told
    found |= {name: file for name, file in _by_ending(files, study).items() if name not in found}
    read = set(found.values())
    return found, [file.relative_to(source).as_posix() for file in files if file not in read]


def _by_layout(source: Path, files: Sequence[Path], folder: str) -> list[tuple[list[Visit], list[str]]]:
    """What each layout makes of the files: its visits, and what it could not tell apart; patterns see no folder's own name."""
    root = Path("/", _hyphenated(source.resolve().name)) if folder else Path("/")
    real = {root / PurePosixPath(file.relative_to(source).as_posix()): file for file in files}
    made = []
    for layout in LAYOUTS.values():
        if layout.scans and not layout.read_sequences:
            visits, left_out, _ = visits_among(layout, Path("/"), list(real))
            faults = [one.reason for one in left_out if one.reason.startswith("several files")]
            made.append(([_really(visit, real) for visit in visits], faults))
    return made


def _really(visit: Visit, real: Mapping[Path, Path]) -> Visit:
    scans = {channel: real[path] for channel, path in visit.scans.items()}
    masks = [real[mask] if mask else None for mask in (visit.brain_mask, visit.tumour_mask)]
    return Visit(visit.patient, visit.session, scans, *masks)


def _files(visit: Visit) -> dict[str, Path]:
    masks = {"brain_mask": visit.brain_mask, "tumour_mask": visit.tumour_mask}
    return {**visit.scans, **{name: file for name, file in masks.items() if file}}


def _by_ending(files: Sequence[Path], study: Study) -> dict[str, Path]:
    """The files whose name ends with a word for what the study reads, where one file alone does."""
    wanted = {key(channel): channel for channel in study.channels} | {w: o for w, o in OURS.items() if o in study.channels}
    found: dict[str, list[Path]] = {}
    for file in files:
        words = re.split(r"[^A-Za-z0-9]+", re.sub(r"(?i)\.nii(\.gz)?$", "", file.name))
        name = wanted.get(words[-1].lower())
        if name:
            found.setdefault(name, []).append(file)
    return {name: ones[0] for name, ones in found.items() if len(ones) == 1}


def _converted(source: Path, patient: str, output: Path, say: Say) -> tuple[Path, dict[str, Path], list[str]]:
    """The output's folder with the scans of a folder of DICOM series, as NIfTI; what headers say of the person is not kept."""
    importer = dicom.reader()
    target = output.resolve() / CONVERTED / patient
    with TemporaryDirectory(prefix="mri-vit-") as secret, complete(target, _refuse_foreign) as beside:
        try:
            found = importer.read(source, beside / "dicom", Path(secret) / "key", say=say)
        except UsageError as error:
            if "holds no DICOM image" in str(error):
                raise UsageError(f"{source}: neither a NIfTI file nor a DICOM image; expected names like {NAMES}") from None
            raise
        if len(found.visits) != 1:
            said = "; ".join(dict.fromkeys(one.reason for one in found.left_out)) or "no series is one of the sequences"
            what = f"{len(found.visits)} patients or visits" if found.visits else f"no scan that can be used ({said})"
            raise UsageError(f"{source}: DICOM series of {what}; expected one patient's visit: name its folder")
        there = {name: file.relative_to(beside) for name, file in found.visits[0].scans.items()}
    return target, {name: target / file for name, file in there.items()}, []


def _refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is nothing, or holds what was converted and nothing else."""
    atomic.refuse_link(folder)
    if strange := [name for name in atomic.entries(folder) if name != "dicom"]:
        raise UsageError(f"{folder} holds {strange[0]}, which is no converted scan; it is left alone: choose another output")


def _listed(found: Mapping[str, Path], home: Path, unread: Sequence[str]) -> str:
    told = ", ".join(f"{name} ({file.relative_to(home).as_posix()})" for name, file in found.items()) or "no sequence"
    return f"found {told}" + (f"; not told apart: {_short(unread)}" if unread else "")


def _short(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
