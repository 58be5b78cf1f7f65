"""Stratified Cox regressions: R's and lifelines' figures, a likelihood worked by hand, and what has no finite estimate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from lifelines.datasets import load_lung
from reproductions.null_studies import added_value as simulated

from mri_vit.metrics import cox


def lung() -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Days, deaths, and the table, whose `ph.ecog` is missing for one and dropped."""
    table = load_lung().dropna(subset=["ph.ecog", "age", "sex"])
    return table.time.to_numpy(float), table.status.to_numpy() == 1, table


def planted(n: int = 120, seed: int = 3) -> tuple[np.ndarray, np.ndarray, pd.DataFrame, np.ndarray]:
    """Days without ties, deaths, two columns of which the first tells them, and four strata."""
    random = np.random.default_rng(seed)
    columns = pd.DataFrame(random.normal(size=(n, 2)), columns=pd.Index(["a", "b"]))
    dies = random.weibull(1.5, n) * np.exp(-0.7 * columns.a.to_numpy())
    ends = random.exponential(1.5, n)
    return 100 * np.minimum(dies, ends), dies <= ends, columns, random.integers(0, 4, n)


def by_hand(days: np.ndarray, died: np.ndarray, columns: pd.DataFrame, stratum: np.ndarray, beta: np.ndarray) -> float:
    """Log partial likelihood of times without ties."""
    x, total = columns.to_numpy(), 0.0
    for i in np.flatnonzero(died):
        at_risk = (days >= days[i]) & (stratum == stratum[i])
        total += float(x[i] @ beta - np.log(np.exp(x[at_risk] @ beta).sum()))
    return total


def test_age_and_sex_of_the_lung_patients_are_as_r_has_them(oracles: Path):
    found = next(
        one for one in json.loads((oracles / "statistics.json").read_text())["references"] if one["id"] == "lung_age_sex"
    )
    table = load_lung()
    columns, one = table.loc[:, ["age", "sex"]], np.zeros(len(table), dtype=int)
    fit = cox.fit_cox(table.time.to_numpy(float), table.status.to_numpy() == 1, columns, one)
    assert [*fit.coefficient, *np.sqrt(fit.variance)] == pytest.approx(found["expected"][:4], abs=found["tol"])
    whole = CoxPHFitter().fit(table[["time", "status", "age", "sex"]], "time", "status")
    nothing = fit.log_likelihood - whole.log_likelihood_ratio_test().test_statistic / 2
    assert 2 * (fit.log_likelihood - nothing) == pytest.approx(found["expected"][4], abs=0.01)
    assert fit.log_likelihood == pytest.approx(whole.log_likelihood_, abs=1e-6)


def test_strata_and_ties_are_those_of_lifelines():
    days, died, table = lung()
    stratum = table["ph.ecog"].to_numpy(int)
    fit = cox.fit_cox(days, died, table.loc[:, ["age", "sex"]], stratum)
    theirs = CoxPHFitter().fit(table[["time", "status", "age", "sex", "ph.ecog"]], "time", "status", strata=["ph.ecog"])
    assert fit.log_likelihood == pytest.approx(theirs.log_likelihood_, abs=1e-6)
    assert fit.coefficient == pytest.approx(theirs.params_.to_numpy(), abs=1e-5)
    assert np.sqrt(fit.variance) == pytest.approx(theirs.standard_errors_.to_numpy(), rel=1e-4)


def test_predictions_out_of_fold_are_those_of_lifelines_with_a_penalty():
    days, died, table = lung()
    stratum, columns = table["ph.ecog"].to_numpy(int), table[["age", "sex"]].to_numpy(float)
    fold = np.arange(len(days)) % 3
    found = cox.out_of_fold(days, died, columns, stratum, fold)
    for name in range(3):
        others, kept = table[fold != name], ["time", "status", "age", "sex", "ph.ecog"]
        penalised = CoxPHFitter(penalizer=1 / (cox.PRIOR_VARIANCE * len(others)))
        tight = {"precision": 1e-12, "r_precision": 1e-12}
        theirs = penalised.fit(others[kept], "time", "status", strata=["ph.ecog"], fit_options=tight)
        assert found[fold == name] == pytest.approx(columns[fold == name] @ theirs.params_.to_numpy(), abs=1e-6)


@pytest.mark.parametrize("far", [100.0, 1e4])
def test_a_value_in_a_wrong_unit_throws_nobody_off_the_way_to_the_top(far: float):
    random = np.random.default_rng(0)
    n = 2000
    x = random.normal(size=(n, 1))
    days = np.ceil(400 * random.exponential(size=n) * np.exp(-0.5 * x[:, 0])) + 1
    x[0], days[0] = far, 1  # who dies first
    died, fold = np.ones(n, bool), np.arange(n) % 2
    found = cox.out_of_fold(days, died, x, np.zeros(n, int), fold)
    others = pd.DataFrame({"days": days, "died": died, "x": x[:, 0]})[fold == 0]
    penalised = CoxPHFitter(penalizer=1 / (cox.PRIOR_VARIANCE * len(others)))
    options = {"precision": 1e-12, "r_precision": 1e-12, "step_size": 0.5}
    theirs = penalised.fit(others, "days", "died", fit_options=options).params_["x"]
    assert found[1] / x[1, 0] == pytest.approx(theirs, rel=1e-4)  # as far as lifelines goes


def test_the_likelihood_is_the_one_worked_by_hand_and_at_its_top():
    days, died, columns, stratum = planted()
    fit = cox.fit_cox(days, died, columns, stratum)
    assert by_hand(days, died, columns, stratum, fit.coefficient) == pytest.approx(fit.log_likelihood, abs=1e-8)
    for step in ([0.01, 0], [-0.01, 0], [0, 0.01], [0, -0.01]):
        assert by_hand(days, died, columns, stratum, fit.coefficient + step) < fit.log_likelihood


# Days, died and age of Edmunson et al. 1979, as R's survival has them.
OVARIAN = """
59 1 72.3315, 115 1 74.4932, 156 1 66.4658, 421 0 53.3644, 431 1 50.3397, 448 0 56.4301, 464 1 56.9370,
475 1 59.8548, 477 0 64.1753, 563 1 55.1781, 638 1 56.7562, 744 0 50.1096, 769 0 59.6301, 770 0 57.0521,
803 0 39.2712, 855 0 43.1233, 1040 0 38.8932, 1106 0 44.6000, 1129 0 53.9068, 1206 0 44.2055, 1227 0 59.5890,
268 1 74.5041, 329 1 43.1370, 353 1 63.2192, 365 1 64.4247, 377 0 58.3096"""


def test_the_hazard_ratio_of_one_risk_and_its_check_are_those_of_r():
    """R 4.2.2, survival 3.5.3: coxph(Surv(futime, fustat) ~ age, ovarian) and cox.zph of it."""
    days, died, age = np.array([row.split() for row in OVARIAN.split(",")], float).T
    found = cox.hazard_ratio_per_sd(days, died, age)
    log_ratio = np.log([found.value, found.low, found.high]) / age.std(ddof=1)
    reach = 1.959963984540054 * np.sqrt(0.00247407998553834)
    assert log_ratio == pytest.approx(0.161619857406316 + np.array([0, -reach, reach]), rel=1e-9)
    assert found.proportional_p == pytest.approx(0.405678093672719, abs=1e-9)


# R 4.2.2, survival 3.5.3: coxph(Surv(floor(time / 60) * 60 + 30, status == 2) ~ age + sex + ph.ecog, lung) of those whose columns
# and `inst` are known, without strata and with strata(inst %% 3): coef, diag(vcov), loglik, and p of cox.zph, whose strata share
# one Kaplan-Meier curve. R stops at a step of 1e-9 of the likelihood.
OF_R = {
    1: (
        (0.0119287873994091, -0.5830066052451757, 0.4885968612941642),
        (8.46472600024822e-05, 2.82820032316889e-02, 1.33290819959755e-02),
        -727.649075189541,
        (0.606210501590985, 0.102142573624749, 0.121384193150773),
    ),
    3: (
        (0.0102857642794161, -0.5898213951787485, 0.5378786969934723),
        (8.87397769789825e-05, 2.94611283060671e-02, 1.48607982752610e-02),
        -563.855980013773,
        (0.735565804433775, 0.113719779744365, 0.156394861651870),
    ),
}


@pytest.mark.parametrize("strata", OF_R)
def test_a_regression_with_ties_and_strata_and_its_check_are_those_of_r(strata: int):
    table = load_lung().dropna(subset=["age", "sex", "ph.ecog", "inst"])
    days, died = (table.time // 60 * 60 + 30).to_numpy(float), table.status.to_numpy() == 1
    fit = cox.fit_cox(days, died, table.loc[:, ["age", "sex", "ph.ecog"]], table.inst.to_numpy(int) % strata)
    coefficient, variance, log_likelihood, proportional_p = OF_R[strata]
    assert fit.coefficient == pytest.approx(coefficient, abs=1e-8)
    assert fit.variance == pytest.approx(variance, rel=1e-7)
    assert fit.log_likelihood == pytest.approx(log_likelihood, abs=1e-9)
    assert fit.proportional_p == pytest.approx(proportional_p, abs=1e-8)


def test_a_column_that_parts_the_deaths_from_the_others_is_named():
    days, died, columns, stratum = planted()
    with pytest.raises(cox.NotEstimableError, match="marker: at every death the patient had the highest value"):
        cox.fit_cox(days, died, columns.assign(marker=died.astype(float)), stratum)
    with pytest.raises(cox.NotEstimableError, match="rare: at every death the patient had the lowest value"):
        cox.fit_cox(days, died, columns.assign(rare=(~died & (columns.a > 1)).astype(float)), stratum)


def test_columns_that_depend_on_each_other_are_refused_by_name():
    days, died, columns, stratum = planted()
    with pytest.raises(cox.NotEstimableError, match=r"on a, b, sum has no finite hazard ratio for .*sum"):
        cox.fit_cox(days, died, columns.assign(sum=columns.a + columns.b), stratum)


@pytest.mark.parametrize("apart", [0.3, 0.03])
def test_columns_that_nearly_depend_on_each_other_are_fitted_to_the_top_of_the_likelihood(apart: float):
    """lifelines alone stops far below it, with no more than a warning."""
    days, died, columns, stratum = planted()
    noise = np.random.default_rng(5).normal(size=len(days))
    columns = columns.assign(near=columns.a + apart * noise)
    fit = cox.fit_cox(days, died, columns, stratum)
    oracle, highest = simulated.fitted(columns.to_numpy(), days, died, stratum)
    assert fit.log_likelihood == pytest.approx(highest, abs=1e-6)
    assert fit.coefficient == pytest.approx(oracle, rel=1e-4)
    assert by_hand(days, died, columns, stratum, fit.coefficient) == pytest.approx(highest, abs=1e-6)


def test_what_strata_make_constant_or_others_tell_is_found_before():
    _, _, columns, stratum = planted()
    table = columns.assign(site=stratum.astype(float), sum=columns.a - 2 * columns.b + stratum, other=columns.a**2)
    wrong = cox.dependent(table, [stratum])
    assert wrong == {"site": "does not vary within a fold", "sum": "follows from the other covariates"}
    assert set(cox.dependent(table, [np.zeros(len(table), dtype=int)])) == {"sum"}  # without strata a site tells something


def test_nobodys_own_outcome_has_a_part_in_their_prediction():
    days, died, columns, fold = planted()
    predicted = cox.out_of_fold(days, died, columns.to_numpy(), fold, fold)
    random = np.random.default_rng(0)
    for k in range(4):
        here = fold == k
        other_days, other_died = days.copy(), died.copy()
        other_days[here], other_died[here] = random.permutation(days[here]), random.random(here.sum()) < 0.5
        again = cox.out_of_fold(other_days, other_died, columns.to_numpy(), fold, fold)
        assert again[here] == pytest.approx(predicted[here], abs=1e-12)
        assert not np.allclose(again[~here], predicted[~here])


def test_folds_whose_patients_all_live_do_no_harm():
    days, died, columns, fold = planted()
    died = died & (fold == 0)
    predicted = cox.out_of_fold(days, died, columns.to_numpy(), fold, fold)
    assert (predicted[fold == 0] == 0).all()  # there is nobody to learn from
    assert (predicted[fold != 0] != 0).all()
    assert np.isfinite(cox.fit_cox(days, died, columns, fold).coefficient).all()
