"""Probes on frozen features: against a loop, on planted signal and on noise, and blind to the labels they are tested on."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from reproductions import probes
from reproductions.probes import COLUMNS, FEWEST, knn, linear_probe, table

from mri_vit.metrics.discrimination import auc


def planted(n: int = 60, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features whose first number tells the label, and the labels."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2 == 1)
    x = rng.normal(size=(n, d))
    x[:, 0] += 4 * y - 2
    return x, y


def cohort(n: int = 60, folds: int = 3) -> tuple[list[str], list[list[str]]]:
    patients = [f"p{i:02d}" for i in range(n)]
    return patients, [patients[fold::folds] for fold in range(folds)]


def test_nearest_neighbours_vote_as_in_a_loop_over_all_pairs():
    x, y = planted(30)
    test = np.random.default_rng(1).normal(size=(5, 6))
    for row, found in zip(test, knn(x, y, test, k=7, temperature=0.1), strict=True):
        cosines = []
        for i, other in enumerate(x):
            dot = sum(a * b for a, b in zip(row, other, strict=True))
            cosines.append((dot / math.sqrt(sum(a * a for a in row) * sum(b * b for b in other)), i))
        nearest = sorted(cosines, reverse=True)[:7]
        total = sum(math.exp(cosine / 0.1) for cosine, _ in nearest)
        assert found == pytest.approx(sum(math.exp(cosine / 0.1) * y[i] for cosine, i in nearest) / total)


def test_all_vote_where_there_are_fewer_patients_than_neighbours_and_length_does_not_matter():
    x, y = planted(8)
    scores = knn(x, y, x[:3], k=20)
    np.testing.assert_allclose(scores, knn(x * np.arange(1, 9)[:, None], y, 5 * x[:3], k=8))
    assert ((scores > 0) & (scores < 1)).all()


def test_a_vector_of_zeros_and_one_of_float32_are_scored():
    x, y = planted(20)
    assert np.isfinite(knn(x.astype(np.float32), y, np.zeros((1, 6), np.float32))).all()


def test_a_linear_probe_finds_what_is_planted_whatever_the_scale():
    (x, y), (test, truth) = planted(), planted(seed=1)
    scores = linear_probe(x, y, test)
    assert auc(truth, scores) > 0.95
    assert ((scores >= 0) & (scores <= 1)).all()
    np.testing.assert_allclose(linear_probe(1000 * x + 7, y, 1000 * test + 7), scores, rtol=1e-3)


def test_a_linear_probe_scores_features_of_float32_as_those_of_float64():
    (x, y), (test, _) = planted(), planted(seed=1)
    x, test = (vectors.astype(np.float32) for vectors in (x, test))
    np.testing.assert_array_equal(linear_probe(x, y, test), linear_probe(x.astype(np.float64), y, test.astype(np.float64)))


def test_a_linear_probe_with_one_positive_is_refused():
    x, _ = planted(10)
    with pytest.raises(ValueError, match="found 1 positives of 10"):
        linear_probe(x, np.arange(10) == 3, x)


@pytest.fixture(scope="module")
def scored() -> tuple[pd.DataFrame, pd.Series]:
    """Planted features and noise, scored at two shares; and the labels by patient."""
    x, y = planted()
    patients, folds = cohort()
    noise = np.random.default_rng(9).normal(size=(60, 40))
    found = table({"planted": x, "noise": noise}, patients, y.astype(float), folds, seed=0, shares=(0.1, 1.0))
    return found, pd.Series(y, index=patients)


def test_every_patient_has_one_score_out_of_its_fold_for_each_probe_and_share(scored):
    found, truth = scored
    assert list(found.columns) == COLUMNS
    for _, group in found.groupby(["features", "probe", "share"]):
        assert sorted(group.patient) == list(truth.index)
        assert sorted(group.fold.unique()) == [0, 1, 2]
    assert len(found.groupby(["features", "probe", "share"])) == 8
    assert found.groupby("share").labelled.unique().map(list).to_dict() == {0.1: [4], 1.0: [40]}


def test_planted_signal_is_found_and_noise_is_not(scored):
    found, truth = scored
    values = {
        key: auc(truth[group.patient].to_numpy(), group.score.to_numpy())
        for key, group in found[found.share == 1].groupby(["features", "probe"])
    }
    assert min(values["planted", "knn"], values["planted", "linear"]) > 0.9
    # three folds, each scored by another probe, so chance is near a half, give or take 1.96 standard errors of 0.075
    assert max(abs(values["noise", probe] - 0.5) for probe in ("knn", "linear")) < 0.2


def test_labels_of_the_tested_fold_change_none_of_its_scores():
    x, y = planted()
    patients, folds = cohort()
    other = y.copy()
    other[::3] = ~other[::3]  # the first fold's
    before, after = (table({"x": x}, patients, labels.astype(float), folds, 0, (1.0,)) for labels in (y, other))
    pd.testing.assert_frame_equal(before[before.fold == 0], after[after.fold == 0])
    assert not before[before.fold == 1].score.equals(after[after.fold == 1].score)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[float], set[float]]]:
    """What a probe is given: the first number of each training and of each tested vector."""
    seen: list[tuple[set[float], set[float]]] = []

    def spy(train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray) -> np.ndarray:
        assert (train_y.sum() >= FEWEST) & ((~train_y).sum() >= FEWEST)
        seen.append((set(train_x[:, 0].tolist()), set(test_x[:, 0].tolist())))
        return np.zeros(len(test_x))

    monkeypatch.setattr(probes, "PROBES", {"spy": spy})
    return seen


NUMBERS = np.arange(60.0)[:, None]  # features that name their patient
LABELS = (np.arange(60) % 4 == 0).astype(float)


def test_patients_without_a_label_take_no_part(spied):
    patients, folds = cohort()
    table({"x": NUMBERS}, patients, np.where(np.arange(60) % 5 == 0, math.nan, LABELS), folds, 0, (1.0,))
    for train, test in spied:
        assert train | test == {i for i in range(60) if i % 5}


def test_a_share_is_of_each_class_but_at_least_two_and_smaller_ones_are_within_larger_ones(spied):
    patients, folds = cohort()
    found = table({"x": NUMBERS}, patients, LABELS, folds, 0, (0.001, 0.1, 0.5, 1.0))
    assert found.groupby("share").labelled.unique().map(list).to_dict() == {0.001: [4], 0.1: [5], 0.5: [20], 1.0: [40]}
    for fold in range(3):
        trains = [train for train, _ in spied[4 * fold : 4 * fold + 4]]
        assert all(small < large for small, large in itertools.pairwise(trains))
        assert trains[3] == set(range(60)) - spied[4 * fold][1]
        assert sum(i % 4 == 0 for i in trains[2]) == 5


def test_every_kind_of_features_learns_from_the_same_patients_and_another_seed_draws_others(spied):
    patients, folds = cohort()
    for seed in (0, 0, 1):
        table({"a": NUMBERS, "b": NUMBERS}, patients, LABELS, folds[:1], seed, (0.5,))
    assert spied[0] == spied[1] == spied[2] == spied[3] != spied[4] == spied[5]


def test_features_of_each_fold_are_used_where_each_fold_has_its_own(spied):
    patients, folds = cohort()
    table({"x": np.stack([NUMBERS, NUMBERS + 100, NUMBERS + 200])}, patients, LABELS, folds, 0, (1.0,))
    for fold, (train, test) in enumerate(spied):
        assert {int(i) // 100 for i in train | test} == {fold}


def test_a_fold_with_an_unknown_patient_or_without_a_class_outside_is_refused():
    x, y = planted(10)
    patients, folds = cohort(10, 2)
    with pytest.raises(ValueError, match="patient stranger of the folds"):
        table({"x": x}, patients, y.astype(float), [["stranger"]], 0)
    with pytest.raises(ValueError, match="found 0 positives and 5 negatives outside a fold"):
        table({"x": x}, patients, np.zeros(10), folds, 0)
