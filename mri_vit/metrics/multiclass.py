"""How well probabilities tell more than two classes apart: label and probabilities of n patients in; measures and intervals out.

n is the number of patients, k of classes, which are whole numbers from 0 to k - 1, c of those that have a patient to be compared
with; b of resamples, d of distinct probabilities, a of one set of patients and o of another. A fold's test patients are a group,
scored by one model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from mri_vit.metrics.checked import Drawn, Groups, Labels, Scores, Shares, classed, classes, grouped, ranked, refuse_unequal
from mri_vit.metrics.concordance import count_from, dense_ranks
from mri_vit.metrics.continuous import Estimate
from mri_vit.metrics.discrimination import ranks
from mri_vit.metrics.intervals import RESAMPLES, Rate, distribution, interval, percentile_interval, rate
from mri_vit.metrics.within_fold import WithinFold

LEAST_PROBABILITY = 1e-15  # in a log loss: scikit-learn's up to 1.2; later ones take the precision of the type, which is close


def within_fold_m(label: Labels, probability: Shares, group: Groups) -> WithinFold:
    """Hand and Till's M, the mean AUC of all pairs of classes, of the pairs of patients within a group.

    Definition: A(i|j) is the share of pairs, one patient of class i and one of class j in the same group, in which the former
    has the higher probability of class i, ties one half. M is the mean of [A(i|j) + A(j|i)] / 2 over the pairs of classes that
    meet in a group; with two classes it is `within_fold.within_fold_auc`. Chance is one half, however many classes there are.
    Formula: A(i|j) = sum_g U_g / sum_g m_gi m_gj. A patient's influence is the mean, over the same pairs of classes, of the
    influences as in `within_fold_auc`. The error is exact when labels are exchanged within each group: M - ½ = sum_k sum_ab
    A^k_ab B^k_ab with A^k_ab the sign of a's probability of class k less b's, and B^k_ab = sum_j w_kj ([a in k, b in j] - [a in
    j, b in k]), w_kj = 1 / (8 P sum_g m_gk m_gj), P pairs of classes; the covariance of two such sums over the permutations of a
    group is that of `concordance.PatientPairs.null_variance`, with products in place of squares. Time is O(k² n log n).
    Assumption: probabilities are comparable inside a group; each pair of classes weighs the same, however rare they are.
    Source: Hand & Till 2001, doi:10.1023/A:1010920819831; Daniels 1944, doi:10.1093/biomet/33.2.129; DeLong et al. 1988,
    doi:10.2307/2531595, for the influences.
    Returns: WithinFold; all NaN where no two classes meet in a group; the influences are NaN where a class has one patient.

    >>> label = np.array([0, 0, 1, 1, 2, 2])
    >>> probability = np.array([[7, 2, 1], [4, 5, 1], [2, 6, 2], [3, 4, 3], [1, 3, 6], [2, 5, 3]]) / 10
    >>> found = within_fold_m(label, probability, np.zeros(6))
    >>> print(f"{found.value:.2f} ± {found.error:.2f}")
    0.90 ± 0.18
    """
    label, probability = ranked(label, probability)
    group = grouped(group, len(label))
    folds = [np.flatnonzero(group == name) for name in np.unique(group)]
    k = probability.shape[1]
    sizes = np.array([np.bincount(label[here], minlength=k) for here in folds], dtype=float).reshape(-1, k)
    met = sizes.T @ sizes
    compared = [(i, j) for i, j in combinations(range(k), 2) if met[i, j]]
    if not compared:
        return WithinFold(math.nan, math.nan, np.full(len(label), math.nan))
    found = [_class_pair(label, probability, folds, i, j) for i, j in compared]
    weight = np.where(met > 0, 1 / np.where(met > 0, met, 1), 0.0) / (8 * len(compared))
    np.fill_diagonal(weight, 0.0)
    null = sum(_null_variance(size, weight, probability[here]) for size, here in zip(sizes, folds, strict=True))
    value, influence = (np.mean(part, axis=0) for part in zip(*found, strict=True))
    return WithinFold(float(value), math.sqrt(null), influence)


def _class_pair(
    label: Int[np.ndarray, " n"],
    probability: Float[np.ndarray, "n k"],
    folds: Sequence[Int[np.ndarray, " _"]],
    i: int,
    j: int,
) -> tuple[float, Float[np.ndarray, " n"]]:
    """[A(i|j) + A(j|i)] / 2 of two classes, and each patient's influence on it; 0 of patients of other classes."""
    won, met = np.zeros((2, len(label)))
    for here in folds:
        first, second = here[label[here] == i], here[label[here] == j]
        for own, others, up, down in ((first, second, i, j), (second, first, j, i)):
            by_own = _below(probability[own, up], probability[others, up])
            by_other = len(others) - _below(probability[own, down], probability[others, down])
            won[own], met[own] = (by_own + by_other) / 2, len(others)
    pairs = float(met.sum()) / 2
    value = float(won.sum()) / 2 / pairs
    influence = (won - value * met) / pairs
    for of_class in (i, j):
        side = (label == of_class) & (met > 0)
        count = int(side.sum())
        influence[side] *= math.sqrt(count / (count - 1)) if count > 1 else math.nan
    return value, influence


def _below(values: Float[np.ndarray, " a"], others: Float[np.ndarray, " o"]) -> Float[np.ndarray, " a"]:
    """How many of the others are below each value, ties one half."""
    others = np.sort(others)
    return (np.searchsorted(others, values, side="left") + np.searchsorted(others, values, side="right")) / 2


def _null_variance(
    size: Float[np.ndarray, " k"], weight: Float[np.ndarray, "k k"], probability: Float[np.ndarray, "n k"]
) -> float:
    """What one group adds to the variance of M when its labels are exchanged (see `within_fold_m`)."""
    n = len(probability)
    if n < 2:
        return 0.0
    counted = np.flatnonzero((weight > 0).any(axis=1))  # classes that meet another one, if in other groups
    size, weight, probability = size[counted], weight[np.ix_(counted, counted)], probability[:, counted]
    a_rows, a_all = _score_products(probability)
    b_rows, b_all = _label_products(size, weight)
    together = 2 * a_all * b_all / (n * (n - 1))
    apart = 4 * (a_rows - a_all) * (b_rows - b_all) / (n * (n - 1) * (n - 2)) if n > 2 else 0.0
    return max(0.0, float((together + apart).sum()))  # below 0 by rounding alone


def _score_products(probability: Float[np.ndarray, "n c"]) -> tuple[Float[np.ndarray, "c c"], Float[np.ndarray, "c c"]]:
    """Of the signs A^k_ab of each two columns: the sum over a of the products of row sums, and that over ab of the products."""
    n, count = probability.shape
    rows = np.stack([2 * ranks(column) - n - 1 for column in probability.T])
    products = np.zeros((count, count))
    for first in range(count):
        for second in range(first, count):
            products[first, second] = products[second, first] = 2 * _agreeing(probability[:, first], probability[:, second])
    return rows @ rows.T, products


def _agreeing(x: Scores, y: Scores) -> float:
    """Pairs that x and y order alike, less those that they order otherwise, in O(n log n)."""
    order = np.argsort(x, kind="stable")
    rank = dense_ranks(y)[order]
    higher = np.searchsorted(x[order], x[order], side="right")  # where those of higher x begin
    lower, equal = count_from(rank, higher, rank)
    return float((len(x) - higher - 2 * lower - equal).sum())


def _label_products(
    size: Float[np.ndarray, " c"], weight: Float[np.ndarray, "c c"]
) -> tuple[Float[np.ndarray, "c c"], Float[np.ndarray, "c c"]]:
    """As `_score_products`, of the B^k_ab, which are the same for all patients of a class."""
    count = len(size)
    of_pair = np.zeros((count, count, count))  # B^k of a patient of one class with one of another
    for k in range(count):
        of_pair[k, k, :] = weight[k]
        of_pair[k, :, k] = -weight[k]
    rows = of_pair @ size
    products = np.einsum("kab,lab,a,b->kl", of_pair, of_pair, size, size)
    return (rows * size) @ rows.T, products


def pdi(label: Labels, probability: Shares) -> float:
    """Polytomous discrimination index: how often, of one patient of each class, the right one has the highest probability.

    Definition: a set has one patient of each class. PDI is the mean, over classes and over all sets, of 1 where the patient of
    the class has the highest probability of it in the set, of 1 / t where t patients share the highest, and of 0 elsewhere.
    Chance is 1 / k; with two classes PDI is the AUC.
    Formula: mean over i of mean over x in class i of the integral over z from 0 to 1 of prod_{j != i} (L_j + z E_j), L_j and E_j
    the shares of class j whose probability of class i is below and equal to that of x: without sets, O(k² n log n).
    Assumption: probabilities of all patients are comparable, also those of different folds.
    Source: Van Calster et al. 2012, doi:10.1002/sim.5321 and doi:10.1007/s10654-012-9733-3; Dover et al. 2021,
    doi:10.1002/sim.8991, for the counting.
    Returns: float in [0, 1]; NaN where a class is missing.

    >>> label = np.array([0, 0, 1, 1, 2, 2])
    >>> probability = np.array([[7, 2, 1], [4, 5, 1], [2, 6, 2], [3, 4, 3], [1, 3, 6], [2, 5, 3]]) / 10
    >>> round(pdi(label, probability), 3)
    0.833
    """
    label, probability = ranked(label, probability)
    return float(_drawn_pdi(label, probability, np.ones((1, len(label))))[0])


def pdi_interval(
    label: Labels, probability: Shares, generator: np.random.Generator, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """95 % interval of `pdi`, by a percentile bootstrap within classes.

    Assumption: patients are independent; the model is taken as given. It is without width where no set is wrong.
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.
    Returns: (low, high); both NaN where a class is missing, or has one patient, who shows nothing of how others vary.
    """
    label, probability = ranked(label, probability)
    if (np.bincount(label, minlength=probability.shape[1]) < 2).any():
        return math.nan, math.nan
    low, high = interval(lambda drawn: _drawn_pdi(label, probability, drawn), label, generator, resamples)
    return float(low), float(high)


def _drawn_pdi(label: Int[np.ndarray, " n"], probability: Float[np.ndarray, "n k"], drawn: Drawn) -> Float[np.ndarray, " b"]:
    """PDI of each of b draws, which say how often each patient came up."""
    k = probability.shape[1]
    if not len(label):
        return np.full(len(drawn), math.nan)
    total = np.stack([drawn[:, label == of_class].sum(axis=1) for of_class in range(k)])
    share = 1 / np.where(total > 0, total, math.nan)
    return np.mean([_highest(label, probability[:, i], drawn, share, i) for i in range(k)], axis=0)


def _highest(
    label: Int[np.ndarray, " n"], score: Scores, drawn: Drawn, share: Float[np.ndarray, "k b"], of_class: int
) -> Float[np.ndarray, " b"]:
    """How often the patient of one class has the highest score of a set, of each of b draws; `share` is what a patient is of one
    of the k classes.
    """
    k = len(share)
    order = np.argsort(score, kind="stable")
    first = np.flatnonzero(np.r_[True, np.diff(score[order]) != 0])  # where each distinct score starts
    there = np.unique(np.searchsorted(score[order][first], score[label == of_class]))  # those that the class has
    inside, node_weight = np.polynomial.legendre.leggauss((k + 1) // 2)  # exact for a polynomial of degree k - 1
    chance = [np.ones((len(drawn), len(there))) for _ in inside]
    own = np.zeros((len(drawn), len(there)))
    for j in range(k):
        mass = np.add.reduceat(np.where(label[order] == j, drawn[:, order], 0.0), first, axis=1) * share[j][:, None]  # (b, d)
        if j == of_class:
            own = mass[:, there]
            continue
        below = (np.cumsum(mass, axis=1) - mass)[:, there]
        chance = [so_far * (below + (1 + z) / 2 * mass[:, there]) for so_far, z in zip(chance, inside, strict=True)]
    integral = sum(w / 2 * at for w, at in zip(node_weight, chance, strict=True))
    return (own * integral).sum(axis=1)


@dataclass(frozen=True)
class Confusion:
    """Patients of each class (row) by the class they are called (column), and the rates that follow; k of each list."""

    counts: Int[np.ndarray, "k k"]
    recall: list[Rate]
    precision: list[Rate]
    accuracy: Rate
    balanced_accuracy: float


def confusion(label: Labels, predicted: Labels, k: int) -> Confusion:
    """Which classes are taken for which, and the rates of it.

    Definition: recall of a class = called so among its patients; precision = of the class among those called so; accuracy =
    called right among all; each with a 95 % Wilson interval. Balanced accuracy is the mean recall of the classes that have a
    patient; chance is 1 over their number.
    Assumption: precision and accuracy belong to these shares of the classes.
    Source: Brodersen et al. 2010, doi:10.1109/ICPR.2010.764, for balanced accuracy; Wilson 1927,
    doi:10.1080/01621459.1927.10502953.
    Returns: Confusion; a rate of no patients is NaN, and so are its bounds.

    >>> confusion(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1]), 3).counts.tolist()
    [[1, 1, 0], [0, 1, 0], [0, 1, 0]]
    """
    label, predicted = classes(label, "labels", k), classes(predicted, "predictions", k)
    refuse_unequal(labels=len(label), predictions=len(predicted))
    counts = np.bincount(label * k + predicted, minlength=k * k).reshape(k, k)
    right, of_class, called = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    recall = [rate(int(hit), int(total)) for hit, total in zip(right, of_class, strict=True)]
    precision = [rate(int(hit), int(total)) for hit, total in zip(right, called, strict=True)]
    known = [found.value for found, total in zip(recall, of_class, strict=True) if total]
    balanced = float(np.mean(known)) if known else math.nan
    return Confusion(counts, recall, precision, rate(int(right.sum()), len(label)), balanced)


def log_loss(label: Labels, probability: Shares) -> float:
    """Log loss: the mean negative logarithm of the probability that the patient's own class was given.

    Formula: mean of -ln p_i(y_i). Lower is better; p = 0 counts as 1e-15.
    Assumption: none; a single patient whose class was given next to nothing may decide it.
    Source: Good 1952, doi:10.1111/j.2517-6161.1952.tb00104.x.
    Returns: float, 0 or more; NaN without a patient.

    >>> round(log_loss(np.array([0, 1]), np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])), 3)
    0.458
    """
    label, probability = classed(label, probability)
    return float(_log_losses(label, probability).mean()) if len(label) else math.nan


def brier(label: Labels, probability: Shares) -> float:
    """Brier score of several classes: the mean squared distance of probabilities and outcome, summed over the classes.

    Formula: mean of sum_k (p_i(k) - [y_i = k])². Lower is better, 2 at worst; with two classes it is twice `calibration.brier`.
    Assumption: none; the score mixes calibration and discrimination.
    Source: Brier 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2.
    Returns: float in [0, 2]; NaN without a patient.

    >>> round(brier(np.array([0, 1]), np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])), 3)
    0.22
    """
    label, probability = classed(label, probability)
    return float(_brier_scores(label, probability).mean()) if len(label) else math.nan


def _log_losses(label: Int[np.ndarray, " n"], probability: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    return -np.log(np.clip(probability[np.arange(len(label)), label], LEAST_PROBABILITY, 1 - LEAST_PROBABILITY))


def _brier_scores(label: Int[np.ndarray, " n"], probability: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    return ((probability - np.eye(probability.shape[1])[label]) ** 2).sum(axis=1)


@dataclass(frozen=True)
class Losses:
    """Losses of a model, those of the shares of the classes, and the part of these that the model saves."""

    log_loss: Estimate
    brier: Estimate
    log_loss_of_shares: Estimate
    brier_of_shares: Estimate
    scaled_log_loss: Estimate
    scaled_brier: Estimate


def losses(label: Labels, probability: Shares, generator: np.random.Generator, resamples: int = RESAMPLES) -> Losses:
    """`log_loss` and `brier` beside those of the shares of the classes, with intervals of one bootstrap of patients.

    Formula: scaled = 1 - loss / that of the shares, which are those of the classes among the same patients: 1 at best, 0 for the
    shares, below 0 for probabilities that are worse than them. As in `calibration.probability_intervals`, patients are drawn
    freely, and the shares given to them are the patients' own on every draw; intervals are percentiles.
    Assumption: patients are independent; the model is taken as given (training is not repeated).
    Source: Kattan & Gerds 2018, doi:10.1186/s41512-018-0029-2 (scaled); Efron & Tibshirani 1993, An Introduction to the
    Bootstrap, chapter 13.
    Returns: Losses; scaled is NaN, and no interval has ends, where all patients are of one class.
    """
    label, probability = classed(label, probability)
    n = len(label)
    if not n:
        return Losses(*[Estimate(math.nan, math.nan, math.nan)] * 6)
    shares = np.broadcast_to(np.bincount(label, minlength=probability.shape[1]) / n, probability.shape)
    each = np.stack(
        [measure(label, given) for given in (probability, shares) for measure in (_log_losses, _brier_scores)], axis=1
    )
    one_class = bool(np.ptp(label) == 0)

    def measures(drawn: Drawn) -> Float[np.ndarray, "b 6"]:
        mean = drawn @ each / n
        saved = np.full((len(drawn), 2), math.nan) if one_class else 1 - mean[:, :2] / mean[:, 2:]
        return np.concatenate([mean, saved], axis=1)

    own = measures(np.ones((1, n)))[0]
    low, high = percentile_interval(distribution(measures, np.zeros(n), generator, resamples))
    if one_class:
        low = high = np.full(6, math.nan)
    return Losses(*map(Estimate, own.tolist(), low.tolist(), high.tolist()))
