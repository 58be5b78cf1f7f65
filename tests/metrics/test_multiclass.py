"""M is the mean of pairwise AUCs, its errors are those of all permutations; PDI counts sets; losses are scikit-learn's."""

from __future__ import annotations

import math
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    precision_recall_fscore_support,
    roc_auc_score,
)
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from mri_vit.metrics import calibration
from mri_vit.metrics.discrimination import auc
from mri_vit.metrics.intervals import rate
from mri_vit.metrics.multiclass import brier, confusion, log_loss, losses, pdi, pdi_interval, within_fold_m
from mri_vit.metrics.within_fold import within_fold_auc


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@cache
def iris() -> tuple[np.ndarray, np.ndarray]:
    """Labels and out-of-fold multinomial probabilities from two noisy measures, so that classes overlap."""
    x, label = (np.asarray(part) for part in load_iris(return_X_y=True))
    x = x[:, :2] + generator().normal(size=(150, 2))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    return label, np.asarray(cross_val_predict(LogisticRegression(max_iter=1000), x, label, cv=folds, method="predict_proba"))


def coarse(seed: int, n: int, k: int, steps: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Labels with every class, and probabilities with ties within and between columns."""
    random = np.random.default_rng(seed)
    label = random.permutation(np.arange(n) % k)
    whole = random.integers(1, steps, (n, k)).astype(float)
    whole[np.arange(n), label] += random.integers(0, 2, n)
    return label, whole / whole.sum(axis=1, keepdims=True)


def sets(label: np.ndarray, probability: np.ndarray) -> float:
    """PDI by going through all sets with one patient of each class."""
    k = probability.shape[1]
    of_sets = []
    for chosen in product(*(np.flatnonzero(label == c) for c in range(k))):
        highest = probability[list(chosen)] == probability[list(chosen)].max(axis=0)
        of_sets.append(np.mean(highest.diagonal() / highest.sum(axis=0)))
    return float(np.mean(of_sets))


def test_in_one_fold_m_is_scikit_learn_s_one_against_one():
    label, probability = iris()
    found = within_fold_m(label, probability, np.zeros(150))
    assert found.value == pytest.approx(roc_auc_score(label, probability, multi_class="ovo", average="macro"), abs=1e-12)
    assert 0.6 < found.value < 0.95


def test_of_two_classes_m_is_the_auc_with_its_error_and_influences():
    random = np.random.default_rng(1)
    truth, group = random.random(60) < 0.4, np.arange(60) % 3
    score = random.integers(0, 17, 60) / 16  # halves of halves, so that 1 - p keeps the ties
    found = within_fold_m(truth.astype(int), np.stack([1 - score, score], axis=1), group)
    expected = within_fold_auc(truth, score, group)
    assert found.value == pytest.approx(expected.value, abs=1e-14)
    assert found.error == pytest.approx(expected.error, rel=1e-12)
    np.testing.assert_allclose(found.influence, expected.influence, atol=1e-15)


def test_the_error_of_m_is_the_spread_over_all_ways_to_deal_the_labels_within_folds():
    label, group = np.array([0, 1, 2, 1, 0, 1, 2]), np.array([0, 0, 0, 0, 1, 1, 1])
    probability = np.array([[5, 3, 2], [2, 5, 3], [2, 3, 5], [3, 4, 3], [4, 2, 4], [4, 4, 2], [1, 4, 5]]) / 10
    dealt = [
        within_fold_m(np.r_[label[:4][list(a)], label[4:][list(b)]], probability, group).value
        for a in permutations(range(4))
        for b in permutations(range(3))
    ]
    found = within_fold_m(label, probability, group)
    assert np.mean(dealt) == pytest.approx(0.5, abs=1e-12)
    assert found.error == pytest.approx(np.std(dealt), rel=1e-10)


@pytest.mark.parametrize(("k", "n"), [(3, 6), (4, 5), (3, 3)])
def test_the_error_of_m_is_the_spread_over_all_ways_to_deal_a_small_fold(k: int, n: int):
    label, probability = coarse(3, n, k)
    dealt = [within_fold_m(label[list(order)], probability, np.zeros(n)).value for order in permutations(range(n))]
    assert within_fold_m(label, probability, np.zeros(n)).error == pytest.approx(np.std(dealt), rel=1e-10)


def drawn_m(label: np.ndarray, probability: np.ndarray, group: np.ndarray) -> float:
    """M by listing the pairs."""
    k = probability.shape[1]
    same, total = group[:, None] == group, []
    for i, j in permutations(range(k), 2):
        pair = same & (label[:, None] == i) & (label == j)
        total.append((np.sign(np.subtract.outer(probability[:, i], probability[:, i]))[pair] + 1).mean() / 2)
    return float(np.mean(total))


@pytest.mark.slow
def test_the_error_of_m_is_the_spread_of_twenty_thousand_permutations():
    label, probability = coarse(5, 36, 3, steps=8)
    group, random = np.arange(36) // 12, np.random.default_rng(0)
    dealt = []
    for _ in range(20_000):
        order = np.concatenate([random.permutation(np.flatnonzero(group == name)) for name in range(3)])
        dealt.append(drawn_m(label[order], probability, group))
    found = within_fold_m(label, probability, group)
    assert np.mean(dealt) == pytest.approx(0.5, abs=4 * found.error / math.sqrt(20_000))
    assert found.error == pytest.approx(np.std(dealt), rel=0.02)  # 20,000 draws know a deviation to 0.5 %


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 3))
def test_m_is_that_of_the_listed_pairs_with_ties(seed: int, k: int, groups: int):
    label, probability = coarse(seed, 12 * groups, k)
    group = np.arange(12 * groups) // 12
    assert within_fold_m(label, probability, group).value == pytest.approx(drawn_m(label, probability, group), abs=1e-12)


def test_over_folds_the_variance_of_m_is_that_of_patients_drawn_anew_within_their_fold():
    label, probability = coarse(6, 240, 3, steps=9)
    group, random = np.arange(240) // 80, np.random.default_rng(1)
    values = []
    for _ in range(300):
        rows = np.concatenate([random.choice(np.flatnonzero(group == name), 80) for name in range(3)])
        values.append(within_fold_m(label[rows], probability[rows], group[rows]).value)
    found = within_fold_m(label, probability, group)
    assert math.sqrt(found.variance) == pytest.approx(np.std(values), rel=0.15)  # 300 draws know a deviation to about 4 %
    assert found.influence.sum() == pytest.approx(0, abs=1e-12)


@examples(20)
@given(st.integers(0, 10**6))
def test_numbering_the_classes_and_patients_otherwise_changes_nothing(seed: int):
    label, probability = coarse(seed, 24, 3)
    random = np.random.default_rng(seed)
    order, rows = random.permutation(3), random.permutation(24)
    group = np.arange(24) % 2
    renamed, moved = np.argsort(order)[label], probability[:, order]
    before, after = within_fold_m(label, probability, group), within_fold_m(renamed[rows], moved[rows], group[rows])
    assert (after.value, after.error) == pytest.approx((before.value, before.error), rel=1e-9)
    np.testing.assert_allclose(after.influence, before.influence[rows], atol=1e-12)
    assert pdi(renamed[rows], moved[rows]) == pytest.approx(pdi(label, probability), abs=1e-12)
    assert log_loss(renamed[rows], moved[rows]) == pytest.approx(log_loss(label, probability))
    assert brier(renamed[rows], moved[rows]) == pytest.approx(brier(label, probability))


def test_rank_alone_decides_m_and_pdi_and_other_folds_may_have_other_scales():
    random = np.random.default_rng(2)
    label = np.arange(40) % 2
    score = np.round(random.random(40), 2)
    both, bent = (np.stack([1 - p, p], axis=1) for p in (score, score**3))
    assert within_fold_m(label, bent, np.zeros(40)).value == within_fold_m(label, both, np.zeros(40)).value
    assert pdi(label, bent) == pytest.approx(pdi(label, both), abs=1e-12)
    group = np.arange(40) // 20
    other_scale = np.where(group[:, None] == 1, bent, both)
    assert within_fold_m(label, other_scale, group).error == pytest.approx(within_fold_m(label, both, group).error)


def test_a_missing_class_is_left_out_of_m_and_leaves_pdi_undefined():
    label, probability = coarse(0, 30, 3)
    two, of_two = label[label < 2], probability[label < 2]
    found = within_fold_m(two, of_two, np.zeros(len(two)))
    expected = roc_auc_score(two, of_two[:, 1]) + roc_auc_score(1 - two, of_two[:, 0])
    assert found.value == pytest.approx(expected / 2)
    assert found.error > 0
    assert math.isnan(pdi(two, of_two))
    assert np.isnan(pdi_interval(two, of_two, generator(), 20)).all()
    apart = within_fold_m(np.array([0, 1, 2]), probability[:3], np.arange(3))
    assert np.isnan([apart.value, apart.error, *apart.influence]).all()
    assert math.isnan(within_fold_m(np.zeros(0, int), np.zeros((0, 3)), np.zeros(0)).value)


def test_two_patients_have_a_value_and_no_variance_and_equal_probabilities_prove_nothing():
    pair = within_fold_m(np.array([0, 1]), np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3]]), np.zeros(2))
    assert (pair.value, pair.error) == (1.0, 0.5)
    assert math.isnan(pair.variance)
    label, _ = coarse(0, 12, 3)
    tied = within_fold_m(label, np.full((12, 3), 1 / 3), np.zeros(12))
    assert (tied.value, tied.error, tied.variance) == (0.5, 0.0, 0.0)
    assert pdi(label, np.full((12, 3), 1 / 3)) == pytest.approx(1 / 3)


def test_perfect_probabilities_have_an_m_and_a_pdi_of_one():
    label = np.arange(12) % 4
    sure = np.eye(4)[label] * 0.6 + 0.1
    assert within_fold_m(label, sure, np.zeros(12)).value == 1
    assert pdi(label, sure) == pytest.approx(1, abs=1e-12)


def test_fifty_thousand_patients_need_no_table_of_pairs():
    random = np.random.default_rng(0)
    label, raw = random.integers(0, 3, 50_000), random.random((50_000, 3))
    found = within_fold_m(label, raw / raw.sum(axis=1, keepdims=True), np.zeros(50_000))
    assert abs(found.value - 0.5) < 5 * found.error
    assert math.sqrt(found.variance) == pytest.approx(found.error, rel=0.02)  # without a signal both say the same


@examples(30)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_pdi_is_that_of_all_sets_with_ties(seed: int, k: int):
    label, probability = coarse(seed, 12, k)
    assert pdi(label, probability) == pytest.approx(sets(label, probability), abs=1e-12)


def test_pdi_of_two_classes_is_the_auc():
    random = np.random.default_rng(4)
    truth, score = random.random(50) < 0.3, random.integers(0, 9, 50) / 8
    assert pdi(truth.astype(int), np.stack([1 - score, score], axis=1)) == pytest.approx(auc(truth, score))


def test_the_interval_of_pdi_is_that_of_patients_drawn_again_within_their_class():
    label, probability = iris()
    random, values = generator(), []
    for _ in range(200):
        rows = np.concatenate([random.choice(np.flatnonzero(label == c), 50) for c in range(3)])
        values.append(pdi(label[rows], probability[rows]))
    low, high = pdi_interval(label, probability, generator())
    assert (low, high) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.02)
    assert low < pdi(label, probability) < high
    assert (low, high) == pdi_interval(label, probability, generator())
    assert np.isnan(pdi_interval(np.array([0, 0, 1]), probability[:3, :2] * 0 + 0.5, generator(), 20)).all()


def test_the_rates_of_a_confusion_are_scikit_learn_s():
    label, probability = iris()
    called = probability.argmax(axis=1)
    found = confusion(label, called, 3)
    assert (found.counts == confusion_matrix(label, called)).all()
    precision, recall, *_ = precision_recall_fscore_support(label, called)
    assert [each.value for each in found.recall] == pytest.approx(recall)
    assert [each.value for each in found.precision] == pytest.approx(precision)
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(label, called))
    assert found.accuracy == rate(int((label == called).sum()), 150)


def test_a_class_without_patients_or_calls_has_no_rate_and_is_left_out_of_the_balance():
    found = confusion(np.array([0, 0, 1]), np.array([0, 2, 2]), 3)
    assert np.isnan(found.recall[2]).all()
    assert np.isnan(found.precision[1]).all()
    assert found.balanced_accuracy == 0.25
    nobody = confusion(np.zeros(0, int), np.zeros(0, int), 3)
    assert np.isnan([*nobody.accuracy, nobody.balanced_accuracy]).all()


def test_log_loss_and_brier_are_scikit_learn_s():
    label, probability = iris()
    assert log_loss(label, probability) == pytest.approx(sklearn_log_loss(label, probability), rel=1e-12)
    assert brier(label, probability) == pytest.approx(brier_score_loss(label, probability), rel=1e-12)
    both = np.stack([1 - probability[:, 0], probability[:, 0]], axis=1)
    assert brier((label == 0).astype(int), both) == pytest.approx(2 * calibration.brier(label == 0, probability[:, 0]))


def test_a_class_that_was_given_nothing_costs_much_and_not_the_whole_number_line():
    assert log_loss(np.array([1]), np.array([[1.0, 0.0]])) == pytest.approx(15 * math.log(10))
    assert brier(np.array([1]), np.array([[1.0, 0.0]])) == 2
    assert math.isnan(log_loss(np.zeros(0, int), np.zeros((0, 2))))
    assert math.isnan(brier(np.zeros(0, int), np.zeros((0, 2))))


def test_losses_stand_beside_those_of_the_shares_with_intervals_of_one_bootstrap():
    label, probability = iris()
    found = losses(label, probability, generator())
    shares = np.full((150, 3), 1 / 3)
    assert found.log_loss.value == pytest.approx(log_loss(label, probability))
    assert found.log_loss_of_shares.value == pytest.approx(math.log(3))
    assert found.brier_of_shares.value == pytest.approx(brier(label, shares))
    assert found.scaled_log_loss.value == pytest.approx(1 - log_loss(label, probability) / math.log(3))
    assert found.scaled_brier.value == pytest.approx(1 - brier(label, probability) / brier(label, shares))
    each = -np.log(probability[np.arange(150), label])
    normal = found.log_loss.value + np.array([-1.96, 1.96]) * each.std() / math.sqrt(150)
    assert found.log_loss[1:] == pytest.approx(normal, abs=0.02)
    assert found.scaled_brier.low < found.scaled_brier.value < found.scaled_brier.high
    assert losses(label, probability, generator()) == found


def test_shares_save_nothing_and_one_class_has_nothing_to_save():
    label, _ = coarse(0, 30, 3)
    found = losses(label, np.full((30, 3), 1 / 3), generator(), 50)
    assert found.scaled_log_loss == pytest.approx((0, 0, 0), abs=1e-12)
    assert found.scaled_brier == pytest.approx((0, 0, 0), abs=1e-12)
    alone = losses(np.zeros(5, int), np.full((5, 3), 1 / 3), generator(), 50)
    assert np.isnan(alone.scaled_brier).all()
    assert alone.log_loss.value == pytest.approx(math.log(3))
    assert np.isnan(alone.log_loss[1:]).all()
    assert np.isnan(losses(np.zeros(0, int), np.zeros((0, 3)), generator(), 50).brier).all()
