"""Figures of rotated patients: what alignment leaves, how far scores and maps move, and where maps lie, by angle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mri_vit.report.figures.panels import DASHED
from mri_vit.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RC, VERMILLION, WIDTH
from reproductions.rotation import stability
from reproductions.rotation.rotated import AXES
from reproductions.rotation.rotated_patients import CONTENT, CONTENT_BACK, GRID, GRID_BACK, HEADER
from reproductions.rotation.stability import some

DOTTED = (0, (1, 1.5))
LEAST_DEGREES = 0.01  # what a logarithmic axis shows of less: alignment never ends exactly where it ended before


@dataclass(frozen=True)
class Look:
    """How a road is drawn and called."""

    title: str
    colour: str
    line: Any
    marker: str
    filled: bool = True


LOOKS = {
    CONTENT: Look("whole road: scans turned, prepared anew", BLUE, "-", "o"),
    CONTENT_BACK: Look("… scans turned there and back: interpolation alone", BLUE, DOTTED, "o", filled=False),
    HEADER: Look("… headers turned alone: no interpolation", GREEN, (0, (5, 1.5, 1, 1.5)), "^"),
    GRID: Look("network alone: prepared volume turned", VERMILLION, (0, (7, 1.5)), "s"),
    GRID_BACK: Look("… volume turned there and back: interpolation alone", VERMILLION, DOTTED, "s", filled=False),
}
OF_AXES = {"x": (PURPLE, "o"), "y": (ORANGE, "s"), "z": (BLUE, "D")}
TURNS = {"x": "x (nodding)", "y": "y (tilting)", "z": "z (shaking)"}


def alignment(lies: pd.DataFrame) -> Figure:
    """The rotation that preparation leaves, by the angle by which the head was turned; a dot for each patient."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(1.05 * WIDTH, 1.05 * WIDTH), layout="constrained")
        axes = figure.subplots()
        turned = lies.loc[(lies["degrees"] > 0).to_numpy()]
        shown = [
            (some(turned, road=CONTENT, axis=axis), OF_AXES[axis], "-", f"scans turned about {TURNS[axis]}") for axis in AXES
        ]
        look = (LOOKS[HEADER].colour, LOOKS[HEADER].marker)
        shown.append(
            (some(turned, road=HEADER), look, LOOKS[HEADER].line, "headers turned alone, about one axis of each patient")
        )
        degrees = sorted(set(turned["degrees"]))
        wide = 0.07 * min(degrees)
        for index, (here, (colour, marker), line, title) in enumerate(shown):
            if here.empty:
                continue
            shift = wide * (index - (len(shown) - 1) / 2)
            left = here["error_degrees"].clip(lower=LEAST_DEGREES)
            axes.plot(here["degrees"] + shift, left, marker, ms=4, color=colour, alpha=0.45, mew=0, zorder=2)
            found = stability.means(here, "error_degrees", ["degrees"]).sort_values("degrees")
            style = {"marker": marker, "ms": 4.5, "color": colour, "ls": line, "lw": 1.4, "elinewidth": 1, "zorder": 3}
            value, reach = found["value"].clip(lower=LEAST_DEGREES), _reach(found, LEAST_DEGREES)
            axes.errorbar(found["degrees"] + shift, value, reach, label=title, **style)
        ends = np.array([min(degrees), max(degrees)])
        axes.plot(ends, ends, color=INK, lw=1, ls=DASHED, label="nothing undone: the network alone")
        axes.set(
            yscale="log", xlabel="Head turned by (degrees)", ylabel="Rotation left after preparation (degrees)", xticks=degrees
        )
        axes.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
        drawn = np.concatenate([here["error_degrees"].dropna().to_numpy(float) for here, *_ in shown])
        axes.set_ylim(0.7 * max(LEAST_DEGREES, drawn.min(initial=1.0)), 1.5 * max(max(degrees), drawn.max(initial=0.0)))
        figure.legend(loc="outside lower center", ncols=1)
    return figure


def over_angle(
    panels: dict[str, pd.DataFrame],
    column: str,
    title: str,
    reference: dict[str, tuple[float, float, float]],
    named: str,
    limits: tuple[float | None, float | None],
) -> Figure:
    """A measure by angle, a panel for each table: the two roads, what interpolation alone does, and a reference.

    Parameters
    ----------
    panels : rows by the panel's title.
    column : of the rows.
    title : of the vertical axis.
    reference : by panel the value of a horizontal line with its interval's ends; none where it is not known.
    named : what that line is.
    limits : the ends of the vertical axis, None where they follow from what is drawn.
    """
    with mpl.rc_context(RC):
        figure = Figure(figsize=(1.05 * WIDTH, (0.4 + 0.65 * len(panels)) * WIDTH), layout="constrained")
        every = figure.subplots(len(panels), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (heading, rows) in zip(every, panels.items(), strict=True):
            _roads(axes, rows, column)
            if heading in reference and not np.isnan(reference[heading][0]):
                value, low, high = reference[heading]
                axes.axhline(value, color=INK, lw=1, ls=DASHED, label=named)
                if not np.isnan(low):
                    axes.axhspan(low, high, color=GREY, alpha=0.15, lw=0)
            axes.set(xticks=sorted(set(some(rows, road=GRID)["degrees"])))
            axes.set_title(heading if len(panels) > 1 else "", fontsize=9)
        every[0].set_ylim(*limits)  # of all panels, once all is drawn
        every[-1].set_xlabel("Turned by (degrees)")
        label = figure.supylabel(title, fontsize=9)
        handles, labels = every[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=1)
        figure.draw_without_rendering()  # now the panels lie where they stay, above the legend
        label.set_y((every[0].get_position().y1 + every[-1].get_position().y0) / 2)
    return figure


def _roads(axes: Axes, rows: pd.DataFrame, column: str) -> None:
    """Each road's mean with its intervals, and behind those of the two that are compared a thin line for each axis."""
    for road, look in LOOKS.items():
        here = some(rows, road=road)
        if not len(here[column].dropna()):
            continue
        if road in (CONTENT, GRID):
            for axis in AXES:
                thin = stability.means(some(here, axis=axis), column, ["degrees"]).sort_values("degrees")
                thin = thin.loc[(thin["degrees"] > 0).to_numpy()]
                axes.plot(thin["degrees"], thin["value"], color=look.colour, lw=0.7, alpha=0.5, zorder=1)
        found = stability.means(here, column, ["degrees"]).sort_values("degrees")
        face = look.colour if look.filled else "white"
        style = {"color": look.colour, "ls": look.line, "marker": look.marker, "ms": 4, "mfc": face, "lw": 1.5, "elinewidth": 1}
        axes.errorbar(found["degrees"], found["value"], _reach(found), label=look.title, **style)


def _reach(found: pd.DataFrame, least: float = -np.inf) -> np.ndarray:
    """The arms of an interval, of none where it is not known; on a logarithmic axis not beyond its least value."""
    low, value, high = (np.maximum(found[name].to_numpy(float), least) for name in ("low", "value", "high"))
    return np.nan_to_num(np.stack([value - low, high - value])).clip(0)
