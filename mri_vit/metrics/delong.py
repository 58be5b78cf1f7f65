"""DeLong's variance of the AUC and what follows from it: intervals of one AUC (or C), and the paired test of two.

n is the number of patients, m of positives and k of negatives (m + k = n).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Real
from scipy.stats import norm, rankdata

from mri_vit.metrics.checked import Flags, Numbers, flags, labelled, numbers, refuse_unequal
from mri_vit.metrics.comparison import Z_95, Comparison, by_normal_law
from mri_vit.metrics.discrimination import auc

# (effective) patients on the rarer side: below the first Wilson's interval alone, from the second the normal one
FEW, MANY = 10, 20


def delong_components(truth: Flags, score: Numbers) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " k"]]:
    """The structural components of the AUC: one for each positive, one for each negative.

    Definition: for a positive, the share of negatives that score below it; for a negative, the share of positives above
    it; ties count one half. The mean of either is the AUC.
    Formula: V10 = (midrank among all - midrank among positives) / k; V01 = 1 - (midrank among all - among negatives) / m.
    Assumption: both classes are present.
    Source: DeLong et al. 1988, doi:10.2307/2531595; midranks, O(n log n): Sun & Xu 2014, doi:10.1109/LSP.2014.2337313.
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


def auc_interval(truth: Flags, score: Numbers) -> tuple[float, float]:
    """95 % interval of the AUC of given scores, by `wilson_of_auc` with DeLong's variance.

    Returns
    -------
    (low, high); both NaN with fewer than two positives or two negatives.

    Examples
    --------
    No error among 41 positives and 41 negatives:

    >>> import numpy as np
    >>> low, high = auc_interval(np.arange(82) >= 41, np.arange(82.0))
    >>> print(f"{low:.3f} to {high:.3f}")
    0.954 to 1.000
    """
    truth, score = labelled(truth, score)
    positives = int(truth.sum())
    return wilson_of_auc(auc(truth, score), delong_variance(truth, score), positives, len(truth) - positives)


def wilson_of_auc(value: float, variance: float, positives: int, negatives: int, refits: bool = False) -> tuple[float, float]:
    """95 % interval of an AUC, or of an AUC over time, by Wilson's formula with an effective number of patients.

    Formula: with a the AUC, m positives and k negatives, ã = (a m k + ½) / (m k + 1), V the larger of `variance` and
    `newcombe_variance` of ã, n_eff = ã (1 - ã) / V: Wilson's score interval of the share a of n_eff. From 20 (effective)
    patients on the rarer side the normal interval a ± z sqrt(V) takes its place, from 10 on by degrees. Where `refits`, a is an
    out-of-fold AUC of pairs within a fold, and V is multiplied by 1 + 4 a (1 - a): 2 at chance, as `within_fold.inflation`
    squared, and 1 without an error.
    Assumption: patients are independent. Chosen by simulation: it covers 95 to 98 % of given scores where DeLong's covers 75
    to 92 % (60 patients, or an AUC of 0.95 and more), is never of zero width, and is DeLong's to 0.005 from 200 patients and
    up to an AUC of 0.8 (`tests/metrics/test_intervals.py`); of an AUC of 0.50 refitted to nothing it covers 95 to 99 %
    (`covered` in `pipelines/reproductions/null_studies/null_studies.csv`).
    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953; Newcombe 2006, doi:10.1002/sim.2324.

    Returns
    -------
    (low, high); both NaN where value or variance is.
    """
    if math.isnan(value) or math.isnan(variance):
        return math.nan, math.nan
    pairs = positives * negatives
    shrunk = (value * pairs + 0.5) / (pairs + 1)
    spread = max(variance, newcombe_variance(shrunk, positives, negatives))
    return _wilson(value, shrunk * (1 - shrunk) / spread, refits)


def wilson_of_c(value: float, variance: float, null_variance: float, refits: bool = False) -> tuple[float, float]:
    """95 % interval of Harrell's C, likewise.

    Formula: n_eff, which Wilson's formula takes, is the lesser of C (1 - C) / variance and 1 / (4 null_variance), the number of
    patients of whom a share of one half has the variance that C has without a signal; `refits` as for `wilson_of_auc`.
    Assumption: patients are independent.

    Parameters
    ----------
    variance : of C for given scores (`within_fold.within_fold_c`, its variance); it is 0 where no pair is out of order.
    null_variance : of C of permuted risks (`within_fold.within_fold_c`, its error squared).

    Returns
    -------
    (low, high); both NaN where a number is.
    """
    if math.isnan(value + variance + null_variance) or not null_variance:
        return math.nan, math.nan
    patients = 1 / (4 * null_variance)
    if variance > 0:
        patients = min(patients, value * (1 - value) / variance)
    return _wilson(value, patients, refits) if patients else (math.nan, math.nan)


def _wilson(value: float, patients: float, refits: bool) -> tuple[float, float]:
    """Wilson's score interval of a share of so many patients, the normal one where many are on the wrong side, else between.

    The variance is enlarged where a model was fitted.
    """
    value = min(1.0, max(0.0, value))  # a sum of weights may exceed it by rounding
    patients /= 1 + 4 * value * (1 - value) * refits
    weight = Z_95**2 / patients
    centre = (value + weight / 2) / (1 + weight)
    reach = math.sqrt(weight * (value * (1 - value) + weight / 4)) / (1 + weight)
    normal = min(1.0, max(0.0, (patients * min(value, 1 - value) - FEW) / (MANY - FEW)))
    centre += normal * (value - centre)
    reach += normal * (math.sqrt(weight * value * (1 - value)) - reach)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def newcombe_variance(value: float, positives: int, negatives: int) -> float:
    """Variance of an AUC of m positives and k negatives, from its value alone.

    Formula: a (1 - a) (1 + (N - 1) (1 - a) / (2 - a) + (N - 1) a / (1 + a)) / (m k), N = (m + k) / 2.
    Assumption: exponential scores, with the two classes' numbers replaced by their mean.
    Source: Newcombe 2006, doi:10.1002/sim.2324, method 5; after Hanley & McNeil 1982, doi:10.1148/radiology.143.1.7063747.
    """
    more = (positives + negatives) / 2 - 1
    return value * (1 - value) * (1 + more * (1 - value) / (2 - value) + more * value / (1 + value)) / (positives * negatives)
