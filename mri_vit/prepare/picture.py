"""QC: the prepared volume goes in, one picture to judge it by comes out: three planes of each scan, with the brain's outline."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import binary_erosion

from mri_vit.prepare import box
from mri_vit.settings.sequences import CHANNELS

PANEL = 224  # pixels per plane: one per millimetre of the default grid
HEADER = 50  # pixels for the title and the line below it
WINDOW = (-2.5, 4.0)  # standard deviations shown from black to white
BACKGROUND = (16, 16, 20)
OUTLINE = (255, 176, 0)  # amber: distinguished from grey by everyone, colour-blind or not
TEXT = (225, 225, 225)
PLANES = {  # name: (axis through the plane, letter on its left, letter on its right)
    "axial": (2, "R", "L"),  # as radiologists look: from the feet, the patient's right on the left
    "coronal": (1, "R", "L"),
    "sagittal": (0, "A", "P"),
}


def draw(
    volume: Float[np.ndarray, "c e e e"],
    brain: Bool[np.ndarray, "e e e"],
    patient: str,
    caption: str,
    below: str = "",
    channels: Sequence[str] = CHANNELS,
) -> bytes:
    """The picture as PNG, with `below` under the title. The planes pass through the middle of the brain."""
    middle = [round(place) for place in box.middle(brain).tolist()]
    there = [bool(scan.any()) for scan in volume]
    picture = Image.new("RGB", (PANEL * len(channels), HEADER + PANEL * len(PLANES)), BACKGROUND)
    pen = ImageDraw.Draw(picture)
    small, large = ImageFont.load_default(13), ImageFont.load_default(16)
    pen.text((8, 6), patient, TEXT, large)
    pen.text((picture.width - 8, 8), caption, TEXT, small, anchor="ra")
    pen.text((8, 29), below, TEXT, small)
    for row, (plane, (axis, left, right)) in enumerate(PLANES.items()):
        outline = _edge(_enlarged(_slice(brain, axis, middle[axis]).astype(np.uint8) * 255) > 127)
        for column, channel in enumerate(channels):
            low, high = WINDOW
            grey = ((_slice(volume[column], axis, middle[axis]) - low) / (high - low)).clip(0, 1) * 255
            shown = np.where(_slice(brain, axis, middle[axis]) & there[column], grey, 0).astype(np.uint8)
            panel = np.repeat(_enlarged(shown)[..., None], 3, axis=2)
            panel[panel.max(axis=2) == 0] = BACKGROUND
            panel[outline] = OUTLINE
            x, y = column * PANEL, HEADER + row * PANEL
            picture.paste(Image.fromarray(panel), (x, y))
            pen.text((x + 5, y + PANEL // 2), left, TEXT, small, anchor="lm")
            pen.text((x + PANEL - 5, y + PANEL // 2), right, TEXT, small, anchor="rm")
            pen.text((x + 5, y + 4), f"{channel} {plane}{'' if there[column] else ': no scan'}", TEXT, small)
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=4)
    return file.getvalue()


def _slice(array: np.ndarray, axis: int, index: int) -> np.ndarray:
    """A plane as an image: head (in an axial plane the nose) at the top, the patient's right or front at the left."""
    return np.take(array, index, axis).T[::-1, ::-1]


def _enlarged(image: UInt8[np.ndarray, "h w"]) -> UInt8[np.ndarray, "_ _"]:
    return np.array(Image.fromarray(image).resize((PANEL, PANEL), Image.Resampling.BILINEAR))


def _edge(mask: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    return mask & np.logical_not(binary_erosion(mask))
