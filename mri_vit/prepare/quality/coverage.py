"""Coverage: how much of each part of the MNI152 brain a brain mask reaches, once the template has been given its size."""

from __future__ import annotations

from functools import cache

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import svdvals
from scipy.ndimage import distance_transform_edt

from mri_vit.data.volume import Volume, resample
from mri_vit.prepare import box, register

RIM_MM = 8.0  # of the MNI152 brain that is left out: there brains of one size differ
# Planes of the MNI152 frame, mm (its atlas's labels are not among the installed files; these need none). Below and behind the
# first two lies cerebellum alone; above the third the cerebrum, cut at the frame's middle plane and at the other two.
CEREBELLUM_BELOW, CEREBELLUM_BEHIND, CEREBRUM_ABOVE, FRONT_OF, UPPER_ABOVE = -25.0, -40.0, -15.0, -20.0, 15.0


@cache
def core() -> Bool[np.ndarray, "x y z"]:
    """The MNI152 brain without its rim, on the voxels of `register.template`."""
    brain, _ = register.template()
    inside = brain.array > 0
    part = box.widened(box.around(inside), (1, 1, 1), brain.shape)
    found = np.zeros_like(inside)
    found[part] = np.asarray(distance_transform_edt(inside[part], sampling=brain.spacing_mm)) > RIM_MM
    return found


@cache
def parts() -> dict[str, Bool[np.ndarray, "x y z"]]:
    """Parts of `core`: cerebellum, and eight of the cerebrum."""
    brain, _ = register.template()
    axes = np.ogrid[tuple(map(slice, brain.shape))]
    x, y, z = (index * step + start for index, step, start in zip(axes, brain.spacing_mm, brain.affine[:3, 3], strict=True))
    found = {"cerebellum": core() & (z < CEREBELLUM_BELOW) & (y < CEREBELLUM_BEHIND)}
    for side, in_side in (("left", x < 0), ("right", x >= 0)):
        for end, in_end in (("front", y >= FRONT_OF), ("back", y < FRONT_OF)):
            for level, in_level in (("upper", z >= UPPER_ABOVE), ("lower", z < UPPER_ABOVE)):
                found[f"{side} {end} {level}"] = core() & (z > CEREBRUM_ABOVE) & in_side & in_end & in_level
    return found


def shares(mask: Volume, from_mni: Float[np.ndarray, "4 4"]) -> dict[str, float]:
    """Of each part, what lies in the brain `mask`; the affine 4×4 carries a point of the MNI152 frame to it."""
    brain, _ = register.template()
    reached = resample(mask, brain.shape, brain.affine, from_mni).array > 0.5
    return {name: float(reached[part].mean()) for name, part in parts().items()}


def squeezed(from_mni: Float[np.ndarray, "4 4"]) -> float:
    """Least over greatest scale of an affine 4×4: a whole template laid over half a brain is squeezed along one axis."""
    scales = np.asarray(svdvals(from_mni[:3, :3]))
    return float(scales.min() / scales.max())
