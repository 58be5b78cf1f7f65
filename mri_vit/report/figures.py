"""The report's figures: measured numbers or labelled scores in, a matplotlib Figure out; no pyplot state of our own.

Widths are near a phone's, so that the letters stay readable when the page shrinks a figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from lifelines.plotting import add_at_risk_counts
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.metrics import roc_curve

from mri_vit.metrics import survival

# Okabe & Ito 2008, "Color Universal Design": told apart with any colour vision, and by lightness in print.
BLUE, VERMILLION = "#0072B2", "#D55E00"
INK, GREY = "#222222", "#767676"  # grey of contrast 4.5 on white, WCAG 2.1 AA
RC: Any = {
    "svg.hashsalt": "mri-vit",  # element ids, so that equal runs give equal bytes
    "font.family": "DejaVu Sans",  # shipped with matplotlib, so the same on every machine
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}


def forest(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """AUC or C with its 95 % interval, one line per endpoint and model, against chance at 0.5.

    `rows` hold label, text, value, low, high; a row without a value is written as undefined.
    """
    with mpl.rc_context(RC):
        figure = Figure(figsize=(4.6, 0.9 + 0.5 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        for height, row in enumerate(reversed(rows)):
            label = f"{row['label']}   {row['text']}"
            axes.annotate(
                label, (0, height + 0.32), xycoords=("axes fraction", "data"), va="center", color=INK, backgroundcolor="white"
            )
            if math.isnan(row["value"]):
                continue
            apart = row["low"] > 0.5 or row["high"] < 0.5
            axes.plot([row["low"], row["high"]], [height, height], color=BLUE, lw=2.2, solid_capstyle="butt")
            axes.plot(row["value"], height, "o", ms=7, mec=BLUE, mew=1.6, color=BLUE if apart else "white", clip_on=False)
        axes.axvline(0.5, color=INK, lw=1, ls=(0, (4, 3)), zorder=0)
        axes.set(xlim=(0, 1), ylim=(-0.45, len(rows) - 0.35), yticks=[], xlabel="AUC or concordance (dashed: chance, 0.5)")
        axes.spines["left"].set_visible(False)
        axes.set_xticks(np.linspace(0, 1, 6))
    return figure


def roc(rows: pd.DataFrame, pooled: pd.DataFrame) -> Figure:
    """ROC curves: every fold thin, the pooled out-of-fold scores thick, chance dashed.

    `rows` have repeat, fold, truth, score; `pooled` has truth, score, one row per patient. A fold of one class has no curve.
    """
    with mpl.rc_context(RC):
        figure = Figure(figsize=(4.6, 4.6), layout="constrained")
        axes = figure.add_subplot(aspect="equal")
        axes.plot([0, 1], [0, 1], color=INK, lw=1, ls=(0, (4, 3)), label="chance")
        label = "one fold each"
        for _, fold in rows.groupby(["repeat", "fold"]):
            if fold.truth.nunique() == 2:
                axes.plot(*_roc_points(fold), color=GREY, lw=0.9, label=label)
                label = None  # one entry in the legend for all of them
        if pooled.truth.nunique() == 2:
            axes.plot(*_roc_points(pooled), color=BLUE, lw=2.6, label="pooled, out of fold")
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        axes.set(xlabel="False positives (1 − specificity)", ylabel="True positives (sensitivity)")
        axes.legend(loc="lower right")
    return figure


def kaplan_meier(rows: pd.DataFrame, ticks: Sequence[int]) -> Figure:
    """Survival of the low-risk and the high-risk group with 95 % bands and the numbers at risk below.

    `rows` have time_days, event, high, one row per patient; `ticks` are the days of the numbers at risk.
    A group without patients is left out.
    """
    with mpl.rc_context(RC):
        figure = Figure(figsize=(4.8, 4.6))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.19, 0.31, 0.79, 0.67))  # room for the numbers at risk and their labels
        curves = []
        for name, high, colour, style in (("low risk", False, BLUE, "-"), ("high risk", True, VERMILLION, (0, (6, 1.5)))):
            group = rows[rows.high == high]
            if len(group):
                curve = survival.kaplan_meier(group.time_days.to_numpy(float), group.event.to_numpy(bool), name)
                curve.plot_survival_function(
                    ax=axes, color=colour, ls=style, lw=2, show_censors=True, censor_styles={"ms": 5, "marker": "|"}
                )
                curves.append(curve)
        axes.set(ylim=(0, 1.02), xlabel="Days from imaging", ylabel="Share alive")
        axes.set_xlim(left=0)
        axes.set_xticks(ticks)
        axes.legend(loc="upper right")
        add_at_risk_counts(*curves, ax=axes, rows_to_show=["At risk"], xticks=list(ticks), ypos=-0.5, fig=figure)
    return figure


def to_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as "svg" or "png", without a date, so that equal figures are equal bytes."""
    with mpl.rc_context(RC):
        stream = BytesIO()
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(stream, format=kind, dpi=200, metadata=metadata)
    return stream.getvalue()


def roc_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The points of a ROC curve: false_positives, true_positives, threshold; empty with one class."""
    if rows.truth.nunique() < 2:
        return pd.DataFrame({"false_positives": [], "true_positives": [], "threshold": []})
    false_positives, true_positives, threshold = roc_curve(rows.truth, rows.score)
    return pd.DataFrame({"false_positives": false_positives, "true_positives": true_positives, "threshold": threshold})


def _roc_points(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    points = roc_table(rows)
    return points.false_positives.to_numpy(), points.true_positives.to_numpy()
