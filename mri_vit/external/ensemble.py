"""An ensemble: what the models of a run's folds say of other patients, and the mean of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console

from mri_vit.crossval.loop import Tables, stacked
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.predictors.network import Neural
from mri_vit.run import files
from mri_vit.run.screen import progress
from mri_vit.settings.schema import Study

Told = Callable[[int, int], None]  # called with the number of folds whose model has predicted, and of all


def with_bar(run: Path, study: Study, patients: Sequence[Patient], console: Console, title: str = "predict") -> Tables:
    """As `mean_of_folds`, with a bar."""
    with progress(console) as bar:
        task = bar.add_task(title, note="")
        return mean_of_folds(run, study, patients, lambda done, of: bar.update(task, completed=done, total=of))


def mean_of_folds(run: Path, study: Study, patients: Sequence[Patient], report: Told) -> Tables:
    """(patient, endpoint, score, models) and (patient, endpoint, horizon_days, survival, models), averaged over the folds.

    `run` holds the folds of a network, one of which is in memory at a time.
    """
    predicted = []
    homes = sorted(file.parent for file in run.glob(f"{files.FOLD_GLOB}/{files.WEIGHTS}"))
    for done, home in enumerate(homes, 1):
        predicted.append(Neural.fitted(study, home).predict([without_labels(p) for p in patients]))
        report(done, len(homes))
    return averaged(predicted)


def averaged(parts: Iterable[Tables]) -> Tables:
    """The mean of several models' tables, with the number of models of each mean, since not every fold has a head for all."""
    scores, survivals = zip(*parts, strict=True)
    means = []
    for tables, value, keys in (
        (scores, "score", ["patient", "endpoint"]),
        (survivals, "survival", ["patient", "endpoint", "horizon_days"]),
    ):
        grouped = stacked(tables).groupby(keys, sort=False)[value].agg(["mean", "size"])
        grouped.columns = [value, "models"]
        means.append(grouped.reset_index())
    return means[0], means[1]
