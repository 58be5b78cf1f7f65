"""A map over its scan as a picture: three planes through the map's peak, the bare scan above and the map over it below.

Where a tumour is given, its outline is drawn in them, and a further row cuts the tumour where it is largest. The colour scale
is the same in every picture, and every panel of a picture has the same pixels per millimetre. Radiological convention: the
patient's right is on the picture's left, as letters at the border say. A picture is a sheet of rows of three planes.

Letters: x, y, z voxels, h, w pixels from the top and from the left.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float, Shaped, UInt8
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import binary_erosion

from mri_vit.data.volume import Box, Volume, bounding_box, box_shape, canonical, widen
from mri_vit.explain.methods.catalogue import UNIT
from mri_vit.run.atomic import write_bytes

SCALE = (1, 2, 4, 8, 16)  # relative to a uniform map, by doublings: the same in every picture, so that a weak map looks weak
OPACITY = 0.75  # at the top of the scale; anatomy stays visible through the strongest colour
COLOURS = "inferno"  # its lightness grows with the value, so it is read in grey and by the colour-blind too
CONTRAST = (1, 99.5)  # percentiles inside the brain shown from black to white: for the brain, not for one vessel
# Half a doubling: a map whose peak is lower changes white by less than a tenth, which cannot be seen. Rollout and CLS attention
# of an untrained network peaked at 1.1 and 1.2 on a patient of BraTS.
MIN_VISIBLE_PEAK = 2**0.5
OUTLINE = (0, 220, 255)  # cyan: no shade of the scale or of a scan
PLANES = (("axial", 2, "RLAP"), ("coronal", 1, "RLSI"), ("sagittal", 0, "APSI"))  # name, axis cut, letters left/right/top/bottom
MARGIN_MM = 12.0  # shown around the brain: skull enough to see that a map lies on its own head, and little face
PANELS_PX = 760  # the three panels side by side, on a page's usual width
TALLEST_PX = 360  # a panel, so that a narrow volume does not fill a screen
GAP, TOP, SIDE, FOOT = 8, 34, 92, 26  # pixels between panels, for the title, for a colour bar, and for the note
CAPTION_PX = 22  # pixels above a row
LINE_PX = 16  # pixels from one line of a note to the next
NOTICE_COLOUR = (255, 176, 0)  # amber, as the outline of a brain: it is what a reader must not miss
BLACK, WHITE, GREY = (0, 0, 0), (255, 255, 255), (176, 176, 176)


@dataclass(frozen=True, eq=False)
class Window:
    """The part of a volume that is shown: `start` and `size` in voxels along x, y, z, and the `scale` in pixels per voxel."""

    start: tuple[int, ...]
    size: tuple[int, ...]
    scale: tuple[float, ...]

    def panel(self, axis: int) -> tuple[int, int]:
        """Height and width in pixels of the plane cut across an axis."""
        across, up = (a for a in range(3) if a != axis)
        return max(round(self.size[up] * self.scale[up]), 1), max(round(self.size[across] * self.scale[across]), 1)

    def pixel(self, voxel: Sequence[int], axis: int) -> tuple[float, float]:
        """Where on the panel (from the top, from the left) the centre of a voxel lies."""
        across, up = (a for a in range(3) if a != axis)
        down, right = (self.size[a] - (voxel[a] - self.start[a]) - 0.5 for a in (up, across))
        height, width = self.panel(axis)
        return down / self.size[up] * height, right / self.size[across] * width


@dataclass(frozen=True, eq=False)
class Row:
    """Three panels in the order of `PLANES` under a caption and a notice; `bar` labels what is drawn beside them, if anything."""

    caption: str
    panels: Sequence[UInt8[np.ndarray, "_ _ 3"]]
    bar: Bar | None = None
    notice: str = ""


@dataclass(frozen=True, eq=False)
class Bar:
    """A colour scale: `colours` from its lower end to its upper, `ticks` at heights between 0 and 1, and what it measures."""

    colours: UInt8[np.ndarray, "levels w 3"]
    ticks: Sequence[tuple[float, str]]
    label: str


@dataclass(frozen=True, eq=False)
class Underlay:
    """What all pictures of a scan share: the scan along RAS+, its brain, what is black and white in it, what is shown of it, and
    where a tumour lies, if anywhere.
    """

    scan: Volume
    brain: Bool[np.ndarray, "x y z"]
    contrast: tuple[float, float]
    shown: Window
    tumour: Bool[np.ndarray, "x y z"] | None


def underlay(scan: Volume, brain: Bool[np.ndarray, "x y z"], tumour: Bool[np.ndarray, "x y z"] | None = None) -> Underlay:
    """Of a scan, and its brain and tumour on its voxels."""
    outline = canonical(Volume(tumour, scan.affine)).array if tumour is not None and tumour.any() else None
    inside, scan = canonical(Volume(brain, scan.affine)).array, canonical(scan)
    low, high = np.percentile(scan.array[inside] if inside.any() else scan.array, CONTRAST)
    return Underlay(scan, inside, (float(low), float(high)), window(inside, scan.spacing_mm), outline)


def draw(under: Underlay, heat: Volume, title: str, path: Path, note: str = "") -> None:
    """Write the picture of `drawn` into a file."""
    write_bytes(drawn(under, heat, title, note), path)


def drawn(under: Underlay, heat: Volume, title: str, note: str = "") -> bytes:
    """The picture as PNG, with a title above and a note below.

    `heat` is on the voxels of the scan that `under` was made of, in that order of axes; it is relative to a uniform map and 0
    outside the brain.
    """
    heat, inside, shown, outline = canonical(heat), under.brain, under.shown, under.tumour
    flat = not np.ptp(heat.array[inside]) if inside.any() else True  # has no peak; so of a network's map of one voxel
    middle = tuple(start + size // 2 for start, size in zip(shown.start, shown.size, strict=True))
    peak = middle if flat else tuple(int(i) for i in np.unravel_index(int(heat.array.argmax()), heat.shape))

    def planes(heat: Volume | None, voxel: tuple[int, ...]) -> list[UInt8[np.ndarray, "h w 3"]]:
        return [panel(under.scan, under.contrast, heat, axis, voxel, shown, outline) for _, axis, _ in PLANES]

    bare = planes(None, peak)
    value = f"{heat.array[peak]:.1f} {UNIT}" if heat.array.any() else "0"
    even = nearly_even(float(heat.array.max()))
    caption = f"the scan; the map is {value} everywhere"
    if not flat:
        caption = f"the scan through the map's peak (cross): {value}"
        bare = [marked(cut, shown.pixel(peak, axis)) for cut, (_, axis, _) in zip(bare, PLANES, strict=True)]
    over = "the map over it" + ("; line: the tumour's outline" if outline is not None else "")
    rows = [Row(caption, bare), Row(over, planes(heat, peak), colour_bar(), even)]
    if outline is not None:
        through = planes(heat, _largest(outline))
        rows.append(Row("the map where planes cut most of the tumour", through, notice=even))  # short: the notice is beside it
    return sheet(title, rows, shown, note)


def nearly_even(peak: float) -> str:
    """The notice of a map whose colours show nothing, by its highest value relative to a uniform map; else ""."""
    if not peak:
        return "the map is 0 everywhere: nothing to see"
    return f"peak {peak:.1f} {UNIT}, nearly even: nothing to see" if peak < MIN_VISIBLE_PEAK else ""


def panel(
    scan: Volume,
    contrast: tuple[float, float],
    heat: Volume | None,
    axis: int,
    voxel: tuple[int, ...],
    shown: Window,
    outline: Bool[np.ndarray, "x y z"] | None = None,
) -> UInt8[np.ndarray, "h w 3"]:
    """One plane through a voxel: the scan from `contrast`'s black to its white, the map over it, the outline over both."""
    low, high = contrast
    cut = plane(scan.array, axis, voxel[axis], shown)
    grey = ((cut - low) / max(high - low, 1e-6)).clip(0, 1)  # 1e-6: a scan of one value is black, no fault
    drawn = blend(grey, plane(heat.array, axis, voxel[axis], shown) if heat else np.zeros_like(grey))
    if outline is None:
        return drawn
    return outlined(drawn, plane(outline, axis, voxel[axis], shown), OUTLINE)


def blend(grey: Float[np.ndarray, "h w"], heat: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """Colour mixed into grey: colour and opacity grow evenly with each doubling; an even share or less is clear."""
    height = np.log(heat.clip(SCALE[0], SCALE[-1])) / np.log(SCALE[-1])
    colour = mpl.colormaps[COLOURS](height)[..., :3]
    opacity = OPACITY * height[..., None]
    return np.rint(255 * ((1 - opacity) * grey[..., None] + opacity * colour)).astype(np.uint8)


def colour_bar() -> Bar:
    """The scale as it looks over tissue from black (left) to white (right)."""
    heights = np.linspace(0, 1, 128)
    grey, heat = np.meshgrid(np.linspace(0, 1, 18), SCALE[-1] ** heights)
    names = ["≤ 1", *(str(step) for step in SCALE[1:-1]), f"≥ {SCALE[-1]}"]
    ticks = [(float(np.log(step) / np.log(SCALE[-1])), name) for step, name in zip(SCALE, names, strict=True)]
    return Bar(blend(grey, heat), ticks, UNIT)


def _largest(tumour: Bool[np.ndarray, "x y z"]) -> tuple[int, ...]:
    """Along each axis the plane that holds most of the tumour, which a ring's or two lesions' centre may miss."""
    return tuple(int(tumour.sum(axis=tuple({0, 1, 2} - {axis})).argmax()) for axis in range(3))


# --- a sheet of rows of three planes ------------------------------------------------------------------------------------------


def shown_box(brain: Bool[np.ndarray, "x y z"], spacing_mm: tuple[float, float, float]) -> Box:
    """The box of the true voxels with a margin, as large as fits; all of the volume where none is true."""
    if not brain.any():
        x, y, z = (slice(0, n) for n in brain.shape)
        return x, y, z
    return widen(bounding_box(brain), [round(MARGIN_MM / mm) for mm in spacing_mm], brain.shape)


def window(brain: Bool[np.ndarray, "x y z"], spacing_mm: tuple[float, float, float]) -> Window:
    """`shown_box` of a volume along RAS+, as large in pixels as a picture has room for."""
    box = shown_box(brain, spacing_mm)
    size = box_shape(box)
    x, y, z = (n * mm for n, mm in zip(size, spacing_mm, strict=True))
    per_mm = min((PANELS_PX - 2 * GAP) / (2 * x + y), TALLEST_PX / max(y, z))
    return Window(tuple(part.start for part in box), size, tuple(per_mm * mm for mm in spacing_mm))


def plane(array: Shaped[np.ndarray, "x y z"], axis: int, index: int, window: Window) -> Float[np.ndarray, "h w"]:
    """One plane as seen, scaled bilinearly: head (in an axial plane the nose) up, the patient's right or front on the left."""
    box = [slice(start, start + size) for start, size in zip(window.start, window.size, strict=True)]
    cut = np.take(array, index, axis)[tuple(box[a] for a in range(3) if a != axis)].astype(np.float32)
    height, width = window.panel(axis)
    small = Image.fromarray(np.ascontiguousarray(cut.T[::-1, ::-1]))
    return np.asarray(small.resize((width, height), Image.Resampling.BILINEAR))


def outlined(
    panel: UInt8[np.ndarray, "h w 3"], mask: Float[np.ndarray, "h w"], colour: tuple[int, int, int]
) -> UInt8[np.ndarray, "h w 3"]:
    """The panel with a line just inside the border of what a mask's plane holds."""
    inside = mask > 0.5
    return np.where((inside & np.logical_not(binary_erosion(inside, iterations=2)))[..., None], np.array(colour, np.uint8), panel)


def marked(panel: UInt8[np.ndarray, "h w 3"], pixel: tuple[float, float]) -> UInt8[np.ndarray, "h w 3"]:
    """The panel with an open cross around a pixel, which itself stays to be seen."""
    image = Image.fromarray(panel)
    pen = ImageDraw.Draw(image)
    down, right = pixel
    for line, colour in ((3, BLACK), (1, WHITE)):
        for near, far in ((5, 12), (-12, -5)):
            pen.line((right + near, down, right + far, down), colour, line)
            pen.line((right, down + near, right, down + far), colour, line)
    return np.asarray(image)


def sheet(title: str, rows: Sequence[Row], window: Window, note: str) -> bytes:
    """The picture as PNG."""
    sizes = [window.panel(axis) for _, axis, _ in PLANES]
    tall = max(height for height, _ in sizes)
    width = PANELS_PX + (SIDE if any(row.bar for row in rows) else 0) + 2 * GAP
    lines = wrapped(note, width - 2 * GAP)
    foot = FOOT + (len(lines) - 1) * LINE_PX
    picture = Image.new("RGB", (width, TOP + len(rows) * (CAPTION_PX + tall + GAP) + foot), BLACK)
    pen = ImageDraw.Draw(picture)
    pen.text((GAP, TOP / 2), title, WHITE, font(15), anchor="lm")
    spare = (PANELS_PX - sum(w for _, w in sizes)) / 2  # where the height is what limits
    for number, row in enumerate(rows):
        top = TOP + number * (CAPTION_PX + tall + GAP)
        pen.text((GAP, top + CAPTION_PX / 2), row.caption, GREY, font(12), anchor="lm")
        if row.notice:
            pen.text((PANELS_PX, top + CAPTION_PX / 2), row.notice, NOTICE_COLOUR, font(13), anchor="rm")
        left = float(GAP)
        for (name, _, letters), panel, (height, across) in zip(PLANES, row.panels, sizes, strict=True):
            x, y = round(left), round(top + CAPTION_PX + (tall - height) / 2)
            picture.paste(Image.fromarray(panel), (x, y))
            _lettered(pen, letters, x, y, across, height)
            pen.text((x + 5, y + 4), name, GREY, font(11), stroke_width=1, stroke_fill=BLACK)
            left += across + spare
        if row.bar:
            _draw_bar(picture, row.bar, PANELS_PX + 2 * GAP, top + CAPTION_PX + 10, tall - 20)
    for number, line in enumerate(reversed(lines)):
        pen.text((GAP, picture.height - FOOT / 2 - number * LINE_PX), line, GREY, font(12), anchor="lm")
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=4)  # 4: a few per cent larger than 9 in a fifth of the time
    return file.getvalue()


def wrapped(note: str, width: int, size: int = 12) -> list[str]:
    """The note in lines of at most so many pixels, unless a word is wider; `size` is the font's."""
    lines = [""]
    for word in note.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if font(size).getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _lettered(pen: ImageDraw.ImageDraw, letters: str, x: int, y: int, width: int, height: int) -> None:
    """Black around the letters keeps them readable over a bright skull."""
    positions = ((6, height / 2, "lm"), (width - 6, height / 2, "rm"), (width / 2, 5, "mt"), (width / 2, height - 5, "mb"))
    for letter, (right, down, anchor) in zip(letters, positions, strict=True):
        pen.text((x + right, y + down), letter, WHITE, font(13), anchor=anchor, stroke_width=2, stroke_fill=BLACK)


def _draw_bar(picture: Image.Image, bar: Bar, x: int, y: int, height: int) -> None:
    shown = Image.fromarray(bar.colours[::-1]).resize((18, height), Image.Resampling.BILINEAR)
    picture.paste(shown, (x, y))
    pen = ImageDraw.Draw(picture)
    pen.rectangle((x - 1, y - 1, x + 18, y + height), outline=GREY)
    for at, text in bar.ticks:
        down = y + (1 - at) * (height - 1)
        pen.line((x + 18, down, x + 22, down), GREY)
        pen.text((x + 25, down), text, WHITE, font(12), anchor="lm")
    label = Image.new("RGB", (height, 16), BLACK)
    ImageDraw.Draw(label).text((height / 2, 8), bar.label, WHITE, font(12), anchor="mm")
    picture.paste(label.rotate(90, expand=True), (x + 62, y))


@cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which matplotlib ships: it has ×, ≥ and − where Pillow's own font has boxes."""
    return ImageFont.truetype(str(Path(mpl.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), size)
