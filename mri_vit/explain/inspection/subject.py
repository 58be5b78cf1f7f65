"""Subject: what an inspection is of, found in a run: a fold's network before and after training, and patients to show it on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import fold_seed, parts
from mri_vit.crossval.pretraining import starting_study
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.model.network import Network
from mri_vit.predictors.network import Neural
from mri_vit.run import files
from mri_vit.settings.schema import Study
from mri_vit.train.supervised import untrained


@dataclass(frozen=True, eq=False)
class Subject:
    """What is inspected: a fold's network as training started and as it ended, and patients that it was not trained on.

    The first patient's scan is the one that attention is shown on.
    """

    study: Study
    title: str  # such as "demo, fold 1"
    before: Network
    after: Network
    patients: Sequence[Patient]


@dataclass(frozen=True)
class Fold:
    """A fold of a run: its number, counted from 0, the folder of its network, and whom that was and was not trained on."""

    number: int
    home: Path
    seed: int
    train: Sequence[Patient]
    test: Sequence[Patient]


def find_fold(
    study: Study, patients: Sequence[Patient], split: Split, run: Path, number: int | None, patient: str | None
) -> Fold:
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
    return Fold(number - 1, files.fold_folder(run, 0, number - 1), seed, train, test)


def of_fold(fold: Fold, study: Study, run: Path, patient: str | None) -> Subject:
    """The fold's networks and its test patients, the one asked for first."""
    after = Neural.fitted(study, fold.home).network.eval()
    before = untrained(fold.train, starting_study(study, run, fold.home), fold.seed).to(after.encoder.cls.device).eval()
    shown = sorted(fold.test, key=lambda p: p.id != patient)
    return Subject(study, f"{study.name}, fold {fold.number + 1}", before, after, shown)
