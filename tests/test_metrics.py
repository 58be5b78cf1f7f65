"""Metrics against hand-worked cases, brute force, other libraries and published numbers."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lifelines.utils import concordance_index
from sklearn.metrics import roc_auc_score

from mri_vit.metrics import discrimination, survival

SHARED = Path(__file__).parents[2] / "shared"
NAN = math.nan


@pytest.fixture(scope="module")
def published() -> dict[str, dict]:
    path = SHARED / "refs" / "statistics.json"
    if not path.is_file():
        pytest.skip(f"no reference numbers at {path}")
    return {entry["id"]: entry for entry in json.loads(path.read_text())["references"]}


@pytest.fixture(scope="module")
def haemorrhage(published) -> pd.DataFrame:
    return pd.read_csv(SHARED / "refs" / "aSAH.csv")


def poor(table: pd.DataFrame) -> np.ndarray:
    return (table.outcome == "Poor").to_numpy()


def brute_auc(truth, score) -> float:
    pairs = [(p > q) + 0.5 * (p == q) for p in score[truth] for q in score[~truth]]
    return float(np.mean(pairs))


labelled = st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=1, max_size=30)
followed = st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=25)


def columns(rows, *types):
    return tuple(np.array(column, dtype=kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True))


# --- AUC -----------------------------------------------------------------------------------------------------------------


@given(labelled)
def test_auc_is_the_share_of_pairs_in_order_with_ties_as_one_half(rows):
    truth, score = columns(rows, bool, float)
    assume(truth.any() and not truth.all())
    assert discrimination.auc(truth, score) == pytest.approx(brute_auc(truth, score), abs=1e-12)
    assert discrimination.auc(truth, score) == pytest.approx(roc_auc_score(truth, score), abs=1e-12)


@given(labelled)
def test_auc_keeps_under_a_rising_map_and_turns_under_a_falling_one(rows):
    truth, score = columns(rows, bool, float)
    assume(truth.any() and not truth.all())
    value = discrimination.auc(truth, score)
    assert discrimination.auc(truth, np.exp(score)) == value
    assert discrimination.auc(truth, -score) == pytest.approx(1 - value, abs=1e-12)


@pytest.mark.parametrize("truth", [[True, True, True], [False, False], []])
def test_auc_of_one_class_is_undefined(truth):
    truth = np.array(truth, dtype=bool)
    score = np.arange(len(truth), dtype=float)
    assert math.isnan(discrimination.auc(truth, score))
    assert math.isnan(discrimination.auc_within(truth, score, np.zeros(len(truth), dtype=int)))
    assert all(math.isnan(bound) for bound in discrimination.delong_interval(truth, score))


def test_a_missing_score_is_refused_and_not_ranked():
    with pytest.raises(ValueError, match="1 of 3 scores"):
        discrimination.auc(np.array([True, False, True]), np.array([0.1, NAN, 0.3]))


def test_shuffled_labels_give_about_one_half():
    generator = np.random.default_rng(0)
    truth = generator.random(4000) < 0.3
    assert discrimination.auc(truth, generator.random(4000)) == pytest.approx(0.5, abs=4 * 0.01)


@given(labelled)
def test_auc_within_one_group_is_the_auc_and_within_folds_ignores_their_offsets(rows):
    truth, score = columns(rows, bool, float)
    assume(truth.any() and not truth.all())
    group = np.arange(len(truth)) % 2
    value = discrimination.auc_within(truth, score, group)
    assert discrimination.auc_within(truth, score, 0 * group) == pytest.approx(discrimination.auc(truth, score), abs=1e-12)
    shifted = discrimination.auc_within(truth, score + 100 * group, group)
    assert shifted == value or (math.isnan(shifted) and math.isnan(value))


def test_auc_within_folds_counts_each_pair_once():
    truth = np.array([1, 0, 0, 1, 0, 1, 1], dtype=bool)
    score = np.array([3.0, 1, 2, 1, 2, 5, 5])
    group = np.array(["a", "a", "a", "b", "b", "c", "c"])
    # Fold a: 2 of 2 pairs in order; fold b: 0 of 1; fold c has one class and no pair.
    assert discrimination.auc_within(truth, score, group) == pytest.approx(2 / 3)


# --- DeLong --------------------------------------------------------------------------------------------------------------


def test_delong_of_four_patients_is_as_worked_by_hand():
    truth, score = np.array([False, False, True, True]), np.array([0.1, 0.4, 0.35, 0.8])
    # Positives: 0.35 beats one of two negatives, 0.8 both: V10 = (1/2, 1). Negatives: V01 = (1, 1/2).
    v10, v01 = discrimination.delong_components(truth, score)
    assert v10.tolist() == [0.5, 1.0]
    assert v01.tolist() == [1.0, 0.5]
    # Each has sample variance 1/8, so the variance is 1/8 / 2 + 1/8 / 2.
    assert discrimination.delong_variance(truth, score) == pytest.approx(1 / 8)
    low, high = discrimination.delong_interval(truth, score)
    assert low == pytest.approx(0.75 - 1.959963984540054 * math.sqrt(1 / 8))
    assert high == 1.0  # clipped


@given(labelled)
def test_delong_variance_is_that_of_the_pair_matrix(rows):
    truth, score = columns(rows, bool, float)
    assume(truth.sum() > 1 and (~truth).sum() > 1)
    wins = (score[truth, None] > score[~truth]) + 0.5 * (score[truth, None] == score[~truth])
    expected = wins.mean(1).var(ddof=1) / len(wins) + wins.mean(0).var(ddof=1) / len(wins.T)
    assert discrimination.delong_variance(truth, score) == pytest.approx(expected, abs=1e-12)


def test_delong_needs_two_patients_of_each_class():
    truth, score = np.array([True, False, False]), np.array([0.1, 0.2, 0.3])
    assert math.isnan(discrimination.delong_variance(truth, score))


def test_delong_interval_holds_the_truth_about_95_times_in_100():
    generator = np.random.default_rng(1)
    truth = np.arange(100) < 40
    expected = 0.7601  # P(Z > -1/sqrt 2) for two unit normals one apart
    hits = 0
    for _ in range(400):
        low, high = discrimination.delong_interval(truth, generator.normal(size=100) + truth)
        hits += low <= expected <= high
    assert 0.92 < hits / 400 < 0.98  # three standard errors of 0.011


@pytest.mark.parametrize(
    ("marker", "reference"), [("wfns", "asah_auc_wfns"), ("ndka", "asah_auc_ndka"), ("s100b", "asah_auc_s100b")]
)
def test_auc_is_that_of_proc(haemorrhage, published, marker, reference):
    entry = published[reference]
    value = discrimination.auc(poor(haemorrhage), haemorrhage[marker].to_numpy(float))
    assert value == pytest.approx(entry["expected"], abs=entry["tol"])


def test_delong_interval_is_that_of_proc(haemorrhage, published):
    entry = published["asah_delong_ci_ndka"]
    interval = discrimination.delong_interval(poor(haemorrhage), haemorrhage.ndka.to_numpy(float))
    assert interval == pytest.approx(entry["expected"], abs=entry["tol"])


# --- chance and folds ----------------------------------------------------------------------------------------------------


def test_chance_error_is_the_spread_of_all_orders_of_five_patients():
    values = [discrimination.auc(np.isin(np.arange(5), chosen), np.arange(5.0)) for chosen in combinations(range(5), 2)]
    assert discrimination.chance_error(2, 3) == pytest.approx(np.std(values))


@pytest.mark.parametrize(("patients", "error"), [(117, 0.054), (577, 0.024)])
def test_chance_error_of_published_cohorts(patients, error):
    assert discrimination.chance_error(patients // 2, patients - patients // 2) == pytest.approx(error, abs=0.0006)


def test_chance_error_of_one_class_is_undefined():
    assert math.isnan(discrimination.chance_error(5, 0))


def test_mean_and_sample_variance_leave_undefined_folds_out():
    assert discrimination.mean_and_sample_variance(np.array([0.5, NAN, 0.7])) == pytest.approx((0.6, 0.02))
    mean, variance = discrimination.mean_and_sample_variance(np.array([0.5]))
    assert mean == 0.5
    assert math.isnan(variance)
    assert all(math.isnan(value) for value in discrimination.mean_and_sample_variance(np.array([NAN])))


def test_mean_and_sample_variance_are_those_printed_in_table_4():
    path = SHARED / "refs" / "saeed2023_table4.csv"
    if not path.is_file():
        pytest.skip(f"no reference numbers at {path}")
    table = pd.read_csv(path)
    for row in table.loc[table.note.isna()].to_dict(orient="records"):
        folds = np.array([row[f"fold_{k}"] for k in range(1, 6)])
        mean, variance = discrimination.mean_and_sample_variance(folds)
        assert (mean, variance) == pytest.approx((row["mean"], row["variance"]), abs=1.5e-4)


# --- survival ------------------------------------------------------------------------------------------------------------


@given(followed)
def test_harrell_c_is_that_of_lifelines_and_of_brute_force(rows):
    time_days, event, risk, _ = columns(rows, float, bool, float, int)
    pairs = [
        (risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j])
        for i in np.flatnonzero(event)
        for j in range(len(risk))
        if time_days[i] < time_days[j] or (time_days[i] == time_days[j] and not event[j])
    ]
    value = survival.harrell_c(time_days, event, risk)
    if not pairs:
        assert math.isnan(value)
        return
    assert value == pytest.approx(np.mean(pairs), abs=1e-12)
    assert value == pytest.approx(concordance_index(time_days, -risk, event), abs=1e-12)


@given(followed)
def test_concordance_within_folds_ignores_the_scale_of_each_fold(rows):
    time_days, event, risk, group = columns(rows, float, bool, float, int)
    value = survival.harrell_c_within(time_days, event, risk, group)
    scaled = survival.harrell_c_within(time_days, event, np.exp(risk) * 10.0**group - 50 * group, group)
    assert scaled == value or (math.isnan(scaled) and math.isnan(value))
    alone = survival.harrell_c_within(time_days, event, risk, 0 * group)
    whole = survival.harrell_c(time_days, event, risk)
    assert alone == whole or (math.isnan(alone) and math.isnan(whole))


def test_harrell_c_is_that_of_the_published_ties(published):
    def numbers(text):
        return np.array([float(item) for item in text.split(",")])

    tied_risk = survival.harrell_c(
        numbers("1,5,6,11,34,45,46,50"), numbers("0,1,1,0,1,1,0,0") == 1, numbers("5,15,11,34,12,3,9,12")
    )
    tied_time = survival.harrell_c(
        numbers("34,11,11,5,1,89,13,45,7,13,9,13"),
        numbers("1,0,0,0,1,0,1,1,0,0,0,1") == 1,
        numbers("1,19,13,13,15,14,19,23,11,10,11,1"),
    )
    for value, name in ((tied_risk, "harrell_tied_risk"), (tied_time, "harrell_tied_event_time")):
        assert value == pytest.approx(published[name]["expected"][0], abs=published[name]["tol"])


def test_pairs_of_the_lung_trial_are_counted_as_r_counts_them(published):
    lung = pd.read_csv(SHARED / "refs" / "lung.csv").dropna(subset=["ph.ecog"])
    concordance, comparable = survival.concordance_pairs(
        lung.time.to_numpy(float), (lung.status == 2).to_numpy(), lung["ph.ecog"].to_numpy(float)
    )
    counts = [(concordance[comparable] == value).sum() for value in (1, 0, 0.5)]
    assert counts == published["concordance_lung_ecog"]["expected"]


def test_bootstrap_interval_is_that_of_drawing_patients_one_by_one():
    generator = np.random.default_rng(2)
    time_days, event, risk = generator.exponential(400, 40), generator.random(40) < 0.7, generator.normal(size=40)
    low, high = survival.harrell_interval(time_days, event, risk, np.random.default_rng(5), resamples=200)
    drawn = np.random.default_rng(5).multinomial(40, np.full(40, 1 / 40), size=200)
    values = []
    for counts in drawn:
        rows = np.repeat(np.arange(40), counts)
        values.append(survival.harrell_c(time_days[rows], event[rows], risk[rows]))
    assert (low, high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=1e-12)


def test_bootstrap_interval_repeats_with_its_seed_and_covers_the_estimate():
    generator = np.random.default_rng(3)
    time_days, event, risk = generator.exponential(400, 60), generator.random(60) < 0.7, generator.normal(size=60)
    first, again = (survival.harrell_interval(time_days, event, risk, np.random.default_rng(0)) for _ in range(2))
    assert first == again
    assert first[0] < survival.harrell_c(time_days, event, risk) < first[1]


def test_without_a_death_concordance_and_logrank_are_undefined():
    time_days, nobody, risk = np.array([1.0, 2, 3]), np.zeros(3, dtype=bool), np.array([3.0, 2, 1])
    assert math.isnan(survival.harrell_c(time_days, nobody, risk))
    assert all(math.isnan(bound) for bound in survival.harrell_interval(time_days, nobody, risk, np.random.default_rng(0)))
    assert math.isnan(survival.logrank_p(time_days, nobody, np.array([True, False, False])))


@given(followed)
def test_logrank_never_warns_and_is_a_probability_or_undefined(rows):
    time_days, event, risk, _ = columns(rows, float, bool, float, int)
    p = survival.logrank_p(time_days, event, risk > 1)
    assert math.isnan(p) or 0 <= p <= 1


@pytest.mark.parametrize(
    ("reference", "time", "status", "groups"),
    [
        ("logrank_toy1", "12,1,6,9,7,4,13,5,2,3", "0,1,1,0,0,0,1,0,1,1", "0000011111"),
        ("logrank_toy_ties", "12,12,2,2,7,4,1,5,2,5", "1,1,0,0,0,0,0,1,0,1", "0000011111"),
    ],
)
def test_logrank_is_that_of_the_published_toys(published, reference, time, status, groups):
    time_days = np.array([float(item) for item in time.split(",")])
    event = np.array([item == "1" for item in status.split(",")])
    high = np.array([item == "1" for item in groups])
    assert survival.logrank_p(time_days, event, high) == pytest.approx(published[reference]["expected"][1], abs=1e-9)


def test_kaplan_meier_median_of_the_lung_trial_is_that_of_r(published):
    lung = pd.read_csv(SHARED / "refs" / "lung.csv")
    curve = survival.kaplan_meier(lung.time.to_numpy(float), (lung.status == 2).to_numpy(), "lung")
    assert curve.median_survival_time_ == published["lung_km_median"]["expected"]


def test_numbers_at_risk_fall_as_patients_leave():
    left = survival.at_risk(np.array([10.0, 20, 30]), np.array([0.0, 10, 25, 30]))
    assert left.tolist() == [3, 2, 1, 0]


@given(followed)
def test_each_fold_is_split_at_its_own_median(rows):
    _, _, risk, group = columns(rows, float, bool, float, int)
    high = survival.high_risk(risk, group)
    assert (survival.high_risk(risk + 1000 * group, group) == high).all()
    for name in np.unique(group):
        assert high[group == name].sum() <= (group == name).sum() / 2
