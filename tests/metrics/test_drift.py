"""How calibration drifts: measures as they are elsewhere, differences that are known, and intervals that hold them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit

from mri_vit.metrics import calibration, transportability
from mri_vit.metrics.survival import kaplan_meier


def marker(generator: np.random.Generator, n: int, shift: float = 0.0) -> transportability.Cohort:
    """Patients whose probabilities are too high by `shift` on the logit scale."""
    log_odds = generator.normal(size=n)
    return transportability.of_markers(generator.random(n) < expit(log_odds), expit(log_odds + shift))


def lives(generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    died, censored = generator.exponential(500, n).round() + 1, generator.uniform(100, 900, n).round()
    return np.minimum(died, censored), died <= censored, generator.random(n)


def test_measures_are_those_of_calibration_itself():
    generator = np.random.default_rng(3)
    truth, probability = generator.random(60) < 0.4, generator.random(60)
    slope, intercept = calibration.calibration_line(truth, probability)
    expected = (slope, intercept, calibration.observed_to_expected(truth, probability), float((probability - truth).mean()))
    cohort = transportability.of_markers(truth, probability)
    np.testing.assert_allclose(cohort.measures(np.ones((1, 60)))[0], expected, rtol=1e-6)


def test_a_drawn_survival_is_that_of_kaplan_and_meier_and_counts_a_patient_as_often_as_drawn():
    days, event, _ = lives(np.random.default_rng(4), 50)
    drawn = np.random.default_rng(5).multinomial(50, np.full(50, 1 / 50), size=6).astype(float)
    found = transportability.drawn_survival(days, event, drawn, 365.0)
    for counts, one in zip(drawn.astype(int), found, strict=True):
        curve = kaplan_meier(np.repeat(days, counts), np.repeat(event, counts), "")
        assert one == pytest.approx(float(curve.survival_function_at_times(365.0).iloc[0]))


def test_survival_is_measured_by_who_died_until_then():
    days, event = np.array([100.0, 200.0, 400.0, 500.0]), np.array([True, True, True, False])
    ratio, excess = transportability.of_survival(days, event, np.full(4, 0.75), 365.0).measures(np.ones((1, 4)))[0]
    assert (ratio, excess) == (pytest.approx(0.5 / 0.25), pytest.approx(0.25 - 0.5))
    beyond = transportability.of_survival(days, event, np.full(4, 0.75), 600.0).measures(np.ones((1, 4)))[0]
    assert np.isnan(beyond).all()  # the last was censored before


def test_a_cohort_does_not_drift_from_itself_and_its_two_intervals_are_drawn_independently():
    cohort = marker(np.random.default_rng(1), 80)
    for one in transportability.drift(cohort, cohort, seed=7):
        assert one.difference[0] == 0
        assert one.difference[1] < 0 < one.difference[2]
        assert one.inside[1:] != one.outside[1:]


def test_a_shift_of_the_probabilities_is_found_with_its_sign():
    generator = np.random.default_rng(2)
    _, intercept, ratio, excess = transportability.drift(marker(generator, 400), marker(generator, 400, shift=1.0), seed=0)
    assert intercept.difference[2] < 0
    assert ratio.difference[2] < 0
    assert excess.difference[1] > 0


def test_the_interval_of_a_difference_holds_none_in_nineteen_of_twenty_pairs_of_cohorts():
    generator, runs = np.random.default_rng(11), 200
    held = [
        transportability.drift(marker(generator, 60), marker(generator, 40), seed=run, resamples=200)[3].difference
        for run in range(runs)
    ]
    share = np.mean([low <= 0 <= high for _, low, high in held])
    assert share >= 0.95 - 2.5 * math.sqrt(0.95 * 0.05 / runs)


def test_what_is_undefined_in_one_cohort_has_no_difference():
    one_class = transportability.of_markers(np.ones(10), np.full(10, 0.7))
    slope, _, ratio, excess = transportability.drift(marker(np.random.default_rng(1), 50), one_class, seed=0)
    assert np.isnan([*slope.outside, *slope.difference]).all()
    assert not np.isnan(slope.inside[0])
    assert excess.outside[0] == pytest.approx(-0.3)
    assert ratio.outside[0] == pytest.approx(1 / 0.7)
    assert np.isnan([excess.outside[1], excess.difference[1], ratio.outside[2]]).all()  # though all resamples agree
