"""Standardised differences against formulas written out, and what they must not depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mri_vit.metrics.comparison import difference_of_means, difference_of_shares

counts = st.lists(st.integers(1, 40), min_size=2, max_size=6)
untimed = settings(deadline=None)  # a shared core may be slow


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
@untimed
def test_two_levels_give_the_difference_of_two_proportions(a, b, c, d):
    p, q = a / (a + b), c / (c + d)
    expected = abs(p - q) / math.sqrt((p * (1 - p) + q * (1 - q)) / 2)
    assert difference_of_shares(np.array([a, b]), np.array([c, d])) == pytest.approx(expected, abs=1e-9)


@given(counts, st.randoms(use_true_random=False))
@untimed
def test_levels_may_stand_in_any_order_and_groups_be_exchanged(own, random):
    other = [random.randint(1, 40) for _ in own]
    order = random.sample(range(len(own)), len(own))
    found = difference_of_shares(np.array(own), np.array(other))
    assert difference_of_shares(np.array(other), np.array(own)) == pytest.approx(found, rel=1e-6, abs=1e-7)
    assert difference_of_shares(np.array(own)[order], np.array(other)[order]) == pytest.approx(found, rel=1e-6, abs=1e-7)


@given(counts, st.integers(2, 5))
@untimed
def test_groups_of_the_same_shares_do_not_differ_however_large_they_are(own, times):
    assert difference_of_shares(np.array(own), times * np.array(own)) == pytest.approx(0, abs=1e-6)


def test_shares_that_cannot_overlap_have_no_difference():
    assert math.isnan(difference_of_shares(np.array([4, 0]), np.array([0, 4])))
    assert math.isnan(difference_of_shares(np.array([4, 0]), np.array([0, 0])))


def test_a_difference_of_means_has_no_unit():
    assert difference_of_means(60.0, 10.0, 65.0, 14.0) == pytest.approx(5 / math.sqrt(148))
    assert difference_of_means(600.0, 100.0, 650.0, 140.0) == pytest.approx(difference_of_means(60.0, 10.0, 65.0, 14.0))


def test_groups_that_do_not_vary_are_alike_or_beyond_comparison():
    assert difference_of_means(3.0, 0.0, 3.0, 0.0) == 0
    assert math.isnan(difference_of_means(3.0, 0.0, 4.0, 0.0))
    assert math.isnan(difference_of_means(3.0, math.nan, 4.0, 1.0))


def test_between_random_groups_a_difference_spreads_as_the_report_says():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(4000, 96))
    own, other = values[:, :32], values[:, 32:]
    figures = [[group.mean(axis=1), group.std(axis=1, ddof=1)] for group in (own, other)]
    found = [difference_of_means(*row) for row in np.concatenate(figures).T.tolist()]
    assert math.sqrt(np.mean(np.square(found))) == pytest.approx(math.sqrt(1 / 32 + 1 / 64), rel=0.04)
