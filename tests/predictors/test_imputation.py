"""Imputed covariates of the controls: known cells stay, test patients move no fit, and related columns say what one lacks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from mri_vit.predictors.imputation import ImputedColumns, JointNormal
from mri_vit.predictors.regressions import scaling


def related(n: int, seed: int = 0, columns: int = 3) -> np.ndarray:
    """Columns of variance 1 with correlations of 0.8."""
    random = np.random.default_rng(seed)
    return random.normal(size=(n, columns)) @ np.linalg.cholesky(0.2 * np.eye(columns) + 0.8).T


def rows(n: int = 60, seed: int = 0) -> pd.DataFrame:
    x = related(n, seed)
    sex = np.where(x[:, 2] > 0, "M", "F").astype(object)
    return pd.DataFrame({"age": 60 + 10 * x[:, 0], "volume": 30 + 5 * x[:, 1], "sex": sex})


def test_without_a_gap_the_columns_are_those_of_scikit_learn_to_the_bit():
    table = rows()
    found = ImputedColumns().fit(table).transform(table)
    encoder = OneHotEncoder(sparse_output=False).fit(table[["sex"]])
    expected = np.hstack([table[["age", "volume"]].to_numpy(), np.asarray(encoder.transform(table[["sex"]]))])
    np.testing.assert_array_equal(found, expected)


def test_known_cells_stay_to_the_bit_and_no_gap_is_left():
    table = rows()
    table.loc[::3, "age"], table.loc[::5, "sex"] = np.nan, None
    found = ImputedColumns().fit(table).transform(table)
    known = table.age.notna().to_numpy()
    np.testing.assert_array_equal(found[known, 0], table.age[known])
    assert np.isfinite(found).all()
    assert found.shape[1] == 2 + 1 + 3  # numbers, the flag of age, F, M and the flag of sex


def test_flags_say_what_was_missing_and_stand_where_the_imputer_before_had_them():
    table = rows()
    table.loc[::3, "age"], table.loc[::5, "sex"] = np.nan, None
    found = ImputedColumns().fit(table).transform(table)
    before = SimpleImputer(strategy="median", add_indicator=True).fit_transform(table[["age", "volume"]])
    np.testing.assert_array_equal(found[:, 2], before[:, 2])
    np.testing.assert_array_equal(found[:, -1], table.sex.isna())


def test_a_gap_gets_what_the_other_columns_say():
    train, test = related(2000), related(500, seed=1)
    joint, gaps = JointNormal().fit(train), test.copy()
    gaps[:, 0] = np.nan
    filled = joint.filled(gaps)[:, 0]
    expected = 0.8 * test[:, 1:] @ np.linalg.solve(0.2 * np.eye(2) + 0.8, np.ones(2))  # of the true covariance
    assert np.abs(filled - expected).max() < 0.15
    assert np.mean((filled - test[:, 0]) ** 2) < 0.4 * np.mean((np.median(train[:, 0]) - test[:, 0]) ** 2)


def test_gaps_of_the_training_patients_do_not_bias_what_is_learned():
    """Of those with a high second column the first is missing: complete cases alone would have its mean too low."""
    train = related(4000)
    hidden = train.copy()
    hidden[train[:, 1] > 0.5, 0] = np.nan
    joint = JointNormal().fit(hidden)
    assert np.nanmean(hidden[:, 0]) < -0.3
    assert joint.centre[0] * joint.spread[0] + joint.mean[0] == pytest.approx(0.0, abs=0.06)


def test_a_category_that_is_missing_gets_shares_that_follow_the_others():
    train, test = rows(800), rows(2, seed=1).assign(age=[30.0, 90.0], volume=[15.0, 45.0], sex=None)
    female, male = ImputedColumns().fit(train).transform(test)[:, 2:4].T
    assert female[0] > male[0]
    assert female[1] < male[1]
    np.testing.assert_allclose(female + male, 1, atol=0.02)


def test_test_patients_do_not_move_the_imputation():
    train, test = rows(), rows(40, seed=1)
    train.loc[::4, "age"] = np.nan
    test.loc[0, "age"] = np.nan
    other = test.copy()
    other.loc[1:, ["age", "volume"]] = 1000.0
    fitted = scaling().fit(train)
    one, two = (np.asarray(fitted.transform(of))[0] for of in (test, other))
    np.testing.assert_array_equal(one, two)


def test_a_category_that_no_training_patient_lacks_is_imputed_without_a_flag():
    test = rows(1, seed=1).assign(sex=None)
    found = ImputedColumns().fit(rows()).transform(test)
    assert found.shape[1] == 4
    assert 0 < found[0, 2] < 1


def test_a_level_that_no_training_patient_has_is_imputed_and_flagged_as_a_missing_one_is():
    train = rows(200)
    train.loc[::5, "sex"] = None
    imputed = ImputedColumns().fit(train)
    unseen, missing = (imputed.transform(rows(40, seed=1).assign(sex=cell)) for cell in ("X", None))
    np.testing.assert_array_equal(unseen, missing)
    assert (unseen[:, -1] == 1).all()
    assert 0.2 < unseen[:, 2].mean() < 0.8  # half are female; 0 would say that they are neither female nor male


@pytest.mark.parametrize("n", [3, 12])
def test_more_columns_than_patients_and_columns_of_gaps_alone_do_no_harm(n: int):
    train = related(n, columns=20)
    train[0, :10], train[:, 3] = np.nan, np.nan
    filled = JointNormal().fit(train).filled(train)
    assert np.isfinite(filled).all()
    assert (filled[:, 3] == 0).all()  # as scikit-learn fills a column without a value
    assert np.abs(filled).max() < 10
