"""Origin: paths in a run's records are relative to the run, so that a tree of studies can be copied; a run alone finds what
it was made from where it was then, which `origin.json` tells.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mri_vit import cohort, study_file
from mri_vit.cohort import Patient
from mri_vit.config import Endpoint, Study
from mri_vit.ownership import record
from mri_vit.volume import write_bytes

FILE = "origin.json"


def known(run: Path) -> bool:
    """Whether the run says where it was made; one by a version before 0.5 does not, and has absolute paths."""
    return (run / FILE).is_file()


def write(run: Path) -> None:
    """Say that the paths in the run's records are relative to where it is now."""
    write_bytes(json.dumps({"folder": os.path.realpath(run)}).encode(), run / FILE)


def find(run: Path, text: str) -> str:
    """The path that a record of the run means by `text`: as seen from here if that is there, else as seen from its origin."""
    here = os.path.abspath(os.path.join(os.path.realpath(run), text))  # no link behind the run is followed
    origin = record(run / FILE).get("folder")
    if not isinstance(origin, str) or os.path.exists(here):
        return here
    there = os.path.abspath(os.path.join(origin, text))
    return there if os.path.exists(there) else here


def settings(run: Path, overrides: dict[str, str] | None = None) -> Study:
    """The settings of a run, with every path as `find` finds it."""
    return study_file.load(run / "study.toml", overrides, lambda text: find(run, text))


def written(study: Study, run: Path) -> bytes:
    """The study file of a run: its paths relative to it. Those that the present file tells already keep their words."""
    words: dict[str, str] = {}

    def remembered(text: str) -> str:
        if not os.path.isabs(text):
            words[find(run, text)] = text
        return text

    if (run / "study.toml").exists() and (run / "cohort.csv").exists():
        study_file.load(run / "study.toml", place=remembered)
    relative = study_file.with_paths(study, lambda path: words.get(path) or os.path.relpath(path, os.path.realpath(run)))
    return study_file.dumps(relative.model_copy(update={"output": Path()})).encode()


def patients(run: Path, endpoints: tuple[Endpoint, ...]) -> list[Patient]:
    """The patients of a run's frozen table, whose scans need not be there."""
    read = cohort.read(run / "cohort.csv", endpoints)
    home = os.path.realpath(run)
    if record(run / FILE).get("folder") in (None, home):
        return read
    return [_with_files(patient, lambda path: Path(find(run, os.path.relpath(path, home)))) for patient in read]


def table(patients: Sequence[Patient], run: Path) -> bytes:
    """The table that a run freezes: scans and masks by their paths relative to the run."""
    return _table(patients, os.path.realpath(run))


def is_frozen(patients: Sequence[Patient], run: Path) -> bool:
    """Whether the run's table is of these patients, each path as seen from here, from the run's origin, or absolute."""
    origin = record(run / FILE).get("folder")
    bases = [os.path.realpath(run), None, *([origin] if isinstance(origin, str) else [])]
    frozen, tables = _lines((run / "cohort.csv").read_bytes()), [_lines(_table(patients, base)) for base in bases]
    if [len(line) for line in frozen] != [len(line) for line in tables[0]]:
        return False
    return all(cell in seen for line, *told in zip(frozen, *tables, strict=True) for cell, *seen in zip(line, *told, strict=True))


def _lines(table: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(table.decode(errors="replace"), newline="")))


def _table(patients: Sequence[Patient], base: str | None) -> bytes:
    return cohort.dumps([_with_files(p, lambda path: Path(os.path.relpath(path, base) if base else path)) for p in patients])


def _with_files(patient: Patient, change: Callable[[Path], Path]) -> Patient:
    return replace(
        patient,
        scans={channel: path and change(path) for channel, path in patient.scans.items()},
        brain_mask=patient.brain_mask and change(patient.brain_mask),
        tumour_mask=patient.tumour_mask and change(patient.tumour_mask),
    )
