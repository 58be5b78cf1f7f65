"""The controls' regression of survival: penalised Cox regression. Letters as in `predictors/regressions.py`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from lifelines import CoxPHFitter
from lifelines.exceptions import ConvergenceError
from sklearn.pipeline import Pipeline

from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.errors import BadNumbers
from mri_vit.metrics.competing_risks import cumulative_hazard, free_of_event
from mri_vit.metrics.concordance import harrell_c
from mri_vit.predictors import refit
from mri_vit.predictors.regressions import PRIOR_VARIANCE, Fitted, LabelSets, Other, RegressionKind, ScoreSets, Train, scaling
from mri_vit.settings.schema import Endpoint

# By default lifelines stops up to 5e-4 of a log hazard before the end, where another machine's rounding decides on which side of
# a tie a patient falls.
COX_TOLERANCE = {"precision": 1e-14, "r_precision": 1e-14, "step_size": 0.5}  # at 0.95 it may run away with many columns


@dataclass(frozen=True)
class FittedCox(Fitted):
    """Log hazard ratios, and survival by Breslow's baseline; `other` is the fold's cumulative hazard of a competing event, on the
    days of that baseline, and None where none is declared.
    """

    scaled: Pipeline
    cox: CoxPHFitter
    other: Float[np.ndarray, " s"] | None

    def scores(self, rows: pd.DataFrame) -> Float[np.ndarray, "n p"]:
        return self.cox.predict_log_partial_hazard(self._columns(rows)).to_numpy(float)[:, None]

    def survival(self, rows: pd.DataFrame) -> Float[np.ndarray, "n t"]:
        if self.other is not None:
            hazard = self.cox.predict_cumulative_hazard(self._columns(rows))
            days, free = np.r_[0.0, hazard.index.to_numpy(float)], free_of_event(hazard.to_numpy(float).T, self.other)
            return np.stack([np.interp(HORIZONS_DAYS, days, np.r_[1.0, one]) for one in free])
        return self.cox.predict_survival_function(self._columns(rows), times=list(HORIZONS_DAYS)).to_numpy(float).T

    def _columns(self, rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(self.scaled.transform(rows)).add_prefix("x")


class SurvivalRegression(RegressionKind):
    """Cox regression."""

    def fit(self, endpoint: Endpoint, rows: pd.DataFrame, labels: Float[np.ndarray, "n c"]) -> FittedCox | None:
        days, event = labels[:, 0], labels[:, 1] == 1
        if not event.any():
            return None
        scaled = scaling()
        table = pd.DataFrame(scaled.fit_transform(rows)).add_prefix("x")
        cox = CoxPHFitter(penalizer=1 / (PRIOR_VARIANCE * len(rows)))  # lifelines divides the likelihood by n
        try:
            cox.fit(table.assign(days=days, event=event), "days", "event", fit_options=COX_TOLERANCE)
        except (ConvergenceError, np.linalg.LinAlgError) as error:
            raise BadNumbers(f"the Cox regression on {', '.join(rows)} did not converge: {error}") from None
        baseline = cox.baseline_cumulative_hazard_.index.to_numpy(float)
        return FittedCox(scaled, cox, cumulative_hazard(days, labels[:, 1] == 2, baseline) if endpoint.competing else None)

    def refit(self, endpoint: Endpoint, train: Train, labels: LabelSets, other: Other) -> ScoreSets:
        return refit.cox(train, labels[:, :, 0], labels[:, :, 1] == 1, other)[:, :, None]

    def loss(self, endpoint: Endpoint, labels: Float[np.ndarray, "n c"], scores: Float[np.ndarray, "n p"]) -> float:
        c = harrell_c(labels[:, 0], labels[:, 1] == 1, scores[:, 0])
        return math.inf if math.isnan(c) else -c


PART = SurvivalRegression()
