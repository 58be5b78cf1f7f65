"""All that is measured of one model on one survival endpoint: its rows in, a result of `metrics.json` out.

Every resampling starts its own generator from the study's seed, so that models of the same patients share their draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.metrics import concordance, cox, decision, intervals, ipcw, within_fold
from mri_vit.metrics import survival as curves
from mri_vit.metrics.discrimination import wilson_of_c
from mri_vit.report.numbers import chance, competing, judged
from mri_vit.report.numbers.chance import Background
from mri_vit.report.numbers.judged import (
    THRESHOLDS,
    Outcome,
    averaged,
    by_fold,
    calibration_groups,
    first_repeat,
    flags,
    floats,
    fold_of,
    fold_summary,
    outcome,
    risk_groups,
)
from mri_vit.report.schema.measured import TABLE_DAYS, TAU_DAYS, Caveats, Measurement
from mri_vit.report.schema.parts import NOT_TRAINED_ON, Band, Design, Estimate, Value
from mri_vit.report.schema.survival import (
    AucAt,
    BrierAt,
    CalibrationAt,
    DecisionAt,
    Group,
    Hazard,
    HazardRatio,
    IntegratedBrier,
    Logrank,
    OverTime,
    RestrictedMean,
    RiskGroup,
    SurvivalFigures,
    SurvivalFold,
    UnoC,
)
from mri_vit.settings.schema import Endpoint

# n is the number of patients

DECISION_DAYS = TABLE_DAYS[1:]  # by 6 months few have died, and a decision would rest on them
YEAR = 365.0  # of what is measured at one day of a part of a cohort: by two years few are left of it
NEAR_DAYS = 15.0  # half a month: a horizon of 180 or 366 days is still that of 6 or 12 months
TICK_STEPS_DAYS = (30, 60, 90, 180, 365, 730, 1825)  # months and years, as survival is read
SMALLEST_CHANCE = 1e-6  # to live or to die: beyond, log(-log S) has no end
MAX_TICKS = 7  # more columns of numbers at risk than this run into each other at a figure's width


def measure(endpoint: Endpoint, rows: pd.DataFrame, alive: pd.DataFrame, background: Background, seed: int) -> Measurement:
    """One model by itself.

    Parameters
    ----------
    rows : as `judged.known_rows` gives them, one for each patient and repeat; at least one. Times are in days.
    alive : predicted probabilities of survival, a row per patient and a column per horizon in days; it may be empty.
    background : what the test against chance rests on.
    seed : of the study.
    """
    pooled = averaged(rows)
    seen = outcome(pooled)
    tested = chance.measure(endpoint, rows, background)
    inflated = chance.inflation(first_repeat(rows), background.design)  # of one repeat: a mean risk's models share their patients
    refits = background.design not in NOT_TRAINED_ON
    harrell = of_harrell(seen, refits)
    folds = tuple(_fold(repeat, fold, here) for repeat, fold, here in by_fold(rows))
    figures = SurvivalFigures(
        n=len(pooled),
        events=int(seen.event.sum()),
        others=judged.others(pooled),
        judged=tested.judged,
        retraining=tested.retraining,
        within_sites=tested.within_sites,
        harrell_c=harrell,
        harrell_c_half_width=(harrell.high - harrell.low) / 2,
        harrell_c_within_folds=Value(value=_within(rows)) if judged.has_folds(rows) else None,
        uno_c=_uno(seen, refits),
        **vars(_auc_over_time(seen, table_days(alive.columns), seed, refits)),
        **vars(of_probabilities(pooled, alive, seed, inflated)),
        **vars(of_risk_groups(rows, tested.judged.value, background.design)),
        hazard=hazard_ratios(seen, rows, tested.judged.value, background.design),
        folds=folds,
        competing=competing.of_groups(rows, background.design),
        **vars(fold_summary(folds, [fold.harrell_c for fold in folds])),
    )
    return Measurement(figures, tested.chance_test, caveats(endpoint, rows))


def caveats(endpoint: Endpoint, rows: pd.DataFrame) -> Caveats:
    """What limits the result."""
    once = first_repeat(rows)
    seen = outcome(once)
    pooled = concordance.harrell_c(seen.time_days, seen.event, seen.risk)
    return Caveats(
        tied=judged.tied(floats(averaged(rows).score)),
        apart=chance.scales_apart(endpoint, rows, pooled, _within(once)),
        outside=0,
        like_truth=pooled == 1.0,  # no pair out of order, in all folds together
        gap=math.nan,
        has_cutoffs=judged.has_cutoffs(rows),
    )


def table_days(horizons: Iterable[float]) -> tuple[float, ...]:
    """The days of the tables at 6, 12 and 24 months: of each the nearest horizon, if it is near enough, else the day itself."""
    own = list(horizons)
    return tuple(float(wanted if (day := horizon(own, wanted)) is None else day) for wanted in TABLE_DAYS)


def decision_days(horizons: Iterable[float | int]) -> list[float | int]:
    """The horizons at which net benefit is measured: one for 12 and one for 24 months."""
    own = list(horizons)
    return [day for wanted in DECISION_DAYS if (day := horizon(own, wanted)) is not None]


def horizon(horizons: Iterable[float | int], wanted: float | int = YEAR) -> float | int | None:
    """The one horizon of an endpoint that stands for a day, the nearest one; None where none is near enough."""
    near = [day for day in horizons if abs(day - wanted) <= NEAR_DAYS]
    return min(near, key=lambda day: abs(day - wanted), default=None)


@dataclass(frozen=True)
class OfProbabilities:
    """Fields of a result that need predicted probabilities of survival; empty without any."""

    brier_at: tuple[BrierAt, ...] = ()
    integrated_brier: IntegratedBrier | None = None
    calibration_at: tuple[CalibrationAt, ...] = ()
    decision_at: tuple[DecisionAt, ...] = ()
    curve: OverTime | None = None


def of_probabilities(pooled: pd.DataFrame, alive: pd.DataFrame, seed: int, inflated: float) -> OfProbabilities:
    """Brier scores, calibration and the curves over all horizons, of patients with predicted probabilities of survival.

    `reference` predicts the Kaplan-Meier curve of all patients for each, or what the cumulative incidence leaves. Intervals, but
    O:E's, are `inflated` times as wide as for predictions as given.
    """
    alive = alive.loc[alive.index.isin(pooled.patient)]
    if not len(alive):
        return OfProbabilities()
    people = pooled.set_index("patient").loc[alive.index]
    seen = outcome(people)
    days, chances = alive.columns.to_numpy(dtype=float), alive.to_numpy(dtype=float)
    brier = ipcw.brier_at(seen.time_days, seen.event, chances, days, seen.other)
    reference = ipcw.brier_of_kaplan_meier(seen.time_days, seen.event, days, seen.other)
    same_curve = np.tile(curves.survival_at(seen.time_days, seen.event, days, seen.other), (len(people), 1))  # one for all
    listed = table_days(days)
    shown = [(column, _written(day)) for column, day in enumerate(days) if day in listed]
    draws = np.random.default_rng(seed)
    ends = ipcw.integrated_brier_intervals(seen.time_days, seen.event, chances, days, draws, other=seen.other)
    of_score, of_scaled = ((float(low), float(high)) for low, high in ends.T)
    score = ipcw.integrated_brier(seen.time_days, seen.event, chances, days, seen.other)
    scaled = ipcw.scaled_integrated_brier(seen.time_days, seen.event, chances, days, seen.other)
    return OfProbabilities(
        brier_at=tuple(BrierAt(days=day, value=float(brier[c]), reference=float(reference[c])) for c, day in shown),
        integrated_brier=IntegratedBrier(
            **judged.widened(score, of_score, inflated, least=0.0),
            reference=ipcw.integrated_brier(seen.time_days, seen.event, same_curve, days, seen.other),
            scaled=Estimate(**judged.widened(scaled, of_scaled, inflated, most=1.0)),
        ),
        calibration_at=tuple(_calibration(seen, chances[:, column], day, seed, inflated) for column, day in shown),
        decision_at=tuple(
            _decision(seen, 1 - chances[:, column], day, inflated) for column, day in shown if decision_days([day])
        ),
        curve=OverTime(
            days=tuple(days.tolist()),
            auc=tuple(ipcw.cumulative_dynamic_auc(seen.time_days, seen.event, seen.risk, days, seen.other).tolist()),
            brier=tuple(brier.tolist()),
            reference=tuple(reference.tolist()),
        ),
    )


def _calibration(seen: Outcome, alive: Float[np.ndarray, " n"], day: float | int, seed: int, inflated: float) -> CalibrationAt:
    """Predicted against observed survival at a day.

    The slope is the coefficient of log(-log S) in a Cox regression (Crowson et al. 2016, doi:10.1177/0962280213497434), which
    says nothing of a cumulative incidence; the smooth curve is of pseudo-values (Gerds et al. 2014, doi:10.1002/sim.6152). O:E,
    with its interval, is of Kaplan and Meier's curve, or of the cumulative incidence.
    """
    log_hazard = np.log(-np.log(alive.clip(SMALLEST_CHANCE, 1 - SMALLEST_CHANCE)))
    per_sd = cox.hazard_ratio_per_sd(seen.time_days, seen.event, log_hazard, inflated)  # NaN where nothing varies
    ends = [getattr(per_sd, end) for end in Estimate.model_fields]
    slope = [math.log(end) / float(np.std(log_hazard, ddof=1)) if end > 0 else math.nan for end in ends]
    whole = curves.calibration_at(seen.time_days, seen.event, alive, float(day), groups=1, other=seen.other)
    expected = 1 - float(whole.predicted[0]) or math.nan  # where no patient is expected to die, the ratio is undefined
    died = [(1 - float(share[0])) / expected for share in (whole.observed, whole.high, whole.low)]  # few alive: many died
    observed = curves.pseudo_survival(seen.time_days, seen.event, float(day), seen.other)
    return CalibrationAt(
        days=day,
        groups=calibration_groups(curves.calibration_at(seen.time_days, seen.event, alive, float(day), other=seen.other)),
        slope=Estimate(**dict(zip(Estimate.model_fields, slope, strict=True))) if seen.other is None else None,
        observed_to_expected=Estimate(**dict(zip(Estimate.model_fields, died, strict=True))),
        **(judged.smooth(observed, alive, seed, inflated) if np.isfinite(observed).all() else {}),
    )


def of_harrell(seen: Outcome, refits: bool) -> Estimate:
    """Harrell's C of all pairs."""
    found = within_fold.within_fold_c(seen.time_days, seen.event, seen.risk, np.zeros(len(seen.risk)))
    low, high = wilson_of_c(found.value, found.variance, found.error**2, refits)
    return Estimate(value=found.value, low=low, high=high)


def _uno(seen: Outcome, refits: bool) -> UnoC:
    tau = min(TAU_DAYS, float(seen.time_days.max()))  # not beyond the follow-up
    low, high = concordance.uno_interval(seen.time_days, seen.event, seen.risk, tau, refits, seen.other)
    value = concordance.uno_c(seen.time_days, seen.event, seen.risk, tau, seen.other)
    return UnoC(value=value, low=low, high=high, tau_days=tau)


@dataclass(frozen=True)
class OverDays:
    """Fields of a result about the AUC over time."""

    auc_at: tuple[AucAt, ...]
    mean_auc: float


def _auc_over_time(seen: Outcome, listed: tuple[float, ...], seed: int, refits: bool) -> OverDays:
    days = np.array(listed)
    draws = np.random.default_rng(seed)
    values = ipcw.cumulative_dynamic_auc(seen.time_days, seen.event, seen.risk, days, seen.other)
    low, high = ipcw.auc_at_interval(seen.time_days, seen.event, seen.risk, days, draws, refits=refits, other=seen.other)
    known = [ipcw.cases_and_controls(seen.time_days, seen.event, day, seen.other) for day in listed]
    at = tuple(
        AucAt(
            days=_written(day),
            value=float(values[column]),
            low=float(low[column]),
            high=float(high[column]),
            cases=known[column][0],
            controls=known[column][1],
        )
        for column, day in enumerate(listed)
    )
    return OverDays(at, ipcw.mean_cumulative_dynamic_auc(seen.time_days, seen.event, seen.risk, days, seen.other))


def _written(day: float) -> float | int:
    """Whole days without a decimal point."""
    return int(day) if float(day).is_integer() else float(day)


def _decision(seen: Outcome, death: Float[np.ndarray, " n"], day: float | int, inflated: float) -> DecisionAt:
    people = decision.ByDay(seen.time_days, seen.event, death, float(day), seen.other)
    benefit = decision.survival_net_benefit(people, THRESHOLDS)
    of_all = decision.survival_net_benefit(people._replace(chance=np.ones(len(death))), THRESHOLDS)
    low, high = intervals.widened(benefit, *decision.survival_net_benefit_band(people, THRESHOLDS), inflated)
    return DecisionAt(
        days=day,
        net_benefit=tuple(benefit.tolist()),
        net_benefit_band=Band(low=tuple(low.tolist()), high=tuple(high.clip(None, 1).tolist())),
        net_benefit_of_all=tuple(of_all.tolist()),
    )


def _within(rows: pd.DataFrame) -> float:
    return concordance.harrell_c_within(floats(rows.time_days), flags(rows.event), floats(rows.score), fold_of(rows))


def _fold(repeat: int, fold: int, here: pd.DataFrame) -> SurvivalFold:
    return SurvivalFold(
        repeat=repeat,
        fold=fold,
        n=len(here),
        events=int(here.event.sum()),
        others=judged.others(here),
        tied=judged.tied(floats(here.score)),
        harrell_c=concordance.harrell_c(floats(here.time_days), flags(here.event), floats(here.score)),
    )


@dataclass(frozen=True)
class OfRiskGroups:
    """Fields of a result about the groups of low and of high risk."""

    logrank: Logrank
    restricted_mean: RestrictedMean
    at_risk_days: tuple[int, ...]
    groups: dict[RiskGroup, Group]


def of_risk_groups(rows: pd.DataFrame, c: float, design: Design) -> OfRiskGroups:
    """Log-rank test, restricted means, numbers at risk and medians of the groups of low and of high risk; `c` is judged.

    With a competing event the test compares the hazards of the event alone, and means and medians are undefined.
    """
    grouped = risk_groups(rows)
    ticks = risk_ticks(float(grouped.time_days.max()))
    split = floats(grouped.time_days), flags(grouped.event), flags(grouped.high)
    chi2, given_p = curves.logrank(*split)
    inflated = chance.inflation(first_repeat(rows), design)
    mean = curves.restricted_mean_difference(*split, TAU_DAYS, within_fold.interval_inflation(c, inflated))
    if "competing" in rows:  # an area under a Kaplan-Meier curve would assume that the competing event cannot happen
        mean = curves.RestrictedMean(*[math.nan] * 6)
    return OfRiskGroups(
        logrank=Logrank(chi2=chi2, p=curves.refitted_logrank(chi2, inflated), given_p=given_p, inflation=inflated),
        restricted_mean=RestrictedMean(
            tau_days=mean.tau_days,
            low_risk=mean.low_risk,
            high_risk=mean.high_risk,
            difference=Estimate(value=mean.difference, low=mean.low, high=mean.high),
        ),
        at_risk_days=tuple(ticks),
        groups={
            "low risk": _risk_group(grouped.loc[~grouped.high], ticks),
            "high risk": _risk_group(grouped.loc[grouped.high], ticks),
        },
    )


def risk_ticks(longest_days: float) -> list[int]:
    """Days at which the numbers at risk are given: from 0 in the finest step that leaves them room."""
    step = next((step for step in TICK_STEPS_DAYS if longest_days / step < MAX_TICKS - 1), None)
    step = step or math.ceil(longest_days / (MAX_TICKS - 1))
    return list(range(0, int(longest_days) + 1, step))


def hazard_ratios(seen: Outcome, rows: pd.DataFrame, c: float, design: Design) -> Hazard:
    """Of all patients' risks, averaged over repeats, and of the first repeat's groups; `c` is judged.

    Both errors have the inflation of one repeat: the models behind the mean risk of several were trained on every other patient,
    as one repeat's are on those of the other folds, and of one risk nothing is averaged.
    """
    grouped = risk_groups(rows)
    inflated = within_fold.interval_inflation(c, chance.inflation(first_repeat(rows), design))
    per_sd = cox.hazard_ratio_per_sd(seen.time_days, seen.event, seen.risk, inflated)
    groups = cox.hazard_ratio_of_groups(floats(grouped.time_days), flags(grouped.event), flags(grouped.high), inflated)
    return Hazard(per_sd=HazardRatio(**vars(per_sd)), high_vs_low=HazardRatio(**vars(groups)))


def _risk_group(rows: pd.DataFrame, ticks: list[int]) -> Group:
    left = curves.at_risk(floats(rows.time_days), np.array(ticks, dtype=float)).tolist()
    if not len(rows) or "competing" in rows:
        return Group(n=len(rows), events=int(rows.event.sum()), median_days=math.nan, at_risk=left)
    median = float(curves.kaplan_meier(floats(rows.time_days), flags(rows.event), "").median_survival_time_)
    median = median if math.isfinite(median) else math.nan  # infinite when more than half outlive the follow-up
    return Group(n=len(rows), events=int(rows.event.sum()), median_days=median, at_risk=left)
