"""Patients in clusters, such as hospitals: an interval of an AUC or C that does not take them as independent.

g is the number of clusters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit
from scipy.stats import t as student


@dataclass(frozen=True)
class Clustered:
    """The 95 % interval of a figure of patients in clusters, and its standard error for scores as given."""

    low: float
    high: float
    error: float


def clustered_interval(value: float, without: Float[np.ndarray, " g"], inflated: float = 1.0) -> Clustered:
    """95 % interval of an AUC or C by the jackknife that leaves out one cluster at a time.

    Formula: error² = (g - 1) / g sum_h (b_h - a)², b_h the figure without cluster h; logit a ± t c error / (a (1 - a)), t the
    0.975 quantile of g - 1 degrees of freedom, c `inflated`.
    Assumption: clusters are independent, and are a sample of those that the figure is to hold for; patients of one cluster may
    be alike in any way, but models learned nothing of these clusters that others lack: it is not right of folds that divide
    hospitals which differ both in how common a label is and in all scans.
    Source: Efron 1982, The Jackknife, the Bootstrap and Other Resampling Plans, chapter 3; for AUCs of clustered patients, of
    which this is the jackknife: Obuchowski 1997, doi:10.2307/2533958; t of g - 1: Cameron & Miller 2015,
    doi:10.3368/jhr.50.2.317. Coverage by simulation: `pipelines/reproduce.py null_studies/sites`.
    `without`: the figure of the other clusters' patients, one for each cluster that is left out.
    `inflated`: as `within_fold.interval_inflation` gives it, where models were refitted.
    Returns: Clustered; all NaN with fewer than two clusters, where a figure is undefined, and where the figure is 0 or 1.

    >>> found = clustered_interval(0.75, np.array([0.70, 0.74, 0.76, 0.77, 0.79]))
    >>> print(f"{found.low:.2f} to {found.high:.2f}")
    0.55 to 0.88
    """
    g = len(without)
    if g < 2 or np.isnan(without).any() or not 0 < value < 1:
        return Clustered(math.nan, math.nan, math.nan)
    error = math.sqrt((g - 1) / g * float(((without - value) ** 2).sum()))
    reach = float(student.ppf(0.975, g - 1)) * inflated * error / (value * (1 - value))
    return Clustered(float(expit(logit(value) - reach)), float(expit(logit(value) + reach)), error)
