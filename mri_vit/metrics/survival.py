"""Survival of groups of patients: time and event of n patients in, Kaplan-Meier curves, log-rank test and calibration out.

n is the number of patients, t the number of days asked for, g the number of groups.
Times are in days; event is True for a death and False for a patient censored at that time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Real
from lifelines import KaplanMeierFitter
from lifelines.statistics import multivariate_logrank_test

from mri_vit.metrics.checked import Flags, Groups, Numbers, followed, grouped, numbers, refuse_unequal
from mri_vit.metrics.reliability import quantile_groups


@dataclass(frozen=True)
class SurvivalCalibration:
    """Predicted against observed survival at one day; every array has one entry for each group."""

    predicted: Float[np.ndarray, " g"]
    observed: Float[np.ndarray, " g"]
    low: Float[np.ndarray, " g"]
    high: Float[np.ndarray, " g"]
    n: Int[np.ndarray, " g"]


def high_risk(risk: Numbers, group: Groups) -> Bool[np.ndarray, " n"]:
    """True for patients whose risk is above the median of their own group (the same test fold).

    Assumption: each group has its own scale. The median is taken over the patients that are split, so the split describes
    the order of the risks; it is not a cut-off fixed beforehand.

    Raises
    ------
    ValueError for a risk that is NaN or infinite, or arrays of unequal length.
    """
    risk = numbers(risk, "risks")
    group = grouped(group, len(risk))
    above = np.zeros(len(risk), dtype=bool)
    for name in np.unique(group):
        here = group == name
        above[here] = risk[here] > np.median(risk[here])
    return above


def kaplan_meier(time_days: Numbers, event: Flags, label: str) -> KaplanMeierFitter:
    """The Kaplan-Meier survival curve of at least one patient, with its 95 % band (Greenwood, log-log scale), by lifelines.

    Formula: S(t) = product over death times s <= t of (1 - deaths at s / at risk at s).
    Assumption: censoring is unrelated to survival.
    Source: Kaplan & Meier 1958, doi:10.1080/01621459.1958.10501452.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> float(kaplan_meier(time_days, event, "all").median_survival_time_)
    400.0
    """
    time_days, event = followed(time_days, event)
    return KaplanMeierFitter(label=label).fit(time_days, event)


def at_risk(time_days: Numbers, at_days: Real[np.ndarray, " t"]) -> Int[np.ndarray, " t"]:
    """Patients still followed after each of `at_days`: those whose time is longer (lifelines' convention for plots).

    Raises
    ------
    ValueError for a time or a day that is NaN or infinite.
    """
    time_days, at_days = numbers(time_days, "times"), numbers(at_days, "days")
    return (time_days[:, None] > at_days).sum(axis=0)


def logrank(time_days: Numbers, event: Flags, group: Groups) -> tuple[float, float]:
    """Log-rank test of two or more groups, by lifelines.

    Definition: compares the deaths seen in each group with those expected if all groups shared one hazard.
    Formula: chi² = d' V⁻ d, d the observed less the expected deaths of all groups but one and V their hypergeometric
    covariance over the deaths' days; with two groups (sum of observed - expected)² / sum of the variances. Its degrees of
    freedom are the groups less one; a group of which nobody was followed up to the first death says nothing and is not
    counted, as by R's survdiff.
    Assumption: groups were formed without looking at survival; most powerful when the hazards are proportional.
    Source: Mantel 1966; Peto & Peto 1972, doi:10.2307/2344317.

    Parameters
    ----------
    group : [n], the group of each patient, of any type that sorts.

    Returns
    -------
    (chi², p); p is two-sided with two groups. Both NaN when nobody died, or the first death left fewer than two groups at
    risk.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time that is NaN or infinite, a group that is NaN, or arrays of unequal
    length.

    Examples
    --------
    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> chi2, p = logrank(time_days, event, np.array(["high", "high", "low", "low", "low"]))
    >>> print(f"{chi2:.2f}, p {p:.2f}")
    4.26, p 0.04
    """
    time_days, event = followed(time_days, event)
    group = grouped(group, len(time_days))
    if not event.any():
        return math.nan, math.nan
    # At the first death all groups that last until then are at risk, so every one of them has expected deaths.
    counted = np.isin(group, group[time_days >= time_days[event].min()])
    if len(np.unique(group[counted])) < 2:
        return math.nan, math.nan
    test = multivariate_logrank_test(time_days[counted], group[counted], event[counted])
    return float(test.test_statistic), float(test.p_value)


def calibration_at(
    time_days: Numbers,
    event: Flags,
    survival: Numbers,
    at_day: float,
    groups: int = 3,
) -> SurvivalCalibration:
    """Predicted against observed survival at one day, in groups of about equal numbers by prediction.

    Definition: in each group, the mean predicted survival and the Kaplan-Meier survival at that day, with its 95 % Greenwood
    interval on the log-log scale. Equal predictions share a group, so there may be fewer groups than asked for.
    Assumption: within a group, censoring is unrelated to survival.
    Source: Harrell et al. 1996, doi:10.1002/(SICI)1097-0258(19960229)15:4<361::AID-SIM168>3.0.CO;2-4.

    Returns
    -------
    SurvivalCalibration, groups in rising order of predicted survival. Observed survival and its bounds are NaN in a group
    whose last patient was censored before that day; the bounds alone where nobody in the group has died by then.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a prediction that is NaN or infinite, arrays of unequal length, or
    groups that are not positive.
    """
    time_days, event = followed(time_days, event)
    survival = numbers(survival, "predictions of survival")
    refuse_unequal(times=len(time_days), predictions=len(survival))
    group_of = quantile_groups(survival, groups)
    n = np.bincount(group_of)
    rows = [_observed(time_days[group_of == g], event[group_of == g], at_day) for g in range(len(n))]
    observed, low, high = np.array(rows).reshape(len(n), 3).T
    return SurvivalCalibration(np.bincount(group_of, weights=survival) / n, observed, low, high, n)


def _observed(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], at_day: float) -> tuple[float, float, float]:
    """Kaplan-Meier survival at a day with its bounds."""
    curve = kaplan_meier(time_days, event, "")
    value = float(curve.survival_function_at_times(at_day).iloc[0])
    last = time_days.max()
    if at_day > last and not event[time_days == last].all():
        return math.nan, math.nan, math.nan
    if not (event & (time_days <= at_day)).any():
        return value, math.nan, math.nan  # Greenwood's variance is 0 here, which is no certainty
    row = np.searchsorted(curve.confidence_interval_.index.to_numpy(float), at_day, side="right") - 1
    low, high = curve.confidence_interval_.to_numpy(float)[row]
    return value, float(low), float(high)
