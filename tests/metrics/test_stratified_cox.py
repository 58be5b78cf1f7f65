"""Stratified Cox regressions: R's and lifelines' figures, a likelihood worked by hand, and what has no finite estimate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.datasets import load_lung
from reproductions.null_studies import added_value as simulated
from scipy.stats import chi2

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


def by_hand(
    days: np.ndarray, died: np.ndarray, columns: pd.DataFrame, stratum: np.ndarray, beta: np.ndarray
) -> tuple[float, np.ndarray]:
    """Log partial likelihood of times without ties, and Schoenfeld's residual of each death."""
    x, total, residuals = columns.to_numpy(), 0.0, np.zeros(columns.shape)
    for i in np.flatnonzero(died):
        at_risk = (days >= days[i]) & (stratum == stratum[i])
        hazard = np.exp(x[at_risk] @ beta)
        total += float(x[i] @ beta - np.log(hazard.sum()))
        residuals[i] = x[i] - hazard @ x[at_risk] / hazard.sum()
    return total, residuals[died]


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
    assert by_hand(days, died, columns, stratum, fit.coefficient)[0] == pytest.approx(fit.log_likelihood, abs=1e-8)
    for step in ([0.01, 0], [-0.01, 0], [0, 0.01], [0, -0.01]):
        assert by_hand(days, died, columns, stratum, fit.coefficient + step)[0] < fit.log_likelihood


def test_the_check_of_proportional_hazards_is_the_score_test_of_schoenfelds_residuals():
    days, died, columns, stratum = planted()
    fit = cox.fit_cox(days, died, columns, stratum)
    x = columns.to_numpy()
    information = np.zeros((2, 2))
    for i in np.flatnonzero(died):
        at_risk = (days >= days[i]) & (stratum == stratum[i])
        weight = np.exp(x[at_risk] @ fit.coefficient)
        centred = x[at_risk] - weight @ x[at_risk] / weight.sum()
        information += (centred.T * weight / weight.sum()) @ centred
    variance, residuals = np.linalg.inv(information), by_hand(days, died, columns, stratum, fit.coefficient)[1]
    late = 1 - KaplanMeierFitter().fit(days, died).survival_function_at_times(days[died]).to_numpy()
    late = late - late.mean()
    deaths = int(died.sum())
    statistic = (late @ (deaths * residuals @ variance)) ** 2 / (deaths * np.diag(variance) * (late @ late))
    assert fit.variance == pytest.approx(np.diag(variance), rel=1e-6)
    assert fit.proportional_p == pytest.approx(chi2.sf(statistic, 1), rel=1e-4)


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
    assert by_hand(days, died, columns, stratum, fit.coefficient)[0] == pytest.approx(highest, abs=1e-6)


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
