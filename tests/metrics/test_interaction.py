"""Tests between groups against R's, how often they err, and that they find what is there."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from mri_vit.metrics import interaction

RECORDED = json.loads((Path(__file__).parents[1] / "oracles" / "utility.json").read_text())["heterogeneity"]


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_cochrans_q_is_metafors():
    found = interaction.cochran_q(np.array(RECORDED["x"]), np.array(RECORDED["v"]))
    assert (found.chi2, found.p) == pytest.approx((RECORDED["q"], RECORDED["p"]), abs=1e-9)
    assert found.df == 3


def test_pearsons_chi2_is_rs_and_its_p_near_the_large_sample_one():
    found = interaction.rates_differ(np.array(RECORDED["counts"]), generator())
    assert found.chi2 == pytest.approx(RECORDED["pearson"], abs=1e-9)
    assert found.p == pytest.approx(RECORDED["pearson_p"], abs=0.01)


def test_ranks_are_compared_as_by_r():
    found = interaction.ranks_differ(np.array(RECORDED["values"]), np.array(RECORDED["group"]))
    assert (found.chi2, found.p) == pytest.approx((RECORDED["kruskal"], RECORDED["kruskal_p"]), abs=1e-9)


def test_groups_without_a_value_are_left_out_and_one_alone_is_not_tested():
    values, variances = np.array([0.2, math.nan, 0.9]), np.array([0.1, 0.1, 0.1])
    assert (interaction.cochran_q(values, variances).df, interaction.cochran_q(values, variances).groups) == (1, (0, 2))
    assert math.isnan(interaction.cochran_q(values[:2], variances[:2]).p)
    assert math.isnan(interaction.rates_differ(np.array([[5, 0], [7, 0]]), generator()).p)
    assert interaction.rates_differ(np.array([[5, 1], [0, 0], [2, 6]]), generator()).groups == (0, 2)
    assert math.isnan(interaction.ranks_differ(np.ones(5), np.arange(5) % 2).p)


def test_tables_of_few_patients_keep_their_level():
    """Chi²'s own p would be below 0.05 in more of these than the tables' is."""
    random, wrong = generator(1), 0
    for _ in range(500):
        hits = random.binomial([10, 12, 11], 0.9)
        wrong += interaction.rates_differ(np.stack([hits, [10, 12, 11] - hits], axis=1), random).p <= 0.05
    assert wrong / 500 <= 0.07


def test_equal_ratios_are_seldom_called_unequal_though_prevalences_differ():
    random, wrong = generator(2), 0
    for _ in range(1000):
        group = random.integers(0, 3, 240)
        expected = random.beta(2 + group, 5)  # of unequal prevalence, and right
        observed = (random.random(240) < expected).astype(float)
        found = interaction.group_ratios(observed, expected, group)
        wrong += interaction.cochran_q(found.ratio, found.variance).p <= 0.05
    assert 0.03 <= wrong / 1000 <= 0.065


def test_a_group_that_is_predicted_too_low_is_found_and_the_ratio_is_that_of_its_patients():
    group = np.arange(400) % 2
    expected = np.full(400, 0.3)
    observed = (np.arange(400) % 10 < np.where(group, 6, 2)).astype(float)
    found = interaction.group_ratios(observed, expected, group)
    assert found.ratio.tolist() == pytest.approx([observed[group == g].mean() / 0.3 for g in (0, 1)])
    assert interaction.cochran_q(found.ratio, found.variance).p < 1e-6


def test_means_of_groups_have_their_errors():
    mean, variance = interaction.group_means(np.array([1.0, 3.0, 5.0, 9.0]), np.array(["a", "a", "b", "b"]))
    assert mean.tolist() == [2.0, 7.0]
    assert variance.tolist() == [1.0, 4.0]
