"""Patients of low and of high risk: one model's rows of a survival endpoint in, how the two groups differ out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mri_vit.metrics import hazard
from mri_vit.metrics import survival as curves
from mri_vit.report.numbers.judged import Outcome, flags, floats, risk_groups
from mri_vit.report.schema.part import Estimate
from mri_vit.report.schema.survival import Group, Hazard, HazardRatio, Logrank, RestrictedMean, RiskGroup

TAU_DAYS = 730.0  # Uno's C and restricted means: up to the last horizon, where the weights of censoring are still small
TICK_STEPS_DAYS = (30, 60, 90, 180, 365, 730, 1825)  # months and years, as survival is read
MOST_TICKS = 7  # more columns of numbers at risk than this run into each other at a figure's width


@dataclass(frozen=True)
class OfRiskGroups:
    """Fields of a result about the groups of low and of high risk."""

    logrank: Logrank
    restricted_mean: RestrictedMean
    at_risk_days: tuple[int, ...]
    groups: dict[RiskGroup, Group]


def of_risk_groups(rows: pd.DataFrame) -> OfRiskGroups:
    """Log-rank test, restricted means, numbers at risk and medians of the groups of low and of high risk."""
    grouped = risk_groups(rows)
    ticks = risk_ticks(float(grouped.time_days.max()))
    split = floats(grouped.time_days), flags(grouped.event), flags(grouped.high)
    chi2, p = curves.logrank(*split)
    mean = hazard.restricted_mean_difference(*split, TAU_DAYS)
    return OfRiskGroups(
        logrank=Logrank(chi2=chi2, p=p),
        restricted_mean=RestrictedMean(
            tau_days=mean.tau_days,
            low_risk=mean.low_risk,
            high_risk=mean.high_risk,
            difference=Estimate(value=mean.difference, low=mean.low, high=mean.high),
        ),
        at_risk_days=tuple(ticks),
        groups={
            "low risk": _group(grouped.loc[~grouped.high], ticks),
            "high risk": _group(grouped.loc[grouped.high], ticks),
        },
    )


def risk_ticks(longest_days: float) -> list[int]:
    """Days at which the numbers at risk are given: from 0 in the finest step that leaves them room."""
    step = next((step for step in TICK_STEPS_DAYS if longest_days / step < MOST_TICKS - 1), None)
    step = step or math.ceil(longest_days / (MOST_TICKS - 1))
    return list(range(0, int(longest_days) + 1, step))


def hazard_ratios(seen: Outcome, rows: pd.DataFrame) -> Hazard:
    """Of all patients' risks, averaged over repeats, and of the first repeat's groups."""
    grouped = risk_groups(rows)
    per_sd = hazard.hazard_ratio_per_sd(seen.time_days, seen.event, seen.risk)
    groups = hazard.hazard_ratio_of_groups(floats(grouped.time_days), flags(grouped.event), flags(grouped.high))
    return Hazard(per_sd=HazardRatio(**vars(per_sd)), high_vs_low=HazardRatio(**vars(groups)))


def _group(rows: pd.DataFrame, ticks: list[int]) -> Group:
    left = curves.at_risk(floats(rows.time_days), np.array(ticks, dtype=float)).tolist()
    if not len(rows):
        return Group(n=0, events=0, median_days=math.nan, at_risk=left)
    median = float(curves.kaplan_meier(floats(rows.time_days), flags(rows.event), "").median_survival_time_)
    median = median if math.isfinite(median) else math.nan  # infinite when more than half outlive the follow-up
    return Group(n=len(rows), events=int(rows.event.sum()), median_days=median, at_risk=left)
