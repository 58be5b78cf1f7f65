"""How much groups differ, and what one more will have: a published meta-analysis, and how often the interval is right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mri_vit.metrics import transportability
from mri_vit.metrics.transportability import assumed_interval, prediction_interval, random_effects

# Vaccine against tuberculosis, 13 trials: ill and well of those vaccinated, ill and well of the others (Colditz et al. 1994,
# doi:10.1001/jama.1994.03510330076038), the example of R's metafor as `dat.bcg`.
BCG = np.array(
    [
        [4, 119, 11, 128],
        [6, 300, 29, 274],
        [3, 228, 11, 209],
        [62, 13536, 248, 12619],
        [33, 5036, 47, 5761],
        [180, 1361, 372, 1079],
        [8, 2537, 10, 619],
        [505, 87886, 499, 87892],
        [29, 7470, 45, 7232],
        [17, 1699, 65, 1600],
        [186, 50448, 141, 27197],
        [5, 2493, 3, 2338],
        [27, 16886, 29, 17825],
    ],
    dtype=float,
)


def log_risk_ratios() -> tuple[np.ndarray, np.ndarray]:
    a, b, c, d = BCG.T
    return np.log(a / (a + b) * (c + d) / c), 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d)


def test_random_effects_are_those_that_metafor_gives_for_the_trials_of_bcg():
    """Viechtbauer 2010, doi:10.18637/jss.v036.i03: REML gives tau² 0.3132 and the mean -0.7145, with Knapp-Hartung's 0.1808."""
    found = random_effects(*log_risk_ratios())
    assert (found.groups, round(found.tau**2, 4), round(found.mean, 4), round(found.error, 4)) == (13, 0.3132, -0.7145, 0.1808)


def test_the_estimate_of_tau_is_where_the_restricted_likelihood_is_largest():
    values, variances = log_risk_ratios()

    def likelihood(squared: float) -> float:
        weight = 1 / (variances + squared)
        mean = (weight * values).sum() / weight.sum()
        return float(np.log(weight).sum() - math.log(weight.sum()) - (weight * (values - mean) ** 2).sum()) / 2

    at = random_effects(values, variances).tau ** 2
    assert likelihood(at) > max(likelihood(at * 0.999), likelihood(at * 1.001))


def test_groups_of_one_value_have_no_tau_and_few_groups_no_interval():
    alike, variances = np.full(6, 0.7), np.linspace(0.02, 0.1, 6)
    found = random_effects(alike, variances)
    assert (found.tau, found.mean) == (0, pytest.approx(0.7))
    assert found.error == pytest.approx((1 / variances).sum() ** -0.5)  # and not the zero that q would make of it
    assert math.isnan(random_effects(alike[:1], variances[:1]).mean)
    assert np.isnan(prediction_interval(alike[:2], variances[:2])).all()


def test_the_interval_moves_and_grows_with_what_it_is_of():
    values, variances = log_risk_ratios()
    low, high = prediction_interval(values, variances)
    np.testing.assert_allclose(prediction_interval(3 * values + 1, 9 * variances), [3 * low + 1, 3 * high + 1], rtol=1e-5)
    many = prediction_interval(np.tile(values, 40), np.tile(variances, 40))
    found = random_effects(np.tile(values, 40), np.tile(variances, 40))
    np.testing.assert_allclose(many, [found.mean - 1.96 * found.tau, found.mean + 1.96 * found.tau], atol=0.08)


@pytest.mark.parametrize("tau", [0.0, 0.15, 0.3, 0.6])
def test_one_more_of_eight_hospitals_lies_in_the_interval_as_often_as_it_says(tau: float):
    """Logits of AUCs of 20 to 200 patients. 0.93 less two standard errors of the simulation is 0.907."""
    generator, hits, runs = np.random.default_rng(0), 0, 400
    for _ in range(runs):
        true, variances = generator.normal(1.1, tau, 9), generator.uniform(0.02, 0.4, 8)
        low, high = prediction_interval(generator.normal(true[:8], np.sqrt(variances)), variances)
        hits += low <= true[8] <= high
    assert hits / runs >= 0.93 - 2 * math.sqrt(0.93 * 0.07 / runs)


def test_the_assumed_interval_is_the_normal_one_of_a_known_tau_where_that_has_no_spread(monkeypatch):
    monkeypatch.setattr(transportability, "ASSUMED_TAU_SD", 1e-6)
    found, ends = assumed_interval(0.75, 0.69, 0.80), []
    for end in (0.69, 0.80):
        ends.append(0.75 + math.copysign(1.96 * math.hypot((end - 0.75) / 1.96, transportability.ASSUMED_TAU), end - 0.75))
    np.testing.assert_allclose(found, ends, atol=1e-4)


def test_the_assumed_interval_is_at_least_a_tenth_either_side_however_many_patients_there_are():
    """As the source has it: doi:10.1002/sim.70011. What lies beyond 0 and 1 is cut off, and nothing comes of nothing."""
    low, high = assumed_interval(0.75, 0.75, 0.75)
    assert low < 0.65 < 0.85 < high
    low, high = assumed_interval(1.0, 0.884, 1.0)  # of few patients without an error
    assert (low < 0.884, high) == (True, 1)
    assert np.isnan(assumed_interval(math.nan, 0.5, 0.6)).all()
    assert np.isnan(assumed_interval(0.8, math.nan, math.nan)).all()
