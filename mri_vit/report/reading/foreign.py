"""Predictions made elsewhere: two tables in, what a report is made from out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mri_vit.crossval.site_probe import COLUMNS as PROBE_COLUMNS
from mri_vit.data import cohort, identifiers, predictions, sheet
from mri_vit.errors import UsageError
from mri_vit.report.reading import tables
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.run import Nothing
from mri_vit.run import files
from mri_vit.settings.endpoint import ENDPOINT_NAME, Endpoint
from mri_vit.settings.models import PERMUTED
from mri_vit.settings.schema import Report, Study


def from_tables(scores: Path, people: Path, output: Path, subgroups: tuple[str, ...] = ()) -> Run:
    """A report's matter from a table of predictions made elsewhere and the cohort table that it is about.

    An endpoint is one of survival where the cohort has its `<name>_days` and `<name>_event` (or the predictions their
    `time_days` and `event`), else binary. Truth that the predictions lack comes from the cohort's column of that name.
    A `survival.csv` beside the predictions is read too. `subgroups` are columns of the cohort table, beside the usual ones.

    Raises UsageError naming file, row and column.
    """
    table = predictions.load(scores)
    if not len(table):
        raise UsageError(f"{scores}: no row; expected a row for each patient and endpoint")
    header = sheet.columns(people)
    lacking = [name for name in subgroups if name not in header]
    if lacking:
        raise UsageError(f"{people}: no column {lacking[0]!r} to look into (found {', '.join(header)})")
    endpoints = tuple(_endpoint(name, table, header, scores, people) for name in table.endpoint.unique())
    patients = cohort.read(people, tuple(e for e in endpoints if set(e.columns) <= set(header)), needed=())
    known = {patient.subject: patient for patient in cohort.first_visits(patients)}  # of several visits, the first is judged
    strangers = sorted(set(table.patient) - set(known))
    if strangers:
        like = identifiers.elsewhere(strangers[0], known)
        raise UsageError(f"{scores}: patient {strangers[0]} is not in {people}{like} ({len(strangers)} such patients)")
    visits = pd.DataFrame([{"patient": p.subject, **p.clinical, **p.labels} for p in patients]).astype(str).replace("nan", "")
    study = Study(
        name=_study_name(scores),
        cohort=people,
        prepared=output,
        output=output,
        endpoints=endpoints,
        report=Report(subgroups=tuple(dict.fromkeys((*Report().subgroups, *subgroups)))),
    )
    return Run(
        design="table",
        study=study,
        environment=Nothing(),
        cohort=tables.by_patient(visits),
        excluded=tables.empty(tables.EXCLUDED_COLUMNS),
        folds_sha256=None,
        predictions=_with_truth(table, endpoints, known | {patient.id: patient for patient in patients}, scores),
        survival=tables.survival(scores.with_name(files.SURVIVAL)),
        nulls=tables.nulls(scores.with_name(files.NULLS)),
        probe=tables.empty(PROBE_COLUMNS),
        covariates=tables.covariates(people, study),
    )


def _endpoint(name: str, table: pd.DataFrame, header: list[str], scores: Path, people: Path) -> Endpoint:
    if not re.fullmatch(ENDPOINT_NAME, name):
        raise UsageError(f"{scores}: endpoint {name!r}; expected small letters, digits and _ (such as 'mgmt'), 32 at most")
    own = table[table.endpoint == name]
    time, event = f"{name}_days", f"{name}_event"
    if {time, event} <= set(header) or own.time_days.notna().any():
        return Endpoint(name=name, kind="survival", time=time, event=event)
    if name not in header and own.truth.isna().all():
        raise UsageError(
            f"{scores}: endpoint {name} has no truth, and {people} has no column {name!r} (found {', '.join(header)})"
        )
    return Endpoint(name=name, kind="binary")


def _with_truth(table: pd.DataFrame, endpoints: tuple[Endpoint, ...], known: Mapping[str, Any], scores: Path) -> pd.DataFrame:
    """Labels from the cohort table; where both tables have one, they must agree (but for permuted labels).

    `known` holds patients by the visit's id and by the patient's.
    """
    table = table.copy()
    visits = [cohort.visit_id(*pair) for pair in zip(table.patient, table.session, strict=True)]
    table["visit"] = [visit if visit in known else patient for visit, patient in zip(visits, table.patient, strict=True)]
    for endpoint in endpoints:
        targets = ("truth",) if endpoint.kind == "binary" else ("time_days", "event")
        rows = table.endpoint == endpoint.name
        for target, column in zip(targets, endpoint.columns, strict=True):
            of_cohort = table.loc[rows, "visit"].map(lambda visit, c=column: known[visit].labels.get(c, np.nan))
            own = table.loc[rows, target].astype(float)
            clash = own.notna() & of_cohort.notna() & (own != of_cohort) & ~table.loc[rows, "model"].isin(PERMUTED)
            if clash.any():
                row = clash.index[clash][0]
                said = f"{target} {own[row]:g} of {table.patient[row]}"
                raise UsageError(f"{scores}, row {row + 2}: {said}; the cohort table says {of_cohort[row]:g}")
            table.loc[rows, target] = own.fillna(of_cohort)
    return table.drop(columns="visit")


def _study_name(path: Path) -> str:
    allowed = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in path.stem)
    return f"table-{allowed}"[:64]
