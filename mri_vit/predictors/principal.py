"""Principal: regressions on the principal components of a table that has more columns than there are patients.

Letters: n patients, k columns, m components.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from mri_vit.data.cohort import Patient, refuse_labels
from mri_vit.metrics.concordance import harrell_c
from mri_vit.predictors.tabular import Regressions, stacked, varies
from mri_vit.settings.endpoint import Endpoint

COMPONENTS = (2, 4, 8, 16, 32)  # doubled, up to as many as a hundred patients determine with the prior of `Regressions`
EMPTY = 1e-6  # of the largest component's standard deviation: below it is rounding, which whitening would blow up


@dataclass(frozen=True, eq=False)
class _Fitted:
    """An endpoint's regression and what makes its m columns of the table's k."""

    reduced: Pipeline
    components: list[str]
    regression: Regressions

    def columns(self, covariates: pd.DataFrame) -> pd.DataFrame:
        found = np.asarray(self.reduced.transform(covariates))
        return pd.DataFrame(found, covariates.index, pd.Index(self.components))


class PrincipalRegressions:
    """A Predictor (see `predictions.py`) from a table of numbers with a row per visit id.

    Columns are imputed by their median, scaled and turned to principal components of unit variance, all learned from the training
    patients, labelled or not; on the first m of them stands the penalised logistic or Cox regression of `Regressions`. Of the
    numbers `COMPONENTS` that m may be, each endpoint has that of the least log loss on the tuning patients, for survival of the
    greatest C; the least m where they say nothing.
    """

    def __init__(self, covariates: pd.DataFrame, endpoints: Sequence[Endpoint]) -> None:
        self.covariates, self.endpoints = covariates, endpoints
        self._fitted: dict[str, _Fitted] = {}

    def fit(self, train: Sequence[Patient], tune: Sequence[Patient]) -> None:
        """Fit; an endpoint with nothing to learn gets no regression."""
        rows = self.covariates.loc[[p.id for p in train]]
        if len(train) < 3 or not varies(rows):
            return
        reductions = [(_reduced(rows, m), [f"component {i + 1}" for i in range(m)]) for m in _numbers(rows)]
        for endpoint in self.endpoints:
            fits = [_Fitted(reduced, names, Regressions((endpoint,))) for reduced, names in reductions]
            for one in fits:
                one.regression.fit(one.columns(rows), train)
            if len(fits[0].regression.predict(fits[0].columns(rows))[0]):
                self._fitted[endpoint.name] = min(fits, key=lambda one: self._loss(one, endpoint, tune))  # of equals the first

    def predict(self, patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
        refuse_labels(patients)
        rows = self.covariates.loc[[p.id for p in patients]]
        tables = [Regressions(()).predict(rows)]  # without rows, where there is no other
        tables += [one.regression.predict(one.columns(rows)) for one in self._fitted.values()]
        scores, survivals = (list(each) for each in zip(*tables, strict=True))
        return stacked([scores[0], *filter(len, scores)]), stacked([survivals[0], *filter(len, survivals)])

    def of(self, covariates: pd.DataFrame) -> PrincipalRegressions:
        """The same fitted regressions, which read other patients' covariates."""
        other = PrincipalRegressions(covariates, self.endpoints)
        other._fitted = self._fitted
        return other

    def components(self) -> dict[str, int]:
        """How many components each endpoint's regression reads."""
        return {name: len(one.components) for name, one in self._fitted.items()}

    def _loss(self, one: _Fitted, endpoint: Endpoint, tune: Sequence[Patient]) -> float:
        """Log loss of a marker, minus C of survival on the tuning patients; infinite where that is undefined."""
        known = [p for p in tune if p.knows(endpoint)]
        if not known:
            return math.inf
        score = one.regression.predict(one.columns(self.covariates.loc[[p.id for p in known]]))[0].score.to_numpy(float)
        if endpoint.kind == "binary":
            return float(log_loss([p.labels[endpoint.name] == 1 for p in known], score, labels=[False, True]))
        time, event = (np.array([p.labels[column] for p in known]) for column in endpoint.columns)
        c = harrell_c(time, event == 1, score)
        return math.inf if math.isnan(c) else -c


def _numbers(rows: pd.DataFrame) -> list[int]:
    """How many components may be taken: at most as many as the centred rows have."""
    size = np.sqrt(PCA(svd_solver="full").fit(make_pipeline(*_scaling()).fit_transform(rows)).explained_variance_)
    most = int((size > EMPTY * size.max()).sum())
    return [m for m in COMPONENTS if m <= most] or [most]


def _reduced(rows: pd.DataFrame, m: int) -> Pipeline:
    return make_pipeline(*_scaling(), PCA(m, whiten=True, svd_solver="full")).fit(rows)


def _scaling() -> tuple[SimpleImputer, VarianceThreshold, StandardScaler]:
    """Without the flags of what was missing that `tabular.scaling` adds: they would weigh as much as the columns."""
    return SimpleImputer(strategy="median", keep_empty_features=True), VarianceThreshold(), StandardScaler()
