"""Instability is the distance of trainings: held to R (tests/oracles/instability.R, 15 digits) and to its definition."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from mri_vit.metrics import instability

THREE_PATIENTS = np.array([[0.11, 0.80, 0.33], [0.25, 0.55, 0.33], [0.42, 0.61, 0.47], [0.38, 0.90, 0.20]])


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_changes_of_patients_are_those_of_r():
    each = THREE_PATIENTS[:, :, None]
    assert instability.change(each) == pytest.approx([0.176666666666667, 0.206666666666667, 0.135], abs=1e-12)
    assert instability.change_at_random(each, generator()) == pytest.approx(0.313333333333333, abs=1e-12)
    assert instability.rank_agreement(THREE_PATIENTS) == pytest.approx(0.75, abs=1e-12)
    assert instability.disagreement((THREE_PATIENTS >= 0.4).astype(int)) == pytest.approx([0.5, 0.0, 0.5], abs=1e-12)


def test_it_is_the_mean_of_riley_and_collins_mape_with_each_training_as_the_reported_one():
    def mape(reported: int) -> np.ndarray:
        others = np.delete(THREE_PATIENTS, reported, axis=0)
        return np.abs(others - THREE_PATIENTS[reported]).mean(axis=0)

    wanted = np.mean([mape(reported) for reported in range(4)], axis=0)
    assert instability.change(THREE_PATIENTS[:, :, None]) == pytest.approx(wanted)


def test_of_two_classes_it_is_that_of_the_probability_of_one():
    both = np.stack([THREE_PATIENTS, 1 - THREE_PATIENTS], axis=2)
    assert instability.change(both) == pytest.approx(instability.change(THREE_PATIENTS[:, :, None]))


def test_calls_of_several_classes_are_counted_in_pairs_of_trainings():
    calls = generator().integers(0, 3, (5, 20))
    pairs = [(calls[a] != calls[b]) for a, b in permutations(range(5), 2)]
    assert instability.disagreement(calls) == pytest.approx(np.mean(pairs, axis=0))
    two = [(calls[:, a] != calls[:, b]) for a, b in permutations(range(20), 2)]
    assert instability.disagreement_at_random(calls) == pytest.approx(np.mean(two))


@pytest.mark.parametrize("trainings", [2, 5, 20])
def test_no_number_of_trainings_makes_it_smaller_or_larger(trainings: int):
    each = generator().normal(size=(trainings, 4000, 1))
    change = instability.change(each)
    assert change.mean() == pytest.approx(2 / math.sqrt(math.pi), rel=0.03)  # Gini's mean difference of a standard normal
    assert change.std() / change.mean() == pytest.approx(instability.relative_error(trainings), rel=0.06)


def test_many_patients_are_compared_with_some_of_the_others():
    each = generator().normal(size=(2, 3000, 1))
    assert instability.change_at_random(each, generator()) == pytest.approx(2 / math.sqrt(math.pi), rel=0.03)


def test_where_training_says_nothing_of_a_patient_the_two_are_equal():
    each = generator().uniform(size=(4, 2000, 1))
    assert instability.change(each).mean() == pytest.approx(instability.change_at_random(each, generator()), rel=0.03)
    assert instability.rank_agreement(each[:, :, 0]) == pytest.approx(0, abs=0.05)


def test_one_training_or_one_patient_says_nothing():
    one = THREE_PATIENTS[:1]
    assert np.isnan(instability.change(one[:, :, None])).all()
    assert np.isnan(instability.disagreement(np.zeros((1, 3), int))).all()
    assert math.isnan(instability.rank_agreement(one))
    assert math.isnan(instability.relative_error(1))
    assert math.isnan(instability.change_at_random(THREE_PATIENTS[:, :1, None], generator()))
    assert math.isnan(instability.rank_agreement(np.ones((2, 5))))


def test_a_prediction_that_is_missing_is_refused():
    with pytest.raises(ValueError, match="1 of 12 predictions are NaN"):
        instability.change(np.where(THREE_PATIENTS == 0.80, math.nan, THREE_PATIENTS)[:, :, None])
