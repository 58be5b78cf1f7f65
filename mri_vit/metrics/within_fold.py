"""Is it better than chance? A test on pairs within a fold that holds although each fold's model learned from the others.

n is the number of patients; a fold's test patients are a group, scored by one model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import norm, rankdata

from mri_vit.metrics.checked import Flags, Groups, Numbers, grouped, labelled, outcome
from mri_vit.metrics.delong import delong_variance

CHANCE = 0.5  # AUC and concordance of a model that knows nothing


@dataclass(frozen=True)
class WithinFold:
    """An AUC or C of the pairs within a fold, its standard error without a signal, and its variance as it is.

    Both take scores as given. `error` is that of labels which have nothing to do with the scores, `variance` that of other
    patients of the same kind. All are NaN without a pair.
    """

    value: float
    error: float
    variance: float = math.nan


def within_fold_auc(truth: Flags, score: Numbers, group: Groups) -> WithinFold:
    """AUC of the pairs within a group, and its standard error when labels are exchanged within each group.

    Formula: AUC_w = sum_g U_g / sum_g m_g k_g, U_g the pairs that the positive wins, ties one half;
    error² = sum_g (m_g k_g / n_g) s_g² / (sum_g m_g k_g)², s_g² the sample variance of the group's midranks, so that it is
    exact with ties. `variance` is DeLong's of each group, put together likewise; NaN where a group with pairs has one
    patient of a class.
    Assumption: scores are comparable inside a group.
    Source: the rank-sum test stratified as by van Elteren 1960, each group weighing as it has pairs; Lehmann 1975,
    Nonparametrics, chapter 3, for the variance with ties.

    Raises
    ------
    ValueError for a label other than 0 and 1, a score that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    >>> truth, score = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> found = within_fold_auc(truth, score, np.zeros(4))
    >>> print(f"{found.value:.2f} ± {found.error:.2f}")
    0.75 ± 0.32
    """
    truth, score = labelled(truth, score)
    group = grouped(group, len(truth))
    wins = null = spread = pairs = 0.0
    for name in np.unique(group):
        here = group == name
        n, positives = int(here.sum()), int(truth[here].sum())
        negatives = n - positives
        if not positives or not negatives:
            continue
        rank = rankdata(score[here])
        wins += float(rank[truth[here]].sum()) - positives * (positives + 1) / 2
        null += positives * negatives / n * float(rank.var(ddof=1))
        spread += (positives * negatives) ** 2 * delong_variance(truth[here], score[here])
        pairs += positives * negatives
    return WithinFold(wins / pairs, math.sqrt(null) / pairs, spread / pairs**2) if pairs else WithinFold(math.nan, math.nan)


def within_fold_c(time_days: Numbers, event: Flags, risk: Numbers, group: Groups) -> WithinFold:
    """Harrell's C of the pairs within a group, and its standard error when risks are exchanged within each group.

    Formula: C_w = ½ + sum_g S_g / (2 sum_g P_g), S_g the concordant less the discordant of P_g comparable pairs. With a_ij
    the sign of who is known to have lived longer and b_ij that of the risks, S = ½ sum_ij a_ij b_ij, whose variance over all
    permutations is exact: var(sum ab) = 4 (A1 - A2) (B1 - B2) / (n (n-1) (n-2)) + 2 A2 B2 / (n (n-1)), A1 = sum_i (sum_j
    a_ij)², A2 = sum_ij a_ij², B1 and B2 likewise. `variance` is the infinitesimal jackknife's: sum_i of the squared influence
    of a patient, (sum_j q_ij - C_w sum_j p_ij) / P, q_ij 1, ½ or 0 for a concordant, tied or discordant pair, p_ij 1 for a
    comparable one, times n / (n - 1).
    Assumption: risks are comparable inside a group. Time and memory are O(n²) of a group.
    Source: Daniels 1944, doi:10.1093/biomet/33.2.129 (generalised correlation); Kendall, Rank Correlation Methods, chapter 5;
    Efron 1982, The Jackknife, the Bootstrap and Other Resampling Plans, chapter 6.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    >>> time_days, event = np.array([100.0, 200.0, 300.0, 400.0, 500.0]), np.array([1, 1, 0, 1, 0])
    >>> found = within_fold_c(time_days, event, np.array([0.9, 0.4, 0.6, 0.5, 0.1]), np.zeros(5))
    >>> print(f"{found.value:.2f} ± {found.error:.2f}")
    0.75 ± 0.23
    """
    time_days, event, risk = outcome(time_days, event, risk)
    group = grouped(group, len(risk))
    balance = null = pairs = 0.0
    won, compared = np.zeros((2, len(risk)))
    for name in np.unique(group):
        here = group == name
        outlived = _outlived(time_days[here], event[here])
        riskier = np.sign(risk[here][:, None] - risk[here])
        balance += float((outlived * riskier).sum()) / 2
        null += _daniels_variance(outlived, riskier) / 4
        pairs += float((outlived > 0).sum())
        compared[here] = np.abs(outlived).sum(axis=1)
        won[here] = ((outlived * riskier + 1) / 2 * np.abs(outlived)).sum(axis=1)
    if not pairs:
        return WithinFold(math.nan, math.nan)
    value = CHANCE + balance / (2 * pairs)
    influence = (won - value * compared) / pairs
    variance = float((influence**2).sum()) * len(risk) / (len(risk) - 1)
    return WithinFold(value, math.sqrt(null) / (2 * pairs), variance)


def inflation(folds: int, repeats: int = 1) -> float:
    """By how much the error of an out-of-fold AUC or C of nothing exceeds that of given scores, at most.

    Definition: patient i teaches the model that scores j, and j the model that scores i. Without a signal this is one random
    term counted twice: the folds' figures correlate by about 1 / (K - 1), so that the variance of their mean doubles.
    Formula: c = sqrt(2 (1 - 1/K + 1/(K R))), K folds and R repeats whose figures are averaged; sqrt(2) for one repeat, whatever
    K is. Scores of a test set that taught nobody have c = 1.
    Assumption: scores near linear in the labels, for which it is an upper bound; simulated for regressions, forests and
    networks by `pipelines/null_studies.py`.
    """
    return math.sqrt(2 * (1 - 1 / folds + 1 / (folds * repeats)))


def p_above_chance(found: WithinFold, inflated: float) -> float:
    """One-sided normal p of so high a value, its error multiplied by `inflated` (see `inflation`); NaN without a pair.

    Without variance (all scores equal) p is 1.
    """
    if math.isnan(found.value):
        return math.nan
    return float(norm.sf((found.value - CHANCE) / (inflated * found.error))) if found.error else 1.0


def p_below_chance(found: WithinFold, inflated: float) -> float:
    """One-sided normal p of so low a value, likewise."""
    return p_above_chance(replace(found, value=1 - found.value), inflated)


def _outlived(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"]) -> Float[np.ndarray, "n n"]:
    """1 where the column's patient is known to have outlived the row's, -1 where the other way round, else 0."""
    first = event[:, None] & ((time_days[:, None] < time_days) | ((time_days[:, None] == time_days) & ~event))
    return first.astype(float) - first.T


def _daniels_variance(a: Float[np.ndarray, "n n"], b: Float[np.ndarray, "n n"]) -> float:
    """Variance of sum_ij a_ij b_ij, both antisymmetric, when the patients of one are permuted."""
    n = len(a)
    if n < 2:
        return 0.0
    a_rows, a_all, b_rows, b_all = (a.sum(1) ** 2).sum(), (a**2).sum(), (b.sum(1) ** 2).sum(), (b**2).sum()
    together = 2 * a_all * b_all / (n * (n - 1))
    return float(together + 4 * (a_rows - a_all) * (b_rows - b_all) / (n * (n - 1) * (n - 2)) if n > 2 else together)
