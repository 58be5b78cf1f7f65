"""The figures of an endpoint: ROC, precision and recall, calibration, net benefit; Kaplan–Meier, AUC(t), Brier(t).

The figures are those of `metrics.json`; what is undefined there leaves a gap. Times are in days.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mri_vit.metrics.added_value import RISK
from mri_vit.report.figures import panels
from mri_vit.report.figures.panels import (
    BLUE,
    DASHED,
    GREY,
    INK,
    SQUARE_INCHES,
    VERMILLION,
    ForestRow,
    ForestScale,
    Stroke,
    barred,
    bars,
    drawn,
    legend_below,
    named,
    numbers,
    panel,
)
from mri_vit.report.schema.binary import BinaryResult, Roc
from mri_vit.report.schema.parts import Band, CalibrationGroup, SmoothCurve
from mri_vit.report.schema.survival import CovariateRatio, CoxComparison, Days, Group, OverTime, RiskGroup, SurvivalResult
from mri_vit.report.words import caveats
from mri_vit.settings.recipe import is_compared

Curve = tuple[Float[np.ndarray, " _"], Float[np.ndarray, " _"]]  # false and true positive rates, point by point

LOWEST_BENEFIT = -0.05  # below it a rule does harm, how much does not matter


def roc(folds: Sequence[Curve], measured: Roc) -> Figure:
    """ROC curves: every fold thin, their mean with ± one standard deviation, the pooled scores with their bootstrap band.

    A single fold is the pooled curve itself and is not drawn twice.
    """
    with panel(height=SQUARE_INCHES) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=INK, lw=1, ls=DASHED, label="chance")
        folds = folds if len(folds) > 1 else []
        for index, (false_positives, true_positives) in enumerate(folds):
            seen = panels.drawn_vertices(false_positives, true_positives)
            axes.plot(
                false_positives[seen],
                true_positives[seen],
                color=GREY,
                lw=0.7,
                alpha=0.8,
                label=None if index else "one fold each",
            )
        grid = numbers(measured.false_positives)
        mean, deviation = numbers(measured.mean), numbers(measured.deviation)
        if len(folds) and np.isfinite(mean).any():
            axes.fill_between(grid, (mean - deviation).clip(0, 1), (mean + deviation).clip(0, 1), color=GREY, alpha=0.22, lw=0)
            axes.plot(grid, mean, color=INK, lw=1.6, ls=(0, (5, 1.5)), label="mean of the folds ± SD")
        pooled = numbers(measured.pooled)
        if np.isfinite(pooled).any():
            axes.fill_between(grid, numbers(measured.low), numbers(measured.high), color=BLUE, alpha=0.2, lw=0)
            axes.plot(grid, pooled, color=BLUE, lw=2.4, label="all patients, 95 % band")
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        axes.set(xlabel="False positives (1 − specificity)", ylabel="True positives (sensitivity)")
        axes.legend(loc="lower right")
    return figure


def pooled_roc(models: Mapping[str, BinaryResult]) -> Figure:
    """The ROC curves of all patients' scores of several models, without bands, which would hide each other."""
    with panel(height=SQUARE_INCHES) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=INK, lw=1, ls=DASHED, label="chance")
        for model, stroke in drawn(models):
            curve, label = models[model].roc, named(model, "AUC", models[model].auc.value)
            axes.plot(numbers(curve.false_positives), numbers(curve.pooled), label=label, **stroke.look)
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        axes.set(xlabel="False positives (1 − specificity)", ylabel="True positives (sensitivity)")
        legend_below(figure, 2)
    return figure


def precision_recall(models: Mapping[str, BinaryResult], prevalence: float) -> Figure:
    """Precision against recall of every model; the dashed line is the prevalence, which a model without skill keeps to."""
    with panel(height=SQUARE_INCHES) as (figure, axes):
        axes.axhline(prevalence, color=INK, lw=1, ls=DASHED, label="prevalence")
        for model, stroke in drawn(models):
            curve, precision = models[model].precision_recall, models[model].average_precision
            label = named(model, "AP", precision.value)
            recall, height = numbers(curve.recall), numbers(curve.precision)
            seen = panels.drawn_vertices(recall, height)
            axes.plot(recall[seen], height[seen], drawstyle="steps-post", label=label, **stroke.look)
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02), xlabel="Recall (sensitivity)", ylabel="Precision (PPV)")
        legend_below(figure, 2)
    return figure


def calibration(models: Mapping[str, Sequence[CalibrationGroup]], curves: Mapping[str, SmoothCurve]) -> Figure:
    """Observed share against predicted probability: smooth, and in bins of equal count."""
    return panels.calibration(models, curves, "Predicted probability", "Observed share")


def net_benefit(
    models: Mapping[str, Sequence[float]],
    thresholds: Sequence[float],
    of_all: Sequence[float],
    bands: Mapping[str, Band],
) -> Figure:
    """Decision curves: net benefit of acting by each model, on all patients and on none, over the threshold probability.

    `bands` are pointwise 95 % bands; only that of the first model is drawn, because several would hide each other.
    """
    with panel(height=SQUARE_INCHES) as (figure, axes):
        grid, act_on_all = numbers(thresholds), numbers(of_all)
        benefits = {model: numbers(benefit) for model, benefit in models.items()}
        axes.axhline(0, color=INK, lw=1, label="act on none")
        axes.plot(grid, act_on_all, color=INK, lw=1, ls=DASHED, label="act on all")
        for model, stroke in drawn(models):
            if model in bands and model == next(filter(is_compared, models), None):
                axes.fill_between(
                    grid, numbers(bands[model].low), numbers(bands[model].high), color=stroke.colour, alpha=0.15, lw=0
                )
            axes.plot(grid, benefits[model], label=model, **stroke.look)
        highest = np.nanmax([-LOWEST_BENEFIT, *act_on_all, *np.concatenate(list(benefits.values()))])
        axes.set(xlim=(0, 1), ylim=(LOWEST_BENEFIT, 1.08 * highest))
        axes.set(xlabel="Threshold probability", ylabel="Net benefit per patient")
        legend_below(figure, 3)
    return figure


RISK_STROKES: Mapping[RiskGroup, Stroke] = {
    "low risk": Stroke(BLUE, "-", 2.0, "|"),
    "high risk": Stroke(VERMILLION, (0, (6, 1.5)), 2.0, "|"),
}
YEAR_TICKS = (182, 365, 547, 730, 1095, 1461, 1826)  # days: half years, then years, as survival is read


def kaplan_meier(curves: pd.DataFrame, at_risk: Mapping[RiskGroup, Group], ticks: Sequence[int]) -> Figure:
    """Share alive in the low-risk and the high-risk group with Greenwood's 95 % bands, and the numbers at risk below.

    `curves` have group, days, survival, low, high, censored (how many at that time); `at_risk` is `groups` of metrics.json.
    """
    longest = max(1.0, float(curves["days"].max())) if len(curves) else 1.0
    with panel(height=4.4) as (figure, axes):
        for name, stroke in RISK_STROKES.items():
            curve = curves.loc[curves["group"] == name]
            days, share, low, high = (curve[column].to_numpy(float) for column in ("days", "survival", "low", "high"))
            seen = panels.drawn_vertices(days / longest, share, low, high)
            axes.fill_between(days[seen], low[seen], high[seen], step="post", color=stroke.colour, alpha=0.17, lw=0)
            axes.step(days[seen], share[seen], where="post", label=f"{name} (n = {at_risk[name].n})", **stroke.look)
            left = curve["censored"].to_numpy() > 0
            days, share = days[left], share[left]
            seen = panels.drawn_vertices(days / longest, share)
            axes.plot(days[seen], share[seen], stroke.marker, color=stroke.colour, ms=5)
        axes.set(ylim=(0, 1.02), xlabel="Days from imaging", ylabel="Share alive")
        axes.set_xlim(0, longest)
        axes.set_xticks(list(ticks))
        axes.legend(loc="upper right")
        at_risk_rows(figure, at_risk, ticks)
    return figure


def at_risk_rows(figure: Figure, groups: Mapping[RiskGroup, Group], ticks: Sequence[int]) -> None:
    """A row of counts per group, each under its tick."""
    axes = figure.axes[0]
    under = axes.get_xaxis_transform()  # x in days, y in shares of the axes' height
    for row, (name, stroke) in enumerate(RISK_STROKES.items()):
        height = -0.26 - 0.07 * row
        axes.text(-0.05, height, name, transform=axes.transAxes, ha="right", fontsize=8, color=stroke.colour)
        for day, count in zip(ticks, groups[name].at_risk, strict=True):
            axes.text(day, height, str(count), transform=under, ha="center", fontsize=8)
    axes.text(-0.05, -0.19, "At risk", transform=axes.transAxes, ha="right", fontsize=8, weight="bold")


def auc_over_time(models: Mapping[str, SurvivalResult], event: str = "death") -> Figure:
    """Cumulative/dynamic AUC over the horizons; bars are 95 % intervals at 6, 12 and 24 months (see `panels.barred`)."""
    with panel() as (figure, axes):
        axes.axhline(0.5, color=INK, lw=1, ls=DASHED, label="chance")
        lowest = 0.4  # a little of what lies below chance is always shown
        for model, stroke in drawn(models):
            points, curve = models[model].auc_at, models[model].curve
            days, values = numbers([point.days for point in points]), numbers([point.value for point in points])
            line = (numbers(curve.days), numbers(curve.auc)) if curve else (days, values)
            axes.plot(*line, label=model, **stroke.look)
            lowest = np.nanmin([lowest, *line[1]])
            if stroke.compared:
                axes.plot(days, values, stroke.marker, color=stroke.colour, ms=4.5, zorder=3)
            if model in barred(models):
                bars(axes, days, values, points, stroke)
                lowest = np.nanmin([lowest, *numbers([point.low for point in points])])
        axes.set(ylim=(max(0.0, lowest - 0.05), 1.02), xlabel="Days from imaging", ylabel=f"AUC(t): {event} by t")
        _year_ticks(axes)
        legend_below(figure, 3)
    return figure


def brier_over_time(models: Mapping[str, OverTime], alone: str = "Kaplan–Meier") -> Figure:
    """Brier score over the horizons; the dashed line gives all patients the cohort's own curve."""
    with panel() as (figure, axes):
        first = next(iter(models.values()))  # a model's: the shuffled control has other times
        axes.plot(numbers(first.days), numbers(first.reference), color=INK, lw=1, ls=DASHED, label=alone)
        highest = 0.25  # of a model that says one half for every patient
        for model, stroke in drawn(models):
            curve = models[model]
            axes.plot(numbers(curve.days), numbers(curve.brier), label=model, **stroke.look)
            highest = np.nanmax([highest, *numbers(curve.brier)])
        axes.set(ylim=(0, 1.08 * highest), xlabel="Days from imaging", ylabel="Brier(t), lower is better")
        _year_ticks(axes)
        legend_below(figure, 3)
    return figure


def survival_calibration(
    models: Mapping[str, Sequence[CalibrationGroup]], curves: Mapping[str, SmoothCurve], days: Days, what: str = "survival"
) -> Figure:
    """Observed against predicted survival at one horizon: smooth, by pseudo-values, and in groups of rising prediction."""
    return panels.calibration(models, curves, f"Predicted {what} at {days} days", f"Observed {what}")


def _year_ticks(axes: Axes) -> None:
    longest = axes.get_xlim()[1]
    axes.set_xlim(left=0)
    shown = [day for day in YEAR_TICKS if day <= longest]
    if shown:
        axes.set_xticks([0, *shown])


AXIS_FACTORS = (2, 3, 5, 10, 30, 100, 1000)  # how far a hazard ratio's axis may go to both sides of 1


def added_value(model: str, analysis: CoxComparison, lower: str = "lives longer", higher: str = "dies sooner") -> Figure:
    """Hazard ratios of the covariates alone, then with the model's risk, which has another mark and colour."""
    groups = [("Covariates alone", analysis.without), ("With the risk", analysis.both)]
    ends = [abs(math.log(end)) for _, ratios in groups for ratio in ratios.values() for end in (ratio.low, ratio.high)]
    factor = next((factor for factor in AXIS_FACTORS if math.log(factor) >= max(ends)), AXIS_FACTORS[-1])
    end = math.log(factor)
    scale = ForestScale(-end, end, 0.0, ((-end, f"1/{factor}"), (0.0, "1"), (end, f"{factor}")), (-end / 2, end / 2))
    rows = [(heading, [_ratio_row(name, ratio, model) for name, ratio in ratios.items()]) for heading, ratios in groups]
    return panels.forest(rows, f"← {lower}      {higher} →", scale)


def _ratio_row(column: str, ratio: CovariateRatio, model: str) -> ForestRow:
    label = caveats.covariate_label(column, model) if column == RISK else column  # the full name of a marker is too long here
    label, end = panels.shortened(label), math.log(AXIS_FACTORS[-1])
    value, low, high = (min(end, max(-end, math.log(number))) for number in (ratio.value, ratio.low, ratio.high))
    stroke = panels.COMPARED[0] if column == RISK else panels.PLAIN
    return ForestRow(label, caveats.hazard_ratio_in_words(ratio), value, low, high, stroke, filled=not low <= 0 <= high)
