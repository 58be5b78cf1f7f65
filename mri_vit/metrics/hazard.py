"""What a risk means for survival: hazard ratios and restricted mean survival of n patients, with their intervals.

Times are in days; event is True for a death and False for a patient censored at that time. n is the number of patients.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from lifelines import CoxPHFitter
from lifelines.exceptions import ConvergenceError
from lifelines.statistics import proportional_hazard_test

from mri_vit.metrics.checked import Flags, Numbers, flags, followed, outcome, refuse_unequal
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.survival import kaplan_meier

UNDEFINED = math.nan, math.nan, math.nan
COLUMNS = "days", "died", "x"  # of the table that lifelines fits


@dataclass(frozen=True)
class HazardRatio:
    """A hazard ratio with its 95 % interval, and the p of the test that it is the same at all times; NaN where undefined."""

    value: float
    low: float
    high: float
    proportional_p: float


@dataclass(frozen=True)
class RestrictedMean:
    """Mean survival up to `tau_days` of both groups, and that of high less that of low risk with its 95 % interval."""

    tau_days: float
    low_risk: float
    high_risk: float
    difference: float
    low: float
    high: float


def hazard_ratio_per_sd(time_days: Numbers, event: Flags, risk: Numbers) -> HazardRatio:
    """Hazard ratio of patients whose risk is a standard deviation higher, by Cox regression (lifelines).

    Formula: exp(β) of the hazard h0(t) exp(β risk / SD), SD the sample standard deviation of these patients' risks; partial
    likelihood with Efron's ties; the interval is exp(β ± 1.96 SE). The check of proportional hazards is the two-sided score
    test of Schoenfeld's residuals against the Kaplan-Meier time, as R's cox.zph takes it; a small p says that the ratio changes
    over time.
    Assumption: the log hazard is linear in the risk; hazards are proportional; censoring is unrelated to survival.
    Source: Cox 1972, doi:10.1111/j.2517-6161.1972.tb00899.x; Grambsch & Therneau 1994, doi:10.1093/biomet/81.3.515.

    Returns
    -------
    HazardRatio; all NaN where no finite ratio exists: nobody died, risks are equal, or at every death the patient had the
    highest (or the lowest) risk of those at risk.

    Examples
    --------
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


def restricted_mean_difference(time_days: Numbers, event: Flags, high: Flags, tau_days: float) -> RestrictedMean:
    """Days lived up to `tau_days` by the group `high` less those of the others: the difference of the areas under their curves.

    Formula: the integral of each Kaplan-Meier curve S from 0 to τ, τ being the smaller of `tau_days` and either
    group's longest time; variance of each: sum over deaths' days t_j of (∫ S from t_j to τ)² d_j / (Y_j (Y_j - d_j)), d_j
    deaths among Y_j at risk; the interval is the difference ± 1.96 sqrt(sum of both).
    Assumption: censoring is unrelated to survival. Nothing is assumed of the hazards.
    Source: Royston & Parmar 2013, doi:10.1186/1471-2288-13-152; the variance as in R's survRM2: Klein & Moeschberger 2003,
    section 4.5. (lifelines' `restricted_mean_survival_time` gives the variance of patients' times, not of their mean.)

    Returns
    -------
    RestrictedMean; all NaN where a group is empty; the ends of the interval NaN where nobody died by τ.
    """
    time_days, event = followed(time_days, event)
    high = flags(high, "flags of high risk")
    refuse_unequal(times=len(time_days), flags=len(high))
    if high.all() or not high.any():
        return RestrictedMean(math.nan, math.nan, math.nan, *UNDEFINED)
    tau = float(min(tau_days, time_days[high].max(), time_days[~high].max()))
    (low_risk, low_variance), (high_risk, high_variance) = (
        _restricted_mean(time_days[group], event[group], tau) for group in (~high, high)
    )
    reach = Z_95 * math.sqrt(low_variance + high_variance) or math.nan  # no death is no certainty
    difference = high_risk - low_risk
    return RestrictedMean(tau, low_risk, high_risk, difference, difference - reach, difference + reach)


def _restricted_mean(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], tau: float) -> tuple[float, float]:
    """Mean survival up to tau, and the variance of that mean."""
    curve = kaplan_meier(time_days, event, "S")
    days = np.r_[np.unique(time_days[event & (time_days < tau)]), tau]
    alive = curve.survival_function_at_times(days[:-1]).to_numpy(float)  # after each day with a death, until the next
    beyond = np.cumsum((alive * np.diff(days))[::-1])[::-1]  # ∫ S from each such day to tau
    at_risk = (time_days[:, None] >= days[:-1]).sum(axis=0)
    died = ((time_days[:, None] == days[:-1]) & event[:, None]).sum(axis=0)
    left = at_risk - died
    # Where nobody is left, nothing lies beyond.
    variance = (beyond**2 * died / (at_risk * np.where(left > 0, left, 1))).sum()
    mean = days[0] + (alive * np.diff(days)).sum()  # until the first death everybody is alive
    return float(mean), float(variance)


def _cox(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], x: Float[np.ndarray, " n"]) -> HazardRatio:
    if not _has_maximum(time_days, event, x):
        return HazardRatio(*UNDEFINED, math.nan)
    days, died, column = COLUMNS
    table = pd.DataFrame({days: time_days, died: event, column: x})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow convergence; what does not converge is undefined
        try:
            fit = CoxPHFitter().fit(table, days, died)
            with np.errstate(all="ignore"):
                ends = np.exp([fit.params_[column], *fit.confidence_intervals_.loc[column]])
                changes = proportional_hazard_test(fit, table, time_transform="km").p_value
        except ConvergenceError:
            return HazardRatio(*UNDEFINED, math.nan)
    value, low, high = ends.tolist() if np.isfinite(ends).all() else UNDEFINED
    return HazardRatio(value, low, high, float(np.ravel(changes)[0]))


def _has_maximum(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], x: Float[np.ndarray, " n"]) -> bool:
    """Whether the partial likelihood has a maximum: someone at risk had a higher x than a patient who died, someone a lower."""
    died = x[event, None]
    at_risk = time_days >= time_days[event, None]  # (d, n)
    return bool((at_risk & (x > died)).any() and (at_risk & (x < died)).any())
