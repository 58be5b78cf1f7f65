"""Calibration of one site's patients as a meta-analysis takes it: a value that is near normal, and its variance.

n is the number of patients of the site.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mri_vit.metrics.checked import Numbers, measured


class Normal(NamedTuple):
    """A value with the variance of its estimate; both NaN where it is undefined."""

    value: float
    variance: float


UNDEFINED = Normal(math.nan, math.nan)


def log_observed_to_expected(observed: Numbers, expected: Numbers) -> Normal:
    """The logarithm of O:E, and its variance with what is expected as given.

    Formula: log(mean o / mean p); variance that of the mean of o, over its square: (1 - O / n) / O of labels, Greenwood's of
    pseudo-values.
    Assumption: patients are independent, censoring is unrelated to survival.
    Source: Debray et al. 2017, doi:10.1136/bmj.i6460, appendix; of survival Debray et al. 2019, doi:10.1177/0962280218785504.
    `observed`: 1 and 0, or pseudo-values (`survival.pseudo_survival`) where some are censored; `expected`: probabilities.
    Returns: Normal; undefined where the share observed is not between 0 and 1 (its variance would be 0), or none is expected.

    >>> found = log_observed_to_expected(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> print(f"{found.value:.3f}, variance {found.variance:.2f}")
    0.192, variance 0.25
    """
    observed, expected = measured(observed, expected, "outcomes", "probabilities")
    share, mean = (float(values.mean()) if len(values) else math.nan for values in (observed, expected))
    if not (mean > 0 and 0 < share < 1):
        return UNDEFINED
    return Normal(math.log(share / mean), float(np.var(observed)) / len(observed) / share**2)
