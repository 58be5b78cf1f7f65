"""The instability plot: each training's predictions over the reported ones."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from mri_vit.report.figures.panels import BLUE, DASHED, INK, SQUARE_INCHES, VERMILLION, legend_below, panel
from mri_vit.report.numbers.instability import Trainings

MAX_DOTS = 600  # of a scatter plot, 70 kB: more are drawn as hexagons, of which there are fewer than a thousand
DOT, HEXAGONS, BINS = 8, 32, 12  # square points; hexagons over the axis; groups of patients of which limits are drawn
FAINTEST = 0.2  # predictions whose hexagon would be white: that of a single one is seen
MIN_OF_BIN = 40  # predictions of which 2.5 and 97.5 % can be distinguished from the ends


def instability(of: Trainings, name: str) -> Figure:
    """Predictions by each training over their mean, with the lines between which 95 % of them lie."""
    reported, retrained = reported_and_retrained(of)
    with panel(height=SQUARE_INCHES) as (figure, axes):
        ends = np.array([retrained.min(), retrained.max()])
        axes.plot(ends, ends, color=INK, lw=1, ls=DASHED, label="no change")
        x = np.tile(reported, len(retrained))
        if len(x) <= MAX_DOTS:
            axes.scatter(x, retrained.ravel(), s=DOT, color=BLUE, alpha=0.4, lw=0)
        else:
            axes.hexbin(
                x, retrained.ravel(), gridsize=HEXAGONS, cmap="Blues", norm=LogNorm(FAINTEST, None, clip=False), mincnt=1, lw=0
            )
        middle, low, high = limits(reported, retrained)
        if len(middle) > 1:
            axes.plot(middle, low, color=VERMILLION, lw=1.4, label="95 % of the trainings' predictions")
            axes.plot(middle, high, color=VERMILLION, lw=1.4)
        axes.set(xlabel=f"Reported {name}", ylabel=f"{name[:1].upper()}{name[1:]}, {len(retrained)} trainings")
        legend_below(figure, columns=2)
    return figure


def reported_and_retrained(of: Trainings) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "b n"]]:
    """The mean of a patient's predictions, and each of them; of several classes the probability of that with the largest mean."""
    mean = of.predicted.mean(axis=0)
    chosen = mean.argmax(axis=1)
    return mean[np.arange(len(mean)), chosen], of.predicted[:, np.arange(len(mean)), chosen]


def limits(
    reported: Float[np.ndarray, " n"], retrained: Float[np.ndarray, "b n"]
) -> tuple[Float[np.ndarray, " g"], Float[np.ndarray, " g"], Float[np.ndarray, " g"]]:
    """Of groups of patients of like reported prediction: its mean, and the 2.5th and 97.5th percentile of the retrained."""
    groups = max(1, min(BINS, retrained.size // MIN_OF_BIN))
    parts = np.array_split(np.argsort(reported, kind="stable"), groups)
    ends = np.array([np.quantile(retrained[:, part], [0.025, 0.975]) for part in parts])
    return np.array([reported[part].mean() for part in parts]), ends[:, 0], ends[:, 1]
