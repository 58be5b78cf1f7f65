"""Net benefit over a range against R's numbers, and what its mean and its band must not do."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from mri_vit.metrics import benefit, calibration, decision
from mri_vit.metrics.comparison import Z_95

RECORDED = json.loads((Path(__file__).parents[1] / "oracles" / "utility.json").read_text())  # by utility.R beside it
AT = np.array([0.1, 0.2, 0.3, 0.4])


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def cohort(n: int, effect: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    log_odds = effect * random.normal(size=n) - 0.8
    probability = 1 / (1 + np.exp(-log_odds))
    return random.random(n) < probability, probability


def policies(truth: np.ndarray, probability: np.ndarray, at: np.ndarray = AT) -> tuple[benefit.Policy, benefit.Policy]:
    return benefit.of_markers(truth, probability, at), benefit.of_markers(truth, np.ones(len(truth)), at)


def test_the_mean_difference_and_its_error_are_rs():
    one = RECORDED["benefit"]
    at = np.array(one["thresholds"])
    ours, everyone = policies(np.array(one["truth"]), np.array(one["p"]), at)
    found = benefit.mean_difference(ours, everyone, 1.0)
    np.testing.assert_allclose(ours.net_benefit, one["of_model"], atol=1e-12)
    assert found.difference == pytest.approx(one["less_all"], abs=1e-12)
    assert (found.high - found.low) / (2 * Z_95) == pytest.approx(one["error"], abs=1e-12)


def test_a_slopes_interval_is_rs():
    one = RECORDED["slope"]
    truth, probability = (np.array(RECORDED["benefit"][key]) for key in ("truth", "p"))
    slope, low, high = calibration.slope_interval(truth, probability)
    assert slope == pytest.approx(one["slope"], abs=1e-6)
    assert (high - low) / (2 * Z_95) == pytest.approx(one["error"], abs=1e-6)


def test_patients_add_up_to_the_decision_curve():
    truth, probability = cohort(200, 1.0)
    np.testing.assert_allclose(
        benefit.of_markers(truth, probability, AT).net_benefit, decision.net_benefit(truth, probability, AT), atol=1e-12
    )
    random = generator()
    days, died = random.exponential(400, 200), random.random(200) < 0.6
    death = random.random(200)
    people = decision.ByDay(days, died, death, 365.0)
    np.testing.assert_allclose(benefit.of_survival(people, AT).net_benefit, decision.survival_net_benefit(people, AT), atol=1e-12)


def test_one_probability_for_all_is_worth_nothing_beside_the_better_of_both():
    truth = np.arange(40) % 4 == 0
    ours, everyone = policies(truth, np.full(40, 0.25))
    best = benefit.better_of(everyone, benefit.none_treated(ours))
    found = benefit.mean_difference(ours, best, 1.0)
    assert (found.difference, found.p) == (0.0, 1.0)
    band = benefit.band_over(ours, [everyone, benefit.none_treated(ours)], AT, 1.0, generator())
    np.testing.assert_allclose(band.difference, 0, atol=1e-12)
    assert (band.low < 0).all()  # no difference is certain
    assert (band.high > 0).all()


def test_a_few_patients_who_are_left_untreated_prove_nothing():
    """Eight negatives below a threshold of 0.1: by chance in two of five cohorts of that share."""
    truth = np.r_[np.zeros(8), np.arange(92) % 10 == 0]
    probability = np.r_[np.full(8, 0.01), np.full(92, 0.5)]
    ours, everyone = policies(truth, probability, np.array([0.1]))
    band = benefit.band_over(ours, [everyone], np.array([0.1]), 1.0, generator())
    assert band.difference[0] > 0 > band.low[0]


def test_the_band_is_wider_than_one_of_a_single_threshold_and_holds_the_curve():
    truth, probability = cohort(300, 1.5)
    ours, everyone = policies(truth, probability)
    none = benefit.none_treated(ours)
    band = benefit.band_over(ours, [everyone, none], AT, 1.0, generator())
    assert band.critical > Z_95
    np.testing.assert_allclose(
        band.difference, ours.net_benefit - np.maximum(everyone.net_benefit, 0), atol=1e-12
    )  # less the larger of both
    assert ((band.low < band.difference) & (band.difference < band.high)).all()


def test_refitting_widens_the_interval_and_not_the_figure():
    ours, everyone = policies(*cohort(100, 1.0))
    one, other = (benefit.mean_difference(ours, everyone, inflated) for inflated in (1.0, 2**0.5))
    assert one.difference == other.difference
    assert other.high - other.low == pytest.approx(2**0.5 * (one.high - one.low))


def test_an_undefined_threshold_is_left_out_and_one_above_all_chances_is_worth_nothing():
    """The two patients of the highest chance are censored early; above theirs none is treated."""
    random = generator()
    days, died = random.uniform(100, 900, 60), random.random(60) < 0.7
    chance = np.r_[random.uniform(0, 0.25, 58), 0.35, 0.35]
    days[-2:], died[-2:] = 50.0, False
    people = decision.ByDay(days, died, chance, 365.0)
    ours = benefit.of_survival(people, AT)
    assert np.isnan(ours.net_benefit).tolist() == [False, False, True, False]
    assert (ours.worth[3] == 0).all()
    none = benefit.none_treated(ours)
    assert benefit.comparable(ours, none).tolist() == [True, True, False, True]
    without = benefit.of_survival(people, AT[[0, 1, 3]])
    assert benefit.mean_difference(ours, none, 1.0) == benefit.mean_difference(without, benefit.none_treated(without), 1.0)


def test_a_day_that_no_patient_reached_has_no_net_benefit():
    days, died = np.full(20, 100.0), np.arange(20) % 2 == 0
    ours = benefit.of_survival(decision.ByDay(days, died, np.linspace(0, 1, 20), 365.0), AT)
    assert math.isnan(benefit.mean_difference(ours, benefit.none_treated(ours), 1.0).difference)
    band = benefit.band_over(ours, [benefit.none_treated(ours)], AT, 1.0, generator())
    assert np.isnan(band.low).all()


@pytest.mark.parametrize("inside", [0.95])
def test_the_interval_of_given_probabilities_covers(inside: float):
    """Of 1,000 cohorts of 150, whose mean net benefit less the better of both is known from a million patients."""
    ours, everyone = policies(*cohort(1_000_000, 1.0, seed=1))
    true = float((ours.net_benefit - np.maximum(everyone.net_benefit, 0)).mean())
    covered = 0
    for seed in range(1000):
        mine, of_all = policies(*cohort(150, 1.0, seed=seed + 2))
        found = benefit.mean_difference(mine, benefit.better_of(of_all, benefit.none_treated(mine)), 1.0)
        covered += found.low <= true <= found.high
    assert covered / 1000 == pytest.approx(inside, abs=0.03)
