"""Synthetic: patients and a finished run go in; who is made up, and whether the run may be asked about real patients, comes out.

Generated scans carry a mark of ours in their headers, which no other id, table, folder or name of a study takes away. What a run
learned from is written in its `notes.json`, whose hash the run keeps.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from mri_vit.data import nifti
from mri_vit.data.cohort import Patient
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.run import files
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.settings.demo import made_up
from mri_vit.settings.schema import Study

NOTE = "synthetic"  # the topic in notes.json; a run of real patients has none
NO_FINDING = "what the run found in made-up scans says nothing about a real patient"
SHOWN = 3  # patients that a message names


def note(patients: Sequence[Patient], study: Study) -> dict[str, str]:
    """What the notes of a run on these prepared patients say of synthetic ones; nothing where all are real.

    All are where the study says which effects were simulated (`report.expected_verdicts`), whoever made the cohort; and where
    every id is one of the built-in cohort, because another program that saves the scans again drops their mark.
    """
    subjects = {patient.subject for patient in patients}
    marked = {patient.subject for patient in patients if nifti.SYNTHETIC in _notes(study.prepared / patient.id)}
    count = len(subjects if study.report.expected_verdicts or made_up(patient.id for patient in patients) else marked)
    return {NOTE: f"{count} of {len(subjects)} patients are synthetic"} if count else {}


def _notes(folder: Path) -> Iterator[str]:
    """What reading noted of the scans of a prepared patient."""
    for step in read_json_or_empty(folder / files.PATIENT).get("steps", []):
        for scan in step.get("scans", {}).values() if step.get("step") == "read" else ():
            yield from scan.get("notes", [])


def of_run(run: Path) -> str:
    """How many of a finished run's patients are synthetic, as a clause; "" where all are real.

    A version before 0.6 wrote no such note: there the ids of the built-in cohort tell.
    """
    if written := read_json_or_empty(run / files.NOTES).get(NOTE):
        return str(written)
    if files.NOTES in read_json_or_empty(run / files.HASHES).get("files", {}) or not (run / files.COHORT).is_file():
        return ""
    with (run / files.COHORT).open(newline="", encoding="utf-8") as file:
        ids = [row.get("patient", "") for row in csv.DictReader(file)]
    return f"{len(ids)} of {len(ids)} patients are synthetic" if ids and made_up(ids) else ""


def real(patients: Sequence[Patient]) -> list[Patient]:
    """The patients of whom a scan can be read and is not marked as made up."""
    return [patient for patient in patients if any(_is_real(file) for file in patient.scans.values() if file)]


def _is_real(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return not nifti.announced(opened.read(nifti.START_BYTES), file.name.endswith(".gz")).synthetic
    except (OSError, UnusablePatient):  # no scan: whoever prepares the patient says so
        return False


def refuse_real(run: Path, patients: Sequence[Patient], allowed: bool, option: str) -> list[Patient]:
    """The real among the patients whom a run of synthetic ones is asked about; none where the run learned from real ones alone.

    Raises UsageError naming some of them unless that is `allowed`; `option` is what allows it.
    """
    learned = of_run(run)
    asked = real(patients) if learned else []
    if asked and not allowed:
        names = ", ".join(patient.id for patient in asked[:SHOWN]) + ", …" * (len(asked) > SHOWN)
        raise UsageError(
            f"{run} was trained on synthetic patients ({learned}), and {len(asked)} of the {len(patients)} patients here are"
            f" real ({names}): {NO_FINDING}. Expected a run trained on real patients; {option} goes on nevertheless, and marks"
            " what it writes"
        )
    return asked
