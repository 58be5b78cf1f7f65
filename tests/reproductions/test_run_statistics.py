"""Tests over runs and starts: they find nothing where nothing differs, and do not test what has no known spread."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from reproductions import run_statistics
from scipy.stats import norm

pytestmark = pytest.mark.slow  # a simulation


def test_where_nothing_differs_three_runs_find_a_difference_in_no_more_than_one_of_twenty():
    generator, draws = np.random.default_rng(0), 2000
    for of_runs in (0.0, 0.05, 0.2):  # standard deviation between runs, beside 0.05 of patients
        values = generator.normal(0, np.hypot(0.05, of_runs), (draws, 3))
        found = [run_statistics.over_runs(here, 0.05 / np.sqrt(3))[1] < 0.05 for here in values]
        assert np.mean(found) < 0.05 + 2 * np.sqrt(0.05 * 0.95 / draws)


@pytest.mark.parametrize("of_starts", [0.02, 0.05, 0.12, 0.3])  # standard deviation between starts, beside 0.05 of the patients
def test_where_nothing_differs_six_starts_of_the_same_patients_find_a_difference_in_about_one_of_twenty(of_starts: float):
    generator, draws = np.random.default_rng(0), 2000
    values = generator.normal(0, 0.05, (draws, 1)) + generator.normal(0, of_starts, (draws, 6))
    found = np.mean([run_statistics.over_starts(here, 0.05)[1] < 0.05 for here in values])
    assert found == pytest.approx(
        0.05, abs=0.01 + 2 * np.sqrt(0.05 * 0.95 / draws)
    )  # a hundredth: degrees of freedom are estimated


def test_starts_that_agree_leave_the_error_of_patients_alone():
    reach, p = run_statistics.over_starts(np.full(6, 0.1), 0.05)
    assert (reach, p) == pytest.approx((float(norm.ppf(0.975)) * 0.05, 2 * norm.sf(2)))


@pytest.mark.parametrize("over", [run_statistics.over_runs, run_statistics.over_starts])
def test_what_has_an_unknown_spread_or_none_is_not_tested(over: Callable):
    same = np.full(3, 0.25)
    assert all(math.isnan(value) for value in over(same, math.nan))
    assert over(same, 0.0)[0] == 0
    assert math.isnan(over(same, 0.0)[1])
    assert over(np.zeros(3), 0.0) == (0, 1)
