"""The simulation of sets and MAPE makes studies whose figures are those of the report."""

from __future__ import annotations

import numpy as np
import pytest
from reproductions.null_studies import instability
from reproductions.null_studies.instability import MARKER, Scenario


@pytest.mark.parametrize("endpoint", instability.ENDPOINTS, ids=lambda endpoint: endpoint.kind)
def test_sets_hold_nine_in_ten_patients_of_a_study_and_of_new_ones(endpoint):
    found = [instability.study(Scenario(endpoint, 300, 0.4), seed) for seed in range(3)]
    known = [one for one in found if one]
    assert np.mean([one.coverage for one in known]) == pytest.approx(0.905, abs=0.015)
    assert 0.85 < np.mean([one.new for one in known]) < 0.98


def test_a_site_whose_scanner_differs_loses_coverage():
    same, other = (
        np.mean([one.of_sites[0] for seed in range(4) if (one := instability.study(of, seed))])
        for of in (Scenario(MARKER, 300, 0.4, left_out=True), Scenario(MARKER, 300, 0.4, shifted="scanner", left_out=True))
    )
    assert other < same - 0.2


def test_mape_of_a_few_trainings_is_near_that_of_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(instability, "TRUE_TRAININGS", 20)
    found = instability.mape(80, 0.4, 0)
    assert found["mean of 5 trainings over the true one"] == pytest.approx(1, abs=0.2)
    assert found["the same as distances from their mean (5)"] == pytest.approx(np.sqrt(0.4), abs=0.1)
    assert found["bootstrapped cohorts over the true one"] > 1
