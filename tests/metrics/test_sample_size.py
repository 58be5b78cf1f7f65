"""Sample size: power is that of the report's test on simulated studies, and minima are those of pmsampsize and pmvalsampsize."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mri_vit.crossval.power import nominal
from mri_vit.metrics import sample_size
from mri_vit.metrics.discrimination import auc, wilson_of_auc
from mri_vit.metrics.sample_size import Detection
from mri_vit.metrics.within_fold import ALPHA, inflation, p_above_chance, within_fold_auc

errors = st.floats(0.01, 0.1)  # about 1000 to 30 patients; of fewer the mean may lie below the critical figure that most exceed
factors = st.floats(1, math.sqrt(2))


@pytest.mark.parametrize(
    ("found", "expected"),
    [  # pmsampsize 0.1.0 (Python): type "b", csrsquared 0.288, parameters 24, prevalence 0.174
        (
            sample_size.development(24, 0.288, sample_size.largest_r_squared(0.174), sample_size.marker_risk(0.174)),
            (623, 662, 221),
        ),
    ],
)
def test_a_markers_minima_are_those_of_pmsampsize(found: sample_size.Minimum, expected: tuple[int, ...]):
    assert (found.shrinkage, found.optimism, found.risk) == expected
    assert found.patients == max(expected)


def test_the_minima_of_survival_are_those_of_pmsampsize():
    """Type "s", csrsquared 0.051, parameters 30, rate 0.065, meanfup 2.07: 5143 and 1039; the risk's own criterion is ours."""
    deaths = 0.065 * 2.07
    found = sample_size.development(
        30, 0.051, sample_size.largest_r_squared_of_survival(deaths), sample_size.survival_risk(deaths)
    )
    assert (found.shrinkage, found.optimism) == (5143, 1039)
    rate, years = 0.065, 1 / 0.065  # where the error of a constant hazard's risk is greatest
    reach = 1.96 * math.exp(-1) * years * math.sqrt(rate / (found.risk * 2.07))
    assert reach == pytest.approx(sample_size.RISK_MARGIN, rel=1e-3)


@pytest.mark.parametrize(("of_auc", "prevalence", "expected"), [(0.8, 0.3, 0.2272), (0.7, 0.1, 0.0471), (0.9, 0.5, 0.4445)])
def test_r_squared_of_an_auc_is_that_of_a_million_simulated_patients(of_auc: float, prevalence: float, expected: float):
    """`expected` is cstat2rsq of pmsampsize 0.1.0 with the seed 1."""
    assert sample_size.r_squared_of_auc(of_auc, prevalence) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("of_auc", "prevalence", "expected"),
    [(0.8, 0.3, (898, 2177, 360)), (0.7, 0.1, (3461, 8720, 1154)), (0.9, 0.5, (385, 1453, 158))],
)
def test_an_external_validation_needs_what_pmvalsampsize_says(of_auc: float, prevalence: float, expected: tuple[int, ...]):
    """Version 0.2.1 (Python), which steps the error of O:E by 1e-4 and simulates the linear predictor of 2 million patients."""
    found = sample_size.external_marker(of_auc, prevalence)
    assert (found.observed_to_expected, found.slope, found.discrimination) == pytest.approx(expected, rel=3e-3)


def test_of_a_c_as_of_an_auc_more_signal_needs_fewer_patients_to_develop():
    c = np.linspace(0.55, 0.9, 8)
    of_c = [sample_size.r_squared_of_c(one, 0.6) for one in c]
    assert (np.diff(of_c) > 0).all()
    needed = [sample_size.development(10, one, sample_size.largest_r_squared_of_survival(0.6), 0.0).shrinkage for one in of_c]
    assert (np.diff(needed) < 0).all()
    assert sample_size.development(10, 0.0, 0.75, 1.0).shrinkage == math.inf


@given(errors, factors, st.integers(1, 8))
def test_a_model_at_chance_is_called_better_no_more_often_than_the_level(error: float, inflated: float, results: int):
    test = Detection(error, inflated, results)
    if test.critical < 1:
        assert test.power(0.5) <= ALPHA / results + 0.01  # the logit's law is a little off the test's normal one


@given(errors, factors, st.integers(1, 8), st.sampled_from([0.8, 0.9]))
def test_what_is_found_with_a_power_has_that_power(error: float, inflated: float, results: int, power: float):
    test = Detection(error, inflated, results)
    value = test.found(power)
    if not math.isnan(value):
        assert test.power(value) == pytest.approx(power, abs=1e-6)
        assert value > test.critical
    else:
        assert test.power(0.9999) < power


def test_without_a_pair_nothing_is_known_and_with_two_patients_nothing_is_found():
    assert math.isnan(Detection(math.nan, 1.0).found(0.8))
    assert math.isnan(Detection(0.5, math.sqrt(2)).found(0.8))


@pytest.mark.parametrize(("shift", "results"), [(0.6, 1), (0.9, 1), (0.9, 4)])
def test_power_is_the_share_of_simulated_studies_of_given_scores(shift: float, results: int):
    random, truth, group = np.random.default_rng(3), np.arange(100) < 45, np.zeros(100)
    found = [within_fold_auc(truth, random.normal(size=100) + shift * truth, group) for _ in range(2000)]
    test = Detection(found[0].error, 1.0, results)
    share = np.mean([p_above_chance(one, 1.0) <= ALPHA / results for one in found])
    assert test.power(float(np.mean([one.value for one in found]))) == pytest.approx(share, abs=0.03)


def test_the_planned_interval_is_that_of_the_report():
    random, truth = np.random.default_rng(0), np.arange(82) % 2 == 1
    score = random.normal(size=82) + 0.9 * truth
    found = within_fold_auc(truth, score, np.zeros(82))
    planned = Detection(found.error, inflation(3)).interval(auc(truth, score))
    assert planned == pytest.approx(wilson_of_auc(found.value, found.variance, 41, 41, refits=True), abs=0.02)


@given(st.integers(4, 400), st.floats(0.1, 0.9), st.integers(1, 6), st.integers(1, 4))
def test_a_nominal_cohort_has_the_share_that_was_asked_spread_evenly(patients: int, share: float, folds: int, sites: int):
    for kind in ("binary", "survival"):
        found = nominal(kind, patients, share, folds, 2, sites)
        flag = found.labels[:, -1] == 1
        assert flag.sum() == round(patients * share)
        for of_class in (flag, ~flag):
            counts = np.bincount(found.folds[0][of_class], minlength=folds)
            assert counts.max() - counts.min() <= 1
        assert set(found.site) <= set(range(sites))
