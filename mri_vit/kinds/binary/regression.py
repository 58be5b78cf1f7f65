"""The controls' regression of a binary marker: penalised logistic regression. Letters as in `predictors/regressions.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline, make_pipeline

from mri_vit.predictors import refit
from mri_vit.predictors.regressions import PRIOR_VARIANCE, Fitted, LabelSets, Other, RegressionKind, ScoreSets, Train, scaling
from mri_vit.settings.schema import Endpoint


def logistic() -> LogisticRegression:
    """By default lbfgs stops up to 1e-3 of a probability before its end, where another machine's rounding decides on which side
    of a tie a patient falls.
    """
    return LogisticRegression(C=PRIOR_VARIANCE, solver="newton-cholesky", tol=1e-8, max_iter=1000)


@dataclass(frozen=True)
class FittedLogistic(Fitted):
    """Probabilities of 1."""

    model: Pipeline

    def scores(self, rows: pd.DataFrame) -> Float[np.ndarray, "n p"]:
        return self.model.predict_proba(rows)[:, 1:]


class BinaryRegression(RegressionKind):
    """Logistic regression."""

    def fit(self, endpoint: Endpoint, rows: pd.DataFrame, labels: Float[np.ndarray, "n c"]) -> FittedLogistic | None:
        positive = labels[:, 0] == 1
        if positive.all() or not positive.any():
            return None
        return FittedLogistic(make_pipeline(scaling(), logistic()).fit(rows, positive))

    def refit(self, endpoint: Endpoint, train: Train, labels: LabelSets, other: Other) -> ScoreSets:
        return expit(refit.logistic(train, labels[:, :, 0] == 1, other))[:, :, None]

    def loss(self, endpoint: Endpoint, labels: Float[np.ndarray, "n c"], scores: Float[np.ndarray, "n p"]) -> float:
        return float(log_loss(labels[:, 0] == 1, scores[:, 0], labels=[False, True]))


PART = BinaryRegression()
