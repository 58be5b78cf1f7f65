"""AUC and C of the pairs within a fold, tested against chance or another model; and each patient's wrongly ranked pairs.

The tests hold although each fold's model was trained on the other folds' patients. n is the number of patients; a fold's test
patients are a group, scored by one model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr, ndtri

from mri_vit.metrics.checked import Flags, Groups, Numbers, grouped, labelled, outcome
from mri_vit.metrics.comparison import Comparison, by_normal_law
from mri_vit.metrics.concordance import patient_pairs
from mri_vit.metrics.discrimination import delong_components, ranks

ALPHA = 0.05  # Fisher 1925
# Besag & Clifford 1991, doi:10.1093/biomet/78.2.301: at the 20th draw that reaches the observed value, p = 20 / draws has a
# relative standard error of 0.22 at most, and is far from any level of a test where few draws were needed.
ENOUGH_EXCEEDANCES = 20
# Of a study without a leak: any endpoint of the first permutation, and then the same endpoint of a fresh one, must both look so.
# With E endpoints and a p of √(0.01 / E) each, both do in E · 0.01 / E = 1 % of such studies.
FALSE_POSITIVES = 0.01
CHANCE = 0.5  # AUC and concordance of a model that knows nothing


@dataclass(frozen=True)
class WithinFold:
    """An AUC or C of the pairs within a fold, its standard error without a signal, and each patient's influence on it.

    Both take scores as given. `error` is that of labels which have nothing to do with the scores. The squares of the influences
    add up to the variance over other patients of the same kind; those of the differences of two models' influences, to that of
    the difference of the two. All are NaN without a pair.
    """

    value: float
    error: float
    influence: Float[np.ndarray, " n"]

    @property
    def variance(self) -> float:
        return float((self.influence**2).sum())


def within_fold_auc(truth: Flags, score: Numbers, group: Groups) -> WithinFold:
    """AUC of the pairs within a group, and its standard error when labels are exchanged within each group.

    Formula: AUC_w = sum_g U_g / sum_g m_g k_g, U_g the pairs that the positive wins, ties one half;
    error² = sum_g (m_g k_g / n_g) s_g² / (sum_g m_g k_g)², s_g² the sample variance of the group's midranks, so that it is
    exact with ties. The influence of a positive is (w - AUC_w k_g) / sum_g m_g k_g, w the negatives that it beats, times
    sqrt(M / (M - 1)) of all M positives who are in a pair; of a negative likewise. In one group their squares add up to DeLong's
    variance. They are NaN where M, or the number of such negatives, is 1.
    Assumption: scores are comparable inside a group.
    Source: the rank-sum test stratified as by van Elteren 1960, each group weighing as it has pairs; Lehmann 1975,
    Nonparametrics, chapter 3, for the variance with ties; DeLong et al. 1988, doi:10.2307/2531595, for the influences.

    >>> truth, score = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> found = within_fold_auc(truth, score, np.zeros(4))
    >>> print(f"{found.value:.2f} ± {found.error:.2f}")
    0.75 ± 0.32
    """
    truth, score = labelled(truth, score)
    group = grouped(group, len(truth))
    null = pairs = 0.0
    won, met = np.zeros((2, len(truth)))  # by each patient: pairs, and those that go as they should
    for name in np.unique(group):
        here = group == name
        n, positives = int(here.sum()), int(truth[here].sum())
        negatives = n - positives
        if not positives or not negatives:
            continue
        v10, v01 = delong_components(truth[here], score[here])
        won[here & truth], won[here & ~truth] = negatives * v10, positives * v01
        met[here] = np.where(truth[here], negatives, positives)
        null += positives * negatives / n * float(ranks(score[here]).var(ddof=1))
        pairs += positives * negatives
    if not pairs:
        return _undefined(len(truth))
    value = float(won[truth].sum()) / pairs
    influence = (won - value * met) / pairs
    for of_class in (truth & (met > 0), ~truth & (met > 0)):
        count = int(of_class.sum())
        influence[of_class] *= math.sqrt(count / (count - 1)) if count > 1 else math.nan
    return WithinFold(value, math.sqrt(null) / pairs, influence)


def within_fold_c(time_days: Numbers, event: Flags, risk: Numbers, group: Groups) -> WithinFold:
    """Harrell's C of the pairs within a group, and its standard error when risks are exchanged within each group.

    Formula: C_w = ½ + sum_g S_g / (2 sum_g P_g), S_g the concordant less the discordant of P_g comparable pairs; its variance
    over all permutations is exact (`concordance.PatientPairs.null_variance`). A patient's influence is that of the
    infinitesimal jackknife, (sum_j q_ij - C_w sum_j p_ij) / P, q_ij 1, ½ or 0 for a concordant, tied or discordant pair, p_ij 1
    for a comparable one, times sqrt(n / (n - 1)).
    Assumption: risks are comparable inside a group. Time is O(n log n).
    Source: Daniels 1944, doi:10.1093/biomet/33.2.129; Efron 1982, The Jackknife, the Bootstrap and Other Resampling Plans,
    chapter 6.

    >>> time_days, event = np.array([100.0, 200.0, 300.0, 400.0, 500.0]), np.array([1, 1, 0, 1, 0])
    >>> found = within_fold_c(time_days, event, np.array([0.9, 0.4, 0.6, 0.5, 0.1]), np.zeros(5))
    >>> print(f"{found.value:.2f} ± {found.error:.2f}")
    0.75 ± 0.23
    """
    time_days, event, risk = outcome(time_days, event, risk)
    group = grouped(group, len(risk))
    null = 0.0
    won, met = np.zeros((2, len(risk)))
    for name in np.unique(group):
        here = group == name
        found = patient_pairs(time_days[here], event[here], risk[here])
        won[here], met[here] = found.concordant, found.comparable
        null += found.null_variance(risk[here])
    pairs = met.sum() / 2
    if not pairs:
        return _undefined(len(risk))
    value = float(won.sum()) / 2 / pairs
    influence = (won - value * met) / pairs * math.sqrt(len(risk) / (len(risk) - 1))
    return WithinFold(value, math.sqrt(null) / (2 * pairs), influence)


def within_fold_comparison(ours: Sequence[WithinFold], theirs: Sequence[WithinFold], inflated: float) -> Comparison:
    """The difference of two models' figures on the same patients, and the two-sided test that it is zero.

    Formula: z is the mean difference over the repeats, over its standard error: the root of the mean variance, each the sum of
    the squared differences of influences, times `inflated`; p is normal and has no least value. With one group and `inflated` 1
    it is DeLong's paired test of two AUCs.
    Assumption: the figures of a repeat are of the same patients in the same order. Repeats share their patients, so that the
    variance of one is taken.
    Source: DeLong et al. 1988, doi:10.2307/2531595; Efron 1982, chapter 6.
    `ours`, `theirs`: of each repeat.
    Returns: Comparison; see there for a variance of zero; all NaN where a figure is.
    """
    difference = float(np.mean([a.value - b.value for a, b in zip(ours, theirs, strict=True)]))
    variances = [float(((a.influence - b.influence) ** 2).sum()) for a, b in zip(ours, theirs, strict=True)]
    return by_normal_law(difference, inflated**2 * float(np.mean(variances)))


def refitted_comparison(ours: Sequence[WithinFold], theirs: Sequence[WithinFold], inflated: float) -> Comparison:
    """`within_fold_comparison` of two models that were refitted per fold.

    Formula: the error is multiplied by `interval_inflation` of the mean of both models' figures and `inflated` (see `inflation`),
    for the difference scatters no more than each of them does. Equal ridge regressions then have p ≤ 0.05 in 0 to 6.5 %, on
    average 2.9 %, at AUCs of 0.5 to 0.94 (`pipelines/reproduce.py null_studies/comparisons`).
    """
    middle = float(np.mean([one.value for one in (*ours, *theirs)]))
    return within_fold_comparison(ours, theirs, interval_inflation(middle, inflated))


def inflation(folds: int, repeats: int = 1) -> float:
    """By how much the error of an out-of-fold AUC or C of nothing exceeds that of given scores, at most.

    Definition: patient i trains the model that scores j, and j the model that scores i. Without a signal this is one random
    term counted twice: the folds' figures correlate by about 1 / (K - 1), so that the variance of their mean doubles.
    Formula: c = sqrt(2 (1 - 1/K + 1/(K R))), K folds and R repeats whose figures are averaged; sqrt(2) for one repeat, whatever
    K is. Scores of a test set that trained no model have c = 1, the least: of one fold, repeated, not even that is known.
    Assumption: scores near linear in the labels, for which it is an upper bound; simulated for regressions, forests and
    networks by `pipelines/reproduce.py null_studies`.
    """
    return math.sqrt(max(1.0, 2 * (1 - 1 / folds + 1 / (folds * repeats))))


def interval_inflation(value: float, inflated: float) -> float:
    """As `inflation`, of the error that an interval is made of: at chance `inflated`, and 1 for an AUC or C without an error.

    Formula: sqrt(1 + (c² - 1) 4 a (1 - a)), a the AUC or C and c `inflated`, as `discrimination.wilson_of_auc` has it;
    `inflated` where the value is undefined.
    """
    return inflated if math.isnan(value) else math.sqrt(1 + (inflated**2 - 1) * 4 * value * (1 - value))


def p_above_chance(found: WithinFold, inflated: float) -> float:
    """One-sided normal p of so high a value, its error multiplied by `inflated` (see `inflation`); NaN without a pair.

    Without variance (all scores equal) p is 1.
    """
    if math.isnan(found.value):
        return math.nan
    return float(ndtr(-(found.value - CHANCE) / (inflated * found.error))) if found.error else 1.0


def least_above_chance(error: float, inflated: float, alpha: float = ALPHA) -> float:
    """The least value whose one-sided p is at most `alpha`, by the test of `p_above_chance`; above 1 where there is none."""
    return CHANCE + float(-ndtri(alpha)) * inflated * error


def leak_level(endpoints: int) -> float:
    """The p of one permutation up to which an endpoint of so many is suspicious."""
    return math.sqrt(FALSE_POSITIVES / max(endpoints, 1))


def p_below_chance(found: WithinFold, inflated: float) -> float:
    """One-sided normal p of so low a value, likewise."""
    return p_above_chance(replace(found, value=1 - found.value), inflated)


def _undefined(n: int) -> WithinFold:
    return WithinFold(math.nan, math.nan, np.full(n, math.nan))


class PairErrors(NamedTuple):
    """By patient: pairs with another of the same group, and those that are ranked the wrong way, ties counting one half."""

    wrong: Float[np.ndarray, " n"]
    pairs: Int[np.ndarray, " n"]


def label_errors(truth: Flags, score: Numbers, group: Groups) -> PairErrors:
    """Of each patient, the pairs with those of the other class in the same group, and those that the score ranks wrongly.

    Definition: a pair is wrong when the positive has the lower score, half wrong when the scores are equal. wrong / pairs of a
    patient is 1 less the patient's placement value; the sum of wrong over the sum of pairs is 1 less the AUC within groups.
    Assumption: scores are comparable inside a group; they need not be probabilities, and nothing is assumed between groups.
    Source: the structural components of DeLong et al. 1988, doi:10.2307/2531595; placement values: Hanley & Hajian-Tilaki 1997,
    doi:10.1016/S1076-6332(97)80161-4.

    >>> label_errors(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]), np.zeros(4)).wrong.tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    truth, score = labelled(truth, score)
    group = grouped(group, len(truth))
    wrong, pairs = np.zeros(len(truth)), np.zeros(len(truth), dtype=int)
    for name in np.unique(group):
        here = group == name
        positives, negatives = here & truth, here & ~truth
        among_all = np.zeros(len(truth))
        among_all[here] = ranks(score[here])
        below = among_all[positives] - ranks(score[positives])  # negatives of lower score, ties one half
        wrong[positives] = negatives.sum() - below
        wrong[negatives] = among_all[negatives] - ranks(score[negatives])
        pairs[positives], pairs[negatives] = negatives.sum(), positives.sum()
    return PairErrors(wrong, pairs)


def survival_errors(time_days: Numbers, event: Flags, risk: Numbers, group: Groups) -> PairErrors:
    """Of each patient, the comparable pairs in the same group, and those in which who died earlier had the lower risk.

    Definition: two patients are comparable when one is known to have outlived the other (see `death_counts`); equal risks
    are half wrong. The sum of wrong over the sum of pairs is 1 less Harrell's C within groups. Who was censored before the first
    death is in no pair.
    Assumption: risks are comparable inside a group.
    Source: Harrell et al. 1996, doi:10.1002/(SICI)1097-0258(19960229)15:4<361::AID-SIM168>3.0.CO;2-4.

    >>> days, died, risk = np.array([100.0, 200.0, 300.0]), np.array([1, 1, 0]), np.array([0.2, 0.9, 0.5])
    >>> survival_errors(days, died, risk, np.zeros(3)).wrong.tolist()
    [2.0, 1.0, 1.0]
    """
    time_days, event, risk = outcome(time_days, event, risk)
    group = grouped(group, len(risk))
    wrong, pairs = np.zeros(len(risk)), np.zeros(len(risk), dtype=int)
    for name in np.unique(group):
        here = group == name
        found = patient_pairs(time_days[here], event[here], risk[here])
        wrong[here], pairs[here] = found.comparable - found.concordant, found.comparable
    return PairErrors(wrong, pairs)
