"""Attention beside the tumour, and how far each encoder's overlaps it: two figures.

Letters: p places that hold brain, x y z voxels of the grid, h w pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float, UInt8
from matplotlib.figure import Figure

from mri_vit.data import tokens
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume
from mri_vit.explain.outputs import overlays
from mri_vit.report.figures.panels import CANDIDATES, panel
from mri_vit.settings.sequences import title as sequence
from mri_vit.style import GREY, INK, RC, WIDTH
from reproductions.segmentation.numbers import Line

AXIAL = 2  # the axis that an axial plane is cut across
MARKS = {
    "chance": ("|", INK, "random places"),
    "t1ce": ("^", "#882255", "brightest in T1ce"),
    "flair": ("v", "#44AA99", "brightest in FLAIR"),
}
OTHER = ("x", GREY)  # the mark of any other sequence's brightest places
SHADE = 6.0  # of the overlay's scale: one colour for all that is kept, through which anatomy is seen
PANEL = 1.6  # inches, a row's height


@dataclass(frozen=True, eq=False)
class Shown:
    """A patient as drawn: the prepared scans, which of the places are tumour, and by encoder which are kept."""

    title: str
    prepared: Tokens
    tumour: Bool[np.ndarray, " p"]
    kept: Mapping[str, Bool[np.ndarray, " p"]]


def attention(patients: Sequence[Shown], channel: str, names: Mapping[str, str]) -> Figure:
    """A column for each patient: the scan with the tumour's outline, then the places that each encoder keeps over it.

    Axial planes through most of the tumour, in radiological convention: the patient's right is on the left.
    """
    titles = (sequence(channel), *names.values())
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH, PANEL * len(titles)), layout="constrained")
        grid = figure.subplots(len(titles), len(patients), squeeze=False)
        for column, patient in enumerate(patients):
            for row, drawn in enumerate(panels(patient, channel, list(names))):
                axes = grid[row, column]
                axes.imshow(drawn)
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set_visible(False)
                if row == 0:
                    axes.set_title(patient.title, fontsize=9, color=INK)
                if column == 0:
                    axes.set_ylabel(titles[row], color=INK)
                for letter, x, side in (("R", 0.02, "left"), ("L", 0.98, "right")):
                    axes.text(x, 0.5, letter, transform=axes.transAxes, color="white", fontsize=8, ha=side, va="center")
    return figure


def panels(patient: Shown, channel: str, names: Sequence[str]) -> list[UInt8[np.ndarray, "h w 3"]]:
    """The scan, then the places that each encoder keeps over it, all in one plane and with the tumour's outline."""
    prepared = patient.prepared
    volume = tokens.to_volume(prepared).astype(np.float32)
    brain, affine = (volume != 0).any(axis=0), np.array(prepared.grid.affine)
    bright = volume[prepared.channels.index(channel)]
    low, high = (float(end) for end in np.percentile(bright[brain], overlays.CONTRAST))
    scan = Volume(np.where(brain, bright, low), affine)
    tumour = (on_grid(patient.tumour, prepared) > 0) & brain
    window = overlays.window(brain, scan.spacing_mm)
    voxel = (0, 0, int(tumour.sum(axis=(0, 1)).argmax()))
    heats = [None, *(Volume(SHADE * on_grid(patient.kept[name], prepared) * brain, affine) for name in names)]
    return [overlays.panel(scan, (low, high), heat, AXIAL, voxel, window, tumour) for heat in heats]


def on_grid(flags: Bool[np.ndarray, " p"], prepared: Tokens) -> Float[np.ndarray, "x y z"]:
    """1 at all voxels of the stored places that are flagged, 0 elsewhere."""
    side, patch = prepared.grid.side, prepared.grid.patch
    places = np.zeros(side**3, np.float32)
    places[prepared.place] = flags
    return np.kron(places.reshape(side, side, side), np.ones((patch,) * 3, np.float32))


def indices(lines: Sequence[Line], names: Mapping[str, str]) -> Figure:
    """Each encoder's index with its interval, and what random and the brightest places reach where equally many are kept."""
    with panel(height=0.9 + 0.5 * len(lines)) as (figure, axes):
        for row, line in enumerate(lines):
            stroke = CANDIDATES[row % len(CANDIDATES)]
            axes.plot([line.chosen.low, line.chosen.high], [row, row], color=stroke.colour, lw=2.2, solid_capstyle="butt")
            axes.plot(line.chosen.value, row, "o", ms=7, color=stroke.colour, label="attention [95 %]" if row == 0 else None)
            for name, found in line.others.items():
                if name == "most":
                    continue
                mark, colour, title = MARKS.get(name, (*OTHER, f"brightest in {name}"))
                axes.plot(found.value, row + 0.28, mark, ms=6, color=colour, label=title if row == 0 else None)
        axes.set_yticks(range(len(lines)), [names[line.encoder] for line in lines])
        axes.set(ylim=(len(lines) - 0.4, -0.5), xlim=(0, None), xlabel="Jaccard index with the tumour's places")
        figure.legend(loc="outside lower center", ncols=2)
    return figure
