"""Who is judged: predictions of visits and repeats in, one row per patient and repeat, or per patient, out.

Repeats and folds are counted from 0, as in `predictions.csv`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from mri_vit.kinds.kind import labels
from mri_vit.metrics import discrimination, intervals, survival
from mri_vit.metrics.calibration import smooth_calibration
from mri_vit.metrics.calibration_curve import Reliability
from mri_vit.metrics.survival import SurvivalCalibration
from mri_vit.report.schema.parts import OWN, CalibrationGroup, Estimate, Fold, Repeat, SmoothCurve
from mri_vit.settings.recipe import NOT_COMPARED
from mri_vit.settings.schema import Endpoint

# n is the number of rows

THRESHOLDS = np.arange(1, 100) / 100  # whole per cents: each is a choice of harm against benefit (Vickers & Elkin 2006)


def in_order(models: list[str]) -> list[str]:
    """The study's own model, its comparators by name, then the controls."""
    return sorted(set(models) - set(NOT_COMPARED), key=lambda name: (name != OWN, name)) + [
        name for name in NOT_COMPARED if name in models
    ]


def known_rows(predictions: pd.DataFrame, endpoint: Endpoint, model: str) -> pd.DataFrame:
    """One model's rows of a run's predictions, of patients whose label is known: a row for each patient and repeat.

    Scores are in `score`, labels in the columns of the endpoint's kind; see `Labels.known_rows`.
    """
    rows = predictions.loc[(predictions.endpoint == endpoint.name) & (predictions.model == model)]
    return labels(endpoint).known_rows(endpoint, rows)


def averaged(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per patient: scores averaged over the repeats, and `group`, the patients that one model scored.

    `group` is the fold of a single repeat. Over several repeats a mean score is no one model's, and all are of one group.
    """
    kept = {column: "first" for column in ("truth", "time_days", "event", "competing", "label", "fold") if column in rows}
    scores = {column: "mean" for column in rows if column == "score" or re.fullmatch(r"p\d+", column)}
    people = rows.groupby("patient", sort=True).agg({**scores, **kept}).reset_index()
    return people.assign(group=people.fold if rows.repeat.nunique() == 1 else 0).drop(columns="fold")


def first_repeat(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the first repeat, where a patient has one model and one threshold."""
    return rows.loc[rows.repeat == rows.repeat.min()]


def risk_groups(rows: pd.DataFrame) -> pd.DataFrame:
    """The first repeat's rows with `high`: risk at or above the threshold of the patient's fold, else above its median.

    The threshold was learned from the training fold. Where the table has none, the median of the test fold's own risks
    splits the patients (see `survival.high_risk`).
    """
    rows = first_repeat(rows)
    if has_cutoffs(rows):
        return rows.assign(high=rows.score >= rows.threshold)
    return rows.assign(high=survival.high_risk(floats(rows.score), fold_of(rows)))


def has_cutoffs(rows: pd.DataFrame) -> bool:
    """Whether every patient of the first repeat has a threshold from the training fold."""
    return bool(first_repeat(rows).threshold.notna().all())


def chances_alive(predicted: pd.DataFrame, endpoint: Endpoint, rows: pd.DataFrame) -> pd.DataFrame:
    """A run's predicted survival for the visits in `rows`: a row per patient, a column per horizon in days, means over repeats.

    Patients without a probability at every horizon are left out; so the table may be empty.
    """
    model = rows.model.iloc[0]
    table = predicted.loc[(predicted.endpoint == endpoint.name) & (predicted.model == model)]
    if not len(table):
        return pd.DataFrame(index=pd.Index([], dtype=str))
    table = table.astype({"horizon_days": float, "survival": float})
    table = table.merge(rows[["patient", "repeat", "session"]], on=["patient", "repeat", "session"])
    return table.pivot_table(index="patient", columns="horizon_days", values="survival", aggfunc="mean").dropna()


def rarer(endpoint: Endpoint, people: pd.DataFrame) -> int:
    """Patients of the rarer class, or deaths, of a table with a row per patient."""
    return labels(endpoint).count_rarer(labels(endpoint).arrays(people)[0])


def has_folds(rows: pd.DataFrame) -> bool:
    """Whether any repeat has more than one fold; else figures within a fold, or over the folds, say nothing of their own."""
    return bool((rows.groupby("repeat").fold.nunique() > 1).any())


def by_fold(rows: pd.DataFrame) -> Iterator[tuple[int, int, pd.DataFrame]]:
    """(repeat, fold, its rows), in order."""
    for repeat, fold in sorted(set(zip(rows.repeat.astype(int), rows.fold.astype(int), strict=True))):
        yield repeat, fold, rows.loc[(rows.repeat == repeat) & (rows.fold == fold)]


def fold_of(rows: pd.DataFrame) -> Int[np.ndarray, " n"]:
    """One number per (repeat, fold): the patients that one model scored."""
    return rows.groupby(["repeat", "fold"]).ngroup().to_numpy()


@dataclass(frozen=True)
class FoldSummary:
    """Fields of a result about its folds; mean and sample variance are NaN where no repeat has more than one fold."""

    fold_mean: float
    fold_variance: float
    undefined_folds: int
    tied_folds: int  # in which all scores are equal
    repeats: tuple[Repeat, ...]


def fold_summary(folds: Sequence[Fold], figures: Sequence[float]) -> FoldSummary:
    """Folds put together, by the figure of each."""
    values = np.array(figures, dtype=float)
    repeats = np.array([fold.repeat for fold in folds])
    mean, variance = discrimination.mean_and_sample_variance(values)
    by_repeat = []
    for repeat in np.unique(repeats):
        repeat_mean, repeat_variance = discrimination.mean_and_sample_variance(values[repeats == repeat])
        by_repeat.append(Repeat(repeat=int(repeat), fold_mean=repeat_mean, fold_variance=repeat_variance))
    several = len(folds) > len(by_repeat)
    return FoldSummary(
        fold_mean=mean if several else math.nan,
        fold_variance=variance if several else math.nan,
        undefined_folds=int(np.isnan(values).sum()),
        tied_folds=sum(fold.tied for fold in folds),
        repeats=tuple(by_repeat),
    )


def tied(score: Float[np.ndarray, " n"]) -> bool:
    """Whether several patients all have the same score: an AUC or C of 0.5 is then that of ties and not of a wrong order."""
    return len(score) > 1 and bool((score == score[0]).all())


def outside(score: Float[np.ndarray, " n"]) -> int:
    """How many scores lie outside 0 to 1, so that scores are no probabilities."""
    return int(((score < 0) | (score > 1)).sum())


def flags(column: pd.Series) -> Bool[np.ndarray, " n"]:
    return column.to_numpy(dtype=bool)


def floats(column: pd.Series) -> Float[np.ndarray, " n"]:
    return column.to_numpy(dtype=float)


@dataclass(frozen=True)
class Outcome:
    """What became of n patients, and the risk that a model gave them; `other` is None where no competing event is declared."""

    time_days: Float[np.ndarray, " n"]
    event: Bool[np.ndarray, " n"]
    risk: Float[np.ndarray, " n"]
    other: Bool[np.ndarray, " n"] | None


def outcome(people: pd.DataFrame) -> Outcome:
    """Times, events and risks of the rows of a table, as arrays."""
    return Outcome(floats(people.time_days), flags(people.event), floats(people.score), competing(people))


def competing(people: pd.DataFrame) -> Bool[np.ndarray, " n"] | None:
    """Who had the competing event; None where none is declared."""
    return flags(people.competing) if "competing" in people else None


def others(people: pd.DataFrame) -> int | None:
    """How many had the competing event; None where none is declared."""
    return int(people.competing.sum()) if "competing" in people else None


def widened(
    value: float, ends: tuple[float, float], inflated: float, least: float = -math.inf, most: float = math.inf
) -> dict[str, float]:
    """Fields of an estimate, its interval `inflated` times as wide (see `intervals.widened`) and within `least` and `most`."""
    low, high = np.minimum(ends[:1], value), np.maximum(ends[1:], value)  # percentiles of few draws may leave it out
    low, high = intervals.widened(np.array([value]), low, high, inflated)
    return {"value": value, "low": float(low.clip(least)[0]), "high": float(high.clip(None, most)[0])}


def smooth(observed: Float[np.ndarray, " n"], probability: Float[np.ndarray, " n"], seed: int, inflated: float) -> dict[str, Any]:
    """Fields of a result about its smooth calibration curve (see `calibration.smooth_calibration`); empty without a patient."""
    found = smooth_calibration(observed, probability, np.random.default_rng(seed), inflated)
    if not found:
        return {}
    distances = {"ici": found.ici, "e50": found.e50, "e90": found.e90}
    fields: dict[str, Any] = {key: Estimate(value=value, low=low, high=high) for key, (value, low, high) in distances.items()}
    columns = {name: tuple(getattr(found, name).tolist()) for name in SmoothCurve.model_fields}
    return fields | {"curve": SmoothCurve(**columns)}


def calibration_groups(found: Reliability | SurvivalCalibration) -> tuple[CalibrationGroup, ...]:
    """The points of a calibration curve."""
    columns = (column.tolist() for column in (found.predicted, found.observed, found.low, found.high, found.n))
    return tuple(
        CalibrationGroup(predicted=predicted, observed=observed, low=low, high=high, n=n)
        for predicted, observed, low, high, n in zip(*columns, strict=True)
    )
