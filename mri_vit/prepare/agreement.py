"""Agreement: whether scans show one head, the same way round. Copies go in; each scan's likeness to the reference comes out.

Two halves of a brain are alike from afar and differ in every fold. So a patient's own scan is more like the reference than like
the reference's mirror image, a mirrored one is more like the mirror image, and another patient's is like neither more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Shaped
from scipy.ndimage import find_objects, uniform_filter
from scipy.spatial.transform import Rotation

from mri_vit.data.volume import Volume, resample
from mri_vit.prepare import register
from mri_vit.settings.recipe import is_quantitative
from mri_vit.settings.sections import Grid

WINDOW_MM = 14.0  # of the local correlation, at most: some folds wide; 10 and 18 mm separate own from mirrored as well
THICKEST_MM = (
    5.5  # slices in which they are: a real patient's, distinguished from others and from the mirror image; thicker not tried
)
HEADERS_MM = 0.01  # a header has 5.5 mm as 5.5000005
REGISTERED_MM = 4.0  # copies by which the mirror image is laid over the brain: its fit moves the ratio by less than 0.05
BACKGROUND_OFFSET = 10.0  # added inside the brain, so that its darkest voxel stays apart from the background's 0
MIN_LIKENESS_RATIO = 1.3  # of a scan to the reference over that to its mirror image; twelve real patients have 1.42 and more
LIKENESS_EPS = 1e-6  # likeness: nothing is divided by 0
VAR_EPS = 1e-3  # squared standard deviations: a window that varies less says nothing
GRID = Grid(edge=112, spacing_mm=2.0)  # the default grid at an eighth of the work: the cortex's folds are still seen


@dataclass(frozen=True)
class Likeness:
    """Mean squared local correlation of a scan with the reference, and with the reference's mirror image: 0 to 1.

    `reversed` is the ratio of the two for the scan's own mirror image, of a scan that is doubtful.
    """

    direct: float
    mirrored: float
    reversed: float | None

    @property
    def figures(self) -> dict[str, float | None]:
        """As they stand in `patient.json`."""
        ratio = self.direct / max(self.mirrored, LIKENESS_EPS)
        return {
            "likeness": self.direct,
            "mirrored_likeness": self.mirrored,
            "own_to_mirrored": ratio,
            "reversed": self.reversed,
        }


@dataclass(frozen=True)
class Agreement:
    """Each scan's likeness, by channel; and how the brain's own middle plane lies against the grid's."""

    scans: dict[str, Likeness]
    middle_degrees: float
    middle_mm: float


def of_copies(
    copies: Copies, reference: str, judged: Collection[str], aligned_mirrored: Callable[[str], Float[np.ndarray, "x y z"]]
) -> Agreement:
    """Compare scans with the reference, and with the reference's mirror image once that is laid over it rigidly.

    A mirrored scan was aligned to what it is not an image of, and may lie beside it. So of a doubtful one `aligned_mirrored`
    gives the mirror image on the copies' voxels, aligned as a scan is: if that is the reference's own, the scan is mirrored.
    `judged` are the scans that show a brain's folds (see `shows_folds`).
    """
    still = Volume(np.where(copies.brain, copies.scans[reference] + BACKGROUND_OFFSET, 0).astype(np.float32), copies.affine)
    flipped = _mirrored(still)
    onto = register.align(
        register.coarse_copy(still, REGISTERED_MM), register.coarse_copy(flipped, REGISTERED_MM), [np.eye(4)]
    ).matrix
    image = resample(flipped, still.shape, still.affine, onto).array
    like = partial(similarity, where=copies.brain & (image > BACKGROUND_OFFSET / 2), window=window(copies))
    found = {}
    for channel in sorted(copies.scans.keys() & set(judged) - {reference}):
        direct, other = (like(copies.scans[channel], one) for one in (still.array, image))
        back = None
        if direct < MIN_LIKENESS_RATIO * other:
            turned = _scaled(aligned_mirrored(channel), copies.brain)
            back = like(turned, still.array) / max(like(turned, image), LIKENESS_EPS)
        found[channel] = Likeness(direct, other, back)
    return Agreement(
        found,
        float(np.degrees(Rotation.from_matrix(onto[:3, :3]).magnitude()) / 2),  # a mirror image turns twice as far
        float(abs(onto[0, 3]) / 2),
    )


def shows_folds(channel: str, scan: Volume) -> bool:
    """Whether a brain's folds can be seen in a scan: not in thick slices, nor in a map of a quantity such as perfusion."""
    return not is_quantitative(channel) and max(scan.spacing_mm) < THICKEST_MM + HEADERS_MM


def window(copies: Copies) -> int:
    """Voxels along the edge of the cubes that `similarity` correlates in."""
    return max(3, 2 * int(WINDOW_MM / copies.voxel_mm / 2) + 1)


def similarity(
    one: Float[np.ndarray, "x y z"], other: Float[np.ndarray, "x y z"], where: Bool[np.ndarray, "x y z"], window: int
) -> float:
    """Mean over `where` of the squared correlation of two images in cubes of `window` voxels, each of its voxels there alone.

    Squared, because what is bright in one sequence is dark in the next (Cachier et al. 2003,
    doi:10.1016/S1077-3142(03)00002-X, use it so).
    """
    inside = where.astype(np.float32)

    def mean(image: Float[np.ndarray, "x y z"]) -> Float[np.ndarray, "x y z"]:
        return uniform_filter(image * inside, window) / share

    share = np.maximum(uniform_filter(inside, window), window**-3)
    one_mean, other_mean = mean(one), mean(other)
    one_variance, other_variance = mean(one * one) - one_mean**2, mean(other * other) - other_mean**2
    says = where & (one_variance > VAR_EPS) & (other_variance > VAR_EPS)
    covariance = (mean(one * other) - one_mean * other_mean)[says]
    squared = covariance**2 / (one_variance[says] * other_variance[says])
    return float(squared.clip(0, 1).mean()) if says.any() else 0.0


def _scaled(array: Float[np.ndarray, "x y z"], brain: Bool[np.ndarray, "x y z"]) -> Float[np.ndarray, "x y z"]:
    """In standard deviations of the brain, as copies are."""
    inside = array[brain]
    return (array - inside.mean()) / max(float(inside.std()), 1e-6)


def _mirrored(volume: Volume) -> Volume:
    """The mirror image in the plane x = 0 mm, of a volume whose axes are those of the MNI152 frame."""
    affine = volume.affine.copy()
    affine[0, 3] = -(volume.affine[0, 3] + (volume.shape[0] - 1) * volume.affine[0, 0])
    return Volume(np.ascontiguousarray(volume.array[::-1]), affine)


@dataclass(frozen=True, eq=False)
class Copies:
    """A patient's scans in standard deviations (see `intensity`), 0 outside the brain, on one grid of the MNI152 frame."""

    scans: Mapping[str, Float[np.ndarray, "x y z"]]
    brain: Bool[np.ndarray, "x y z"]
    affine: Float[np.ndarray, "4 4"]

    @property
    def voxel_mm(self) -> float:
        return float(self.affine[0, 0])

    def seen(self, volume: Volume, from_copy: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "x y z"]:
        """Another volume at the copies' voxels; the 4×4 carries a point of the MNI152 frame to it."""
        return resample(volume, self.brain.shape, self.affine, from_copy).array


def of_grid(
    volume: Float[np.ndarray, "c e e e"],
    inside: Bool[np.ndarray, "e e e"],
    channels: Sequence[str],
    grid: Grid,
    voxel_mm: float = GRID.spacing_mm,
) -> Copies:
    """Means over blocks of the grid's voxels, of the brain's alone, as near to `voxel_mm` as it has them; without empty scans."""
    step = max(1, round(voxel_mm / grid.spacing_mm))
    (box,) = find_objects(inside.astype(np.uint8))
    box = tuple(slice(part.start // step * step, min(part.stop + step, grid.edge)) for part in box)
    share = _blocks(inside[box], step)
    brain = share >= 0.5
    scans = {
        channel: np.where(brain, _blocks(np.where(inside[box], scan[box], 0), step) / np.maximum(share, 0.5), 0)
        for channel, scan in zip(channels, volume, strict=True)
        if scan[box].any()
    }
    affine = np.array(grid.affine)
    affine[:3, 3] += (step - 1) / 2 * grid.spacing_mm + np.array([part.start for part in box]) * grid.spacing_mm
    affine[:3, :3] *= step
    return Copies(scans, brain, affine)


def _blocks(array: Shaped[np.ndarray, "_ _ _"], step: int) -> Float[np.ndarray, "x y z"]:
    """Means over cubes of `step` voxels; last, incomplete ones are left out."""
    x, y, z = (n // step for n in array.shape)
    cut = array[: x * step, : y * step, : z * step]
    return cut.reshape(x, step, y, step, z, step).mean((1, 3, 5), dtype=np.float32)
