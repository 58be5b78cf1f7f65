"""Calibration of one site's patients as a meta-analysis takes it: a value that is near normal, and its variance.

n is the number of patients of the site.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mri_vit.metrics.calibration import observed_to_expected
from mri_vit.metrics.checked import Flags, Numbers, numbers, predicted, refuse_unequal
from mri_vit.metrics.survival import pseudo_survival


class Normal(NamedTuple):
    """A value with the variance of its estimate; both NaN where it is undefined."""

    value: float
    variance: float


UNDEFINED = Normal(math.nan, math.nan)


def log_observed_to_expected(truth: Flags, probability: Numbers) -> Normal:
    """The logarithm of O:E (see `calibration.observed_to_expected`), and its variance with what is expected as given.

    Formula: log(O / E), variance (1 - O / n) / O.
    Assumption: O is binomial.
    Source: Debray et al. 2017, doi:10.1136/bmj.i6460, appendix.
    Returns: Normal; undefined without a positive, without a negative (whose variance would be 0), or where none is expected.

    >>> found = log_observed_to_expected(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> print(f"{found.value:.3f}, variance {found.variance:.2f}")
    0.192, variance 0.25
    """
    truth, probability = predicted(truth, probability)
    ratio, observed = observed_to_expected(truth, probability), int(truth.sum())
    if not ratio > 0 or observed == len(truth):
        return UNDEFINED
    return Normal(math.log(ratio), (1 - observed / len(truth)) / observed)


def log_observed_to_expected_by(
    time_days: Numbers, event: Flags, alive: Numbers, at_day: float, other: Flags | None = None
) -> Normal:
    """The same of deaths by a day, with `alive` the probabilities to live.

    Formula: log((1 - S) / mean(1 - p)), S the Kaplan-Meier survival at the day; variance that of the pseudo-values of S, which is
    Greenwood's, over (1 - S)². `other`: where another event may come first, who had it; S is 1 less the cumulative incidence.
    Assumption: censoring is unrelated to survival.
    Source: Greenwood 1926; Debray et al. 2019, doi:10.1177/0962280218785504.
    Returns: Normal; undefined without a death by then, where all at risk have died, or where no patient was followed for as long.
    """
    each = pseudo_survival(time_days, event, at_day, other)
    alive = numbers(alive, "probabilities of survival")
    refuse_unequal(times=len(each), probabilities=len(alive))
    expected, share = (float(values.mean()) if len(values) else math.nan for values in (1 - alive, each))
    if not (expected > 0 and 0 < share < 1):
        return UNDEFINED
    return Normal(float(np.log((1 - share) / expected)), float(each.var()) / len(each) / (1 - share) ** 2)
