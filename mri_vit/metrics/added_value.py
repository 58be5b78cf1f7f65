"""What a risk adds to covariates: patients with out-of-fold risks in; hazard ratios, likelihood ratios and changes of C out.

Cox regressions are stratified by the network that scored a patient, and its risks are standardised among the patients that it
scored: two networks share neither a scale nor a zero. n is the number of patients, k that of columns. Times are in days; died is
False for a patient censored at that time.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from lifelines import CoxPHFitter
from lifelines.exceptions import ConvergenceError, ConvergenceWarning
from lifelines.statistics import proportional_hazard_test
from scipy.stats import chi2, norm

from mri_vit.metrics.auc_interval import wilson_of_c
from mri_vit.metrics.delong import Z_95, Comparison
from mri_vit.metrics.within_fold import WithinFold, compared, within_fold_c

RISK = "risk"  # the column of the network's risk; covariates have names of their own
COLLINEAR_RISK = 1e-6  # of a risk's variance in a fold: what covariates leave unexplained below it is rounding
COLLINEAR_COLUMN = 1e-9  # of a column's variance: what is left of it below, once the others are taken out, is rounding
LARGEST_ERROR = 100.0  # of a log hazard ratio per standard deviation; where a likelihood rises without end it is thousands
PRIOR_VARIANCE = 1.0  # of a coefficient per standard deviation, out of fold: that of the control on clinical columns
DAYS, DIED, STRATUM = "days", "died", "stratum"  # of the table that lifelines fits; columns are x0, x1, … in it
TO_THE_TOP = {"precision": 1e-12, "r_precision": 1e-12}  # of well parted columns; lifelines stops at 1e-7 of a step
WITH_PRIOR = {"precision": 1e-14, "r_precision": 1e-14, "step_size": 0.5}  # at 0.95 it may run away with many columns

Days = Float[np.ndarray, " n"]
Died = Bool[np.ndarray, " n"]
Stratum = Int[np.ndarray, " n"]


class NotEstimableError(ValueError):
    """These patients cannot tell what the risk adds; the message says why."""


@dataclass(frozen=True, eq=False)
class RepeatScores:
    """The risks of one repeat: `network` is which one scored a patient, `fold` the test fold of the Cox regressions."""

    risk: Float[np.ndarray, " n"]
    network: Stratum
    fold: Int[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class Patients:
    """Patients whose outcome and covariates are all known. `covariates` has a row each, in numbers, none named `RISK`."""

    days: Days
    died: Died
    covariates: pd.DataFrame
    repeats: Sequence[RepeatScores]


@dataclass(frozen=True, eq=False)
class CoxFit:
    """A Cox regression: partial log likelihood, and of each column the log hazard ratio, its variance and `proportional_p`.

    The last is the p of the two-sided score test of Schoenfeld's residuals against the Kaplan-Meier time.
    """

    log_likelihood: float
    coefficient: Float[np.ndarray, " k"]
    variance: Float[np.ndarray, " k"]
    proportional_p: Float[np.ndarray, " k"]


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
class Concordance:
    """Harrell's C of pairs within a fold, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class AddedValue:
    """All that is measured. `without`, `alone` and `both` are hazard ratios by column: of covariates, of the risk, of all."""

    n: int
    deaths: int
    coefficients: int  # of the regression on all
    explained: float  # share of the risk's variance within a fold that the covariates explain
    without: dict[str, HazardRatio]
    alone: dict[str, HazardRatio]
    both: dict[str, HazardRatio]
    test: LikelihoodRatio  # of the risk, given the covariates
    reverse: LikelihoodRatio  # of the covariates, given the risk
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
    network learned, χ² is averaged over repeats, and p is that of χ² of k degrees of freedom. C is that of pairs within a fold,
    of linear predictors whose coefficients come from the patients of the other folds (with the prior of the control on clinical
    columns).
    Assumption: log hazards are linear in each column; hazards are proportional; censoring is unrelated to survival.
    Source: Cox 1972, doi:10.1111/j.2517-6161.1972.tb00899.x; `within_fold.inflation` for the factor.

    Parameters
    ----------
    inflation : as `within_fold.inflation` gives it; 1 where no network was trained on the patients.

    Raises
    ------
    NotEstimableError where a column has no finite hazard ratio, there are no more deaths than columns, or the risk is a linear
    function of the covariates.
    """
    repeats = [replace(scores, risk=standardised(scores.risk, scores.network)) for scores in patients.repeats]
    n, deaths, k = len(patients.days), int(patients.died.sum()), patients.covariates.shape[1]
    if deaths <= k + 1:
        raise NotEstimableError(f"{deaths} deaths among {n} patients with all covariates known, for {k + 1} coefficients")
    explained = float(np.mean([_explained(patients.covariates.to_numpy(float), scores) for scores in repeats]))
    without, alone, both = zip(*(_fits(patients, scores) for scores in repeats), strict=True)
    c_without, c_alone, c_both = zip(*(_concordances(patients, scores) for scores in repeats), strict=True)
    covariates = list(patients.covariates)
    return AddedValue(
        n=n,
        deaths=deaths,
        coefficients=k + 1,
        explained=explained,
        without=_ratios(covariates, without, inflation),
        alone=_ratios([RISK], alone, inflation),
        both=_ratios([*covariates, RISK], both, inflation),
        test=_test_of_risk(_gains(without, both), [fit.coefficient[-1] for fit in both], inflation),
        reverse=_test_of_covariates(_gains(alone, both), k),
        c_without=_mean_concordance(c_without),
        c_alone=_mean_concordance(c_alone),
        c_both=_mean_concordance(c_both),
        gain=compared(c_both, c_without, inflation),
        gain_reverse=compared(c_both, c_alone, inflation),
    )


def standardised(risk: Float[np.ndarray, " n"], network: Stratum) -> Float[np.ndarray, " n"]:
    """Risks with mean 0 and sample SD 1 among the patients that one network scored; 0 where they are all equal."""
    scaled = np.zeros(len(risk))
    for name in np.unique(network):
        here = network == name
        if np.ptp(risk[here]) > 0:
            scaled[here] = (risk[here] - risk[here].mean()) / risk[here].std(ddof=1)
    return scaled


def fit_cox(days: Days, died: Died, columns: pd.DataFrame, stratum: Stratum) -> CoxFit:
    """Fit log hazards that are linear in the columns, each stratum with a baseline hazard of its own.

    Formula: Efron's partial likelihood, the sum of the strata's.
    Source: Cox 1972, doi:10.1111/j.2517-6161.1972.tb00899.x; Grambsch & Therneau 1994, doi:10.1093/biomet/81.3.515.

    Raises
    ------
    NotEstimableError that names the column without a finite hazard ratio.
    """
    for name, column in columns.items():
        _refuse_separation(str(name), days, died, column.to_numpy(float), stratum)
    x = columns.to_numpy(float)
    fitted = _at_the_top(days, died, x, stratum)
    errors = fitted.standard_errors_.to_numpy(float) if fitted else np.full(x.shape[1], np.nan)
    unbounded = np.flatnonzero(~(errors * x.std(axis=0) < LARGEST_ERROR))
    if fitted is None or len(unbounded):
        named = ", ".join(str(columns.columns[column]) for column in unbounded)
        raise NotEstimableError(
            f"the Cox regression on {', '.join(map(str, columns))} has no finite hazard ratio for {named} "
            f"({int(died.sum())} deaths among {len(died)} patients): together the columns separate those who died, or depend on "
            "each other"
        )
    with np.errstate(all="ignore"):
        test = proportional_hazard_test(fitted, _table(days, died, x, stratum), time_transform="km")
    proportional_p = np.ravel(test.p_value).astype(float)
    return CoxFit(float(fitted.log_likelihood_), fitted.params_.to_numpy(float), errors**2, proportional_p)


def out_of_fold(
    days: Days, died: Died, columns: Float[np.ndarray, "n k"], stratum: Stratum, fold: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Each patient's linear predictor by coefficients of the patients of the other folds; 0 where none of these died.

    A coefficient per standard deviation has the prior of the control on clinical columns, so that few deaths do no harm. A column
    that does not vary among the other patients is not used.
    """
    predicted = np.zeros(len(days))
    for name in np.unique(fold):
        test = fold == name
        train = ~test
        varying = columns[train].std(axis=0) > 0
        if not varying.any() or not died[train].any():
            continue
        table = _table(days[train], died[train], columns[train][:, varying], stratum[train])
        penalty = 1 / (PRIOR_VARIANCE * int(train.sum()))  # lifelines divides the likelihood by n
        fitted = _fitted(CoxPHFitter(penalizer=penalty), table, WITH_PRIOR)
        if fitted is None:
            raise NotEstimableError(f"the Cox regression without fold {name + 1} did not converge")
        predicted[test] = columns[test][:, varying] @ fitted.params_.to_numpy(float)
    return predicted


def dependent(columns: pd.DataFrame, strata: Sequence[Stratum]) -> dict[str, str]:
    """Columns that a stratified regression cannot tell from others, each with what is wrong with it.

    A column is constant within every stratum, or a linear combination of those before it there, in any repeat's `strata`.
    """
    wrong: dict[str, str] = {}
    for stratum in strata:
        axes: list[Float[np.ndarray, " n"]] = []  # orthogonal, of length 1
        for name, column in columns.items():
            values = column.to_numpy(float)
            values = values - pd.Series(values).groupby(stratum).transform("mean").to_numpy()
            size = float(values @ values)
            if size <= COLLINEAR_COLUMN * max(1.0, float((column**2).sum())):
                wrong.setdefault(str(name), "does not vary within a fold")
                continue
            for _ in range(2):  # once more, against rounding
                for axis in axes:
                    values = values - (values @ axis) * axis
            rest = float(values @ values)
            if rest <= COLLINEAR_COLUMN * size:
                wrong.setdefault(str(name), "follows from the other covariates")
            else:
                axes.append(values / np.sqrt(rest))
    return wrong


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
    if total and left <= COLLINEAR_RISK * total:
        raise NotEstimableError("the risk is a linear function of the covariates in every fold (collinear)")
    return 1 - _residual(centred, scores.risk) / float((scores.risk**2).sum())


def _residual(columns: Float[np.ndarray, "n k"], risk: Float[np.ndarray, " n"]) -> float:
    slopes = np.linalg.lstsq(columns, risk, rcond=None)[0]
    return float(((risk - columns @ slopes) ** 2).sum())


def _fits(patients: Patients, scores: RepeatScores) -> tuple[CoxFit, CoxFit, CoxFit]:
    """Cox regressions on the covariates, on the risk, and on both."""
    risk = pd.DataFrame({RISK: scores.risk}, index=patients.covariates.index)
    tables = patients.covariates, risk, patients.covariates.join(risk)
    without, alone, both = (fit_cox(patients.days, patients.died, table, scores.network) for table in tables)
    return without, alone, both


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


def _test_of_risk(gains: Sequence[float], coefficients: Sequence[float], inflation: float) -> LikelihoodRatio:
    root = float(np.mean(np.sign(coefficients) * np.sqrt(gains)))
    given_p, p = (float(chi2.sf((root / factor) ** 2, 1)) for factor in (1.0, inflation))
    return LikelihoodRatio(root**2, 1, given_p, inflation, p)


def _test_of_covariates(gains: Sequence[float], k: int) -> LikelihoodRatio:
    mean = float(np.mean(gains))
    p = float(chi2.sf(mean, k))
    return LikelihoodRatio(mean, k, p, 1.0, p)


def _concordances(patients: Patients, scores: RepeatScores) -> tuple[WithinFold, WithinFold, WithinFold]:
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


def _table(days: Days, died: Died, columns: Float[np.ndarray, "n k"], stratum: Stratum) -> pd.DataFrame:
    table = pd.DataFrame(columns).add_prefix("x")
    return table.assign(**{DAYS: days, DIED: died, STRATUM: stratum})


def _at_the_top(days: Days, died: Died, x: Float[np.ndarray, "n k"], stratum: Stratum) -> CoxPHFitter | None:
    """The regression where its likelihood is highest; None where it has no such place.

    Where columns nearly depend on each other, lifelines gives up on the way and hands out what it has. So it climbs along
    directions that do not (the likelihood is the same), and then starts at the end in the columns themselves.
    """
    centred = x - pd.DataFrame(x).groupby(stratum).transform("mean").to_numpy()
    triangle = np.linalg.qr(centred, mode="r")
    size = np.abs(np.diag(triangle))
    if len(centred) < x.shape[1] or not (size**2 > COLLINEAR_COLUMN * (centred**2).sum(axis=0)).all():
        return None
    directions = np.linalg.inv(triangle) * np.sqrt(len(x))
    climbed = _fitted(CoxPHFitter(), _table(days, died, centred @ directions, stratum), TO_THE_TOP)
    if climbed is None:
        return None
    top = directions @ climbed.params_.to_numpy(float)
    start = top * x.std(axis=0, ddof=1)  # per its own deviation
    return _fitted(CoxPHFitter(), _table(days, died, x, stratum), TO_THE_TOP, start)


def _fitted(
    regression: CoxPHFitter, table: pd.DataFrame, options: dict[str, float], start: Float[np.ndarray, " k"] | None = None
) -> CoxPHFitter | None:
    """The regression, fitted; None where it does not converge, of which lifelines may do no more than warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow convergence; who asks looks at the errors
        warnings.filterwarnings("error", message="Newton-Raphson")
        try:
            return regression.fit(table, DAYS, DIED, strata=[STRATUM], fit_options=options, initial_point=start)
        except (ConvergenceError, ConvergenceWarning, np.linalg.LinAlgError):
            return None


def _refuse_separation(name: str, days: Days, died: Died, x: Float[np.ndarray, " n"], stratum: Stratum) -> None:
    """Raise NotEstimableError unless a death had a lower x than a patient then at risk in the stratum, and one had a higher."""
    above = below = False
    for label in np.unique(stratum):
        order = np.flatnonzero(stratum == label)
        order = order[np.argsort(-days[order], kind="stable")]  # the longest first: those at risk are a beginning
        last = np.searchsorted(-days[order], -days[order], side="right") - 1  # patients of equal days are at risk together
        highest, lowest = np.maximum.accumulate(x[order])[last], np.minimum.accumulate(x[order])[last]
        above = above or bool((highest > x[order])[died[order]].any())
        below = below or bool((lowest < x[order])[died[order]].any())
    if not (above and below):
        raise NotEstimableError(
            f"{name}: at every death the patient had the {'lowest' if above else 'highest'} value of those at risk in the fold, "
            "so that its hazard ratio has no finite estimate"
        )
