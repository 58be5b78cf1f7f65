"""Networks: prepared patients go in; what each network of a finished run says of each, and what its heads read, comes out.

Letters: t horizons (`predictions.HORIZONS_DAYS`), d width of what the heads read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.data.cohort import Patient, without_labels
from mri_vit.predictors.network import Neural
from mri_vit.run import files
from mri_vit.settings.schema import Study

Place = tuple[int, int]  # repeat and fold, counted from 0


@dataclass(frozen=True, eq=False)
class Said:
    """What the networks of one fold say of one patient; of several seeds, `features` are the first's."""

    repeat: int
    fold: int
    scores: tuple[dict[str, float], ...]  # by seed, by endpoint
    survival: tuple[dict[str, Float[np.ndarray, " t"]], ...]  # likewise
    features: Float[np.ndarray, " d"]

    def score(self, endpoint: str) -> float:
        """The fold's score: the mean over its seeds."""
        return float(np.mean([one[endpoint] for one in self.scores]))


def homes(run: Path, folds: Sequence[int]) -> dict[Place, Path]:
    """The folder of each fold with weights; `folds` are the numbers of folds by repeat."""
    found = {(r, f): files.fold_folder(run, r, f) for r, count in enumerate(folds) for f in range(count)}
    return {place: home for place, home in found.items() if (home / files.WEIGHTS).is_file()}


def said(
    run: Path, folds: Sequence[int], study: Study, patients: Sequence[Patient], step: Callable[[], None]
) -> dict[str, list[Said]]:
    """By patient what each fold's networks say, one fold after the other, so that one fold's weights are held at a time.

    `study` is the run's, with the folder in which `patients` are prepared; no label is read. `step` is called after each fold.
    """
    asked = [without_labels(patient) for patient in patients]
    found: dict[str, list[Said]] = {patient.id: [] for patient in patients}
    for (repeat, fold), home in homes(run, folds).items():
        neural = Neural.fitted(study, home)
        tables = neural.predict_each(asked)
        features = neural.represent(asked)
        for index, patient in enumerate(patients):
            scores = tuple(
                dict(zip(own.endpoint, own.score.astype(float), strict=True))
                for own in (score[score.patient == patient.id] for score, _ in tables)
            )
            survival = tuple(_survival(table, patient) for _, table in tables)
            found[patient.id].append(Said(repeat, fold, scores, survival, features[index]))
        step()
    return found


def _survival(table: pd.DataFrame, patient: Patient) -> dict[str, Float[np.ndarray, " t"]]:
    own = table.loc[table.patient == patient.id]
    return {str(name): own.loc[own.endpoint == name, "survival"].to_numpy(float) for name in own.endpoint.unique()}
