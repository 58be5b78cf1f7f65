"""Survival predictions judged at given days, with weights for patients lost before (inverse probability of censoring).

n is the number of patients, t of days asked for, b of bootstrap draws.
Times are in days; event is True for a death and False for a patient censored at that time. Where another event may come first,
`other` is True for it: who had it by t is known to be without the predicted event at t, and counts so with the weight 1 / G(T-),
which those with the event then have too (Blanche et al. 2013, doi:10.1002/sim.5958; Schoop et al. 2011,
doi:10.1002/bimj.201000073), as in R's riskRegression, to which a test holds it.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Real

from mri_vit.metrics.checked import Days, Drawn, Events, Flags, Numbers, Scores, competed, followed, numbers, outcome
from mri_vit.metrics.discrimination import weighted_auc, wilson_of_auc
from mri_vit.metrics.intervals import CONFIDENCE, RESAMPLES, distribution, percentile_interval
from mri_vit.metrics.survival import drawn_censoring_survival, drawn_survival, survival_at


def cumulative_dynamic_auc(
    time_days: Numbers, event: Flags, risk: Numbers, at_days: Real[np.ndarray, " t"], other: Flags | None = None
) -> Float[np.ndarray, " t"]:
    """AUC(t): how well the risk separates those who have died by day t (cases) from those who live longer (controls).

    Definition: the probability that a random case has a higher risk than a random control, ties counting one half.
    Formula: sum_ij w_i c_i d_j (1[r_i > r_j] + ½ 1[r_i = r_j]) / (sum w_i c_i sum d_j), with c_i = 1[T_i <= t, death],
    d_j = 1[T_j > t], w_i = 1 / G(T_i); patients censored by t count through the weights alone.
    Assumption: censoring is unrelated to survival and risk.
    Source: Uno et al. 2007, doi:10.1198/016214507000000149; Hung & Chiang 2010, doi:10.1002/cjs.10046.
    Returns: float [t]; NaN at a day without a case or without a control.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> risk = np.array([0.9, 0.4, 0.6, 0.5, 0.1])
    >>> cumulative_dynamic_auc(time_days, event, risk, np.array([250.0])).round(3)
    array([0.667])
    """
    time_days, event, risk = outcome(time_days, event, risk)
    at_days = numbers(at_days, "days")
    return drawn_auc(time_days, event, risk, at_days, np.ones((1, len(risk))), other)[0]


def drawn_auc(
    time_days: Days, event: Events, risk: Scores, at_days: Float[np.ndarray, " t"], drawn: Drawn, other: Flags | None = None
) -> Float[np.ndarray, "b t"]:
    """AUC(t) of each of b sets of weights, the censoring curve estimated anew for each."""
    uncensored, then = _uncensored(time_days, event, at_days, drawn, other)
    # Of the patients' own, G is 0 only where the last is censored; none lives longer, so AUC is undefined with any weight.
    weight = drawn / np.where(uncensored > 0, uncensored, 1.0)
    values = np.full((len(drawn), len(at_days)), math.nan)
    for column, day in enumerate(at_days):
        cases, controls = weight * (event & (time_days <= day)), drawn * (time_days > day)
        if other is not None:
            own = np.where(then[:, column] > 0, then[:, column], 1.0)[:, None]  # 0 only where none is followed so long
            controls = controls / own + weight * (other & (time_days <= day))
        values[:, column] = weighted_auc(cases, controls, risk)
    return values


def _uncensored(
    time_days: Days, event: Events, at_days: Float[np.ndarray, " t"], drawn: Drawn, other: Flags | None
) -> tuple[Float[np.ndarray, "b n"], Float[np.ndarray, "b t"]]:
    """G of each of b draws on the patients' own days, before them where there are competing events, and on the days asked for."""
    ended = event if other is None else competed(time_days, event, other)[1] | other
    own = time_days if other is None else np.nextafter(time_days, -np.inf)
    return tuple(drawn_censoring_survival(time_days, ended, drawn, days) for days in (own, at_days))  # type: ignore[return-value]


def mean_cumulative_dynamic_auc(
    time_days: Numbers, event: Flags, risk: Numbers, at_days: Real[np.ndarray, " t"], other: Flags | None = None
) -> float:
    """AUC(t) averaged over days, each weighted by the deaths since the one before.

    Formula: sum_k AUC(t_k) (S(t_(k-1)) - S(t_k)) / sum_k (S(t_(k-1)) - S(t_k)), S the Kaplan-Meier curve of these
    patients, S(t_0) = 1; days without a value are left out of both sums.
    Assumption: as for AUC(t); days are in rising order.
    Source: Lambert & Chevret 2016, doi:10.1177/0962280213515571.
    Returns: float; NaN when no day has both a value and a death.
    """
    time_days, event, risk = outcome(time_days, event, risk)
    at_days = numbers(at_days, "days")
    refuse_disorder(at_days)
    values = cumulative_dynamic_auc(time_days, event, risk, at_days, other)
    defined = ~np.isnan(values)
    if not defined.any():
        return math.nan
    curve = survival_at(time_days, event, at_days, other)
    fall = -np.diff(np.r_[1.0, curve])[defined]
    return float((values[defined] * fall).sum() / fall.sum()) if fall.sum() > 0 else math.nan


def brier_at(
    time_days: Numbers,
    event: Flags,
    survival: Real[np.ndarray, "n t"],
    at_days: Real[np.ndarray, " t"],
    other: Flags | None = None,
) -> Float[np.ndarray, " t"]:
    """Brier(t): mean squared distance of the predicted survival at day t and whether the patient lived longer.

    Formula: mean of S_i(t)² 1[T_i <= t, death] / G(T_i) + (1 - S_i(t))² 1[T_i > t] / G(t).
    Assumption: censoring is unrelated to survival and to the prediction. Compare with `brier_of_kaplan_meier`.
    Source: Graf et al. 1999, doi:10.1002/(SICI)1097-0258(19990915/30)18:17/18<2529::AID-SIM274>3.0.CO;2-5.
    `survival`: float [n, t], each patient's predicted probability to live longer than each day.
    Returns: float [t]; NaN at a day beyond which no patient was followed.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> risk = np.array([0.9, 0.4, 0.6, 0.5, 0.1])
    >>> brier_at(time_days, event, np.full((5, 1), 0.5), np.array([250.0]))
    array([0.25])
    """
    time_days, event = followed(time_days, event)
    survival, at_days = numbers(survival, "predictions of survival", axes=2), numbers(at_days, "days")
    if survival.shape != (len(time_days), len(at_days)):
        raise ValueError(
            f"found predictions of survival of shape {survival.shape} for {len(time_days)} patients and {len(at_days)} days; "
            "expected a row for every patient and a column for every day"
        )
    return drawn_brier(time_days, event, survival, at_days, np.ones((1, len(time_days))), other)[0]


def drawn_brier(
    time_days: Days,
    event: Events,
    survival: Float[np.ndarray, "n t"],
    at_days: Float[np.ndarray, " t"],
    drawn: Drawn,
    other: Flags | None = None,
) -> Float[np.ndarray, "b t"]:
    """Brier(t) of each of b sets of weights, the censoring curve estimated anew for each."""
    own, then = _uncensored(time_days, event, at_days, drawn, other)
    by_then = time_days[:, None] <= at_days  # (n, t)
    died = by_then & event[:, None]
    alive = time_days[:, None] > at_days
    watched = drawn @ alive > 0  # (b, t)
    # Where somebody is followed beyond t, G(t) > 0 and so is G at every earlier death; elsewhere the weights are not used.
    squares = died * survival**2
    if other is not None:
        squares = squares + (by_then & other[:, None]) * (1 - survival) ** 2
    dead = (drawn / np.where(own > 0, own, 1.0)) @ squares
    lived = drawn @ (alive * (1 - survival) ** 2) / np.where(watched, then, 1.0)
    return np.where(watched, (dead + lived) / np.maximum(drawn.sum(axis=1), 1)[:, None], math.nan)


def integrated_brier(
    time_days: Numbers,
    event: Flags,
    survival: Real[np.ndarray, "n t"],
    at_days: Real[np.ndarray, " t"],
    other: Flags | None = None,
) -> float:
    """Brier(t) averaged over time from the first to the last day asked for.

    Formula: the trapezoid integral of Brier(t) over [t_1, t_T], divided by t_T - t_1.
    Assumption: as for Brier(t); days are in rising order.
    Source: Graf et al. 1999, doi:10.1002/(SICI)1097-0258(19990915/30)18:17/18<2529::AID-SIM274>3.0.CO;2-5.
    Returns: float; NaN with fewer than two days, or when Brier(t) is undefined at one of them.
    """
    at_days = numbers(at_days, "days")
    refuse_disorder(at_days)
    return float(integral(brier_at(time_days, event, survival, at_days, other)[None], at_days)[0])


def integral(values: Float[np.ndarray, "b t"], at_days: Float[np.ndarray, " t"]) -> Float[np.ndarray, " b"]:
    """Mean over time, by trapezoids, of b curves; NaN with fewer than two days."""
    if len(at_days) < 2:
        return np.full(len(values), math.nan)
    return np.trapezoid(values, at_days, axis=1) / (at_days[-1] - at_days[0])


def brier_of_kaplan_meier(
    time_days: Numbers, event: Flags, at_days: Real[np.ndarray, " t"], other: Flags | None = None
) -> Float[np.ndarray, " t"]:
    """Brier(t) of the prediction that knows nothing: every patient gets the Kaplan-Meier survival of these patients.

    Assumption: as for Brier(t). The curve is that of the patients it is judged on, so the reference is a little too good.
    Source: Graf et al. 1999, doi:10.1002/(SICI)1097-0258(19990915/30)18:17/18<2529::AID-SIM274>3.0.CO;2-5.
    Returns: float [t]; NaN at a day beyond which no patient was followed.
    """
    time_days, event = followed(time_days, event)
    at_days = numbers(at_days, "days")
    if not len(time_days):
        return np.full(len(at_days), math.nan)
    curve = drawn_survival(time_days, event, np.ones((1, len(time_days))), at_days, other)
    return brier_at(time_days, event, np.repeat(curve, len(time_days), axis=0), at_days, other)


def scaled_integrated_brier(
    time_days: Numbers,
    event: Flags,
    survival: Real[np.ndarray, "n t"],
    at_days: Real[np.ndarray, " t"],
    other: Flags | None = None,
) -> float:
    """Scaled integrated Brier score, or index of prediction accuracy: the share of the reference's that a model saves.

    Formula: 1 - IBS / IBS of `brier_of_kaplan_meier`: 1 at best, 0 for one curve for all, below 0 for predictions that are worse.
    Assumption: as for Brier(t); days are in rising order.
    Source: Kattan & Gerds 2018, doi:10.1186/s41512-018-0029-2; Graf et al. 1999.
    Returns: float, at most 1; NaN where either is undefined or the reference is 0.
    """
    at_days = numbers(at_days, "days")
    reference = float(integral(brier_of_kaplan_meier(time_days, event, at_days, other)[None], at_days)[0])
    return 1 - integrated_brier(time_days, event, survival, at_days, other) / reference if reference > 0 else math.nan


def refuse_disorder(at_days: Float[np.ndarray, " t"]) -> None:
    """Raise a ValueError unless days rise."""
    if (np.diff(at_days) <= 0).any():
        raise ValueError(f"found days {at_days.tolist()}; expected them in rising order")


def auc_at_interval(
    time_days: Numbers,
    event: Flags,
    risk: Numbers,
    at_days: Real[np.ndarray, " t"],
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    refits: bool = False,
    other: Flags | None = None,
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """95 % interval of each AUC(t): Wilson's, with the variance of a patient-level bootstrap.

    Definition: patients are drawn with replacement, the censoring curve is estimated anew and AUC(t) computed on each draw;
    the variance of the draws, but not less than Newcombe's for so many cases and controls, goes into Wilson's formula
    (`discrimination.wilson_of_auc`). A percentile interval of the same draws is too short where few are left at risk: with 5
    to 11 at risk it covered 86 to 91 %, this one 96 to 98 % (`tests/metrics/test_simulations.py`).
    Assumption: patients are independent; the model is taken as given unless `refits`, as for `discrimination.wilson_of_auc`.
    Draws without a case or a control are left out.
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 6; Wilson 1927; Newcombe 2006.
    Returns: (low, high), each float [t]; NaN where AUC(t) itself is undefined.
    """
    time_days, event, risk = outcome(time_days, event, risk)
    at_days = numbers(at_days, "days")
    values = cumulative_dynamic_auc(time_days, event, risk, at_days, other)
    bounds = np.full((2, len(at_days)), math.nan)
    defined = np.flatnonzero(~np.isnan(values))
    if not len(defined):
        return bounds[0], bounds[1]
    draws = distribution(
        lambda drawn: drawn_auc(time_days, event, risk, at_days[defined], drawn, other), np.zeros(len(risk)), generator, resamples
    )
    for column, draw in zip(defined, draws.T, strict=True):
        cases, controls = cases_and_controls(time_days, event, at_days[column], other)
        found = draw[~np.isnan(draw)]
        variance = float(found.var(ddof=1)) if len(found) > 1 else 0.0  # Newcombe's then stands alone
        bounds[:, column] = wilson_of_auc(float(values[column]), variance, cases, controls, refits)
    return bounds[0], bounds[1]


def cases_and_controls(time_days: Days, event: Events, day: float, other: Flags | None) -> tuple[int, int]:
    """Patients who are known to have had the event by a day, and not to."""
    by_then = time_days <= day
    return int((event & by_then).sum()), int((~by_then if other is None else ~by_then | other).sum())


def integrated_brier_intervals(
    time_days: Numbers,
    event: Flags,
    survival: Real[np.ndarray, "n t"],
    at_days: Real[np.ndarray, " t"],
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    other: Flags | None = None,
) -> Float[np.ndarray, "2 2"]:
    """Confidence intervals of the integrated Brier score and of the scaled one, by a patient-level percentile bootstrap.

    Definition: patients are drawn with replacement; on each draw the censoring curve is estimated anew. The reference predicts
    the Kaplan-Meier curve of all patients on every draw: one fitted to each draw would always seem the better.
    Assumption: patients are independent; the model is taken as given. Draws in which no patient is followed beyond the last day
    are left out; where no patient dies in more than one draw of forty, the scaled score has no ends.
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.
    Returns: float [2, 2], low and high ends, of the score and of the scaled one; NaN where the score itself is undefined.
    """
    time_days, event = followed(time_days, event)
    survival, at_days = numbers(survival, "predictions of survival", axes=2), numbers(at_days, "days")
    if math.isnan(integrated_brier(time_days, event, survival, at_days, other)):
        return np.full((2, 2), math.nan)

    curve = drawn_survival(time_days, event, np.ones((1, len(time_days))), at_days, other)
    same = np.repeat(curve, len(time_days), axis=0)

    def scores(drawn: Drawn) -> Float[np.ndarray, "b 2"]:
        own, reference = (
            integral(drawn_brier(time_days, event, one, at_days, drawn, other), at_days) for one in (survival, same)
        )
        return np.column_stack([own, 1 - own / np.where(reference > 0, reference, math.nan)])

    values = distribution(scores, np.zeros(len(time_days)), generator, resamples)
    values[:, 1] = math.nan if np.isnan(values[:, 1]).mean() > (1 - CONFIDENCE) / 2 else values[:, 1]
    return np.stack(percentile_interval(values))
