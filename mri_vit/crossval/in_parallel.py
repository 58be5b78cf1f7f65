"""A comparison's pretrainings and folds as units of work, each done in a process of its own; the comparison then finds them done.

A network gains less from a second thread on a CPU than two networks do from a core each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from mri_vit.crossval import pretraining
from mri_vit.crossval.comparators import comparator_folder, control_folder, networks
from mri_vit.crossval.folds import Split
from mri_vit.crossval.leakage import suspicious
from mri_vit.crossval.loop import done, fit_fold, permuted, stacked
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient
from mri_vit.predictors.network import Neural
from mri_vit.run import executors, files
from mri_vit.run.jobs import Workplace
from mri_vit.settings.recipe import PERMUTED, RESHUFFLED, SHUFFLED, VIT
from mri_vit.settings.schema import Study


@dataclass(frozen=True)
class Unit:
    """What one process does: `function` of the `arguments`, which reads and writes files and goes on from those in `folder`."""

    title: str
    folder: Path
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def encoders(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> list[Unit]:
    """The pretrainings of the study's networks that are not done.

    Raises UsageError as `pretraining.pretrain` does.
    """
    return [
        Unit(job.title, job.file.parent, _pretrain, (job,))
        for job in pretraining.jobs(study, patients, splits, run)
        if not job.file.exists()
    ]


def folds(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> list[Unit]:
    """The folds that are not done, the last network's first: of comparators, the study's own, and the control on permuted labels.

    Seeds and folders are those of `comparison.run`, so that its numbers do not depend on whether these were made before; the
    encoders that they start from must be there. The second control on permuted labels hangs on the first, see `confirmation`.
    """
    of = networks(study)
    made = [
        unit
        for name in reversed(of)
        for unit in _of_network(of[name], name, patients, splits, comparator_folder(run, name), comparator_folder(run, name))
    ]
    if SHUFFLED in study.controls.models:
        made += _of_control(study, SHUFFLED, patients, splits, run)
    return [unit for unit in made if not done(unit.folder)]


def confirmation(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> list[Unit]:
    """The folds that are not done of the second control on permuted labels; none where the first is not suspicious."""
    first = control_folder(run, SHUFFLED)
    folders = [files.fold_folder(first, 0, fold) for fold in range(len(splits[0]))]
    if SHUFFLED not in study.controls.models or not all(map(done, folders)):
        return []
    if not suspicious(stacked([predictions.load(folder / files.PREDICTIONS) for folder in folders]), study.endpoints):
        return []
    return [unit for unit in _of_control(study, RESHUFFLED, patients, splits, run) if not done(unit.folder)]


def fit(units: Sequence[Unit], at: Workplace) -> Iterator[Unit]:
    """Do them, each with its study's `train.threads`, and give each when it has ended.

    Raises what a fit raises, and `Killed` when a process was; what is done stays done.
    """
    by_title = {unit.title: unit for unit in units}
    for title, _ in executors.each(_work, {unit.title: (unit,) for unit in units}, at):
        yield by_title[title]


def _of_control(study: Study, name: str, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> Iterator[Unit]:
    """The folds of a control on permuted labels: of the study's own network, and in the first repeat alone."""
    home = control_folder(run, name)
    others = permuted(patients, splits[0], study.seed, PERMUTED.index(name))
    return _of_network(networks(study)[VIT], name, others, splits[:1], home, run)


def _of_network(
    study: Study, name: str, patients: Sequence[Patient], splits: Sequence[Split], home: Path, start: Path
) -> Iterator[Unit]:
    """A network's folds in `home`, which start from what was pretrained for them in `start`."""
    for repeat, split in enumerate(splits):
        for fold, ids in enumerate(split):
            folder = files.fold_folder(home, repeat, fold)
            title = folder.name if name == VIT else f"{name} {folder.name}"
            yield Unit(title, folder, _fit_fold, (list(patients), list(ids), study, home, name, repeat, fold, start))


def _work(unit: Unit) -> None:
    """In a worker."""
    unit.function(*unit.arguments)


def _pretrain(job: pretraining.Job) -> None:
    with threadpool_limits(job.study.train.threads, user_api="blas"):
        pretraining.made(job)


def _fit_fold(
    patients: list[Patient], ids: list[str], study: Study, home: Path, name: str, repeat: int, fold: int, start: Path
) -> None:
    def build(folder: Path, seed: int) -> Neural:
        return Neural(pretraining.starting_study(study, start, start / folder.name), folder, seed)

    with threadpool_limits(study.train.threads, user_api="blas"):
        fit_fold(patients, ids, study, home, name, repeat, fold, build)
