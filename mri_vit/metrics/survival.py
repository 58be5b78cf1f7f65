"""Survival of groups of patients: time and event of n patients in, Kaplan-Meier curves, numbers at risk and log-rank out.

Times are in days; event is True for a death and False for a patient censored at that time.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from lifelines import KaplanMeierFitter
from lifelines.statistics import logrank_test


def high_risk(risk: Float[np.ndarray, " n"], group: Shaped[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """True for patients whose risk is above the median of their own group (the same test fold).

    Assumption: each group has its own scale. The median is taken over the patients that are split, so the split describes
    the order of the risks; it is not a cut-off fixed beforehand.
    """
    above = np.zeros(len(risk), dtype=bool)
    for name in np.unique(group):
        here = group == name
        above[here] = risk[here] > np.median(risk[here])
    return above


def kaplan_meier(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], label: str) -> KaplanMeierFitter:
    """The Kaplan-Meier survival curve of at least one patient, with its 95 % band (Greenwood, log-log scale), by lifelines.

    Formula: S(t) = product over death times s <= t of (1 - deaths at s / at risk at s).
    Assumption: censoring is unrelated to survival.
    Source: Kaplan & Meier 1958, doi:10.1080/01621459.1958.10501452.
    """
    return KaplanMeierFitter(label=label).fit(time_days, event)


def at_risk(time_days: Float[np.ndarray, " n"], at_days: Float[np.ndarray, " t"]) -> Int[np.ndarray, " t"]:
    """Patients still followed after each of `at_days`: those whose time is longer (lifelines' convention for plots)."""
    return (time_days[:, None] > at_days).sum(axis=0)


def logrank(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], high: Bool[np.ndarray, " n"]
) -> tuple[float, float]:
    """Log-rank test between the groups `high` and not `high`, by lifelines.

    Definition: compares the deaths seen in a group with those expected if both groups shared one hazard.
    Formula: chi² = (sum of observed - expected)² / sum of the hypergeometric variances, one degree of freedom.
    Assumption: groups were formed without looking at survival; most powerful when the hazards are proportional.
    Source: Mantel 1966; Peto & Peto 1972, doi:10.2307/2344317.

    Returns
    -------
    (chi², two-sided p); both NaN when a group is empty, nobody died, or no death left anyone at risk in both groups.
    """
    if high.all() or not high.any() or not event.any():
        return math.nan, math.nan
    died_days = time_days[event]
    # Without a death while both groups are at risk the statistic is 0 / 0.
    if died_days.min() > min(time_days[high].max(), time_days[~high].max()):
        return math.nan, math.nan
    test = logrank_test(time_days[high], time_days[~high], event[high], event[~high])
    return float(test.test_statistic), float(test.p_value)
