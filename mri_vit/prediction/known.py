"""Known: whether a run was trained on a patient, by the voxels of their scans; an equal id alone is a warning."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.model.weights import image_exposed, label_exposed
from mri_vit.prediction.document import Known
from mri_vit.prepare.prepared import voxels
from mri_vit.prepare.stage import Excluded
from mri_vit.run import files
from mri_vit.run.integrity import as_written, read_json
from mri_vit.run.screen import WARNING, say
from mri_vit.settings.schema import Study

NOT_OUT_OF_FOLD = (
    "most of the networks were trained on this patient: the scores are no out-of-fold scores and look better than they are"
)


def of_patient(patient: Patient, study: Study, run: Path, own: Collection[str], exposed: Collection[str]) -> Known:
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


def refused(run: Path, study: Study, patients: Sequence[Patient], met: Mapping[str, Known], console: Console) -> Excluded:
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


def exposed(folds: Iterable[Path], own: Collection[str]) -> set[str]:
    """The subjects whom the weights that a run started from knew by label or image; its own are no concern of these."""
    weights = [home / files.WEIGHTS for home in folds]
    return {name for file in weights for known in (label_exposed, image_exposed) for name in known(file)} - set(own)
