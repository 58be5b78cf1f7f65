"""The figures of the maps: deletion and insertion, the tumour's share, randomised weights, agreement. Measured figures in.

The figures are those of `map_scores` in `metrics.json`; what is undefined there leaves a gap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from mri_vit.report.figures.panels import COMPARED, DASHED, GREY, INK, ORANGE, RC, SKY, WIDTH, Stroke, numbers
from mri_vit.report.numbers.maps import RANDOM
from mri_vit.report.schema.parts import Mean
from mri_vit.report.schema.patients import Agreement, MapCurves, MapResult
from mri_vit.report.verdicts import MIN_MAP_CORRELATION
from mri_vit.report.words.notation import short
from mri_vit.settings.sections import AnyMethod, MapMethod

STROKES = dict(
    zip(
        get_args(MapMethod),  # comparators' methods are drawn in no figure
        [replace(stroke, width=1.7) for stroke in COMPARED[:4]]
        + [Stroke(ORANGE, (0, (4, 2)), 1.7, "^"), Stroke(SKY, (0, (1, 1.2)), 1.9, "v")],
        strict=True,
    )
)
CHANCE = Stroke(INK, DASHED, 1.2, "x")
RATIOS = (1, 2, 4, 8, 16, 32)  # by doublings, like the maps' own scale
LOWEST_RATIO = 0.8  # least energy ratio on the axis: below 1 the exact value matters little


def deletion_insertion(curves: Mapping[Literal["deletion", "insertion"], MapCurves]) -> Figure:
    """Mean curves of deletion (above) and insertion (below) with 95 % bands; the dashed line is the random order."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH, 5.0), layout="constrained")
        above, below = figure.subplots(2, 1)
        for axes, share, orders, word in (
            (above, 100 * numbers(curves["deletion"].fraction), curves["deletion"].orders, "removed"),
            (below, 100 * numbers(curves["insertion"].fraction), curves["insertion"].orders, "inserted"),
        ):
            for name, curve in orders.items():
                stroke = CHANCE if name == RANDOM else STROKES[name]
                label = "random order" if name == RANDOM else short(name)
                axes.fill_between(share, numbers(curve.low), numbers(curve.high), color=stroke.colour, alpha=0.12, lw=0)
                line = {"color": stroke.colour, "ls": stroke.line, "lw": stroke.width}
                axes.plot(share, numbers(curve.value), marker=stroke.marker, ms=3.2, label=label, **line)
            axes.axhline(0, color=GREY, lw=0.6)
            axes.set(xlim=(0, 100), xlabel=f"Positions {word}, %", ylabel="Change of evidence, SD")
        figure.legend(*above.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def tumour_overlap(groups: Sequence[tuple[str, Mapping[AnyMethod, MapResult]]]) -> Figure:
    """For each endpoint and method: the map's share in the tumour relative to the tumour's share of the brain, and peaks in it.

    Filled marks are the trained model's with 95 % intervals; crosses are means over networks of randomised weights with
    intervals over these networks; bars are what chance gives.
    """
    lines = sum(1 + len(methods) for _, methods in groups)
    inches = 1.0 + 0.26 * lines
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH, inches))
        bottom, top = 0.72 / inches, 1 - 0.8 / inches
        ratio_axes = figure.add_axes((0.31, bottom, 0.31, top))
        hit_axes = figure.add_axes((0.68, bottom, 0.29, top))
        height = float(lines)
        for heading, methods in groups:
            height -= 1
            figure.text(0.005, bottom + top * (height + 0.6) / (lines + 0.2), heading, weight="bold", va="center")
            for name, result in methods.items():
                height -= 1
                figure.text(0.02, bottom + top * (height + 0.6) / (lines + 0.2), short(name), va="center", fontsize=8.5)
                _draw_estimate(ratio_axes, result.energy_ratio, result.energy_randomised, 1.0, height, STROKES[name])
                chance = result.hit_chance.value
                _draw_estimate(hit_axes, result.hits, result.hit_randomised, chance, height, STROKES[name])
        results = [result for _, methods in groups for result in methods.values()]
        highest = [part.high for result in results for part in (result.energy_ratio, result.energy_randomised)]
        ratio_axes.set(xscale="log", xlim=(LOWEST_RATIO, 1.15 * np.nanmax([RATIOS[3], *highest])), xlabel="× the tumour's share")
        ratio_axes.set_xticks(RATIOS, [str(tick) for tick in RATIOS])
        ratio_axes.set_xlim(LOWEST_RATIO, 1.15 * np.nanmax([RATIOS[3], *highest]))  # once more: ticks widen a logarithmic axis
        ratio_axes.xaxis.set_minor_locator(NullLocator())
        hit_axes.set(xlim=(0, 1), xlabel="Peaks on the tumour")
        hit_axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        for axes in (ratio_axes, hit_axes):
            axes.set(ylim=(-0.6, lines - 0.4), yticks=[])
            axes.spines["left"].set_visible(False)
        networks = max(result.hit_randomised.n for result in results)
        figure.text(0.02, 0.12 / inches, f"● trained   × weights randomised ({networks} networks)   | by chance", fontsize=8)
    return figure


def _draw_estimate(axes: Axes, estimate: Mean, randomised: Mean, chance: float, height: float, stroke: Stroke) -> None:
    value, low, high = estimate.value, estimate.low, estimate.high
    axes.plot([chance, chance], [height - 0.32, height + 0.32], color=INK, lw=1.2, zorder=1)
    axes.plot([low, high], [height, height], color=stroke.colour, lw=stroke.width, solid_capstyle="butt")
    filled = not math.isnan(low) and low > chance
    fill = stroke.colour if filled else "white"
    axes.plot(value, height, stroke.marker, ms=6, mec=stroke.colour, mew=1.4, mfc=fill, clip_on=False, zorder=3)
    ends = [randomised.low, randomised.high]
    axes.plot(ends, [height - 0.16, height - 0.16], color=GREY, lw=1, solid_capstyle="butt", zorder=2)
    axes.plot(randomised.value, height - 0.16, "x", ms=5, color=GREY, mew=1.4, zorder=2, clip_on=False)


def randomisation_cascade(methods: Mapping[AnyMethod, MapResult]) -> Figure:
    """Rank correlation with the trained model's map while the weights are randomised from the heads down, with 95 % bands."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH, 3.7), layout="constrained")
        axes = figure.add_subplot()
        stages: list[str] = []
        for name, result in methods.items():
            stages_measured = result.cascade
            if not stages_measured:
                continue
            stages = [stage.stage for stage in stages_measured]
            value, low, high = (
                numbers([1.0, *ends])
                for ends in zip(*((stage.value, stage.low, stage.high) for stage in stages_measured), strict=True)
            )
            across = np.arange(len(value))
            stroke = STROKES[name]
            axes.fill_between(across, low, high, color=stroke.colour, alpha=0.14, lw=0)
            line = {"color": stroke.colour, "ls": stroke.line, "lw": stroke.width}
            axes.plot(across, value, marker=stroke.marker, ms=4.5, label=short(name), **line)
        axes.axhline(MIN_MAP_CORRELATION, color=INK, lw=1, ls=DASHED)
        axes.axhline(0, color=GREY, lw=0.6)
        turned = {"rotation": 45, "ha": "right"} if len(stages) > 5 else {}  # more names than lie side by side
        axes.set_xticks(range(len(stages) + 1), ["none", *stages], **turned)
        axes.set(ylim=(-0.4, 1.05), xlabel="Randomised, from the top down to here", ylabel="Rank correlation with the map")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def method_agreement(methods: Sequence[str], pairs: Sequence[Agreement]) -> Figure:
    """Mean rank correlation of each pair of methods' maps of the same patient."""
    position = {name: index for index, name in enumerate(methods)}
    table = np.full((len(methods), len(methods)), np.nan)
    for pair in pairs:
        if {pair.method, pair.other} <= set(position):
            row, column = position[pair.method], position[pair.other]
            table[row, column] = table[column, row] = pair.value
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH, 1.3 + 0.42 * len(methods)), layout="constrained")
        axes = figure.add_subplot()
        axes.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (row, column), value in np.ndenumerate(table):
            text = "" if math.isnan(value) else f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
            axes.text(column, row, text, ha="center", va="center", fontsize=8.5, color="white" if value > 0.6 else INK)
        names = [short(name) for name in methods]
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(length=0)
    return figure
