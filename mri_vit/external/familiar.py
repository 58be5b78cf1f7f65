"""Familiar patients: those of another cohort whom a run, or the weights that it started from, knew already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.prepare.prepared import voxels
from mri_vit.run import files
from mri_vit.run.record import as_written, read_json
from mri_vit.settings.schema import Study

OLDER = "the run was made by an older version, which cannot be evaluated"


def before(run: Path, past: Study, patients: Sequence[Patient], known: Callable[[Path], list[str]]) -> list[str]:
    """Which of `patients` are, by id, of those whom the weights that the run started from had `known`."""
    own = {patient.subject for patient in cohort.read(run / files.COHORT, past.endpoints, channels=past.channels)}
    found = {subject for file in run.glob(f"{files.FOLD_GLOB}/{files.WEIGHTS}") for subject in known(file)} - own
    return sorted(found & {patient.subject for patient in patients})


def refuse_own_patients(run: Path, study: Study, patients: Sequence[Patient]) -> None:
    """A patient whom the run was trained on, under whatever id and in whatever file, is no external test."""
    if not (run / files.VOXELS).exists():
        raise UsageError(f"{run / files.VOXELS}: no such file; {OLDER}")
    known = read_json(run / files.VOXELS)
    with as_written(run / files.VOXELS):
        inside = {sha256: i for i, scans in known.items() for sha256 in scans}
    for patient in patients:
        for sha256 in voxels(study.prepared / patient.id):
            twin = inside.get(sha256)
            if twin:
                raise UsageError(f"{study.cohort}: patient {patient.id} has a scan of {twin}, whom the run {run} was trained on")
