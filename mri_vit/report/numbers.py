"""Every number of the report: a run in, the content of `metrics.json` out. Undefined is NaN here and null in the file.

Repeats and folds are counted from 0, as in `predictions.csv`; the page counts them from 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mri_vit.config import Endpoint, Study
from mri_vit.metrics import discrimination, survival
from mri_vit.report.run import Run

SCHEMA = 1
CHANCE = 0.5  # AUC and concordance of a model that knows nothing
Z_95 = 1.96  # two-sided 95 % of a normal distribution
FEWEST_DEATHS = 5  # a perfect order of d deaths has a chance of 1/d!; five are the fewest with less than 2.5 %

TICK_STEPS_DAYS = (30, 60, 90, 180, 365, 730, 1825)  # months and years, as survival is read
MOST_TICKS = 7  # more columns of numbers at risk than this run into each other at a figure's width

# For honest reading; each with its source.
PUBLISHED: Mapping[str, tuple[dict[str, str], ...]] = {
    "mgmt": (
        {
            "figure": "AUC 0.6309",
            "what": "best of 35 models (EfficientNet-b1), BraTS 2021, mean of 5 folds",
            "source": "Saeed et al. 2023, Medical Image Analysis, Table 4",
        },
        {
            "figure": "AUC 0.5698",
            "what": "SwinViT, same patients and folds",
            "source": "Saeed et al. 2023, Medical Image Analysis, Table 4",
        },
        {
            "figure": "AUC 0.5491",
            "what": "ViT, same patients and folds",
            "source": "Saeed et al. 2023, Medical Image Analysis, Table 4",
        },
        {
            "figure": "AUC 0.562",
            "what": "the challenge's winner on patients from elsewhere; 60 % of 420 models were no better than chance",
            "source": "Kim et al. 2022",
        },
    ),
    "tertp": (
        {"figure": "AUC about 0.79", "what": "pooled over 14 studies, internal validation", "source": "published meta-analysis"},
    ),
    "pten": ({"figure": "AUC 0.79", "what": "radiomics, external validation", "source": "trained on TCGA, tested on CGGA"},),
    "os": (
        {
            "figure": "C 0.65–0.71",
            "what": "from images alone, internal validation",
            "source": "Lee et al. 2023; a ViT study of 2026",
        },
        {
            "figure": "C 0.60–0.68",
            "what": "from images alone, external validation",
            "source": "Lee et al. 2023; a ViT study of 2026",
        },
    ),
}


def measure(run: Run) -> dict[str, Any]:
    """Compute all that the report shows, from the predictions and labels alone."""
    excluded = set(run.excluded.patient)
    predicted = set(run.predictions.patient)
    return {
        "schema": SCHEMA,
        "study": run.study.name,
        "seed": run.study.seed,
        "cohort": {
            "patients": len(run.patients),
            "excluded": len(excluded),
            "predicted": len(predicted),
            "unpredicted": len(run.patients - excluded - predicted),
            "known": {endpoint.name: _known(run.cohort, endpoint) for endpoint in run.study.endpoints},
        },
        "folds": run.study.train.folds,
        "repeats": run.study.train.repeats,
        "folds_sha256": run.folds_sha256,
        "endpoints": {endpoint.name: _endpoint(run, endpoint) for endpoint in run.study.endpoints},
        "maps": [
            {
                "patient": shown.patient,
                **{key: shown.facts.get(key) for key in ("model", "repeat", "fold", "peak", "unit", "note")},
            }
            for shown in run.maps
        ],
        "settings": _settings(run.study),
        "environment": dict(run.environment),
    }


def verdict(estimate: Mapping[str, float], enough: bool) -> str:
    """A result in a few plain words: does the 95 % interval exclude 0.5?

    `enough` decides alone where the interval has no width (not one error), because such an interval says nothing of how
    few the patients were.
    """
    value, low, high = estimate["value"], estimate["low"], estimate["high"]
    if any(math.isnan(number) for number in (value, low, high)):
        return "cannot be judged: too few patients"
    if (low == high and not enough) or low <= CHANCE <= high:
        return "not distinguishable from chance"
    return "better than chance" if value > CHANCE else "worse than chance"


def known_rows(run: Run, endpoint: Endpoint, model: str) -> pd.DataFrame:
    """One model's predictions of patients whose label is known, with `truth` or (`time_days`, `event`) ready to use."""
    rows = run.predictions.query("endpoint == @endpoint.name and model == @model")
    labels = ["truth"] if endpoint.kind == "binary" else ["time_days", "event"]
    rows = rows.dropna(subset=labels)
    flag = labels[-1]
    return rows.astype({flag: float, "score": float}).assign(**{flag: rows[flag].astype(float) == 1})


def averaged(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per patient: scores averaged over the repeats."""
    labels = {column: "first" for column in ("truth", "time_days", "event")}
    return rows.groupby("patient", sort=True).agg({"score": "mean", **labels}).reset_index()


def first_repeat_groups(rows: pd.DataFrame) -> pd.DataFrame:
    """The first repeat's rows with `high`: risk above the median of the patient's own test fold."""
    rows = rows.loc[rows.repeat == rows.repeat.min()]
    return rows.assign(high=survival.high_risk(_floats(rows.score), _fold_of(rows)))


def risk_ticks(longest_days: float) -> list[int]:
    """Days at which the numbers at risk are given: from 0 in the finest step that leaves them room."""
    step = next((step for step in TICK_STEPS_DAYS if longest_days / step < MOST_TICKS - 1), None)
    step = step or math.ceil(longest_days / (MOST_TICKS - 1))
    return list(range(0, int(longest_days) + 1, step))


def _known(cohort: pd.DataFrame, endpoint: Endpoint) -> int:
    columns = [column for column in endpoint.columns if column in cohort.columns]
    if len(columns) < len(endpoint.columns):
        return 0
    return int(np.all([cohort[column].str.strip() != "" for column in columns], axis=0).sum())


def _endpoint(run: Run, endpoint: Endpoint) -> dict[str, Any]:
    asked = run.predictions[run.predictions.endpoint == endpoint.name]
    tables = {model: known_rows(run, endpoint, model) for model in sorted(asked.model.unique())}
    tables = {model: rows for model, rows in tables.items() if len(rows)}
    flag = "truth" if endpoint.kind == "binary" else "event"
    labels = pd.concat(list(tables.values()) or [asked.iloc[:0]]).drop_duplicates("patient")
    measure_model = _binary if endpoint.kind == "binary" else _survival
    return {
        "kind": endpoint.kind,
        "known": len(labels),
        "positive" if endpoint.kind == "binary" else "events": int(labels[flag].sum()) if len(labels) else 0,
        "published": list(PUBLISHED.get(endpoint.name, ())),
        "models": {model: measure_model(run, rows) for model, rows in tables.items()},
    }


def _binary(run: Run, rows: pd.DataFrame) -> dict[str, Any]:
    pooled = averaged(rows)
    truth, score = _flags(pooled.truth), _floats(pooled.score)
    low, high = discrimination.delong_interval(truth, score)
    estimate = {"value": discrimination.auc(truth, score), "low": low, "high": high}
    chance = discrimination.chance_error(int(truth.sum()), int((~truth).sum()))
    folds = []
    for repeat, fold, here in _by_fold(rows):
        positives = int(here.truth.sum())
        folds.append(
            {
                "repeat": repeat,
                "fold": fold,
                "n": len(here),
                "positive": positives,
                "auc": discrimination.auc(_flags(here.truth), _floats(here.score)),
                "chance_error": discrimination.chance_error(positives, len(here) - positives),
            }
        )
    within = discrimination.auc_within(_flags(rows.truth), _floats(rows.score), _fold_of(rows))
    return {
        "n": len(pooled),
        "positive": int(truth.sum()),
        "auc": estimate,
        "auc_within_folds": {"value": within},
        "chance_error": chance,
        "verdict": verdict(estimate, enough=abs(estimate["value"] - CHANCE) > Z_95 * chance),
        "folds": folds,
        **_fold_summary(folds, "auc"),
    }


def _survival(run: Run, rows: pd.DataFrame) -> dict[str, Any]:
    pooled = averaged(rows)
    time_days, event, risk = _floats(pooled.time_days), _flags(pooled.event), _floats(pooled.score)
    # The same resamples for every model, so that their intervals differ by the models alone.
    low, high = survival.harrell_interval(time_days, event, risk, np.random.default_rng(run.study.seed))
    estimate = {"value": survival.harrell_c(time_days, event, risk), "low": low, "high": high}
    folds = [
        {
            "repeat": repeat,
            "fold": fold,
            "n": len(here),
            "events": int(here.event.sum()),
            "harrell_c": survival.harrell_c(_floats(here.time_days), _flags(here.event), _floats(here.score)),
        }
        for repeat, fold, here in _by_fold(rows)
    ]
    within = survival.harrell_c_within(_floats(rows.time_days), _flags(rows.event), _floats(rows.score), _fold_of(rows))
    grouped = first_repeat_groups(rows)
    ticks = risk_ticks(float(time_days.max()))
    return {
        "n": len(pooled),
        "events": int(event.sum()),
        "harrell_c": estimate,
        "harrell_c_within_folds": {"value": within},
        "verdict": verdict(estimate, enough=int(event.sum()) >= FEWEST_DEATHS),
        "logrank_p": survival.logrank_p(_floats(grouped.time_days), _flags(grouped.event), _flags(grouped.high)),
        "at_risk_days": ticks,
        "groups": {
            name: _group(grouped.loc[grouped.high == high], ticks) for name, high in (("low risk", False), ("high risk", True))
        },
        "folds": folds,
        **_fold_summary(folds, "harrell_c"),
    }


def _group(rows: pd.DataFrame, ticks: list[int]) -> dict[str, Any]:
    left = survival.at_risk(_floats(rows.time_days), np.array(ticks, dtype=float)).tolist()
    if not len(rows):
        return {"n": 0, "events": 0, "median_days": math.nan, "at_risk": left}
    curve = survival.kaplan_meier(_floats(rows.time_days), _flags(rows.event), "")
    median = float(curve.median_survival_time_)  # infinite when more than half outlive the follow-up
    median = median if math.isfinite(median) else math.nan
    return {"n": len(rows), "events": int(rows.event.sum()), "median_days": median, "at_risk": left}


def _fold_summary(folds: list[dict[str, Any]], key: str) -> dict[str, Any]:
    values = np.array([fold[key] for fold in folds], dtype=float)
    repeats = np.array([fold["repeat"] for fold in folds])
    mean, variance = discrimination.mean_and_sample_variance(values)
    by_repeat = []
    for repeat in np.unique(repeats):
        repeat_mean, repeat_variance = discrimination.mean_and_sample_variance(values[repeats == repeat])
        by_repeat.append({"repeat": int(repeat), "fold_mean": repeat_mean, "fold_variance": repeat_variance})
    return {"fold_mean": mean, "fold_variance": variance, "undefined_folds": int(np.isnan(values).sum()), "repeats": by_repeat}


def _flags(column: pd.Series) -> np.ndarray:
    return column.to_numpy(dtype=bool)


def _floats(column: pd.Series) -> np.ndarray:
    return column.to_numpy(dtype=float)


def _settings(study: Study) -> dict[str, Any]:
    """What decides the result; the paths are left out, since they tell of a machine and not of the study."""
    settings = study.model_dump(mode="json", include={"grid", "prepare", "model", "train", "explain"})
    settings["prepare"]["brain_command"] = [Path(word).name for word in study.prepare.brain_command]  # no folder of anyone's
    settings["model"] |= dict(zip(("dim", "depth", "heads", "mlp"), study.model.shape, strict=True))
    return settings


def _by_fold(rows: pd.DataFrame) -> Iterator[tuple[int, int, pd.DataFrame]]:
    for repeat, fold in sorted({(int(repeat), int(fold)) for repeat, fold in zip(rows.repeat, rows.fold, strict=True)}):
        yield repeat, fold, rows.loc[(rows.repeat == repeat) & (rows.fold == fold)]


def _fold_of(rows: pd.DataFrame) -> np.ndarray:
    """One number per (repeat, fold): the patients that one model scored."""
    return rows.groupby(["repeat", "fold"]).ngroup().to_numpy()
