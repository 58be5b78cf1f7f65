"""The figures that every network has: inputs that it answers most to, in three planes, and its loss landscape.

Planes follow the radiological convention: the patient's right is on the picture's left.

Letters: c scans, e grid edge, s steps along a direction.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter

from mri_vit.settings import sequences
from mri_vit.settings.sections import Grid
from mri_vit.style import INK, RC, VERMILLION, WIDTH

SIGNED = "RdBu_r"  # white at 0; red and blue differ in any colour vision
MOST = 3.0  # standard deviations of a scan at the ends of the colours, the same in every picture
OUTSIDE = 0.8  # grey of what is no brain: white is a value
GAP = 2  # voxels between panels
PLANES = (("axial", 2), ("coronal", 1), ("sagittal", 0))  # name, axis cut
LEVELS = 12  # shades of a landscape
HIGHEST = 8.0  # times the loss before training at the top of the colours at most: what lies above is far from any network of use
NARROWEST = 1.1  # the losses at the ends of the colours differ by as much at least: of a flat plane they are one


def input_planes(
    volume: Float[np.ndarray, "c e e e"], brain: Bool[np.ndarray, "e e e"], scans: Sequence[str], grid: Grid
) -> Figure:
    """Each scan of an input as three planes, all through the point where the input is strongest."""
    with mpl.rc_context(RC):
        at = strongest(volume, brain)
        box = [(int(index.min()), int(index.max()) + 1) for index in np.nonzero(brain)]
        shown = np.where(brain, volume, np.nan)
        rows = [[_as_viewed(shown[c], axis, at[axis], box) for _, axis in PLANES] for c in range(len(scans))]
        tall = max(panel.shape[0] for panel in rows[0])
        wide = [panel.shape[1] for panel in rows[0]]
        sheet = np.full((len(scans) * (tall + GAP) - GAP, sum(wide) + 2 * GAP), np.nan)
        starts = np.cumsum([0, wide[0] + GAP, wide[1] + GAP])
        for row, panels in enumerate(rows):
            for left, panel in zip(starts, panels, strict=True):
                top = row * (tall + GAP) + (tall - panel.shape[0]) // 2
                sheet[top : top + panel.shape[0], left : left + panel.shape[1]] = panel
        margin, head, foot = 0.48, 0.46, 0.5  # inches: scans' names, planes' names in two lines, colour bar
        scale = (WIDTH - margin) / sheet.shape[1]
        height = head + scale * sheet.shape[0] + foot
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes((margin / WIDTH, foot / height, 1 - margin / WIDTH, scale * sheet.shape[0] / height))
        colours = mpl.colormaps[SIGNED].with_extremes(bad=str(OUTSIDE))
        axes.imshow(sheet, cmap=colours, vmin=-MOST, vmax=MOST, interpolation="nearest", aspect="auto")
        for row in range(1, len(scans)):
            axes.axhspan(row * (tall + GAP) - GAP - 0.5, row * (tall + GAP) - 0.5, color="white")
        for left in starts[1:]:
            axes.axvspan(left - GAP - 0.5, left - 0.5, color="white")
        affine = np.array(grid.affine)
        for left, width, (name, axis) in zip(starts, wide, PLANES, strict=True):
            mm = affine[axis, 3] + grid.spacing_mm * at[axis]
            title = f"{name}\n{'xyz'[axis]} = {mm:.0f} mm".replace("-", "−")
            axes.text(left + width / 2, -0.5 - 0.02 * sheet.shape[0], title, fontsize=8.5, ha="center", va="bottom")
        axes.set_yticks([row * (tall + GAP) + tall / 2 for row in range(len(scans))], [sequences.title(scan) for scan in scans])
        axes.set(xticks=[], xlim=(-0.5, sheet.shape[1] - 0.5), ylim=(sheet.shape[0] - 0.5, -0.5))
        axes.tick_params(length=0, labelsize=8)
        axes.spines[:].set_visible(False)
        bar = figure.add_axes(((WIDTH - 2.4) / 2 / WIDTH, 0.3 / height, 2.4 / WIDTH, 0.09 / height))
        drawn = figure.colorbar(ScalarMappable(Normalize(-MOST, MOST), SIGNED), cax=bar, orientation="horizontal", extend="both")
        drawn.ax.tick_params(labelsize=7, length=2, pad=1)
        return figure


def strongest(volume: Float[np.ndarray, "c e e e"], brain: Bool[np.ndarray, "e e e"]) -> tuple[int, int, int]:
    """The voxel of the brain around which all scans together are strongest."""
    around = gaussian_filter((volume.astype(np.float64) ** 2).sum(axis=0), sigma=2)  # voxels: a spot, not one voxel
    x, y, z = np.unravel_index(np.where(brain, around, -1.0).argmax(), brain.shape)
    return int(x), int(y), int(z)


def _as_viewed(
    volume: Float[np.ndarray, "e e e"], axis: int, index: int, box: Sequence[tuple[int, int]]
) -> Float[np.ndarray, "h w"]:
    """A plane of the box as seen: its second axis upwards, its first (the patient's right, or the front) leftwards."""
    cut = np.take(volume, index, axis)[tuple(slice(*box[other]) for other in range(3) if other != axis)]
    return cut[::-1, ::-1].T


def landscapes(
    losses: Sequence[tuple[str, Float[np.ndarray, "s s"], float]], steps: Float[np.ndarray, "s"], span: tuple[float, float]
) -> Figure:
    """Panels of a loss on a plane of weights: title, loss [up across], and the loss before training, drawn as a line.

    `span` are the losses at the ends of the colours, which are those of every figure of a page.
    """
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH, 2.75), layout="constrained")
        low, high = span
        levels = np.geomspace(low, high, LEVELS + 1)
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
    """The losses at the ends of the colours: the least and the most of all, but at most `HIGHEST` times the largest before
    training.
    """
    seen = np.concatenate([loss[np.isfinite(loss)] for loss in losses])
    low = max(float(seen.min()), 1e-3)  # the scale is of logarithms
    return low, max(NARROWEST * low, min(float(seen.max()), HIGHEST * max(untrained)))
