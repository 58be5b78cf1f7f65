"""Enhancement: two T1-weighted scans of one visit go in; whether one of them clearly holds a contrast agent comes out.

Sequences and coils differ between the two, so that neither brightness nor its spread says which one that is: the brightest 0.5 %
of the head (fat) stand out more in the T1 than in the T1ce of a real patient. An agent brightens small places deep in the head
out of proportion, and none the other way.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage

from mri_vit.data.volume import Volume

STEP_MM = 3.0  # of the grid of the comparison: evens out noise and a head that moved by a voxel, and keeps a rim that enhances
THICKEST_MM = 3.0  # in thicker slices a move of 1 mm and another contrast look like an agent (T1 of two patients against itself)
DEPTH_MM = 15.0  # below the surface of the head, past scalp, skull and meninges, and past the cortex of a stripped brain
SMOOTH_MM = 15.0  # standard deviation: a coil's shading is smoother, an enhancing tumour's rim is not
HEAD = 0.1  # of the 99th percentile: above it a voxel is head and not air
BRIGHT = 1.15  # times the median: an agent brightens above normal tissue; fluid and necrosis, which lie below, are left aside
LOG_GAIN = 0.25  # of the natural logarithm, 28 %: noise of 5 % stays below it everywhere
LEVELS = 40  # of brightness, at which what the other scan explains is the median
LEAST_ML = 1.0  # seven BraTS patients have 1.1 to 6.1 ml, and at most 0.1 ml the other way
TIMES = 10.0  # more than the other way; two patients with slices of 5 mm have 1.4 and 6


def comparable(scan: Volume, other: Volume) -> bool:
    """Whether slices of both are thin enough."""
    return bool(max(_spacing_mm(scan).max(), _spacing_mm(other).max()) <= THICKEST_MM + 0.01)


def enhances(scan: Volume, other: Volume) -> bool:
    """Whether a scan clearly holds an agent that the other does not hold; False in both orders where voxels settle nothing."""
    if not comparable(scan, other):
        return False
    gain_ml, loss_ml = gains_ml(other, scan)
    return gain_ml >= LEAST_ML and gain_ml >= TIMES * loss_ml


def gains_ml(before: Volume, after: Volume) -> tuple[float, float]:
    """Volumes that are brighter in `after` than `before` explains, and the other way; both lie where their affines say.

    A place counts if it is brighter than normal tissue, if the ratio of both scans is higher there than around it, and if it is
    brighter than other places that are alike in the other scan, which takes out a different weighting of grey and white matter.
    """
    grid, shape = _grid(before)
    first, second = _on_grid(before, grid, shape), _on_grid(after, grid, shape)
    head = (first > HEAD * np.percentile(first, 99)) & (second > HEAD * np.percentile(second, 99))
    head = np.pad(np.asarray(ndimage.binary_fill_holes(head)), 1)  # what lies at the border of the box is surface as well
    first, second = np.pad(first, 1), np.pad(second, 1)
    inner = np.asarray(ndimage.distance_transform_edt(head)) * STEP_MM > DEPTH_MM
    if inner.sum() < LEVELS**2:
        return 0.0, 0.0
    first, second = (np.maximum(scan / np.median(scan[inner]), HEAD / 2) for scan in (first, second))
    ratio = _less_smooth(np.log(second / first), head)
    ml = STEP_MM**3 / 1000
    gain = (_unexplained(first, second, inner) > LOG_GAIN) & (ratio > LOG_GAIN) & (second > BRIGHT) & inner
    loss = (_unexplained(second, first, inner) > LOG_GAIN) & (ratio < -LOG_GAIN) & (first > BRIGHT) & inner
    return float(gain.sum() * ml), float(loss.sum() * ml)


def _unexplained(
    by: Float[np.ndarray, "x y z"], scan: Float[np.ndarray, "x y z"], inner: Bool[np.ndarray, "x y z"]
) -> np.ndarray:
    """Logarithm of a scan over its median at each level of another, less its smooth part; 0 outside."""
    levels = np.array_split(np.argsort(by[inner], kind="stable"), LEVELS)
    centres = [np.median(by[inner][level]) for level in levels]
    expected = np.interp(by[inner], centres, [np.median(scan[inner][level]) for level in levels])
    logarithm = np.zeros(scan.shape)
    logarithm[inner] = np.log(scan[inner] / expected)
    return _less_smooth(logarithm, inner)


def _less_smooth(values: Float[np.ndarray, "x y z"], where: Bool[np.ndarray, "x y z"]) -> Float[np.ndarray, "x y z"]:
    weight = np.maximum(ndimage.gaussian_filter(where.astype(float), SMOOTH_MM / STEP_MM), 1e-3)
    smooth = ndimage.gaussian_filter(np.where(where, values, 0.0), SMOOTH_MM / STEP_MM) / weight
    return np.where(where, values - smooth, 0.0)


def _spacing_mm(scan: Volume) -> np.ndarray:
    return np.linalg.norm(scan.affine[:3, :3], axis=0)


def _grid(scan: Volume) -> tuple[np.ndarray, tuple[int, ...]]:
    """Affine and shape of a grid of `STEP_MM` over a scan's box."""
    spacing_mm = _spacing_mm(scan)
    affine = scan.affine.copy()
    affine[:3, :3] *= STEP_MM / spacing_mm
    return affine, tuple(int(n) for n in np.maximum(1, np.array(scan.shape) * spacing_mm / STEP_MM))


def _on_grid(scan: Volume, affine: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A scan without detail below a step, read at the places of a grid; 0 beside it."""
    to_voxels = np.linalg.inv(scan.affine) @ affine
    even = ndimage.gaussian_filter(np.asarray(scan.array, dtype=np.float32), STEP_MM / 2 / _spacing_mm(scan))
    offset = to_voxels[:3, 3].tolist()
    return ndimage.affine_transform(even, to_voxels[:3, :3], offset, output_shape=shape, order=1).astype(float)
