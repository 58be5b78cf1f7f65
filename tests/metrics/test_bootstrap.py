"""The bootstrap against resampling one patient at a time, and against scipy's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import mri_vit
from mri_vit.metrics import intervals


def test_a_resample_draws_each_stratum_its_own_number():
    strata = np.array(["a", "b", "a", "c", "b", "a"])
    counts = intervals.counts(strata, np.random.default_rng(0), 500)
    for name, size in (("a", 3), ("b", 2), ("c", 1)):
        assert (counts[:, strata == name].sum(axis=1) == size).all()
    assert counts.mean(axis=0) == pytest.approx(np.ones(6), abs=0.15)  # three standard errors of 500 draws


def test_interval_of_a_stratified_mean_is_that_of_drawing_patients_one_by_one():
    random = np.random.default_rng(1)
    strata, values = np.arange(40) % 3, random.normal(size=40)
    drawn = [
        np.concatenate([random.choice(values[strata == k], int((strata == k).sum())) for k in range(3)]).mean()
        for _ in range(4000)
    ]
    found = intervals.interval(lambda counts: counts @ values / 40, strata, np.random.default_rng(2), 4000)
    assert found == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.02)


def test_interval_of_a_mean_is_that_of_scipy():
    values = np.random.default_rng(3).exponential(size=60)
    expected = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=20000, method="percentile", confidence_level=0.9, rng=np.random.default_rng(4)
    ).confidence_interval
    found = intervals.interval(lambda counts: counts @ values / 60, np.zeros(60), np.random.default_rng(5), 20000, 0.9)
    assert found == pytest.approx(expected, abs=0.01)


def test_portions_change_no_resample(monkeypatch):
    values = np.random.default_rng(6).normal(size=30)
    whole = intervals.distribution(lambda counts: counts @ values, np.zeros(30), np.random.default_rng(7), 50)
    monkeypatch.setattr(intervals, "MAX_COUNTS", 300)
    monkeypatch.setattr(intervals, "MAX_NUMBERS", 100)
    parts = intervals.distribution(lambda counts: counts @ values, np.zeros(30), np.random.default_rng(7), 50)
    np.testing.assert_allclose(parts, whole, atol=1e-12)


def test_draws_that_were_kept_are_those_that_the_generator_would_make_next():
    strata = np.array([1, 0, 1, 1, 0, 1, 1])
    for _ in range(2):  # made, then kept
        plain, generator = np.random.default_rng(8), np.random.default_rng(8)
        for _ in range(2):  # the second goes on where the first ended
            counts = intervals.counts(strata, generator, 20)
            for name, size in ((0, 2), (1, 5)):
                np.testing.assert_array_equal(counts[:, strata == name], plain.multinomial(size, np.full(size, 1 / size), 20))
            counts[:] = 0  # the next one's are not this array
        assert generator.random() == plain.random()


def test_undefined_values_are_left_out_measure_by_measure():
    values = np.stack([np.arange(101.0), np.arange(101.0)], axis=1)
    values[0, 1] = np.nan
    low, high = intervals.percentile_interval(values, 0.9)
    assert low == pytest.approx([5, 5.95])
    assert high == pytest.approx([95, 95.05])


def test_nothing_else_in_the_package_resamples_patients():
    own = re.compile(r"\.multinomial\(|percentile_interval|\.choice\(.*RESAMPLES")
    files = [file for file in Path(mri_vit.__file__).parent.rglob("*.py") if own.search(file.read_text("utf-8"))]
    assert {file.name for file in files} == {
        "intervals.py",
        "calibration.py",
        "transportability.py",
        "ipcw.py",
        "maps.py",  # means over patients
        "shown.py",  # of one patient's prediction
        "multiclass.py",
        "continuous.py",
    }  # all but the first read values too
