"""AUC and DeLong against hand-worked cases, brute force, scikit-learn and published tables."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reproductions.run_statistics import delong_covariance
from scipy.stats import norm
from sklearn.metrics import average_precision_score, roc_auc_score

from mri_vit.metrics import comparison, discrimination

NAN = math.nan
untimed = settings(deadline=None)  # a shared core may be slow


def brute_auc(truth, score) -> float:
    pairs = [(p > q) + 0.5 * (p == q) for p in score[truth] for q in score[~truth]]
    return float(np.mean(pairs))


labelled = st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=1, max_size=30)


def columns(rows, *types):
    return tuple(np.array(column, dtype=kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True))


# --- AUC -----------------------------------------------------------------------------------------------------------------


@untimed
@given(labelled)
def test_auc_is_the_share_of_pairs_in_order_with_ties_as_one_half(rows):
    truth, score = columns(rows, bool, float)
    assume(truth.any() and not truth.all())
    assert discrimination.auc(truth, score) == pytest.approx(brute_auc(truth, score), abs=1e-12)
    assert discrimination.auc(truth, score) == pytest.approx(roc_auc_score(truth, score), abs=1e-12)


@untimed
@given(labelled)
def test_auc_keeps_under_a_rising_map_and_turns_under_a_falling_one(rows):
    truth, score = columns(rows, bool, float)
    assume(truth.any() and not truth.all())
    value = discrimination.auc(truth, score)
    assert discrimination.auc(truth, np.exp(score)) == value
    assert discrimination.auc(truth, -score) == pytest.approx(1 - value, abs=1e-12)


@pytest.mark.parametrize("truth", [[True, True, True], [False, False], []])
def test_auc_of_one_class_is_undefined(truth):
    truth = np.array(truth, dtype=bool)
    score = np.arange(len(truth), dtype=float)
    assert math.isnan(discrimination.auc(truth, score))
    assert math.isnan(discrimination.auc_within(truth, score, np.zeros(len(truth), dtype=int)))
    assert all(math.isnan(bound) for bound in discrimination.delong_interval(truth, score))


def test_a_missing_score_is_refused_and_not_ranked():
    with pytest.raises(ValueError, match="1 of 3 scores"):
        discrimination.auc(np.array([True, False, True]), np.array([0.1, NAN, 0.3]))


def test_shuffled_labels_give_about_one_half():
    generator = np.random.default_rng(0)
    truth = generator.random(4000) < 0.3
    assert discrimination.auc(truth, generator.random(4000)) == pytest.approx(0.5, abs=4 * 0.01)


@untimed
@given(labelled)
def test_auc_within_one_group_is_the_auc_and_within_folds_ignores_their_offsets(rows):
    truth, score = columns(rows, bool, float)
    assume(truth.any() and not truth.all())
    group = np.arange(len(truth)) % 2
    value = discrimination.auc_within(truth, score, group)
    assert discrimination.auc_within(truth, score, 0 * group) == pytest.approx(discrimination.auc(truth, score), abs=1e-12)
    shifted = discrimination.auc_within(truth, score + 100 * group, group)
    assert shifted == value or (math.isnan(shifted) and math.isnan(value))


def test_auc_within_folds_counts_each_pair_once():
    truth = np.array([1, 0, 0, 1, 0, 1, 1], dtype=bool)
    score = np.array([3.0, 1, 2, 1, 2, 5, 5])
    group = np.array(["a", "a", "a", "b", "b", "c", "c"])
    # Fold a: 2 of 2 pairs in order; fold b: 0 of 1; fold c has one class and no pair.
    assert discrimination.auc_within(truth, score, group) == pytest.approx(2 / 3)


# --- DeLong --------------------------------------------------------------------------------------------------------------


def test_delong_of_four_patients_is_as_worked_by_hand():
    truth, score = np.array([False, False, True, True]), np.array([0.1, 0.4, 0.35, 0.8])
    # Positives: 0.35 beats one of two negatives, 0.8 both: V10 = (1/2, 1). Negatives: V01 = (1, 1/2).
    v10, v01 = discrimination.delong_components(truth, score)
    assert v10.tolist() == [0.5, 1.0]
    assert v01.tolist() == [1.0, 0.5]
    # Each has sample variance 1/8, so the variance is 1/8 / 2 + 1/8 / 2.
    assert discrimination.delong_variance(truth, score) == pytest.approx(1 / 8)
    low, high = discrimination.delong_interval(truth, score)
    assert low == pytest.approx(0.75 - 1.959963984540054 * math.sqrt(1 / 8))
    assert high == 1.0  # clipped


@untimed
@given(labelled)
def test_delong_variance_is_that_of_the_pair_matrix(rows):
    truth, score = columns(rows, bool, float)
    assume(truth.sum() > 1 and (~truth).sum() > 1)
    wins = (score[truth, None] > score[~truth]) + 0.5 * (score[truth, None] == score[~truth])
    expected = wins.mean(1).var(ddof=1) / len(wins) + wins.mean(0).var(ddof=1) / len(wins.T)
    assert discrimination.delong_variance(truth, score) == pytest.approx(expected, abs=1e-12)


def test_delong_needs_two_patients_of_each_class():
    truth, score = np.array([True, False, False]), np.array([0.1, 0.2, 0.3])
    assert math.isnan(discrimination.delong_variance(truth, score))


def test_delong_interval_holds_the_truth_about_95_times_in_100():
    generator = np.random.default_rng(1)
    truth = np.arange(100) < 40
    expected = 0.7601  # P(Z > -1/sqrt 2) for two unit normals one apart
    hits = 0
    for _ in range(400):
        low, high = discrimination.delong_interval(truth, generator.normal(size=100) + truth)
        hits += low <= expected <= high
    assert 0.92 < hits / 400 < 0.98  # three standard errors of 0.011


paired = st.lists(st.tuples(st.booleans(), st.integers(-3, 3), st.integers(-3, 3)), min_size=4, max_size=30)


@untimed
@given(paired)
def test_delong_covariance_is_that_of_the_pair_matrices(rows):
    truth, a, b = columns(rows, bool, float, float)
    assume(truth.sum() > 1 and (~truth).sum() > 1)
    wins = [(s[truth, None] > s[~truth]) + 0.5 * (s[truth, None] == s[~truth]) for s in (a, b)]
    m, k = wins[0].shape
    expected = np.cov(wins[0].mean(1), wins[1].mean(1)) / m + np.cov(wins[0].mean(0), wins[1].mean(0)) / k
    found = delong_covariance(truth, np.stack([a, b]))
    assert found == pytest.approx(expected, abs=1e-12)
    assert found[0, 0] == pytest.approx(discrimination.delong_variance(truth, a), abs=1e-12)


@untimed
@given(paired)
def test_paired_test_turns_with_its_models_and_uses_their_covariance(rows):
    truth, a, b = columns(rows, bool, float, float)
    assume(truth.sum() > 1 and (~truth).sum() > 1)
    there, back = discrimination.delong_paired(truth, a, b), discrimination.delong_paired(truth, b, a)
    assert there.difference == -back.difference
    assert (there.low, there.z) == pytest.approx((-back.high, -back.z), nan_ok=True)
    assert there.p == pytest.approx(back.p, nan_ok=True)
    matrix = delong_covariance(truth, np.stack([a, b]))
    variance = matrix[0, 0] + matrix[1, 1] - 2 * matrix[0, 1]
    if there.z and not math.isnan(there.z):
        assert (there.difference / there.z) ** 2 == pytest.approx(variance, rel=1e-9)
        assert there.p == pytest.approx(2 * norm.cdf(-abs(there.z)))


@untimed
@given(labelled)
def test_a_model_does_not_differ_from_itself_on_another_scale(rows):
    truth, score = columns(rows, bool, float)
    assume(truth.sum() > 1 and (~truth).sum() > 1)
    assert discrimination.delong_paired(truth, score, np.exp(score)) == comparison.Comparison(0.0, 0.0, 0.0, 0.0, 1.0)


def test_without_variance_a_difference_is_neither_sure_nor_refuted():
    truth = np.array([True, True, False, False])
    result = discrimination.delong_paired(truth, np.array([3.0, 4, 1, 2]), np.ones(4))
    assert result.difference == 0.5
    assert all(math.isnan(value) for value in (result.low, result.high, result.z, result.p))


def test_a_test_needs_two_patients_of_each_class():
    truth, score = np.array([True, False, False]), np.array([0.1, 0.2, 0.3])
    assert math.isnan(discrimination.delong_paired(truth, score, -score).p)
    assert np.isnan(delong_covariance(truth, np.stack([score, -score]))).all()


# --- chance and folds ----------------------------------------------------------------------------------------------------


def test_chance_error_is_the_spread_of_all_orders_of_five_patients():
    values = [discrimination.auc(np.isin(np.arange(5), chosen), np.arange(5.0)) for chosen in combinations(range(5), 2)]
    assert discrimination.chance_error(2, 3) == pytest.approx(np.std(values))


@pytest.mark.parametrize(("patients", "error"), [(117, 0.054), (577, 0.024)])
def test_chance_error_of_published_cohorts(patients, error):
    assert discrimination.chance_error(patients // 2, patients - patients // 2) == pytest.approx(error, abs=0.0006)


def test_chance_error_of_one_class_is_undefined():
    assert math.isnan(discrimination.chance_error(5, 0))


def test_mean_and_sample_variance_leave_undefined_folds_out():
    assert discrimination.mean_and_sample_variance(np.array([0.5, NAN, 0.7])) == pytest.approx((0.6, 0.02))
    mean, variance = discrimination.mean_and_sample_variance(np.array([0.5]))
    assert mean == 0.5
    assert math.isnan(variance)
    assert all(math.isnan(value) for value in discrimination.mean_and_sample_variance(np.array([NAN])))


# --- average precision, bootstrap and permutation ------------------------------------------------------------------------


@untimed
@given(labelled)
def test_average_precision_is_the_mean_precision_at_the_positives(rows):
    truth, score = columns(rows, bool, float)
    assume(truth.any() and not truth.all())
    expected = np.mean([truth[score >= cut].mean() for cut in score[truth]])
    assert discrimination.average_precision(truth, score) == pytest.approx(expected, abs=1e-12)
    assert discrimination.average_precision(truth, score) == pytest.approx(average_precision_score(truth, score), abs=1e-12)


def test_average_precision_of_a_constant_is_the_prevalence():
    truth = np.arange(10) < 3
    assert discrimination.average_precision(truth, np.ones(10)) == pytest.approx(0.3)


@pytest.mark.parametrize("truth", [[True, True], [False, False], [True], []])
def test_of_one_class_nothing_is_defined_and_no_warning_is_given(truth):
    truth = np.array(truth, dtype=bool)
    assert math.isnan(discrimination.average_precision(truth, np.arange(len(truth), dtype=float)))


def test_every_function_refuses_a_missing_score():
    truth, score = np.array([True, True, False, False]), np.array([1.0, NAN, 2, NAN])
    whole = np.arange(4.0)
    for call in (
        lambda: discrimination.average_precision(truth, score),
        lambda: discrimination.delong_variance(truth, score),
        lambda: discrimination.delong_interval(truth, score),
        lambda: discrimination.delong_paired(truth, whole, score),
        lambda: delong_covariance(truth, score[None]),
    ):
        with pytest.raises(ValueError, match="2 of 4 scores are NaN"):
            call()


@untimed
@given(labelled)
def test_weighted_auc_with_whole_weights_is_the_auc_of_repeated_patients(rows):
    truth, score = columns(rows, bool, float)
    weight = np.arange(len(truth)) % 3
    again = np.repeat(np.arange(len(truth)), weight)
    expected = discrimination.auc(truth[again], score[again])
    found = discrimination.weighted_auc((weight * truth)[None].astype(float), (weight * ~truth)[None].astype(float), score)
    assert found == pytest.approx([expected], abs=1e-12, nan_ok=True)
