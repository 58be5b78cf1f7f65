"""Where a cohort's tumours lie, and how large they are, on the MNI152 brain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from mri_vit.prepare.register import mni152
from mri_vit.report.figures.panels import BLUE, GREY, ORANGE, RC, WIDTH
from mri_vit.report.schema.parts import Tumour

PLANES = {"from above": (0, 1), "from the right": (1, 2), "from behind": (0, 2)}  # axes of the MNI152 frame; left is left
AXES = ("left to right", "back to front", "bottom to top")
LARGEST_POINTS = 260.0  # area of the largest tumour's mark


def where_tumours_lie(tumours: Sequence[Tumour], sure: float) -> Figure:
    """Each tumour's middle, a mark as large as its volume, in three projections of the MNI152 brain; and how volumes spread.

    Masks that were found with a confidence below `sure` are rings.
    """
    masked = [one for one in tumours if one.tumour_ml is not None and one.centre_mm is not None]
    centres = np.array([one.centre_mm for one in masked], float).reshape(-1, 3)
    volumes = np.array([one.tumour_ml for one in masked], float)
    doubtful = np.array([one.confidence is not None and one.confidence < sure for one in masked], bool)
    areas = LARGEST_POINTS * volumes / volumes.max()
    with mpl.rc_context(RC):
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        for axes, (name, plane) in zip(figure.subplots(2, 2).flat, [*PLANES.items(), ("", (0, 0))], strict=True):
            if not name:
                axes.hist(volumes, bins=np.linspace(0, volumes.max(), 13).tolist(), color=BLUE)
                axes.set(xlabel="Volume, ml", ylabel="Patients")
                continue
            shade, extent = _silhouette(plane)
            axes.contour(shade.T, [0.5], extent=extent, colors=[GREY], linewidths=0.8)
            for some, look in ((~doubtful, {"color": BLUE, "alpha": 0.35, "lw": 0}), (doubtful, {"fc": "none", "ec": ORANGE})):
                axes.scatter(*centres[some][:, plane].T, s=areas[some], **look)
            axes.set(title=name, xticks=[], yticks=[], aspect="equal", xlabel=AXES[plane[0]], ylabel=AXES[plane[1]])
    return figure


@cache
def _silhouette(plane: tuple[int, int]) -> tuple[Float[np.ndarray, "u v"], tuple[float, float, float, float]]:
    """Where the MNI152 brain is seen along the axis that is no axis of the plane; and from where to where, mm."""
    brain = mni152()
    (along,) = {0, 1, 2} - set(plane)
    low, high = brain.affine[:3, 3], (brain.affine @ [*(np.array(brain.shape) - 1), 1])[:3]
    return (brain.array > 0).any(axis=along).astype(float), (*(low[plane[0]], high[plane[0]]), *(low[plane[1]], high[plane[1]]))
