"""The figures of a survival endpoint: Kaplan–Meier, AUC(t), Brier(t), calibration. Measured curves in, Figure out.

The figures are those of `metrics.json`; what is undefined there leaves a gap. Times are in days.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mri_vit.metrics.added_value import RISK
from mri_vit.report.figures import panels, vertices
from mri_vit.report.figures.panels import (
    BLUE,
    DASHED,
    INK,
    VERMILLION,
    Row,
    Scale,
    Stroke,
    barred,
    bars,
    drawn,
    legend_below,
    numbers,
    panel,
)
from mri_vit.report.schema.parts import CalibrationGroup
from mri_vit.report.schema.survival import CovariateRatio, CoxComparison, Days, Group, OverTime, RiskGroup, SurvivalResult
from mri_vit.report.words import added_value as words

STROKES: Mapping[RiskGroup, Stroke] = {
    "low risk": Stroke(BLUE, "-", 2.0, "|"),
    "high risk": Stroke(VERMILLION, (0, (6, 1.5)), 2.0, "|"),
}
AXIS_FACTORS = (2, 3, 5, 10, 30, 100, 1000)  # how far a hazard ratio's axis may go to both sides of 1
LETTERS = 22  # of a label beside the axis, at 8.5 points
YEAR_TICKS = (182, 365, 547, 730, 1095, 1461, 1826)  # days: half years, then years, as survival is read


def kaplan_meier(curves: pd.DataFrame, at_risk: Mapping[RiskGroup, Group], ticks: Sequence[int]) -> Figure:
    """Share alive in the low-risk and the high-risk group with Greenwood's 95 % bands, and the numbers at risk below.

    `curves` have group, days, survival, low, high, censored (how many at that time); `at_risk` is `groups` of metrics.json.
    """
    longest = max(1.0, float(curves["days"].max())) if len(curves) else 1.0
    with panel(height=4.4) as (figure, axes):
        for name, stroke in STROKES.items():
            curve = curves.loc[curves["group"] == name]
            days, share, low, high = (curve[column].to_numpy(float) for column in ("days", "survival", "low", "high"))
            seen = vertices.drawn(days / longest, share, low, high)
            axes.fill_between(days[seen], low[seen], high[seen], step="post", color=stroke.colour, alpha=0.17, lw=0)
            axes.step(days[seen], share[seen], where="post", label=f"{name} (n = {at_risk[name].n})", **stroke.look)
            left = curve["censored"].to_numpy() > 0
            days, share = days[left], share[left]
            seen = vertices.drawn(days / longest, share)
            axes.plot(days[seen], share[seen], stroke.marker, color=stroke.colour, ms=5)
        axes.set(ylim=(0, 1.02), xlabel="Days from imaging", ylabel="Share alive")
        axes.set_xlim(0, longest)
        axes.set_xticks(list(ticks))
        axes.legend(loc="upper right")
        _at_risk(figure, at_risk, ticks)
    return figure


def _at_risk(figure: Figure, groups: Mapping[RiskGroup, Group], ticks: Sequence[int]) -> None:
    """A row of counts per group, each under its tick."""
    axes = figure.axes[0]
    under = axes.get_xaxis_transform()  # x in days, y in shares of the axes' height
    for row, (name, stroke) in enumerate(STROKES.items()):
        height = -0.26 - 0.07 * row
        axes.text(-0.05, height, name, transform=axes.transAxes, ha="right", fontsize=8, color=stroke.colour)
        for day, count in zip(ticks, groups[name].at_risk, strict=True):
            axes.text(day, height, str(count), transform=under, ha="center", fontsize=8)
    axes.text(-0.05, -0.19, "At risk", transform=axes.transAxes, ha="right", fontsize=8, weight="bold")


def auc_over_time(models: Mapping[str, SurvivalResult]) -> Figure:
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
            if stroke.candidate:
                axes.plot(days, values, stroke.marker, color=stroke.colour, ms=4.5, zorder=3)
            if model in barred(models):
                bars(axes, days, values, points, stroke)
                lowest = np.nanmin([lowest, *numbers([point.low for point in points])])
        axes.set(ylim=(max(0.0, lowest - 0.05), 1.02), xlabel="Days from imaging", ylabel="AUC(t): death by t")
        _days(axes)
        legend_below(figure, 3)
    return figure


def brier_over_time(models: Mapping[str, OverTime]) -> Figure:
    """Brier score over the horizons; the dashed line gives everybody the cohort's own Kaplan–Meier share."""
    with panel() as (figure, axes):
        first = next(iter(models.values()))  # a candidate's: the shuffled control has times of its own
        axes.plot(numbers(first.days), numbers(first.reference), color=INK, lw=1, ls=DASHED, label="Kaplan–Meier alone")
        highest = 0.25  # of a model that says one half to everybody
        for model, stroke in drawn(models):
            curve = models[model]
            axes.plot(numbers(curve.days), numbers(curve.brier), label=model, **stroke.look)
            highest = np.nanmax([highest, *numbers(curve.brier)])
        axes.set(ylim=(0, 1.08 * highest), xlabel="Days from imaging", ylabel="Brier(t), lower is better")
        _days(axes)
        legend_below(figure, 3)
    return figure


def calibration(models: Mapping[str, Sequence[CalibrationGroup]], days: Days) -> Figure:
    """Observed against mean predicted survival at one horizon, in groups of rising prediction."""
    return panels.calibration(models, f"Mean predicted survival at {days} days", "Observed (Kaplan–Meier)")


def _days(axes: Axes) -> None:
    longest = axes.get_xlim()[1]
    axes.set_xlim(left=0)
    shown = [day for day in YEAR_TICKS if day <= longest]
    if shown:
        axes.set_xticks([0, *shown])


def added_value(model: str, analysis: CoxComparison) -> Figure:
    """Hazard ratios of the covariates alone, then with the model's risk, which has a mark and colour of its own."""
    groups = [("Covariates alone", analysis.without), ("With the risk", analysis.both)]
    ends = [abs(math.log(end)) for _, ratios in groups for ratio in ratios.values() for end in (ratio.low, ratio.high)]
    factor = next((factor for factor in AXIS_FACTORS if math.log(factor) >= max(ends)), AXIS_FACTORS[-1])
    end = math.log(factor)
    scale = Scale(-end, end, 0.0, ((-end, f"1/{factor}"), (0.0, "1"), (end, f"{factor}")), (-end / 2, end / 2))
    rows = [(heading, [_ratio_row(name, ratio, model) for name, ratio in ratios.items()]) for heading, ratios in groups]
    return panels.forest(rows, "← lives longer      dies sooner →", scale)


def _ratio_row(column: str, ratio: CovariateRatio, model: str) -> Row:
    label = words.label(column, model) if column == RISK else column  # the full name of a marker is too long here
    end = math.log(AXIS_FACTORS[-1])
    label = label if len(label) <= LETTERS else f"{label[: LETTERS - 1]}…"
    value, low, high = (min(end, max(-end, math.log(number))) for number in (ratio.value, ratio.low, ratio.high))
    stroke = panels.CANDIDATES[0] if column == RISK else panels.PLAIN
    return Row(label, words.of_ratio(ratio), value, low, high, stroke, filled=not low <= 0 <= high)
