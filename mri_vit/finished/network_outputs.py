"""Network outputs: what a trained run's networks, or any folds of a network, predict for prepared patients.

Nothing is fitted anew. Letters: t horizons (`predictions.HORIZONS_DAYS`), d width of what the heads read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.crossval.loop import Tables, stacked
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.data.predictions import score_rows, without_empty_class
from mri_vit.finished.trained_run import Place
from mri_vit.model.network import Network
from mri_vit.predictors.network import Neural
from mri_vit.run import files
from mri_vit.settings.schema import Endpoint, Study


def mean_of_folds(home: Path, study: Study, patients: Sequence[Patient], report: Callable[[int, int], None]) -> Tables:
    """(patient, endpoint, score, models) and (patient, endpoint, horizon_days, survival, models), averaged over the folds.

    `home` holds the folds of a network, one of which is in memory at a time; `report` gets the number of folds done, and of all.
    """
    predicted = []
    homes = sorted(file.parent for file in home.glob(f"{files.FOLD_GLOB}/{files.WEIGHTS}"))
    for done, fold in enumerate(homes, 1):
        predicted.append(Neural.fitted(study, fold).predict([without_labels(patient) for patient in patients]))
        report(done, len(homes))
    return averaged(predicted)


def averaged(tables: Iterable[Tables]) -> Tables:
    """The mean of several models' tables, and the number of models in each mean: a fold may lack the head of an endpoint."""
    means = []
    for parts_of, value, keys in zip(
        zip(*tables, strict=True),
        ("score", "survival"),
        (["patient", "endpoint", "class"], ["patient", "endpoint", "horizon_days"]),
        strict=True,
    ):
        table = stacked(parts_of)
        grouped = table.groupby([key for key in keys if key in table], sort=False)[value].agg(["mean", "size"])
        grouped.columns = [value, "models"]
        means.append(without_empty_class(grouped.reset_index()))
    return means[0], means[1]


@dataclass(frozen=True, eq=False)
class FoldOutputs:
    """Outputs of one fold's networks for one patient; with several seeds, `features` are the first's."""

    repeat: int
    fold: int
    scores: tuple[dict[str, Float[np.ndarray, " k"]], ...]  # by seed, by endpoint: the numbers of its prediction
    survival: tuple[dict[str, Float[np.ndarray, " t"]], ...]  # likewise
    features: Float[np.ndarray, " d"]

    def mean(self, endpoint: str) -> Float[np.ndarray, " k"]:
        """The fold's prediction: the mean over its seeds."""
        return np.mean([scores[endpoint] for scores in self.scores], axis=0)


def fold_outputs(
    places: Iterable[Place],
    networks: Callable[[Place], list[Network]],
    study: Study,
    patients: Sequence[Patient],
    step: Callable[[], None],
) -> dict[str, list[FoldOutputs]]:
    """By patient the outputs of the networks at each place, one fold at a time.

    `study` is the run's, with the folder in which `patients` are prepared; no label is read. `step` is called after each fold.
    """
    unlabelled = [without_labels(patient) for patient in patients]
    outputs: dict[str, list[FoldOutputs]] = {patient.id: [] for patient in patients}
    for repeat, fold in places:
        neural = Neural.of(study, networks((repeat, fold)))
        tables = neural.predict_each(unlabelled)
        features = neural.represent(unlabelled)
        for index, patient in enumerate(patients):
            scores = tuple(_scores(table, patient, study.endpoints) for table, _ in tables)
            survival = tuple(_survival(table, patient) for _, table in tables)
            outputs[patient.id].append(FoldOutputs(repeat, fold, scores, survival, features[index]))
        step()
    return outputs


def _scores(table: pd.DataFrame, patient: Patient, endpoints: Sequence[Endpoint]) -> dict[str, Float[np.ndarray, " k"]]:
    own = table.loc[table.patient == patient.id]
    return {e.name: score_rows(own, e, [patient.id])[0] for e in endpoints if (own.endpoint == e.name).any()}


def _survival(table: pd.DataFrame, patient: Patient) -> dict[str, Float[np.ndarray, " t"]]:
    own = table.loc[table.patient == patient.id]
    return {str(name): own.loc[own.endpoint == name, "survival"].to_numpy(float) for name in own.endpoint.unique()}
