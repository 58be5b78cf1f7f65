"""What a model must beat: penalised regressions on clinical columns, volumes or wide tables of features, on the same folds.

A table with more columns than patients is reduced to its principal components. Letters: n patients, k columns, m components.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from mri_vit.data.cohort import Patient, label_rows, refuse_labels
from mri_vit.data.covariates import read_by, withheld
from mri_vit.data.predictions import SCORE, SURVIVAL, score_rows, score_table, stacked, survival_table
from mri_vit.kinds.kind import part
from mri_vit.predictors.imputation import ImputedColumns
from mri_vit.settings.recipe import CLINICAL, RADIOMICS, SLICES
from mri_vit.settings.schema import Endpoint, Study

Apart = Mapping[str, Collection[str]]  # by endpoint, columns that its regression does not read
NOTHING: Apart = MappingProxyType({})
Train = Float[np.ndarray, "n k"]
Other = Float[np.ndarray, "t k"]
LabelSets = Float[np.ndarray, "b n c"]
ScoreSets = Float[np.ndarray, "b t p"]
PRIOR_VARIANCE = 1.0  # of a coefficient per standard deviation: scikit-learn's default, an odds ratio of 2.7 is ordinary
COMPONENTS = (2, 4, 8, 16, 32)  # doubled, up to as many as a hundred patients determine with the prior of `Regressions`
RELATIVE_EPS = 1e-6  # of the largest component's standard deviation: below it is rounding, which whitening would blow up
WIDE_CONTROLS = (SLICES, RADIOMICS)  # controls with more columns than patients


class Tabular:
    """A Predictor (see `predictions.py`) from a table of covariates with a row per visit id: `Regressions` on its rows."""

    def __init__(self, covariates: pd.DataFrame, endpoints: Sequence[Endpoint], apart: Apart = NOTHING) -> None:
        """`apart` are by endpoint the columns that its regression does not read."""
        self.covariates = covariates
        self._regressions = Regressions(endpoints, apart)

    def fit(self, train: Sequence[Patient], val: Sequence[Patient]) -> None:
        self._regressions.fit(self.covariates, train)  # not `val`: thresholds are chosen on patients not fitted on

    def predict(self, patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
        refuse_labels(patients)
        return self._regressions.predict(self.covariates.loc[[p.id for p in patients]])

    def of(self, covariates: pd.DataFrame) -> Tabular:
        """The same fitted regressions, which read other patients' covariates."""
        other = Tabular(covariates, self._regressions.endpoints, self._regressions.apart)
        other._regressions = self._regressions
        return other


class Fitted(ABC):
    """A regression of one endpoint, fitted."""

    @abstractmethod
    def scores(self, rows: pd.DataFrame) -> Float[np.ndarray, "n p"]:
        """What the table of predictions holds of each row."""

    def survival(self, rows: pd.DataFrame) -> Float[np.ndarray, "n t"] | None:
        """Probability of being alive at `HORIZONS_DAYS`; None of an endpoint that is no survival."""
        return None


class RegressionKind(ABC):
    """The regression of a kind of endpoint: p numbers of a prediction, c label columns, b sets of labels."""

    @abstractmethod
    def fit(self, endpoint: Endpoint, rows: pd.DataFrame, labels: Float[np.ndarray, "n c"]) -> Fitted | None:
        """Fitted to rows whose label is known; None with nothing to learn."""

    @abstractmethod
    def refit(self, endpoint: Endpoint, train: Train, labels: LabelSets, other: Other) -> ScoreSets:
        """Scores of other rows by the same regression of scaled rows, fitted to each set of labels; NaN with nothing to learn."""

    @abstractmethod
    def loss(self, endpoint: Endpoint, labels: Float[np.ndarray, "n c"], scores: Float[np.ndarray, "n p"]) -> float:
        """How badly scores predict known labels; infinite where that is undefined."""


def of(endpoint: Endpoint) -> RegressionKind:
    """The part of an endpoint's kind that is its regression."""
    return part(endpoint.kind, "regression")


class Regressions:
    """The penalised regression of each endpoint on covariates, in tables with a row per visit id.

    Imputation, scaling and categories are learned inside `fit`. A coefficient per standard deviation has a normal prior of
    variance 1 in every regression (an L2 penalty of 1/2 on its square beside the log-likelihood). `apart` are by endpoint the
    columns that its regression does not read: its own label among them.
    """

    def __init__(self, endpoints: Sequence[Endpoint], apart: Apart = NOTHING) -> None:
        self.endpoints, self.apart = endpoints, apart
        self._fitted: dict[str, Fitted] = {}

    def fit(self, covariates: pd.DataFrame, patients: Sequence[Patient]) -> None:
        """Fit on those of the patients whose label is known; an endpoint with nothing to learn gets no regression."""
        for endpoint in self.endpoints:
            known = [p for p in patients if p.knows(endpoint)]
            rows = read_by(endpoint, covariates, self.apart).loc[[p.id for p in known]]
            fitted = of(endpoint).fit(endpoint, rows, label_rows(known, endpoint)) if varies(rows) else None
            if fitted:
                self._fitted[endpoint.name] = fitted

    def predict(self, covariates: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Scores and survival of every row, as a Predictor gives them."""
        ids = covariates.index.tolist()
        scores, survivals = [], []
        for endpoint in self.endpoints:
            if endpoint.name not in self._fitted:
                continue
            fitted, rows = self._fitted[endpoint.name], read_by(endpoint, covariates, self.apart)
            scores.append(score_table(endpoint, ids, fitted.scores(rows)))
            if (alive := fitted.survival(rows)) is not None:
                survivals.append(survival_table(endpoint, ids, alive).sort_values("horizon_days", kind="stable"))
        return stacked(scores, SCORE), stacked(survivals, SURVIVAL)


def varies(rows: pd.DataFrame) -> bool:
    """Whether any column varies among these patients; else there is nothing to predict from."""
    return bool((rows.nunique(dropna=False) > 1).any())


def scaling() -> Pipeline:
    """Numbers and categories, missing ones imputed and flagged (`imputation.ImputedColumns`); all scaled to unit variance."""
    return make_pipeline(ImputedColumns(), VarianceThreshold(), StandardScaler())


@dataclass(frozen=True, eq=False)
class _Reduced:
    """An endpoint's regression and what makes its m columns of the table's k."""

    reduced: Pipeline
    components: list[str]
    regression: Regressions

    def columns(self, covariates: pd.DataFrame) -> pd.DataFrame:
        reduced = np.asarray(self.reduced.transform(covariates))
        return pd.DataFrame(reduced, covariates.index, pd.Index(self.components))


class PrincipalRegressions:
    """A Predictor (see `predictions.py`) from a table of numbers with a row per visit id.

    Columns are imputed by their median, scaled and turned to principal components of unit variance, all learned from the training
    patients, labelled or not; on the first m of them stands the penalised logistic or Cox regression of `Regressions`. Of the
    numbers `COMPONENTS` that m may be, each endpoint has that of the least log loss on the validation patients, for survival of
    the greatest C; the least m where these are undefined.
    """

    def __init__(self, covariates: pd.DataFrame, endpoints: Sequence[Endpoint]) -> None:
        self.covariates, self.endpoints = covariates, endpoints
        self._fitted: dict[str, _Reduced] = {}

    def fit(self, train: Sequence[Patient], val: Sequence[Patient]) -> None:
        """Fit; an endpoint with nothing to learn gets no regression."""
        rows = self.covariates.loc[[p.id for p in train]]
        if len(train) < 3 or not varies(rows):
            return
        reductions = [
            (make_pipeline(*_plain_scaling(), PCA(m, whiten=True, svd_solver="full")).fit(rows), m) for m in _numbers(rows)
        ]
        for endpoint in self.endpoints:
            fits = [
                _Reduced(reduced, [f"component {i + 1}" for i in range(m)], Regressions((endpoint,))) for reduced, m in reductions
            ]
            for fit in fits:
                fit.regression.fit(fit.columns(rows), train)
            if len(fits[0].regression.predict(fits[0].columns(rows))[0]):
                self._fitted[endpoint.name] = min(fits, key=lambda fit: self._loss(fit, endpoint, val))  # of equals the first

    def predict(self, patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
        refuse_labels(patients)
        rows = self.covariates.loc[[p.id for p in patients]]
        tables = [fitted.regression.predict(fitted.columns(rows)) for fitted in self._fitted.values()]
        return stacked([score for score, _ in tables], SCORE), stacked([survival for _, survival in tables], SURVIVAL)

    def of(self, covariates: pd.DataFrame) -> PrincipalRegressions:
        """The same fitted regressions, which read other patients' covariates."""
        other = PrincipalRegressions(covariates, self.endpoints)
        other._fitted = self._fitted
        return other

    def components(self) -> dict[str, int]:
        """How many components each endpoint's regression reads."""
        return {name: len(fitted.components) for name, fitted in self._fitted.items()}

    def _loss(self, fitted: _Reduced, endpoint: Endpoint, val: Sequence[Patient]) -> float:
        """Log loss of a marker or of classes, minus C of survival, … on the validation patients; infinite where undefined."""
        known = [p for p in val if p.knows(endpoint)]
        if not known:
            return math.inf
        ids = [p.id for p in known]
        table = fitted.regression.predict(fitted.columns(self.covariates.loc[ids]))[0]
        return of(endpoint).loss(endpoint, label_rows(known, endpoint), score_rows(table, endpoint, ids))


def _numbers(rows: pd.DataFrame) -> list[int]:
    """How many components may be taken: at most as many as the centred rows have."""
    size = np.sqrt(PCA(svd_solver="full").fit(make_pipeline(*_plain_scaling()).fit_transform(rows)).explained_variance_)
    most = int((size > RELATIVE_EPS * size.max()).sum())
    return [m for m in COMPONENTS if m <= most] or [most]


def _plain_scaling() -> tuple[SimpleImputer, VarianceThreshold, StandardScaler]:
    """Without the flags of missing values that `scaling` adds: they would weigh as much as the columns."""
    return SimpleImputer(strategy="median", keep_empty_features=True), VarianceThreshold(), StandardScaler()


def control(name: str, covariates: pd.DataFrame, study: Study) -> Tabular | PrincipalRegressions:
    """The unfitted regression of a control or reference."""
    if name in WIDE_CONTROLS:
        return PrincipalRegressions(covariates, study.endpoints)
    return Tabular(covariates, study.endpoints, kept_apart(name, covariates, study))


def kept_apart(name: str, covariates: pd.DataFrame, study: Study) -> Apart:
    """By endpoint the columns that a control's regression does not read; what a scan shows may be read for all."""
    return withheld(list(covariates), study) if name == CLINICAL else NOTHING
