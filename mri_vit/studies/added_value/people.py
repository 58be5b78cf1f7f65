"""Of whom it is asked whether a risk adds to covariates: a finished run in; patients with outcome, covariates and risks out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mri_vit.data import frozen
from mri_vit.data.cohort import Patient, visit_id
from mri_vit.data.covariates import clinical_columns, clinical_table
from mri_vit.errors import UsageError
from mri_vit.report.numbers import chance
from mri_vit.report.numbers.judged import flags, floats, has_folds, in_order, known_rows
from mri_vit.report.reading.run import OWN, Run, read
from mri_vit.settings.endpoint import DEFAULT_ENDPOINTS, Endpoint
from mri_vit.settings.recipe import INTENSITY, PERMUTED, SHUFFLED, VOLUME
from mri_vit.studies.added_value import cox
from mri_vit.studies.added_value.numbers import People, Scored, standardised

DEALT = 5  # folds for the Cox regressions' own coefficients where the run has none; Kohavi 1995: five or ten
MOST_MISSING = 0.5  # of the patients: a column that most of them lack would decide who is analysed
SIMPLER = (VOLUME, INTENSITY)  # controls that read the scans: the simplest explanations of a network's risk


@dataclass(frozen=True, eq=False)
class Asked:
    """A run's model and survival endpoint, and the covariates that its risk is held against.

    `table` has a row per visit id and a column per covariate; `sparse` are those that were not taken, with the reason; `repeats`
    and `folds` count those of the predictions.
    """

    run: Run
    endpoint: Endpoint
    model: str
    table: pd.DataFrame
    sparse: dict[str, str]
    rows: pd.DataFrame  # of the model, as `known_rows` gives them
    repeats: int
    folds: int
    inflated: float


@dataclass(frozen=True, eq=False)
class Taken:
    """The patients who are analysed, the covariates that are adjusted for, those left out with the reason, and who lacks one."""

    people: People
    adjusted: list[str]
    known: int  # patients with a risk and a known outcome
    lacking: dict[str, int]
    left_out: dict[str, str]


def asked(folder: Path, covariates: Sequence[str] | None = None, model: str = "", endpoint: str = "") -> Asked:
    """Read a run. Without names: the own model (else the first), the only survival endpoint, clinical columns and markers.

    Of these, columns that are missing in most of the patients are not taken; one that is named always is.

    Raises UsageError for a name that the run does not know.
    """
    run = read(folder)
    of = _endpoint(run, endpoint)
    models = in_order(sorted(set(run.predictions.loc[run.predictions.endpoint == of.name, "model"]) - set(PERMUTED)))
    chosen = model or next(iter(models), OWN)
    if chosen not in models:
        raise UsageError(f"{folder}: no risk of {of.name} by {chosen!r}; found {', '.join(models) or 'none'}")
    rows = known_rows(run, of, chosen)
    if not len(rows):
        raise UsageError(f"{folder}: nobody with a risk by {chosen} has a known {of.name}")
    table = _covariates(frozen.patients(folder, run.study), run, of, covariates)
    missing = {str(name): float(column.isna().mean()) for name, column in table.reindex(_visits(rows)).items()}
    sparse = [name for name, share in missing.items() if covariates is None and share > MOST_MISSING]
    return Asked(
        run=run,
        endpoint=of,
        model=chosen,
        table=table.drop(columns=sparse),
        sparse={name: f"is missing in {100 * missing[name]:.0f} % of the patients" for name in sparse},
        rows=rows,
        repeats=int(rows.repeat.nunique()),
        folds=int(rows.groupby("repeat").fold.nunique().max()),
        inflated=chance.inflation(rows, run.design if has_folds(rows) else "external"),
    )


def taken(of: Asked) -> Taken:
    """The patients with every covariate known, in numbers; nothing is imputed."""
    return _taken(of, of.rows, of.table)


def simpler(of: Asked) -> list[str]:
    """The controls that read the scans and have a risk of the endpoint."""
    return [control for control in SIMPLER if control != of.model and len(known_rows(of.run, of.endpoint, control))]


def beside(of: Asked, control: str) -> Taken:
    """The same patients with one more covariate: the control's out-of-fold risk, standardised as the network's is."""
    rows = known_rows(of.run, of.endpoint, control)
    risk = standardised(floats(rows.score), rows.groupby(["repeat", "fold"]).ngroup().to_numpy())
    mean = pd.Series(risk, index=pd.Index(_visits(rows))).groupby(level=0).mean()
    return _taken(of, of.rows, of.table.assign(**{f"risk by {control}": mean.reindex(of.table.index)}))


def permuted(of: Asked) -> Taken | None:
    """The patients of the control on permuted labels, with these and the risk that was learned from them; None without it."""
    rows = known_rows(of.run, of.endpoint, SHUFFLED)
    return _taken(of, rows, of.table) if of.model == OWN and len(rows) else None


def _endpoint(run: Run, name: str) -> Endpoint:
    of_survival = [endpoint for endpoint in run.study.endpoints if endpoint.kind == "survival"]
    chosen = [endpoint for endpoint in of_survival if name in ("", endpoint.name)]
    if len(chosen) != 1:
        found = ", ".join(endpoint.name for endpoint in of_survival) or "none"
        raise UsageError(f"study {run.study.name}: expected one survival endpoint{f' {name!r}' if name else ''}; found {found}")
    return chosen[0]


def _covariates(patients: Sequence[Patient], run: Run, endpoint: Endpoint, names: Sequence[str] | None) -> pd.DataFrame:
    """A row per visit id: numbers, or text for categories, missing where the cohort table has nothing."""
    clinical, labels = list(patients[0].clinical), list(patients[0].labels)
    there = [name for name in (*clinical, *labels) if name not in endpoint.columns]
    if names is None:
        own = [e.columns[0] for e in (*run.study.endpoints, *DEFAULT_ENDPOINTS) if e.kind == "binary"]
        markers = [name for name in dict.fromkeys(own) if name in there]
        names = [*clinical_columns(patients, run.study), *markers]
    unknown = [name for name in names if name not in there]
    if unknown:
        raise UsageError(f"no covariate {unknown[0]!r} in the run's cohort table; found {', '.join(there)}")
    names = list(dict.fromkeys(names))
    table = clinical_table(patients, [name for name in names if name in clinical])
    known = {name: [p.labels[name] for p in patients] for name in names if name in labels}
    return table.assign(**known).loc[:, names]


def _visits(rows: pd.DataFrame) -> list[str]:
    return [visit_id(patient, session) for patient, session in zip(rows.patient, rows.session, strict=True)]


def _taken(of: Asked, rows: pd.DataFrame, table: pd.DataFrame) -> Taken:
    rows = rows.assign(visit=_visits(rows))
    risks = rows.pivot(index="visit", columns="repeat", values="score").dropna().sort_index()  # who is in every repeat
    folds = rows.pivot(index="visit", columns="repeat", values="fold").reindex(risks.index)
    cells = table.reindex(risks.index)
    lacking = {str(name): int(column.isna().sum()) for name, column in cells.items() if column.isna().any()}
    cells = cells.dropna()
    if not len(cells):
        said = ", ".join(f"{name} of {count}" for name, count in lacking.items())
        raise UsageError(f"no patient of {len(risks)} has every covariate (missing: {said}); name fewer covariates")
    risks, folds = risks.loc[cells.index], folds.loc[cells.index]
    outcome = rows.drop_duplicates("visit").set_index("visit").loc[cells.index]
    columns, covariate, left_out = coded(cells)
    repeats = [_scored(of, floats(risks[repeat]), folds[repeat].to_numpy(int)) for repeat in risks]
    wrong = cox.dependent(columns, [one.network for one in repeats])
    columns, left_out = columns.drop(columns=list(wrong)), of.sparse | left_out | wrong
    if not columns.shape[1]:
        said = "; ".join(f"{name} {why}" for name, why in left_out.items()) or "the cohort table has none"
        raise UsageError(f"no covariate to adjust for: {said}; name others")
    return Taken(
        people=People(floats(outcome.time_days), flags(outcome.event), columns, repeats),
        adjusted=list(dict.fromkeys(covariate[name] for name in columns)),
        known=rows.visit.nunique(),
        lacking=lacking,
        left_out=left_out,
    )


def _scored(of: Asked, risk: np.ndarray, fold: np.ndarray) -> Scored:
    if len(np.unique(fold)) > 1:
        return Scored(risk, fold, fold)
    dealt = np.random.default_rng(of.run.study.seed).permutation(len(risk)) % DEALT
    return Scored(risk, fold, dealt)


def coded(cells: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str], dict[str, str]]:
    """Covariates in numbers, each column named by what its hazard ratio is of; the covariate of each; those left out and why.

    A number is divided by its standard deviation; of two values the higher is held against the lower, of several words each
    against the most frequent one.
    """
    columns: dict[str, np.ndarray] = {}
    covariate, left_out = {}, {}
    for name, column in cells.items():
        before = len(columns)
        counted = column.value_counts().sort_index(kind="stable").sort_values(ascending=False, kind="stable")
        levels = counted.index.tolist()  # the most frequent first
        if len(levels) < 2:
            left_out[str(name)] = f"is {_level(levels[0])} for all"
        elif column.dtype == float and len(levels) > 2:
            deviation = float(column.std())
            columns[f"{name}, per {deviation:.3g} (SD)"] = ((column - column.mean()) / deviation).to_numpy(float)
        else:
            reference = min(levels) if column.dtype == float else levels[0]
            for level in sorted(set(levels) - {reference}):
                columns[f"{name}: {_level(level)} vs {_level(reference)}"] = (column == level).to_numpy(float)
        covariate |= dict.fromkeys(list(columns)[before:], str(name))
    return pd.DataFrame(columns, index=cells.index), covariate, left_out


def _level(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
