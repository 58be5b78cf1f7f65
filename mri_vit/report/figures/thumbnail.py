"""A card's picture: the axial plane through the peak of one patient's map, small enough for a report's first screen."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from mri_vit.data.volume import Volume, canonical
from mri_vit.explain.images import mosaic, overlay
from mri_vit.report.figures.pictures import data_url

QUALITY = 75  # WebP's scale: 10 kB a card


def of_map(brain: Volume, heat: Volume) -> str:
    """The plane as a data: URL, the patient's right on its left.

    `brain` and `heat` lie on the same voxels and are 0 outside the brain.
    """
    scan, over = canonical(brain), canonical(heat)
    inside = scan.array > 0
    peak = tuple(int(i) for i in np.unravel_index(int(over.array.argmax()), over.array.shape))
    drawn = overlay.panel(scan, (0.0, float(scan.array.max())), over, 2, peak, mosaic.window(inside, scan.spacing_mm))
    stream = BytesIO()
    Image.fromarray(drawn).save(stream, "WEBP", quality=QUALITY)
    return data_url(stream.getvalue(), "image/webp")
