"""The order of grades and numbers is Somers' D and R's concordance; weighted kappa is scikit-learn's, its error the delta's."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from scipy.stats import kendalltau, somersd
from sklearn.metrics import cohen_kappa_score

from mri_vit.metrics.ordinal import weighted_kappa, within_fold_order
from mri_vit.metrics.within_fold import within_fold_auc

GRADE = np.array([0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 0, 2])
SCORE = np.array([1.0, 3, 2, 2, 5, 4, 4, 6, 3, 7, 2, 2])
FOLD = np.array([1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2])


def grades(seed: int, n: int = 60, k: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """True grades, and predicted ones that follow them."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, k, n)
    return truth, np.clip(truth + random.integers(-1, 2, n), 0, k - 1)


@pytest.mark.parametrize(
    ("fold", "value", "variance"),
    [(np.zeros(12), 0.77777777777778, 0.00788751714678), (FOLD, 0.79545454545455, 0.00790161191175)],
)
def test_order_and_its_variance_are_those_of_r(fold: np.ndarray, value: float, variance: float):
    # R 4.2.2, survival 3.5-3: concordance(grade ~ score) and concordance(grade ~ score + strata(fold)), of which it has the
    # infinitesimal jackknife's variance without n / (n - 1)
    found = within_fold_order(GRADE, SCORE, fold)
    assert found.value == pytest.approx(value, abs=1e-12)
    assert found.variance * 11 / 12 == pytest.approx(variance, rel=1e-9)


@examples(30)
@given(st.integers(0, 10**6))
def test_twice_the_order_less_one_is_somers_d(seed: int):
    random = np.random.default_rng(seed)
    grade, score = random.permutation(np.arange(30) % 4), random.integers(0, 9, 30)
    found = within_fold_order(grade, score, np.zeros(30))
    assert 2 * found.value - 1 == pytest.approx(somersd(grade, score).statistic, abs=1e-12)


def test_of_two_grades_the_order_is_the_auc_and_of_numbers_kendall_s_tau():
    random = np.random.default_rng(0)
    truth, score = random.random(50) < 0.4, random.integers(0, 12, 50).astype(float)
    fold = np.arange(50) % 3
    found, expected = within_fold_order(truth.astype(int), score, fold), within_fold_auc(truth, score, fold)
    assert (found.value, found.error) == pytest.approx((expected.value, expected.error))
    value, predicted = random.normal(size=(2, 50))
    assert 2 * within_fold_order(value, predicted, np.zeros(50)).value - 1 == pytest.approx(kendalltau(value, predicted)[0])


def test_the_error_of_the_order_is_the_spread_over_all_ways_to_deal_the_scores():
    grade, score = np.array([0, 0, 1, 2, 2, 1]), np.array([0.1, 0.4, 0.4, 0.2, 0.9, 0.9])
    dealt = [within_fold_order(grade, score[list(order)], np.zeros(6)).value for order in permutations(range(6))]
    found = within_fold_order(grade, score, np.zeros(6))
    assert np.mean(dealt) == pytest.approx(0.5)
    assert found.error == pytest.approx(np.std(dealt))


def test_the_order_keeps_under_any_rising_scale_and_turns_round_with_the_score():
    found = within_fold_order(GRADE, SCORE, FOLD)
    for outcome, score in ((GRADE**3 - 40.0, np.exp(SCORE)), (1e-20 * GRADE, SCORE), (1e6 + GRADE, SCORE)):
        again = within_fold_order(outcome, score, FOLD)
        assert (again.value, again.error) == (found.value, found.error)
    assert within_fold_order(GRADE, -SCORE, FOLD).value == pytest.approx(1 - found.value)
    assert within_fold_order(-GRADE, -SCORE, FOLD).value == pytest.approx(found.value)


def test_numbers_that_differ_by_less_than_their_distance_to_the_highest_can_show_are_a_pair():
    assert within_fold_order(np.array([0.0, 1e-20, 1.0]), np.array([2.0, 1.0, 3.0]), np.zeros(3)).value == pytest.approx(2 / 3)


def test_equal_outcomes_and_patients_of_different_folds_have_no_order():
    for outcome, fold in ((np.ones(3), np.zeros(3)), (np.arange(3), np.arange(3)), (np.zeros(0), np.zeros(0))):
        found = within_fold_order(outcome, np.arange(len(outcome)), fold)
        assert np.isnan([found.value, found.error, *found.influence]).all()
    assert within_fold_order(np.array([1.0, 2.0]), np.array([5.0, 7.0]), np.zeros(2)).value == 1
    assert within_fold_order(np.array([1.0, 2.0, 3.0]), np.zeros(3), np.zeros(3)).value == 0.5


@examples(30)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_kappa_is_scikit_learn_s_with_quadratic_weights(seed: int, k: int):
    truth, predicted = grades(seed, k=k)
    expected = cohen_kappa_score(truth, predicted, weights="quadratic", labels=range(k))
    assert weighted_kappa(truth, predicted, k).value == pytest.approx(expected, abs=1e-12)


def test_the_interval_of_kappa_is_that_of_what_each_patient_changes():
    truth, predicted = grades(1)
    n, step = len(truth), 1e-5

    def kappa(weight: np.ndarray) -> float:
        return cohen_kappa_score(truth, predicted, weights="quadratic", labels=range(4), sample_weight=weight)

    influence = [(kappa(1 + step * np.eye(n)[i]) - kappa(1 - step * np.eye(n)[i])) / (2 * step) for i in range(n)]
    found = weighted_kappa(truth, predicted, 4)
    assert (found.high - found.low) / 2 == pytest.approx(1.959964 * math.sqrt(np.square(influence).sum()), rel=1e-5)


def test_the_interval_of_kappa_is_near_the_jackknife_s():
    truth, predicted = grades(2, n=120)
    left_out = [weighted_kappa(np.delete(truth, i), np.delete(predicted, i), 4).value for i in range(120)]
    error = math.sqrt(119 / 120 * np.square(np.array(left_out) - np.mean(left_out)).sum())
    found = weighted_kappa(truth, predicted, 4)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.05)


def test_kappa_is_one_of_right_grades_zero_of_equal_ones_and_counts_no_grade_that_nobody_has():
    truth, predicted = grades(3, n=40)
    assert weighted_kappa(truth, truth, 4).value == pytest.approx(1)
    assert np.isnan(weighted_kappa(truth, truth, 4)[1:]).all()
    constant = weighted_kappa(truth, np.ones(40), 4)
    assert constant.value == pytest.approx(0, abs=1e-12)
    assert np.isnan(constant[1:]).all()
    assert weighted_kappa(truth, predicted, 9) == pytest.approx(weighted_kappa(truth, predicted, 4))
    assert weighted_kappa(3 - truth, 3 - predicted, 4) == pytest.approx(weighted_kappa(truth, predicted, 4))
    assert weighted_kappa(predicted, truth, 4) == pytest.approx(weighted_kappa(truth, predicted, 4))


def test_kappa_of_one_grade_for_all_or_of_nobody_is_undefined():
    for nothing in (np.zeros(3), np.full(3, 2), np.zeros(0)):
        assert np.isnan(weighted_kappa(nothing, nothing, 3)).all()
    assert weighted_kappa(np.array([0, 1]), np.array([1, 0]), 2).value == -1
    assert weighted_kappa(np.zeros(3), np.array([1, 1, 1]), 3).value == 0
