"""The figures of an inspected network: a Vision Transformer's filters, positions, distances and attention, and of any network the
inputs that raise its numbers most, and its loss landscape.

Planes follow the radiological convention: the patient's right is on the picture's left. Axes are mm of the grid's frame.

Letters: p tokens that are given, n = p + 1 with CLS first, m components, s patch edge (of a landscape steps along a direction),
g grid positions, c scans, e grid edge, l layers, h heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float, Integer
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from scipy.ndimage import gaussian_filter

from mri_vit.explain.inspection.vit_numbers import Components, centres_mm
from mri_vit.explain.methods.catalogue import UNIT
from mri_vit.explain.outputs.overlays import COLOURS, CONTRAST, OPACITY, PLANES, SCALE
from mri_vit.settings import recipe
from mri_vit.settings.sections import Grid
from mri_vit.style import BLUE, GREY, INK, RC, VERMILLION, WIDTH

SIGNED_COLOURS = "RdBu_r"  # white at 0; red and blue differ in any colour vision
SLICES = 4  # axial slices shown of a patch's cube, two by two; a cube of 16³ has more than a page can show
COMPONENTS_PER_ROW = 7  # components in a row: 28 are four rows, as in Dosovitskiy et al. 2021, Figure 7
BLOCKS: Any = {"origin": "lower", "interpolation": "nearest", "aspect": "auto"}  # a grid position is a block: nothing is smoothed
COLOUR_LIMIT_SD = 3.0  # standard deviations of a scan at the ends of the colours, the same in every picture
OUTSIDE_GREY = 0.8  # grey of what is no brain: white is a value
PANEL_GAP = 2  # voxels between panels
SHADES = 12  # shades of a landscape
HIGHEST_LOSS = 8.0  # times the loss before training, at most at the top of the colours: no network of use is above
LEAST_LOSS_RATIO = 1.1  # of the losses at the ends of the colours: of a flat plane they would be equal


@mpl.rc_context(RC)
def filter_components(components: Components) -> Figure:
    """Each component as axial slices from the bottom of the patch to its top, in reading order; each on its own scale."""
    edge = components.cubes.shape[1]
    shown = shown_slices(edge)
    gap = max(2, edge // 2)  # voxels between components, which leave room for their numbers
    step, rows = 2 * edge + gap, -(-len(components.cubes) // COMPONENTS_PER_ROW)
    sheet = np.full((rows * step, COMPONENTS_PER_ROW * step - gap), np.nan)
    figure = Figure(figsize=(WIDTH, WIDTH * sheet.shape[0] / sheet.shape[1]))
    axes = figure.add_axes((0, 0, 1, 1))
    for index, cube in enumerate(components.cubes):
        top, left = (index // COMPONENTS_PER_ROW) * step + gap, (index % COMPONENTS_PER_ROW) * step
        for number, z in enumerate(shown):
            y, x = top + (number // 2) * edge, left + (number % 2) * edge
            sheet[y : y + edge, x : x + edge] = _as_viewed(cube[:, :, z]) / np.abs(cube).max()
        axes.text(left - 0.5, top - 0.5 - 0.1 * gap, str(index + 1), fontsize=6.5, va="bottom", ha="left")
        axes.plot([left - 0.5, left + 2 * edge - 0.5], [top + edge - 0.5] * 2, color="white", lw=1.5)  # parts the slices
        axes.plot([left + edge - 0.5] * 2, [top - 0.5, top + 2 * edge - 0.5], color="white", lw=1.5)
    axes.imshow(sheet, cmap=SIGNED_COLOURS, vmin=-1, vmax=1, interpolation="nearest", aspect="auto")
    axes.set(xlim=(-0.5, sheet.shape[1] - 0.5), ylim=(sheet.shape[0] - 0.5, -0.5))
    axes.set_axis_off()
    return figure


def shown_slices(edge: int) -> Integer[np.ndarray, "z"]:
    """Which axial slices of a patch's cube are shown: all of a small one, else the middles of its quarters."""
    if edge <= SLICES:
        return np.arange(edge)
    return ((np.arange(SLICES) + 0.5) * edge / SLICES).astype(int)


@mpl.rc_context(RC)
def similarity_planes(similarity: Float[np.ndarray, "g"], position: int, moved: Bool[np.ndarray, "g"], grid: Grid) -> Figure:
    """Cosine similarity of one position embedding with all others, in the three planes through it; those moved are outlined."""
    figure, panels = _three(position, grid, np.flatnonzero(moved) if moved.any() else np.arange(grid.positions))
    for axes, (_, axis, _) in zip(panels, PLANES, strict=True):
        shown = Normalize(-1, 1)(_plane(similarity, position, axis, grid))
        axes.imshow(mpl.colormaps[SIGNED_COLOURS](shown.T), extent=_extent(axis, grid), **BLOCKS)
        if not moved.all():
            _outline(axes, _plane(moved, position, axis, grid), axis, grid)
        _mark(axes, position, axis, grid)
    bar = ScalarMappable(Normalize(-1, 1), SIGNED_COLOURS)
    _bar(figure, bar, "cosine similarity of position embeddings", ticks=[-1, -0.5, 0, 0.5, 1])
    return figure


@mpl.rc_context(RC)
def attention_planes(
    relative: Float[np.ndarray, "p"],
    tokens: Integer[np.ndarray, "p"],
    position: int,
    scan: Float[np.ndarray, "e e e"],
    grid: Grid,
) -> Figure:
    """A map, relative to a uniform map, over the scan in the three planes through a grid position; it is not smoothed."""
    share = np.zeros(grid.positions)
    share[tokens] = relative
    figure, panels = _three(position, grid, tokens)
    brain = scan[scan != 0]
    low, high = np.percentile(brain if brain.size else scan, CONTRAST)
    for axes, (_, axis, _) in zip(panels, PLANES, strict=True):
        under = np.take(scan, _index(position, grid)[axis] * grid.patch + grid.patch // 2, axis=axis)
        grey = mpl.colormaps["gray"](Normalize(low, high, clip=True)(under.T))
        grey[under.T == 0, :3] = 0  # what is no brain is black, not the mean grey
        axes.imshow(grey, extent=_extent(axis, grid), **BLOCKS)
        shown = _plane(share, position, axis, grid).clip(SCALE[0], SCALE[-1])
        colour = mpl.colormaps[COLOURS](LogNorm(SCALE[0], SCALE[-1])(shown.T))
        colour[..., 3] = OPACITY * np.log(shown.T) / np.log(SCALE[-1])  # an even share or less is clear
        axes.imshow(colour, extent=_extent(axis, grid), **BLOCKS)
        _mark(axes, position, axis, grid)
    _heat_bar(figure)
    return figure


@mpl.rc_context(RC)
def heads_atlas(rows: Float[np.ndarray, "l h p"], tokens: Integer[np.ndarray, "p"], position: int, grid: Grid) -> Figure:
    """The axial plane through a grid position of every head's map relative to a uniform map, layers downwards, heads across."""
    layers, heads, _ = rows.shape
    (x0, x1), (y0, y1), _ = _box(tokens, grid)
    i, j, _ = _index(position, grid)
    across, down = x1 - x0 + 2, y1 - y0 + 2  # of a tile in grid positions, with a gap of one
    sheet = np.full((layers * down, heads * across), np.nan)
    width = WIDTH if heads <= 6 else 2 * WIDTH  # inches: a tile is at least half an inch across
    scale = (width - 0.5) / sheet.shape[1]  # inches per grid position
    height, room = scale * sheet.shape[0], 1.05  # inches; below the tiles room for labels and the bar
    figure = Figure(figsize=(width, height + room))
    axes = figure.add_axes((0.45 / width, room / (height + room), scale * sheet.shape[1] / width, height / (height + room)))
    for layer, head in np.ndindex(layers, heads):
        share = np.full(grid.positions, np.nan)
        share[tokens] = rows[layer, head]
        top, left = layer * down, head * across
        tile = _as_viewed(_plane(share, position, 2, grid)[x0 : x1 + 1, y0 : y1 + 1])
        sheet[top : top + down - 1, left : left + across - 1] = tile
        _frame(axes, (left + x1 - i - 0.5, top + y1 - j - 0.5), 1.0)
    colours = mpl.colormaps[COLOURS].with_extremes(bad="white", under=mpl.colormaps[COLOURS](0.0))
    axes.imshow(sheet, cmap=colours, norm=LogNorm(SCALE[0], SCALE[-1]), interpolation="nearest", aspect="auto")
    axes.set_xticks([head * across + across / 2 - 1 for head in range(heads)], [str(head + 1) for head in range(heads)])
    axes.set_yticks([layer * down + down / 2 - 1 for layer in range(layers)], [str(layer + 1) for layer in range(layers)])
    axes.set(xlabel="head", ylabel="layer")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _heat_bar(figure)
    return figure


@mpl.rc_context(RC)
def distances(before: Float[np.ndarray, "l h"], after: Float[np.ndarray, "l h"], uniform_mm: float) -> Figure:
    """Mean attention distance of each head by layer, before and after training, against uniform attention."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.add_subplot()
    layers = np.arange(1, len(after) + 1)
    markers: list[tuple[np.ndarray, float, dict[str, Any], str]] = [
        (before, -0.17, {"mec": GREY, "mfc": "white", "marker": "o"}, "before training"),
        (after, 0.17, {"mec": BLUE, "mfc": BLUE, "marker": "D", "alpha": 0.8}, "after training"),
    ]
    for values, shift, marker, label in markers:
        x = layers[:, None] + shift + np.linspace(-0.09, 0.09, values.shape[1])  # beside each other, first head at the left
        axes.plot(x.ravel(), values.ravel(), ls="none", ms=4.5, label=f"a head, {label}", **marker)
    axes.axhline(uniform_mm, color=INK, lw=1, ls=(0, (4, 3)), label="uniform attention")
    highest = max(uniform_mm, before.max(), after.max())
    axes.set(xlabel="layer", ylabel="mean attention distance in mm", ylim=(0, 1.1 * highest), xlim=(0.5, len(after) + 0.5))
    axes.set_xticks(layers)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@mpl.rc_context(RC)
def input_planes(
    volume: Float[np.ndarray, "c e e e"], brain: Bool[np.ndarray, "e e e"], scans: Sequence[str], grid: Grid
) -> Figure:
    """Each scan of an input as three planes, all through the point where the input is strongest."""
    at = strongest(volume, brain)
    box = [(int(index.min()), int(index.max()) + 1) for index in np.nonzero(brain)]
    shown = np.where(brain, volume, np.nan)
    boxed = shown[(slice(None), *(slice(*ends) for ends in box))]
    index = [i - low for i, (low, _) in zip(at, box, strict=True)]
    rows = [[_as_viewed(np.take(scan, index[axis], axis)) for _, axis, _ in PLANES] for scan in boxed]
    tall = max(panel.shape[0] for panel in rows[0])
    wide = [panel.shape[1] for panel in rows[0]]
    sheet = np.full((len(scans) * (tall + PANEL_GAP) - PANEL_GAP, sum(wide) + 2 * PANEL_GAP), np.nan)
    starts = np.cumsum([0, wide[0] + PANEL_GAP, wide[1] + PANEL_GAP])
    for row, panels in enumerate(rows):
        for left, panel in zip(starts, panels, strict=True):
            top = row * (tall + PANEL_GAP) + (tall - panel.shape[0]) // 2
            sheet[top : top + panel.shape[0], left : left + panel.shape[1]] = panel
    margin, head, foot = 0.48, 0.46, 0.5  # inches: scans' names, planes' names in two lines, colour bar
    scale = (WIDTH - margin) / sheet.shape[1]
    height = head + scale * sheet.shape[0] + foot
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((margin / WIDTH, foot / height, 1 - margin / WIDTH, scale * sheet.shape[0] / height))
    colours = mpl.colormaps[SIGNED_COLOURS].with_extremes(bad=str(OUTSIDE_GREY))
    axes.imshow(sheet, cmap=colours, vmin=-COLOUR_LIMIT_SD, vmax=COLOUR_LIMIT_SD, interpolation="nearest", aspect="auto")
    for row in range(1, len(scans)):
        axes.axhspan(row * (tall + PANEL_GAP) - PANEL_GAP - 0.5, row * (tall + PANEL_GAP) - 0.5, color="white")
    for left in starts[1:]:
        axes.axvspan(left - PANEL_GAP - 0.5, left - 0.5, color="white")
    affine = np.array(grid.affine)
    for left, width, (name, axis, _) in zip(starts, wide, PLANES, strict=True):
        mm = affine[axis, 3] + grid.spacing_mm * at[axis]
        title = f"{name}\n{'xyz'[axis]} = {round(mm)} mm".replace("-", "−")
        axes.text(left + width / 2, -0.5 - 0.02 * sheet.shape[0], title, fontsize=8.5, ha="center", va="bottom")
    axes.set_yticks([row * (tall + PANEL_GAP) + tall / 2 for row in range(len(scans))], [recipe.title(scan) for scan in scans])
    axes.set(xticks=[], xlim=(-0.5, sheet.shape[1] - 0.5), ylim=(sheet.shape[0] - 0.5, -0.5))
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    bar = figure.add_axes(((WIDTH - 2.4) / 2 / WIDTH, 0.3 / height, 2.4 / WIDTH, 0.09 / height))
    drawn = figure.colorbar(
        ScalarMappable(Normalize(-COLOUR_LIMIT_SD, COLOUR_LIMIT_SD), SIGNED_COLOURS),
        cax=bar,
        orientation="horizontal",
        extend="both",
    )
    drawn.ax.tick_params(labelsize=7, length=2, pad=1)
    return figure


def strongest(volume: Float[np.ndarray, "c e e e"], brain: Bool[np.ndarray, "e e e"]) -> tuple[int, int, int]:
    """The voxel of the brain around which all scans together are strongest."""
    around = gaussian_filter((volume.astype(np.float64) ** 2).sum(axis=0), sigma=2)  # voxels: a spot, not one voxel
    x, y, z = np.unravel_index(np.where(brain, around, -1.0).argmax(), brain.shape)
    return int(x), int(y), int(z)


@mpl.rc_context(RC)
def landscapes(
    losses: Sequence[tuple[str, Float[np.ndarray, "s s"], float]], steps: Float[np.ndarray, "s"], span: tuple[float, float]
) -> Figure:
    """Panels of a loss on a plane of weights: title, loss [up across], and the loss before training, drawn as a line.

    `span` are the losses at the ends of the colours, which are those of every figure of a page.
    """
    figure = Figure(figsize=(WIDTH, 2.75), layout="constrained")
    low, high = span
    levels = np.geomspace(low, high, SHADES + 1)
    norm = LogNorm(low, high)
    panels = figure.subplots(1, len(losses), sharey=True, squeeze=False)[0]
    for axes, (title, loss, untrained) in zip(panels, losses, strict=True):
        shown = np.nan_to_num(loss, nan=np.inf, posinf=high).clip(low, high)
        axes.contourf(steps, steps, shown, levels=levels, norm=norm, cmap="viridis")
        axes.contour(steps, steps, shown, levels=levels, colors="white", linewidths=0.3)
        if loss.min() < untrained < loss.max():
            axes.contour(steps, steps, shown, levels=[untrained], colors=INK, linewidths=1.2, linestyles="dashed")
        axes.plot(0, 0, "P", ms=8, mec="white", mew=1, mfc=VERMILLION)
        axes.set_title(title, fontsize=8.5)
        axes.set(xlabel="direction 1", aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=2, labelsize=8)
    panels[0].set_ylabel("direction 2")
    beyond = any(not (loss <= high).all() for _, loss, _ in losses)
    ends = "max" if beyond else "neither"
    bar = figure.colorbar(ScalarMappable(norm, "viridis"), ax=list(panels), shrink=0.85, extend=ends, aspect=25)
    ticks = [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if low <= tick <= high]
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    bar.ax.minorticks_off()
    bar.ax.tick_params(labelsize=8, length=2)
    bar.set_label("loss", fontsize=8.5)
    return figure


def colour_span(losses: Sequence[Float[np.ndarray, "s s"]], untrained: Sequence[float]) -> tuple[float, float]:
    """The losses at the ends of the colours: the least and the most, but at most `HIGHEST_LOSS` times that before training."""
    finite = np.concatenate([loss[np.isfinite(loss)] for loss in losses])
    low = max(float(finite.min()), 1e-3)  # the scale is of logarithms
    return low, max(LEAST_LOSS_RATIO * low, min(float(finite.max()), HIGHEST_LOSS * max(untrained)))


def _as_viewed(plane: Float[np.ndarray, "u v"]) -> Float[np.ndarray, "v u"]:
    """A plane as the reader sees it: its second axis upwards, its first (the patient's right, or the front) to the left."""
    return plane[::-1, ::-1].T


def _three(position: int, grid: Grid, tokens: Integer[np.ndarray, "p"]) -> tuple[Figure, list[Axes]]:
    """Three panels in mm and to one scale, which show the tokens' positions; below them room for a colour bar."""
    box, size, centre = _box(tokens, grid), grid.patch * grid.spacing_mm, centres_mm(grid)[position]
    spans = [[(box[other][1] - box[other][0] + 1) * size for other in _others(axis)] for _, axis, _ in PLANES]  # mm
    left, gap, top, bottom = 0.36, (0.38, 0.12, 0.0), 0.25, 0.9  # inches, for the ticks' numbers, titles and the bar
    scale = (WIDTH - left - sum(gap) - 0.05) / sum(across for across, _ in spans)  # inches per mm
    height = top + scale * max(up for _, up in spans) + bottom
    figure, panels = Figure(figsize=(WIDTH, height)), []
    for (name, axis, sides), (across, up), behind in zip(PLANES, spans, gap, strict=True):
        axes = figure.add_axes((left / WIDTH, bottom / height, scale * across / WIDTH, scale * up / height))
        left += scale * across + behind
        edges = [
            (start + box[other][0] * size, start + (box[other][1] + 1) * size)
            for other, start in zip(_others(axis), _extent(axis, grid)[::2], strict=True)
        ]
        axes.set(xlim=edges[0][::-1], ylim=edges[1], autoscale_on=False)  # from right to left: the radiological convention
        axes.set_title(f"{name}, {'xyz'[axis]} = {round(centre[axis])} mm".replace("-", "−"), fontsize=7.5)
        axes.tick_params(labelsize=7, length=2, pad=1.5)
        axes.locator_params(nbins=4)
        axes.tick_params(labelleft=axis > 0)  # the sagittal plane has the coronal one's heights
        axes.spines[:].set_visible(False)
        for text, (x, y) in zip(sides, ((0.05, 0.5), (0.95, 0.5), (0.5, 0.955), (0.5, 0.045)), strict=True):
            drawn = axes.text(
                x, y, text, transform=axes.transAxes, ha="center", va="center", fontsize=6.5, color="white", zorder=5
            )
            drawn.set_path_effects([withStroke(linewidth=1.6, foreground="black")])  # readable on dark and on light
        panels.append(axes)
    return figure, panels


def _index(position: int, grid: Grid) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(position, (grid.side,) * 3))


def _plane(values: np.ndarray, position: int, axis: int, grid: Grid) -> np.ndarray:
    """The plane through a grid position, cut across an axis, of values given for every position."""
    return np.take(values.reshape((grid.side,) * 3), _index(position, grid)[axis], axis=axis)


def _others(axis: int) -> list[int]:
    """The axes that a cut leaves, in the order x, y, z."""
    return [other for other in range(3) if other != axis]


def _box(tokens: Integer[np.ndarray, "p"], grid: Grid) -> list[tuple[int, int]]:
    """The first and the last position with a token along each axis, and one of margin where the grid has it."""
    along = np.unravel_index(tokens, (grid.side,) * 3)
    return [(max(0, int(index.min()) - 1), min(grid.side - 1, int(index.max()) + 1)) for index in along]


def _extent(axis: int, grid: Grid) -> tuple[float, float, float, float]:
    """The grid's borders in mm along the two axes that a cut leaves."""
    u, v = np.array(grid.affine)[_others(axis), 3] - grid.spacing_mm / 2
    length = grid.edge * grid.spacing_mm
    return float(u), float(u + length), float(v), float(v + length)


def _mark(axes: Axes, position: int, axis: int, grid: Grid) -> None:
    size, centre = grid.patch * grid.spacing_mm, centres_mm(grid)[position]
    x, y = centre[_others(axis)] - size / 2
    _frame(axes, (float(x), float(y)), size)


def _frame(axes: Axes, corner: tuple[float, float], size: float) -> None:
    """A frame around a grid position, blue within white: visible on every colour."""
    for colour, width in (("white", 1.8), (BLUE, 0.9)):
        axes.add_patch(Rectangle(corner, size, size, fill=False, ec=colour, lw=width))


def _outline(axes: Axes, inside: Bool[np.ndarray, "u v"], axis: int, grid: Grid) -> None:
    """The border between positions inside and outside, along their own edges."""
    left, _, bottom, _ = _extent(axis, grid)
    size, padded = grid.patch * grid.spacing_mm, np.pad(inside, 1)
    upright = [((i, j), (i, j + 1)) for i, j in np.argwhere(padded[1:, 1:-1] != padded[:-1, 1:-1])]
    level = [((i, j), (i + 1, j)) for i, j in np.argwhere(padded[1:-1, 1:] != padded[1:-1, :-1])]
    if upright or level:
        axes.add_collection(LineCollection(list(np.array(upright + level) * size + (left, bottom)), colors=INK, linewidths=0.8))


def _heat_bar(figure: Figure) -> None:
    solid = ScalarMappable(LogNorm(SCALE[0], SCALE[-1]), COLOURS)  # the pictures' own colours are see-through
    _bar(figure, solid, UNIT, ticks=SCALE, format="%d", extend="max")


def _bar(figure: Figure, colours: ScalarMappable, label: str, **options: Any) -> None:
    """A colour bar in the lowest part of the figure."""
    width, height = figure.get_size_inches()
    inches = min(3.2, 0.7 * width)
    bar = figure.colorbar(
        colours,
        cax=figure.add_axes(((width - inches) / 2 / width, 0.5 / height, inches / width, 0.1 / height)),
        orientation="horizontal",
        **options,
    )
    bar.ax.minorticks_off()
    bar.ax.tick_params(labelsize=8)
    bar.set_label(label, fontsize=8)
