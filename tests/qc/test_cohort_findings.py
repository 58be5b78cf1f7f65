"""Cohort: who is unlike the others, and who looks like another, among patients drawn alike."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from made.quality import RECORD
from scipy.stats import median_abs_deviation, norm

from mri_vit.qc import check
from mri_vit.settings.sections import Quality


def drawn(n):
    random = np.random.default_rng(0)
    records = {}
    for number in range(n):
        record = copy.deepcopy(RECORD)
        for one in record["quality"]["scans"].values():
            one["quantiles"] = (np.array(one["quantiles"]) + random.normal(0, 0.03, 25)).tolist()
            if "likeness" in one:
                one["likeness"] += random.normal(0, 0.02)
        records[f"p{number}"] = record
    return records


def test_patients_drawn_alike_are_not_unlike():
    assert check.unlike(check.deviations(drawn(200)), Quality()) == []


def test_one_whose_histogram_or_likeness_is_apart_is_named_with_its_scan():
    records = drawn(60)
    records["p7"]["quality"]["scans"]["t2"]["quantiles"] = [value**3 for value in np.linspace(-2, 2, 25).tolist()]
    records["p9"]["quality"]["scans"]["flair"]["likeness"] = 0.1
    assert {(one.patient, one.scan) for one in check.unlike(check.deviations(records), Quality())} == {
        ("p7", "t2"),
        ("p9", "flair"),
    }


def test_a_handful_of_patients_has_no_cohort_to_be_unlike():
    records = drawn(19)
    records["p7"]["quality"]["scans"]["flair"]["likeness"] = 0.0
    assert check.unlike(check.deviations(records), Quality()) == []


def test_robust_z_is_scipys_normal_consistent_deviation():
    values = np.random.default_rng(2).normal(3, 2, 500)
    normal = norm.ppf(0.75)  # the median absolute deviation of a standard normal distribution
    expected = (values - np.median(values)) / (median_abs_deviation(values) / normal)
    assert check.robust_z(values) == pytest.approx(expected, rel=1e-3)
    assert check.robust_z(np.ones(30)).tolist() == [0.0] * 30


def test_a_copy_is_found_and_different_patients_are_not():
    random = np.random.default_rng(3)
    common = random.normal(size=800)
    means = common + random.normal(0, 0.5, (40, 800))
    means[5] = 1.1 * means[20] + random.normal(0, 0.1, 800)  # another scaling, some noise
    means[:, 700:] = np.nan  # no tissue
    means[20, :100] = np.nan  # a place that one of them lacks
    assert check.nearest(means) == [(5, 20)]


def test_more_patients_than_are_held_at_a_time_are_paired_once(monkeypatch):
    monkeypatch.setattr(check, "PATIENTS_AT_ONCE", 7)
    means = np.random.default_rng(4).normal(size=(30, 300))
    means[29], means[10] = means[2], means[11]
    assert check.nearest(means) == [(2, 29), (10, 11)]
