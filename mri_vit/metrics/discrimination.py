"""How well scores separate positives from negatives: truth and score of n patients in; AUC, variance, intervals and test out.

n is the number of patients, m of them positive and k negative (m + k = n); b is the number of sets of weights. Of the
intervals, the report judges by Wilson's (`wilson_of_auc`); DeLong's is that of pROC.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from mri_vit.metrics.checked import Flags, Groups, Numbers, Scores, Truth, grouped, labelled, numbers
from mri_vit.metrics.comparison import Z_95, Comparison, by_normal_law

# (effective) patients on the rarer side: below the first Wilson's interval alone, from the second the normal one
WILSON_BELOW, NORMAL_FROM = 10, 20


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
    rank_sum = float(ranks(score)[truth].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def auc_within(truth: Flags, score: Numbers, group: Groups) -> float:
    """AUC over the pairs whose two patients are in the same group (the same test fold, so scored by the same model).

    Definition: among the positive-negative pairs inside a group, the share in which the positive scores higher.
    Formula: sum_g m_g k_g AUC_g / sum_g m_g k_g; a group of one class has no pair and no weight.
    Assumption: scores are comparable inside a group; nothing is assumed between groups, whose scales may differ.
    Source: the covariate-adjusted AUC of Janes & Pepe 2009, doi:10.1093/biomet/asp002, weighted by pairs.
    Returns: float in [0, 1]; NaN when no group holds both classes.

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
    Returns: float in (0, 1]; NaN when only one class is present (without a negative it would be 1 whatever the scores).

    >>> truth, score = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> round(average_precision(truth, score), 3)
    0.833
    """
    truth, score = labelled(truth, score)
    if not truth.any() or truth.all():
        return math.nan
    from sklearn.metrics import average_precision_score  # here, because `check` reads this file and scikit-learn takes seconds

    return float(average_precision_score(truth, score))


def weighted_auc(
    positive_weight: Float[np.ndarray, "b n"], negative_weight: Float[np.ndarray, "b n"], score: Numbers
) -> Float[np.ndarray, " b"]:
    """AUC of b sets of weights over the same scores: a bootstrap draw, or inverse-probability weights.

    Definition: the weighted share of positive-negative pairs in which the positive scores higher, ties one half.
    Formula: sum_ij u_i v_j (1[s_i > s_j] + ½ 1[s_i = s_j]) / (sum u sum v), from running sums over the sorted scores.
    Assumption: weights are not negative; a patient takes no part on a side where its weight is zero.
    Source: the weighted form of Bamber 1975, doi:10.1016/0022-2496(75)90001-2.
    Returns: float [b]; NaN where a side has no weight.
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


def chance_error(positives: int, negatives: int) -> float:
    """Standard error that chance alone gives to an AUC of 0.5.

    Formula: sqrt((m + k + 1) / (12 m k)), the exact standard error when scores have nothing to do with the truth.
    Assumption: no ties between scores (with ties it is smaller).
    Source: Mann & Whitney 1947; Bamber 1975, doi:10.1016/0022-2496(75)90001-2.
    Returns: float; NaN without at least one patient of each class.
    """
    if not positives or not negatives:
        return math.nan
    return math.sqrt((positives + negatives + 1) / (12 * positives * negatives))


def mean_and_sample_variance(values: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Mean and sample variance (n - 1 below the line) of the defined values; the NaN are left out.

    Assumption: none for the mean; the variance between cross-validation folds describes spread, it is no basis for a
    confidence interval, because the folds share training patients (Bengio & Grandvalet 2004, JMLR 5:1089).
    Source: the "mean ± variance" of Saeed et al. 2023, Table 4, doi:10.1016/j.media.2023.102989, is the sample variance.
    Returns: (mean, variance); the mean is NaN without a defined value, the variance with fewer than two.
    """
    defined = values[~np.isnan(values)]
    mean = float(defined.mean()) if len(defined) else math.nan
    variance = float(defined.var(ddof=1)) if len(defined) > 1 else math.nan
    return mean, variance


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
    Returns: float; NaN with fewer than two positives or two negatives. Zero when the classes are separated without an error.
    """
    truth, score = labelled(truth, score)
    if not _enough(truth):
        return math.nan
    v10, v01 = delong_components(truth, score)
    return float(v10.var(ddof=1) / len(v10) + v01.var(ddof=1) / len(v01))


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
    reach = float(ndtri((1 + confidence) / 2)) * math.sqrt(variance)
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
    Returns: Comparison; see there for a variance of zero; all NaN but the difference with fewer than two of a class.

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


def _wins(truth: Truth, score: Scores) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " k"]]:
    """For each positive the negatives it beats, for each negative the positives that beat it; ties one half, exact."""
    overall = ranks(score)
    beaten = overall[truth] - ranks(score[truth])
    beating = truth.sum() - (overall[~truth] - ranks(score[~truth]))
    return beaten, beating


def ranks(score: Scores) -> Float[np.ndarray, " n"]:
    """Ranks from 1; tied scores have the mean of their ranks, as `scipy.stats.rankdata` gives it, which is slow to import."""
    _, value, counts = np.unique(score, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[value]


def _enough(truth: Truth) -> bool:
    return bool(truth.sum() > 1 and (~truth).sum() > 1)  # a sample variance needs two


def auc_interval(truth: Flags, score: Numbers) -> tuple[float, float]:
    """95 % interval of the AUC of given scores, by `wilson_of_auc` with DeLong's variance.

    Returns: (low, high); both NaN with fewer than two positives or two negatives.

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
    Returns: (low, high); both NaN where value or variance is.
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
    patients for which a share of one half has the variance that C has without a signal; `refits` as for `wilson_of_auc`.
    Assumption: patients are independent.
    `variance`: of C for given scores (`within_fold.within_fold_c`, its variance); it is 0 where no pair is out of order.
    `null_variance`: of C of permuted risks (`within_fold.within_fold_c`, its error squared).
    Returns: (low, high); both NaN where a number is.
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
    normal = min(1.0, max(0.0, (patients * min(value, 1 - value) - WILSON_BELOW) / (NORMAL_FROM - WILSON_BELOW)))
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
