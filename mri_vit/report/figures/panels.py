"""What the report's figures share: strokes of models, panels, the forest plot, calibration, and the vertices of curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from mri_vit.report.schema.parts import CalibrationGroup, SmoothCurve
from mri_vit.settings.recipe import CLINICAL, INTENSITY, RADIOMICS, RESHUFFLED, SHUFFLED, SITE, SLICES, VOLUME, is_compared
from mri_vit.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RC, SKY, VERMILLION, WIDTH

SQUARE_INCHES = 4.4  # inches high: near the width, for axes that both run from 0 to 1
# Tol 2021, "Colour schemes", muted: distinct from Okabe and Ito's with any colour vision
INDIGO, OLIVE, WINE, TEAL = "#332288", "#999933", "#882255", "#44AA99"
ROSE = "#CC6677"  # Tol 2021, muted, as those above
MAGENTA = "#EE3377"  # Tol 2021, vibrant
PALE = "#A6A6A6"  # a lighter grey than that of the first permutation
MAX_MODELS_WITH_INTERVALS = 2  # models with intervals in one figure
LEGEND_LETTERS, HANDLE_LETTERS = 72, 6  # of a figure's width at 8.5 points, and what a line's sample takes of it
LABEL_LETTERS = 22  # of a label left of the axis, at 8.5 points
DASHED = (0, (4, 3))


@dataclass(frozen=True)
class Stroke:
    """How one model is drawn in every figure: models differ in colour and in line, so that either is enough."""

    colour: str
    line: Any
    width: float
    marker: str
    compared: bool = False

    @property
    def look(self) -> dict[str, Any]:
        """The keywords of a line; controls lie below the other models."""
        return {"color": self.colour, "ls": self.line, "lw": self.width, "zorder": 2.5 if self.compared else 2.0}


COMPARED = (
    Stroke(BLUE, "-", 2.2, "o", compared=True),
    Stroke(VERMILLION, (0, (7, 1.5)), 2.2, "s", compared=True),
    Stroke(GREEN, (0, (5, 1.5, 1, 1.5)), 2.2, "D", compared=True),
    Stroke(PURPLE, (0, (2, 1)), 2.2, "P", compared=True),
    Stroke(INDIGO, (0, (9, 1.5, 2, 1.5)), 1.8, "<", compared=True),
    Stroke(OLIVE, (0, (3, 1, 1, 1, 1, 1)), 1.8, ">", compared=True),
)
PLAIN = Stroke(GREY, "-", 1.6, "o")  # of a model that the other figures do not show
OF_CONTROLS = {  # thinner than the other models
    CLINICAL: Stroke(ORANGE, (0, (4, 2)), 1.5, "^"),
    VOLUME: Stroke(SKY, (0, (1, 1.2)), 1.7, "v"),
    INTENSITY: Stroke(WINE, (0, (3, 1.2)), 1.5, "d"),
    SLICES: Stroke(MAGENTA, (0, (4, 1, 1, 1)), 1.5, "h"),
    SITE: Stroke(TEAL, (0, (1, 2.4)), 1.7, "p"),
    SHUFFLED: Stroke(GREY, (0, (6, 2, 1, 2)), 1.2, "X"),
    RESHUFFLED: Stroke(PALE, (0, (8, 2, 1, 2, 1, 2)), 1.2, "*"),
    RADIOMICS: Stroke(ROSE, (0, (2, 1, 2, 3)), 1.5, "8"),
}


@runtime_checkable
class Ends(Protocol):
    """A value with a 95 % interval."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@dataclass(frozen=True)
class ForestRow:
    """A line of a forest plot, NaN where undefined; `text` stands at the right."""

    label: str
    text: str
    value: float
    low: float
    high: float
    stroke: Stroke
    filled: bool  # the mark of a value that differs from chance


@dataclass(frozen=True)
class ForestScale:
    """The axis of a forest plot: its ends, the value of no effect, and the ticks with a number and without."""

    low: float
    high: float
    nothing: float
    ticks: Sequence[tuple[float, str]]
    minor: Sequence[float]


OF_FIGURES = ForestScale(
    0.0, 1.0, 0.5, ((0.0, "0"), (0.5, "0.5"), (1.0, "1")), (0.25, 0.75)
)  # of AUC and C, which are 0.5 by chance


def strokes(models: Sequence[str]) -> dict[str, Stroke]:
    """The stroke of each model: controls have fixed ones, other models take theirs in turn."""
    compared = [model for model in models if is_compared(model)]
    return OF_CONTROLS | {model: COMPARED[index % len(COMPARED)] for index, model in enumerate(compared)}


def drawn(models: Iterable[str]) -> list[tuple[str, Stroke]]:
    """Each model with its stroke, in the order of `models`."""
    styles = strokes(list(models))
    return [(model, styles[model]) for model in models]


@contextmanager
def panel(width: float = WIDTH, height: float = 3.6) -> Iterator[tuple[Figure, Axes]]:
    """A figure of one panel in the report's look; drawn inside the `with`."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.add_subplot()


def forest(groups: Sequence[tuple[str, Sequence[ForestRow]]], measure: str, scale: ForestScale = OF_FIGURES) -> Figure:
    """Estimates with their 95 % intervals under the heading of their group, beside a line where there is no effect.

    A filled mark differs from that line, an open one does not.
    """
    lines = sum(1 + len(rows) for _, rows in groups)
    inches = 0.55 + 0.235 * lines
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH, inches))
        axes = figure.add_axes((0.35, 0.5 / inches, 0.31, 1 - 0.55 / inches))  # between the labels and the numbers
        height = float(lines)
        across = blended_transform_factory(figure.transFigure, axes.transData)  # x in shares of the figure, y in rows
        for heading, rows in groups:
            height -= 1
            over = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # where it crosses the line of chance
            axes.text(0.005, height - 0.1, heading, transform=across, va="center", weight="bold", bbox=over)
            for row in rows:
                height -= 1
                axes.text(0.02, height, row.label, transform=across, va="center", fontsize=8.5, color=INK)
                axes.text(0.68, height, row.text, transform=across, va="center", fontsize=8, color=INK)
                _mark(axes, row, height)
        axes.axvline(scale.nothing, color=INK, lw=1, ls=DASHED, zorder=0)
        axes.set(xlim=(scale.low, scale.high), ylim=(-0.7, lines - 0.4), yticks=[], xlabel=measure)
        axes.set_xticks([at for at, _ in scale.ticks], [label for _, label in scale.ticks])
        axes.set_xticks(scale.minor, minor=True)
        axes.spines["left"].set_visible(False)
    return figure


def _mark(axes: Axes, row: ForestRow, height: float) -> None:
    if math.isnan(row.value):
        return
    stroke = row.stroke
    fill = stroke.colour if row.filled else "white"
    axes.plot([row.low, row.high], [height, height], color=stroke.colour, lw=stroke.width, solid_capstyle="butt")
    axes.plot(row.value, height, stroke.marker, ms=6, mec=stroke.colour, mew=1.4, mfc=fill, clip_on=False, zorder=3)


def numbers(values: Sequence[float | int]) -> np.ndarray:
    """Values of metrics.json as floats; what is undefined is NaN, which leaves a gap in a line."""
    return np.array(values, dtype=float)


def shortened(label: str, letters: int = LABEL_LETTERS) -> str:
    """The label in at most so many letters."""
    return label if len(label) <= letters else f"{label[: letters - 1]}…"


def named(model: str, symbol: str, value: float) -> str:
    """A legend's entry: the model and what it reaches, where that is defined."""
    return model if math.isnan(value) else f"{model} ({symbol} {value:.3f})"


def bars(axes: Axes, x: np.ndarray, y: np.ndarray, points: Sequence[Ends], stroke: Stroke) -> None:
    """95 % intervals of points at x and y."""
    low, high = numbers([point.low for point in points]), numbers([point.high for point in points])
    # A Wilson interval may leave out its own estimate by a rounding error.
    reach = np.clip([y - low, high - y], 0, None)
    axes.errorbar(x, y, yerr=reach, fmt="none", ecolor=stroke.colour, elinewidth=1.1, capsize=2, zorder=3)


def barred(models: Iterable[str]) -> list[str]:
    """The models drawn with intervals: all but controls where they are few, else the first; more bars would hide each other."""
    compared = [model for model in models if is_compared(model)]
    return compared if len(compared) <= MAX_MODELS_WITH_INTERVALS else compared[:1]


def legend_below(figure: Figure, columns: int) -> None:
    """A legend under the axes in so many columns, or in fewer where a name is long."""
    longest = max(len(str(text)) for axes in figure.axes for text in axes.get_legend_handles_labels()[1])
    figure.legend(loc="outside lower center", ncols=max(1, min(columns, LEGEND_LETTERS // (longest + HANDLE_LETTERS))))


def calibration(
    models: Mapping[str, Sequence[CalibrationGroup]], curves: Mapping[str, SmoothCurve], predicted: str, observed: str
) -> Figure:
    """Observed against predicted values: smooth curves, of some with 95 % bands, and groups with intervals (see `barred`).

    Controls are left out where there are more models than that. `predicted` and `observed` name the axes. A model without a curve
    has its groups joined.
    """
    with panel(height=SQUARE_INCHES) as (figure, axes):
        axes.plot([0, 1], [0, 1], color=INK, lw=1, ls=DASHED, label="perfect")
        few = sum(map(is_compared, models)) <= MAX_MODELS_WITH_INTERVALS
        for model, stroke in drawn(models):
            if not (few or stroke.compared):
                continue
            groups = models[model]
            x, y = numbers([group.predicted for group in groups]), numbers([group.observed for group in groups])
            look = stroke.look | {"lw": 0.7 * stroke.width, "label": model}
            if smooth := curves.get(model):
                axes.plot(numbers(smooth.predicted), numbers(smooth.observed), **look)
            else:
                axes.plot(x, y, marker=stroke.marker, ms=4.5, **look)
            if model in barred(models):
                bars(axes, x, y, groups, stroke)
                if smooth:
                    axes.plot(x, y, **look | {"ls": "", "marker": stroke.marker, "ms": 4.5, "label": None})
                    ends = numbers(smooth.low), numbers(smooth.high)
                    axes.fill_between(numbers(smooth.predicted), *ends, color=stroke.colour, alpha=0.15, lw=0)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel=predicted, ylabel=observed)
        legend_below(figure, 3)
    return figure


CELL = 1 / 500  # of an axis: less than a screen pixel and the thinnest line at a figure's own size


def drawn_vertices(*coordinates: Float[np.ndarray, " n"]) -> Int[np.ndarray, " kept"]:
    """Indices of the vertices to draw, each coordinate in shares of its axis.

    A vertex is left out where it lies in the same cell of a grid of `CELL` as the one before. It is then less than
    `CELL` of either axis away from a vertex that is drawn, and so is the curve, in steps or straight lines.
    """
    cells = np.floor(np.stack(coordinates) / CELL)
    moved = (np.diff(cells, axis=1) != 0).any(axis=0)  # NaN is unequal to itself: a gap stays
    ends = np.zeros(cells.shape[1], dtype=bool)
    ends[:1] = ends[-1:] = True
    ends[1:] |= moved
    return np.flatnonzero(ends)
