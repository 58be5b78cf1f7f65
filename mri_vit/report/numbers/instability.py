"""A model's predictions of the same patients by several trainings: how far they move, and how often a call changes.

Trainings are repeats, which differ in folds and seeds, or the networks of a fold that differ in their seed alone.
Letters: b trainings, n patients, k numbers of a prediction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from mri_vit.kinds.kind import labels
from mri_vit.metrics import instability
from mri_vit.report.numbers import measures
from mri_vit.report.numbers.judged import risk_groups
from mri_vit.report.numbers.prediction_sets import Absent, Sets
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.instability import Retrained, Scale
from mri_vit.report.schema.patients import Patient, PatientResult
from mri_vit.settings.schema import Endpoint

YEAR_DAYS = 365.0  # the horizon of survival whose probability is followed
MAX_DAYS_OFF = 46.0  # half a quarter year, by which the package's horizons lie apart
GROUPS = {"binary": ("negative", "positive"), "survival": ("low risk", "high risk")}


@dataclass(frozen=True, eq=False)
class Trainings:
    """Predictions of n patients by b trainings."""

    source: Literal["repeats", "seeds"]
    patients: list[str]
    predicted: Float[np.ndarray, "b n k"]
    called: Int[np.ndarray, "b n"] | None  # None where patients are called nothing
    names: tuple[str, ...]  # of what they are called
    scale: Scale
    days: float = math.nan


@dataclass(frozen=True)
class InstabilityFigures:
    """An `Instability` without words."""

    source: Literal["repeats", "seeds"]
    trainings: int
    n: int
    scale: Scale
    days: float
    unit: str
    mape: float
    median: float
    ninth_decile: float
    at_random: float
    rank_agreement: float
    disagreement: float
    disagreement_at_random: float
    divided: int | None
    relative_error: float


def trainings(run: Run, endpoint: Endpoint, model: str) -> list[Trainings]:
    """By repeats, then by seeds of the first repeat; none of what was trained once."""
    rows = run.predictions.loc[(run.predictions.endpoint == endpoint.name) & (run.predictions.model == model)]
    found = [_trainings(run, endpoint, rows.assign(training=rows.repeat), "repeats")] if rows.repeat.nunique() > 1 else []
    seeds = run.seeds.loc[(run.seeds.endpoint == endpoint.name) & (run.seeds.model == model)]
    seeds = seeds.loc[seeds.repeat == seeds.repeat.min()]
    if seeds.seed.nunique() > 1:
        keys = ["repeat", "fold", "patient", "session", "class"]
        seeds = seeds.merge(rows.drop(columns=["model", "endpoint", "score"]), on=keys)
        found.append(_trainings(run, endpoint, seeds.assign(training=seeds.seed), "seeds"))
    return [one for one in found if one]


def _trainings(run: Run, endpoint: Endpoint, rows: pd.DataFrame, source: Literal["repeats", "seeds"]) -> Trainings | None:
    """Of patients that every training predicted; None without any."""
    table = _one_row_each(endpoint, rows)
    scores = [column for column in table if re.fullmatch(r"p\d+", str(column))] or ["score"]
    scale, days = _scale(endpoint, table), math.nan
    if endpoint.kind == "survival" and (year := _year(run, table) if source == "repeats" else None):
        scale, days, scores, table["shown"] = "survival", year[1], ["shown"], year[0]
    elif endpoint.kind == "survival":
        of_fold = table.groupby(["training", "fold"]).score
        scale, scores, table["shown"] = "rank", ["shown"], (of_fold.rank() - 0.5) / of_fold.transform("size")
    count = table.training.nunique()
    table = table.dropna(subset=scores)
    table = table.loc[table.groupby("patient").training.transform("size") == count].sort_values(["training", "patient"])
    if not len(table):
        return None
    called = _called(endpoint, table)
    return Trainings(
        source=source,
        patients=table.patient.iloc[: len(table) // count].tolist(),
        predicted=table[scores].to_numpy(float).reshape(count, -1, len(scores)),
        called=None if called is None else called.reshape(count, -1),
        names=endpoint.classes or GROUPS.get(endpoint.kind, ()),
        scale=scale,
        days=days,
    )


def _one_row_each(endpoint: Endpoint, rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each training and patient: of survival the visit whose time is counted, else the mean over visits."""
    rows = rows.astype({"score": float, "threshold": float})
    patient = ["training", "fold", "patient"]
    if labels(endpoint).of_visit:
        first = rows.assign(unknown=rows.time_days.isna()).sort_values("unknown", kind="stable")
        return first.drop_duplicates(["training", "patient"]).reset_index(drop=True)
    thresholds = rows.groupby(["training", "fold"]).threshold.first().reset_index()
    return labels(endpoint).scores_by(endpoint, rows, patient).reset_index().merge(thresholds, on=["training", "fold"])


def _scale(endpoint: Endpoint, table: pd.DataFrame) -> Scale:
    if endpoint.kind == "continuous":
        return "number"
    inside = table.filter(regex=r"^(score|p\d+)$") if endpoint.kind == "binary" else table.filter(regex=r"^p\d+$")
    return "probability" if ((inside >= 0) & (inside <= 1)).all(axis=None) else "score"


def _year(run: Run, table: pd.DataFrame) -> tuple[pd.Series, float] | None:
    """The probability to be alive next to a year, in the order of the table, and its day; None where it was not predicted."""
    own = run.survival.loc[(run.survival.endpoint == table.endpoint.iloc[0]) & (run.survival.model == table.model.iloc[0])]
    own = own.astype({"horizon_days": float, "survival": float})
    days = min(own.horizon_days.unique(), key=lambda day: abs(day - YEAR_DAYS), default=math.inf)
    if abs(days - YEAR_DAYS) > MAX_DAYS_OFF:
        return None
    keys = ["repeat", "patient", "session"]
    return table[keys].merge(own.loc[own.horizon_days == days], on=keys, how="left").survival, float(days)


def _called(endpoint: Endpoint, table: pd.DataFrame) -> Int[np.ndarray, " rows"] | None:
    """At the fold's threshold; of survival the risk group; of classes as the report calls them."""
    if endpoint.classes:
        return measures.of(endpoint).called(table)  # type: ignore[attr-defined]  # of classes
    if endpoint.kind == "survival":
        return np.concatenate([risk_groups(here).high.to_numpy(int) for _, here in table.groupby("training")])
    if endpoint.kind != "binary" or table.threshold.isna().any():
        return None
    return (table.score >= table.threshold).to_numpy(int)


def figures(endpoint: Endpoint, of: Trainings, seed: int) -> InstabilityFigures:
    """What a report says of them."""
    change = instability.change(of.predicted)
    if of.called is None:
        called, divided = (math.nan, math.nan), None
    else:
        disagreement = instability.disagreement(of.called)
        called = float(disagreement.mean()), instability.disagreement_at_random(of.called)
        divided = int((disagreement > 0).sum())
    return InstabilityFigures(
        source=of.source,
        trainings=len(of.predicted),
        n=len(of.patients),
        scale=of.scale,
        days=of.days,
        unit=endpoint.unit or "",
        mape=float(change.mean()),
        median=float(np.median(change)),
        ninth_decile=float(np.quantile(change, 0.9)),
        at_random=instability.change_at_random(of.predicted, np.random.default_rng(seed)),
        rank_agreement=float(np.mean([instability.rank_agreement(column) for column in np.moveaxis(of.predicted, 2, 0)])),
        disagreement=called[0],
        disagreement_at_random=called[1],
        divided=divided,
        relative_error=instability.relative_error(len(of.predicted)),
    )


def of_patients(of: Trainings) -> Mapping[str, Retrained]:
    """Each patient's range, of classes that of the probability of the class that most trainings call, and how many call so."""
    count, n, k = of.predicted.shape
    called = np.zeros(n, int) if of.called is None else instability.votes(of.called).argmax(axis=1)
    shown = of.predicted[:, np.arange(n), called if k > 1 else np.zeros(n, int)]
    alike = np.full(n, count) if of.called is None else (of.called == called).sum(axis=0)
    low, high = shown.min(axis=0).tolist(), shown.max(axis=0).tolist()
    names = [""] * n if of.called is None else [of.names[call] for call in called]
    return {
        patient: Retrained(trainings=count, low=low[i], high=high[i], called=names[i], alike=int(alike[i]))
        for i, patient in enumerate(of.patients)
    }


def beside(
    people: Sequence[Patient],
    models: Mapping[str, str],
    retrained: Mapping[str, Mapping[str, Sequence[Trainings]]],
    sets: Mapping[str, Mapping[str, Sets | Absent]],
) -> tuple[Patient, ...]:
    """The patients with their retrainings and sets, by endpoint those of the model whose scores they have."""
    ranges = {name: of_patients(found[0]) for name, of in retrained.items() if (found := of.get(models.get(name, "")))}
    answers = {name: one.patients for name, of in sets.items() if isinstance(one := of.get(models.get(name, "")), Sets)}

    def added(name: str, patient: str, result: PatientResult) -> PatientResult:
        found = {"retrained": ranges.get(name, {}).get(patient), "answer": answers.get(name, {}).get(patient)}
        return result.model_copy(update=found)

    return tuple(
        one.model_copy(update={"endpoints": {name: added(name, one.patient, of) for name, of in one.endpoints.items()}})
        for one in people
    )
