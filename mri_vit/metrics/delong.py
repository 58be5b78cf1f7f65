"""DeLong's variance of the AUC and what follows from it: the interval of one AUC and the test of two.

n is the number of patients, m of whom are positive and k negative (m + k = n); s is the number of scores per patient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Real
from scipy.stats import norm, rankdata
from scipy.stats import t as student

from mri_vit.metrics.checked import Flags, Numbers, flags, labelled, numbers, refuse_unequal
from mri_vit.metrics.discrimination import auc

Z_95 = float(norm.ppf(0.975))  # the two-sided 95 % of a normal distribution


@dataclass(frozen=True)
class Comparison:
    """Two models side by side: the difference a - b, its 95 % interval, the test statistic and its two-sided p.

    Without variance nothing can be tested: equal AUCs get p = 1, z = 0 and an interval without width; unequal ones (a
    model without an error against a constant one) get NaN, because a p of 0 would claim certainty from few patients.
    """

    difference: float
    low: float
    high: float
    z: float
    p: float


def delong_components(truth: Flags, score: Numbers) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " k"]]:
    """The structural components of the AUC: one for each positive, one for each negative.

    Definition: for a positive, the share of negatives that score below it; for a negative, the share of positives above
    it; ties count one half. The mean of either is the AUC.
    Formula: V10 = (midrank among all - midrank among positives) / k; V01 = 1 - (midrank among all - among negatives) / m.
    Assumption: both classes are present.
    Source: DeLong et al. 1988, doi:10.2307/2531595; midranks, O(n log n): Sun & Xu 2014, doi:10.1109/LSP.2014.2337313.

    Raises
    ------
    ValueError for a label other than 0 and 1, a score that is NaN or infinite, or arrays of unequal length.
    """
    beaten, beating = _wins(*labelled(truth, score))
    return beaten / len(beating), beating / len(beaten)


def delong_variance(truth: Flags, score: Numbers) -> float:
    """Variance of the AUC by DeLong's method.

    Formula: var(V10) / m + var(V01) / k, with sample variances of the structural components.
    Assumption: patients are independent draws, and the scores were not fitted to them.
    Source: DeLong et al. 1988, doi:10.2307/2531595.

    Returns
    -------
    float; NaN with fewer than two positives or two negatives. Zero when the classes are separated without an error.

    Raises
    ------
    ValueError for a label other than 0 and 1, a score that is NaN or infinite, or arrays of unequal length.
    """
    truth, score = labelled(truth, score)
    if not _enough(truth):
        return math.nan
    v10, v01 = delong_components(truth, score)
    return float(v10.var(ddof=1) / len(v10) + v01.var(ddof=1) / len(v01))


def delong_covariance(truth: Flags, scores: Real[np.ndarray, "s n"]) -> Float[np.ndarray, "s s"]:
    """Covariance matrix of the AUCs of several scores of the same patients; its diagonal is `delong_variance`.

    Formula: cov(V10_a, V10_b) / m + cov(V01_a, V01_b) / k, with sample covariances of the structural components.
    Assumption: as for the variance; every score belongs to the same patients in the same order.
    Source: DeLong et al. 1988, doi:10.2307/2531595.

    Returns
    -------
    float [s, s]; NaN throughout with fewer than two positives or two negatives.

    Raises
    ------
    ValueError for a label other than 0 and 1, a score that is NaN or infinite, or arrays of unequal length.
    """
    truth, scores = flags(truth, "labels"), numbers(scores, "scores", axes=2)
    refuse_unequal(labels=len(truth), scores=scores.shape[1])
    if not _enough(truth):
        return np.full((len(scores), len(scores)), math.nan)
    parts = [delong_components(truth, score) for score in scores]
    v10, v01 = np.stack([part[0] for part in parts]), np.stack([part[1] for part in parts])  # (s, m), (s, k)
    return np.atleast_2d(np.cov(v10)) / v10.shape[1] + np.atleast_2d(np.cov(v01)) / v01.shape[1]


def delong_interval(truth: Flags, score: Numbers, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of the AUC, on the plain (not logit) scale and clipped to [0, 1], as pROC gives it.

    Formula: AUC ± z sqrt(DeLong variance), z the normal quantile.
    Assumption: the AUC is near normal, which fails near 0 and 1 and with few patients: without a single error the interval
    has no width, however few the patients. Pooled out-of-fold scores are treated as one model's, and the uncertainty of
    training is not in it.
    Source: DeLong et al. 1988, doi:10.2307/2531595; Robin et al. 2011 (pROC), doi:10.1186/1471-2105-12-77.

    Parameters
    ----------
    truth : [n], True or 1 for a positive, of any type of number.
    score : float [n], higher means more likely positive.
    confidence : of the interval, between 0 and 1.

    Returns
    -------
    (low, high); both NaN where the variance is undefined.

    Raises
    ------
    ValueError for a label other than 0 and 1, a score that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    >>> truth = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> score = np.array([0.1, 0.2, 0.3, 0.6, 0.4, 0.5, 0.7, 0.9])
    >>> low, high = delong_interval(truth, score)
    >>> print(f"{low:.2f} to {high:.2f}")
    0.59 to 1.00
    """
    truth, score = labelled(truth, score)
    variance = delong_variance(truth, score)
    if math.isnan(variance):
        return math.nan, math.nan
    reach = float(norm.ppf((1 + confidence) / 2)) * math.sqrt(variance)
    value = auc(truth, score)
    return max(0.0, value - reach), min(1.0, value + reach)


def delong_paired(truth: Flags, score_a: Numbers, score_b: Numbers) -> Comparison:
    """Difference of the AUCs of two models on the same patients, and the test that it is zero.

    Definition: is the AUC of a different from that of b, given that both saw the same patients?
    Formula: z = (AUC_a - AUC_b) / sqrt(var), var = var_a + var_b - 2 cov_ab, computed as the DeLong variance of the
    differences of the structural components, which is exactly zero for scores of equal order; p = 2 P(Z > abs(z)).
    Assumption: as for the interval of one AUC. For nested models fitted to the same patients the test is too cautious
    (Demler et al. 2012, doi:10.1002/sim.5328); for scores of patients held out, as here, it is in order.
    Source: DeLong et al. 1988, doi:10.2307/2531595.

    Returns
    -------
    Comparison; see there for a variance of zero; all NaN but the difference with fewer than two of a class.

    Raises
    ------
    ValueError for a label other than 0 and 1, a score that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    >>> truth = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> score = np.array([0.1, 0.2, 0.3, 0.6, 0.4, 0.5, 0.7, 0.9])
    >>> found = delong_paired(truth, score, score[::-1].copy())
    >>> print(f"{found.difference:.2f}, p {found.p:.1g}")
    0.75, p 0.003
    """
    truth, score_a = labelled(truth, score_a)
    truth, score_b = labelled(truth, score_b)
    difference = auc(truth, score_a) - auc(truth, score_b)
    if not _enough(truth):
        return by_normal_law(difference, math.nan)
    wins_a, wins_b = _wins(truth, score_a), _wins(truth, score_b)
    positives, negatives = len(wins_a[0]), len(wins_a[1])
    # Counts are whole or half numbers, so their differences are exact, and so is a variance of zero.
    of_positives = (wins_a[0] - wins_b[0]).var(ddof=1) / negatives**2 / positives
    of_negatives = (wins_a[1] - wins_b[1]).var(ddof=1) / positives**2 / negatives
    return by_normal_law(difference, float(of_positives + of_negatives))


def delong_unpaired(
    truth_a: Bool[np.ndarray, " na"] | Real[np.ndarray, " na"],
    score_a: Real[np.ndarray, " na"],
    truth_b: Bool[np.ndarray, " nb"] | Real[np.ndarray, " nb"],
    score_b: Real[np.ndarray, " nb"],
) -> Comparison:
    """Difference of two AUCs from different patients (two cohorts, two subgroups), and the test that it is zero.

    Formula: z = (AUC_a - AUC_b) / sqrt(var_a + var_b); p = 2 P(T > abs(z)), T Student's t with
    (var_a + var_b)² / (var_a² / (n_a - 1) + var_b² / (n_b - 1)) degrees of freedom, n all patients of a cohort. The interval
    is the difference ± the 0.975 quantile of T times the standard error.
    Assumption: no patient is in both; each AUC is near normal.
    Source: DeLong et al. 1988, doi:10.2307/2531595; the test and its degrees of freedom: pROC's `delong.unpaired.test`
    (R/delong.R), whose n are cases and controls together; Robin et al. 2011, doi:10.1186/1471-2105-12-77. pROC gives no
    interval of this difference; the one here rejects zero where its p is below 0.05.

    Returns
    -------
    Comparison; see there for a variance of zero; all NaN but the difference with fewer than two of a class.

    Raises
    ------
    ValueError for a label other than 0 and 1, a score that is NaN or infinite, or arrays of unequal length.
    """
    difference = auc(truth_a, score_a) - auc(truth_b, score_b)
    of_a, of_b = delong_variance(truth_a, score_a), delong_variance(truth_b, score_b)
    total = of_a + of_b
    if not total > 0:
        return by_normal_law(difference, total)
    freedom = total**2 / (of_a**2 / (len(truth_a) - 1) + of_b**2 / (len(truth_b) - 1))
    z = difference / math.sqrt(total)
    reach = float(student.ppf(0.975, freedom)) * math.sqrt(total)
    return Comparison(difference, difference - reach, difference + reach, z, float(2 * student.sf(abs(z), freedom)))


def by_normal_law(difference: float, variance: float) -> Comparison:
    """z, p and interval of a difference by the normal law; see `Comparison` for a variance of zero."""
    if variance > 0:
        z = difference / math.sqrt(variance)
        reach = Z_95 * math.sqrt(variance)
        return Comparison(difference, difference - reach, difference + reach, z, float(2 * norm.sf(abs(z))))
    if variance == 0 and difference == 0:
        return Comparison(0.0, 0.0, 0.0, 0.0, 1.0)
    return Comparison(difference, math.nan, math.nan, math.nan, math.nan)


def _wins(
    truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " k"]]:
    """For each positive the negatives it beats, for each negative the positives that beat it; ties one half, exact."""
    overall = rankdata(score)
    beaten = overall[truth] - rankdata(score[truth])
    beating = truth.sum() - (overall[~truth] - rankdata(score[~truth]))
    return beaten, beating


def _enough(truth: Bool[np.ndarray, " n"]) -> bool:
    return bool(truth.sum() > 1 and (~truth).sum() > 1)  # a sample variance needs two
