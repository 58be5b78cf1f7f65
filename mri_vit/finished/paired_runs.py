"""Paired runs: two run folders in; both runs with their common rows out.

Cross-validated runs and evaluations on another cohort can be compared in any pair that shares patients whose labels agree.
Patients are matched by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from mri_vit.errors import UsageError
from mri_vit.kinds.kind import labels
from mri_vit.report.numbers.judged import in_order, known_rows
from mri_vit.report.reading.run import Run, read_run
from mri_vit.run import files, integrity
from mri_vit.run.folder import refuse_unfinished
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.recipe import PERMUTED
from mri_vit.settings.schema import Endpoint


@dataclass(frozen=True)
class Opened:
    """A run and its folder."""

    folder: Path
    run: Run

    @property
    def people(self) -> set[str]:
        """The patients with a prediction."""
        return set(self.run.predictions.patient)

    @property
    def models(self) -> list[str]:
        """Models that can be compared, in the report's order; those on permuted labels cannot."""
        return [model for model in in_order(self.run.predictions.model.unique().tolist()) if model not in PERMUTED]

    @property
    def scans(self) -> Mapping[tuple[str, str], str] | None:
        """SHA-256 of the training scans by visit and sequence; None where they were not recorded."""
        file = self.folder / files.INPUTS
        if not file.is_file():
            return None
        known = read_json(file)
        with as_written(file):
            return {(visit, scan): str(sha256) for visit, scans in known.items() for scan, sha256 in scans.items()}


@dataclass(frozen=True)
class Rows:
    """Both runs' predictions of the common patients by one model, as `judged.known_rows` gives them, in order of patients."""

    model: str
    a: pd.DataFrame
    b: pd.DataFrame


@dataclass(frozen=True)
class Runs:
    """Two runs that can be compared."""

    a: Opened
    b: Opened
    endpoints: Sequence[Endpoint]  # that both have, in A's order
    rows: Mapping[str, Sequence[Rows]]  # by endpoint, each model that both have; none without a patient with a known label


def read_both(a: Path, b: Path, console: Console) -> Runs:
    """Read two run folders.

    Raises
    ------
    UsageError
        A folder holds no finished run; the runs share no patient, endpoint or known label; an endpoint is of another kind,
        classes or unit in each; or the labels of a common patient differ.
    IntegrityError
        A file of a run was changed after it was written.
    """
    return paired(_opened(a, console), _opened(b, console))


def paired(a: Opened, b: Opened) -> Runs:
    """The two runs with their common rows. Raises UsageError as `read_both` does."""
    if not a.people & b.people:
        raise UsageError(
            f"{a.folder} and {b.folder} have no patient in common (such as {min(a.people)} and {min(b.people)}); two runs are "
            "compared on patients that both predicted"
        )
    endpoints = _common_endpoints(a, b)
    rows = {endpoint.name: _rows(a, b, endpoint) for endpoint in endpoints}
    if not any(rows.values()):
        raise UsageError(
            f"{a.folder} and {b.folder} have {len(a.people & b.people)} patients in common, but none with a label that a "
            f"model of both runs predicted ({', '.join(rows)})"
        )
    return Runs(a, b, endpoints, rows)


def _opened(folder: Path, console: Console) -> Opened:
    refuse_unfinished(folder)
    integrity.refuse_changed_run(folder, console, names=integrity.TABLES)
    run = read_run(folder)
    if not len(run.predictions):
        raise UsageError(f"{folder / files.PREDICTIONS}: no row; no patient was predicted")
    return Opened(folder, run)


def _common_endpoints(a: Opened, b: Opened) -> list[Endpoint]:
    theirs = {endpoint.name: endpoint for endpoint in b.run.study.endpoints}
    common = [endpoint for endpoint in a.run.study.endpoints if endpoint.name in theirs]
    for endpoint in common:
        here, there = endpoint.labels, theirs[endpoint.name].labels
        if here != there:
            raise UsageError(f"endpoint {endpoint.name} is {here} in {a.folder} and {there} in {b.folder}")
    if not common:
        raise UsageError(
            f"{a.folder} and {b.folder} have no endpoint in common: {', '.join(e.name for e in a.run.study.endpoints)} in the "
            f"first, {', '.join(theirs)} in the second"
        )
    return common


def _rows(a: Opened, b: Opened, endpoint: Endpoint) -> list[Rows]:
    paired_rows = []
    for model in (name for name in a.models if name in b.models):
        ours, theirs = _common([known_rows(opened.run.predictions, endpoint, model) for opened in (a, b)])
        if len(ours):
            _refuse_other_labels(endpoint, a, b, ours, theirs)
            paired_rows.append(Rows(model, ours, theirs))
    return paired_rows


def _common(tables: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Each table's rows of the patients that are in every repeat of both, by repeat and patient."""
    repeats = [rows.groupby("patient").repeat.nunique() for rows in tables]
    always = [set(count.index[count == rows.repeat.nunique()]) for count, rows in zip(repeats, tables, strict=True)]
    everywhere = set.intersection(*always)
    return [rows.loc[rows.patient.isin(everywhere)].sort_values(["repeat", "patient"]).reset_index(drop=True) for rows in tables]


def _refuse_other_labels(endpoint: Endpoint, a: Opened, b: Opened, ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """Raise UsageError that names the first patient whose label differs between the runs."""
    columns = [column for column in (*labels(endpoint).label_columns, "competing") if column in ours]
    people, other = ours.drop_duplicates("patient"), theirs.drop_duplicates("patient")  # both in order of patients
    here, there = (table[columns].to_numpy(dtype=float) for table in (people, other))
    differing = np.flatnonzero((here != there).any(axis=1)).tolist()
    if differing:
        first = differing[0]
        patient = people.patient.iloc[first]
        each = [", ".join(f"{name} {value:g}" for name, value in zip(columns, row[first], strict=True)) for row in (here, there)]
        more = f" ({len(differing)} such patients)" if len(differing) > 1 else ""
        raise UsageError(
            f"patient {patient}, endpoint {endpoint.name}: {each[0]} in {a.folder}, {each[1]} in {b.folder}{more}; runs with "
            "different labels cannot be compared"
        )
