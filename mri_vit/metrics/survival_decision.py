"""The decision curve of survival: n patients' predicted chances of death in, net benefit over t thresholds and its band out.

Times are in days; event is True for a death and False for a patient censored at that time. n is the number of patients, t the
number of thresholds.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Real
from scipy.stats import norm

from mri_vit.metrics.bootstrap import CONFIDENCE
from mri_vit.metrics.checked import Flags, Numbers, followed, numbers, probabilities, refuse_unequal
from mri_vit.metrics.decision import odds


def survival_net_benefit(
    time_days: Numbers, event: Flags, death: Numbers, thresholds: Real[np.ndarray, " t"], at_day: float
) -> Float[np.ndarray, " t"]:
    """Net benefit of treating patients whose predicted chance to die by a day reaches the threshold.

    Definition: as `decision.net_benefit`, with true and false positives estimated by Kaplan and Meier, since of those censored
    before the day it is not known whether they died by it.
    Formula: ((1 - S) - S t / (1 - t)) × share, S the Kaplan-Meier survival at the day of those who reach the threshold t, and
    share how many of all these are. Treating nobody gives 0.
    Assumption: within those who reach the threshold, censoring is unrelated to survival.
    Source: Vickers et al. 2008, doi:10.1186/1472-6947-8-53.

    Parameters
    ----------
    death : [n], predicted probability to die by `at_day`.

    Returns
    -------
    float [t], per patient; NaN where the last of those who reach the threshold was censored before the day; 0 where nobody does.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time that is NaN or infinite, a probability that is NaN or outside [0, 1], a
    threshold outside [0, 1), or arrays of unequal length.

    Examples
    --------
    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> death = np.array([0.9, 0.4, 0.6, 0.5, 0.1])
    >>> survival_net_benefit(time_days, event, death, np.array([0.0, 0.2]), 350.0).round(3)
    array([0.4, 0.3])
    """
    time_days, event = followed(time_days, event)
    death, thresholds = probabilities(death), numbers(thresholds, "thresholds")
    refuse_unequal(times=len(time_days), probabilities=len(death))
    harm = odds(thresholds)
    if not len(death):
        return np.full(len(thresholds), math.nan)
    treated = death >= thresholds[:, None]  # (t, n)
    alive = _alive_at(time_days, event, treated, at_day)
    return ((1 - alive) - alive * harm) * treated.mean(axis=1)


def survival_net_benefit_of_all(
    time_days: Numbers, event: Flags, thresholds: Real[np.ndarray, " t"], at_day: float
) -> Float[np.ndarray, " t"]:
    """Net benefit of treating every patient, the reference of `survival_net_benefit`.

    Raises
    ------
    ValueError as by `survival_net_benefit`.
    """
    return survival_net_benefit(time_days, event, np.ones(len(time_days)), thresholds, at_day)


def survival_net_benefit_band(
    time_days: Numbers,
    event: Flags,
    death: Numbers,
    thresholds: Real[np.ndarray, " t"],
    at_day: float,
    confidence: float = CONFIDENCE,
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """Pointwise confidence band of `survival_net_benefit`.

    Definition: normal, with the variance of each patient's influence on the net benefit: by being among those who reach the
    threshold, and by what their follow-up adds to the Kaplan-Meier curve of these. Where everybody is treated and harm weighs
    nothing, it is Greenwood's.
    Assumption: patients are independent, and predictions are taken as given (training is not repeated).
    Source: Reid 1981, Influence functions for censored data, Annals of Statistics 9:78.

    Returns
    -------
    (low, high), each float [t]; NaN where the net benefit is, and without width where nobody reaches the threshold.

    Raises
    ------
    ValueError as by `survival_net_benefit`.
    """
    benefit = survival_net_benefit(time_days, event, death, thresholds, at_day)
    time_days, event = followed(time_days, event)
    if not len(time_days):
        return benefit, benefit
    treated = probabilities(death) >= numbers(thresholds, "thresholds")[:, None]  # (t, n)
    share, weight = treated.mean(axis=1)[:, None], 1 + odds(numbers(thresholds, "thresholds"))[:, None]
    alive = _alive_at(time_days, event, treated, at_day)[:, None]
    days, at_risk, died = _life_tables(time_days, event, treated, at_day)
    left = at_risk - died
    each = np.where(left > 0, treated.sum(axis=1)[:, None] / np.where(left > 0, left, 1), 0.0)  # of a death on each day
    expected = np.cumsum(np.pad(each * died / np.where(at_risk > 0, at_risk, 1), ((0, 0), (1, 0))), axis=1)
    by_then = np.searchsorted(days, np.minimum(time_days, at_day), side="right")  # days with deaths that a patient was at risk on
    seen = np.where(event & (time_days <= at_day), np.pad(each, ((0, 0), (1, 0)))[:, by_then], 0.0) - expected[:, by_then]
    influence = (treated - share) * (1 - weight * alive) + weight * alive * treated * seen
    error = np.sqrt((influence**2).mean(axis=1) / len(time_days)) * norm.ppf((1 + confidence) / 2)
    return benefit - error, benefit + error


def _life_tables(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], member: Bool[np.ndarray, "t n"], at_day: float
) -> tuple[Float[np.ndarray, " days"], Float[np.ndarray, "t days"], Float[np.ndarray, "t days"]]:
    """The days with deaths up to one, and how many of each of t groups were at risk and died on them."""
    days = np.unique(time_days[event & (time_days <= at_day)])
    at_risk = member @ (time_days[:, None] >= days).astype(float)
    return days, at_risk, member @ ((time_days[:, None] == days) & event[:, None]).astype(float)


def _alive_at(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], member: Bool[np.ndarray, "t n"], at_day: float
) -> Float[np.ndarray, " t"]:
    """Kaplan-Meier survival at a day of each of t groups; NaN where it is not known, 1 of nobody."""
    _, at_risk, died = _life_tables(time_days, event, member, at_day)
    alive = np.prod(1 - died / np.where(at_risk > 0, at_risk, 1.0), axis=1)
    followed_up = (member & (time_days >= at_day)).any(axis=1)
    return np.where(followed_up | (alive == 0) | ~member.any(axis=1), alive, math.nan)
