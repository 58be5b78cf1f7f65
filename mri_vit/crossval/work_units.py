"""Units: the pretrainings and folds of a comparison as pieces of work, each of which a process of its own can do.

A network gains less from a second thread on a CPU than two networks do from a core each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from mri_vit.crossval.comparators import comparator_folder, control_folder, networks, refuse_label_exposed, tested
from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import done, fit_fold, fold_seed, parts, permuted, stacked, suspected_leaks
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient
from mri_vit.predictors.network import PRETRAINED, Neural
from mri_vit.pretrain.dino import collapsed
from mri_vit.pretrain.encoder import pretrained, starting_from
from mri_vit.run import executors, files
from mri_vit.run.atomic import file_lock
from mri_vit.run.jobs import Workplace
from mri_vit.settings.recipe import PERMUTED, RESHUFFLED, SHUFFLED, VIT, Pretrain
from mri_vit.settings.schema import Study
from mri_vit.train.loop import Report

IMPORTED = (__name__, "lightning_fabric", "lightning_fabric.loggers.tensorboard")  # by a process that trains
Begin = Callable[[str], Report]  # from a training's title to what is called after each of its epochs


@dataclass(frozen=True)
class Pretraining:
    """One encoder learned from scans alone: its file, the last epoch's loss, and how it had collapsed by then, if it had."""

    title: str
    file: Path
    loss: float
    collapsed: str | None


@dataclass(frozen=True)
class Job:
    """An encoder to be learned: from whose scans, into which file."""

    title: str
    study: Study
    patients: list[Patient]
    file: Path
    seed: int


def pretrain(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path, begin: Begin) -> list[Pretraining]:
    """Make the encoders that the study's own network and its comparators start from, each from the scans that it may see.

    A fold's is learned from all but its test patients and lies in the fold's folder; one that serves all folds lies beside the
    folds. What is there already is left as it is; `begin` is called with the title of what is not.

    Raises UsageError when a network would start from weights that were trained on labels of this study's patients.
    """
    return [
        run_pretraining(job, None if job.file.exists() else begin(job.title))
        for job in pretraining_jobs(study, patients, splits, run)
    ]


def pretraining_jobs(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> list[Job]:
    """The encoders that `pretrain` makes, and raises for as it does."""
    taking_part = networks(study)
    for of in taking_part.values():
        refuse_label_exposed(of, patients)
    return [
        job
        for name, of in taking_part.items()
        if of.pretrain.method != "none"
        for job in _of_network(name, of, patients, splits, run)
    ]


def run_pretraining(job: Job, report: Report | None = None) -> Pretraining:
    """What a job has come to, which is done where its file is not there yet."""
    job.file.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(job.file.parent):
        pretrained(job.study, job.patients, job.file, job.seed, report)
    table = pd.read_csv(job.file.with_suffix(".csv"))
    collapse = collapsed(table) if job.study.pretrain.method == "dino" else None
    return Pretraining(job.title, job.file, float(table.loss.iloc[-1]), collapse)


def starting_study(study: Study, home: Path, folder: Path) -> Study:
    """The study as training in a fold's `folder` starts: from the encoder pretrained for it; `home` is the network's folder."""
    if study.pretrain.method == "none":
        return study
    return starting_from((home if _serves_all_folds(study.pretrain) else folder) / PRETRAINED, study)


def weights_of_all_folds(study: Study, home: Path) -> Path | None:
    """The file of weights that every fold's training or own pretraining starts from, where there is one."""
    return home / PRETRAINED if _serves_all_folds(study.pretrain) else study.model.weights


def _serves_all_folds(settings: Pretrain) -> bool:
    return settings.method != "none" and settings.patients != "others"


def _of_network(name: str, study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> Iterator[Job]:
    home, title = comparator_folder(run, name), "pretrain" if name == VIT else f"pretrain {name}"
    if _serves_all_folds(study.pretrain):
        yield Job(title, study, _chosen(study, patients), home / PRETRAINED, study.seed)
        return
    for repeat, split in enumerate(splits):
        for fold, ids in enumerate(split):
            folder, seed = files.fold_folder(home, repeat, fold), fold_seed(study.seed, repeat, fold)
            train, val, _ = parts(patients, ids, study, seed)  # in the order in which a fit is given them
            yield Job(f"{title} {folder.name}", study, [*train, *val], folder / PRETRAINED, seed)


def _chosen(study: Study, patients: Sequence[Patient]) -> list[Patient]:
    """The patients of an encoder that serves all folds; a patient with a label at another visit is not unlabelled."""
    known = tested(study.endpoints, patients)
    return [p for p in patients if study.pretrain.patients == "all" or p.subject not in known]


@dataclass(frozen=True)
class Unit:
    """What one process does: `function` of the `arguments`, which reads and writes files and goes on from those in `folder`."""

    title: str
    folder: Path
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def encoder_units(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> list[Unit]:
    """The pretrainings of the study's networks that are not done.

    Raises UsageError as `pretrain` does.
    """
    return [
        Unit(job.title, job.file.parent, _pretrain, (job,))
        for job in pretraining_jobs(study, patients, splits, run)
        if not job.file.exists()
    ]


def fold_units(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> list[Unit]:
    """The folds that are not done, the last network's first: of comparators, the study's own, and the control on permuted labels.

    Seeds and folders are those of `comparison.run`, so that its numbers do not depend on whether these were made before; the
    encoders that they start from must be there. The second control on permuted labels depends on the first (see below).
    """
    of = networks(study)
    made = [
        unit
        for name in reversed(of)
        for unit in _network_units(of[name], name, patients, splits, comparator_folder(run, name), comparator_folder(run, name))
    ]
    if SHUFFLED in study.controls.models:
        made += _control_units(study, SHUFFLED, patients, splits, run)
    return [unit for unit in made if not done(unit.folder)]


def confirmation_units(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> list[Unit]:
    """The folds that are not done of the second control on permuted labels; none where the first is not suspicious."""
    first = control_folder(run, SHUFFLED)
    folders = [files.fold_folder(first, 0, fold) for fold in range(len(splits[0]))]
    if SHUFFLED not in study.controls.models or not all(map(done, folders)):
        return []
    tables = [predictions.load(folder / files.PREDICTIONS, study.endpoints) for folder in folders]
    if not suspected_leaks(stacked(tables), study.endpoints):
        return []
    return [unit for unit in _control_units(study, RESHUFFLED, patients, splits, run) if not done(unit.folder)]


def work_through(units: Sequence[Unit], at: Workplace) -> Iterator[Unit]:
    """Do them, each with its study's `train.threads`, and give each when it has ended.

    Raises what a fit raises, and `Killed` when a process was; what is done stays done.
    """
    by_title = {unit.title: unit for unit in units}
    for title, _ in executors.each(_work, {unit.title: (unit,) for unit in units}, at):
        yield by_title[title]


def _control_units(study: Study, name: str, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> Iterator[Unit]:
    """The folds of a control on permuted labels: of the study's own network, and in the first repeat alone."""
    home = control_folder(run, name)
    others = permuted(patients, splits[0], study.seed, PERMUTED.index(name))
    return _network_units(networks(study)[VIT], name, others, splits[:1], home, run)


def _network_units(
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


def _pretrain(job: Job) -> None:
    with threadpool_limits(job.study.train.threads, user_api="blas"):
        run_pretraining(job)


def _fit_fold(
    patients: list[Patient], ids: list[str], study: Study, home: Path, name: str, repeat: int, fold: int, start: Path
) -> None:
    def build(folder: Path, seed: int) -> Neural:
        return Neural(starting_study(study, start, start / folder.name), folder, seed)

    with threadpool_limits(study.train.threads, user_api="blas"):
        fit_fold(patients, ids, study, home, name, repeat, fold, build)
