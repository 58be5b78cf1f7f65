"""The test of pairs within a fold: its errors are those of all permutations, and its inflation is what refitting adds."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from lifelines.utils import concordance_index
from scipy.stats import mannwhitneyu, norm
from sklearn.metrics import roc_auc_score

from mri_vit.metrics.comparison import Comparison
from mri_vit.metrics.concordance import harrell_c_within
from mri_vit.metrics.discrimination import auc_within, delong_paired, delong_variance
from mri_vit.metrics.within_fold import (
    WithinFold,
    inflation,
    p_above_chance,
    p_below_chance,
    refitted_comparison,
    within_fold_auc,
    within_fold_c,
    within_fold_comparison,
)


def test_in_one_fold_the_auc_and_its_p_are_the_rank_sum_tests_with_ties():
    generator = np.random.default_rng(0)
    truth, score = generator.random(60) < 0.4, generator.integers(0, 12, 60).astype(float)
    found = within_fold_auc(truth, score, np.zeros(60))
    oracle = mannwhitneyu(score[truth], score[~truth], alternative="greater", method="asymptotic", use_continuity=False)
    assert found.value == pytest.approx(roc_auc_score(truth, score))
    assert p_above_chance(found, 1.0) == pytest.approx(oracle.pvalue)


def test_the_error_of_the_auc_is_the_spread_over_all_ways_to_deal_the_labels_within_folds():
    truth = np.array([1, 0, 0, 1, 1, 0, 0])
    score, fold = np.array([0.3, 0.3, 0.1, 0.9, 0.5, 0.5, 0.2]), np.array([0, 0, 0, 0, 1, 1, 1])
    dealt = [
        auc_within(np.r_[truth[:4][list(a)], truth[4:][list(b)]], score, fold)
        for a in permutations(range(4))
        for b in permutations(range(3))
    ]
    found = within_fold_auc(truth, score, fold)
    assert found.value == pytest.approx(auc_within(truth, score, fold))
    assert np.mean(dealt) == pytest.approx(0.5)
    assert found.error == pytest.approx(np.std(dealt))


def test_the_error_of_c_is_the_spread_over_all_ways_to_deal_the_risks():
    days, event = np.array([5.0, 3.0, 3.0, 8.0, 2.0, 8.0]), np.array([1, 1, 0, 0, 1, 1])
    risk = np.array([0.1, 0.4, 0.4, 0.2, 0.9, 0.3])
    dealt = [within_fold_c(days, event, risk[list(order)], np.zeros(6)).value for order in permutations(range(6))]
    found = within_fold_c(days, event, risk, np.zeros(6))
    assert found.value == pytest.approx(concordance_index(days, -risk, event))
    assert np.mean(dealt) == pytest.approx(0.5)
    assert found.error == pytest.approx(np.std(dealt))


def test_over_folds_c_counts_pairs_within_them_and_variances_add():
    generator = np.random.default_rng(1)
    days, event, risk = generator.exponential(size=50), generator.random(50) < 0.7, generator.normal(size=50)
    fold = np.arange(50) % 3
    found = within_fold_c(days, event, risk, fold)
    dealt = []
    for _ in range(1000):
        shuffled = risk.copy()
        for k in range(3):
            shuffled[fold == k] = generator.permutation(risk[fold == k])
        dealt.append(harrell_c_within(days, event, shuffled, fold))
    assert found.value == pytest.approx(harrell_c_within(days, event, risk, fold))
    assert found.error == pytest.approx(np.std(dealt), rel=0.1)  # 1000 draws know a deviation to about 2 %


def test_inflation_is_the_root_of_two_for_one_repeat_and_falls_with_repeats_to_what_the_folds_share():
    assert [inflation(folds) for folds in (2, 3, 10)] == pytest.approx([math.sqrt(2)] * 3)
    assert inflation(5, 4) == pytest.approx(math.sqrt(2 * (0.8 + 0.05)))
    assert inflation(1, 10) == 1.0  # nothing is known of such folds, but no error is less than that of given scores
    assert inflation(5, 1000) == pytest.approx(math.sqrt(2 * 0.8), rel=1e-3)


def test_p_is_one_sided_and_the_two_sides_add_to_one():
    found = WithinFold(0.62, 0.05, np.zeros(0))
    assert p_above_chance(found, math.sqrt(2)) == pytest.approx(norm.sf(0.12 / 0.05 / math.sqrt(2)))
    assert p_above_chance(found, 1.4) + p_below_chance(found, 1.4) == pytest.approx(1)
    assert p_below_chance(WithinFold(0.38, 0.05, np.zeros(0)), 1.0) == pytest.approx(p_above_chance(found, 1.0))


def three_folds(seed: int, n: int = 90) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labels, days, events, folds, and scores [2, n] of two models, with ties."""
    generator = np.random.default_rng(seed)
    risk = generator.normal(size=n)
    scores = np.round(np.stack([risk + generator.normal(size=n), risk + 2 * generator.normal(size=n)]), 1)
    truth, days = risk + generator.normal(size=n) > 0.5, np.ceil(generator.exponential(np.exp(5 - risk)))
    return truth, days, generator.random(n) < 0.7, np.arange(n) % 3, scores


def test_in_one_fold_the_variance_and_the_paired_test_of_two_aucs_are_delong_s():
    truth, _, _, _, scores = three_folds(3)
    ours, theirs = (within_fold_auc(truth, score, np.zeros(len(truth))) for score in scores)
    assert ours.variance == pytest.approx(delong_variance(truth, scores[0]))
    expected = delong_paired(truth, *scores)
    found = within_fold_comparison([ours], [theirs], 1.0)
    assert (found.difference, found.low, found.high, found.z, found.p) == pytest.approx(
        (expected.difference, expected.low, expected.high, expected.z, expected.p)
    )


@pytest.mark.parametrize("figure", ["auc", "c"])
def test_over_folds_variances_are_those_of_patients_drawn_anew_within_their_fold(figure):
    truth, days, event, fold, scores = three_folds(4, n=240)

    def measure(rows: np.ndarray, score: np.ndarray) -> WithinFold:
        if figure == "auc":
            return within_fold_auc(truth[rows], score[rows], fold[rows])
        return within_fold_c(days[rows], event[rows], score[rows], fold[rows])

    generator, everybody = np.random.default_rng(0), np.arange(len(truth))
    draws = []
    for _ in range(400):
        rows = np.concatenate([generator.choice(np.flatnonzero(fold == k), (fold == k).sum()) for k in range(3)])
        draws.append([measure(rows, score).value for score in scores])
    values = np.array(draws)
    ours, theirs = (measure(everybody, score) for score in scores)
    assert math.sqrt(ours.variance) == pytest.approx(values[:, 0].std(), rel=0.15)  # 400 draws know a deviation to about 4 %
    found = within_fold_comparison([ours], [theirs], 1.0)
    assert found.difference == ours.value - theirs.value
    assert found.difference / found.z == pytest.approx((values[:, 0] - values[:, 1]).std(), rel=0.15)


def test_a_difference_counts_refitting_and_repeats_and_says_when_nothing_can_be_tested():
    truth, _, _, fold, scores = three_folds(5)
    ours, theirs = (within_fold_auc(truth, score, fold) for score in scores)
    plain, wider = within_fold_comparison([ours], [theirs], 1.0), refitted_comparison([ours], [theirs], math.sqrt(2))
    middle = (ours.value + theirs.value) / 2
    factor = math.sqrt(1 + 4 * middle * (1 - middle))  # the root of 2 at chance, 1 without an error
    assert 1.2 < factor < math.sqrt(2)
    assert wider.z == pytest.approx(plain.z / factor)
    assert wider.high - wider.low == pytest.approx(factor * (plain.high - plain.low))
    assert within_fold_comparison([ours, ours], [theirs, theirs], 1.0) == plain
    back = within_fold_comparison([theirs], [ours], 1.0)
    assert (back.difference, back.low, back.high, back.p) == (-plain.difference, -plain.high, -plain.low, plain.p)
    same = within_fold_auc(truth, np.exp(scores[0]), fold)  # the same order
    assert within_fold_comparison([ours], [same], 1.0) == Comparison(0.0, 0.0, 0.0, 0.0, 1.0)
    perfect, constant = (within_fold_auc(truth, score, fold) for score in (truth.astype(float), np.ones(len(truth))))
    found = within_fold_comparison([perfect], [constant], 1.0)
    assert found.difference == 0.5
    assert math.isnan(found.p)
    one = within_fold_auc(np.ones(4), np.arange(4.0), np.zeros(4))
    assert math.isnan(within_fold_comparison([one], [one], 1.0).difference)


def test_one_patient_of_a_class_says_nothing_of_the_variance():
    found = within_fold_auc(np.array([1, 0, 0, 0]), np.array([0.6, 0.7, 0.1, 0.2]), np.zeros(4))
    assert found.value == pytest.approx(2 / 3)
    assert math.isnan(found.variance)


def test_nothing_to_compare_is_undefined_and_equal_scores_prove_nothing():
    one_class = within_fold_auc(np.ones(4), np.arange(4.0), np.zeros(4))
    assert math.isnan(one_class.value)
    assert math.isnan(p_above_chance(one_class, 1.0))
    apart = within_fold_auc(np.array([0, 1]), np.array([0.1, 0.9]), np.array(["a", "b"]))
    assert math.isnan(apart.value)
    tied = within_fold_auc(np.array([0, 1, 1]), np.full(3, 0.5), np.zeros(3))
    assert (tied.value, p_above_chance(tied, 1.0)) == (0.5, 1.0)
    assert math.isnan(within_fold_c(np.array([1.0, 2.0]), np.array([0, 0]), np.array([0.1, 0.2]), np.zeros(2)).value)
