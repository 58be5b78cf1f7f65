"""What a risk adds to covariates: patients with out-of-fold risks in; hazard ratios, likelihood ratios and changes of C out.

Cox regressions are stratified by the network that scored a patient, and its risks are standardised among the patients that it
scored: two networks share neither a scale nor a zero. n is the number of patients, k that of columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import chi2, norm

from mri_vit.metrics import within_fold
from mri_vit.metrics.checked import Days, Events, Scores
from mri_vit.metrics.comparison import Z_95, Comparison
from mri_vit.metrics.cox import CoxFit, NotEstimableError, Stratum, fit_cox, out_of_fold
from mri_vit.metrics.discrimination import wilson_of_c
from mri_vit.metrics.imputation import pooled_chi2, rubin
from mri_vit.metrics.within_fold import WithinFold, refitted_comparison, within_fold_c

RISK = "risk"  # the column of the network's risk; covariates have names of their own
COLLINEAR_RISK_TOL = 1e-6  # of a risk's variance in a fold: what covariates leave unexplained below it is rounding


@dataclass(frozen=True, eq=False)
class RepeatScores:
    """The risks of one repeat: `network` is which one scored a patient, `fold` the test fold of the Cox regressions."""

    risk: Scores
    network: Stratum
    fold: Int[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class Patients:
    """Patients whose outcome and covariates are all known. `covariates` has a row each, in numbers, none named `RISK`."""

    days: Days
    died: Events
    covariates: pd.DataFrame
    repeats: Sequence[RepeatScores]


@dataclass(frozen=True)
class HazardRatio:
    """A hazard ratio with its 95 % interval and Wald's p, and the p of the test that it is the same at all times."""

    value: float
    low: float
    high: float
    p: float
    proportional_p: float


@dataclass(frozen=True)
class LikelihoodRatio:
    """Twice the gain in log likelihood by more columns, and how it is judged.

    `given_p` takes the risks as given; `p` allows for the refitting of the networks, whose error is `inflation` times as large.
    """

    chi2: float
    df: int
    given_p: float
    inflation: float
    p: float


@dataclass(frozen=True)
class RiskTest:
    """The risk given the covariates alone: its hazard ratio and its likelihood ratio."""

    hazard_ratio: HazardRatio
    test: LikelihoodRatio


@dataclass(frozen=True)
class Concordance:
    """Harrell's C of pairs within a fold, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class AddedValue:
    """What regressions say. `without`, `alone` and `both` are hazard ratios by column: of covariates, of the risk, of all."""

    n: int
    deaths: int
    coefficients: int  # of the regression on all
    explained: float  # share of the risk's variance within a fold that the covariates explain
    without: dict[str, HazardRatio]
    alone: dict[str, HazardRatio]
    both: dict[str, HazardRatio]
    test: LikelihoodRatio  # of the risk, given the covariates
    reverse: LikelihoodRatio  # of the covariates, given the risk


@dataclass(frozen=True)
class Concordances:
    """C of the covariates, of the risk and of both, and how it changes."""

    c_without: Concordance
    c_alone: Concordance
    c_both: Concordance
    gain: Comparison  # C of both less that of the covariates
    gain_reverse: Comparison  # C of both less that of the risk


def added_value(patients: Patients, inflation: float) -> AddedValue:
    """Hold the risk against the covariates, and the covariates against the risk.

    Formula: χ² = 2 (log L(both) - log L(one)), L the partial likelihood (Efron's ties) stratified by network. Of the risk, the
    signed root of χ² is averaged over repeats, and its square is given; p is that of the root divided by `inflation`, squared, by
    χ² of one degree of freedom, and the interval of the hazard ratio is wider by the same factor. Of the covariates, which no
    network learned, χ² is averaged over repeats, and p is that of χ² of k degrees of freedom.
    Assumption: log hazards are linear in each column; hazards are proportional; censoring is unrelated to survival.
    Source: Cox 1972, doi:10.1111/j.2517-6161.1972.tb00899.x; `within_fold.inflation` for the factor.
    `inflation`: as `within_fold.inflation` gives it; 1 where no network was trained on the patients.
    Raises NotEstimableError where a column has no finite hazard ratio, there are no more deaths than columns, or the risk is a
    linear function of the covariates.
    """
    repeats, explained = _checked(patients)
    without, alone, both = (
        [fit_cox(patients.days, patients.died, columns, scores.network) for columns, scores in zip(tables, repeats, strict=True)]
        for tables in zip(*(_tables(patients, scores) for scores in repeats), strict=True)
    )
    covariates = list(patients.covariates)
    return AddedValue(
        n=len(patients.days),
        deaths=int(patients.died.sum()),
        coefficients=len(covariates) + 1,
        explained=explained,
        without=_ratios(covariates, without, inflation),
        alone=_ratios([RISK], alone, inflation),
        both=_ratios([*covariates, RISK], both, inflation),
        test=_test_of_risk(without, both, inflation),
        reverse=_test_of_covariates(alone, both, len(covariates)),
    )


def concordances(patients: Patients) -> Concordances:
    """C without and with the risk, and its changes; raises NotEstimableError as `added_value` does.

    Definition: Harrell's C of pairs within a fold, of linear predictors whose coefficients come from the patients of the other
    folds (with the prior of the control on clinical columns). Intervals allow for this refitting, also where no network was
    trained on the patients.
    Assumption: no covariate was imputed with the outcome, which a patient's C would then reward; so `patients` are those who have
    every covariate.
    Source: Wahl et al. 2016, doi:10.1186/s12874-016-0239-7: imputed with the outcome, noise has an AUC above 0.5.
    """
    repeats, _ = _checked(patients)
    c_without, c_alone, c_both = zip(*(_each_c(patients, scores) for scores in repeats), strict=True)
    inflated = within_fold.inflation(len(np.unique(repeats[0].fold)), len(repeats))
    return Concordances(
        c_without=_mean_concordance(c_without),
        c_alone=_mean_concordance(c_alone),
        c_both=_mean_concordance(c_both),
        gain=refitted_comparison(c_both, c_without, inflated),
        gain_reverse=refitted_comparison(c_both, c_alone, inflated),
    )


def risk_given_covariates(patients: Patients, inflation: float) -> RiskTest:
    """The risk's part of `added_value`, which raises the same, in a third of the time."""
    repeats, _ = _checked(patients)
    without, both = [], []
    for scores in repeats:
        columns, _, all_columns = _tables(patients, scores)
        without.append(fit_cox(patients.days, patients.died, columns, scores.network))
        both.append(fit_cox(patients.days, patients.died, all_columns, scores.network))
    ratios = _ratios(list(all_columns), both, inflation)
    return RiskTest(ratios[RISK], _test_of_risk(without, both, inflation))


def pooled(tables: Sequence[AddedValue]) -> AddedValue:
    """What several imputed tables of the same patients say together; of one table, that.

    Formula: Rubin's rules for log hazard ratios (`imputation.rubin`), D2 for the likelihood ratios
    (`imputation.pooled_chi2`, of the risk divided by the inflation squared), the median of p of proportional hazards.
    Source: White & Royston 2009, doi:10.1002/sim.3618; Marshall et al. 2009, doi:10.1186/1471-2288-9-57.
    """
    if len(tables) == 1:
        return tables[0]
    return replace(
        tables[0],
        explained=float(np.mean([one.explained for one in tables])),
        **{name: _pooled_ratios([getattr(one, name) for one in tables]) for name in ("without", "alone", "both")},
        **{name: _pooled_test([getattr(one, name) for one in tables]) for name in ("test", "reverse")},
    )


def pooled_risk_test(tables: Sequence[RiskTest]) -> RiskTest:
    """The risk's part of `pooled`."""
    if len(tables) == 1:
        return tables[0]
    ratios = _pooled_ratios([{RISK: one.hazard_ratio} for one in tables])
    return RiskTest(ratios[RISK], _pooled_test([one.test for one in tables]))


def _pooled_ratios(tables: Sequence[dict[str, HazardRatio]]) -> dict[str, HazardRatio]:
    found = {}
    for name in tables[0]:
        ratios = [one[name] for one in tables]
        errors = np.array([math.log(ratio.high / ratio.low) / (2 * Z_95) for ratio in ratios])
        together = rubin(np.log([ratio.value for ratio in ratios]), errors**2)
        value, low, high = np.exp(together.value + together.reach * np.array([0.0, -1.0, 1.0])).tolist()
        found[name] = HazardRatio(value, low, high, together.p, float(np.median([ratio.proportional_p for ratio in ratios])))
    return found


def _pooled_test(tests: Sequence[LikelihoodRatio]) -> LikelihoodRatio:
    chi2, df, inflation = np.array([test.chi2 for test in tests]), tests[0].df, tests[0].inflation
    statistic, given_p = pooled_chi2(chi2, df)
    return LikelihoodRatio(statistic, df, given_p, inflation, pooled_chi2(chi2 / inflation**2, df)[1])


def standardised(risk: Scores, network: Stratum) -> Float[np.ndarray, " n"]:
    """Risks with mean 0 and sample SD 1 among the patients that one network scored; 0 where they are all equal."""
    scaled = np.zeros(len(risk))
    for name in np.unique(network):
        here = network == name
        if np.ptp(risk[here]) > 0:
            scaled[here] = (risk[here] - risk[here].mean()) / risk[here].std(ddof=1)
    return scaled


def _checked(patients: Patients) -> tuple[list[RepeatScores], float]:
    """Each repeat with standardised risks, and the mean of `_explained`. Raises NotEstimableError."""
    n, deaths, coefficients = len(patients.days), int(patients.died.sum()), patients.covariates.shape[1] + 1
    if deaths <= coefficients:
        raise NotEstimableError(f"{deaths} deaths among {n} patients with all covariates known, for {coefficients} coefficients")
    repeats = [replace(scores, risk=standardised(scores.risk, scores.network)) for scores in patients.repeats]
    return repeats, float(np.mean([_explained(patients.covariates.to_numpy(float), scores) for scores in repeats]))


def _explained(columns: Float[np.ndarray, "n k"], scores: RepeatScores) -> float:
    """Share of the risk's variance within folds that the covariates explain, with one slope for all folds.

    Raises NotEstimableError where each fold's own slopes leave nothing unexplained: such a risk is the covariates under another
    name.
    """
    centred, left, total = columns.copy(), 0.0, 0.0
    for name in np.unique(scores.network):
        here = scores.network == name
        centred[here] -= columns[here].mean(axis=0)
        if here.sum() > columns.shape[1] + 1:  # with fewer patients, slopes fit anything
            left += _residual(centred[here], scores.risk[here])
            total += float((scores.risk[here] ** 2).sum())
    if not (scores.risk**2).sum():
        raise NotEstimableError("the risk is the same for all patients of each fold")
    if total and left <= COLLINEAR_RISK_TOL * total:
        raise NotEstimableError("the risk is a linear function of the covariates in every fold (collinear)")
    return 1 - _residual(centred, scores.risk) / float((scores.risk**2).sum())


def _residual(columns: Float[np.ndarray, "n k"], risk: Scores) -> float:
    slopes = np.linalg.lstsq(columns, risk, rcond=None)[0]
    return float(((risk - columns @ slopes) ** 2).sum())


def _tables(patients: Patients, scores: RepeatScores) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Columns of the regressions: the covariates, the risk, and both."""
    risk = pd.DataFrame({RISK: scores.risk}, index=patients.covariates.index)
    return patients.covariates, risk, patients.covariates.join(risk)


def _ratios(names: Sequence[str], fits: Sequence[CoxFit], inflation: float) -> dict[str, HazardRatio]:
    """Means over repeats: of coefficients, and of their variances, for the patients are the same."""
    coefficient = np.mean([fit.coefficient for fit in fits], axis=0)
    error = np.sqrt(np.mean([fit.variance for fit in fits], axis=0))
    proportional_p = np.median([fit.proportional_p for fit in fits], axis=0)
    ratios = {}
    for k, name in enumerate(names):
        reach = error[k] * (inflation if name == RISK else 1.0)
        value, low, high = np.exp(coefficient[k] + reach * np.array([0.0, -Z_95, Z_95])).tolist()
        p = float(2 * norm.sf(abs(coefficient[k]) / reach))
        ratios[name] = HazardRatio(value, low, high, p, float(proportional_p[k]))
    return ratios


def _gains(less: Sequence[CoxFit], more: Sequence[CoxFit]) -> list[float]:
    return [max(0.0, 2 * (b.log_likelihood - a.log_likelihood)) for a, b in zip(less, more, strict=True)]


def _test_of_risk(without: Sequence[CoxFit], both: Sequence[CoxFit], inflation: float) -> LikelihoodRatio:
    sign = np.sign([fit.coefficient[-1] for fit in both])
    root = float(np.mean(sign * np.sqrt(_gains(without, both))))
    given_p, p = (float(chi2.sf((root / factor) ** 2, 1)) for factor in (1.0, inflation))
    return LikelihoodRatio(root**2, 1, given_p, inflation, p)


def _test_of_covariates(alone: Sequence[CoxFit], both: Sequence[CoxFit], k: int) -> LikelihoodRatio:
    mean = float(np.mean(_gains(alone, both)))
    p = float(chi2.sf(mean, k))
    return LikelihoodRatio(mean, k, p, 1.0, p)


def _each_c(patients: Patients, scores: RepeatScores) -> tuple[WithinFold, WithinFold, WithinFold]:
    """C of covariates, of the risk as it is, and of both, each patient by coefficients of the other folds' patients."""
    covariates = patients.covariates.to_numpy(float)
    both = np.column_stack([covariates, scores.risk])
    predicted = (
        out_of_fold(patients.days, patients.died, covariates, scores.network, scores.fold),
        scores.risk,
        out_of_fold(patients.days, patients.died, both, scores.network, scores.fold),
    )
    c_without, c_alone, c_both = (within_fold_c(patients.days, patients.died, risk, scores.fold) for risk in predicted)
    return c_without, c_alone, c_both


def _mean_concordance(repeats: Sequence[WithinFold]) -> Concordance:
    """The mean over repeats, with the interval that the report gives it: variances are those of one repeat."""
    value, variance, error = (float(np.mean([getattr(c, name) for c in repeats])) for name in ("value", "variance", "error"))
    if math.isnan(value):
        return Concordance(math.nan, math.nan, math.nan)
    return Concordance(value, *wilson_of_c(value, variance, error**2, refits=True))
