"""Non-inferiority and equivalence: what an interval says about a margin, and the two one-sided tests that it stands for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from scipy.stats import norm

from mri_vit.metrics.comparison import by_normal_law
from mri_vit.metrics.equivalence import ONE_SIDED, within_margin

numbers = st.floats(-0.4, 0.4)


@pytest.mark.parametrize(
    ("low", "high", "claim"),
    [
        (-0.04, 0.04, "equivalent"),
        (0.01, 0.04, "equivalent"),  # and better
        (-0.04, 0.08, "not inferior"),
        (0.06, 0.20, "not inferior"),
        (-0.20, -0.06, "inferior"),
        (-0.08, 0.04, "open"),
        (-0.08, -0.01, "open"),  # worse, but not shown by how much
        (-0.05, 0.04, "open"),  # at the margin itself nothing is shown
        (math.nan, math.nan, "open"),
        (0.0, 0.0, "open"),  # no variance: nothing was tested, so they are not equal
    ],
)
def test_the_interval_decides(low, high, claim):
    assert within_margin((low + high) / 2, low, high, 0.05).claim == claim


@examples(200)
@given(numbers, st.floats(1e-4, 0.2), st.floats(0.001, 0.49))
def test_an_end_beyond_the_margin_is_a_one_sided_test_at_a_fortieth(difference, error, margin):
    test = by_normal_law(difference, error**2)
    found = within_margin(test.difference, test.low, test.high, margin)
    assert found.p_lower == pytest.approx(norm.sf((difference + margin) / error), abs=1e-9)
    assert found.p_upper == pytest.approx(norm.sf((margin - difference) / error), abs=1e-9)
    if min(abs(found.p_lower - ONE_SIDED), abs(found.p_upper - ONE_SIDED)) > 1e-9:
        assert (found.claim in ("equivalent", "not inferior")) == (found.p_lower < ONE_SIDED)
        assert (found.claim == "equivalent") == (max(found.p_lower, found.p_upper) < ONE_SIDED)


@examples(100)
@given(numbers, st.floats(1e-4, 0.2), st.floats(0.001, 0.49))
def test_a_model_is_equivalent_to_another_as_that_is_to_it(difference, error, margin):
    ours, theirs = (by_normal_law(one, error**2) for one in (difference, -difference))
    both = [within_margin(one.difference, one.low, one.high, margin) for one in (ours, theirs)]
    assert (both[0].claim == "equivalent") == (both[1].claim == "equivalent")
    assert both[0].p_lower == pytest.approx(both[1].p_upper)


@pytest.mark.parametrize("margin", [0.0, -0.05, math.nan])
def test_a_margin_is_above_zero(margin):
    with pytest.raises(ValueError, match="expected one above 0"):
        within_margin(0.0, -0.1, 0.1, margin)
