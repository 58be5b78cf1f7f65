"""Power: what so many patients could show at all, said before a study runs, is what the report's own test then holds to."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mri_vit.crossval import power
from mri_vit.data.cohort import Patient
from mri_vit.metrics import within_fold
from mri_vit.report.numbers import chance
from mri_vit.report.schema import measured
from mri_vit.settings.schema import Endpoint

MARKER = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")


def people(positives: int, negatives: int, folds: int) -> tuple[list[Patient], list[list[str]]]:
    """Patients, and folds into which the classes are dealt in turn."""
    random = np.random.default_rng(0)
    labels = [1.0] * positives + [0.0] * negatives
    days = 1 + random.exponential(400, len(labels)).round()
    found = [
        Patient(f"p{i}", {}, {"mgmt": label, "os_days": float(days[i]), "os_event": float(i % 3 > 0)}, {})
        for i, label in enumerate(labels)
    ]
    return found, [[patient.id for patient in found[fold::folds]] for fold in range(folds)]


def least(patients: list[Patient], endpoint: Endpoint, split: list[list[str]]) -> float:
    return power.of_patients(patients, endpoint, [split]).detection().critical


def rows(patients: list[Patient], split: list[list[str]], score: np.ndarray) -> pd.DataFrame:
    of = {name: fold for fold, ids in enumerate(split) for name in ids}
    return pd.DataFrame(
        [
            {"repeat": 0, "fold": of[p.id], "patient": p.id, "score": s, "truth": p.labels["mgmt"] == 1, "model": "vit"}
            | {"time_days": p.labels["os_days"], "event": p.labels["os_event"] == 1}
            for p, s in zip(patients, score, strict=True)
        ]
    )


def judged(endpoint: Endpoint, patients: list[Patient], split: list[list[str]], score: np.ndarray) -> tuple[float, float]:
    """The figure and its p, by the report."""
    nothing = chance.Background("cross-validation", pd.DataFrame(), pd.DataFrame(), {})
    test = chance.measure(endpoint, rows(patients, split, score), nothing).chance_test
    return test.value, test.p


@pytest.mark.parametrize(("counts", "parts"), [((6, 7), 3), ((30, 52), 5), ((12, 12), 2)])
@pytest.mark.parametrize("endpoint", [MARKER, OS], ids=["marker", "survival"])
def test_the_report_calls_better_than_chance_just_what_reaches_the_limit(endpoint: Endpoint, counts: tuple[int, int], parts: int):
    patients, split = people(*counts, parts)
    limit = least(patients, endpoint, split)
    truth = np.array([p.labels["mgmt"] if endpoint is MARKER else -p.labels["os_days"] for p in patients])
    random, sides = np.random.default_rng(1), set()
    for noise in np.geomspace(0.01, 10, 60):
        score = truth / truth.std() + random.normal(scale=noise, size=len(truth))
        value, p = judged(endpoint, patients, split, score)
        assert (p <= measured.ALPHA) == (value >= limit), (value, p, limit)
        sides.add(value >= limit)
    assert sides == {True, False}


@pytest.mark.parametrize("levels", [1, 2, 3, 1000])
@pytest.mark.parametrize("endpoint", [MARKER, OS], ids=["marker", "survival"])
def test_the_report_states_the_limit_that_was_stated_before_however_many_scores_are_equal(endpoint: Endpoint, levels: int):
    patients, split = people(12, 17, 3)
    score = np.random.default_rng(2).integers(levels, size=len(patients)).astype(float)
    nothing = chance.Background("cross-validation", pd.DataFrame(), pd.DataFrame(), {})
    test = chance.measure(endpoint, rows(patients, split, score), nothing).chance_test
    assert test.least == pytest.approx(least(patients, endpoint, split))
    assert test.least >= within_fold.least_above_chance(test.error, test.inflation) - 1e-9


def test_thirteen_patients_show_nothing_below_about_nine_tenths():
    patients, split = people(6, 7, 3)
    (said,) = power.power_cautions(patients, (MARKER,), [split], 1)
    assert "mgmt: 13 patients: an AUC below about 0.9" in said


def test_a_study_that_can_show_what_is_published_is_not_cautioned():
    patients, split = people(41, 41, 3)
    assert not list(power.power_cautions(patients, (MARKER, OS), [split], 1))
    assert least(patients, MARKER, split) == pytest.approx(0.65, abs=0.02)


def test_two_patients_can_show_nothing_and_none_are_not_spoken_of():
    patients, split = people(1, 1, 1)
    limit = within_fold.least_above_chance(0.5, 1.5)
    assert limit > 1
    assert "no AUC" in power.power_sentence("AUC", limit)
    unknown = [Patient(p.id, {}, {"mgmt": float("nan")}, {}) for p in patients]
    assert not list(power.power_cautions(unknown, (MARKER,), [split], 1))
