"""Null studies of net benefit, subgroups, labels and imputation: one study of each kind gives every claim that its table has."""

from __future__ import annotations

import numpy as np
import pytest
from reproductions.null_studies import imputation, utility

pytestmark = pytest.mark.long(20)


@pytest.mark.parametrize("scenario", utility.SCENARIOS, ids=lambda one: one.name)
def test_each_scenario_gives_claims(scenario: utility.Scenario):
    random = np.random.default_rng(0)
    found = next(claims for _ in range(20) if (claims := scenario.study(random)) is not None)
    assert found
    assert {bool(claim) for claim in found.values()} <= {True, False}


def test_imputation_misses_less_often_than_medians():
    random = np.random.default_rng(0)
    studies = [imputation.survival_study(random, 300, "at random", 0.5) for _ in range(6)]
    missed = {
        method: sum(one[method][f"{name} misses"] for one in studies for name in ("age", "marker"))
        for method in ("multiple imputation", "median")
    }
    assert missed["multiple imputation"] <= 2 < missed["median"]


def test_a_control_with_imputed_columns_and_flags_beats_one_with_medians_and_flags():
    random = np.random.default_rng(0)
    found = [imputation.control_study(random, 300, "at random") for _ in range(4)]
    package, medians = (np.mean([one[name] for one in found]) for name in (list(found[0])[2], "median and flag"))
    assert package > medians
