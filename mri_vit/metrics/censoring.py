"""G, the chance not to have been censored: time and event of n patients in, its Kaplan-Meier curve out.

n is the number of patients, t the number of days asked for, b the number of bootstrap draws, u the number of days on which
somebody was censored.
Times are in days; event is True for a death and False for a patient censored at that time.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Real

from mri_vit.metrics.checked import Flags, Numbers, followed, numbers


def censoring_survival(time_days: Numbers, event: Flags, at_days: Real[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
    """G(t): the probability not to have been censored up to and including day t.

    Formula: product over censoring times s <= t of (1 - censored at s / (at risk at s - deaths at s)), the Kaplan-Meier
    curve of censoring. A death and a censoring on the same day: the death comes first.
    Assumption: one censoring distribution for all, unrelated to survival.
    Source: Graf et al. 1999, doi:10.1002/(SICI)1097-0258(19990915/30)18:17/18<2529::AID-SIM274>3.0.CO;2-5.

    Returns
    -------
    float [t] in [0, 1]; 1 before the first censoring, NaN without a patient.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a day that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> censoring_survival(time_days, event, np.array([250.0, 350.0])).round(3)
    array([1.   , 0.667])
    """
    at_days = numbers(at_days, "days")
    days, steps = _censoring_steps(*followed(time_days, event))
    return steps[np.searchsorted(days, at_days, side="right")]


def censoring_survival_before(time_days: Numbers, event: Flags, at_days: Real[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
    """G(t-): the probability not to have been censored before day t; else as `censoring_survival`.

    Raises
    ------
    ValueError as by `censoring_survival`.
    """
    at_days = numbers(at_days, "days")
    days, steps = _censoring_steps(*followed(time_days, event))
    return steps[np.searchsorted(days, at_days, side="left")]


def drawn_censoring_survival(time_days: Numbers, event: Flags, drawn: Float[np.ndarray, "b n"]) -> Float[np.ndarray, "b n"]:
    """G at each patient's own time, for each of b bootstrap draws; `drawn` says how often each patient came up.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time that is NaN or infinite, or arrays of unequal length.
    """
    time_days, event = followed(time_days, event)
    return _steps_at(time_days, event, drawn, time_days)


def drawn_censoring_survival_at(
    time_days: Numbers, event: Flags, drawn: Float[np.ndarray, "b n"], at_days: Real[np.ndarray, " t"]
) -> Float[np.ndarray, "b t"]:
    """G at each of `at_days`, for each of b bootstrap draws; 1 before the first time.

    Raises
    ------
    ValueError as by `censoring_survival`.
    """
    time_days, event = followed(time_days, event)
    return _steps_at(time_days, event, drawn, numbers(at_days, "days"))


def _steps_at(
    time_days: Float[np.ndarray, " n"],
    event: Bool[np.ndarray, " n"],
    drawn: Float[np.ndarray, "b n"],
    at: Float[np.ndarray, " t"],
) -> Float[np.ndarray, "b t"]:
    days, steps = _censoring_curve(time_days, event, drawn)
    return steps[:, np.searchsorted(days, at, side="right")]


def _censoring_steps(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " u"], Float[np.ndarray, " steps"]]:
    """The curve of the patients themselves, NaN without a patient."""
    days, steps = _censoring_curve(time_days, event, np.ones((1, len(time_days))))
    return days, steps[0] if len(time_days) else np.array([math.nan])


def _censoring_curve(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], weight: Float[np.ndarray, "b n"]
) -> tuple[Float[np.ndarray, " u"], Float[np.ndarray, "b steps"]]:
    """The u days of a censoring; the Kaplan-Meier curve of censoring before the first and after each, for b sets of weights.

    Patients stand in the order of their time, deaths before censored, so that those exposed to the censoring of a day are the
    end of that row, and those censored on it the first of these.
    """
    order = np.lexsort((~event, time_days))
    days, counts = np.unique(time_days[~event], return_counts=True)
    last = np.searchsorted(time_days[order], days, side="right")
    until = np.zeros((len(weight), len(order) + 1))  # the weight before each place, and in all
    np.cumsum(weight[:, order], axis=1, out=until[:, 1:])
    before = until[:, last - counts]
    exposed, censored = until[:, -1:] - before, until[:, last] - before
    kept = 1 - censored / np.where(exposed > 0, exposed, 1.0)
    return days, np.cumprod(np.concatenate([np.ones((len(weight), 1)), kept], axis=1), axis=1)
