"""The controls' regression of a number, or of its logarithm: ridge regression. Letters as in `predictors/regressions.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from mri_vit.predictors import refit
from mri_vit.predictors.regressions import PRIOR_VARIANCE, Fitted, LabelSets, Other, RegressionKind, ScoreSets, Train, scaling
from mri_vit.settings.schema import Endpoint


@dataclass(frozen=True)
class FittedRidge(Fitted):
    """Numbers in the unit of the labels."""

    model: Pipeline
    log: bool

    def scores(self, rows: pd.DataFrame) -> Float[np.ndarray, "n p"]:
        value = np.asarray(self.model.predict(rows), dtype=float)[:, None]
        return np.exp(value) if self.log else value


class ContinuousRegression(RegressionKind):
    """Ridge regression of the number in its standard deviations."""

    def fit(self, endpoint: Endpoint, rows: pd.DataFrame, labels: Float[np.ndarray, "n c"]) -> FittedRidge | None:
        value = np.log(labels[:, 0]) if endpoint.log else labels[:, 0]
        if len(np.unique(value)) < 2:
            return None
        ridge = TransformedTargetRegressor(Ridge(alpha=1 / PRIOR_VARIANCE), transformer=StandardScaler())
        return FittedRidge(make_pipeline(scaling(), ridge).fit(rows, value), bool(endpoint.log))

    def refit(self, endpoint: Endpoint, train: Train, labels: LabelSets, other: Other) -> ScoreSets:
        value = np.log(labels[:, :, 0]) if endpoint.log else labels[:, :, 0]
        return refit.linear(train, value, other)[:, :, None]  # of which the order alone is asked, so a logarithm stays

    def loss(self, endpoint: Endpoint, labels: Float[np.ndarray, "n c"], scores: Float[np.ndarray, "n p"]) -> float:
        """Mean squared error, of logarithms where these are learned."""
        value, score = (np.log(one) if endpoint.log else one for one in (labels[:, 0], scores[:, 0]))
        return float(((value - score) ** 2).mean())


PART = ContinuousRegression()
