"""Cox regressions: the hazard ratio of one risk or of two groups, and stratified regressions of several columns.

n is the number of patients, k that of columns. Times are in days; event (died) is False for a patient censored at that time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import chdtrc

from mri_vit.metrics.checked import Days, Events, Flags, Numbers, flags, followed, outcome, refuse_unequal
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.risk_sets import RiskSets
from mri_vit.metrics.survival import survival_steps

COLLINEAR_TOL = 1e-9  # of a column's variance: what is left of it below, once the others are taken out, is rounding
MAX_STANDARD_ERROR = 100.0  # of a log hazard ratio per standard deviation; where a likelihood rises without end it is thousands
PRIOR_VARIANCE = 1.0  # of a coefficient per standard deviation, out of fold: that of the control on clinical columns
MAX_STEPS, LAST_STEP = 50, 1e-9  # of Newton's method, which needs six to ten; the change that the last may still make

UNDEFINED = math.nan, math.nan, math.nan

Stratum = Int[np.ndarray, " n"]


class NotEstimableError(ValueError):
    """The added value of the risk cannot be estimated from these patients; the message says why."""


@dataclass(frozen=True, eq=False)
class CoxFit:
    """A Cox regression: partial log likelihood, and of each column the log hazard ratio, its variance and `proportional_p`.

    The last is the p of the score test that the log hazard ratio does not change with 1 - S(t-), S the Kaplan-Meier curve of all:
    with g that time, l the deaths, x̄ and V mean and variance of the columns among those at risk, u = sum g (x - x̄) is divided by
    what of sum g² V the information sum V and sum g V leave. Source: Grambsch & Therneau 1994, doi:10.1093/biomet/81.3.515, exact
    as in R's cox.zph since survival 3.0, to which a test holds it.
    """

    log_likelihood: float
    coefficient: Float[np.ndarray, " k"]
    variance: Float[np.ndarray, " k"]
    proportional_p: Float[np.ndarray, " k"]


def fit_cox(days: Days, died: Events, columns: pd.DataFrame, stratum: Stratum) -> CoxFit:
    """Fit log hazards that are linear in the columns, each stratum with a baseline hazard of its own.

    Formula: Efron's partial likelihood, the sum of the strata's, at its top by Newton's method.
    Source: Cox 1972, doi:10.1111/j.2517-6161.1972.tb00899.x; Efron 1977, doi:10.1080/01621459.1977.10480613.
    Raises NotEstimableError that names the column without a finite hazard ratio.
    """
    for name, column in columns.items():
        _refuse_separation(str(name), days, died, column.to_numpy(float), stratum)
    x = columns.to_numpy(float)
    fitted = _at_the_top(days, died, x, stratum)
    errors = np.sqrt(fitted.variance) if fitted else np.full(x.shape[1], np.nan)
    unbounded = np.flatnonzero(~(errors * x.std(axis=0) < MAX_STANDARD_ERROR))
    if fitted is None or len(unbounded):
        named = ", ".join(str(columns.columns[column]) for column in unbounded)
        raise NotEstimableError(
            f"the Cox regression on {', '.join(map(str, columns))} has no finite hazard ratio for {named} "
            f"({int(died.sum())} deaths among {len(died)} patients): together the columns separate those who died, or depend on "
            "each other"
        )
    return fitted


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


def _at_the_top(days: Days, died: Events, x: Float[np.ndarray, "n k"], stratum: Stratum) -> CoxFit | None:
    """The regression where its likelihood is highest; None where it has no such place.

    The top is looked for along directions that do not depend on each other, on which the likelihood is the same.
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
    coefficient = directions @ (per_sd / along.std(axis=0, ddof=1))
    try:
        likelihood, information, score, rest = _curvature(days, died, centred, stratum, coefficient)
        variance = np.diag(np.linalg.inv(information))
    except np.linalg.LinAlgError:
        return None
    statistic = np.divide(score**2, rest, out=np.full_like(score, np.nan), where=rest > 0)
    return CoxFit(likelihood, coefficient, variance, chdtrc(1, statistic))


def _curvature(
    days: Days, died: Events, x: Float[np.ndarray, "n k"], stratum: Stratum, coefficient: Float[np.ndarray, " k"]
) -> tuple[float, Float[np.ndarray, "k k"], Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Log likelihood and information at the coefficients; the score of coefficients that grow with time, and the information on
    each of these that the others leave (see `CoxFit`), 0 where that is rounding: where all that is known is of one day.
    """
    ends, alive = survival_steps(days, died)
    late = 1 - np.r_[1.0, alive][np.searchsorted(ends, days)]  # 1 - S just before a day
    late = late - late[died].mean()  # the test is the same, and its sums are smaller
    k = x.shape[1]
    likelihood, score, informations = 0.0, np.zeros(k), np.zeros((3, k, k))  # by the power of `late`
    for label in np.unique(stratum[died]):
        here = stratum == label
        sets = RiskSets(days[here][None], died[here][None])
        line, at = sets.order[0], sets.dead[0]
        columns, g = x[here][line], late[here][line][at]
        risk = columns @ coefficient
        theta = np.exp(risk - risk.max())
        squares = (columns[:, :, None] * columns[:, None, :]).reshape(-1, k * k)
        hazard, *sums = np.split(sets.at_risk(theta[:, None] * np.c_[np.ones(len(line)), columns, squares]), [1, 1 + k], axis=1)
        mean, square = (of / hazard for of in sums)
        variance = square.reshape(-1, k, k) - mean[:, :, None] * mean[:, None, :]
        likelihood += float((risk[at] - risk.max() - np.log(hazard[:, 0])).sum())
        score += g @ (columns[at] - mean)
        informations += np.tensordot(g ** np.arange(3)[:, None], variance, axes=1)
    information, mixed, late_alone = informations
    rest = np.diag(late_alone - mixed @ np.linalg.solve(information, mixed))
    return likelihood, information, score, np.where(rest > COLLINEAR_TOL * np.diag(late_alone), rest, 0.0)


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


def hazard_ratio_per_sd(time_days: Numbers, event: Flags, risk: Numbers, inflated: float = 1.0) -> HazardRatio:
    """Hazard ratio of patients whose risk is a standard deviation higher, by Cox regression.

    Formula: exp(β) of the hazard h0(t) exp(β risk / SD), SD the sample standard deviation of these patients' risks; partial
    likelihood with Efron's ties; the interval is exp(β ± 1.96 SE), with SE times `inflated` (see
    `within_fold.interval_inflation`) where risks are out of fold. The check of proportional hazards is `CoxFit`'s; a small p says
    that the ratio changes over time.
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
    return _cox(time_days, event, (risk - risk.mean()) / risk.std(ddof=1), inflated)


def hazard_ratio_of_groups(time_days: Numbers, event: Flags, high: Flags, inflated: float = 1.0) -> HazardRatio:
    """Hazard ratio of the group `high` against the others; else as `hazard_ratio_per_sd`."""
    time_days, event = followed(time_days, event)
    high = flags(high, "flags of high risk")
    refuse_unequal(times=len(time_days), flags=len(high))
    return _cox(time_days, event, high.astype(float), inflated)


def _cox(time_days: Days, event: Events, x: Float[np.ndarray, " n"], inflated: float) -> HazardRatio:
    together = np.zeros(len(x), dtype=int)
    try:
        _refuse_separation("the risk", time_days, event, x, together)
    except NotEstimableError:
        return HazardRatio(*UNDEFINED, math.nan)
    fit = _at_the_top(time_days, event, x[:, None], together)
    if not fit:
        return HazardRatio(*UNDEFINED, math.nan)
    log_ratio, reach = float(fit.coefficient[0]), inflated * Z_95 * math.sqrt(float(fit.variance[0]))
    with np.errstate(over="ignore"):
        ends = np.exp([log_ratio, log_ratio - reach, log_ratio + reach])
    value, low, high = ends.tolist() if np.isfinite(ends).all() else UNDEFINED
    return HazardRatio(value, low, high, float(fit.proportional_p[0]))
