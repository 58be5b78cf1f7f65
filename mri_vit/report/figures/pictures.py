"""Pictures that a page carries, packed into data: URLs: overlays and QC sheets shrunk, and planes of a patient's maps.

WebP, which every browser shows since 2020, is a tenth of the PNG; the PNG itself stays in the run's folder.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image

from mri_vit.data.volume import Volume, canonical
from mri_vit.errors import IntegrityError
from mri_vit.explain.outputs import overlays

BATCH = 32  # pictures read ahead; more would be read in vain where the budget ends
WORKERS = 2  # Pillow lets go of Python's lock while it decodes and encodes


def data_url(content: bytes, media_type: str) -> str:
    """The content as an address that needs no file and no network."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def opened(path: Path) -> Image.Image:
    """The pixels of a picture. Raises IntegrityError where it is damaged."""
    try:
        with Image.open(path) as picture:
            return picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # as Pillow says "damaged"
        raise IntegrityError(f"{path}: damaged picture ({error}); delete it, or its folder, and make it again") from None


def shrunk(paths: Sequence[Path], width: int, quality: int, budget: int) -> list[str]:
    """Each picture at most `width` pixels wide as a data: URL, as many from the first on as fit into `budget` bytes of page."""

    def pack(path: Path) -> str:
        small = opened(path)
        if small.width > width:
            small = small.resize((width, round(small.height * width / small.width)), Image.Resampling.BOX, reducing_gap=2.0)
        stream = BytesIO()
        small.save(stream, "WEBP", quality=quality, method=0)  # of 0 to 6: no larger than 1 here, and twice as fast
        return data_url(stream.getvalue(), "image/webp")

    packed, spent = [], 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for start in range(0, len(paths), BATCH):
            for url in pool.map(pack, paths[start : start + BATCH]):
                spent += len(url)
                if spent > budget:
                    return packed
                packed.append(url)
    return packed


THUMBNAIL_QUALITY = 75  # WebP's scale: 10 kB a card
AXIAL = 2


def map_thumbnail(brain: Volume, heat: Volume) -> str:
    """The plane as a data: URL, the patient's right on its left.

    `brain` and `heat` lie on the same voxels and are 0 outside the brain.
    """
    scan, over = canonical(brain), canonical(heat)
    return _as_webp(_plane(scan, over, _peak_voxel(over)))


def side_by_side(brain: Volume, heats: Sequence[Volume], tumour: Bool[np.ndarray, "x y z"] | None) -> tuple[Sequence[str], float]:
    """The same axial plane of several maps as data: URLs, and how high it lies in mm.

    It is the plane that cuts most of the tumour, whose outline is drawn, or without a tumour that through the first map's peak.
    All lie on the brain's voxels.
    """
    scan, over = canonical(brain), [canonical(heat) for heat in heats]
    outline = canonical(Volume(tumour, brain.affine)).array if tumour is not None and tumour.any() else None
    voxel = _peak_voxel(over[0])
    if outline is not None:
        largest = int(outline.sum(axis=(0, 1)).argmax())
        voxel = (*(int(middle) for middle in np.argwhere(outline[:, :, largest]).mean(axis=0)), largest)
    height_mm = float((scan.affine @ [*voxel, 1])[2])
    return [_as_webp(_plane(scan, one, voxel, outline)) for one in over], height_mm


def _peak_voxel(heat: Volume) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(heat.array.argmax()), heat.array.shape))


def _plane(
    scan: Volume, heat: Volume, voxel: tuple[int, ...], outline: Bool[np.ndarray, "x y z"] | None = None
) -> UInt8[np.ndarray, "h w 3"]:
    shown = overlays.window(scan.array > 0, scan.spacing_mm)
    return overlays.panel(scan, (0.0, float(scan.array.max())), heat, AXIAL, voxel, shown, outline)


def _as_webp(panel: UInt8[np.ndarray, "h w 3"]) -> str:
    stream = BytesIO()
    Image.fromarray(panel).save(stream, "WEBP", quality=THUMBNAIL_QUALITY)
    return data_url(stream.getvalue(), "image/webp")
