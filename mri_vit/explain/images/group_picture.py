"""Two groups' mean maps and their difference as a picture: three planes of the MNI152 brain through the mean's peak.

Letters: h, w pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, UInt8

from mri_vit.data.volume import Volume, canonical, resample
from mri_vit.explain.images import mosaic, overlay
from mri_vit.explain.images.mosaic import PLANES, Bar, Row
from mri_vit.explain.methods.names import UNIT
from mri_vit.prepare.register import template

END = 8  # times the uniform map, where the difference's colours end; the same in every picture
BRIGHTEST = 0.8  # of white: the template's white matter, so that faint colours can be seen on it
COLOURS = "RdBu_r"  # red where the first group has more, blue where the second has; the colour-blind can separate them


def draw(title: str, means: Sequence[tuple[str, Volume]], difference: tuple[str, Volume], note: str) -> bytes:
    """The picture as PNG; each map, in times the uniform map, comes with the line above its row."""
    brain = canonical(template()[0])
    shown = mosaic.window(brain.array > 0, brain.spacing_mm)
    maps = [(caption, resample(heat, brain.shape, brain.affine)) for caption, heat in (*means, difference)]
    both = sum(heat.array for _, heat in maps[:-1])
    peak = tuple(int(i) for i in np.unravel_index(int(np.argmax(both)), brain.shape))
    contrast = 0.0, float(brain.array.max()) / BRIGHTEST
    rows = [
        Row(
            caption,
            [overlay.panel(brain, contrast, heat, axis, peak, shown) for _, axis, _ in PLANES],
            overlay.colour_bar(),
            overlay.nearly_even(float(heat.array.max())),
        )
        for caption, heat in maps[:-1]
    ]
    caption, last = maps[-1]
    cuts = [[mosaic.plane(part.array, axis, peak[axis], shown) for part in (brain, last)] for _, axis, _ in PLANES]
    differing = [over((scan / contrast[1]).clip(0, 1), less) for scan, less in cuts]
    return mosaic.sheet(title, [*rows, Row(caption, differing, colour_bar())], shown, note)


def over(grey: Float[np.ndarray, "h w"], difference: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """Colour mixed into grey: colour and opacity grow evenly with the difference, whose zero is clear."""
    height = (difference / END).clip(-1, 1)
    colour = mpl.colormaps[COLOURS]((1 + height) / 2)[..., :3]
    opacity = overlay.OPACITY * np.abs(height)[..., None]
    return np.rint(255 * ((1 - opacity) * grey[..., None] + opacity * colour)).astype(np.uint8)


def colour_bar() -> Bar:
    """The difference's scale as it looks over tissue from black (left) to white (right)."""
    grey, difference = np.meshgrid(np.linspace(0, 1, 18), np.linspace(-END, END, 129))
    ticks = [(0.0, f"≤ −{END}"), (0.25, f"−{END // 2}"), (0.5, "0"), (0.75, f"{END // 2}"), (1.0, f"≥ {END}")]
    return Bar(over(grey, difference), ticks, UNIT)
