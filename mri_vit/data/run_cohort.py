"""The cohort of a run: its table as it was when the run was made, who is excluded, and whether its patients are synthetic.

Paths in the frozen table are relative to the run (see `origin`). Generated scans carry a mark in their headers, which no other
id, table, folder or name of a study takes away; what a run learned from is written in its `notes.json`, whose hash the run keeps.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mri_vit.data import cohort, sheet
from mri_vit.data.cohort import Patient
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.run import files, folder
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written, read_json_or_empty
from mri_vit.run.screen import printable
from mri_vit.settings.file import all_from_demo
from mri_vit.settings.schema import Study

SHOWN_CHANGES = 8  # changes of a table that a message names
PREPARE_AGAIN = "delete it and run `mri-vit prepare` again"
SYNTHETIC_NOTE = "synthetic"  # the topic in notes.json; a run of real patients has none
NO_FINDING = "what the run found in made-up scans says nothing about a real patient"
SHOWN_PATIENTS = 3  # patients that a message names


def freeze(study: Study, patients: list[Patient], run: Path) -> list[Patient]:
    """Write the table that the run is made from. Raises UsageError when folds were made from another."""
    if (run / files.COHORT).exists() and is_frozen(patients, run):
        return patients
    if (run / files.FOLDS).exists():
        changes = _changes(patients, run)
        shown = "\n  ".join(
            [*changes[:SHOWN_CHANGES], *([f"and {len(changes) - SHOWN_CHANGES} more"] if len(changes) > SHOWN_CHANGES else [])]
        )
        raise UsageError(
            f"{run}: the cohort table has changed since this run's folds were made; choose another output or delete it:"
            f"\n  {shown}"
        )
    write_bytes(table(patients, run), run / files.COHORT)
    run_folder.settle(study, run)
    return patients


def _changes(patients: Sequence[Patient], run: Path) -> list[str]:
    """What differs between the run's table and these patients: who came or went, which columns, and else the first cells."""
    frozen, *tables = (_rows(table) for table in ((run / files.COHORT).read_bytes(), *_as_seen(patients, run)))
    now = tables[0]
    changes = [f"patient {name} was in it, and is not" for name in frozen if name not in now]
    changes += [f"patient {name} is new" for name in now if name not in frozen]
    both = [name for name in frozen if name in now]
    if both:
        before, after = frozen[both[0]], now[both[0]]
        changes += [f"column {column} was in it, and is not" for column in before if column not in after]
        changes += [f"column {column} is new" for column in after if column not in before]
    changes += [
        f"patient {name}: {column} was {cell!r}, and is {now[name][column]!r}"
        for name in both
        for column, cell in frozen[name].items()
        if column in now[name] and cell not in [table[name][column] for table in tables]
    ]
    return [printable(one) for one in changes] or ["the order of its rows or columns"]


def _rows(table: bytes) -> dict[str, dict[str, str]]:
    """The rows of a table by the visit that they are of."""
    rows = csv.DictReader(io.StringIO(table.decode(errors="replace"), newline=""))
    return {cohort.visit_id(row.get("patient", ""), row.get("session", "")): row for row in rows}


def included(study: Study, run: Path) -> list[Patient]:
    """The frozen cohort less the excluded. Raises UsageError when it was not prepared."""
    for name in (files.COHORT, files.EXCLUDED):
        if not (run / name).exists():
            raise UsageError(f"{run}: no {name}; run `mri-vit prepare` first")
    out = excluded(run)
    return segmented([patient for patient in patients(run, study) if patient.id not in out], study)


def segmented(patients: Sequence[Patient], study: Study) -> list[Patient]:
    """The prepared patients with the tumour masks that the study learns from, as `prepare.tumour` says: given, or found."""
    settings = study.prepare
    found = []
    for patient in patients:
        mask = patient.tumour_mask if settings.takes_given_masks else None
        made = study.prepared / patient.id / files.TUMOUR
        if mask is None and settings.finds_tumours and made.is_file():
            mask = made
        drawn = patient.tumour_mask if patient.tumour_mask != mask else None
        found.append(replace(patient, tumour_mask=mask, drawn_mask=drawn))
    return found


def excluded(run: Path) -> set[str]:
    """The patients in a run's table of those who are excluded. Raises IntegrityError where it is damaged."""
    with as_written(run / files.EXCLUDED, PREPARE_AGAIN), (run / files.EXCLUDED).open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if "patient" not in (rows.fieldnames or ()):
            raise ValueError("no column patient")
        return {row["patient"] for row in rows}


def patients(run: Path, study: Study) -> list[Patient]:
    """The patients of a run's frozen table, whose scans need not be there."""
    read = cohort.read(run / files.COHORT, study.endpoints, channels=study.channels)
    home = os.path.realpath(run)
    if read_json_or_empty(run / files.ORIGIN).get("folder") in (None, home):
        return read
    return [_with_files(patient, lambda path: Path(folder.find_path(run, files.path_from(home, path)))) for patient in read]


def table(patients: Sequence[Patient], run: Path) -> bytes:
    """The table that a run freezes: scans and masks by their paths relative to the run."""
    return _table(patients, os.path.realpath(run))


def is_frozen(patients: Sequence[Patient], run: Path) -> bool:
    """Whether the run's table is of these patients, each path as seen from here, from the run's origin, or absolute."""
    frozen, tables = _lines((run / files.COHORT).read_bytes()), [_lines(table) for table in _as_seen(patients, run)]
    if [len(line) for line in frozen] != [len(line) for line in tables[0]]:
        return False
    return all(cell in now for line, *rows in zip(frozen, *tables, strict=True) for cell, *now in zip(line, *rows, strict=True))


def _as_seen(patients: Sequence[Patient], run: Path) -> list[bytes]:
    """The table of these patients with paths as seen from the run, absolute, and as seen from the run's origin."""
    written = read_json_or_empty(run / files.ORIGIN).get("folder")
    return [_table(patients, base) for base in (os.path.realpath(run), None, *([written] if isinstance(written, str) else []))]


def _lines(table: bytes) -> list[list[str]]:
    lines = csv.reader(io.StringIO(table.decode(errors="replace"), newline=""))
    return [[sheet.unprefixed(cell) for cell in line] for line in lines]


def _table(patients: Sequence[Patient], base: str | None) -> bytes:
    return cohort.dumps([_with_files(p, lambda path: Path(files.path_from(base, path) if base else path)) for p in patients])


def _with_files(patient: Patient, change: Callable[[Path], Path]) -> Patient:
    return replace(
        patient,
        scans={channel: path and change(path) for channel, path in patient.scans.items()},
        brain_mask=patient.brain_mask and change(patient.brain_mask),
        tumour_mask=patient.tumour_mask and change(patient.tumour_mask),
    )


def synthetic_note(patients: Sequence[Patient], study: Study) -> dict[str, str]:
    """What the notes of a run on these prepared patients say of synthetic ones; nothing where all are real.

    All are where the study says which effects were simulated (`report.expected_verdicts`), whoever made the cohort; and where
    every id is one of the built-in cohort, because another program that saves the scans again drops their mark.
    """
    from mri_vit.data import nifti  # here and below, because nibabel takes a quarter of a second to import

    subjects = {patient.subject for patient in patients}
    marked = {patient.subject for patient in patients if nifti.SYNTHETIC in _notes(study.prepared / patient.id)}
    count = len(subjects if study.report.expected_verdicts or all_from_demo(patient.id for patient in patients) else marked)
    return {SYNTHETIC_NOTE: f"{count} of {len(subjects)} patients are synthetic"} if count else {}


def _notes(folder: Path) -> Iterator[str]:
    """What reading noted of the scans of a prepared patient."""
    for step in read_json_or_empty(folder / files.PATIENT).get("steps", []):
        for scan in step.get("scans", {}).values() if step.get("step") == "read" else ():
            yield from scan.get("notes", [])


def synthetic_clause(run: Path) -> str:
    """How many of a finished run's patients are synthetic, as a clause; "" where all are real.

    A version before 0.6 wrote no such note: there the ids of the built-in cohort show it.
    """
    if written := read_json_or_empty(run / files.NOTES).get(SYNTHETIC_NOTE):
        return str(written)
    if files.NOTES in read_json_or_empty(run / files.HASHES).get("files", {}) or not (run / files.COHORT).is_file():
        return ""
    with (run / files.COHORT).open(newline="", encoding="utf-8") as file:
        ids = [row.get("patient", "") for row in csv.DictReader(file)]
    return f"{len(ids)} of {len(ids)} patients are synthetic" if ids and all_from_demo(ids) else ""


def real_patients(patients: Sequence[Patient]) -> list[Patient]:
    """The patients with a readable scan that is not marked as made up."""
    return [patient for patient in patients if any(_is_real(file) for file in patient.scans.values() if file)]


def _is_real(file: Path) -> bool:
    from mri_vit.data import nifti

    try:
        with file.open("rb") as opened:
            return not nifti.announced(opened.read(nifti.START_BYTES), file.name.endswith(".gz")).synthetic
    except (OSError, UnusablePatient):  # no scan: whoever prepares the patient says so
        return False


def refuse_real(run: Path, learned: str, patients: Sequence[Patient], allowed: bool, option: str) -> list[Patient]:
    """The real among the patients that a run of synthetic ones is to predict; none where the run learned from real ones alone.

    `learned` is the run's `synthetic_clause`. Raises UsageError naming some of them unless that is `allowed`; `option` is what
    allows it.
    """
    asked = real_patients(patients) if learned else []
    if asked and not allowed:
        names = ", ".join(patient.id for patient in asked[:SHOWN_PATIENTS]) + ", …" * (len(asked) > SHOWN_PATIENTS)
        raise UsageError(
            f"{run} was trained on synthetic patients ({learned}), and {len(asked)} of the {len(patients)} patients here are"
            f" real ({names}): {NO_FINDING}. Expected a run trained on real patients; {option} goes on nevertheless, and marks"
            " what it writes"
        )
    return asked
