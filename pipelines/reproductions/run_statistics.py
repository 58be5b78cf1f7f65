"""Tests over several runs: c values of runs or starts, and the error of patients, in; how far an interval reaches, and p, out.

The error of patients comes of `delong_covariance`, the covariance of the AUCs of s scores of the same n patients.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Real
from scipy.stats import norm
from scipy.stats import t as student

from mri_vit.metrics.checked import Flags, flags, numbers, refuse_unequal
from mri_vit.metrics.discrimination import delong_components

ROUNDING = 1e-6  # of AUCs: below it a spread is rounding alone; one of 10,000 patients who changes rank makes 3e-5


def over_runs(values: Float[np.ndarray, " c"], error: float) -> tuple[float, float]:
    """How far the 95 % interval of the mean of c runs' `values` reaches, and the p of that mean's being 0.

    Definition: each run has patients of its own. Values differ by these and by cohort, initial weights and training; their own
    spread holds all of it, but is small by luck at times where runs are few. So the wider interval and the larger p of it and
    of what patients alone would make are taken: the former is valid, so the larger of the two p is.
    Formula: over runs Student's t with c - 1 degrees of freedom, of the values' standard deviation over √c; over patients the
    normal law with standard error `error`.
    Assumption: runs are independent of each other; their values are near normal.

    Parameters
    ----------
    values : float [c], one for each run; with one, patients alone are counted.
    error : of their mean over patients, whose variance is known, as by DeLong; 0 where there is none.

    Returns
    -------
    (reach, p); both NaN where `error` is; without any spread reach is 0, and p 1 for a mean of 0, NaN for another, which cannot
    be tested.
    """
    mean, between = abs(float(values.mean())), _standard_error(values)
    spreads = [(spread, law) for spread, law in ((error, norm()), (between, student(len(values) - 1))) if not spread <= ROUNDING]
    if not spreads:
        return 0.0, _untested(mean)
    reaches, ps = zip(*((spread * law.isf(0.025), 2 * law.sf(mean / spread)) for spread, law in spreads), strict=True)
    return float(np.max(reaches)), float(np.max(ps))  # NaN stays NaN


def over_starts(values: Float[np.ndarray, " c"], error: float) -> tuple[float, float]:
    """How far the 95 % interval of the mean of c starts' `values` reaches, and the p of that mean's being 0.

    Definition: all starts have the same patients, and what these do to the mean is not in the values' spread; variances add up.
    Formula: variance = error² + s²/c, s² the values' own; Student's t with (c - 1) variance² / (s²/c)² degrees of freedom.
    Assumption: patients and starts act independently; values are near normal.
    Source: Satterthwaite 1946, doi:10.2307/3002019, for the degrees of freedom of a sum of which one part is known.

    Parameters
    ----------
    values : float [c], one for each start, of the same patients; with one, patients alone are counted.
    error : as in `over_runs`.

    Returns
    -------
    As of `over_runs`.
    """
    mean, between = abs(float(values.mean())), _standard_error(values)
    spread = math.hypot(error, between)
    if spread <= ROUNDING:
        return 0.0, _untested(mean)
    freedom = (len(values) - 1) * (spread / between) ** 4 if between > ROUNDING else math.inf
    law = student(freedom)
    return spread * float(law.isf(0.025)), 2 * float(law.sf(mean / spread))


def _standard_error(values: Float[np.ndarray, " c"]) -> float:
    """Of the mean, by the values' own spread; 0 of one value."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _untested(mean: float) -> float:
    """The p of a mean that has no spread."""
    return 1.0 if mean <= ROUNDING else math.nan


def delong_covariance(truth: Flags, scores: Real[np.ndarray, "s n"]) -> Float[np.ndarray, "s s"]:
    """Covariance matrix of the AUCs of several scores of the same patients; its diagonal is `delong_variance`.

    Formula: cov(V10_a, V10_b) / m + cov(V01_a, V01_b) / k, with sample covariances of the structural components.
    Assumption: as for the variance; every score belongs to the same patients in the same order.
    Source: DeLong et al. 1988, doi:10.2307/2531595.

    Returns
    -------
    float [s, s]; NaN throughout with fewer than two positives or two negatives.
    """
    truth, scores = flags(truth, "labels"), numbers(scores, "scores", axes=2)
    refuse_unequal(labels=len(truth), scores=scores.shape[1])
    if truth.sum() < 2 or (~truth).sum() < 2:  # a sample variance needs two
        return np.full((len(scores), len(scores)), math.nan)
    parts = [delong_components(truth, score) for score in scores]
    v10, v01 = np.stack([part[0] for part in parts]), np.stack([part[1] for part in parts])  # (s, m), (s, k)
    return np.atleast_2d(np.cov(v10)) / v10.shape[1] + np.atleast_2d(np.cov(v01)) / v01.shape[1]
