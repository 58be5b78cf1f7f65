"""Median follow-up against a curve worked by hand and against the censoring curve that other measures rest on."""

from __future__ import annotations

import json
import math
import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines.datasets import load_lung

from mri_vit.metrics.survival import censoring_survival, median_follow_up

untimed = settings(deadline=None)  # a shared core may be slow


def test_a_small_cohort_worked_by_hand(oracles):
    entry = next(e for e in json.loads((oracles / "statistics.json").read_text())["references"] if e["id"] == "reverse_km_toy")
    time, status = (np.array(list(map(float, numbers.split(",")))) for numbers in re.findall(r"=([\d,]+)", entry["inputs"]))
    assert median_follow_up(time, status).value == entry["expected"]


@given(st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=30))
@untimed
def test_the_median_is_the_first_day_on_which_half_are_censored_by_the_censoring_curve(rows):
    time, event = np.array([float(t) for t, _ in rows]), np.array([died for _, died in rows])
    days = np.unique(time)
    below = days[censoring_survival(time, event, days) <= 0.5 - 1e-9]
    even = days[np.abs(censoring_survival(time, event, days) - 0.5) < 1e-9]  # where the last digit decides
    found = median_follow_up(time, event).value
    if not len(even):
        assert (math.isnan(found) and not len(below)) or found == below[0]


def test_without_a_death_it_is_the_median_time_and_with_deaths_alone_it_is_unknown():
    time = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    assert median_follow_up(time, np.zeros(5)).value == 300
    assert all(math.isnan(value) for value in median_follow_up(time, np.ones(5)))
    assert all(math.isnan(value) for value in median_follow_up(np.zeros(0), np.zeros(0, dtype=bool)))


def test_deaths_do_not_shorten_the_follow_up():
    lung = load_lung()
    time, died = lung.time.to_numpy(float), lung.status.to_numpy() == 1
    found = median_follow_up(time, died)
    assert found.low <= found.value <= found.high
    assert found.value > np.median(time)  # who died would have been followed for longer


def test_about_95_of_100_intervals_hold_the_true_median():
    generator = np.random.default_rng(0)
    held = []
    for _ in range(300):
        end, death = generator.uniform(100, 1100, 80), generator.exponential(900, 80)
        found = median_follow_up(np.minimum(end, death).round() + 1, death <= end)
        held.append(found.low <= 601 <= found.high)
    assert 0.92 <= np.mean(held) <= 0.98
