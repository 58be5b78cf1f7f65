"""The pretrained encoders of a comparison: which network starts from which, each learned from the scans that it may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from mri_vit.crossval.comparators import comparator_folder, networks, refuse_label_exposed, tested
from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import fold_seed, parts
from mri_vit.data.cohort import Patient
from mri_vit.predictors.network import PRETRAINED
from mri_vit.pretrain.dino import collapsed
from mri_vit.pretrain.encoder import pretrained, starting_from
from mri_vit.run import files
from mri_vit.run.atomic import file_lock
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study
from mri_vit.train.loop import Report

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
    return [made(job, None if job.file.exists() else begin(job.title)) for job in jobs(study, patients, splits, run)]


def jobs(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> list[Job]:
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


def made(job: Job, report: Report | None = None) -> Pretraining:
    """What a job has come to, which is done where its file is not there yet."""
    job.file.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(job.file.parent):
        pretrained(job.study, job.patients, job.file, job.seed, report)
    table = pd.read_csv(job.file.with_suffix(".csv"))
    collapse = collapsed(table) if job.study.pretrain.method == "dino" else None
    return Pretraining(job.title, job.file, float(table.loss.iloc[-1]), collapse)


def pretrains(study: Study) -> bool:
    """Whether the study's own network or any of its comparators starts from a pretraining of its own."""
    return any(of.pretrain.method != "none" for of in networks(study).values())


def starting_study(study: Study, home: Path, folder: Path) -> Study:
    """The study as training in a fold's `folder` starts: from the encoder pretrained for it; `home` is the network's folder."""
    if study.pretrain.method == "none":
        return study
    return starting_from((home if _serves_all_folds(study) else folder) / PRETRAINED, study)


def weights_of_all_folds(study: Study, home: Path) -> Path | None:
    """The file of weights that every fold's training or own pretraining starts from, where there is one."""
    return home / PRETRAINED if _serves_all_folds(study) else study.model.weights


def _serves_all_folds(study: Study) -> bool:
    return study.pretrain.method != "none" and study.pretrain.patients != "others"


def _of_network(name: str, study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> Iterator[Job]:
    home, title = comparator_folder(run, name), "pretrain" if name == VIT else f"pretrain {name}"
    if _serves_all_folds(study):
        yield Job(title, study, _chosen(study, patients), home / PRETRAINED, study.seed)
        return
    for repeat, split in enumerate(splits):
        for fold, ids in enumerate(split):
            folder, seed = files.fold_folder(home, repeat, fold), fold_seed(study, repeat, fold)
            train, tune, _ = parts(patients, ids, study, seed)  # in the order in which a fit is given them
            yield Job(f"{title} {folder.name}", study, [*train, *tune], folder / PRETRAINED, seed)


def _chosen(study: Study, patients: Sequence[Patient]) -> list[Patient]:
    """The patients of an encoder that serves all folds; nobody who has a label at another visit is unlabelled."""
    known = tested(study, patients)
    return [p for p in patients if study.pretrain.patients == "all" or p.subject not in known]
