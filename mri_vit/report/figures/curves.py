"""The figures of a binary endpoint: ROC, precision and recall, calibration, net benefit. Measured curves in, Figure out.

The figures are those of `metrics.json`; what is undefined there leaves a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from mri_vit.report.figures import panels, vertices
from mri_vit.report.figures.panels import BLUE, DASHED, GREY, INK, SQUARE, drawn, legend_below, named, numbers, panel
from mri_vit.report.schema.binary import BinaryResult, Roc
from mri_vit.report.schema.parts import Band, CalibrationGroup
from mri_vit.settings.recipe import is_candidate

Curve = tuple[Float[np.ndarray, " _"], Float[np.ndarray, " _"]]  # false and true positive rates, point by point

LOWEST_BENEFIT = -0.05  # below it a rule does harm, how much does not matter


def roc(folds: Sequence[Curve], measured: Roc) -> Figure:
    """ROC curves: every fold thin, their mean with ± one standard deviation, the pooled scores with their bootstrap band.

    A single fold is the pooled curve itself and is not drawn twice.
    """
    with panel(height=SQUARE) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=INK, lw=1, ls=DASHED, label="chance")
        folds = folds if len(folds) > 1 else []
        for index, (false_positives, true_positives) in enumerate(folds):
            seen = vertices.drawn(false_positives, true_positives)
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
    with panel(height=SQUARE) as (figure, axes):
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
    with panel(height=SQUARE) as (figure, axes):
        axes.axhline(prevalence, color=INK, lw=1, ls=DASHED, label="prevalence")
        for model, stroke in drawn(models):
            curve, precision = models[model].precision_recall, models[model].average_precision
            label = named(model, "AP", precision.value)
            recall, height = numbers(curve.recall), numbers(curve.precision)
            seen = vertices.drawn(recall, height)
            axes.plot(recall[seen], height[seen], drawstyle="steps-post", label=label, **stroke.look)
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02), xlabel="Recall (sensitivity)", ylabel="Precision (PPV)")
        legend_below(figure, 2)
    return figure


def calibration(models: Mapping[str, Sequence[CalibrationGroup]]) -> Figure:
    """Observed share against mean predicted probability in bins of equal count."""
    return panels.calibration(models, "Mean predicted probability", "Observed share")


def net_benefit(
    models: Mapping[str, Sequence[float]],
    thresholds: Sequence[float],
    of_all: Sequence[float],
    bands: Mapping[str, Band],
) -> Figure:
    """Decision curves: net benefit of acting on each model, on everybody and on nobody, over the threshold probability.

    `bands` are pointwise 95 % bands; that of the first candidate alone is drawn, since others would hide each other.
    """
    with panel(height=SQUARE) as (figure, axes):
        grid, everybody = numbers(thresholds), numbers(of_all)
        benefits = {model: numbers(benefit) for model, benefit in models.items()}
        axes.axhline(0, color=INK, lw=1, label="nobody")
        axes.plot(grid, everybody, color=INK, lw=1, ls=DASHED, label="everybody")
        for model, stroke in drawn(models):
            if model in bands and model == next(filter(is_candidate, models), None):
                axes.fill_between(
                    grid, numbers(bands[model].low), numbers(bands[model].high), color=stroke.colour, alpha=0.15, lw=0
                )
            axes.plot(grid, benefits[model], label=model, **stroke.look)
        highest = np.nanmax([-LOWEST_BENEFIT, *everybody, *np.concatenate(list(benefits.values()))])
        axes.set(xlim=(0, 1), ylim=(LOWEST_BENEFIT, 1.08 * highest))
        axes.set(xlabel="Threshold probability", ylabel="Net benefit per patient")
        legend_below(figure, 3)
    return figure
