"""Bias: a scan and its brain mask go in, the scan without the smooth gain that receive coils lay over it comes out.

N4 (Tustison et al. 2010, doi:10.1109/TMI.2010.2046908) with ITK's defaults and ITK's results. What differs is the arithmetic of
the B-spline fit (Lee, Wolberg & Shin 1997, doi:10.1109/2945.620490): on a voxel grid the weights of the scattered-data formula
are products over the axes, so that fit and evaluation are three contractions with one small matrix per axis.

Letters: x y z voxels, p q r control points of the cubic B-spline along x, y and z, v voxels of the brain, h histogram bins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.volume import Volume

LEVELS = 4  # Tustison et al. 2010, ITK's default; each doubles the spline's resolution
ITERATIONS = 50  # per level, ITK's default; fewer leave most of the field in place
TOLERANCE = 1e-3  # ITK's default: coefficient of variation of the change of the field
BINS = 200  # of the log-intensity histogram; ITK's default
FWHM = 0.15  # of the field's histogram, in log intensity; Sled et al. 1998, ITK's default
WIENER_NOISE = 0.01  # ITK's default
WORKING_MM = 4.0  # the usual shrink factor of 4 at 1 mm; slices thicker than this are all kept
PADDED = 2 ** (math.ceil(math.log2(BINS)) + 1)  # the histogram's length in the Fourier domain, as in ITK


@dataclass(frozen=True, eq=False)
class Field:
    """The log of the bias field as a B-spline over the scan, and how its fit went."""

    lattice: Float[np.ndarray, "p q r"]
    iterations: tuple[int, ...]  # per level
    change: float  # the last convergence figure


def correct(volume: Volume, brain: Bool[np.ndarray, "x y z"]) -> tuple[Volume, Field]:
    """Divide a scan by its bias field, estimated from the brain.

    Parameters
    ----------
    volume
        The scan; voxels of the brain that are not positive have no logarithm and do not enter the estimate.
    brain
        The mask on the scan's grid.

    Returns
    -------
    The corrected scan, and the field.
    """
    small = _shrunk(volume.array, volume.spacing_mm)
    field = fit(small, _shrunk(brain, volume.spacing_mm) & (small > 0))
    gain = np.exp(evaluate(field.lattice, volume.shape))
    return Volume((volume.array / gain).astype(np.float32), volume.affine, volume.notes), field


def fit(array: Float[np.ndarray, "x y z"], brain: Bool[np.ndarray, "x y z"]) -> Field:
    """N4 on a scan as it is; `brain` marks the voxels to use, all of them positive."""
    box = tuple(slice(int(i.min()), int(i.max()) + 1) for i in np.nonzero(brain))
    inside = brain[box]
    log = np.log(array[box][inside].astype(np.float64))
    estimate = np.zeros_like(log)
    lattice = np.zeros((1, 1, 1))
    iterations: list[int] = []
    change = math.inf
    for level in range(LEVELS):
        spans = 2**level
        lattice = np.zeros((4, 4, 4)) if level == 0 else _contract(lattice, [_refinement(spans // 2)] * 3)
        bases = [_basis(n, spans)[part] for n, part in zip(array.shape, box, strict=True)]
        spread = [(basis**3 / (basis**2).sum(axis=1, keepdims=True)).T for basis in bases]
        weight = _contract(inside.astype(np.float64), [(basis**2).T for basis in bases])
        known = weight > 0
        residual = np.zeros(inside.shape)
        used, change = 0, math.inf
        while change > TOLERANCE and used < ITERATIONS:
            used += 1
            uncorrected = log - estimate
            residual[inside] = uncorrected - sharpen(uncorrected)
            lattice = lattice + np.divide(_contract(residual, spread), weight, out=np.zeros_like(weight), where=known)
            new = _contract(lattice, bases)[inside]
            ratio = np.exp(estimate - new)
            change = float(ratio.std(ddof=1) / ratio.mean())
            estimate = new
        iterations.append(used)
    return Field(lattice, tuple(iterations), change)


def evaluate(lattice: Float[np.ndarray, "p q r"], shape: tuple[int, ...]) -> Float[np.ndarray, "x y z"]:
    """The spline's values on a grid whose first and last voxels are the ends of its domain, as in ITK."""
    spans = lattice.shape[0] - 3
    return _contract(lattice.astype(np.float32), [_basis(n, spans).astype(np.float32) for n in shape])


def sharpen(log: Float[np.ndarray, "v"]) -> Float[np.ndarray, "v"]:
    """Every value's expectation before the field blurred the histogram (Tustison et al. 2010, equations 8 to 13)."""
    low, high = log.min(), log.max()
    if low == high:
        return log
    width = (high - low) / (BINS - 1)
    position = (log - low) / width
    lower = np.minimum(position.astype(np.intp), BINS - 2)
    share = position - lower
    counts = np.bincount(lower, 1 - share, BINS) + np.bincount(lower + 1, share, BINS)
    start = (PADDED - BINS) // 2
    histogram = np.pad(counts, (start, PADDED - BINS - start))
    n = np.minimum(np.arange(PADDED), PADDED - np.arange(PADDED))
    bins_wide = FWHM / width
    gaussian = 2 * math.sqrt(math.log(2) / math.pi) / bins_wide * np.exp(-4 * math.log(2) * (n / bins_wide) ** 2)
    blur = np.fft.rfft(gaussian)
    wiener = np.conj(blur) / (np.conj(blur) * blur + WIENER_NOISE)
    sharp = np.maximum(np.fft.irfft(np.fft.rfft(histogram) * wiener.real, PADDED), 0)
    centres = low + (np.arange(PADDED) - start) * width
    above = np.fft.irfft(np.fft.rfft(centres * sharp) * blur, PADDED)
    below = np.fft.irfft(np.fft.rfft(sharp) * blur, PADDED)
    expected = np.divide(above, below, out=np.zeros(PADDED), where=below != 0)[start : start + BINS]
    return expected[lower] + (expected[lower + 1] - expected[lower]) * share


def _shrunk(array: np.ndarray, spacing_mm: tuple[float, ...]) -> np.ndarray:
    """Every k-th voxel, centred, so that voxels are about `WORKING_MM` wide; the field is far smoother than that."""
    parts = []
    for n, spacing in zip(array.shape, spacing_mm, strict=True):
        k = max(1, round(WORKING_MM / spacing))
        kept = max(1, n // k)
        first = (n - 1 - (kept - 1) * k + 1) // 2
        parts.append(slice(first, first + (kept - 1) * k + 1, k))
    return array[tuple(parts)]


def _contract(array: Float[np.ndarray, "a b c"], matrices: Sequence[Float[np.ndarray, "_ _"]]) -> Float[np.ndarray, "d e f"]:
    """Each axis of the array multiplied by its matrix [new, old]."""
    for matrix in matrices:  # tensordot puts the new axis last, so after three rounds the order is x, y, z again
        array = np.tensordot(array, matrix, axes=(0, 1))
    return array


def _basis(n: int, spans: int) -> Float[np.ndarray, "n controls"]:
    """Weight of each of `spans` + 3 control points of a uniform cubic B-spline at n voxels along an axis."""
    position = np.linspace(0, spans, n)
    span = np.minimum(position.astype(int), spans - 1)  # the last voxel is the end of the last span
    t = position - span
    weights = np.stack([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3], axis=1) / 6
    basis = np.zeros((n, spans + 3))
    np.put_along_axis(basis, span[:, None] + np.arange(4), weights, axis=1)
    return basis


def _refinement(spans: int) -> Float[np.ndarray, "fine coarse"]:
    """The same cubic spline on twice as many spans (knot insertion: (1 1)/2 between, (1 6 1)/8 at the old points)."""
    matrix = np.zeros((2 * spans + 3, spans + 3))
    for row in range(2 * spans + 3):
        if row % 2:
            matrix[row, row // 2 : row // 2 + 3] = np.array([1, 6, 1]) / 8
        else:
            matrix[row, row // 2 : row // 2 + 2] = 0.5
    return matrix
