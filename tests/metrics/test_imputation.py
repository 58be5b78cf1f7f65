"""Imputed tables and their pooling against R's mice, and coverage where complete cases are biased."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines.datasets import load_lung

from mri_vit.metrics import imputation
from mri_vit.metrics.added_value import Patients, RepeatScores, added_value, pooled
from mri_vit.metrics.competing_risks import cumulative_hazard
from mri_vit.metrics.cox import fit_cox

pytestmark = pytest.mark.long(15)

RECORDED = json.loads((Path(__file__).parents[1] / "oracles" / "utility.json").read_text())
COLUMNS = pd.Index(["age", "sex", "ph.ecog", "meal.cal", "wt.loss"])


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def lung() -> pd.DataFrame:
    return load_lung().dropna(subset=["ph.ecog"]).reset_index(drop=True)


@pytest.fixture(scope="module")
def tables(lung: pd.DataFrame) -> list[np.ndarray]:
    days, died = lung.time.to_numpy(float), (lung.status == 1).to_numpy()
    beside = np.column_stack([died, cumulative_hazard(days, died, days)]).astype(float)
    columns = lung[COLUMNS].to_numpy(float)
    return imputation.chained_equations(columns, [[place] for place in range(5)], beside, 100, generator())


def test_rubins_rules_are_those_of_mice():
    one = RECORDED["rubin"]
    found = imputation.rubin(np.array(one["q"]), np.array(one["u"]))
    expected = [one[key] for key in ("value", "variance", "df", "reach", "p")]
    assert [found.value, found.variance, found.df, found.reach, found.p] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("k", [1, 3])
def test_chi2_of_several_tables_are_pooled_as_li_and_others_do(k: int):
    one = RECORDED["rubin"]
    assert imputation.pooled_chi2(np.array(one["chi2"]), k) == pytest.approx(one[f"d2_of_{k}"], rel=1e-9)


def test_equal_tables_are_one_table():
    found = imputation.rubin(np.full(5, 0.4), np.full(5, 0.01))
    assert found.reach == pytest.approx(0.196, abs=1e-4)
    assert imputation.pooled_chi2(np.full(5, 3.84), 1)[1] == pytest.approx(0.05, abs=1e-3)


def test_the_cumulative_hazard_is_rs(lung: pd.DataFrame):
    days = lung.time.to_numpy(float)
    found = cumulative_hazard(days, (lung.status == 1).to_numpy(), days)
    np.testing.assert_allclose(found[:10], RECORDED["cox"]["hazard"], atol=1e-9)


def test_what_is_known_stays_and_what_is_imputed_was_seen_in_another_patient(lung: pd.DataFrame, tables: list[np.ndarray]):
    columns = lung[COLUMNS].to_numpy(float)
    known = ~np.isnan(columns)
    for table in tables[:5]:
        assert (table[known] == columns[known]).all()
        for place in range(5):
            assert set(table[~known[:, place], place]) <= set(columns[known[:, place], place])
    assert (tables[0] != tables[1]).any()


def test_imputed_values_have_the_mean_and_the_spread_that_mice_gives_them(lung: pd.DataFrame, tables: list[np.ndarray]):
    for place, mean, spread in zip((3, 4), RECORDED["cox"]["mean"], RECORDED["cox"]["deviation"], strict=True):
        lacks = lung[COLUMNS[place]].isna().to_numpy()
        imputed = np.array([table[lacks, place] for table in tables])
        assert imputed.mean() == pytest.approx(mean, abs=0.12 * spread)  # four standard errors of 100 tables' means
        assert imputed.std(axis=1, ddof=1).mean() == pytest.approx(spread, rel=0.1)


def test_a_cox_regression_of_the_tables_is_that_of_mices(lung: pd.DataFrame, tables: list[np.ndarray]):
    days, died = lung.time.to_numpy(float), (lung.status == 1).to_numpy()
    fits = [fit_cox(days, died, pd.DataFrame(table, columns=COLUMNS), np.zeros(len(days), int)) for table in tables]
    for place, (value, error) in enumerate(zip(RECORDED["cox"]["value"], RECORDED["cox"]["error"], strict=True)):
        found = imputation.rubin(*(np.array([getattr(fit, key)[place] for fit in fits]) for key in ("coefficient", "variance")))
        assert found.value == pytest.approx(value, abs=0.15 * error)
        assert found.variance**0.5 == pytest.approx(error, rel=0.06)


def test_levels_of_a_category_come_from_one_patient():
    random = generator()
    level = random.integers(0, 3, 60)
    columns = np.column_stack([random.normal(size=60), level == 1, level == 2]).astype(float)
    columns[:15, 1:] = np.nan
    (table,) = imputation.chained_equations(columns, [[0], [1, 2]], np.zeros((60, 0)), 1, random)
    assert set(map(tuple, table[:15, 1:])) <= {(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)}


def test_of_equal_donors_each_is_taken_as_often():
    """One category explains nothing, so all have one prediction: not the first five alone may give their value."""
    columns = np.r_[np.arange(40.0), np.full(200, np.nan)][:, None]
    (table,) = imputation.chained_equations(columns, [[0]], np.zeros((240, 0)), 1, generator())
    assert len(set(table[40:, 0])) > 30


def test_a_column_that_is_missing_of_all_is_refused():
    with pytest.raises(ValueError, match=r"columns \[0\] are missing of all 4 patients"):
        imputation.chained_equations(np.full((4, 1), np.nan), [[0]], np.zeros((4, 0)), 1, generator())


def test_there_are_as_many_tables_as_the_incomplete_are_per_cent_within_limits():
    assert [imputation.imputations(share, 300) for share in (0.0, 0.004, 0.13, 0.6)] == [0, 5, 13, 20]
    assert imputation.imputations(0.6, 25_000) == 5


def test_complete_tables_pool_to_what_one_gives():
    random = generator()
    days, died, risk = random.exponential(400, 90), random.random(90) < 0.7, random.normal(size=90)
    fold = np.arange(90) % 3
    patients = Patients(days, died, pd.DataFrame({"age": random.normal(size=90)}), [RepeatScores(risk, fold, fold)])
    one = added_value(patients, 2**0.5)
    again = pooled([one, one, one])
    assert pooled([one]) is one
    for name in ("age", "risk"):
        assert (again.both[name].low, again.both[name].high) == pytest.approx((one.both[name].low, one.both[name].high), rel=1e-6)
    assert again.test.p == pytest.approx(one.test.p, rel=1e-6)
