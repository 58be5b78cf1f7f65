"""Correlations, errors, calibration and agreement are those of scipy, scikit-learn and R."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from scipy.stats import linregress, pearsonr, spearmanr, t, ttest_1samp
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.model_selection import KFold

from mri_vit.metrics.continuous import (
    Estimate,
    agreement,
    calibration,
    errors,
    r_squared,
    within_fold_correlation,
    within_fold_spearman,
)

VALUE = np.array([3.1, 4.7, 2.2, 8.9, 6.4, 7.7, 5.0, 5.0, 9.3, 1.8])
PREDICTED = np.array([3.0, 4.0, 4.0, 8.0, 7.5, 6.0, 5.5, 4.5, 10.0, 2.0])
CORRELATIONS = (within_fold_correlation, within_fold_spearman)


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@cache
def diabetes() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Value, out-of-fold linear prediction, mean of the training fold, and fold."""
    x, y = (np.asarray(part) for part in load_diabetes(return_X_y=True))
    predicted, reference, fold = np.zeros((3, len(y)))
    for name, (train, test) in enumerate(KFold(5, shuffle=True, random_state=0).split(x)):
        predicted[test] = LinearRegression().fit(x[train], y[train]).predict(x[test])
        reference[test], fold[test] = y[train].mean(), name
    return y, predicted, reference, fold


def related(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, prediction and group, with ties."""
    random = np.random.default_rng(seed)
    value = np.round(random.normal(size=n), 1)
    return value, np.round(value + random.normal(size=n), 1), np.arange(n) % 3


def test_in_one_group_the_correlations_are_scipy_s_with_ties():
    for value, predicted in (diabetes()[:2], (VALUE, PREDICTED)):
        one = np.zeros(len(value))
        assert within_fold_correlation(value, predicted, one).value == pytest.approx(pearsonr(value, predicted)[0])
        assert within_fold_spearman(value, predicted, one).value == pytest.approx(spearmanr(value, predicted)[0])
    assert within_fold_spearman(VALUE, PREDICTED, np.zeros(10)).value == pytest.approx(0.963414634146, abs=1e-12)  # R's cor


def test_pearson_s_interval_is_near_fisher_s_where_both_sides_are_normal():
    random = np.random.default_rng(1)
    value = random.normal(size=2000)
    predicted = 0.6 * value + 0.8 * random.normal(size=2000)
    found, expected = within_fold_correlation(value, predicted, np.zeros(2000)), pearsonr(value, predicted).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.003)


@pytest.mark.parametrize("measure", CORRELATIONS)
def test_the_interval_of_a_correlation_is_that_of_what_each_patient_changes(measure):
    value, predicted, fold = related(2)
    whole, times = measure(value, predicted, fold), 200
    influence = []
    for i in range(len(value)):  # of one patient more, among 200 copies of them all
        rows = np.r_[np.repeat(np.arange(len(value)), times), i]
        influence.append((measure(value[rows], predicted[rows], fold[rows]).value - whole.value) * times)
    error = math.sqrt(np.square(influence).sum() * 60 / (60 - 3 - 2)) / (1 - whole.value**2)
    assert (math.atanh(whole.high) - math.atanh(whole.low)) / 2 == pytest.approx(1.959964 * error, rel=0.01)


def test_groups_are_pooled_by_their_sums_of_products_and_their_levels_do_not_count():
    value, predicted, fold = related(3)
    parts = [np.cov(value[fold == name], predicted[fold == name]) for name in range(3)]
    both, x, y = (sum(part[row, column] for part in parts) for row, column in ((0, 1), (0, 0), (1, 1)))
    found = within_fold_correlation(value, predicted, fold)
    assert found.value == pytest.approx(both / math.sqrt(x * y))
    for measure in CORRELATIONS:
        assert measure(value, predicted + 1000 * fold, fold) == pytest.approx(measure(value, predicted, fold))


@pytest.mark.parametrize("measure", CORRELATIONS)
def test_a_rising_line_changes_no_correlation_and_a_falling_one_turns_it_round(measure):
    value, predicted, fold = related(4)
    found = measure(value, predicted, fold)
    assert measure(value, 4 * predicted - 8, fold) == pytest.approx(found)
    assert measure(predicted, value, fold) == pytest.approx(found)
    turned = measure(value, -predicted, fold)
    assert (turned.value, turned.low, turned.high) == pytest.approx((-found.value, -found.high, -found.low))


def test_rank_alone_decides_spearman():
    value, predicted, fold = related(5)
    assert within_fold_spearman(np.exp(value), predicted**3, fold) == within_fold_spearman(value, predicted, fold)


@pytest.mark.parametrize("measure", CORRELATIONS)
def test_an_interval_of_refitted_scores_is_wider_by_less_the_nearer_the_correlation_is_to_one(measure):
    value, predicted, fold = related(6)
    plain, wide = measure(value, predicted, fold), measure(value, predicted, fold, math.sqrt(2))
    assert wide.value == plain.value
    reach = [math.atanh(found.high) - math.atanh(found.value) for found in (wide, plain)]
    assert reach[0] / reach[1] == pytest.approx(math.sqrt(2 - plain.value**2))


@pytest.mark.parametrize("measure", CORRELATIONS)
def test_what_does_not_vary_within_a_group_correlates_with_nothing(measure):
    fold = np.arange(9) % 3
    for value, predicted in ((np.arange(9.0), 0.1 * fold), (0.1 * fold, np.arange(9.0)), (np.arange(9.0), np.full(9, 0.1))):
        assert np.isnan(measure(value, predicted, fold)).all()
    assert np.isnan(measure(np.zeros(0), np.zeros(0), np.zeros(0))).all()
    assert np.isnan(measure(np.arange(3.0), np.arange(3.0), np.arange(3))).all()


@pytest.mark.parametrize("measure", CORRELATIONS)
def test_two_patients_and_a_perfect_line_have_a_correlation_and_no_interval(measure):
    for n in (2, 3, 20):
        found = measure(np.arange(n), 0.3 * np.arange(n) + 0.1, np.zeros(n))
        assert found.value == pytest.approx(1)
        assert np.isnan(found[1:]).all()


@examples(30)
@given(st.integers(0, 10**6), st.floats(1e-150, 1e150))
def test_correlations_stay_within_their_bounds_at_every_scale(seed: int, scale: float):
    value, predicted, fold = related(seed, n=12)
    for measure in CORRELATIONS:
        found = measure(value, predicted, fold)
        assert -1 <= found.low <= found.value <= found.high <= 1
        assert measure(value * scale, predicted, fold).value == pytest.approx(found.value, abs=1e-9)


def test_r_squared_is_scikit_learn_s_where_the_reference_is_the_mean_of_the_same_patients():
    value, predicted, reference, _ = diabetes()
    assert r_squared(value, predicted, np.full(len(value), value.mean())) == pytest.approx(r2_score(value, predicted))
    expected = 1 - ((value - predicted) ** 2).sum() / ((value - reference) ** 2).sum()
    assert r_squared(value, predicted, reference) == pytest.approx(expected)
    assert r_squared(value, reference, reference) == 0
    assert r_squared(value, value, reference) == 1
    assert r_squared(value, -value, reference) < 0
    assert math.isnan(r_squared(value, predicted, value))
    assert math.isnan(r_squared(np.zeros(0), np.zeros(0), np.zeros(0)))


def test_errors_are_scikit_learn_s_with_intervals_around_them():
    value, predicted, reference, _ = diabetes()
    found = errors(value, predicted, reference, generator())
    assert found.mae.value == pytest.approx(mean_absolute_error(value, predicted))
    assert found.rmse.value == pytest.approx(root_mean_squared_error(value, predicted))
    assert found.r_squared.value == pytest.approx(r_squared(value, predicted, reference))
    assert found.reference_mae.value == pytest.approx(mean_absolute_error(value, reference))
    missed = np.abs(value - predicted)
    normal = found.mae.value + np.array([-1.96, 1.96]) * missed.std() / math.sqrt(len(missed))
    assert found.mae[1:] == pytest.approx(normal, rel=0.02)
    assert all(each.low < each.value < each.high for each in vars(found).values())
    assert errors(value, predicted, reference, generator()) == found


def test_errors_of_nobody_are_undefined_and_of_one_patient_have_no_interval():
    empty = errors(np.zeros(0), np.zeros(0), np.zeros(0), generator(), 20)
    assert np.isnan([tuple(each) for each in vars(empty).values()]).all()
    one = errors(np.array([2.0]), np.array([3.0]), np.array([0.0]), generator(), 20)
    assert (one.mae.value, one.rmse.value, one.r_squared.value, one.reference_mae.value) == (1, 1, 0.75, 2)
    assert np.isnan([each[1:] for each in vars(one).values()]).all()


def test_the_calibration_line_and_its_intervals_are_those_of_r():
    # R 4.2.2: lm(value ~ predicted), HC3 from hatvalues() and residuals(), qt(.975, 8); t.test(value - predicted)
    found = calibration(VALUE, PREDICTED)
    assert found.slope == pytest.approx((0.9877569666514, 0.668127485292, 1.30738644801), abs=1e-10)
    assert found.intercept == pytest.approx((0.0267245317497, -1.699927048044, 1.75337611154), abs=1e-10)
    assert found.in_the_large == pytest.approx((-0.04, -0.781276069447, 0.701276069447), abs=1e-10)


def test_calibration_of_out_of_fold_predictions_is_scipy_s_line():
    value, predicted, _, _ = diabetes()
    found, (slope, intercept, *_) = calibration(value, predicted), linregress(predicted, value)
    assert (found.slope.value, found.intercept.value) == pytest.approx((slope, intercept))
    design = np.stack([np.ones(len(value)), predicted], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    left = (value - design @ np.array([intercept, slope])) / (1 - np.einsum("ij,jk,ik->i", design, inverse, design))
    errors_of_line = np.sqrt(np.diag(inverse @ (design.T * left**2) @ design @ inverse))  # HC3 as a sandwich of matrices
    for part, error in zip((found.intercept, found.slope), errors_of_line, strict=True):
        assert (part.high - part.low) / 2 == pytest.approx(t.ppf(0.975, len(value) - 2) * error)
    assert found.in_the_large[1:] == pytest.approx(ttest_1samp(value - predicted, 0).confidence_interval())


def test_calibration_says_what_was_done_to_the_predictions():
    value, predicted, _, _ = diabetes()
    found, bent = calibration(value, predicted), calibration(value, 2 * predicted + 10)
    assert bent.slope == pytest.approx(tuple(end / 2 for end in found.slope))
    assert bent.intercept.value == pytest.approx(found.intercept.value - 5 * found.slope.value)
    assert calibration(value, predicted - 10).in_the_large.value == pytest.approx(found.in_the_large.value + 10)
    assert calibration(value, value).slope == pytest.approx((1, 1, 1))


def test_a_line_through_too_little_has_no_interval_or_is_undefined():
    constant = calibration(VALUE, np.full(10, 0.1))
    assert np.isnan([*constant.slope, *constant.intercept]).all()
    assert not np.isnan(constant.in_the_large).any()
    two = calibration(np.array([1.0, 3.0]), np.array([2.0, 4.0]))
    assert (two.slope.value, two.intercept.value) == pytest.approx((1, -1))
    assert np.isnan([*two.slope[1:], *two.intercept[1:]]).all()
    alone = calibration(VALUE, np.r_[np.full(9, 3.3), 5.0])  # one patient decides on the slope
    assert not math.isnan(alone.slope.value)
    assert np.isnan(alone.slope[1:]).all()
    assert calibration(np.ones(1), np.zeros(1)).in_the_large == pytest.approx(Estimate(1, math.nan, math.nan), nan_ok=True)
    assert np.isnan(calibration(np.zeros(0), np.zeros(0)).in_the_large).all()


def test_bias_and_limits_of_agreement_are_those_of_r_and_their_intervals_the_jackknifes():
    # R 4.2.2: mean, sd, t.test
    found, difference, n = agreement(VALUE, PREDICTED), PREDICTED - VALUE, len(VALUE)
    assert found.bias == pytest.approx((0.04, -0.701276069447, 0.781276069447), abs=1e-10)
    assert found.sd.value == pytest.approx(1.03623249215, abs=1e-10)
    for end, z in ((found.sd, None), (found.lower, -1.959963984540), (found.upper, 1.959963984540)):
        left = [np.delete(difference, i) for i in range(n)]
        each = np.array([one.std(ddof=1) if z is None else one.mean() + z * one.std(ddof=1) for one in left])
        reach = t.ppf(0.975, n - 1) * math.sqrt((n - 1) ** 2 / n * each.var(ddof=1))
        assert z is None or end.value == pytest.approx(0.04 + z * 1.03623249215)
        assert end[1:] == pytest.approx((end.value - reach, end.value + reach))


def test_the_intervals_of_the_limits_are_near_bland_and_altman_s_for_many_normal_differences():
    value = np.zeros(50_000)
    predicted = np.random.default_rng(0).normal(size=len(value))
    n, found = len(value), agreement(value, predicted)
    reach = t.ppf(0.975, n - 1) * found.sd.value * math.sqrt(3 / n)
    assert (found.upper.high - found.upper.low) / 2 == pytest.approx(reach, rel=0.03)  # 3 is 1 + 1.96² / 2, which is 2.92
    assert found.bias.value == pytest.approx(-calibration(value, predicted).in_the_large.value)


def test_agreement_turns_round_with_its_sides_and_keeps_under_a_shift_of_both():
    found, turned = agreement(VALUE, PREDICTED), agreement(PREDICTED, VALUE)
    assert turned.bias == pytest.approx((-found.bias.value, -found.bias.high, -found.bias.low))
    assert turned.upper == pytest.approx((-found.lower.value, -found.lower.high, -found.lower.low))
    moved = agreement(VALUE + 5, PREDICTED + 5)
    assert [*moved.upper, *moved.sd] == pytest.approx([*found.upper, *found.sd])


def test_agreement_of_one_patient_is_a_bias_alone_and_of_equal_differences_has_no_width():
    one = agreement(np.ones(1), np.full(1, 3.0))
    assert one.bias.value == 2
    assert np.isnan([*one.bias[1:], *one.sd, *one.lower, *one.upper]).all()
    assert np.isnan(agreement(np.zeros(0), np.zeros(0)).bias).all()
    equal = agreement(np.arange(4.0), np.arange(4.0) + 1)
    assert [*equal.bias, *equal.lower, *equal.upper] == [1.0] * 9
