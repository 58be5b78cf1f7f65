"""Comparators, several at a time, each in a process of its own; the comparison then finds their folds done.

A network gains less from a second thread on a CPU than two networks do from a core each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mri_vit.crossval.comparators import comparator_folder, refuse_label_exposed
from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import cross_validate
from mri_vit.data.cohort import Patient
from mri_vit.predictors.network import Neural
from mri_vit.run import executor
from mri_vit.settings.schema import Study


def fit(study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path, at_a_time: int) -> Iterator[str]:
    """Cross-validate the study's comparators, the last first, and give each one's name when it has ended.

    Seeds and folders are those of `comparison.run`, so its numbers do not depend on whether this ran before. A fold that is
    done is left as it is. A comparator that is pretrained once for all its folds is left to `comparison`.

    Parameters
    ----------
    patients, splits, run : as `comparison.run` takes them.
    at_a_time : processes, each with `train.threads` threads.

    Raises
    ------
    What a fit raises, UsageError as `pretraining.pretrain` does, and `executor.Killed` when a process was; folds that are
    done stay done.
    """
    studies = {comparator.name: study.of(comparator) for comparator in reversed(study.comparators)}
    for of in studies.values():
        refuse_label_exposed(of, patients)
    jobs = {
        name: (of, name, list(patients), list(splits), comparator_folder(run, name))
        for name, of in studies.items()
        if of.pretrain.method == "none" or of.pretrain.patients == "others"
    }
    for name, _ in executor.each(_cross_validate, jobs, at_a_time):
        yield name


def _cross_validate(study: Study, name: str, patients: list[Patient], splits: list[Split], home: Path) -> None:
    """In a worker."""
    cross_validate(patients, splits, study, home, name, lambda folder, seed: Neural(study, folder, seed))
