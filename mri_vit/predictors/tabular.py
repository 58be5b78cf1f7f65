"""What a model must beat: regressions on the table's clinical columns, or on volumes, fitted on the same folds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter
from lifelines.exceptions import ConvergenceError
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mri_vit.data.cohort import Patient, refuse_labels
from mri_vit.data.covariates import read_by
from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.data.volume import read_mask
from mri_vit.errors import BadNumbers
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.run import files
from mri_vit.run.integrity import as_written
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.schema import Study

Apart = Mapping[str, Collection[str]]  # by endpoint, columns that its regression does not read
NOTHING: Apart = MappingProxyType({})
PRIOR_VARIANCE = 1.0  # of a coefficient per standard deviation: scikit-learn's default, an odds ratio of 2.7 is ordinary
# Both libraries stop early by default (lbfgs up to 1e-3 of a probability before its end, lifelines 5e-4 of a log hazard), where
# another machine's rounding decides on which side of a tie a patient falls.
TO_THE_END = {"precision": 1e-14, "r_precision": 1e-14, "step_size": 0.5}  # at 0.95 it may run away with many columns


def volume_table(patients: Sequence[Patient], study: Study) -> pd.DataFrame:
    """Brain volume from each prepared patient and, where any is given, tumour volume from its mask, in ml."""
    rows = []
    for patient in patients:
        steps = load_record(study.prepared / patient.id)["steps"]
        with as_written(study.prepared / patient.id / files.PATIENT, PREPARE_AGAIN):
            row = {"brain_ml": float(next(step for step in steps if step["step"] == "brain")["brain_ml"])}
        if any(p.tumour_mask for p in patients):
            row["tumour_ml"] = math.nan
        if patient.tumour_mask:
            mask = read_mask(patient.tumour_mask)
            voxel_ml = abs(np.linalg.det(mask.affine[:3, :3])) / 1000  # mm³ to ml
            row["tumour_ml"] = float((mask.array != 0).sum() * voxel_ml)
        rows.append(row)
    return pd.DataFrame(rows, index=pd.Index([p.id for p in patients]))


class Tabular:
    """A Predictor (see `predictions.py`) from a table of covariates with a row per visit id: `Regressions` on its rows."""

    def __init__(self, covariates: pd.DataFrame, endpoints: Sequence[Endpoint], apart: Apart = NOTHING) -> None:
        """`apart` are by endpoint the columns that its regression does not read."""
        self.covariates = covariates
        self._regressions = Regressions(endpoints, apart)

    def fit(self, train: Sequence[Patient], tune: Sequence[Patient]) -> None:
        self._regressions.fit(self.covariates, train)  # not `tune`: thresholds are chosen on patients not fitted on

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
        scores = [pd.DataFrame(columns=pd.Index(["patient", "endpoint", "score"]))]
        survivals = [pd.DataFrame(columns=pd.Index(["patient", "endpoint", "horizon_days", "survival"]))]
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
        return stacked(scores), stacked(survivals)


def _cox(rows: pd.DataFrame, days: np.ndarray, event: np.ndarray) -> tuple[Pipeline, CoxPHFitter]:
    """Scaling of covariates, and a Cox regression on what it gives."""
    scaled = scaling()
    table = pd.DataFrame(scaled.fit_transform(rows)).add_prefix("x")
    cox = CoxPHFitter(penalizer=1 / (PRIOR_VARIANCE * len(rows)))  # lifelines divides the likelihood by n
    try:
        cox.fit(table.assign(days=days, event=event), "days", "event", fit_options=TO_THE_END)
    except (ConvergenceError, np.linalg.LinAlgError) as error:
        raise BadNumbers(f"the Cox regression on {', '.join(rows)} did not converge: {error}") from None
    return scaled, cox


def stacked(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The tables under each other; the first, without rows, stands where there is no other."""
    return pd.concat(tables[1:], ignore_index=True) if len(tables) > 1 else tables[0]


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
