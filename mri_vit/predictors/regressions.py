"""What a model must beat: penalised regressions on clinical columns, volumes or wide tables of features, on the same folds.

A table with more columns than patients is reduced to its principal components. Letters: n patients, k columns, m components.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter
from lifelines.exceptions import ConvergenceError
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mri_vit.data.cohort import Patient, refuse_labels
from mri_vit.data.covariates import read_by, withheld
from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.errors import BadNumbers
from mri_vit.metrics.concordance import harrell_c
from mri_vit.settings.recipe import CLINICAL, RADIOMICS, SLICES
from mri_vit.settings.schema import Endpoint, Study

Apart = Mapping[str, Collection[str]]  # by endpoint, columns that its regression does not read
NOTHING: Apart = MappingProxyType({})
PRIOR_VARIANCE = 1.0  # of a coefficient per standard deviation: scikit-learn's default, an odds ratio of 2.7 is ordinary
# Both libraries stop early by default (lbfgs up to 1e-3 of a probability before its end, lifelines 5e-4 of a log hazard), where
# another machine's rounding decides on which side of a tie a patient falls.
COX_TOLERANCE = {"precision": 1e-14, "r_precision": 1e-14, "step_size": 0.5}  # at 0.95 it may run away with many columns
COMPONENTS = (2, 4, 8, 16, 32)  # doubled, up to as many as a hundred patients determine with the prior of `Regressions`
RELATIVE_EPS = 1e-6  # of the largest component's standard deviation: below it is rounding, which whitening would blow up
WIDE_CONTROLS = (SLICES, RADIOMICS)  # controls with more columns than patients
SCORE = ("patient", "endpoint", "score")  # columns of a predictor's tables
SURVIVAL = ("patient", "endpoint", "horizon_days", "survival")


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


class Regressions:
    """Penalised logistic and Cox regression of each endpoint on covariates, in tables with a row per visit id.

    Imputation, scaling and categories are learned inside `fit`. A coefficient per standard deviation has a normal prior of
    variance 1 in both regressions (an L2 penalty of 1/2 on its square beside the log-likelihood). `apart` are by endpoint the
    columns that its regression does not read: its own label among them.
    """

    def __init__(self, endpoints: Sequence[Endpoint], apart: Apart = NOTHING) -> None:
        self.endpoints, self.apart = endpoints, apart
        self._binary: dict[str, Pipeline] = {}
        self._survival: dict[str, tuple[Pipeline, CoxPHFitter]] = {}

    def fit(self, covariates: pd.DataFrame, patients: Sequence[Patient]) -> None:
        """Fit on those of the patients whose label is known; an endpoint with nothing to learn gets no regression."""
        for endpoint in self.endpoints:
            known = [p for p in patients if p.knows(endpoint)]
            flags = np.array([p.labels[endpoint.columns[-1]] == 1 for p in known])
            rows = read_by(endpoint, covariates, self.apart).loc[[p.id for p in known]]
            if not varies(rows):
                continue
            if endpoint.kind == "binary" and 0 < flags.sum() < len(flags):
                regression = LogisticRegression(C=PRIOR_VARIANCE, solver="newton-cholesky", tol=1e-8, max_iter=1000)
                self._binary[endpoint.name] = make_pipeline(scaling(), regression).fit(rows, flags)
            elif endpoint.kind == "survival" and flags.any():
                days = np.array([p.labels[endpoint.columns[0]] for p in known])
                self._survival[endpoint.name] = _cox(rows, days, flags)

    def predict(self, covariates: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Scores and survival of every row, as a Predictor gives them."""
        ids = covariates.index.tolist()
        scores, survivals = [], []
        own = {endpoint.name: read_by(endpoint, covariates, self.apart) for endpoint in self.endpoints}
        for name, model in self._binary.items():
            probability = model.predict_proba(own[name])[:, 1]
            scores.append(pd.DataFrame({"patient": ids, "endpoint": name, "score": probability}))
        for name, (scaled, cox) in self._survival.items():
            table = pd.DataFrame(scaled.transform(own[name])).add_prefix("x")
            risk = cox.predict_log_partial_hazard(table).to_numpy()
            scores.append(pd.DataFrame({"patient": ids, "endpoint": name, "score": risk}))
            alive = cox.predict_survival_function(table, times=list(HORIZONS_DAYS)).to_numpy()  # (horizons, patients)
            for days, chance in zip(HORIZONS_DAYS, alive, strict=True):
                survivals.append(pd.DataFrame({"patient": ids, "endpoint": name, "horizon_days": days, "survival": chance}))
        return stacked(scores, SCORE), stacked(survivals, SURVIVAL)


def _cox(rows: pd.DataFrame, days: np.ndarray, event: np.ndarray) -> tuple[Pipeline, CoxPHFitter]:
    """Scaling of covariates, and a Cox regression on what it gives."""
    scaled = scaling()
    table = pd.DataFrame(scaled.fit_transform(rows)).add_prefix("x")
    cox = CoxPHFitter(penalizer=1 / (PRIOR_VARIANCE * len(rows)))  # lifelines divides the likelihood by n
    try:
        cox.fit(table.assign(days=days, event=event), "days", "event", fit_options=COX_TOLERANCE)
    except (ConvergenceError, np.linalg.LinAlgError) as error:
        raise BadNumbers(f"the Cox regression on {', '.join(rows)} did not converge: {error}") from None
    return scaled, cox


def stacked(tables: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """The tables that have rows, under each other; one of these columns without rows where none has."""
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=pd.Index(columns))


def varies(rows: pd.DataFrame) -> bool:
    """Whether any column varies among these patients; else there is nothing to predict from."""
    return bool((rows.nunique(dropna=False) > 1).any())


def scaling() -> Pipeline:
    """Numbers: median where missing, and a flag that it was; categories: one column each; all scaled to unit variance."""
    numbers = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include=float)),  # type: ignore[arg-type]
        (categories, make_column_selector(dtype_include=object)),  # type: ignore[arg-type]
    )
    return make_pipeline(columns, VarianceThreshold(), StandardScaler())


@dataclass(frozen=True, eq=False)
class _Fitted:
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
        self._fitted: dict[str, _Fitted] = {}

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
                _Fitted(reduced, [f"component {i + 1}" for i in range(m)], Regressions((endpoint,))) for reduced, m in reductions
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

    def _loss(self, fitted: _Fitted, endpoint: Endpoint, val: Sequence[Patient]) -> float:
        """Log loss of a marker, minus C of survival on the validation patients; infinite where that is undefined."""
        known = [p for p in val if p.knows(endpoint)]
        if not known:
            return math.inf
        score = fitted.regression.predict(fitted.columns(self.covariates.loc[[p.id for p in known]]))[0].score.to_numpy(float)
        if endpoint.kind == "binary":
            return float(log_loss([p.labels[endpoint.name] == 1 for p in known], score, labels=[False, True]))
        time, event = (np.array([p.labels[column] for p in known]) for column in endpoint.columns)
        c = harrell_c(time, event == 1, score)
        return math.inf if math.isnan(c) else -c


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
