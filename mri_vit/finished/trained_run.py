"""A finished run: its settings, its folds' networks, and what these give for prepared patients, with nothing fitted anew.

Letters: t horizons (`predictions.HORIZONS_DAYS`), d width of what the heads read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from rich.console import Console

from mri_vit.crossval.loop import Tables, stacked
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.errors import UsageError
from mri_vit.predictors.network import Neural
from mri_vit.run import files, folder
from mri_vit.run.integrity import as_written, read_json
from mri_vit.run.screen import progress
from mri_vit.settings.schema import Study

OLDER = "the run was made by an older version, which cannot be evaluated"
Told = Callable[[int, int], None]  # called with the number of folds whose model has predicted, and of all
Place = tuple[int, int]  # repeat and fold, counted from 0


def finished(run: Path) -> Study:
    """The settings of a run whose training has ended. Raises UsageError where it has not."""
    if not (run / files.PREDICTIONS).exists() or not (run / files.FOLDS).exists():
        raise UsageError(f"{run}: no {files.PREDICTIONS} and {files.FOLDS}; a run whose training has ended has both")
    return folder.run_settings(run)


def on_others(past: Study, workers: int, **changed: Any) -> Study:
    """The run's settings for other patients, whom its reviewer has not seen."""
    own = {"prepare": past.prepare.model_copy(update={"workers": workers}), "qc": past.qc.model_copy(update={"decisions": None})}
    return past.model_copy(update={**changed, **own})


def places(run: Path) -> list[tuple[int, int]]:
    """Repeat and fold, counted from 0, of each fold of the run."""
    with as_written(run / files.FOLDS):
        repeats = read_json(run / files.FOLDS)["repeats"]
        return [(repeat, fold) for repeat, split in enumerate(repeats) for fold in range(len(split["folds"]))]


def notes_of(run: Path) -> dict[str, str]:
    """What the run says that its models rest on. Raises UsageError where it says nothing."""
    return read_json(required_file(run / files.NOTES))


def required_file(file: Path) -> Path:
    """The same record of a run. Raises UsageError where there is none."""
    if not file.exists():
        raise UsageError(f"{file}: no such file; {OLDER}")
    return file


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


@dataclass(frozen=True, eq=False)
class FoldOutputs:
    """What the networks of one fold say of one patient; of several seeds, `features` are the first's."""

    repeat: int
    fold: int
    scores: tuple[dict[str, float], ...]  # by seed, by endpoint
    survival: tuple[dict[str, Float[np.ndarray, " t"]], ...]  # likewise
    features: Float[np.ndarray, " d"]

    def score(self, endpoint: str) -> float:
        """The fold's score: the mean over its seeds."""
        return float(np.mean([one[endpoint] for one in self.scores]))


def network_folders(run: Path, folds: Sequence[int]) -> dict[Place, Path]:
    """The folder of each fold with weights; `folds` are the numbers of folds by repeat."""
    found = {(r, f): files.fold_folder(run, r, f) for r, count in enumerate(folds) for f in range(count)}
    return {place: home for place, home in found.items() if (home / files.WEIGHTS).is_file()}


def fold_outputs(
    run: Path, folds: Sequence[int], study: Study, patients: Sequence[Patient], step: Callable[[], None]
) -> dict[str, list[FoldOutputs]]:
    """By patient what each fold's networks say, one fold after the other, so that one fold's weights are held at a time.

    `study` is the run's, with the folder in which `patients` are prepared; no label is read. `step` is called after each fold.
    """
    asked = [without_labels(patient) for patient in patients]
    found: dict[str, list[FoldOutputs]] = {patient.id: [] for patient in patients}
    for (repeat, fold), home in network_folders(run, folds).items():
        neural = Neural.fitted(study, home)
        tables = neural.predict_each(asked)
        features = neural.represent(asked)
        for index, patient in enumerate(patients):
            scores = tuple(
                dict(zip(own.endpoint, own.score.astype(float), strict=True))
                for own in (score[score.patient == patient.id] for score, _ in tables)
            )
            survival = tuple(_survival(table, patient) for _, table in tables)
            found[patient.id].append(FoldOutputs(repeat, fold, scores, survival, features[index]))
        step()
    return found


def _survival(table: pd.DataFrame, patient: Patient) -> dict[str, Float[np.ndarray, " t"]]:
    own = table.loc[table.patient == patient.id]
    return {str(name): own.loc[own.endpoint == name, "survival"].to_numpy(float) for name in own.endpoint.unique()}
