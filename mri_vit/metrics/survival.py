"""Survival of groups of patients: Kaplan-Meier curves, log-rank test, calibration, censoring curve, follow-up, restricted mean.

n is the number of patients, t of days asked for, s of a curve's steps, g of groups, b of bootstrap draws.
Times are in days; event is True for a death and False for a patient censored at that time. Where another event may come first,
`other` is True for it, survival is to be free of the event, and its curve is 1 less the cumulative incidence (`competing_risks`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Real
from scipy.special import chdtrc

from mri_vit.metrics.calibration_curve import quantile_groups
from mri_vit.metrics.checked import Days, Drawn, Events, Flags, Groups, Numbers, flags, followed, grouped, numbers, refuse_unequal
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.competing_risks import drawn_incidence, incidence_at, pseudo_incidence
from mri_vit.metrics.intervals import Rate

if TYPE_CHECKING:
    from lifelines import KaplanMeierFitter  # whose import takes half a second: where it is needed


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

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> float(kaplan_meier(time_days, event, "all").median_survival_time_)
    400.0
    """
    from lifelines import KaplanMeierFitter

    time_days, event = followed(time_days, event)
    return KaplanMeierFitter(label=label).fit(time_days, event)


def survival_at(
    time_days: Numbers, event: Flags, at_days: Real[np.ndarray, " t"], other: Flags | None = None
) -> Float[np.ndarray, " t"]:
    """The curve of `kaplan_meier` at each of `at_days`; with competing events 1 less the cumulative incidence."""
    if other is not None:
        return drawn_survival(time_days, event, np.ones((1, len(time_days))), at_days, other)[0]
    return kaplan_meier(time_days, event, "").survival_function_at_times(at_days).to_numpy(float)


def survival_steps(
    time_days: Numbers, event: Flags, other: Flags | None = None
) -> tuple[Float[np.ndarray, " s"], Float[np.ndarray, " s"]]:
    """The days of `kaplan_meier`'s steps, from 0, and who is alive from then on: where no more is drawn, and lifelines' import
    would take longer than the drawing. A test holds it to lifelines.

    >>> survival_steps(np.array([100.0, 200.0, 300.0, 400.0]), np.array([1, 0, 1, 0]))[1]
    array([1.   , 0.75 , 0.75 , 0.375, 0.375])
    """
    if other is not None:
        days = np.unique(np.r_[0.0, numbers(time_days, "times")])
        return days, survival_at(time_days, event, days, other)
    time_days, event = followed(time_days, event)
    days, at = np.unique(time_days, return_inverse=True)
    ending = np.bincount(at)
    followed_until = ending[::-1].cumsum()[::-1]  # at risk on the day: those who end then or later
    alive = np.cumprod(1 - np.bincount(at, weights=event) / followed_until)
    before = int(days[:1].tolist() != [0.0])  # a curve starts at 0 days, where who died at once is no longer alive
    return np.r_[[0.0] * before, days], np.r_[[1.0] * before, alive]


def at_risk(time_days: Numbers, at_days: Real[np.ndarray, " t"]) -> Int[np.ndarray, " t"]:
    """Patients still followed after each of `at_days`: those whose time is longer (lifelines' convention for plots)."""
    time_days, at_days = numbers(time_days, "times"), numbers(at_days, "days")
    return (time_days[:, None] > at_days).sum(axis=0)


def logrank(time_days: Numbers, event: Flags, group: Groups) -> tuple[float, float]:
    """Log-rank test of two or more groups, by lifelines.

    Definition: compares the deaths seen in each group with those expected if all groups shared one hazard.
    Formula: chi² = d' V⁻ d, d the observed less the expected deaths of all groups but one and V their hypergeometric
    covariance over the deaths' days; with two groups (sum of observed - expected)² / sum of the variances. Its degrees of
    freedom are the groups less one; a group in which no patient was followed up to the first death says nothing and is not
    counted, as by R's survdiff.
    Assumption: groups were formed without looking at survival, which out-of-fold risks are not: see `refitted_logrank`; most
    powerful when the hazards are proportional.
    Source: Mantel 1966; Peto & Peto 1972, doi:10.2307/2344317.
    `group`: [n], the group of each patient, of any type that sorts.
    Returns: (chi², p); p is two-sided with two groups. Both NaN when no patient died, or the first death left fewer than two
    groups at risk.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> chi2, p = logrank(time_days, event, np.array(["high", "high", "low", "low", "low"]))
    >>> print(f"{chi2:.2f}, p {p:.2f}")
    4.26, p 0.04
    """
    from lifelines.statistics import multivariate_logrank_test

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


def refitted_logrank(chi2: float, inflated: float) -> float:
    """p of `logrank` for two groups of out-of-fold risks: of chi² / c², c being `inflated` (see `within_fold.inflation`).

    A patient's death trains the model that groups the patients of other folds, as with C: without a signal the statistic's
    root has c times the spread of groups as given. In simulated studies of nothing p ≤ 0.05 in 2 to 4 %, in 12 to 14 % as given.
    """
    return float(chdtrc(1, chi2 / inflated**2))


def calibration_at(
    time_days: Numbers, event: Flags, survival: Numbers, at_day: float, groups: int = 3, other: Flags | None = None
) -> SurvivalCalibration:
    """Predicted against observed survival at one day, in groups of about equal numbers by prediction.

    Definition: in each group, the mean predicted survival and the Kaplan-Meier survival at that day, with its 95 % Greenwood
    interval on the log-log scale. Equal predictions share a group, so there may be fewer groups than asked for.
    Assumption: within a group, censoring is unrelated to survival.
    Source: Harrell et al. 1996, doi:10.1002/(SICI)1097-0258(19960229)15:4<361::AID-SIM168>3.0.CO;2-4.
    Returns: SurvivalCalibration, groups in rising order of predicted survival. Observed survival and its bounds are NaN in a
    group whose last patient was censored before that day; the bounds alone where no patient of the group has died by then.
    """
    time_days, event = followed(time_days, event)
    survival = numbers(survival, "predictions of survival")
    refuse_unequal(times=len(time_days), predictions=len(survival))
    group_of = quantile_groups(survival, groups)
    n = np.bincount(group_of)
    here = [group_of == g for g in range(len(n))]
    rows = [_observed(time_days[g], event[g], at_day, None if other is None else other[g]) for g in here]
    observed, low, high = np.array(rows).reshape(len(n), 3).T
    return SurvivalCalibration(np.bincount(group_of, weights=survival) / n, observed, low, high, n)


def _observed(time_days: Days, event: Events, at_day: float, other: Flags | None) -> tuple[float, float, float]:
    """Survival at a day with its bounds."""
    if other is not None:
        share, low, high = incidence_at(time_days, event, other, at_day)
        return 1 - share, 1 - high, 1 - low
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


def censoring_survival(time_days: Numbers, event: Flags, at_days: Real[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
    """G(t): the probability not to have been censored up to and including day t.

    Formula: product over censoring times s <= t of (1 - censored at s / (at risk at s - deaths at s)), the Kaplan-Meier
    curve of censoring. A death and a censoring on the same day: the death comes first.
    Assumption: one censoring distribution for all, unrelated to survival.
    Source: Graf et al. 1999, doi:10.1002/(SICI)1097-0258(19990915/30)18:17/18<2529::AID-SIM274>3.0.CO;2-5.
    Returns: float [t] in [0, 1]; 1 before the first censoring, NaN without a patient.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> censoring_survival(time_days, event, np.array([250.0, 350.0])).round(3)
    array([1.   , 0.667])
    """
    time_days, event = followed(time_days, event)
    if not len(time_days):
        return np.full(len(at_days), math.nan)
    return drawn_censoring_survival(time_days, event, np.ones((1, len(time_days))), at_days)[0]


def drawn_censoring_survival(
    time_days: Numbers, event: Flags, drawn: Drawn, at_days: Real[np.ndarray, " t"]
) -> Float[np.ndarray, "b t"]:
    """G (see `censoring_survival`) at each of `at_days`, for each of b draws; `drawn` says how often each patient came up."""
    time_days, event = followed(time_days, event)
    line = np.sort(time_days)
    days, counts = np.unique(time_days[~event], return_counts=True)
    last = np.searchsorted(line, days, side="right")
    return _drawn_curve(time_days, event, drawn, at_days, days, last - counts, last)


def drawn_survival(
    time_days: Numbers, event: Flags, drawn: Drawn, at_days: Real[np.ndarray, " t"], other: Flags | None = None
) -> Float[np.ndarray, "b t"]:
    """The Kaplan-Meier curve (see `kaplan_meier`) at each of `at_days`, for each of b draws, likewise."""
    if other is not None:
        return 1 - drawn_incidence(time_days, event, other, drawn, at_days)
    time_days, event = followed(time_days, event)
    days, counts = np.unique(time_days[event], return_counts=True)
    first = np.searchsorted(np.sort(time_days), days, side="left")
    return _drawn_curve(time_days, event, drawn, at_days, days, first, first + counts)


def _drawn_curve(
    time_days: Days,
    event: Events,
    drawn: Drawn,
    at_days: Real[np.ndarray, " t"],
    days: Float[np.ndarray, " d"],
    first: Int[np.ndarray, " d"],
    last: Int[np.ndarray, " d"],
) -> Float[np.ndarray, "b t"]:
    """The product over days of what is kept of those at risk. Patients stand in the order of their time, deaths before censored;
    on each of `days` those from `first` to `last` are lost of those from `first` on.
    """
    order = np.lexsort((~event, time_days))
    until = np.zeros((len(drawn), len(order) + 1))  # the draws before each patient of the row, and in all
    np.cumsum(drawn[:, order], axis=1, out=until[:, 1:])
    before = until[:, first]
    exposed, lost = until[:, -1:] - before, until[:, last] - before
    kept = 1 - lost / np.where(exposed > 0, exposed, 1.0)
    curve = np.cumprod(np.concatenate([np.ones((len(drawn), 1)), kept], axis=1), axis=1)  # before the first day, after each
    return curve[:, np.searchsorted(days, numbers(at_days, "days"), side="right")]


def pseudo_survival(time_days: Numbers, event: Flags, at_day: float, other: Flags | None = None) -> Float[np.ndarray, " n"]:
    """What each patient adds to the Kaplan-Meier survival at a day: pseudo-values, which a regression may take for the outcome.

    Formula: S + n dS/dw_i, the infinitesimal jackknife: S - n S sum over deaths' days s <= min(t, T_i) of
    (1[T_i = s, death] Y - d) / (Y (Y - d)), d deaths among Y at risk. Without censoring it is 1 or 0, and where S is 0.
    Assumption: censoring is unrelated to survival.
    Source: Andersen & Pohar Perme 2010, doi:10.1177/0962280209105020; R's survival::pseudo, to which a test holds it.
    Returns: float [n], their mean S; all NaN where the last patient was censored before the day.

    >>> pseudo_survival(np.array([100.0, 200.0, 300.0, 400.0]), np.array([1, 0, 1, 0]), 350.0)
    array([ 0.  ,  0.5 , -0.25,  1.25])
    """
    if other is not None:
        return 1 - pseudo_incidence(time_days, event, other, at_day)
    time_days, event = followed(time_days, event)
    if not len(time_days) or (at_day > time_days.max() and not event[time_days == time_days.max()].all()):
        return np.full(len(time_days), math.nan)
    days, died = np.unique(time_days[event & (time_days <= at_day)], return_counts=True)
    at_risk = len(time_days) - np.searchsorted(np.sort(time_days), days, side="left")
    if (at_risk == died).any():
        return (time_days > at_day).astype(float)
    alive = float(np.prod(1 - died / at_risk))
    by_then = np.searchsorted(days, np.minimum(time_days, at_day), side="right")  # days with deaths that a patient was at risk on
    expected = np.r_[0.0, np.cumsum(died / (at_risk * (at_risk - died)))][by_then]
    seen = np.where(event & (time_days <= at_day), np.r_[0.0, 1 / (at_risk - died)][by_then], 0.0)
    return alive - len(time_days) * alive * (seen - expected)


def median_follow_up(time_days: Numbers, event: Flags) -> Rate:
    """The median follow-up in days with its 95 % interval, by the reverse Kaplan-Meier estimator, by lifelines.

    Definition: the follow-up that patients would have had if no patient had died: a death ends it as censoring ends survival.
    Formula: the median of the Kaplan-Meier curve in which censorings are the events and deaths are censored; on a day with both,
    the deaths come first, as in `censoring_survival`. The interval holds the days at which the curve's 95 % band
    (Greenwood, log-log scale) includes one half.
    Assumption: the end of follow-up is unrelated to survival.
    Source: Schemper & Smith 1996, doi:10.1016/0197-2456(96)00075-X; the interval: Brookmeyer & Crowley 1982,
    doi:10.2307/2530286.
    Returns: (value, low, high), NaN where the curve, or its band, does not come down to one half: the follow-up of so many is
    not known.

    Of six patients three died, all before the first of the others left.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0, 600.0])
    >>> median_follow_up(time_days, np.array([1, 1, 1, 0, 0, 0])).value
    500.0
    """
    from lifelines.utils import median_survival_times

    time_days, event = followed(time_days, event)
    if not len(time_days) or event.all():
        return Rate(math.nan, math.nan, math.nan)
    before = np.where(event, np.maximum(np.nextafter(time_days, -np.inf), 0.0), time_days)
    curve = kaplan_meier(before, ~event, "")
    low, high = pd.DataFrame(median_survival_times(curve.confidence_interval_)).to_numpy(dtype=float)[0]
    return Rate(*(float(day) if math.isfinite(day) else math.nan for day in (curve.median_survival_time_, low, high)))


@dataclass(frozen=True)
class RestrictedMean:
    """Mean survival up to `tau_days` of both groups, and that of high less that of low risk with its 95 % interval."""

    tau_days: float
    low_risk: float
    high_risk: float
    difference: float
    low: float
    high: float


def restricted_mean_difference(
    time_days: Numbers, event: Flags, high: Flags, tau_days: float, inflated: float = 1.0
) -> RestrictedMean:
    """Days lived up to `tau_days` by the group `high` less those of the others: the difference of the areas under their curves.

    Formula: the integral of each Kaplan-Meier curve S from 0 to τ, τ being the smaller of `tau_days` and either
    group's longest time; variance of each: sum over deaths' days t_j of (∫ S from t_j to τ)² d_j / (Y_j (Y_j - d_j)), d_j
    deaths among Y_j at risk; the interval is the difference ± 1.96 sqrt(sum of both), times `inflated` (see
    `within_fold.interval_inflation`) where the groups are of out-of-fold risks.
    Assumption: censoring is unrelated to survival. Nothing is assumed of the hazards.
    Source: Royston & Parmar 2013, doi:10.1186/1471-2288-13-152; the variance as in R's survRM2: Klein & Moeschberger 2003,
    section 4.5. (lifelines' `restricted_mean_survival_time` gives the variance of patients' times, not of their mean.)
    Returns: RestrictedMean; all NaN where a group is empty; the ends of the interval NaN where no patient died by τ.
    """
    time_days, event = followed(time_days, event)
    high = flags(high, "flags of high risk")
    refuse_unequal(times=len(time_days), flags=len(high))
    if high.all() or not high.any():
        return RestrictedMean(*[math.nan] * 6)
    tau = float(min(tau_days, time_days[high].max(), time_days[~high].max()))
    (low_risk, low_variance), (high_risk, high_variance) = (
        _restricted_mean(time_days[group], event[group], tau) for group in (~high, high)
    )
    reach = inflated * Z_95 * math.sqrt(low_variance + high_variance) or math.nan  # no death is no certainty
    difference = high_risk - low_risk
    return RestrictedMean(tau, low_risk, high_risk, difference, difference - reach, difference + reach)


def _restricted_mean(time_days: Days, event: Events, tau: float) -> tuple[float, float]:
    """Mean survival up to tau, and the variance of that mean."""
    curve = kaplan_meier(time_days, event, "S")
    days = np.r_[np.unique(time_days[event & (time_days < tau)]), tau]
    alive = curve.survival_function_at_times(days[:-1]).to_numpy(float)  # after each day with a death, until the next
    beyond = np.cumsum((alive * np.diff(days))[::-1])[::-1]  # ∫ S from each such day to tau
    at_risk = (time_days[:, None] >= days[:-1]).sum(axis=0)
    died = ((time_days[:, None] == days[:-1]) & event[:, None]).sum(axis=0)
    left = at_risk - died
    # Where no patient is left, nothing lies beyond.
    variance = (beyond**2 * died / (at_risk * np.where(left > 0, left, 1))).sum()
    mean = days[0] + (alive * np.diff(days)).sum()  # until the first death all are alive
    return float(mean), float(variance)
