"""Familiar patients: those of another cohort whom a run, or the weights that it started from, knew already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.external.finished import known
from mri_vit.prepare.prepared import voxels
from mri_vit.run import files
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.schema import Study


def before(run: Path, past: Study, patients: Sequence[Patient], exposed: Callable[[Path], list[str]]) -> list[str]:
    """Which of `patients` are, by id, of those whom the weights that a network of the run started from were `exposed` to."""
    return sorted(set().union(*by_network(run, past, patients, exposed).values()))


def by_network(run: Path, past: Study, patients: Sequence[Patient], exposed: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """Likewise, by network: the run's own and its comparators, of whose weights some may be gone."""
    own = {patient.subject for patient in cohort.read(run / files.COHORT, past.endpoints, channels=past.channels)}
    others = {patient.subject for patient in patients} - own
    weights = {name: comparator_folder(run, name).glob(f"{files.FOLD_GLOB}/{files.WEIGHTS}") for name in networks(past)}
    return {name: sorted(others & {one for file in found for one in exposed(file)}) for name, found in weights.items()}


def refuse_own_patients(run: Path, study: Study, patients: Sequence[Patient]) -> None:
    """A patient whom the run was trained on, under whatever id and in whatever file, is no external test."""
    seen = read_json(known(run / files.VOXELS))
    with as_written(run / files.VOXELS):
        inside = {sha256: i for i, scans in seen.items() for sha256 in scans}
    for patient in patients:
        for sha256 in voxels(study.prepared / patient.id):
            twin = inside.get(sha256)
            if twin:
                raise UsageError(f"{study.cohort}: patient {patient.id} has a scan of {twin}, whom the run {run} was trained on")
