"""A trained run: its settings, folds and networks. Quick to import: what it needs for less than a refusal is imported where it is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console

from mri_vit.crossval import folds
from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.folds import Split
from mri_vit.data import cohort, run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.run import files, folder, integrity
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.schema import Study

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
    def synthetic(self) -> str:
        """How many of its patients are synthetic, as a clause; "" where all are real."""
        return run_cohort.synthetic_clause(self.folder)

    def refuse_changed(self, console: Console) -> None:
        """Raise IntegrityError where a file of the run or of its own folds was changed after it was written."""
        integrity.refuse_changed_run(self.folder, console, integrity.OWN_FOLDS)

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

    def networks_that_saw(self, subject: str) -> int:
        """How many of its networks saw one of its patients in training."""
        visits = {patient.id for patient in self.patients if patient.subject == subject}
        saw = sum(bool(visits.difference(self.splits[repeat][fold])) for repeat, fold in self.networks)
        return saw * self.study.train.seeds

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


def lacking(run: TrainedRun) -> dict[str, str]:
    """By network of the run that lacks weights, and so cannot predict: the folds that lack them."""
    notes = {}
    for name, of in networks(run.study).items():
        homes = [files.fold_folder(comparator_folder(run.folder, name), *place) for place in run.places]
        seeds = {home.name: [files.seed_folder(home, seed) / files.WEIGHTS for seed in range(of.train.seeds)] for home in homes}
        if gone := [fold for fold, weights in seeds.items() if not all(file.is_file() for file in weights)]:
            notes[name] = f"not judged here: the weights of {', '.join(gone)} no longer exist"
    return notes
