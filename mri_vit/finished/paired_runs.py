"""Paired runs: two folders in; two finished runs that can be compared, and in what they differ beside predictions, out.

Comparable are cross-validated runs and evaluations on another cohort, in any pair, as long as they share patients whose labels
agree. A patient is the same person in both where the id is the same. Runs may differ in settings, software, patients, names and
costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from mri_vit.errors import UsageError
from mri_vit.finished.comparison_document import Alone, Cost, Costs, Patients, Setting, Side
from mri_vit.report.numbers import results
from mri_vit.report.numbers.judged import in_order, known_rows
from mri_vit.report.reading.run import Run, read_run
from mri_vit.report.schema.metrics import Environment
from mri_vit.report.words.notation import is_defined
from mri_vit.run import files, integrity
from mri_vit.run.folder import FREE
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.recipe import PERMUTED
from mri_vit.settings.schema import Endpoint, Study

LABELS = {"binary": ("truth",), "survival": ("time_days", "event")}  # columns of what is known of a patient, by kind
OF_THE_MACHINE = ("cohort", "prepared", "output")  # paths, of which the patients' own section says what matters
SAID_ABOVE = "name"  # at the head of the page
FILES = ("model.weights", "qc.decisions", "prepare.brain_command", "prepare.tumour_command")  # of paths, the file's name alone


@dataclass(frozen=True)
class Opened:
    """A run and where it lies."""

    folder: Path
    run: Run

    @property
    def people(self) -> set[str]:
        """The patients with a prediction."""
        return set(self.run.predictions.patient)

    @property
    def models(self) -> list[str]:
        """Models that can be compared, in the report's order: those on permuted labels predict nobody's truth."""
        return [model for model in in_order(self.run.predictions.model.unique().tolist()) if model not in PERMUTED]

    @property
    def scans(self) -> Mapping[tuple[str, str], str] | None:
        """SHA-256 of the scan files that training rests on, by visit and sequence; None where they are not written down."""
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
        A folder holds no finished run; the runs share no patient, no endpoint or no known label, or an endpoint is not of the
        same kind in both; or the labels of a common patient differ.
    IntegrityError
        A file of a run was changed after it was written.
    """
    return paired(_opened(a, console), _opened(b, console))


def paired(a: Opened, b: Opened) -> Runs:
    """The two runs with their common rows. Raises UsageError as `read_both` does."""
    if not a.people & b.people:
        raise UsageError(
            f"{a.folder} and {b.folder} have no patient in common (such as {min(a.people)} and {min(b.people)}); two runs are "
            "compared on the patients that both predicted"
        )
    endpoints = _common_endpoints(a, b)
    rows = {endpoint.name: _rows(a, b, endpoint) for endpoint in endpoints}
    if not any(rows.values()):
        raise UsageError(
            f"{a.folder} and {b.folder} have {len(a.people & b.people)} patients in common, but no model that both have "
            f"predicted one of them whose label is known ({', '.join(rows)})"
        )
    return Runs(a, b, endpoints, rows)


def _opened(folder: Path, console: Console) -> Opened:
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; expected the folder of a finished run")
    evaluated = (folder / files.EVALUATION).is_file()
    needed = (files.STUDY, files.ENVIRONMENT, files.COHORT, files.PREDICTIONS, *(() if evaluated else (files.FOLDS,)))
    if lacking := [name for name in needed if not (folder / name).is_file()]:
        raise UsageError(
            f"{folder}: no {lacking[0]}; a run can be compared once `mri-vit train`, or `mri-vit evaluate` on another cohort, "
            "is done"
        )
    integrity.refuse_changed_run(folder, console, names=integrity.TABLES)
    run = read_run(folder)
    if not len(run.predictions):
        raise UsageError(f"{folder / files.PREDICTIONS}: no row; nobody was predicted")
    return Opened(folder, run)


def _common_endpoints(a: Opened, b: Opened) -> list[Endpoint]:
    theirs = {endpoint.name: endpoint for endpoint in b.run.study.endpoints}
    common = [endpoint for endpoint in a.run.study.endpoints if endpoint.name in theirs]
    for endpoint in common:
        kind = theirs[endpoint.name].kind
        if kind != endpoint.kind:
            raise UsageError(f"endpoint {endpoint.name} is {endpoint.kind} in {a.folder} and {kind} in {b.folder}")
    if not common:
        raise UsageError(
            f"{a.folder} and {b.folder} have no endpoint in common: {', '.join(e.name for e in a.run.study.endpoints)} there, "
            f"{', '.join(theirs)} here"
        )
    return common


def _rows(a: Opened, b: Opened, endpoint: Endpoint) -> list[Rows]:
    found = []
    for model in (name for name in a.models if name in b.models):
        ours, theirs = _common([known_rows(opened.run, endpoint, model) for opened in (a, b)])
        if len(ours):
            _refuse_other_labels(endpoint, a, b, ours, theirs)
            found.append(Rows(model, ours, theirs))
    return found


def _common(tables: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Each table's rows of the patients that are in every repeat of both, by repeat and patient."""
    seen = [rows.groupby("patient").repeat.nunique() for rows in tables]
    always = [set(count.index[count == rows.repeat.nunique()]) for count, rows in zip(seen, tables, strict=True)]
    everywhere = set.intersection(*always)
    return [rows.loc[rows.patient.isin(everywhere)].sort_values(["repeat", "patient"]).reset_index(drop=True) for rows in tables]


def _refuse_other_labels(endpoint: Endpoint, a: Opened, b: Opened, ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """Raise UsageError that names the first patient whose label is another one in the other run."""
    columns = list(LABELS[endpoint.kind])
    people, other = ours.drop_duplicates("patient"), theirs.drop_duplicates("patient")  # both in order of patients
    here, there = (table[columns].to_numpy(dtype=float) for table in (people, other))
    differing = np.flatnonzero((here != there).any(axis=1)).tolist()
    if differing:
        first = differing[0]
        patient = people.patient.iloc[first]
        said = [", ".join(f"{name} {value:g}" for name, value in zip(columns, row[first], strict=True)) for row in (here, there)]
        more = f" ({len(differing)} such patients)" if len(differing) > 1 else ""
        raise UsageError(
            f"patient {patient}, endpoint {endpoint.name}: {said[0]} in {a.folder}, {said[1]} in {b.folder}{more}; runs whose "
            "labels differ cannot be compared"
        )


def sides(runs: Runs) -> tuple[Side, Side]:
    """What each run is, under a name of its own."""
    both = (runs.a, runs.b)
    studies = [opened.run.study.name for opened in both]
    folders = [opened.folder.resolve().name for opened in both]
    names = next((pair for pair in (studies, folders) if len(set(pair)) == 2), [f"{studies[0]} (A)", f"{studies[1]} (B)"])
    a, b = (_side(opened, name) for opened, name in zip(both, names, strict=True))
    return a, b


def settings(runs: Runs) -> tuple[Setting, ...]:
    """Every key of the study files that differs, defaults filled in; those first on which a prediction can depend."""
    a, b = (dict(_flat(_plain(opened.run.study))) for opened in (runs.a, runs.b))
    found = _differing(a, b)
    return tuple(sorted(found, key=lambda one: not one.decides))  # the order of the study file otherwise


def versions(runs: Runs) -> tuple[Setting, ...]:
    """Software, device and threads that differ."""
    a, b = (_made_with(opened) for opened in (runs.a, runs.b))
    return tuple(_differing(a, b))


def patients(runs: Runs) -> Patients:
    """Who is in both runs, and who in one alone."""
    a, b = runs.a.people, runs.b.people
    ours, theirs = runs.a.scans, runs.b.scans
    other = None
    if ours is not None and theirs is not None:
        other = tuple(sorted({scan[0] for scan in ours.keys() & theirs.keys() if ours[scan] != theirs[scan]}))
    return Patients(both=len(a & b), a_alone=tuple(sorted(a - b)), b_alone=tuple(sorted(b - a)), other_scans=other)


def endpoints_alone(runs: Runs) -> Alone:
    """Endpoints of one run."""
    a, b = ([endpoint.name for endpoint in opened.run.study.endpoints] for opened in (runs.a, runs.b))
    return _alone(a, b)


def models_alone(runs: Runs) -> Alone:
    """Models of one run."""
    return _alone(runs.a.models, runs.b.models)


def costs(runs: Runs) -> dict[str, Costs]:
    """What each model that both runs have costs, where both have written any of it down."""
    found = {}
    for model in (name for name in runs.a.models if name in runs.b.models):
        a, b = (Cost.model_validate(vars(results.costs(opened.run, model))) for opened in (runs.a, runs.b))
        if any(is_defined(getattr(a, name)) and is_defined(getattr(b, name)) for name in Cost.model_fields):
            found[model] = Costs(a=a, b=b)
    return found


def _side(opened: Opened, name: str) -> Side:
    run = opened.run
    environment = run.environment
    known = isinstance(environment, Environment)
    return Side(
        name=name,
        study=run.study.name,
        folder=opened.folder.resolve().name,
        design=run.design,
        patients=len(opened.people),
        folds=int(run.predictions.fold.nunique()),
        repeats=int(run.predictions.repeat.nunique()),
        folds_sha256=run.folds_sha256,
        device=environment.device if known else "",
        started=environment.started if known else "",
    )


def _plain(study: Study) -> dict[str, Any]:
    """The settings as JSON has them: the network's width and depth in numbers, paths as file names, lists of tables by name."""
    plain = study.model_dump(mode="json", exclude={*OF_THE_MACHINE, SAID_ABOVE})
    plain["model"] |= dict(zip(("dim", "depth", "heads", "mlp"), study.model.shape, strict=True))
    if study.pretrain.method == "none":  # what did not happen has no settings
        plain["pretrain"] = {"method": "none"}
    for table in ("endpoints", "comparators"):
        plain[table] = {one["name"]: {key: value for key, value in one.items() if key != "name"} for one in plain[table]}
    return plain


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values; an empty table, such as a comparator without keys of its own, is a value."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{key}.")
        else:
            yield key, _file_name(value) if key in FILES or key.endswith(".weights") else value


def _file_name(value: Any) -> Any:
    if isinstance(value, list):
        return [_file_name(one) for one in value]
    return Path(value).name if isinstance(value, str) else value


def _made_with(opened: Opened) -> dict[str, Any]:
    environment = opened.run.environment
    if not isinstance(environment, Environment):
        return {}
    facts = {"git commit": environment.git_commit, "device": environment.device, "threads": environment.threads}
    return {**environment.versions, **facts}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Setting]:
    keys = [*a, *(key for key in b if key not in a)]
    return [Setting(key=key, a=a.get(key), b=b.get(key), decides=_decides(key)) for key in keys if a.get(key) != b.get(key)]


def _decides(key: str) -> bool:
    return key not in FREE and key.partition(".")[0] not in FREE


def _alone(a: list[str], b: list[str]) -> Alone:
    return Alone(a=tuple(name for name in a if name not in b), b=tuple(name for name in b if name not in a))
