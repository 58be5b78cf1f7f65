"""Simulated hospitals: what they say is known, and the true figures are those that many patients have."""

from __future__ import annotations

import numpy as np
import pytest
from reproductions.null_studies import sites

from mri_vit.metrics.discrimination import auc


def test_the_true_auc_of_a_score_is_that_of_many_patients():
    random = np.random.default_rng(0)
    people = sites.cohort(random, np.array([40_000]), np.array([0.5]), 0.0, 0.0)
    weight = random.normal(size=sites.FEATURES)
    assert sites._auc(weight, np.array([0.5]))[0] == pytest.approx(auc(people.truth, people.x @ weight), abs=0.01)
    shifted = sites.cohort(random, np.full(2000, 20), np.full(2000, 0.5), 1.0, 0.7)
    there = auc(shifted.truth, shifted.x @ weight)
    assert sites._among_others(weight, 0.5, 0.0, 0.7, across=True) == pytest.approx(there, abs=0.02)


@pytest.mark.parametrize("kind", ["new", "clustered", "margin"])
def test_a_study_of_each_kind_gives_shares(kind):
    scenario = next(one for one in sites.SCENARIOS if one.name.startswith(kind))
    hits = scenario.study(np.random.default_rng(3))
    assert hits
    assert all(-1 <= value <= 1 for value in hits.values())
