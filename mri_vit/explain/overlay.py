"""A map over its scan as a picture: three planes through the map's peak, the bare scan above, the map over it below.

Radiological convention: the patient's right is on the picture's left, as letters at the border say.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from mri_vit.volume import Volume, canonical

SCALE = (1, 2, 4, 8, 16)  # times the uniform map, by doublings: the same in every picture, so that a weak map looks weak
OPACITY = 0.75  # at the top of the scale; anatomy stays visible through the strongest colour
PLANES = (("axial", 2, "RLAP"), ("coronal", 1, "RLSI"), ("sagittal", 0, "APSI"))  # name, axis cut, letters left/right/top/bottom


def draw(scan: Volume, heat: Volume, title: str, path: Path) -> None:
    """Write the picture; `scan` and `heat` lie on the same voxels, `heat` in times the uniform map."""
    scan, heat = canonical(scan), canonical(heat)
    peak = np.unravel_index(int(heat.array.argmax()), heat.shape)
    inside = scan.array[heat.array > 0]
    low, high = np.percentile(inside if inside.size else scan.array, [1, 99.5])  # contrast for the brain, not for one vessel
    figure = Figure(figsize=(9.6, 6.6), facecolor="black", layout="constrained")
    axes = figure.subplots(2, 3)
    colours = LogNorm(SCALE[0], SCALE[-1])
    for column, (name, axis, letters) in enumerate(PLANES):
        aspect = _height(scan, axis) / _width(scan, axis)
        for row in (0, 1):
            ax = axes[row, column]
            ax.imshow(_slice(scan, axis, int(peak[axis])), cmap="gray", vmin=low, vmax=high, aspect=aspect, origin="lower")
            ax.set_axis_off()
            for letter, (x, y) in zip(letters, ((0.03, 0.5), (0.97, 0.5), (0.5, 0.97), (0.5, 0.03)), strict=True):
                text = ax.text(x, y, letter, transform=ax.transAxes, color="white", ha="center", va="center", fontsize=10)
                text.set_path_effects([withStroke(linewidth=2, foreground="black")])  # readable over bright skull too
        axes[0, column].set_title(name, color="white", fontsize=10)
        plane = _slice(heat, axis, int(peak[axis]))
        shown = plane.clip(SCALE[0], SCALE[-1])
        opacity = OPACITY * np.log(shown) / np.log(SCALE[-1])  # an even share or less is clear
        axes[1, column].imshow(shown, cmap="inferno", norm=colours, alpha=opacity, aspect=aspect, origin="lower")
    solid = ScalarMappable(colours, "inferno")  # the pictures' own are see-through
    bar = figure.colorbar(solid, ax=axes[:, 2], fraction=0.05, pad=0.02, ticks=SCALE, format="%d", extend="max")
    bar.ax.minorticks_off()
    bar.set_label("attention rollout, times the uniform map", color="white")
    bar.ax.tick_params(colors="white")
    figure.suptitle(title, color="white", fontsize=11)
    figure.savefig(path, dpi=110, metadata={"Software": None})  # no version in the file: equal runs give equal bytes


def _slice(volume: Volume, axis: int, index: int) -> Float[np.ndarray, "rows columns"]:
    """One plane as seen: rows upwards; the patient's right (or front) on the left."""
    plane = np.take(volume.array, index, axis=axis)  # remaining axes in the order x, y, z
    return plane[::-1].T


def _width(volume: Volume, axis: int) -> float:
    return volume.spacing_mm[1 if axis == 0 else 0]


def _height(volume: Volume, axis: int) -> float:
    return volume.spacing_mm[1 if axis == 2 else 2]
