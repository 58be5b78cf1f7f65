"""Frozen: the cohort table that a run was made from, as it was then; its paths are relative to the run (see `origin`)."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mri_vit.data import cohort, sheet
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.run import files, folder
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written, read_json_or_empty
from mri_vit.run.screen import printable
from mri_vit.settings.schema import Study

SHOWN = 8  # changes of a table that a message names
EXCLUDE_AGAIN = "delete it and run `mri-vit prepare` again"


def freeze(study: Study, patients: list[Patient], run: Path) -> list[Patient]:
    """Write the table that the run is made from. Raises UsageError when folds were made from another."""
    if (run / files.COHORT).exists() and is_frozen(patients, run):
        return patients
    if (run / files.FOLDS).exists():
        changes = _changes(patients, run)
        shown = "\n  ".join([*changes[:SHOWN], *([f"and {len(changes) - SHOWN} more"] if len(changes) > SHOWN else [])])
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
    said = [f"patient {name} was in it, and is not" for name in frozen if name not in now]
    said += [f"patient {name} is new" for name in now if name not in frozen]
    both = [name for name in frozen if name in now]
    if both:
        before, after = frozen[both[0]], now[both[0]]
        said += [f"column {column} was in it, and is not" for column in before if column not in after]
        said += [f"column {column} is new" for column in after if column not in before]
    said += [
        f"patient {name}: {column} was {cell!r}, and is {now[name][column]!r}"
        for name in both
        for column, cell in frozen[name].items()
        if column in now[name] and cell not in [table[name][column] for table in tables]
    ]
    return [printable(one) for one in said] or ["the order of its rows or columns"]


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
    """The prepared patients with the tumour masks that `prepare.tumour_command` made, where the table names none."""
    if not study.prepare.tumour_command:
        return list(patients)
    masks = [study.prepared / patient.id / files.TUMOUR for patient in patients]
    return [
        replace(patient, tumour_mask=mask) if patient.tumour_mask is None and mask.is_file() else patient
        for patient, mask in zip(patients, masks, strict=True)
    ]


def excluded(run: Path) -> set[str]:
    """The patients in a run's table of those who are excluded. Raises IntegrityError where it is damaged."""
    with as_written(run / files.EXCLUDED, EXCLUDE_AGAIN), (run / files.EXCLUDED).open(newline="", encoding="utf-8") as file:
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
    return [_with_files(patient, lambda path: Path(folder.find_path(run, os.path.relpath(path, home)))) for patient in read]


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
    return cohort.dumps([_with_files(p, lambda path: Path(os.path.relpath(path, base) if base else path)) for p in patients])


def _with_files(patient: Patient, change: Callable[[Path], Path]) -> Patient:
    return replace(
        patient,
        scans={channel: path and change(path) for channel, path in patient.scans.items()},
        brain_mask=patient.brain_mask and change(patient.brain_mask),
        tumour_mask=patient.tumour_mask and change(patient.tumour_mask),
    )
