"""Small pictures of maps: the axial plane through the peak of one patient's map, and one plane of several maps, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from mri_vit.data.volume import Volume, canonical
from mri_vit.explain.outputs import overlays
from mri_vit.report.figures.pictures import data_url

QUALITY = 75  # WebP's scale: 10 kB a card
AXIAL = 2


def of_map(brain: Volume, heat: Volume) -> str:
    """The plane as a data: URL, the patient's right on its left.

    `brain` and `heat` lie on the same voxels and are 0 outside the brain.
    """
    scan, over = canonical(brain), canonical(heat)
    return _packed(_drawn(scan, over, _peak(over)))


def side_by_side(brain: Volume, heats: Sequence[Volume], tumour: Bool[np.ndarray, "x y z"] | None) -> tuple[Sequence[str], float]:
    """The same axial plane of several maps as data: URLs, and how high it lies in mm.

    It is the plane that cuts most of the tumour, whose outline is drawn, or without a tumour that through the first map's peak.
    All lie on the brain's voxels.
    """
    scan, over = canonical(brain), [canonical(heat) for heat in heats]
    outline = canonical(Volume(tumour, brain.affine)).array if tumour is not None and tumour.any() else None
    voxel = _peak(over[0])
    if outline is not None:
        largest = int(outline.sum(axis=(0, 1)).argmax())
        voxel = (*(int(middle) for middle in np.argwhere(outline[:, :, largest]).mean(axis=0)), largest)
    height_mm = float((scan.affine @ [*voxel, 1])[2])
    return [_packed(_drawn(scan, one, voxel, outline)) for one in over], height_mm


def _peak(heat: Volume) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(heat.array.argmax()), heat.array.shape))


def _drawn(
    scan: Volume, heat: Volume, voxel: tuple[int, ...], outline: Bool[np.ndarray, "x y z"] | None = None
) -> UInt8[np.ndarray, "h w 3"]:
    shown = overlays.window(scan.array > 0, scan.spacing_mm)
    return overlays.panel(scan, (0.0, float(scan.array.max())), heat, AXIAL, voxel, shown, outline)


def _packed(panel: UInt8[np.ndarray, "h w 3"]) -> str:
    stream = BytesIO()
    Image.fromarray(panel).save(stream, "WEBP", quality=QUALITY)
    return data_url(stream.getvalue(), "image/webp")
