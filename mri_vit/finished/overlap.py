"""Overlap: patients of another cohort whom a run, or the weights that it started from, was trained on.

Patients are compared by the voxels of their scans; an equal id alone is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.finished.prediction_document import Known
from mri_vit.finished.trained_run import required_file
from mri_vit.model.weights import image_exposed, label_exposed
from mri_vit.prepare.patient import Excluded
from mri_vit.prepare.prepared import voxels
from mri_vit.run import files
from mri_vit.run.integrity import as_written, read_json
from mri_vit.run.screen import WARNING, say
from mri_vit.settings.schema import Study

NOT_OUT_OF_FOLD = (
    "most of the networks were trained on this patient: the scores are no out-of-fold scores and look better than they are"
)


def patients_known_before(run: Path, past: Study, patients: Sequence[Patient], exposed: Callable[[Path], list[str]]) -> list[str]:
    """Which of `patients` are, by id, of those whom the weights that a network of the run started from were `exposed` to."""
    return sorted(set().union(*patients_known_by_network(run, past, patients, exposed).values()))


def patients_known_by_network(
    run: Path, past: Study, patients: Sequence[Patient], exposed: Callable[[Path], list[str]]
) -> dict[str, list[str]]:
    """Likewise, by network: the run's own and its comparators, of whose weights some may be gone."""
    own = {patient.subject for patient in cohort.read(run / files.COHORT, past.endpoints, channels=past.channels)}
    others = {patient.subject for patient in patients} - own
    weights = {name: comparator_folder(run, name).glob(f"{files.FOLD_GLOB}/{files.WEIGHTS}") for name in networks(past)}
    return {name: sorted(others & {one for file in found for one in exposed(file)}) for name, found in weights.items()}


def refuse_own_patients(run: Path, study: Study, patients: Sequence[Patient]) -> None:
    """A patient whom the run was trained on, under whatever id and in whatever file, is no external test."""
    seen = read_json(required_file(run / files.VOXELS))
    with as_written(run / files.VOXELS):
        inside = {sha256: i for i, scans in seen.items() for sha256 in scans}
    for patient in patients:
        for sha256 in voxels(study.prepared / patient.id):
            twin = inside.get(sha256)
            if twin:
                raise UsageError(f"{study.cohort}: patient {patient.id} has a scan of {twin}, whom the run {run} was trained on")


def overlap_of(patient: Patient, study: Study, run: Path, own: Collection[str], exposed: Collection[str]) -> Known:
    """Whether a prepared patient is known to a run, `own` being its subjects, and `exposed` those whom its first weights knew.

    Raises IntegrityError where the run's hashes of voxels are damaged, UsageError where an older version wrote none.
    """
    file = run / files.VOXELS
    if not file.exists():
        raise UsageError(f"{file}: no such file; the run was made by an older version, which cannot say whom it was trained on")
    inside = read_json(file)
    with as_written(file):
        of = {sha256: name for name, scans in inside.items() for sha256 in scans}
    twin = next((of[sha256] for sha256 in voxels(study.prepared / patient.id) if sha256 in of), None)
    same, met = patient.subject in own, patient.subject in exposed
    said = "The run was not trained on these scans."
    if twin:
        said = f"A scan has the same voxels as one of {twin}, on whom the run was trained: {NOT_OUT_OF_FOLD}."
    elif same:
        said += f" A patient of the run is called {patient.subject} too: if that is one person, {NOT_OUT_OF_FOLD}."
    if met:
        said += f" The weights that it started from knew a patient who is called {patient.subject} too."
    return Known(twin=twin, same_id=same, exposed=met, sentence=said)


def refused_patients(
    run: Path, study: Study, patients: Sequence[Patient], met: Mapping[str, Known], console: Console
) -> Excluded:
    """Those on whom the run was trained, as excluded. Raises UsageError naming both where nobody else is left."""
    told = {
        name: f"has a scan of {one.twin}, whom the run {run.name} was trained on: a score would look better than it is;"
        " --allow-known predicts nevertheless, and marks it"
        for name, one in met.items()
        if one.twin
    }
    if len(told) == len(patients):
        name, why = next(iter(told.items()))
        raise UsageError(f"{study.cohort}: patient {name} {why}")
    for name, why in told.items():
        say(console, f"excluded {name}: {why}", WARNING)
    return [{"patient": name, "file": "", "reason": why} for name, why in told.items()]


def exposed_labels(folds: Iterable[Path], own: Collection[str]) -> set[str]:
    """The subjects whom the weights that a run started from knew by label or image; its own are no concern of these."""
    weights = [home / files.WEIGHTS for home in folds]
    return {name for file in weights for known in (label_exposed, image_exposed) for name in known(file)} - set(own)
