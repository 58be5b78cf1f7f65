"""How well scores separate positives from negatives: truth and score of n patients in, AUC, its bootstrap and p out.

n is the number of patients, m of whom are positive and k negative (m + k = n); b is the number of sets of weights.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score

from mri_vit.metrics.bootstrap import CONFIDENCE, interval
from mri_vit.metrics.checked import Flags, Groups, Numbers, grouped, labelled, numbers


def auc(truth: Flags, score: Numbers) -> float:
    """Area under the ROC curve.

    Definition: the probability that a random positive scores higher than a random negative, ties counting one half.
    Formula: AUC = (R - m (m + 1) / 2) / (m k), with R the sum of the positives' midranks; O(n log n).
    Assumption: every truth is known and no score is missing.
    Source: Mann & Whitney 1947; Bamber 1975, doi:10.1016/0022-2496(75)90001-2.

    Parameters
    ----------
    truth : [n], True or 1 for a positive, of any type of number.
    score : float [n], higher means more likely positive.

    Returns
    -------
    float in [0, 1]; NaN when only one class is present, since the probability is then of nothing.

    Raises
    ------
    ValueError for a label other than 0 and 1, a score that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    >>> truth, score = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> auc(truth, score)
    0.75
    """
    truth, score = labelled(truth, score)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return math.nan
    rank_sum = float(rankdata(score)[truth].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def auc_within(truth: Flags, score: Numbers, group: Groups) -> float:
    """AUC over the pairs whose two patients are in the same group (the same test fold, so scored by the same model).

    Definition: among the positive-negative pairs inside a group, the share in which the positive scores higher.
    Formula: sum_g m_g k_g AUC_g / sum_g m_g k_g; a group of one class has no pair and no weight.
    Assumption: scores are comparable inside a group; nothing is assumed between groups, whose scales may differ.
    Source: the covariate-adjusted AUC of Janes & Pepe 2009, doi:10.1093/biomet/asp002, weighted by pairs.

    Returns
    -------
    float in [0, 1]; NaN when no group holds both classes.

    Examples
    --------
    >>> truth, score = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> auc_within(truth, score, np.array(["a", "b", "a", "b"]))
    1.0
    """
    truth, score = labelled(truth, score)
    group = grouped(group, len(truth))
    pairs = concordant = 0.0
    for name in np.unique(group):
        here = group == name
        weight = float(truth[here].sum()) * float((~truth[here]).sum())
        if weight:
            pairs += weight
            concordant += weight * auc(truth[here], score[here])
    return concordant / pairs if pairs else math.nan


def average_precision(truth: Flags, score: Numbers) -> float:
    """Area under the precision-recall curve, as average precision; the level of chance is the prevalence m / n, not ½.

    Definition: the mean, over positives, of the precision at the threshold that just calls that positive.
    Formula: sum over thresholds of (recall step) x (precision), without interpolation; by scikit-learn.
    Assumption: the prevalence is that of interest; the figure is not comparable between cohorts of unequal prevalence.
    Source: Davis & Goadrich 2006, doi:10.1145/1143844.1143874; Saito & Rehmsmeier 2015, doi:10.1371/journal.pone.0118432.

    Returns
    -------
    float in (0, 1]; NaN when only one class is present (without a negative it would be 1 whatever the scores).

    Examples
    --------
    >>> truth, score = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> round(average_precision(truth, score), 3)
    0.833
    """
    truth, score = labelled(truth, score)
    if not _both(truth):
        return math.nan
    return float(average_precision_score(truth, score))


def weighted_auc(
    positive_weight: Float[np.ndarray, "b n"], negative_weight: Float[np.ndarray, "b n"], score: Numbers
) -> Float[np.ndarray, " b"]:
    """AUC of b sets of weights over the same scores: a bootstrap draw, or inverse-probability weights.

    Definition: the weighted share of positive-negative pairs in which the positive scores higher, ties one half.
    Formula: sum_ij u_i v_j (1[s_i > s_j] + ½ 1[s_i = s_j]) / (sum u sum v), from running sums over the sorted scores.
    Assumption: weights are not negative; a patient takes no part on a side where its weight is zero.
    Source: the weighted form of Bamber 1975, doi:10.1016/0022-2496(75)90001-2.

    Returns
    -------
    float [b]; NaN where a side has no weight.
    """
    score = numbers(score, "scores")
    for weight in (positive_weight, negative_weight):
        if weight.ndim != 2 or weight.shape[1] != len(score):
            raise ValueError(f"found weights of shape {weight.shape} for {len(score)} scores; expected a column for each")
        if not (weight >= 0).all():
            raise ValueError(f"{int((~(weight >= 0)).sum())} of {weight.size} weights are negative or NaN")
    if not len(score):
        return np.full(len(positive_weight), math.nan)
    order = np.argsort(score, kind="stable")
    first = np.flatnonzero(np.r_[True, np.diff(score[order]) != 0])  # where each distinct score starts
    positive, negative = positive_weight[:, order], negative_weight[:, order]
    if len(first) < len(order):
        positive, negative = (np.add.reduceat(side, first, axis=1) for side in (positive, negative))  # (b, distinct scores)
    below = np.cumsum(negative, axis=1) - negative / 2
    pairs = positive.sum(axis=1) * negative.sum(axis=1)
    return (positive * below).sum(axis=1) / np.where(pairs > 0, pairs, math.nan)


def bootstrap_interval(
    truth: Flags,
    score: Numbers,
    generator: np.random.Generator,
    resamples: int = 2000,  # the default of pROC's ci.auc (Robin et al. 2011)
    confidence: float = CONFIDENCE,
) -> tuple[float, float]:
    """Confidence interval of the AUC by a percentile bootstrap of patients, stratified by class.

    Definition: m positives and k negatives are drawn with replacement, each from their own class, the AUC is computed on
    each draw, and the interval runs between the quantiles of these AUCs.
    Assumption: one row per patient; patients are independent; the model is taken as given (training is not repeated).
    Without a single error the interval has no width.
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13; stratified as in pROC (Robin et al. 2011,
    doi:10.1186/1471-2105-12-77).

    Returns
    -------
    (low, high); both NaN when only one class is present.

    Examples
    --------
    >>> truth = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> score = np.array([0.1, 0.2, 0.3, 0.6, 0.4, 0.5, 0.7, 0.9])
    >>> low, high = bootstrap_interval(truth, score, np.random.default_rng(0))
    >>> print(f"{low:.2f} to {high:.2f}")
    0.50 to 1.00
    """
    truth, score = labelled(truth, score)
    if not _both(truth):
        return math.nan, math.nan

    def drawn_auc(drawn: Float[np.ndarray, "b n"]) -> Float[np.ndarray, " b"]:
        return weighted_auc(drawn * truth, drawn * ~truth, score)

    low, high = interval(drawn_auc, ~truth, generator, resamples, confidence)
    return float(low), float(high)


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


def _both(truth: Bool[np.ndarray, " n"]) -> bool:
    return bool(truth.any() and not truth.all())
