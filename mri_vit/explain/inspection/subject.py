"""Subject: what an inspection is of: a network of a run's fold before and after training, and its patients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mri_vit.crossval.comparators import comparator_folder
from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import fold_seed, parts
from mri_vit.crossval.pretraining import starting_study
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.model.network import Network
from mri_vit.predictors.network import Neural
from mri_vit.run import files
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study
from mri_vit.train.supervised import untrained


@dataclass(frozen=True, eq=False)
class Subject:
    """What is inspected: a fold's network as training started and as it ended, and patients that it was not trained on.

    The first patient's scan is the one that attention is shown on. `study` is the network's own, as `comparators.networks` has
    it, and `name` is by what the run's tables know it.
    """

    study: Study
    title: str  # such as "demo, fold 1"
    before: Network
    after: Network
    patients: Sequence[Patient]
    train: Sequence[Patient] = ()
    name: str = VIT


@dataclass(frozen=True)
class Fold:
    """A fold of a run: its number, counted from 0, its seed, and the patients that its networks were trained on and tested on."""

    number: int
    seed: int
    train: Sequence[Patient]
    test: Sequence[Patient]

    def home(self, run: Path, name: str) -> Path:
        """The folder of one of the run's networks."""
        return files.fold_folder(comparator_folder(run, name), 0, self.number)


def find_fold(study: Study, patients: Sequence[Patient], split: Split, number: int | None, patient: str | None) -> Fold:
    """The fold asked for, counted from 1; else the one that tests the patient asked for; else the first.

    Raises UsageError where there is no such fold, or the patient is not among those that it tests.
    """
    if number is None:
        number = next((index for index, ids in enumerate(split, 1) if patient in ids), 1)
    if not 1 <= number <= len(split):
        raise UsageError(f"--fold {number}: the run has folds 1 to {len(split)}")
    seed = fold_seed(study, 0, number - 1)
    train, _, test = parts(patients, split[number - 1], study, seed)
    if patient and patient not in {p.id for p in test}:
        raise UsageError(f"--patient {patient}: not a test patient of fold {number} ({', '.join(p.id for p in test)})")
    return Fold(number - 1, seed, train, test)


def of_fold(fold: Fold, study: Study, run: Path, patient: str | None, name: str = VIT) -> Subject:
    """One of the fold's networks, whose own `study` this is, and its test patients, the one asked for first."""
    home = fold.home(run, name)
    after = Neural.fitted(study, home).network.eval()
    start = starting_study(study, comparator_folder(run, name), home)
    before = untrained(fold.train, start, fold.seed).to(next(after.parameters()).device).eval()
    shown = sorted(fold.test, key=lambda p: p.id != patient)
    title = f"{study.name}, fold {fold.number + 1}" + ("" if name == VIT else f", {name}")
    return Subject(study, title, before, after, shown, fold.train, name)
