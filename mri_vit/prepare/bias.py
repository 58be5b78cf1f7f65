"""Bias: scans and their brain masks go in, the scans without the smooth gain that receive coils lay over them come out.

`fit` is N4 (Tustison et al. 2010, doi:10.1109/TMI.2010.2046908) with ITK's results. What differs is the arithmetic of the
B-spline fit (Lee, Wolberg & Shin 1997, doi:10.1109/2945.620490): on a voxel grid the weights of the scattered-data formula
are products over the axes, so that fit and evaluation are three contractions with one small matrix per axis.

ITK's four levels take a large tumour for bias. `correct` has fewer and leaves out what is an outlier in any of a patient's
scans: a field is smooth, a lesion stands out, and the scans together show it better than one. How far lesions stand out before
and after correction shows whether they survived it; no tumour mask is used, so that preparation is the same with and without
one. The choice was measured: pipelines/reproductions/bias_correction.

Letters: x y z voxels, p q r control points of the cubic B-spline along x, y and z, v voxels of the brain, h histogram bins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage

from mri_vit.data.volume import Box, Volume, bounding_box, box_shape, resample
from mri_vit.prepare.prepared import Log
from mri_vit.settings.recipe import is_quantitative, titles

NEGATIVE_SHARE = 0.01  # of the brain: interpolation leaves fewer negative voxels, standardised scans about half
LEVELS = 2  # each doubles the spline's resolution; by what a tumour keeps, pipelines/reproductions/bias_correction
ITK_LEVELS = 4  # ITK's default
ROUNDS = 4  # of outliers and field in turn: those found under a field of ±40 % settle in three
MIN_USED_SHARE = 0.05  # of the brain's voxels; fewer do not carry a field, and all of them are used
ITERATIONS = 50  # per level, ITK's default; fewer leave most of the field in place
TOLERANCE = 1e-3  # ITK's default: coefficient of variation of the change of the field
BINS = 200  # of the log-intensity histogram; ITK's default
FWHM = 0.15  # of the field's histogram, in log intensity; Sled et al. 1998, ITK's default
WIENER_NOISE = 0.01  # ITK's default
WORKING_MM = 4.0  # the usual shrink factor of 4 at 1 mm; slices thicker than this are all kept
OUTLIER_SD = 2.5  # robust standard deviations: 1 in 80 of a normal distribution, so that grey and white matter stay on both sides
FRINGE_SD = 1.5  # around such voxels: oedema fades, and its weak border pulls a field as well
MIN_LESION_ML = 3.0  # a piece of 18 mm across; vessels, sulci and noise make smaller ones
DARK_LESIONS = ("t1",)  # lesions are darker than brain on T1, brighter on the other scans
MAX_CONTRAST_LOSS = 1 / 3  # of the contrast; more is worth a look
MAD_TO_SD = 1.4826  # standard deviations of a normal distribution in its median absolute deviation
PADDED_BINS = 2 ** (math.ceil(math.log2(BINS)) + 1)  # the histogram's length in the Fourier domain, as in ITK


@dataclass(frozen=True, eq=False)
class Field:
    """The log of the bias field as a B-spline over the scan, and how its fit went."""

    lattice: Float[np.ndarray, "p q r"]
    iterations: tuple[int, ...]  # per level
    change: float  # the last convergence figure


@dataclass(frozen=True, eq=False)
class Corrected:
    """A scan divided by its field, and the figures to report of it."""

    volume: Volume
    field: Field
    used: float  # share of the brain's voxels that the field was estimated from
    contrast: tuple[float, float] | None  # lesion-like, before and after on the same voxels; None where nothing stands out


@dataclass(frozen=True, eq=False)
class _Coarse:
    """A working copy of the brain's box: log intensities on voxels of about `WORKING_MM`, and the brain's positive ones.

    The spline spans this box, so that its stiffness does not depend on how much air a scan holds.
    """

    log: Volume
    brain: Bool[np.ndarray, "x y z"]
    box: Box  # of the scan


def correct(
    scans: Mapping[str, Volume],
    brains: Mapping[str, Bool[np.ndarray, "..."]],
    from_common: Mapping[str, Float[np.ndarray, "4 4"]],
    levels: int = LEVELS,
    rounds: int = ROUNDS,
) -> dict[str, Corrected]:
    """Divide each of a patient's scans by its bias field, estimated from the brain without its outliers.

    `scans`: by channel, each on its own grid. Voxels of the brain that are not positive have no logarithm and are not used.
    `brains`: the mask on each scan's grid; it holds a positive voxel.
    `from_common`: for each scan the 4×4 that carries a point of one common space to it.
    `levels`: of the spline.
    `rounds`: of outliers and field in turn; with 0 nothing is left out.
    Returns: By channel the corrected scan (as it was outside the brain's box), its field and their figures.
    """
    coarse = {channel: _coarse(scan, brains[channel]) for channel, scan in scans.items()}
    corrected = {channel: copy.log.array for channel, copy in coarse.items()}
    fields: dict[str, Field] = {}
    used = {channel: copy.brain for channel, copy in coarse.items()}
    for _ in range(max(1, rounds)):
        if rounds:
            used = _inliers(coarse, corrected, from_common)
        for channel, copy in coarse.items():
            fields[channel] = fit(np.exp(copy.log.array), used[channel], levels)
            corrected[channel] = copy.log.array - evaluate(fields[channel].lattice, copy.log.shape)
    return {
        channel: Corrected(
            _divided(scans[channel], copy.box, fields[channel]),
            fields[channel],
            float(used[channel].sum() / copy.brain.sum()),
            _contrasts(channel, copy, corrected[channel]),
        )
        for channel, copy in coarse.items()
    }


def _coarse(scan: Volume, brain: Bool[np.ndarray, "x y z"]) -> _Coarse:
    part_of = bounding_box(brain)
    steps = [_kept(part.stop - part.start, mm) for part, mm in zip(part_of, scan.spacing_mm, strict=True)]
    affine = scan.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ [part.start + step.start for part, step in zip(part_of, steps, strict=True)]
    affine[:3, :3] *= [step.step for step in steps]
    array = scan.array[part_of][tuple(steps)]
    positive = array > 0
    log = np.log(np.where(positive, array, 1), dtype=np.float64)
    return _Coarse(Volume(log, affine), brain[part_of][tuple(steps)] & positive, part_of)


def _inliers(
    coarse: Mapping[str, _Coarse], logs: Mapping[str, np.ndarray], from_common: Mapping[str, np.ndarray]
) -> dict[str, Bool[np.ndarray, "..."]]:
    """For each scan the brain's voxels that are outliers in none of the scans."""
    scores = {channel: Volume(outlier_scores(logs[channel], copy.brain), copy.log.affine) for channel, copy in coarse.items()}
    used = {}
    for channel, copy in coarse.items():
        here = np.linalg.inv(from_common[channel])
        seen = (resample(one, copy.log.shape, copy.log.affine, from_common[other] @ here).array for other, one in scores.items())
        inliers = copy.brain & ~outlier_regions(seen)
        used[channel] = inliers if inliers.sum() >= MIN_USED_SHARE * copy.brain.sum() else copy.brain
    return used


def _divided(scan: Volume, part_of: Box, field: Field) -> Volume:
    array = scan.array.astype(np.float32)
    gain = evaluate(field.lattice, box_shape(part_of))
    array[part_of] /= np.exp(gain, out=gain)
    return Volume(array, scan.affine, scan.notes)


def _contrasts(channel: str, copy: _Coarse, corrected: Float[np.ndarray, "x y z"]) -> tuple[float, float] | None:
    voxel_ml = float(np.prod(copy.log.spacing_mm)) / 1000
    piece = lesion_like(outlier_scores(copy.log.array, copy.brain), channel, voxel_ml)
    before, after = (lesion_contrast(np.exp(log), piece, copy.brain) for log in (copy.log.array, corrected))
    return None if before is None or after is None else (before, after)


def fit(array: Float[np.ndarray, "x y z"], used: Bool[np.ndarray, "x y z"], levels: int = LEVELS) -> Field:
    """N4 on a scan as it is; `used` marks the voxels that the estimate rests on, all of them positive."""
    part_of = bounding_box(used)
    inside = used[part_of]
    log = np.log(array[part_of][inside].astype(np.float64))
    estimate = np.zeros_like(log)
    lattice = np.zeros((1, 1, 1))
    iterations: list[int] = []
    change = math.inf
    for level in range(levels):
        spans = 2**level
        lattice = np.zeros((4, 4, 4)) if level == 0 else _contract(lattice, [_refinement(spans // 2)] * 3)
        bases = [_basis(n, spans)[part] for n, part in zip(array.shape, part_of, strict=True)]
        spread = [(basis**3 / (basis**2).sum(axis=1, keepdims=True)).T for basis in bases]
        weight = _contract(inside.astype(np.float64), [(basis**2).T for basis in bases])
        known = weight > 0
        residual = np.zeros(inside.shape)
        done, change = 0, math.inf
        while change > TOLERANCE and done < ITERATIONS:
            done += 1
            uncorrected = log - estimate
            residual[inside] = uncorrected - sharpen(uncorrected)
            lattice = lattice + np.divide(_contract(residual, spread), weight, out=np.zeros_like(weight), where=known)
            new = _contract(lattice, bases)[inside]
            ratio = np.exp(estimate - new)
            change = float(ratio.std(ddof=1) / ratio.mean())
            estimate = new
        iterations.append(done)
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
    start = (PADDED_BINS - BINS) // 2
    histogram = np.pad(counts, (start, PADDED_BINS - BINS - start))
    n = np.minimum(np.arange(PADDED_BINS), PADDED_BINS - np.arange(PADDED_BINS))
    bins_wide = FWHM / width
    gaussian = 2 * math.sqrt(math.log(2) / math.pi) / bins_wide * np.exp(-4 * math.log(2) * (n / bins_wide) ** 2)
    blur = np.fft.rfft(gaussian)
    wiener = np.conj(blur) / (np.conj(blur) * blur + WIENER_NOISE)
    sharp = np.maximum(np.fft.irfft(np.fft.rfft(histogram) * wiener.real, PADDED_BINS), 0)
    centres = low + (np.arange(PADDED_BINS) - start) * width
    above = np.fft.irfft(np.fft.rfft(centres * sharp) * blur, PADDED_BINS)
    below = np.fft.irfft(np.fft.rfft(sharp) * blur, PADDED_BINS)
    expected = np.divide(above, below, out=np.zeros(PADDED_BINS), where=below != 0)[start : start + BINS]
    return expected[lower] + (expected[lower + 1] - expected[lower]) * share


def _kept(n: int, spacing_mm: float) -> slice:
    """Every k-th of n voxels, centred, so that voxels are about `WORKING_MM` wide; the field is far smoother than that."""
    k = max(1, round(WORKING_MM / spacing_mm))
    kept = max(1, n // k)
    first = (n - 1 - (kept - 1) * k + 1) // 2
    return slice(first, first + (kept - 1) * k + 1, k)


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


def outlier_scores(log: Float[np.ndarray, "x y z"], brain: Bool[np.ndarray, "x y z"]) -> Float[np.ndarray, "x y z"]:
    """Distance of log intensities from the brain's median in robust standard deviations (1.4826 MAD), with sign; 0 outside."""
    values = log[brain]
    centre = np.median(values)
    spread = MAD_TO_SD * np.median(np.abs(values - centre))
    scores = np.zeros(log.shape, np.float32)
    if spread > 0:
        scores[brain] = (values - centre) / spread
    return scores


def outlier_regions(scores: Iterable[Float[np.ndarray, "x y z"]]) -> Bool[np.ndarray, "x y z"]:
    """Voxels that stand out in any of the scans, with their fringe and one voxel more, which holds a share of them."""
    farthest = np.maximum.reduce([np.abs(one) for one in scores])
    grown = ndimage.binary_propagation(farthest > OUTLIER_SD, mask=farthest > FRINGE_SD)
    return np.asarray(ndimage.binary_dilation(grown))


def lesion_like(scores: Float[np.ndarray, "x y z"], channel: str, voxel_ml: float) -> Bool[np.ndarray, "x y z"]:
    """Pieces of `MIN_LESION_ML` or more that stand out as a lesion does: dark on T1, bright elsewhere; ventricles too."""
    standing_out = scores < -OUTLIER_SD if channel in DARK_LESIONS else scores > OUTLIER_SD
    pieces = np.zeros(scores.shape, np.int32)
    ndimage.label(standing_out, output=pieces)
    large = np.bincount(pieces.ravel()) * voxel_ml >= MIN_LESION_ML
    large[0] = False
    return large[pieces]


def lesion_contrast(
    array: Float[np.ndarray, "x y z"], piece: Bool[np.ndarray, "x y z"], brain: Bool[np.ndarray, "x y z"]
) -> float | None:
    """Mean of a piece less the mean of the rest of the brain, in standard deviations of the rest; None where either is empty."""
    rest = array[brain & ~piece].astype(np.float64)
    if not piece.any() or not rest.size or not rest.std() > 0:
        return None
    return float((array[piece].mean(dtype=np.float64) - rest.mean()) / rest.std())


def correct_scans(
    scans: dict[str, Volume], brains: dict[str, Bool[np.ndarray, "..."]], from_reference: dict[str, np.ndarray], log: Log
) -> dict[str, Volume]:
    """All scans, those that are no map of a quantity corrected (see `correct`), with an entry in the log."""
    masks: dict[str, Bool[np.ndarray, "..."]] = {}
    quantities = [channel for channel in scans if is_quantitative(channel)]
    for channel, scan in scans.items():
        if channel in quantities:
            continue
        values = scan.array[brains[channel]]
        share = float((values < 0).mean())
        if share > NEGATIVE_SHARE:
            log.warnings.append(f"{channel}: {share:.1%} of the brain is negative, so its bias field was not corrected")
        elif (values > 0).any():  # else it is 0 throughout, which the intensity step refuses
            masks[channel] = brains[channel]
    corrected = correct({channel: scans[channel] for channel in masks}, masks, from_reference)
    figures: dict[str, Any] = {}
    for channel, one in corrected.items():
        figures[channel] = {"iterations": one.field.iterations, "change": one.field.change, "used": round(one.used, 4)}
        figures[channel]["lesion_like_contrast"] = one.contrast and [round(value, 2) for value in one.contrast]
        if one.contrast and one.contrast[1] / one.contrast[0] < 1 - MAX_CONTRAST_LOSS:
            before, after = one.contrast
            log.warnings.append(
                f"{channel}: lesion-like contrast was {before:.2f} SD before bias correction and is {after:.2f} after it; "
                "see whether a lesion was taken for bias"
            )
    log.add(
        "bias",
        f"Intensity inhomogeneity was corrected with N4 (Tustison et al. 2010; {LEVELS} levels) inside the brain, "
        f"estimated without voxels that lie more than {OUTLIER_SD:g} robust standard deviations from the median in any scan "
        f"and their surroundings{f'; {titles(quantities)}, a map of a quantity each, left out' if quantities else ''}.",
        quantitative=quantities,
        levels=LEVELS,
        iterations=ITERATIONS,
        tolerance=TOLERANCE,
        working_mm=WORKING_MM,
        outlier_deviations=[OUTLIER_SD, FRINGE_SD],
        rounds=ROUNDS,
        scans=figures,
    )
    return {**scans, **{channel: one.volume for channel, one in corrected.items()}}


def contrast_caption(log: Log) -> str:
    """Lesion-like contrast before and after bias correction, for the picture."""
    scans = next((step["scans"] for step in log.steps if step["step"] == "bias"), None)
    if scans is None:
        return "bias field not corrected"
    found = {channel: figures["lesion_like_contrast"] for channel, figures in scans.items()}
    cells = [f"{c} {pair[0]:.2f} to {pair[1]:.2f}" if pair else f"{c} none" for c, pair in found.items()]
    return f"lesion-like contrast in SD, before to after bias correction: {', '.join(cells)}"
