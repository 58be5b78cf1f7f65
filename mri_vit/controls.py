"""What a model must beat: regressions on the table's clinical columns, or on volumes, fitted on the same folds."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mri_vit.cohort import MISSING, Patient, refuse_labels
from mri_vit.config import DEFAULT_ENDPOINTS, Endpoint, Study
from mri_vit.errors import UsageError
from mri_vit.predictions import HORIZONS_DAYS
from mri_vit.prepare.patient import PREPARE_AGAIN, load_record
from mri_vit.record import as_written
from mri_vit.volume import read

MOST_LEVELS = 10  # a column of more different words is a name or a note, not a category
PRIOR_VARIANCE = 1.0  # of a coefficient per standard deviation: scikit-learn's default, an odds ratio of 2.7 is ordinary
LABEL_COLUMNS = {column for endpoint in DEFAULT_ENDPOINTS for column in endpoint.columns}  # no covariate, studied or not
# Words by which tables name what happened after imaging; such a column is no covariate unless it is asked for by name.
OUTCOME = re.compile(
    r"(?i)(^|[_ .-])(os|pfs|rfs|ttp|surviv\w*|death|dead|died|deceased|vital|alive|event|censor\w*"
    r"|progress\w*|recurr\w*|relapse\w*|follow\w*|date|outcome)($|[_ .-])"
)


def clinical_columns(patients: Sequence[Patient], study: Study) -> list[str]:
    """The columns that "clinical" may use: those named in `controls.columns`, else all that hold numbers or categories.

    Labels, columns that by their name are outcomes, the site and the column whose values are left out are not among these.
    What a column holds is told from all patients' cells, test patients' too; no label is looked at.

    Raises UsageError when a named column is not in the table.
    """
    there, asked = list(patients[0].clinical), study.controls.columns
    unknown = [name for name in asked or () if name not in there]
    if unknown:
        raise UsageError(f"controls.columns: no column {unknown[0]!r} in the cohort table (found {', '.join(there)})")
    if asked is not None:
        return list(asked)
    apart = {"site", study.train.leave_out, *LABEL_COLUMNS}
    table = clinical_table(patients, [name for name in there if name not in apart and not OUTCOME.search(name)])
    return [str(name) for name, column in table.items() if _useful(column)]


def clinical_table(patients: Sequence[Patient], columns: Sequence[str]) -> pd.DataFrame:
    """A row per visit id; a column is a number where every filled cell is one, else text; missing is NaN or None."""
    cells = {name: [p.clinical[name] for p in patients] for name in columns}
    table = pd.DataFrame(cells, index=pd.Index([p.id for p in patients]), columns=pd.Index(columns), dtype=object)
    table = table.mask(table.apply(lambda column: column.str.lower().isin(MISSING)), None)
    for name in columns:
        number = pd.Series(pd.to_numeric(table[name], errors="coerce"), dtype=float)
        if number.count() == table[name].count():
            table[name] = number
    return table


def volume_table(patients: Sequence[Patient], study: Study) -> pd.DataFrame:
    """Brain volume from each prepared patient and, where any is given, tumour volume from its mask, in ml."""
    rows = []
    for patient in patients:
        steps = load_record(study.prepared / patient.id)["steps"]
        with as_written(study.prepared / patient.id / "patient.json", PREPARE_AGAIN):
            row = {"brain_ml": float(next(step for step in steps if step["step"] == "brain")["brain_ml"])}
        if any(p.tumour_mask for p in patients):
            row["tumour_ml"] = math.nan
        if patient.tumour_mask:
            mask = read(patient.tumour_mask)
            voxel_ml = abs(np.linalg.det(mask.affine[:3, :3])) / 1000  # mm³ to ml
            row["tumour_ml"] = float((mask.array != 0).sum() * voxel_ml)
        rows.append(row)
    return pd.DataFrame(rows, index=pd.Index([p.id for p in patients]))


class Tabular:
    """A Predictor (see `predictions.py`) from a table of covariates: penalised logistic and Cox regression.

    Imputation, scaling and categories are learned inside `fit`. A coefficient per standard deviation has a normal prior of
    variance 1 in both regressions (an L2 penalty of 1/2 on its square beside the log-likelihood).
    """

    def __init__(self, covariates: pd.DataFrame, endpoints: Sequence[Endpoint]) -> None:
        self.covariates, self.endpoints = covariates, endpoints
        self._binary: dict[str, Pipeline] = {}
        self._survival: dict[str, tuple[Pipeline, CoxPHFitter]] = {}

    def fit(self, train: Sequence[Patient], tune: Sequence[Patient]) -> None:
        for endpoint in self.endpoints:
            known = [p for p in train if p.knows(endpoint)]  # not `tune`: thresholds are chosen on patients not fitted on
            flags = np.array([p.labels[endpoint.columns[-1]] == 1 for p in known])
            rows = self.covariates.loc[[p.id for p in known]]
            if (rows.nunique(dropna=False) < 2).all():
                continue  # nothing varies among these patients, so there is nothing to predict from
            if endpoint.kind == "binary" and 0 < flags.sum() < len(flags):
                regression = LogisticRegression(C=PRIOR_VARIANCE, max_iter=1000)
                self._binary[endpoint.name] = make_pipeline(*_scaled(), regression).fit(rows, flags)
            elif endpoint.kind == "survival" and flags.any():
                scaling = make_pipeline(*_scaled())
                table = pd.DataFrame(scaling.fit_transform(rows)).add_prefix("x")
                days = np.array([p.labels[endpoint.columns[0]] for p in known])
                cox = CoxPHFitter(penalizer=1 / (PRIOR_VARIANCE * len(known)))  # lifelines divides the likelihood by n
                cox.fit(table.assign(days=days, event=flags), "days", "event")
                self._survival[endpoint.name] = scaling, cox

    def predict(self, patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
        refuse_labels(patients)
        ids = [p.id for p in patients]
        rows = self.covariates.loc[ids]
        scores = [pd.DataFrame(columns=pd.Index(["patient", "endpoint", "score"]))]
        survivals = [pd.DataFrame(columns=pd.Index(["patient", "endpoint", "horizon_days", "survival"]))]
        for name, model in self._binary.items():
            probability = model.predict_proba(rows)[:, 1]
            scores.append(pd.DataFrame({"patient": ids, "endpoint": name, "score": probability}))
        for name, (scaling, cox) in self._survival.items():
            table = pd.DataFrame(scaling.transform(rows)).add_prefix("x")
            risk = cox.predict_log_partial_hazard(table).to_numpy()
            scores.append(pd.DataFrame({"patient": ids, "endpoint": name, "score": risk}))
            alive = cox.predict_survival_function(table, times=list(HORIZONS_DAYS)).to_numpy()  # (horizons, patients)
            for days, chance in zip(HORIZONS_DAYS, alive, strict=True):
                survivals.append(pd.DataFrame({"patient": ids, "endpoint": name, "horizon_days": days, "survival": chance}))
        return _stacked(scores), _stacked(survivals)


def _stacked(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The tables under each other; the first, without rows, stands where there is no other."""
    return pd.concat(tables[1:], ignore_index=True) if len(tables) > 1 else tables[0]


def _useful(column: pd.Series) -> bool:
    """Whether a column varies and is a number or a category."""
    levels = column.nunique()
    return levels > 1 and (column.dtype == float or levels <= MOST_LEVELS)


def _scaled() -> list:
    """Numbers: median where missing, and a flag that it was; categories: one column each; all scaled to unit variance."""
    numbers = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include=float)),  # type: ignore[arg-type]
        (categories, make_column_selector(dtype_include=object)),  # type: ignore[arg-type]
    )
    return [columns, VarianceThreshold(), StandardScaler()]
