"""Sets with a guarantee: held to a count of every pair, to R (tests/oracles/instability.R, 15 digits), and to their promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mri_vit.metrics import conformal
from mri_vit.metrics.conformal import ALPHA, UNKNOWN


def drawn(seed: int, n: int = 60, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Scores with ties, and labels of which some are not known."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, k)).round(1), random.integers(UNKNOWN, k, n)


def counted(score: np.ndarray, label: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The definition, a pair at a time."""
    n, k = score.shape
    p = np.empty((n, k))
    for i in range(n):
        for y in range(k):
            others = [j for j in range(n) if label[j] == y and group[j] != group[i]]
            p[i, y] = (1 + sum(score[j, y] <= score[i, y] for j in others)) / (1 + len(others))
    return p


@pytest.mark.parametrize("seed", range(4))
def test_p_is_a_count_of_the_other_patients_of_the_class(seed: int):
    score, label = drawn(seed)
    alone, folds = np.arange(len(label)), np.arange(len(label)) % 4
    assert conformal.class_p(score, label) == pytest.approx(counted(score, label, alone), abs=1e-12)
    assert conformal.class_p(score, label, folds) == pytest.approx(counted(score, label, folds), abs=1e-12)


@pytest.mark.parametrize("n", [10, 19, 20, 100, 101])
def test_in_each_class_one_in_ten_is_missed_and_no_more(n: int):
    label = np.repeat([0, 1], n)
    score = np.random.default_rng(n).normal(size=(2 * n, 2))
    held = conformal.class_p(score, label)[np.arange(2 * n), label] > ALPHA
    assert [int((~held[label == y]).sum()) for y in (0, 1)] == [n // 10, n // 10]


def test_a_class_of_fewer_than_are_needed_is_never_left_out():
    n = conformal.needed()
    for own, misses in ((n - 1, 0), (n, 1)):
        label = np.repeat([0, 1], [own, 50])
        score = np.random.default_rng(0).normal(size=(len(label), 2))
        assert int((conformal.class_p(score, label)[label == 0, 0] <= ALPHA).sum()) == misses


@pytest.mark.parametrize("group", [None, np.arange(40) % 4])
def test_an_interval_holds_the_numbers_whose_distance_is_not_unusual(group: np.ndarray | None):
    residual = np.random.default_rng(2).normal(size=40).round(2)
    reach = conformal.reach(residual, group)
    p = conformal.class_p(-np.abs(residual)[:, None], np.zeros(40, int), group)[:, 0]
    assert ((np.abs(residual) <= reach) == (p > ALPHA)).all()
    by_hand = [np.sort(np.abs(residual[others]))[::-1][int(ALPHA * (others.sum() + 1) + 1e-9) - 1] for others in _others(group)]
    assert reach == pytest.approx(by_hand)


def _others(group: np.ndarray | None) -> list[np.ndarray]:
    names = np.arange(40) if group is None else group
    return [names != name for name in names]


def test_a_number_that_is_not_known_gets_an_interval_from_all_others():
    residual = np.r_[np.arange(1.0, 21.0), math.nan]
    assert conformal.reach(residual)[-1] == 19.0  # the second largest of 20
    assert np.isinf(conformal.reach(np.arange(9.0))).all()  # of eight others none is beyond nine in ten


def test_new_patients_are_compared_within_each_fold_whatever_its_scale():
    random = np.random.default_rng(0)
    score, own = random.normal(size=(3, 50, 1)), [[random.normal(size=20)] for _ in range(3)]
    p = conformal.cross_conformal_p(score, own)
    by_hand = [(1 + sum((values <= score[f, i, 0]).sum() for f, (values,) in enumerate(own))) / 61 for i in range(50)]
    assert p[:, 0] == pytest.approx(by_hand)
    scale = np.array([1.0, 50.0, 0.01])
    assert conformal.cross_conformal_p(score * scale[:, None, None], [[of[0] * s] for of, s in zip(own, scale, strict=True)]) == (
        pytest.approx(p)
    )


def test_cv_plus_of_one_model_is_the_usual_interval():
    residual = np.random.default_rng(0).normal(size=99)
    low, high = conformal.cv_plus(np.array([5.0]), [residual])
    reach = np.sort(np.abs(residual))[89]  # the ceil(0.9 * 100)-th smallest
    assert (low, high) == pytest.approx((5 - reach, 5 + reach))
    assert conformal.cv_plus(np.array([5.0]), [residual[:8]]) == (-math.inf, math.inf)


def test_sets_of_scores_that_know_nothing_are_those_of_all_patients():
    random = np.random.default_rng(0)
    score, label = random.normal(size=(4000, 1)) @ [[-1.0, 1.0]], random.integers(0, 2, 4000)
    found = [(p > ALPHA).sum(axis=1) == 1 for p in (conformal.class_p(score, label), conformal.p_without_skill(score))]
    assert [one.mean() for one in found] == pytest.approx([0.2, 0.2], abs=0.01)


def test_the_test_of_a_part_is_that_of_r():
    missed, member = np.arange(100) < 10, np.zeros(100, bool)
    member[[0, 1, 2, 3, *range(10, 26)]] = True
    assert conformal.excess_p(missed, np.zeros(100, int), member) == pytest.approx(0.109571850959277, abs=1e-12)
    label = np.repeat([0, 1], [40, 60])
    missed = np.isin(np.arange(100), [*range(5), *range(40, 46)])
    member = np.isin(np.arange(100), [*range(3), *range(5, 14), *range(40, 42), *range(46, 52)])
    assert (missed & member).sum() == 5
    assert conformal.excess_p(missed, label, member) == pytest.approx(0.0456778062518015, abs=1e-12)


def test_the_test_of_sites_that_were_left_out_and_the_range_of_a_coverage_are_those_of_r():
    wanted = [0.00789781298646032, 0.723767263758444, 0.46223319112372, 0.679878365514788, 0.723767263758444]
    found = conformal.outlier_p(np.array([20, 45, 46, 44, 45]), np.array([50, 50, 60, 50, 50]))
    assert found == pytest.approx(wanted, abs=1e-12)
    assert np.isnan(conformal.outlier_p(np.array([5, 9, 9]), np.full(3, 10))).all()
    assert np.isfinite(conformal.outlier_p(np.full(4, 10), np.full(4, 10))).all()  # all are covered
    assert conformal.expected_range(120) == pytest.approx((0.841901458804167, 0.947252213609940), abs=1e-9)
    assert conformal.expected_range(8) == (1.0, 1.0)


def test_grades_between_two_of_a_set_belong_to_it():
    members = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]], bool)
    assert conformal.contiguous(members).tolist() == [[True] * 4, [False, True, False, False], [False] * 4]


def test_folds_of_unlike_scales_keep_the_guarantee_only_where_all_patients_are_compared():
    """Scores out of fold are exchangeable because folds are dealt; the other folds' scores alone are not."""
    held = {"all": [], "other folds": []}
    for seed in range(300):
        random = np.random.default_rng(seed)
        label, fold = np.zeros(60, int), random.permutation(60) % 3
        score = (random.normal(size=60) + 3 * random.normal(size=3)[fold])[:, None]
        for name, group in (("all", None), ("other folds", fold)):
            held[name].append((conformal.class_p(score, label, group)[:, 0] > ALPHA).mean())
    assert np.mean(held["all"]) == pytest.approx(0.9)
    assert np.mean(held["other folds"]) < 0.8


def test_labels_and_scores_that_are_none_are_refused():
    with pytest.raises(ValueError, match="1 of 2 labels are no class from 0 to 1; found 2"):
        conformal.class_p(np.zeros((2, 2)), np.array([0, 2]))
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        conformal.class_p(np.array([[0.5], [math.nan]]), np.array([0, 0]))
