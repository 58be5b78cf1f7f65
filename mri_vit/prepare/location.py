"""Location: where a tumour lies: its side, its lobes, how far from the ventricles, and its middle in the MNI152 brain.

All are read from the MNI152 brain that was laid over the patient's by an affine 4×4: a tumour that pushes the brain aside moves
its surroundings by some millimetres, which this does not follow. A point's lobe is that of the nearest region's centre, on the
left or mirrored to the right: the automated anatomical labelling of Tzourio-Mazoyer et al. 2002 (doi:10.1006/nimg.2001.0978),
whose centres, in mm, are as BrainNet Viewer's file of them has them; brainstem and cerebellum are placed by the template.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage
from scipy.spatial import KDTree

from mri_vit.data.volume import Volume, resample
from mri_vit.prepare import register

CENTRES = {
    "frontal lobe": [
        *[(-39, -6, 51), (-18, 35, 42), (-17, 47, -13), (-33, 33, 35), (-31, 50, -10), (-48, 13, 19), (-46, 30, 14)],
        *[(-36, 31, -12), (-47, -8, 14), (-5, 5, 61), (-8, 15, -11), (-5, 49, 31), (-5, 54, -7), (-5, 37, -18), (-4, 35, 14)],
        *[(-8, -25, 70)],
    ],
    "parietal lobe": [
        *[(-42, -23, 49), (-23, -60, 59), (-43, -46, 47), (-56, -34, 30), (-44, -61, 36), (-7, -56, 48), (-5, -43, 25)],
        *[(-5, -15, 42)],
    ],
    "temporal lobe": [
        *[(-25, -21, -10), (-21, -16, -21), (-23, -1, -17), (-31, -40, -20), (-42, -19, 10), (-53, -21, 7), (-40, 15, -20)],
        *[(-56, -34, -2), (-36, 15, -34), (-50, -28, -23)],
    ],
    "occipital lobe": [(-7, -79, 6), (-6, -80, 27), (-15, -68, -5), (-17, -84, 28), (-32, -81, 16), (-36, -78, -8)],
    "insula": [(-35, 7, 3)],
    "basal ganglia or thalamus": [(-11, 11, 9), (-24, 4, 2), (-18, 0, 0), (-11, -18, 8)],
    "cerebellum": [(-10, -40, -20), (-15, -50, -20), (-25, -60, -28), (-40, -65, -35), (-25, -60, -48), (-2, -65, -25)],
    "brainstem": [(-3, -25, -12), (-3, -28, -30), (-3, -38, -50)],
}
ONE_SIDE = 0.9  # of a tumour on one side: less, and it lies on both
NAMED_SHARE = 0.15  # of a tumour in a lobe that is named
POINTS = 4000  # of a tumour that are looked at, evenly: shares within a hundredth
NEAREST_POINTS = 200_000  # likewise for the nearest, 200 ml of 1 mm: half a second
VENTRICLES_MM = ((-40, 40), (-62, 42), (-22, 36))  # a box around the lateral and third ventricles, x y z of the MNI152 frame
VENTRICLE_DEPTH_MM = 15.0  # within the brain: fluid nearer to its border lies in furrows


def of_mask(mask: Volume, to_template: Float[np.ndarray, "4 4"]) -> dict[str, Any]:
    """Where a mask lies; what is not 0 is tumour, of which there must be some.

    `to_template` carries a point of its space to the MNI152 brain, RAS+ mm. Gives `side` (left, right or both), `lobes` (name to
    share, the largest first), `ventricles_mm` (from the tumour's nearest point; 0 where it reaches them) and `centre_mm`.
    """
    voxels, matrix = np.argwhere(mask.array != 0), to_template @ mask.affine
    most = (voxels @ matrix[:3, :3].T + matrix[:3, 3])[:: max(1, len(voxels) // NEAREST_POINTS)]
    points = most[:: max(1, len(most) // POINTS)]
    left = float((points[:, 0] < 0).mean())
    counts = np.bincount(lobe_of(points), minlength=len(CENTRES))
    lobes = {name: round(float(count / len(points)), 2) for name, count in zip(CENTRES, counts, strict=True)}
    largest = sorted(lobes.items(), key=lambda pair: -pair[1])
    return {
        "side": "left" if left >= ONE_SIDE else "right" if left <= 1 - ONE_SIDE else "both",
        "lobes": {name: share for at, (name, share) in enumerate(largest) if share >= NAMED_SHARE or not at},
        "ventricles_mm": round(float(_ventricles().query(most)[0].min()), 1),
        "centre_mm": [round(float(mm), 1) for mm in points.mean(axis=0)],
    }


def lobe_of(points_mm: Float[np.ndarray, "n 3"]) -> np.ndarray:
    """For each point of the MNI152 brain the number of its lobe in `CENTRES`."""
    mirrored = points_mm * 1.0
    mirrored[:, 0] = -np.abs(mirrored[:, 0])
    lobes, tree = _regions()
    return lobes[tree.query(mirrored)[1]]


@cache
def _regions() -> tuple[np.ndarray, KDTree]:
    """The lobe of every region, and the regions' centres."""
    lobes = [number for number, centres in enumerate(CENTRES.values()) for _ in centres]
    return np.array(lobes), KDTree([centre for centres in CENTRES.values() for centre in centres])


@cache
def _ventricles() -> KDTree:
    """The voxels of the MNI152 brain's lateral and third ventricles, mm."""
    brain, _ = register.template()
    grey, white = (resample(tissue, brain.shape, brain.affine).array for tissue in register.tissue_maps())
    to_voxel = np.linalg.inv(brain.affine)
    ends = [np.rint(to_voxel @ [*corner, 1])[:3].astype(int) for corner in zip(*VENTRICLES_MM, strict=True)]
    box = tuple(slice(first, last) for first, last in zip(*ends, strict=True))
    deep = register.template_depth_mm()[box] > VENTRICLE_DEPTH_MM
    fluid = (grey + white < 0.5)[box] & deep  # most of it is neither
    pieces, _ = ndimage.label(fluid)  # pyright: ignore[reportGeneralTypeIssues]
    largest: Bool[np.ndarray, "x y z"] = pieces == 1 + np.argmax(np.bincount(pieces.ravel())[1:])
    return KDTree((np.argwhere(largest) + ends[0]) @ brain.affine[:3, :3].T + brain.affine[:3, 3])
