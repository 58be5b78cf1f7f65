"""A map over its scan as a picture: three planes through the map's peak, the bare scan above and the map over it below.

Where a tumour is given, its outline is drawn in them, and a further row cuts the tumour where it is largest. The colour scale
is the same in every picture. Letters: x, y, z voxels, h, w pixels.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from jaxtyping import Bool, Float, UInt8

from mri_vit.data.volume import Volume, canonical
from mri_vit.explain.images import mosaic
from mri_vit.explain.images.mosaic import PLANES, Bar, Row, Window
from mri_vit.explain.methods.names import UNIT
from mri_vit.run.atomic import write_bytes

SCALE = (1, 2, 4, 8, 16)  # times the uniform map, by doublings: the same in every picture, so that a weak map looks weak
OPACITY = 0.75  # at the top of the scale; anatomy stays visible through the strongest colour
COLOURS = "inferno"  # its lightness grows with the value, so it is read in grey and by the colour-blind too
CONTRAST = (1, 99.5)  # percentiles inside the brain shown from black to white: for the brain, not for one vessel
# Half a doubling: a map whose peak is lower changes white by less than a tenth, which cannot be seen. Rollout and CLS attention
# of an untrained network peaked at 1.1 and 1.2 on a patient of BraTS.
EVEN = 2**0.5
OUTLINE = (0, 220, 255)  # cyan: no shade of the scale or of a scan


def draw(
    scan: Volume,
    heat: Volume,
    title: str,
    path: Path,
    brain: Bool[np.ndarray, "x y z"] | None = None,
    tumour: Bool[np.ndarray, "x y z"] | None = None,
    note: str = "",
) -> None:
    """Write the picture as PNG.

    Parameters
    ----------
    scan, heat, brain, tumour
        On the same voxels; `heat` in times the uniform map and 0 outside the brain, which is where it is not 0 if not given.
    title, note
        Lines above and below.
    path
        Of the file, which is replaced whole.
    """
    outline = canonical(Volume(tumour, scan.affine)).array if tumour is not None and tumour.any() else None
    inside = canonical(Volume(heat.array > 0 if brain is None else brain, scan.affine)).array
    scan, heat = canonical(scan), canonical(heat)
    shown = mosaic.window(inside, scan.spacing_mm)
    low, high = np.percentile(scan.array[inside] if inside.any() else scan.array, CONTRAST)
    contrast = float(low), float(high)
    flat = not np.ptp(heat.array[inside]) if inside.any() else True  # has no peak; so of a network's map of one voxel
    peak = _middle(shown) if flat else tuple(int(i) for i in np.unravel_index(int(heat.array.argmax()), heat.shape))
    bare = [panel(scan, contrast, None, axis, peak, shown, outline) for _, axis, _ in PLANES]
    over = [panel(scan, contrast, heat, axis, peak, shown, outline) for _, axis, _ in PLANES]
    value = f"{heat.array[peak]:.1f} {UNIT}" if heat.array.any() else "0"
    even = nearly_even(float(heat.array.max()))
    rows = [
        Row(f"the scan; the map is {value} everywhere", bare)
        if flat
        else Row(
            f"the scan through the map's peak (cross): {value}",
            [mosaic.marked(one, shown.pixel(peak, axis)) for one, (_, axis, _) in zip(bare, PLANES, strict=True)],
        ),
        Row("the map over it" + ("; line: the tumour's outline" if outline is not None else ""), over, colour_bar(), even),
    ]
    if outline is not None:
        largest = _largest(outline)
        through = [panel(scan, contrast, heat, axis, largest, shown, outline) for _, axis, _ in PLANES]
        rows.append(Row("the map over the scan, where each plane cuts most of the tumour", through, notice=even))
    write_bytes(mosaic.sheet(title, rows, shown, note), path)


def nearly_even(peak: float) -> str:
    """What a picture says of a map whose colours show nothing, by its highest value relative to a uniform map; else nothing."""
    if not peak:
        return "the map is 0 everywhere: nothing to see"
    return f"peak {peak:.1f} {UNIT}, nearly even: nothing to see" if peak < EVEN else ""


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
    cut = mosaic.plane(scan.array, axis, voxel[axis], shown)
    grey = ((cut - low) / max(high - low, 1e-6)).clip(0, 1)  # 1e-6: a scan of one value is black, no fault
    drawn = over(grey, mosaic.plane(heat.array, axis, voxel[axis], shown) if heat else np.zeros_like(grey))
    if outline is None:
        return drawn
    return mosaic.outlined(drawn, mosaic.plane(outline, axis, voxel[axis], shown), OUTLINE)


def over(grey: Float[np.ndarray, "h w"], heat: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
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
    return Bar(over(grey, heat), ticks, UNIT)


def _middle(shown: Window) -> tuple[int, ...]:
    """The voxel in the middle of what is shown."""
    return tuple(start + size // 2 for start, size in zip(shown.start, shown.size, strict=True))


def _largest(tumour: Bool[np.ndarray, "x y z"]) -> tuple[int, ...]:
    """Along each axis the plane that holds most of the tumour, which a ring's or two lesions' centre may miss."""
    return tuple(int(tumour.sum(axis=tuple({0, 1, 2} - {axis})).argmax()) for axis in range(3))
