"""The judged interval: it covers where DeLong's does not, has a width at 1.00, and is DeLong's where that is right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from mri_vit.metrics.concordance import harrell_c
from mri_vit.metrics.discrimination import auc_interval, delong_interval, newcombe_variance, wilson_of_auc, wilson_of_c
from mri_vit.metrics.intervals import wilson_interval
from mri_vit.metrics.transportability import i_squared
from mri_vit.metrics.within_fold import within_fold_c


def covered(interval, patients: int, prevalence: float, auc: float, samples: int, seed: int = 0) -> float:
    """Share of samples of normal scores whose interval holds the true AUC."""
    generator, positives = np.random.default_rng(seed), round(patients * prevalence)
    truth = np.arange(patients) < positives
    scores = generator.normal(size=(samples, patients)) + math.sqrt(2) * norm.ppf(auc) * truth
    bounds = np.array([interval(truth, score) for score in scores])
    return float(((bounds[:, 0] <= auc) & (auc <= bounds[:, 1])).mean())


@pytest.mark.parametrize(
    ("patients", "prevalence", "auc", "at_most"),
    [(60, 0.2, 0.75, 0.985), (60, 0.2, 0.95, 0.99), (82, 0.5, 0.99, 0.99), (200, 0.5, 0.7, 0.97)],
)
def test_it_covers_the_truth_as_often_as_it_says_also_near_one(patients, prevalence, auc, at_most):
    share = covered(auc_interval, patients, prevalence, auc, 1000)
    assert 0.93 <= share <= at_most  # 1000 samples know a share of 0.95 to 0.007


def test_delongs_interval_does_not_cover_an_auc_of_099():
    assert covered(delong_interval, 82, 0.5, 0.99, 500) < 0.85


@pytest.mark.parametrize("auc", [0.5, 0.6, 0.7, 0.8])
def test_it_is_delongs_to_a_two_hundredth_from_two_hundred_patients(auc):
    generator = np.random.default_rng(3)
    truth = np.arange(200) % 2 == 1
    for _ in range(50):
        score = generator.normal(size=200) + math.sqrt(2) * norm.ppf(auc) * truth
        ours, theirs = auc_interval(truth, score), delong_interval(truth, score)
        assert np.abs(np.subtract(ours, theirs)).max() <= 0.005


def test_an_auc_of_one_has_a_width_that_shrinks_with_patients():
    lows = [auc_interval(np.arange(n) >= n / 2, np.arange(float(n)))[0] for n in (10, 82, 1000)]
    assert lows[1] == pytest.approx(0.954, abs=5e-4)  # the design's simulation has 0.954 for 41 + 41
    assert lows == sorted(lows)
    assert lows[-1] < 1
    assert auc_interval(np.arange(82) < 41, np.arange(82.0)) == pytest.approx((0, 1 - lows[1]), abs=1e-12)


def test_it_is_wilsons_interval_of_as_many_patients_as_the_variance_says():
    value, patients = 0.8, 50  # ten on the wrong side
    found = wilson_of_auc(value, value * (1 - value) / patients, 10**6, 10**6)  # so many that Newcombe's variance is smaller
    low, high = wilson_interval(np.array([40]), np.array([50]))
    assert found == pytest.approx((low[0], high[0]), rel=1e-5)


def test_refitting_doubles_the_variance_at_chance_and_adds_nothing_at_perfection():
    plain, refitted = (wilson_of_auc(0.5, 0.0025, 50, 50, refits) for refits in (False, True))
    assert np.diff(refitted) > 1.3 * np.diff(plain)
    assert wilson_of_auc(1.0, 0.0, 50, 50, True) == wilson_of_auc(1.0, 0.0, 50, 50, False)


def test_newcombes_variance_is_hanley_and_mcneils_for_classes_of_equal_size():
    auc, n = 0.8, 40
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    hanley = (auc * (1 - auc) + (n - 1) * (q1 - auc**2) + (n - 1) * (q2 - auc**2)) / n**2
    assert newcombe_variance(auc, n, n) == pytest.approx(hanley)


def test_an_undefined_value_has_an_undefined_interval():
    assert all(math.isnan(end) for end in wilson_of_auc(math.nan, 0.1, 5, 5))
    assert all(math.isnan(end) for end in auc_interval(np.array([0, 0, 1]), np.arange(3.0)))
    assert all(math.isnan(end) for end in wilson_of_c(0.7, 0.01, math.nan))


@pytest.mark.parametrize(("effect", "patients"), [(0.0, 82), (4.0, 60)])
def test_the_interval_of_c_covers_also_where_hardly_a_pair_is_out_of_order(effect, patients):
    generator, hits, samples = np.random.default_rng(5), 0, 100
    many = generator.normal(size=3000)
    truth = harrell_c(generator.exponential(np.exp(-effect * many)), np.ones(3000), many)
    for _ in range(samples):
        risk = generator.normal(size=patients)
        days, leaves = generator.exponential(np.exp(-effect * risk)), generator.exponential(2.0, patients) + 0.01
        seen = np.minimum(days, leaves), days <= leaves, risk
        found = within_fold_c(*seen, np.zeros(patients))
        bounds = wilson_of_c(found.value, found.variance, found.error**2)
        hits += bounds[0] <= truth <= bounds[1]
    assert hits / samples >= 0.9  # censoring moves Harrell's C a little off the truth of uncensored pairs


def test_a_c_of_one_has_a_width():
    days = np.arange(1.0, 31)
    null = within_fold_c(days, np.ones(30), -days, np.zeros(30))
    low, high = wilson_of_c(null.value, 0.0, null.error**2)
    assert (null.value, high) == (1.0, 1.0)
    assert 0.9 < low < 0.99


def test_groups_alike_share_nothing_beyond_chance_and_groups_apart_nearly_all():
    assert i_squared(np.array([0.7, 0.7, 0.7]), np.full(3, 0.01)) == 0.0
    assert i_squared(np.array([0.5, 0.9]), np.full(2, 1e-4)) > 0.99
    assert math.isnan(i_squared(np.array([0.5, 0.9]), np.array([0.0, 1e-4])))
