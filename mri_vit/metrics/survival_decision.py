"""The decision curve of survival: predicted chances of death by a day of n patients in, net benefit over t thresholds out.

Times are in days; event is True for a death and False for a patient censored at that time. n is the number of patients, t the
number of thresholds.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Real

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


def _alive_at(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], member: Bool[np.ndarray, "t n"], at_day: float
) -> Float[np.ndarray, " t"]:
    """Kaplan-Meier survival at a day of each of t groups; NaN where it is not known, 1 of nobody."""
    days = np.unique(time_days[event & (time_days <= at_day)])
    at_risk = member @ (time_days[:, None] >= days).astype(float)  # (t, days)
    died = member @ ((time_days[:, None] == days) & event[:, None]).astype(float)
    alive = np.prod(1 - died / np.where(at_risk > 0, at_risk, 1.0), axis=1)
    followed_up = (member & (time_days >= at_day)).any(axis=1)
    return np.where(followed_up | (alive == 0) | ~member.any(axis=1), alive, math.nan)
