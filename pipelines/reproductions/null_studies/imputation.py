"""Missing covariates: what imputation does to hazard ratios, to the test of a risk, to C, and to the controls' predictions.

    .venv/bin/python pipelines/reproduce.py null_studies/imputation --studies 300      (15 minutes on one core)

Hazard ratios: survival by age, sex, a marker and a risk; a third of the ages and markers is missing, by chance, or more often of
women who died ("at random"). Rates are per cent of the studies in which the 95 % interval misses the true ratio,
or a risk that adds nothing has p ≤ 0.05, with Wilson's intervals. C: 45 % of the patients lack the age and three columns of
noise; all is noise, or the risk shows the age, which tells survival; mean C without and with the risk, and how often the interval
of the change leaves out 0. Controls: mean AUC on 2,000 other patients of logistic regressions on six related columns, of which
two are missing in three of ten patients.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the problems are small

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy.special import expit
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from mri_vit.cli.arguments import Count
from mri_vit.kinds.binary.regression import logistic
from mri_vit.metrics.added_value import (
    RISK,
    Patients,
    RepeatScores,
    concordances,
    pooled_risk_test,
    risk_given_covariates,
    standardised,
)
from mri_vit.metrics.cox import NotEstimableError, fit_cox
from mri_vit.metrics.discrimination import auc
from mri_vit.metrics.imputation import MIN_IMPUTATIONS, chained_equations, rubin
from mri_vit.metrics.intervals import rate
from mri_vit.predictors.imputation import ImputedColumns, JointNormal
from mri_vit.report.numbers.added_value import completed, of_complete
from mri_vit.report.schema.measured import ALPHA

RATIOS = {"age": 0.5, "sex": 0.3, "marker": -0.6}  # log hazard ratios of the covariates; of the risk 0 or `EFFECT`
EFFECT = 0.5
COLUMNS, OTHERS, TABLES = 6, 2000, 10
Table = Float[np.ndarray, "n k"]
Other = Float[np.ndarray, "o k"]  # of patients who are predicted
Truth = Bool[np.ndarray, " n"]


def survival_study(random: np.random.Generator, n: int, how: str, effect: float) -> dict[str, dict[str, bool]]:
    """By method, whether an interval misses and whether the risk is said to add."""
    sex = random.integers(0, 2, n)
    age = random.normal(0.4 * sex, 1.0)
    marker = (random.random(n) < expit(0.8 * age)).astype(float)
    risk = 0.5 * age + random.normal(size=n)
    hazard = RATIOS["age"] * age + RATIOS["sex"] * sex + RATIOS["marker"] * marker + effect * risk
    dies, ends = random.exponential(400 * np.exp(-hazard)), random.uniform(200, 1700, n)
    days, died = np.minimum(dies, ends), dies <= ends
    columns = pd.DataFrame({"age": age, "sex": sex.astype(float), "marker": marker})
    gaps = columns.copy()
    for name in ("age", "marker"):
        often = np.full(n, 0.33) if how == "by chance" else expit(-1.6 + 1.2 * sex + 1.2 * died)
        gaps.loc[random.random(n) < often, name] = np.nan
    fold = np.zeros(n, dtype=int)
    repeats = [RepeatScores(risk, fold, random.permutation(n) % 5)]
    of = Patients(days, died, gaps, repeats)
    tables = completed(gaps, {name: name for name in gaps}, of, None, seed=int(random.integers(1 << 31)))
    methods: Mapping[str, list[Patients]] = {
        "multiple imputation": [Patients(days, died, one, repeats) for one in tables],
        "complete cases": [of_complete(of)],
        "median": [Patients(days, died, gaps.fillna(gaps.median()), repeats)],
    }
    true, found = RATIOS | {RISK: effect * float(risk.std(ddof=1))}, {}
    for method, patients in methods.items():
        try:
            fits = [fit_cox(one.days, one.died, _with_risk(one), one.repeats[0].network) for one in patients]
            p = pooled_risk_test([risk_given_covariates(one, 1.0) for one in patients]).test.p
        except NotEstimableError:
            continue
        missed = {}
        for place, name in enumerate(true):
            together = rubin(*(np.array([getattr(fit, key)[place] for fit in fits]) for key in ("coefficient", "variance")))
            missed[name] = abs(together.value - true[name]) > together.reach
        found[method] = {f"{name} misses": missed[name] for name in ("age", "marker")}
        if method != "complete cases":  # whose risk is standardised among others
            found[method]["risk misses"] = missed[RISK]
        found[method]["the risk adds"] = p <= ALPHA
    return found


def concordance_study(
    random: np.random.Generator, n: int, how: str, effect: float
) -> dict[str, tuple[float, float, float, bool]]:
    """By method, C without and with a risk that adds nothing, its change, and whether the interval of this leaves out 0.

    `effect`: of the age on survival, and of the risk on the age; where 0 all is noise.
    """
    sex, age = random.integers(0, 2, n), random.normal(size=n)
    columns = pd.DataFrame({"sex": sex, "age": age, **{name: random.normal(size=n) for name in "abc"}}, dtype=float)
    risk, hazard = effect * age + random.normal(size=n), effect * age
    dies, ends = random.exponential(400 * np.exp(-hazard)), random.uniform(200, 1700, n)
    days, died = np.minimum(dies, ends), dies <= ends
    often = np.full(n, 0.45) if how == "by chance" else expit(-1.7 + 1.2 * sex + 1.2 * died)
    gaps, fold = columns.copy(), random.permutation(n) % 5
    gaps.loc[random.random(n) < often, ["age", *"abc"]] = np.nan
    repeats = [RepeatScores(risk, np.zeros(n, dtype=int), fold)]
    of = Patients(days, died, gaps, repeats)
    tables = completed(gaps, {name: name for name in gaps}, of, None, seed=int(random.integers(1 << 31)))
    methods = {
        "nothing missing": [Patients(days, died, columns, repeats)],
        "complete cases": [of_complete(of)],
        "imputed with the outcome": [Patients(days, died, one, repeats) for one in tables[:MIN_IMPUTATIONS]],
    }
    found = {}
    for method, patients in methods.items():
        each = [concordances(one) for one in patients]
        without, both, gain, low, high = np.mean(
            [[c.c_without.value, c.c_both.value, c.gain.difference, c.gain.low, c.gain.high] for c in each], axis=0
        ).tolist()
        found[method] = without, both, gain, not low <= 0 <= high
    return found


def _with_risk(of: Patients) -> pd.DataFrame:
    return of.covariates.assign(**{RISK: standardised(of.repeats[0].risk, of.repeats[0].network)})


def control_study(random: np.random.Generator, n: int, how: str) -> dict[str, float]:
    """By method, the AUC on other patients."""
    (train, truth), (test, other) = _control_cohort(random, n, how), _control_cohort(random, OTHERS, how)
    names = pd.Index([f"c{place}" for place in range(COLUMNS)])
    rows, tested = pd.DataFrame(train, columns=names), pd.DataFrame(test, columns=names)
    scaled = VarianceThreshold(), StandardScaler()
    pipelines: Mapping[str, Pipeline] = {
        "median and flag": make_pipeline(SimpleImputer(strategy="median", add_indicator=True), *scaled, logistic()),
        "median": make_pipeline(SimpleImputer(strategy="median"), *scaled, logistic()),
        "the package: linear prediction and flag": make_pipeline(ImputedColumns(), *scaled, logistic()),
    }
    found = {name: auc(other, pipeline.fit(rows, truth).decision_function(tested)) for name, pipeline in pipelines.items()}
    joint = JointNormal().fit(train)
    found["linear prediction"] = auc(other, _fitted(joint.filled(train), truth, joint.filled(test)))
    flags = [np.isnan(of[:, :2]).astype(float) for of in (train, test)]
    for name, beside in (("ten tables", [np.zeros((len(of), 0)) for of in (train, test)]), ("ten tables and flag", flags)):
        found[name] = auc(other, _of_tables(random, train, truth, test, beside))
    return found


def _of_tables(random: np.random.Generator, train: Table, truth: Truth, test: Other, beside: list[np.ndarray]) -> np.ndarray:
    """Mean log odds of regressions on tables imputed with the label, of patients imputed without it."""
    variables, total = [[place] for place in range(COLUMNS)], np.zeros(len(test))
    for table in chained_equations(train, variables, truth[:, None].astype(float), TABLES, random):
        together = np.vstack([train, test])
        (filled,) = chained_equations(together, variables, np.zeros((len(together), 0)), 1, random)
        total += _fitted(np.hstack([table, beside[0]]), truth, np.hstack([filled[len(train) :], beside[1]]))
    return total / TABLES


def _fitted(train: Table, truth: Truth, test: Other) -> np.ndarray:
    return make_pipeline(StandardScaler(), logistic()).fit(train, truth).decision_function(test)


def _control_cohort(random: np.random.Generator, n: int, how: str) -> tuple[Table, Truth]:
    """Columns with correlations of a half, the first two with gaps; and the marker."""
    x = random.normal(size=(n, COLUMNS)) @ np.linalg.cholesky(0.5 * np.eye(COLUMNS) + 0.5).T
    truth = random.random(n) < expit(x[:, 0] + 0.8 * x[:, 1] - 0.5 * x[:, 2] - 0.3)
    chance = {"by chance": np.full(n, 0.3), "at random": expit(2 * x[:, 3] - 1), "with the marker": expit(1.5 * truth - 1.75)}
    gaps = x.copy()
    for place in (0, 1):
        gaps[random.random(n) < chance[how], place] = np.nan
    return gaps, truth


def main(*, studies: Count = 300) -> None:
    """Print the rates of hazard ratios, C without and with a risk that adds nothing, and the controls' AUC (of fewer studies)."""
    for n in (100, 300):
        for how, effect in (("by chance", EFFECT), ("at random", EFFECT), ("at random", 0.0))[n > 100 :]:
            random = np.random.default_rng([n, len(how), int(10 * effect)])
            found = [survival_study(random, n, how, effect) for _ in range(studies)]
            print(f"{n} patients, missing: {how}, log hazard ratio of the risk {effect}", flush=True)
            for method in found[0]:
                done = [one[method] for one in found if method in one]
                shares = {claim: rate(sum(one[claim] for one in done), len(done)) for claim in done[0]}
                words = (
                    f"{claim} {100 * one.value:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]" for claim, one in shares.items()
                )
                print(f"    {method}: {'; '.join(words)}", flush=True)
    for n in (100, 300):
        for how, effect in (("by chance", 0.0), ("at random", 0.0), ("by chance", 1.0))[: 3 if n == 100 else 1]:
            random = np.random.default_rng([n, len(how), int(effect)])
            changes = [concordance_study(random, n, how, effect) for _ in range(max(2, studies // 2))]
            print(
                f"{n} patients, missing {how}, effect {effect}: C without, with, change; interval leaves out 0",
                flush=True,
            )
            for method in changes[0]:
                without, both, gain, apart = np.mean([one[method] for one in changes], axis=0)
                print(f"    {method}: {without:.3f}, {both:.3f}, {gain:+.3f}; {100 * apart:.1f} %", flush=True)
    for n in (80, 300):
        for how in ("by chance", "at random", "with the marker"):
            random = np.random.default_rng([n, len(how)])
            values = pd.DataFrame([control_study(random, n, how) for _ in range(max(2, studies // 10))])
            error = float((values.iloc[:, 0] - values.iloc[:, 2]).std() / len(values) ** 0.5)
            means = "; ".join(f"{name} {values[name].mean():.3f}" for name in values)
            print(f"{n} patients, missing {how}: AUC {means} (standard error of a difference {error:.3f})", flush=True)
