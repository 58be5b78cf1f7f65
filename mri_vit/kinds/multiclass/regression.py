"""The controls' regression of classes: penalised multinomial logistic regression. Letters as in `predictors/regressions.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.pipeline import Pipeline, make_pipeline

from mri_vit.kinds.binary.regression import logistic
from mri_vit.metrics.multiclass import log_loss
from mri_vit.predictors import refit
from mri_vit.predictors.regressions import Fitted, LabelSets, Other, RegressionKind, ScoreSets, Train, scaling
from mri_vit.settings.schema import Endpoint


@dataclass(frozen=True)
class FittedMultinomial(Fitted):
    """Probabilities of the classes; 0 of one that no training patient has."""

    model: Pipeline
    classes: int

    def scores(self, rows: pd.DataFrame) -> Float[np.ndarray, "n p"]:
        found = np.zeros((len(rows), self.classes))
        found[:, self.model.classes_.astype(int)] = self.model.predict_proba(rows)
        return found


class MulticlassRegression(RegressionKind):
    """Multinomial logistic regression."""

    def fit(self, endpoint: Endpoint, rows: pd.DataFrame, labels: Float[np.ndarray, "n c"]) -> FittedMultinomial | None:
        if len(np.unique(labels)) < 2:
            return None
        return FittedMultinomial(
            make_pipeline(scaling(), logistic()).fit(rows, labels[:, 0].astype(int)), len(endpoint.classes or ())
        )

    def refit(self, endpoint: Endpoint, train: Train, labels: LabelSets, other: Other) -> ScoreSets:
        return refit.softmax(train, labels[:, :, 0].astype(int), len(endpoint.classes or ()), other)

    def loss(self, endpoint: Endpoint, labels: Float[np.ndarray, "n c"], scores: Float[np.ndarray, "n p"]) -> float:
        return log_loss(labels[:, 0].astype(int), scores)


PART = MulticlassRegression()
