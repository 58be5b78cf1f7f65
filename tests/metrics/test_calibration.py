"""Calibration, decisions and tests over many results, against hand-worked cases, scikit-learn and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import norm, ttest_1samp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_curve

from mri_vit.errors import IntegrityError
from mri_vit.metrics import calibration, calibration_curve, comparison, decision, intervals

NAN = math.nan
untimed = settings(deadline=None)  # a shared core may be slow
predicted = st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=1, max_size=40)


def columns(rows):
    truth, twentieths = zip(*rows, strict=True)
    return np.array(truth, dtype=bool), np.array(twentieths) / 20


def cohort(n, seed, slope=1.0, shift=0.0):
    """Truth drawn from true probabilities, and predictions whose logit is that of the truth, moved and stretched."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=n)
    return generator.random(n) < expit(x), expit((x - shift) / slope)


# --- Brier and its parts -------------------------------------------------------------------------------------------------


@untimed
@given(predicted, st.integers(1, 12))
def test_parts_of_the_brier_score_add_up_exactly(rows, bins):
    truth, probability = columns(rows)
    parts = calibration_curve.brier_decomposition(truth, probability, bins)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within
    assert total == pytest.approx(calibration.brier(truth, probability), abs=1e-12)
    assert min(parts.reliability, parts.resolution, parts.uncertainty) >= 0


@untimed
@given(predicted)
def test_brier_score_is_that_of_scikit_learn(rows):
    truth, probability = columns(rows)
    assume(truth.any() and not truth.all())
    assert calibration.brier(truth, probability) == pytest.approx(brier_score_loss(truth, probability), abs=1e-12)


def test_parts_of_the_brier_score_worked_by_hand():
    truth = np.array([False, False, True, True, True, False])
    probability = np.array([0.2, 0.2, 0.2, 0.6, 0.6, 0.6])
    # Shares 1/3 and 2/3, prevalence 1/2; nothing varies within a bin.
    parts = calibration_curve.brier_decomposition(truth, probability, 2)
    assert parts.reliability == pytest.approx(((0.2 - 1 / 3) ** 2 + (0.6 - 2 / 3) ** 2) / 2)
    assert parts.resolution == pytest.approx((1 / 6) ** 2)
    assert parts.uncertainty == 0.25
    assert parts.within == pytest.approx(0, abs=1e-15)


def test_predicting_the_prevalence_has_neither_resolution_nor_unreliability():
    truth = np.arange(10) < 3
    parts = calibration_curve.brier_decomposition(truth, np.full(10, 0.3))
    assert (parts.reliability, parts.resolution) == pytest.approx((0, 0))
    assert calibration.brier(truth, np.full(10, 0.3)) == pytest.approx(parts.uncertainty)


# --- calibration ---------------------------------------------------------------------------------------------------------


def test_calibration_line_is_unpenalised_logistic_regression():
    truth, probability = cohort(300, seed=0, slope=0.5, shift=0.3)
    slope, intercept = calibration.calibration_line(truth, probability)
    fit = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(logit(probability)[:, None], truth)
    assert (slope, intercept) == pytest.approx((fit.coef_[0, 0], fit.intercept_[0]), abs=1e-5)


def test_calibration_line_finds_how_predictions_were_bent():
    # logit p = (x - shift) / slope, so x = shift + slope logit p.
    slope, intercept = calibration.calibration_line(*cohort(20000, seed=1, slope=0.5, shift=0.4))
    assert slope == pytest.approx(0.5, abs=0.03)  # three standard errors
    assert intercept == pytest.approx(0.4, abs=0.06)


@untimed
@given(predicted)
def test_calibration_line_solves_its_score_equations_wherever_it_exists(rows):
    truth, probability = columns(rows)
    slope, intercept = calibration.calibration_line(truth, probability)
    x = logit(np.clip(probability, calibration.PROBABILITY_EPS, 1 - calibration.PROBABILITY_EPS))
    if math.isnan(slope):
        one, two = x[truth], x[~truth]
        assert not len(one) or not len(two) or one.min() >= two.max() or one.max() <= two.min()
        return
    residual = truth - expit(intercept + slope * x)
    assert (residual.mean(), (residual * x).mean()) == pytest.approx((0, 0), abs=1e-6)


@untimed
@given(predicted)
def test_calibration_in_the_large_makes_the_mean_prediction_the_prevalence(rows):
    truth, probability = columns(rows)
    shift = calibration.calibration_in_the_large(truth, probability)
    if not truth.any() or truth.all():
        assert math.isnan(shift)
        return
    x = logit(np.clip(probability, calibration.PROBABILITY_EPS, 1 - calibration.PROBABILITY_EPS))
    assert expit(shift + x).mean() == pytest.approx(truth.mean(), abs=1e-9)


def test_recalibrated_probabilities_have_an_ideal_line_and_the_same_order():
    truth, probability = cohort(200, seed=2, slope=0.4, shift=-0.5)
    better = calibration.recalibrated(truth, probability)
    assert calibration.calibration_line(truth, better) == pytest.approx((1, 0), abs=1e-6)
    assert (np.argsort(better) == np.argsort(probability)).all()
    assert np.isnan(calibration.recalibrated(np.ones(3, bool), np.array([0.1, 0.2, 0.3]))).all()


@untimed
@given(predicted, st.integers(1, 12))
def test_expected_calibration_error_is_that_of_its_definition(rows, bins):
    truth, probability = columns(rows)
    total = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        here = (probability > low) & (probability <= high) | ((probability == 0) & (b == 0))
        if here.any():
            total += here.mean() * abs(probability[here].mean() - truth[here].mean())
    assert calibration_curve.expected_calibration_error(truth, probability, bins) == pytest.approx(total, abs=1e-12)


def test_loess_is_that_of_R():
    """R: predict(loess(dist ~ speed, cars, control = loess.control(surface = "direct")), data.frame(speed = 5:20))."""
    speed = np.repeat([4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 23, 24, 25.0],
                      [2, 2, 1, 1, 3, 2, 4, 4, 4, 3, 2, 3, 4, 3, 5, 1, 1, 4, 1])  # fmt: skip
    dist = [2, 10, 4, 22, 16, 10, 18, 26, 34, 17, 28, 14, 20, 24, 28, 26, 34, 34, 46, 26, 36, 60, 80, 20, 26, 54, 32, 40, 32, 40,
            50, 42, 56, 76, 84, 36, 46, 68, 32, 48, 52, 56, 64, 66, 54, 70, 92, 93, 120, 85]  # fmt: skip
    smoother = calibration_curve.Loess.of(speed, np.array(dist, dtype=float), np.arange(5.0, 21))
    found = smoother.fit_places(np.ones((1, 50)))[0][0]
    expected = [7.741006, 9.926596, 12.442424, 15.281082, 18.425712, 21.865315, 25.713413, 29.350386, 33.230660, 37.167935,
                41.205226, 45.781544, 48.355889, 50.067148, 51.986702, 56.445263]  # fmt: skip
    assert found == pytest.approx(expected, abs=1e-6)


OF_R = {  # ICI, E50 and E90, four of the fitted values, and the ICI of surface = "direct"
    None: ([0.0874899064421, 0.0894179421160, 0.1343785584055],
           [-0.0445685943857, 0.8563634368272, 0.5503730105597, 0.2941146545322], 0.0872039557531),
    1: ([0.0859757077036, 0.0887904736569, 0.1311347451320],
        [-0.030132086880, 0.822126481968, 0.559218943920, 0.300292570718], 0.0861521117689),
}  # fmt: skip


@pytest.mark.parametrize("decimals", OF_R)
def test_loess_between_its_cells_and_the_distances_of_it_are_those_of_R(decimals):
    """R 4.2.2: m <- loess(y ~ p); d <- abs(fitted(m) - p); c(mean(d), quantile(d, c(.5, .9))), fitted(m)[c(1, 6, 50, 120)]."""
    distances, fitted, direct_ici = OF_R[decimals]
    i = np.arange(120)
    even = (i * 37) % 97 / 97
    truth, probability = (i * 61) % 89 / 89 < even**1.5, even if decimals is None else even.round(decimals)
    curve, once = calibration.CalibrationCurve.of(truth, probability), np.ones((1, 120))
    assert curve.smoother.fit(once, probability)[0][[0, 5, 49, 119]] == pytest.approx(fitted, abs=1e-11)
    assert calibration.drawn_distances(curve, once)[0] == pytest.approx(distances, abs=1e-11)
    direct = calibration_curve.Loess.of(probability, truth.astype(float), probability).fit_places(once)[0][0]
    assert np.abs(direct - probability).mean() == pytest.approx(direct_ici, abs=1e-11)


@untimed
@given(predicted, st.integers(0, 5))
def test_smooth_calibration_never_warns_and_holds_its_own_values(rows, seed):
    truth, probability = columns(rows)
    found = calibration.smooth_calibration(truth.astype(float), probability, np.random.default_rng(seed), 1.4, 30)
    assert found
    if truth.all() or not truth.any():
        assert np.isnan([*found.ici[1:], *found.low, *found.high]).all()
        return
    for value, low, high in (found.ici, found.e50, found.e90):
        assert 0 <= low <= value + 1e-9 <= high + 2e-9 <= 1 + 1e-8
    assert (found.low <= found.high + 1e-9).all()


def test_scaled_brier_of_the_prevalence_is_zero_of_the_labels_one_and_of_their_opposite_negative():
    truth = np.array([1, 0, 0, 1, 0])
    assert calibration.scaled_brier(truth, np.full(5, 0.4)) == pytest.approx(0)
    assert calibration.scaled_brier(truth, truth.astype(float)) == 1
    assert calibration.scaled_brier(truth, 1 - truth.astype(float)) == pytest.approx(1 - 1 / 0.24)
    assert math.isnan(calibration.scaled_brier(np.ones(3), np.full(3, 0.4)))


@untimed
@given(predicted, st.integers(0, 5))
def test_loess_keeps_a_line_whatever_the_weights(rows, seed):
    _, x = columns(rows)
    weight = np.random.default_rng(seed).integers(0, 3, size=(3, len(x))).astype(float)
    weight[0] = 1
    found = calibration_curve.Loess.of(x, 2 - 3 * x, x).fit_places(weight)[0]
    own = weight > 0  # a patient who counts is within their own reach
    assert found[own] == pytest.approx(np.broadcast_to(2 - 3 * x, weight.shape)[own], abs=1e-6)


def test_integrated_calibration_index_of_a_curve_that_is_known():
    probability = np.linspace(0.1, 0.7, 60)
    truth = np.arange(60) % 2 == 0  # one half everywhere, so that the curve is one half but for its waves
    found = calibration.integrated_calibration_index(truth, probability)
    assert found == pytest.approx(np.abs(probability - 0.5).mean(), abs=0.02)
    assert calibration.integrated_calibration_index(truth, np.full(60, 0.5)) == pytest.approx(0)
    assert calibration.integrated_calibration_index(truth, np.full(60, 0.9)) == pytest.approx(0.4)


def test_integrated_calibration_index_of_many_patients_is_near_that_of_a_curve_fitted_at_each_of_them():
    truth, probability = cohort(300, seed=6, slope=0.5, shift=0.5)
    curve = calibration_curve.Loess.of(probability, truth.astype(float), probability).fit_places(np.ones((1, 300)))[0][0]
    found = calibration.integrated_calibration_index(truth, probability)
    assert found == pytest.approx(np.abs(curve - probability).mean(), abs=2e-3)
    assert found > calibration.integrated_calibration_index(*cohort(300, seed=6)) + 0.05


def test_observed_to_expected_by_hand():
    truth = np.array([1, 1, 0, 0])
    assert calibration.observed_to_expected(truth, np.array([0.5, 0.5, 0.25, 0.25])) == pytest.approx(2 / 1.5)
    assert math.isnan(calibration.observed_to_expected(truth, np.zeros(4)))


# --- intervals of what is measured of probabilities ----------------------------------------------------------------------


@pytest.mark.parametrize(("n", "slope"), [(25, 1.0), (60, 0.3), (60, 3.0)])
def test_lines_of_draws_are_those_of_patients_drawn_one_by_one(n, slope):
    truth, probability = cohort(n, seed=n, slope=slope)
    drawn = intervals.counts(np.zeros(n), np.random.default_rng(0), 60)
    drawn[0] = truth  # one class alone has no line
    drawn[1] = truth == (probability > np.median(probability))  # nor have classes that are apart
    line = calibration.calibration_line(truth, probability)
    slopes, intercepts = calibration.drawn_lines(truth, probability, drawn, line)
    for one, *found in zip(drawn, slopes, intercepts, strict=True):
        rows = np.repeat(np.arange(n), one.astype(int))
        assert found == pytest.approx(calibration.calibration_line(truth[rows], probability[rows]), abs=1e-6, nan_ok=True)
    assert np.isnan(slopes[:2]).all()
    assert not np.isnan(slopes[2:]).all()


def test_lines_far_from_where_they_are_looked_for_are_found_by_shorter_steps():
    truth, probability = cohort(60, seed=4)
    drawn = intervals.counts(np.zeros(60), np.random.default_rng(0), 40)
    near = calibration.drawn_lines(truth, probability, drawn, calibration.calibration_line(truth, probability))
    far = calibration.drawn_lines(truth, probability, drawn, (-3.0, 2.0))  # from which a whole step leads away
    np.testing.assert_allclose(far, near, rtol=1e-6)
    assert np.isfinite(near).all()


def test_intervals_are_those_of_measuring_drawn_patients_one_by_one():
    truth, probability = cohort(80, seed=3)
    thresholds = np.array([0.0, 0.2, 0.5])
    found = calibration.probability_intervals(truth, probability, thresholds, np.random.default_rng(2), 80)
    single, benefit = [], []
    for counts in intervals.counts(np.zeros(80), np.random.default_rng(2), 80).astype(int):
        rows = np.repeat(np.arange(80), counts)
        drawn = truth[rows], probability[rows]
        line, ratio = calibration.calibration_line(*drawn), calibration.observed_to_expected(*drawn)
        null = calibration.brier(truth[rows], np.full(80, truth.mean()))
        single.append([calibration.brier(*drawn), 1 - calibration.brier(*drawn) / null, *line, ratio])
        benefit.append(decision.net_benefit(*drawn, thresholds))
    low, high = np.quantile(single, [0.025, 0.975], axis=0)
    ends = [found.brier, found.scaled, found.slope, found.intercept, found.observed_to_expected]
    assert np.array(ends) == pytest.approx(np.stack([low, high], axis=1), abs=1e-6)
    assert np.array(found.net_benefit) == pytest.approx(np.quantile(benefit, [0.025, 0.975], axis=0))


def test_classes_that_draws_often_separate_have_no_interval_of_their_line():
    truth, probability = np.arange(12) >= 6, np.r_[0.1, 0.15, 0.2, 0.25, 0.3, 0.6, 0.5, 0.7, 0.75, 0.8, 0.85, 0.9]
    assert not math.isnan(calibration.calibration_line(truth, probability)[0])
    found = calibration.probability_intervals(truth, probability, np.array([0.5]), np.random.default_rng(0))
    assert all(math.isnan(end) for end in (*found.slope, *found.intercept))
    assert found.brier[0] < found.brier[1]


@pytest.mark.parametrize("truth", [[True, True, True], [False, False], []])
def test_intervals_of_one_class_are_undefined_and_nothing_warns(truth):
    probability = np.linspace(0.2, 0.8, len(truth))
    found = calibration.probability_intervals(np.array(truth, dtype=bool), probability, np.array([0.5]), np.random.default_rng(0))
    assert np.isnan(np.concatenate([np.ravel(ends) for ends in vars(found).values()])).all()


@untimed
@given(predicted)
def test_intervals_never_warn_and_never_turn_round(rows):
    truth, probability = columns(rows)
    found = calibration.probability_intervals(truth, probability, np.array([0.3]), np.random.default_rng(0), 30)
    for low, high in vars(found).values():
        assert np.isnan(low).all() or np.all(low <= high)


@untimed
@given(predicted, st.integers(1, 8))
def test_reliability_curve_holds_every_patient_once_and_parts_no_equal_predictions(rows, bins):
    truth, probability = columns(rows)
    curve = calibration_curve.reliability_curve(truth, probability, bins)
    assert curve.n.sum() == len(truth)
    assert len(curve.n) <= bins
    assert (curve.n > 0).all()
    assert (curve.observed * curve.n).sum() == pytest.approx(truth.sum())
    assert (np.diff(curve.predicted) > 0).all()
    assert ((curve.low <= curve.observed) & (curve.observed <= curve.high)).all()
    group = calibration_curve.quantile_groups(probability, bins)
    assert all(len(set(group[probability == value])) == 1 for value in np.unique(probability))


def test_reliability_curve_of_distinct_predictions_has_equal_bins():
    curve = calibration_curve.reliability_curve(np.arange(100) % 2 == 0, np.linspace(0, 1, 100), 10)
    assert curve.n.tolist() == [10] * 10


@pytest.mark.parametrize(
    "call",
    [
        calibration.brier,
        calibration.calibration_line,
        calibration_curve.expected_calibration_error,
        calibration_curve.reliability_curve,
    ],
)
def test_what_is_no_probability_is_refused(call):
    truth = np.array([True, False, True])
    with pytest.raises(ValueError, match="1 of 3 probabilities are NaN"):
        call(truth, np.array([0.1, NAN, 0.2]))
    with pytest.raises(ValueError, match="2 of 3 probabilities lie outside"):
        call(truth, np.array([0.1, 1.2, -3.0]))


def test_without_a_patient_calibration_is_undefined():
    nobody, nothing = np.zeros(0, bool), np.zeros(0)
    assert math.isnan(calibration.brier(nobody, nothing))
    assert math.isnan(calibration_curve.brier_decomposition(nobody, nothing).within)
    assert math.isnan(calibration_curve.expected_calibration_error(nobody, nothing))
    assert math.isnan(calibration.calibration_in_the_large(nobody, nothing))
    assert math.isnan(calibration.calibration_line(nobody, nothing)[0])
    assert len(calibration_curve.reliability_curve(nobody, nothing).n) == 0


# --- shares and decisions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "total"), [(0, 1), (1, 1), (3, 7), (0, 50), (49, 50), (500, 1000)])
def test_wilson_bounds_solve_the_equation_of_the_score_test(count, total):
    share, low, high = intervals.rate(count, total)
    for bound in (low, high):
        assert (share - bound) ** 2 == pytest.approx(norm.ppf(0.975) ** 2 * bound * (1 - bound) / total, abs=1e-12)
    assert share == count / total
    assert (low == 0) == (count == 0)
    assert (high == 1) == (count == total)


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_is_that_printed_by_newcombe(count, total, low, high):
    """Newcombe 1998, Table I, method 3, doi:10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E."""
    assert intervals.rate(count, total)[1:] == pytest.approx((low, high), abs=5e-5)


def test_counts_above_their_total_are_refused():
    with pytest.raises(ValueError, match=r"found counts \[3\] of totals \[2\]"):
        intervals.rate(3, 2)


def test_a_share_of_nobody_is_undefined():
    assert all(math.isnan(value) for value in intervals.rate(0, 0))


def test_rates_of_a_table_of_four_are_those_of_the_textbook():
    truth = np.repeat([True, True, False, False], [8, 2, 5, 85])
    positive = np.repeat([True, False, True, False], [8, 2, 5, 85])
    point = decision.operating_point(truth, positive)
    rates = (point.sensitivity.value, point.specificity.value, point.ppv.value, point.npv.value)
    assert rates == pytest.approx((8 / 10, 85 / 90, 8 / 13, 85 / 87))
    assert point.ppv.low < 8 / 13 < point.ppv.high
    nobody = decision.operating_point(truth, np.zeros(100, bool))
    assert math.isnan(nobody.ppv.value)
    assert nobody.sensitivity.value == 0


@untimed
@given(predicted)
def test_youden_threshold_has_the_largest_index_of_all_observed_scores(rows):
    truth, score = columns(rows)
    value = decision.youden_threshold(truth, score)
    if not truth.any() or truth.all():
        assert math.isnan(value)
        return
    index = {cut: (score[truth] >= cut).mean() - (score[~truth] >= cut).mean() for cut in np.unique(score)}
    assert index[value] == pytest.approx(max(index.values()))
    false_positive, true_positive, _ = roc_curve(truth, score)
    assert max(0, index[value]) == pytest.approx(max(true_positive - false_positive))


@untimed
@given(predicted)
def test_net_benefit_is_that_of_its_definition(rows):
    truth, probability = columns(rows)
    thresholds = np.array([0.0, 0.05, 0.2, 0.5, 0.95])
    found, of_all = (
        decision.net_benefit(truth, probability, thresholds),
        decision.net_benefit(truth, np.ones(len(truth)), thresholds),
    )
    if not truth.any() or truth.all():
        assert np.isnan(found).all()
        assert np.isnan(of_all).all()
        return
    for position, t in enumerate(thresholds):
        called = probability >= t
        expected = (truth & called).mean() - (~truth & called).mean() * t / (1 - t)
        assert found[position] == pytest.approx(expected)
        assert of_all[position] == pytest.approx(truth.mean() - (1 - truth.mean()) * t / (1 - t))
    assert found[0] == of_all[0]


def test_a_threshold_of_one_has_no_net_benefit():
    with pytest.raises(ValueError, match="below 1"):
        decision.net_benefit(np.array([True, False]), np.array([0.2, 0.3]), np.array([0.5, 1.0]))


# --- thresholds that remember --------------------------------------------------------------------------------------------


def test_a_threshold_is_applied_to_other_patients():
    chosen = decision.choose_threshold(["a", "b", "c"], np.array([False, True, True]), np.array([0.1, 0.4, 0.9]))
    assert chosen == decision.Threshold(0.4, frozenset("abc"))
    assert chosen.apply(["d", "e"], np.array([0.4, 0.3])).tolist() == [True, False]
    cutoff = decision.choose_cutoff(np.array(["a", "b", "c"]), np.array([1.0, 5.0, 2.0]))
    assert cutoff.apply(np.array(["x", "y"]), np.array([2.0, 1.9])).tolist() == [True, False]


@untimed
@given(st.sets(st.integers(0, 30), min_size=2, max_size=15), st.lists(st.integers(0, 30), min_size=1, max_size=10, unique=True))
def test_a_threshold_refuses_every_cohort_that_holds_a_patient_it_was_chosen_on(chosen_on, judged_on):
    names, others = [f"p{index}" for index in sorted(chosen_on)], [f"p{index}" for index in judged_on]
    score = np.arange(len(names), dtype=float)
    thresholds = (
        decision.choose_threshold(names, score > 0, score),
        decision.choose_cutoff(names, score),
    )
    seen = [name for name in others if name in names]
    for threshold in thresholds:
        if seen:
            with pytest.raises(IntegrityError, match=f"patient {seen[0]}: .*{len(seen)} of {len(others)} patients"):
                threshold.apply(others, np.zeros(len(others)))
        else:
            assert len(threshold.apply(others, np.zeros(len(others)))) == len(others)


def test_a_threshold_needs_both_classes_every_score_and_a_patient():
    with pytest.raises(ValueError, match="2 positives of 2"):
        decision.choose_threshold(["a", "b"], np.array([True, True]), np.array([0.1, 0.2]))
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        decision.choose_cutoff(["a", "b"], np.array([0.1, NAN]))
    with pytest.raises(ValueError, match="no patient"):
        decision.choose_cutoff([], np.zeros(0))
    with pytest.raises(ValueError, match="2 scores for 1 patients"):
        decision.Threshold(0.5, frozenset()).apply(["a"], np.array([0.1, 0.2]))
    with pytest.raises(ValueError, match="1 of 1 scores are NaN"):
        decision.Threshold(0.5, frozenset()).apply(["a"], np.array([NAN]))


# --- tests over many results ---------------------------------------------------------------------------------------------


def test_nadeau_bengio_is_the_t_test_of_scipy_with_a_larger_variance():
    differences = np.random.default_rng(3).normal(0.05, 0.1, size=20)
    statistic, pvalue = np.array(ttest_1samp(differences, 0, alternative="greater")).tolist()
    t, p = comparison.nadeau_bengio(differences, 80, 20)
    assert t == pytest.approx(statistic * math.sqrt((1 / 20) / (1 / 20 + 20 / 80)))
    assert p > pvalue
    # With next to no test patients the folds hardly overlap, and the plain test is right.
    assert comparison.nadeau_bengio(differences, 10**9, 1) == pytest.approx((statistic, pvalue), rel=1e-6)


def test_nadeau_bengio_leaves_undefined_folds_out_and_needs_two_that_vary():
    with_gap = np.array([0.1, NAN, 0.3, 0.2])
    assert comparison.nadeau_bengio(with_gap, 80, 20) == comparison.nadeau_bengio(with_gap[[0, 2, 3]], 80, 20)
    for differences in ([0.1], [], [0.1, NAN], [0.1, 0.1, 0.1]):
        assert all(math.isnan(value) for value in comparison.nadeau_bengio(np.array(differences, dtype=float), 80, 20))
    with pytest.raises(ValueError, match="at least one"):
        comparison.nadeau_bengio(with_gap, 80, 0)


def test_holm_of_four_is_as_worked_by_hand():
    # Sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 raised to the one before.
    assert comparison.holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@untimed
@given(st.lists(st.one_of(st.just(NAN), st.floats(0, 1)), max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(values):
    p = np.array(values, dtype=float)
    adjusted = comparison.holm(p)
    assert (np.isnan(adjusted) == np.isnan(p)).all()
    known = np.sort(p[~np.isnan(p)])
    for level in (0.01, 0.05, 0.3):
        rejected = 0
        while rejected < len(known) and known[rejected] * (len(known) - rejected) <= level:
            rejected += 1
        assert (adjusted <= level).sum() == rejected


def test_holm_refuses_what_is_no_p():
    with pytest.raises(ValueError, match="within 0 and 1"):
        comparison.holm(np.array([0.2, 1.5]))
