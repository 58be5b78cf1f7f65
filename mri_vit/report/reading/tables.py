"""The tables of a run or beside one: paths in, checked tables out, empty where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from mri_vit.crossval.site_probe import COLUMNS as PROBE_COLUMNS
from mri_vit.data import cohort, predictions, sheet
from mri_vit.data.covariates import clinical_columns, clinical_table
from mri_vit.errors import UsageError
from mri_vit.run.record import as_written
from mri_vit.settings.endpoint import DEFAULT_ENDPOINTS
from mri_vit.settings.schema import Study

EXCLUDED_COLUMNS = ["patient", "file", "reason"]
DECISION_COLUMNS = ["patient", "decision", "who", "why"]
Covariates = pd.DataFrame | str  # a row per visit id; or why there are none, in words
FINDING_COLUMNS = ["patient", "reason", "scan", "figure", "became", "words"]


def predicted(path: Path) -> pd.DataFrame:
    return predictions.load(path) if path.is_file() else empty(predictions.COLUMNS)


def survival(path: Path) -> pd.DataFrame:
    return predictions.load_survival(path) if path.is_file() else empty(predictions.SURVIVAL_COLUMNS)


def nulls(path: Path) -> pd.DataFrame:
    return predictions.load_nulls(path) if path.is_file() else empty(predictions.NULL_COLUMNS)


def seeds(path: Path) -> pd.DataFrame:
    return predictions.load_seeds(path) if path.is_file() else empty(predictions.SEED_COLUMNS)


def empty(columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame(columns=pd.Index(columns))


def probe(path: Path) -> pd.DataFrame:
    kinds = {"patient": str, "site": str, "predicted": str}
    return our_table(path, PROBE_COLUMNS, kinds) if path.is_file() else empty(PROBE_COLUMNS)


def excluded(path: Path) -> pd.DataFrame:
    return text_table(path) if path.is_file() else empty(EXCLUDED_COLUMNS)


def decisions(path: Path) -> pd.DataFrame:
    return text_table(path) if path.is_file() else empty(DECISION_COLUMNS)


def findings(path: Path) -> pd.DataFrame:
    return our_table(path, FINDING_COLUMNS, str) if path.is_file() else empty(FINDING_COLUMNS)


def covariates(path: Path, study: Study) -> Covariates:
    """What a survival endpoint's risk is held against: numbers, or text for categories, of a cohort table.

    These are the columns that the control on clinical columns may use (`controls.columns`) and the binary markers. A patient's
    own name, where visits have others, is the first visit. A study without a survival endpoint has none.
    """
    if not any(endpoint.kind == "survival" for endpoint in study.endpoints):
        return pd.DataFrame()
    try:
        header = sheet.columns(path)
        there = tuple(endpoint for endpoint in study.endpoints if set(endpoint.columns) <= set(header))
        patients = cohort.read(path, there, needed=(), channels=study.channels)
        columns = {name for patient in patients[:1] for name in (*patient.clinical, *patient.labels)}
        binary = [endpoint.columns[0] for endpoint in (*study.endpoints, *DEFAULT_ENDPOINTS) if endpoint.kind == "binary"]
        names = dict.fromkeys((*clinical_columns(patients, study), *(name for name in binary if name in columns)))
        table = clinical_table(patients, list(names))
    except UsageError as error:
        return str(error).replace(f"{path.parent}/", "")  # no folder of a machine
    first = {patient.subject: patient.id for patient in cohort.first_visits(patients) if patient.subject not in table.index}
    return table.loc[[*table.index, *first.values()]].set_axis([*table.index, *first])


def by_patient(visits: pd.DataFrame) -> pd.DataFrame:
    """A row per patient: of several visits, each column's first filled cell."""
    return visits.where(visits != "").groupby("patient", sort=False).first().fillna("").reset_index()


def text_table(path: Path) -> pd.DataFrame:
    # Text throughout: a patient called 007 or 1e5 is not a number.
    return our_table(path, ["patient"], str)


def our_table(path: Path, needed: list[str], kinds: Any) -> pd.DataFrame:
    """A CSV table that the run wrote. Raises IntegrityError where it cannot be read as that."""
    with as_written(path):  # pandas' own errors are kinds of ValueError
        table = pd.read_csv(path, dtype=kinds, keep_default_na=False)
        if lacking := [name for name in needed if name not in table]:
            raise ValueError(f"no column {lacking[0]}")
    return table.map(sheet.unprefixed)
