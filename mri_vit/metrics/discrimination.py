"""How well scores separate positives from negatives: truth and score of n patients in, AUC and its interval out.

n is the number of patients, m of whom are positive and k negative (m + k = n).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy.stats import norm, rankdata


def auc(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"]) -> float:
    """Area under the ROC curve.

    Definition: the probability that a random positive scores higher than a random negative, ties counting one half.
    Formula: AUC = (R - m (m + 1) / 2) / (m k), with R the sum of the positives' midranks; O(n log n).
    Assumption: every truth is known and no score is missing.
    Source: Mann & Whitney 1947; Bamber 1975, doi:10.1016/0022-2496(75)90001-2.

    Parameters
    ----------
    truth : bool [n], True for a positive.
    score : float [n], higher means more likely positive.

    Returns
    -------
    float in [0, 1]; NaN when only one class is present, since the probability is then of nothing.

    Raises
    ------
    ValueError when a score is NaN.
    """
    _refuse_missing(score)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return math.nan
    rank_sum = float(rankdata(score)[truth].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def auc_within(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"], group: Shaped[np.ndarray, " n"]) -> float:
    """AUC over the pairs whose two patients are in the same group (the same test fold, so scored by the same model).

    Definition: among the positive-negative pairs inside a group, the share in which the positive scores higher.
    Formula: sum_g m_g k_g AUC_g / sum_g m_g k_g; a group of one class has no pair and no weight.
    Assumption: scores are comparable inside a group; nothing is assumed between groups, whose scales may differ.
    Source: the covariate-adjusted AUC of Janes & Pepe 2009, doi:10.1093/biomet/asp002, weighted by pairs.

    Returns
    -------
    float in [0, 1]; NaN when no group holds both classes.
    """
    pairs = concordant = 0.0
    for name in np.unique(group):
        here = group == name
        weight = float(truth[here].sum()) * float((~truth[here]).sum())
        if weight:
            pairs += weight
            concordant += weight * auc(truth[here], score[here])
    return concordant / pairs if pairs else math.nan


def delong_components(
    truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " k"]]:
    """The structural components of the AUC: one for each positive, one for each negative.

    Definition: for a positive, the share of negatives that score below it; for a negative, the share of positives above
    it; ties count one half. The mean of either is the AUC.
    Formula: V10 = (midrank among all - midrank among positives) / k; V01 = 1 - (midrank among all - among negatives) / m.
    Assumption: both classes are present.
    Source: DeLong et al. 1988, doi:10.2307/2531595; midranks, O(n log n): Sun & Xu 2014, doi:10.1109/LSP.2014.2337313.
    """
    _refuse_missing(score)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    overall = rankdata(score)
    v10 = (overall[truth] - rankdata(score[truth])) / negatives
    v01 = 1 - (overall[~truth] - rankdata(score[~truth])) / positives
    return v10, v01


def delong_variance(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"]) -> float:
    """Variance of the AUC by DeLong's method.

    Formula: var(V10) / m + var(V01) / k, with sample variances of the structural components.
    Assumption: patients are independent draws, and the scores were not fitted to them.
    Source: DeLong et al. 1988, doi:10.2307/2531595.

    Returns
    -------
    float; NaN with fewer than two positives or two negatives. Zero when the classes are separated without an error.
    """
    if truth.sum() < 2 or (~truth).sum() < 2:
        return math.nan
    v10, v01 = delong_components(truth, score)
    return float(v10.var(ddof=1) / len(v10) + v01.var(ddof=1) / len(v01))


def delong_interval(
    truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"], confidence: float = 0.95
) -> tuple[float, float]:
    """Confidence interval of the AUC, on the plain (not logit) scale and clipped to [0, 1], as pROC gives it.

    Formula: AUC ± z sqrt(DeLong variance), z the normal quantile.
    Assumption: the AUC is near normal, which fails near 0 and 1 and with few patients: without a single error the interval
    has no width, however few the patients. Pooled out-of-fold scores are treated as one model's, and the uncertainty of
    training is not in it.
    Source: DeLong et al. 1988, doi:10.2307/2531595; Robin et al. 2011 (pROC), doi:10.1186/1471-2105-12-77.

    Returns
    -------
    (low, high); both NaN where the variance is undefined.
    """
    variance = delong_variance(truth, score)
    if math.isnan(variance):
        return math.nan, math.nan
    reach = float(norm.ppf((1 + confidence) / 2)) * math.sqrt(variance)
    value = auc(truth, score)
    return max(0.0, value - reach), min(1.0, value + reach)


def chance_error(positives: int, negatives: int) -> float:
    """Standard error that chance alone gives to an AUC of 0.5.

    Formula: sqrt((m + k + 1) / (12 m k)), the exact standard error when scores have nothing to do with the truth.
    Assumption: no ties between scores (with ties it is smaller).
    Source: Mann & Whitney 1947; Bamber 1975, doi:10.1016/0022-2496(75)90001-2.

    Returns
    -------
    float; NaN without at least one patient of each class.
    """
    if not positives or not negatives:
        return math.nan
    return math.sqrt((positives + negatives + 1) / (12 * positives * negatives))


def mean_and_sample_variance(values: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Mean and sample variance (n - 1 below the line) of the defined values; the NaN are left out.

    Assumption: none for the mean; the variance between cross-validation folds describes spread, it is no basis for a
    confidence interval, because the folds share training patients (Bengio & Grandvalet 2004, JMLR 5:1089).
    Source: the "mean ± variance" of Saeed et al. 2023, Table 4, doi:10.1016/j.media.2023.102989, is the sample variance.

    Returns
    -------
    (mean, variance); the mean is NaN without a defined value, the variance with fewer than two.
    """
    defined = values[~np.isnan(values)]
    mean = float(defined.mean()) if len(defined) else math.nan
    variance = float(defined.var(ddof=1)) if len(defined) > 1 else math.nan
    return mean, variance


def _refuse_missing(score: Float[np.ndarray, " n"]) -> None:
    if np.isnan(score).any():
        raise ValueError(f"{int(np.isnan(score).sum())} of {len(score)} scores are NaN; a rank needs every score")
