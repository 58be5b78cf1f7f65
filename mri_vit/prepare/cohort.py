"""The stage that prepares a cohort: patients in, a folder of each in the study's `prepared` out, and who is excluded and why."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from mri_vit.data import sheet
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import read_mask
from mri_vit.errors import Killed, UnusablePatient, UsageError
from mri_vit.prepare import tumour
from mri_vit.prepare.patient import prepare_patient
from mri_vit.prepare.prepared import voxels
from mri_vit.run import atomic, executors, files
from mri_vit.run.atomic import refuse_link
from mri_vit.run.jobs import Workplace, close_ledger
from mri_vit.run.screen import WARNING, printable, progress, say
from mri_vit.settings.schema import Study
from mri_vit.settings.source import shown

Fault = dict[str, str]  # file and reason
Excluded = list[dict[str, str]]  # rows of excluded.csv: patient, file, reason


def prepare_cohort(study: Study, patients: Sequence[Patient], folder: Path, console: Console) -> Excluded:
    """Prepare every patient; gives those who cannot be, with file and reason.

    Before that the run's `excluded.csv` goes, unless its folds are made: it is written again when all have been looked at, and a
    run that is stopped before then has none. Raises UsageError where `prepared` is no folder, or two patients share a scan.
    """
    _make_prepared(study)
    if not (folder / files.FOLDS).exists():
        (folder / files.EXCLUDED).unlink(missing_ok=True)
    for patient in patients:
        refuse_link(study.prepared / patient.id)
    atomic.sweep_older(study.prepared, {patient.id for patient in patients})
    faults = _prepare_all(study, patients, folder, console)
    excluded = [{"patient": patient.id, **faults[patient.id]} for patient in patients if patient.id in faults]
    _refuse_twins(study, without(patients, excluded))
    return excluded


def without(patients: Sequence[Patient], excluded: Excluded) -> list[Patient]:
    """The patients who were not excluded."""
    out = {row["patient"] for row in excluded}
    return [patient for patient in patients if patient.id not in out]


def _make_prepared(study: Study) -> None:
    """The folder for prepared patients. Raises UsageError where something else has its name."""
    try:
        study.prepared.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"prepared {study.prepared}: not a folder; choose another place for prepared patients") from None


def _prepare_all(study: Study, patients: Sequence[Patient], folder: Path, console: Console) -> dict[str, Fault]:
    """Prepare the patients, several at a time, under a progress bar; the faults by patient."""
    faults: dict[str, Fault] = {}
    at = executors.workplace(study, folder, "prepare", study.prepare.workers, study.executor.bundle)
    with progress(console) as bar:
        task = bar.add_task("prepare", total=len(patients), note="")
        for name, fault in faults_of({patient.id: (patient, study) for patient in patients}, at):
            if fault:
                faults[name] = fault
                say(bar.console, f"excluded {name}: {fault['file']} {fault['reason']}", WARNING)
            bar.update(task, advance=1, note=f"{len(faults)} excluded" if faults else "")
    return faults


def faults_of(jobs: Mapping[str, tuple[Patient, Study]], at: Workplace) -> Iterator[tuple[str, Fault | None]]:
    """Prepare patients in processes of their own; each one's fault, or None.

    A patient whose process is killed even when it works on nothing else is excluded like others.
    """
    try:
        yield from executors.each(fault_of, jobs, at)
    except Killed as end:
        if not at.here:  # a machine or a disk may be at fault as well, and many patients lost at once
            raise
        for patient, how in end.how.items():
            yield patient, {"file": "", "reason": how}
        if at.home:
            close_ledger(at.home)  # who failed stands among the excluded


def fault_of(patient: Patient, study: Study) -> Fault | None:
    """Prepare one patient, in a process of the executor: None when prepared, else file and reason."""
    found = [channel for channel in study.channels if patient.scans.get(channel)]
    if lacking := [channel for channel in study.channels if channel in study.prepare.needs and channel not in found]:
        return {"file": "", "reason": f"found {', '.join(found) or 'no scan'}; need {', '.join(lacking)} as well"}
    try:
        if patient.tumour_mask:
            read_mask(patient.tumour_mask)  # a damaged one is reported before the minutes that preparing takes
        folder = prepare_patient(patient, study)
        if patient.tumour_mask:
            tumour.check(patient.tumour_mask, folder)  # the volume control and the evaluation of maps come hours later
    except UnusablePatient as fault:  # the table's own name for the file: a report must not say where it lay
        file = os.path.relpath(fault.file, study.cohort.parent) if fault.file else ""
        return {"file": shown(printable(file)), "reason": printable(fault.reason)}
    return None


def _refuse_twins(study: Study, patients: Sequence[Patient]) -> None:
    """Raise UsageError when two patients share a scan, which would sit on both sides of a fold."""
    seen: dict[str, list[str]] = defaultdict(list)
    for patient in patients:
        for sha256 in voxels(study.prepared / patient.id):
            seen[sha256].append(patient.id)
    twins = next((ids for ids in seen.values() if len(ids) > 1), None)
    if twins:
        raise UsageError(f"{study.cohort}: patients {' and '.join(twins)} share a scan's voxels; keep one of them")


def table(excluded: Excluded) -> bytes:
    """The rows of excluded.csv."""
    names = ("patient", "file", "reason")
    return sheet.to_csv(names, ([row[name] for name in names] for row in excluded))
