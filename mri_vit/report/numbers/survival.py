"""All that is measured of one model on one survival endpoint: its rows in, the content of `metrics.json` out.

Every resampling starts its own generator from the study's seed, so that models of the same patients share their draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.metrics import concordance, concordance_interval, ipcw
from mri_vit.metrics import survival as curves
from mri_vit.report.numbers import judged
from mri_vit.report.numbers.judged import averaged, by_fold, first_repeat, flags, floats, fold_of, fold_summary, risk_groups
from mri_vit.report.numbers.pooled import nothing_told, permutation, remark
from mri_vit.report.reading.run import Design

# n is the number of patients

TOLD_DAYS = (182, 365, 730)  # 6, 12 and 24 months, as in Stupp et al. 2005, doi:10.1056/NEJMoa043330, Table 2
NEAR_DAYS = 15.0  # half a month: a horizon of 180 or 366 days is still that of 6 or 12 months
TAU_DAYS = 730.0  # Uno's C counts deaths up to the last horizon, where the weights of censoring are still small
PERMUTATIONS = 999  # the least p is then 0.001, which survives Holm over a few dozen results
TICK_STEPS_DAYS = (30, 60, 90, 180, 365, 730, 1825)  # months and years, as survival is read
MOST_TICKS = 7  # more columns of numbers at risk than this run into each other at a figure's width


CUTOFFS: Mapping[Design, str] = {  # what the threshold of a predictions table is
    "cross-validation": "the cut-off that the predictions table gives for the patient's fold, the median risk of the training "
    "fold: it was learned without the patients shown",
    "external": "the mean of the run's fold cut-offs, each the median risk of that fold's training patients",
    "table": "the threshold that the predictions table gives; how it was chosen is not known here",
}


@dataclass(frozen=True)
class Outcome:
    """What became of n patients, and the risk that a model gave them."""

    time_days: Float[np.ndarray, " n"]
    event: Bool[np.ndarray, " n"]
    risk: Float[np.ndarray, " n"]


def measure(rows: pd.DataFrame, alive: pd.DataFrame, seed: int, design: Design) -> dict[str, Any]:
    """One model's result, without what needs the other models (comparison, Holm correction, verdict).

    Parameters
    ----------
    rows : as `judged.known_rows` gives them, one for each patient and repeat; at least one. Times are in days.
    alive : predicted probabilities of survival, a row per patient and a column per horizon in days; it may be empty.
    seed : of the study.
    design : of the run; it tells where the cut-offs of the risk groups come from.

    Returns
    -------
    dict, as in `metrics.json`; what is undefined is NaN, what does not apply is None.
    """
    pooled = averaged(rows)
    seen = outcome(pooled)
    value = concordance.harrell_c(seen.time_days, seen.event, seen.risk)
    low, high = concordance_interval.harrell_interval(seen.time_days, seen.event, seen.risk, np.random.default_rng(seed))
    labels, group = (seen.time_days, seen.event), pooled.group.to_numpy()
    folds = [_fold(repeat, fold, here) for repeat, fold, here in by_fold(rows)]
    return {
        "n": len(pooled),
        "events": int(seen.event.sum()),
        "harrell_c": {"value": value, "low": low, "high": high},
        "harrell_c_half_width": (high - low) / 2,
        "harrell_c_within_folds": {"value": _within(rows)} if judged.has_folds(rows) else None,
        "remark": nothing_told(seen.risk) or _remark(rows),
        "uno_c": _uno(seen, seed),
        "permutation": permutation(concordance.concordance_p, labels, seen.risk, group, seed, PERMUTATIONS),
        **_auc_over_time(seen, told_days(alive.columns), seed),
        **of_probabilities(pooled, alive),
        **of_risk_groups(rows, design),
        "folds": folds,
        **fold_summary(folds, "harrell_c"),
    }


def outcome(people: pd.DataFrame) -> Outcome:
    """Times, events and risks of the rows of a table, as arrays."""
    return Outcome(floats(people.time_days), flags(people.event), floats(people.score))


def told_days(horizons: Iterable[float]) -> tuple[float, ...]:
    """The days of the tables at 6, 12 and 24 months: of each the nearest horizon, if it is near enough, else the day itself."""
    own = [float(day) for day in horizons]
    nearest = ((wanted, min(own, key=lambda day, wanted=wanted: abs(day - wanted), default=wanted)) for wanted in TOLD_DAYS)
    return tuple(float(day if abs(day - wanted) <= NEAR_DAYS else wanted) for wanted, day in nearest)


def of_probabilities(pooled: pd.DataFrame, alive: pd.DataFrame) -> dict[str, Any]:
    """Brier scores, calibration and the curves over all horizons, of patients with predicted probabilities of survival.

    Null, or empty, without such a table. `reference` is the Kaplan-Meier curve of the same patients for everybody.
    """
    alive = alive.loc[alive.index.isin(pooled.patient)]
    if not len(alive):
        return {"brier_at": [], "integrated_brier": None, "calibration_at": [], "curve": None}
    people = pooled.set_index("patient").loc[alive.index]
    seen = outcome(people)
    days, chances = alive.columns.to_numpy(dtype=float), alive.to_numpy(dtype=float)
    brier = ipcw.brier_at(seen.time_days, seen.event, chances, days)
    reference = ipcw.brier_of_kaplan_meier(seen.time_days, seen.event, days)
    everybody = _kaplan_meier_at(seen, days)
    told = told_days(days)
    shown = [(column, _written(day)) for column, day in enumerate(days) if day in told]
    return {
        "brier_at": [{"days": day, "value": float(brier[c]), "reference": float(reference[c])} for c, day in shown],
        "integrated_brier": {
            "value": ipcw.integrated_brier(seen.time_days, seen.event, chances, days),
            "reference": ipcw.integrated_brier(seen.time_days, seen.event, everybody, days),
        },
        "calibration_at": [{"days": day, "groups": _calibration(seen, chances[:, c], day)} for c, day in shown],
        "curve": {
            "days": days.tolist(),
            "auc": ipcw.cumulative_dynamic_auc(seen.time_days, seen.event, seen.risk, days).tolist(),
            "brier": brier.tolist(),
            "reference": reference.tolist(),
        },
    }


def of_risk_groups(rows: pd.DataFrame, design: Design) -> dict[str, Any]:
    """Log-rank test, cut-offs in words, numbers at risk and medians of the groups of low and of high risk."""
    grouped = risk_groups(rows)
    ticks = risk_ticks(float(grouped.time_days.max()))
    chi2, p = curves.logrank(floats(grouped.time_days), flags(grouped.event), flags(grouped.high))
    parts = (("low risk", ~grouped.high), ("high risk", grouped.high))
    return {
        "logrank": {"chi2": chi2, "p": p},
        "cutoffs": cutoffs(rows, design),
        "at_risk_days": ticks,
        "groups": {name: _group(grouped.loc[here], ticks) for name, here in parts},
    }


def cutoffs(rows: pd.DataFrame, design: Design) -> str:
    """Where the cut-offs of the risk groups come from, in a sentence."""
    repeated = " Patients are shown as in the first repeat." if rows.repeat.nunique() > 1 else ""
    if judged.has_cutoffs(rows):
        return f"High risk is a risk at or above {CUTOFFS[design]}.{repeated}"
    return (
        "High risk is a risk above the median of the patient's own test fold, as the table holds no cut-off that was learned "
        f"beforehand: the split shows the order of the risks, it is not a rule for new patients.{repeated}"
    )


def risk_ticks(longest_days: float) -> list[int]:
    """Days at which the numbers at risk are given: from 0 in the finest step that leaves them room."""
    step = next((step for step in TICK_STEPS_DAYS if longest_days / step < MOST_TICKS - 1), None)
    step = step or math.ceil(longest_days / (MOST_TICKS - 1))
    return list(range(0, int(longest_days) + 1, step))


def _uno(seen: Outcome, seed: int) -> dict[str, float]:
    tau = min(TAU_DAYS, float(seen.time_days.max()))  # not beyond the follow-up
    low, high = concordance_interval.uno_interval(seen.time_days, seen.event, seen.risk, np.random.default_rng(seed), tau)
    value = concordance.uno_c(seen.time_days, seen.event, seen.risk, tau)
    return {"value": value, "low": low, "high": high, "tau_days": tau}


def _auc_over_time(seen: Outcome, told: tuple[float, ...], seed: int) -> dict[str, Any]:
    days = np.array(told)
    values = ipcw.cumulative_dynamic_auc(seen.time_days, seen.event, seen.risk, days)
    low, high = ipcw.auc_at_interval(seen.time_days, seen.event, seen.risk, days, np.random.default_rng(seed))
    at = [
        {
            "days": _written(day),
            "value": float(values[column]),
            "low": float(low[column]),
            "high": float(high[column]),
            "cases": int((seen.event & (seen.time_days <= day)).sum()),
            "controls": int((seen.time_days > day).sum()),
        }
        for column, day in enumerate(told)
    ]
    return {"auc_at": at, "mean_auc": ipcw.mean_cumulative_dynamic_auc(seen.time_days, seen.event, seen.risk, days)}


def _kaplan_meier_at(seen: Outcome, days: Float[np.ndarray, " t"]) -> Float[np.ndarray, "n t"]:
    """The patients' own Kaplan-Meier curve as everybody's prediction."""
    curve = curves.kaplan_meier(seen.time_days, seen.event, "").survival_function_at_times(days).to_numpy(float)
    return np.tile(curve, (len(seen.time_days), 1))


def _written(day: float) -> float | int:
    """Whole days without a decimal point."""
    return int(day) if float(day).is_integer() else float(day)


def _calibration(seen: Outcome, chance: Float[np.ndarray, " n"], day: float | int) -> list[dict[str, Any]]:
    found = curves.calibration_at(seen.time_days, seen.event, chance, float(day))
    columns = (found.predicted, found.observed, found.low, found.high, found.n)
    keys = ("predicted", "observed", "low", "high", "n")
    return [dict(zip(keys, values, strict=True)) for values in zip(*(column.tolist() for column in columns), strict=True)]


def _group(rows: pd.DataFrame, ticks: list[int]) -> dict[str, Any]:
    left = curves.at_risk(floats(rows.time_days), np.array(ticks, dtype=float)).tolist()
    if not len(rows):
        return {"n": 0, "events": 0, "median_days": math.nan, "at_risk": left}
    median = float(curves.kaplan_meier(floats(rows.time_days), flags(rows.event), "").median_survival_time_)
    median = median if math.isfinite(median) else math.nan  # infinite when more than half outlive the follow-up
    return {"n": len(rows), "events": int(rows.event.sum()), "median_days": median, "at_risk": left}


def _within(rows: pd.DataFrame) -> float:
    return concordance.harrell_c_within(floats(rows.time_days), flags(rows.event), floats(rows.score), fold_of(rows))


def _remark(rows: pd.DataFrame) -> str | None:
    once = first_repeat(rows)
    seen = outcome(once)
    pooled = concordance.harrell_c(seen.time_days, seen.event, seen.risk)
    return remark("C", pooled, _within(once), rows.repeat.nunique())


def _fold(repeat: int, fold: int, here: pd.DataFrame) -> dict[str, Any]:
    return {
        "repeat": repeat,
        "fold": fold,
        "n": len(here),
        "events": int(here.event.sum()),
        "tied": judged.tied(floats(here.score)),
        "harrell_c": concordance.harrell_c(floats(here.time_days), flags(here.event), floats(here.score)),
    }
