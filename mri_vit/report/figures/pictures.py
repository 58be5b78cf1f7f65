"""Pictures that a page carries: the pixels of overlays and QC sheets shrunk and packed into data: URLs.

WebP, which every browser shows since 2020, is a tenth of the PNG; the PNG itself stays in the run's folder.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

from PIL import Image

from mri_vit.errors import IntegrityError

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
