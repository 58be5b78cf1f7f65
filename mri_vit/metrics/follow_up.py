"""How long patients were followed: time and event of n patients in, the median follow-up with its interval out.

Times are in days; event is True for a death and False for a patient censored at that time.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from lifelines.utils import median_survival_times

from mri_vit.metrics.checked import Flags, Numbers, followed
from mri_vit.metrics.proportion import Rate
from mri_vit.metrics.survival import kaplan_meier


def median_follow_up(time_days: Numbers, event: Flags) -> Rate:
    """The median follow-up in days with its 95 % interval, by the reverse Kaplan-Meier estimator, by lifelines.

    Definition: the follow-up that patients would have had if nobody had died: a death ends it as censoring ends survival.
    Formula: the median of the Kaplan-Meier curve in which censorings are the events and deaths are censored; on a day with both,
    the deaths come first, as in `censoring.censoring_survival`. The interval holds the days at which the curve's 95 % band
    (Greenwood, log-log scale) includes one half.
    Assumption: the end of follow-up is unrelated to survival.
    Source: Schemper & Smith 1996, doi:10.1016/0197-2456(96)00075-X; the interval: Brookmeyer & Crowley 1982,
    doi:10.2307/2530286.

    Returns
    -------
    (value, low, high), NaN where the curve, or its band, does not come down to one half: the follow-up of so many is not known.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    Of six patients three died, all before the first of the others left.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0, 600.0])
    >>> median_follow_up(time_days, np.array([1, 1, 1, 0, 0, 0])).value
    500.0
    """
    time_days, event = followed(time_days, event)
    if not len(time_days) or event.all():
        return Rate(math.nan, math.nan, math.nan)
    before = np.where(event, np.maximum(np.nextafter(time_days, -np.inf), 0.0), time_days)
    curve = kaplan_meier(before, ~event, "")
    low, high = pd.DataFrame(median_survival_times(curve.confidence_interval_)).to_numpy(dtype=float)[0]
    return Rate(*(_finite(value) for value in (float(curve.median_survival_time_), low, high)))


def _finite(days: float) -> float:
    return float(days) if math.isfinite(days) else math.nan
