"""Pooling, clustering and calibration of sites beside R: metafor, Obuchowski's formula, glm, survfit (tests/oracles/sites.R)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit
from scipy.stats import t as student

from mri_vit.metrics import transportability
from mri_vit.metrics.clusters import clustered_interval
from mri_vit.metrics.discrimination import auc
from mri_vit.metrics.site_calibration import log_observed_to_expected
from mri_vit.metrics.survival import pseudo_survival
from mri_vit.metrics.within_fold import within_fold_auc
from mri_vit.report.numbers import measures
from mri_vit.settings.schema import Endpoint

EXACT = 1e-6


@pytest.fixture
def of_r(oracles: Path) -> dict[str, Any]:
    return json.loads((oracles / "sites.json").read_text())


def test_the_mean_of_sites_and_its_interval_are_metafors(of_r):
    values, variances = np.array(of_r["values"]), np.array(of_r["variances"])
    found = transportability.random_effects(values, variances)
    np.testing.assert_allclose([found.tau**2, found.mean], [of_r["reml"]["tau2"], of_r["reml"]["mean"]], atol=EXACT)
    np.testing.assert_allclose(found.error, of_r["adhoc"]["error"], atol=EXACT)
    np.testing.assert_allclose(transportability.mean_interval(found), [of_r["adhoc"]["low"], of_r["adhoc"]["high"]], atol=EXACT)


def test_a_spread_below_chance_does_not_narrow_the_interval_of_the_mean(of_r):
    alike = of_r["alike"]
    found = transportability.random_effects(np.array(alike["values"]), np.array(of_r["variances"]))
    assert alike["knha"] < 0.9 * alike["error"]
    np.testing.assert_allclose(transportability.mean_interval(found), [alike["low"], alike["high"]], atol=EXACT)


def test_the_prediction_interval_is_that_of_random_draws_in_r(of_r):
    """Three digits: the draws know no more. It is wider than metafor's, whose tau is taken as known."""
    values, variances = np.array(of_r["values"]), np.array(of_r["variances"])
    low, high = transportability.prediction_interval(values, variances)
    np.testing.assert_allclose([low, high], of_r["drawn_prediction"], atol=0.006)
    assert transportability.share_above(values, variances, 0.9) == pytest.approx(of_r["drawn_above_09"], abs=0.003)
    assert high - low > np.diff(of_r["metafor_prediction"])[0]


def test_the_share_of_further_sites_above_an_end_of_the_interval_is_what_the_end_says(of_r):
    values, variances = np.array(of_r["values"]), np.array(of_r["variances"])
    for inflated in (1.0, 1.4):
        low, high = transportability.prediction_interval(values, variances, inflated)
        for end, share in ((low, 0.975), (high, 0.025)):
            assert transportability.share_above(values, variances, end, inflated) == pytest.approx(share, abs=1e-9)
    assert math.isnan(transportability.share_above(values[:2], variances[:2], 0.5))


def test_refitting_widens_the_prediction_interval(of_r):
    values, variances = np.array(of_r["values"]), np.array(of_r["variances"])
    given, wider = (np.diff(transportability.prediction_interval(values, variances, c))[0] for c in (1.0, math.sqrt(2)))
    assert given < wider < math.sqrt(2) * given


@pytest.mark.parametrize("value", [0.0, 0.03, 0.5, 0.87, 1.0])
def test_the_arcsine_scale_leads_back_and_its_variance_knows_nothing_of_the_figure(value):
    angle, variance = transportability.on_arcsine(value, 1e7)
    assert transportability.of_arcsine(np.array([angle]))[0] == pytest.approx(value, abs=1e-5)
    assert variance == transportability.on_arcsine(0.6, 1e7)[1]
    counts = np.random.default_rng(0).binomial(40, 0.85, 100_000)
    angles = [transportability.on_arcsine(count / 40, 40.0) for count in range(41)]
    assert np.array([angles[count][0] for count in counts]).var() == pytest.approx(angles[0][1], rel=0.05)


def test_an_auc_of_clusters_has_the_jackknifes_variance_near_obuchowskis(of_r):
    cluster, truth, score = (np.array(of_r[key]) for key in ("cluster", "truth", "score"))
    value = auc(truth, score)
    without = np.array([auc(truth[cluster != one], score[cluster != one]) for one in range(1, 7)])
    np.testing.assert_allclose([value, *without], [of_r["auc"], *of_r["without"]], atol=EXACT)
    found = clustered_interval(value, without)
    assert found.error**2 == pytest.approx(of_r["jackknife"], abs=EXACT)
    assert found.error**2 == pytest.approx(of_r["obuchowski"], rel=0.1)  # its first order
    reach = student.ppf(0.975, 5) * found.error / (value * (1 - value))
    assert logit(found.low) == pytest.approx(logit(value) - reach)
    assert logit(found.high) == pytest.approx(logit(value) + reach)


def test_clusters_of_one_patient_are_independent_patients():
    random = np.random.default_rng(4)
    truth = np.arange(400) % 2 == 0
    score = random.normal(size=400) + truth
    without = np.array([auc(np.delete(truth, i), np.delete(score, i)) for i in range(400)])
    found = clustered_interval(auc(truth, score), without)
    assert found.error**2 == pytest.approx(within_fold_auc(truth, score, np.zeros(400)).variance, rel=0.01)


@pytest.mark.parametrize("without", [np.array([0.7]), np.array([0.7, math.nan]), np.array([])])
def test_no_interval_comes_of_one_cluster_or_of_an_undefined_figure(without):
    assert math.isnan(clustered_interval(0.7, without).low)
    assert math.isnan(clustered_interval(1.0, np.ones(5)).low)


def test_the_slope_of_a_site_and_its_error_are_those_of_glm(of_r):
    endpoint = Endpoint(name="mgmt", kind="binary")
    people = pd.DataFrame({"truth": of_r["truth"], "score": of_r["probability"]})
    found = measures.of(endpoint).site_calibration(endpoint, people, pd.DataFrame())["slope"]
    np.testing.assert_allclose([found.value, math.sqrt(found.variance)], of_r["slope"], atol=EXACT)
    separated = pd.DataFrame({"truth": [0, 0, 1, 1], "score": [0.1, 0.2, 0.7, 0.8]})
    assert math.isnan(measures.of(endpoint).site_calibration(endpoint, separated, pd.DataFrame())["slope"].variance)


def test_the_ratio_of_deaths_by_a_day_has_the_variance_of_survfit(of_r):
    days, died = np.array(of_r["days"], float), np.array(of_r["died"])
    alive = np.linspace(0.2, 0.9, len(days))
    found = log_observed_to_expected(1 - pseudo_survival(days, died, 365.0), 1 - alive)
    assert found.value == pytest.approx(math.log((1 - of_r["alive_365"]) / (1 - alive).mean()), abs=EXACT)
    assert math.sqrt(found.variance) == pytest.approx(of_r["alive_365_error"] / (1 - of_r["alive_365"]), abs=EXACT)


def test_a_ratio_without_an_event_or_of_none_but_events_is_undefined():
    assert math.isnan(log_observed_to_expected(np.zeros(4), np.full(4, 0.3)).value)
    assert math.isnan(log_observed_to_expected(np.ones(4), np.full(4, 0.3)).value)
    days, died = np.array([10.0, 20.0, 30.0]), np.full(3, 0.5)
    assert math.isnan(log_observed_to_expected(1 - pseudo_survival(days, np.zeros(3), 20.0), died).value)
    assert math.isnan(log_observed_to_expected(1 - pseudo_survival(days, np.ones(3), 30.0), died).value)  # none is left alive
