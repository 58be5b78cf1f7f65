"""A trained run: its settings, folds and networks, and whether it knows a patient. Quick to import: what it needs for less than a
refusal is imported where it is needed.

Patients are compared by the voxels of their scans; an equal id alone is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mri_vit.crossval import folds
from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.folds import Split
from mri_vit.data import cohort, run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.finished.prediction_document import Known
from mri_vit.run import files, folder
from mri_vit.run.integrity import as_written, read_json
from mri_vit.run.screen import WARNING, counted, say
from mri_vit.settings.schema import Study

if TYPE_CHECKING:
    from mri_vit.prepare.patient import Excluded

Place = tuple[int, int]  # repeat and fold, counted from 0


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A run whose training has ended; `open_run` gives one."""

    folder: Path
    study: Study

    @cached_property
    def patients(self) -> list[Patient]:
        """The patients of its folds."""
        return run_cohort.included(self.study, self.folder)

    @cached_property
    def subjects(self) -> set[str]:
        """Everyone in its cohort table, excluded patients among them."""
        table = cohort.read(self.folder / files.COHORT, self.study.endpoints, channels=self.study.channels)
        return {patient.subject for patient in table}

    @cached_property
    def splits(self) -> list[Split]:
        """Its folds by repeat."""
        return folds.load(self.folder / files.FOLDS, self.patients)

    @cached_property
    def places(self) -> list[Place]:
        """Each fold's place, read without the patients."""
        with as_written(self.folder / files.FOLDS):
            repeats = read_json(self.folder / files.FOLDS)["repeats"]
            return [(repeat, fold) for repeat, split in enumerate(repeats) for fold in range(len(split["folds"]))]

    @property
    def networks(self) -> dict[Place, Path]:
        """The folder of each fold of the study's own model that has weights."""
        homes = {place: files.fold_folder(self.folder, *place) for place in self.places}
        return {place: home for place, home in homes.items() if (home / files.WEIGHTS).is_file()}

    def fold_patients(self) -> Iterator[tuple[Place, list[Patient], list[Patient], list[Patient]]]:
        """Each fold's place with its training, validation and test patients."""
        from mri_vit.crossval.loop import fold_seed, parts

        for repeat, split in enumerate(self.splits):
            for fold, ids in enumerate(split):
                yield (repeat, fold), *parts(self.patients, ids, self.study, fold_seed(self.study.seed, repeat, fold))

    @property
    def notes(self) -> dict[str, str]:
        """Remarks on its models. Raises UsageError where it recorded none."""
        return read_json(self._record(files.NOTES))

    @cached_property
    def scans(self) -> dict[str, str]:
        """The patient of each scan by the hash of its voxels. Raises UsageError where it recorded none."""
        file = self._record(files.VOXELS)
        hashes = read_json(file)
        with as_written(file):
            return {sha256: patient for patient, scans in hashes.items() for sha256 in scans}

    def twin(self, prepared: Path) -> str | None:
        """The run's patient who has a scan with the same voxels as a prepared patient."""
        from mri_vit.prepare.prepared import voxels

        return next((self.scans[sha256] for sha256 in voxels(prepared) if sha256 in self.scans), None)

    def training_clause(self, subject: str) -> str:
        """How many of its networks saw one of its patients in training, and what that does to their scores."""
        visits = {patient.id for patient in self.patients if patient.subject == subject}
        saw = [bool(visits.difference(self.splits[repeat][fold])) for repeat, fold in self.networks]
        of, count = len(saw) * self.study.train.seeds, sum(saw) * self.study.train.seeds
        if not count:
            return f"none of {counted(of, 'network')} saw this patient in training"
        return (
            f"{count} of {counted(of, 'network')} saw this patient in training, so the scores are not out-of-fold and look better"
            " than they are"
        )

    def _record(self, name: str) -> Path:
        file = self.folder / name
        if not file.exists():
            raise UsageError(f"{file}: no such file; the run was made by an older version of mri-vit; train it again")
        return file


def open_run(run: Path) -> TrainedRun:
    """The run in a folder. Raises UsageError where its training has not ended."""
    if not (run / files.PREDICTIONS).exists() or not (run / files.FOLDS).exists():
        raise UsageError(f"{run}: no {files.PREDICTIONS} and {files.FOLDS}; a run whose training has ended has both")
    return TrainedRun(run, folder.run_settings(run))


def exposed_patients(run: TrainedRun, patients: Sequence[Patient], exposed: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """By network, the ids among `patients` that its starting weights were `exposed` to, except the run's own patients.

    Networks are the study's own and its comparators; some of their weights may be gone.
    """
    others = {patient.subject for patient in patients} - run.subjects
    weights = {
        name: comparator_folder(run.folder, name).glob(f"{files.FOLD_GLOB}/{files.WEIGHTS}") for name in networks(run.study)
    }
    return {name: sorted(others & {subject for file in of for subject in exposed(file)}) for name, of in weights.items()}


def refuse_own_patients(run: TrainedRun, study: Study, patients: Sequence[Patient]) -> None:
    """Raise UsageError that names a patient the run was trained on, whatever the id: that is no external test."""
    for patient in patients:
        if twin := run.twin(study.prepared / patient.id):
            raise UsageError(
                f"{study.cohort}: patient {patient.id} has a scan of {twin}, whom the run {run.folder} was trained on"
            )


def overlap(run: TrainedRun, prepared: Path, patients: Sequence[Patient], console: Console) -> dict[str, Known]:
    """By patient whether the run, or the weights it started from, saw them in training; warns of those it did.

    Raises IntegrityError where the run's hashes of voxels are damaged, UsageError where an older version recorded none.
    """
    from mri_vit.model.weights import image_exposed, label_exposed

    weights = [home / files.WEIGHTS for home in run.networks.values()]
    exposed = {name for file in weights for known in (label_exposed, image_exposed) for name in known(file)} - run.subjects
    overlaps = {}
    for patient in patients:
        twin, subject = run.twin(prepared / patient.id), patient.subject
        same_id, is_exposed = subject in run.subjects, subject in exposed
        sentence = "The run was not trained on these scans."
        if twin:
            seen = run.training_clause(next((p.subject for p in run.patients if p.id == twin), twin))
            sentence = f"A scan has the same voxels as one of {twin}, a patient of the run: {seen}."
        elif same_id:
            seen = run.training_clause(subject)
            sentence += f" The run has another patient called {subject}: if they are the same person, {seen}."
        if is_exposed:
            sentence += f" The weights it started from were trained on a patient called {subject} as well."
        if twin or same_id or is_exposed:
            say(console, f"{patient.id}: {sentence}", WARNING)
        overlaps[patient.id] = Known(twin=twin, same_id=same_id, exposed=is_exposed, sentence=sentence)
    return overlaps


def refused_patients(run: TrainedRun, cohort: Path, overlaps: Mapping[str, Known], console: Console) -> Excluded:
    """The patients the run was trained on, as excluded. Raises UsageError that names both where no other patient is left."""
    reasons = {
        name: f"has a scan of {known.twin}, whom the run {run.folder.name} was trained on, so a score would look better than it"
        " is; --allow-known predicts anyway, and marks the prediction"
        for name, known in overlaps.items()
        if known.twin
    }
    if len(reasons) == len(overlaps):
        name, reason = next(iter(reasons.items()))
        raise UsageError(f"{cohort}: patient {name} {reason}")
    for name, reason in reasons.items():
        say(console, f"excluded {name}: {reason}", WARNING)
    return [{"patient": name, "file": "", "reason": reason} for name, reason in reasons.items()]


def lacking(run: TrainedRun) -> dict[str, str]:
    """By network of the run that lacks weights, and so cannot predict: the folds that lack them."""
    notes = {}
    for name, of in networks(run.study).items():
        homes = [files.fold_folder(comparator_folder(run.folder, name), *place) for place in run.places]
        seeds = {home.name: [files.seed_folder(home, seed) / files.WEIGHTS for seed in range(of.train.seeds)] for home in homes}
        if gone := [fold for fold, weights in seeds.items() if not all(file.is_file() for file in weights)]:
            notes[name] = f"not judged here: the weights of {', '.join(gone)} no longer exist"
    return notes
