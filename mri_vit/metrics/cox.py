"""Cox regressions: the hazard ratio of one risk or of two groups, and stratified regressions of several columns.

n is the number of patients, k that of columns. Times are in days; event (died) is False for a patient censored at that time.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from lifelines import CoxPHFitter
from lifelines.exceptions import ConvergenceError, ConvergenceWarning
from lifelines.statistics import proportional_hazard_test

from mri_vit.metrics.checked import Days, Events, Flags, Numbers, flags, followed, outcome, refuse_unequal
from mri_vit.metrics.risk_sets import RiskSets

COLLINEAR_TOL = 1e-9  # of a column's variance: what is left of it below, once the others are taken out, is rounding
MAX_STANDARD_ERROR = 100.0  # of a log hazard ratio per standard deviation; where a likelihood rises without end it is thousands
PRIOR_VARIANCE = 1.0  # of a coefficient per standard deviation, out of fold: that of the control on clinical columns
DAYS, DIED, STRATUM = "days", "died", "stratum"  # of the table that lifelines fits; columns are x0, x1, … in it
NEWTON_OPTIONS = {"precision": 1e-12, "r_precision": 1e-12}  # of well parted columns; lifelines stops at 1e-7 of a step

MAX_STEPS, LAST_STEP = (
    50,
    1e-9,
)  # steps to where lifelines starts: six to ten are needed; change of a log hazard ratio in the last

UNDEFINED = math.nan, math.nan, math.nan

Stratum = Int[np.ndarray, " n"]


class NotEstimableError(ValueError):
    """The added value of the risk cannot be estimated from these patients; the message says why."""


@dataclass(frozen=True, eq=False)
class CoxFit:
    """A Cox regression: partial log likelihood, and of each column the log hazard ratio, its variance and `proportional_p`.

    The last is the p of the two-sided score test of Schoenfeld's residuals against the Kaplan-Meier time.
    """

    log_likelihood: float
    coefficient: Float[np.ndarray, " k"]
    variance: Float[np.ndarray, " k"]
    proportional_p: Float[np.ndarray, " k"]


def fit_cox(days: Days, died: Events, columns: pd.DataFrame, stratum: Stratum) -> CoxFit:
    """Fit log hazards that are linear in the columns, each stratum with a baseline hazard of its own.

    Formula: Efron's partial likelihood, the sum of the strata's.
    Source: Cox 1972, doi:10.1111/j.2517-6161.1972.tb00899.x; Grambsch & Therneau 1994, doi:10.1093/biomet/81.3.515.
    Raises NotEstimableError that names the column without a finite hazard ratio.
    """
    for name, column in columns.items():
        _refuse_separation(str(name), days, died, column.to_numpy(float), stratum)
    x = columns.to_numpy(float)
    fitted = _at_the_top(days, died, x, stratum)
    errors = fitted.standard_errors_.to_numpy(float) if fitted else np.full(x.shape[1], np.nan)
    unbounded = np.flatnonzero(~(errors * x.std(axis=0) < MAX_STANDARD_ERROR))
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
    days: Days, died: Events, columns: Float[np.ndarray, "n k"], stratum: Stratum, fold: Int[np.ndarray, " n"]
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
        x = columns[train][:, varying]
        per_sd = _highest(days[train], died[train], x, stratum[train], 1 / PRIOR_VARIANCE)
        if per_sd is None:
            raise NotEstimableError(f"the Cox regression without fold {name + 1} did not converge")
        predicted[test] = columns[test][:, varying] @ (per_sd / x.std(axis=0, ddof=1))
    return predicted


def dependent(columns: pd.DataFrame, strata: Sequence[Stratum]) -> dict[str, str]:
    """Columns that a stratified regression cannot distinguish from others, each with what is wrong with it.

    A column is constant within every stratum, or a linear combination of those before it there, in any repeat's `strata`.
    """
    wrong: dict[str, str] = {}
    for stratum in strata:
        axes: list[Float[np.ndarray, " n"]] = []  # orthogonal, of length 1
        for name, column in columns.items():
            values = column.to_numpy(float)
            values = values - pd.Series(values).groupby(stratum).transform("mean").to_numpy()
            size = float(values @ values)
            if size <= COLLINEAR_TOL * max(1.0, float((column**2).sum())):
                wrong.setdefault(str(name), "does not vary within a fold")
                continue
            for _ in range(2):  # once more, against rounding
                for axis in axes:
                    values = values - (values @ axis) * axis
            rest = float(values @ values)
            if rest <= COLLINEAR_TOL * size:
                wrong.setdefault(str(name), "follows from the other covariates")
            else:
                axes.append(values / np.sqrt(rest))
    return wrong


def _table(days: Days, died: Events, columns: Float[np.ndarray, "n k"], stratum: Stratum) -> pd.DataFrame:
    table = pd.DataFrame(columns).add_prefix("x")
    return table.assign(**{DAYS: days, DIED: died, STRATUM: stratum})


def _at_the_top(days: Days, died: Events, x: Float[np.ndarray, "n k"], stratum: Stratum) -> CoxPHFitter | None:
    """The regression where its likelihood is highest; None where it has no such place.

    Where columns nearly depend on each other, lifelines gives up on the way and hands out what it has. So the top is looked for
    along directions that do not (the likelihood is the same), and lifelines starts there in the columns themselves.
    """
    centred = x - pd.DataFrame(x).groupby(stratum).transform("mean").to_numpy()
    triangle = np.linalg.qr(centred, mode="r")
    size = np.abs(np.diag(triangle))
    if len(centred) < x.shape[1] or not (size**2 > COLLINEAR_TOL * (centred**2).sum(axis=0)).all():
        return None
    directions = np.linalg.inv(triangle) * np.sqrt(len(x))
    along = centred @ directions
    per_sd = _highest(days, died, along, stratum)
    if per_sd is None:
        return None
    top = directions @ (per_sd / along.std(axis=0, ddof=1))
    start = top * x.std(axis=0, ddof=1)  # per its own deviation
    return _fitted(CoxPHFitter(), _table(days, died, x, stratum), NEWTON_OPTIONS, start)


def _highest(
    days: Days, died: Events, x: Float[np.ndarray, "n k"], stratum: Stratum, prior: float = 0.0
) -> Float[np.ndarray, " k"] | None:
    """Log hazard ratios per standard deviation of the highest likelihood (Efron's ties), by Newton's method; None where it does
    not end. As lifelines' `CoxPHFitter(penalizer=prior / n)`, whose steps are shorter and take ten times as long.

    `prior`: reciprocal of the variance of the normal prior of each.
    """
    z = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)
    members = [np.flatnonzero(stratum == label) for label in np.unique(stratum[died])]
    parts = [(z[here], died[here], RiskSets(days[here][None], died[here][None])) for here in members]
    beta, step, rise = np.zeros(z.shape[1]), np.zeros(z.shape[1]), 0.0
    only = np.array([0])
    with np.errstate(all="ignore"):  # a step that is too long ends in no number, and is halved
        for _ in range(MAX_STEPS):
            slope, curvature = -prior * beta, prior * np.eye(len(beta))
            for rows, dead, sets in parts:
                theta, expected, share = sets.deaths((rows @ beta)[None], only)
                mean = sets.mean_at_risk(rows, 0, theta[0], share[0])
                slope += (dead - expected[0]) @ rows
                curvature += (rows.T * expected[0]) @ rows - mean.T @ mean
            if not np.isfinite(slope).all() or slope @ step < -rise / 2:  # far beyond the top, or about as steep as before it
                step, rise = step / 2, rise / 2
                beta = beta - step
                continue
            try:
                step = np.linalg.solve(curvature, slope)
            except np.linalg.LinAlgError:
                return None
            beta, rise = beta + step, float(slope @ step)
            if np.abs(step).max() < LAST_STEP:
                return beta
    return None


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


def _refuse_separation(name: str, days: Days, died: Events, x: Float[np.ndarray, " n"], stratum: Stratum) -> None:
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


@dataclass(frozen=True)
class HazardRatio:
    """A hazard ratio with its 95 % interval, and the p of the test that it is the same at all times; NaN where undefined."""

    value: float
    low: float
    high: float
    proportional_p: float


def hazard_ratio_per_sd(time_days: Numbers, event: Flags, risk: Numbers) -> HazardRatio:
    """Hazard ratio of patients whose risk is a standard deviation higher, by Cox regression (lifelines).

    Formula: exp(β) of the hazard h0(t) exp(β risk / SD), SD the sample standard deviation of these patients' risks; partial
    likelihood with Efron's ties; the interval is exp(β ± 1.96 SE). The check of proportional hazards is the two-sided score
    test of Schoenfeld's residuals against the Kaplan-Meier time, as R's cox.zph takes it; a small p says that the ratio changes
    over time.
    Assumption: the log hazard is linear in the risk; hazards are proportional; censoring is unrelated to survival.
    Source: Cox 1972, doi:10.1111/j.2517-6161.1972.tb00899.x; Grambsch & Therneau 1994, doi:10.1093/biomet/81.3.515.
    Returns: HazardRatio; all NaN where no finite ratio exists: no patient died, risks are equal, or at every death the patient
    had the highest (or the lowest) risk of those at risk.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0, 600.0])
    >>> event = np.array([1, 1, 0, 1, 0, 1])
    >>> risk = np.array([0.9, 0.4, 0.6, 0.5, 0.1, 0.2])
    >>> found = hazard_ratio_per_sd(time_days, event, risk)
    >>> print(f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]")
    7.3 [0.6, 89.3]
    """
    time_days, event, risk = outcome(time_days, event, risk)
    if len(risk) < 2 or not np.ptp(risk) > 0:
        return HazardRatio(*UNDEFINED, math.nan)
    return _cox(time_days, event, (risk - risk.mean()) / risk.std(ddof=1))


def hazard_ratio_of_groups(time_days: Numbers, event: Flags, high: Flags) -> HazardRatio:
    """Hazard ratio of the group `high` against the others; else as `hazard_ratio_per_sd`."""
    time_days, event = followed(time_days, event)
    high = flags(high, "flags of high risk")
    refuse_unequal(times=len(time_days), flags=len(high))
    return _cox(time_days, event, high.astype(float))


def _cox(time_days: Days, event: Events, x: Float[np.ndarray, " n"]) -> HazardRatio:
    if not _has_maximum(time_days, event, x):
        return HazardRatio(*UNDEFINED, math.nan)
    table = pd.DataFrame({DAYS: time_days, DIED: event, "x": x})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow convergence; what does not converge is undefined
        try:
            fit = CoxPHFitter().fit(table, DAYS, DIED)
            with np.errstate(all="ignore"):
                ends = np.exp([fit.params_["x"], *fit.confidence_intervals_.loc["x"]])
                changes = proportional_hazard_test(fit, table, time_transform="km").p_value
        except ConvergenceError:
            return HazardRatio(*UNDEFINED, math.nan)
    value, low, high = ends.tolist() if np.isfinite(ends).all() else UNDEFINED
    return HazardRatio(value, low, high, float(np.ravel(changes)[0]))


def _has_maximum(time_days: Days, event: Events, x: Float[np.ndarray, " n"]) -> bool:
    """Whether the partial likelihood has a maximum: someone at risk had a higher x than a patient who died, someone a lower."""
    died = x[event, None]
    at_risk = time_days >= time_days[event, None]  # (d, n)
    return bool((at_risk & (x > died)).any() and (at_risk & (x < died)).any())
