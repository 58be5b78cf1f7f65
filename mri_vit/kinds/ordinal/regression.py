"""The controls' regression of grades: penalised proportional odds. Letters as in `predictors/regressions.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from sklearn.pipeline import Pipeline

from mri_vit.metrics.multiclass import log_loss
from mri_vit.predictors import refit
from mri_vit.predictors.regressions import Fitted, LabelSets, Other, RegressionKind, ScoreSets, Train, scaling
from mri_vit.settings.schema import Endpoint


@dataclass(frozen=True, eq=False)
class FittedCumulative(Fitted):
    """Probabilities of the grades; 0 of one that no training patient has. It holds its training rows and fits when asked."""

    scaled: Pipeline
    train: Float[np.ndarray, "n k"]
    grade: Int[np.ndarray, " n"]
    grades: int

    def scores(self, rows: pd.DataFrame) -> Float[np.ndarray, "n p"]:
        return refit.cumulative(self.train, self.grade[None], self.grades, np.asarray(self.scaled.transform(rows)))[0]


class OrdinalRegression(RegressionKind):
    """Proportional odds."""

    def fit(self, endpoint: Endpoint, rows: pd.DataFrame, labels: Float[np.ndarray, "n c"]) -> FittedCumulative | None:
        if len(np.unique(labels)) < 2:
            return None
        scaled = scaling()
        train = np.asarray(scaled.fit_transform(rows), dtype=float)
        return FittedCumulative(scaled, train, labels[:, 0].astype(int), len(endpoint.classes or ()))

    def refit(self, endpoint: Endpoint, train: Train, labels: LabelSets, other: Other) -> ScoreSets:
        return refit.cumulative(train, labels[:, :, 0].astype(int), len(endpoint.classes or ()), other)

    def loss(self, endpoint: Endpoint, labels: Float[np.ndarray, "n c"], scores: Float[np.ndarray, "n p"]) -> float:
        return log_loss(labels[:, 0].astype(int), scores)


PART = OrdinalRegression()
