"""Alignment: a patient's scans go in; out they come aligned, resampled once onto the prepared grid, and scaled, with the brain.

The steps in their order, each with its entry in the log; `register` finds the 4×4 that carries a point of the reference, or of
MNI152, to a scan. MR intensities have no unit, so each scan is put on the scale of its own brain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.data.cohort import Patient
from mri_vit.data.volume import (
    Box,
    Volume,
    bounding_box,
    box_affine,
    box_shape,
    box_within,
    carry_box,
    lay_on_whole,
    resample,
    widen,
)
from mri_vit.errors import UnusablePatient
from mri_vit.prepare import brain, register
from mri_vit.prepare.prepared import Log
from mri_vit.settings.recipe import title, titles
from mri_vit.settings.sections import Grid

MIN_OVERLAP = 0.90  # of the reference's brain inside every scan's field of view; a tumour must not be in the missing part
MAX_MISSED_SHARE = 0.005  # of the brain outside a scan's field of view, or outside the grid: a rim that needs no warning
MIN_BRAIN_SHARE = 0.05  # of a grid voxel's sources that must be brain for it to have a value; less is rounding
TAIL_PERCENT = 0.5  # at each end: vessels and leftovers of the skull, which must not set a scan's scale
Z_LIMIT = 10.0  # standard deviations; enhancing tumour lies at 3 to 7, so that only faults of the image are cut


def to_reference(
    scans: dict[str, Volume], reference: str, log: Log, brain: Bool[np.ndarray, "x y z"] | None = None
) -> dict[str, np.ndarray]:
    """For each scan the 4×4 that carries a point of the reference to it.

    `brain` is the mask of a stripped reference: its background holds nothing, and the metric looks at the brain and its outline
    alone.
    """
    mask = None if brain is None else Volume(brain.astype(np.float32), scans[reference].affine)
    near = None if mask is None else register.around(mask, register.MARGIN_MM)
    matrices: dict[str, np.ndarray] = {}
    figures: dict[str, Any] = {}
    for channel, scan in scans.items():
        matrices[channel] = np.eye(4)
        if channel == reference:
            continue
        found = register.to_reference(scans[reference], scan, near)
        if not math.isfinite(found.metric):
            raise UnusablePatient(f"{channel} and {reference} cannot be aligned: they share no space")
        matrices[channel] = found.matrix
        by_header = bool(np.array_equal(found.matrix, np.eye(4)))
        figures[channel] = {
            "metric": found.metric,
            "metric_by_header": _finite(found.first_metric),
            "kept": "header" if by_header else "registration",
        }
    log.add(
        "to_reference",
        f"{titles(list(figures))} {'was' if len(figures) == 1 else 'were'} rigidly aligned to {title(reference)} by maximising "
        "Mattes mutual information (SimpleITK)."
        if figures
        else f"{title(reference)} is the only scan, to which no other was aligned.",
        copies_mm=register.FINE_MM,
        bins=register.BINS,
        scans=figures,
    )
    return matrices


def within_brain(
    scans: dict[str, Volume], reference: str, from_reference: dict[str, np.ndarray], mask: Volume, log: Log
) -> dict[str, np.ndarray]:
    """The same 4×4s, settled on the brain and the fluid around it."""
    near = register.around(mask, register.INNER_MARGIN_MM)
    matrices = dict(from_reference)
    figures: dict[str, Any] = {}
    for channel in (channel for channel in scans if channel != reference):
        found = register.refine(scans[reference], scans[channel], from_reference[channel], near)
        matrices[channel] = found.matrix
        figures[channel] = {"metric": _finite(found.metric), "metric_before": _finite(found.first_metric)}
    log.add(
        "within_brain",
        f"These alignments were then refined on the brain and the {register.INNER_MARGIN_MM:g} mm around it.",
        bins=register.BINS,
        scans=figures,
    )
    return matrices


def check_overlap(
    patient: Patient,
    scans: dict[str, Volume],
    reference: str,
    from_reference: dict[str, np.ndarray],
    mask: Volume,
    block: Box,
    log: Log,
) -> None:
    """Share of the reference brain's voxels whose centres lie within each scan's outer faces; under `MIN_OVERLAP` is unusable.

    `mask` is the brain (1) on the reference's voxels, `block` its box there.
    """
    shares = {}
    for channel, scan in scans.items():
        to_index = np.linalg.inv(scan.affine) @ from_reference[channel] @ mask.affine
        ends = zip(carry_box(block, to_index), scan.shape, strict=True)
        within = all(part.start >= 0 and part.stop <= n for part, n in ends)
        shares[channel] = 1.0 if within else round(_share(mask, to_index, scan), 4)
        if shares[channel] < MIN_OVERLAP:
            held = f"{shares[channel]:.1%} of the {title(reference)}'s brain"
            reason = f"field of view of {channel} holds {held}; expected {MIN_OVERLAP:.0%} or more"
            raise UnusablePatient(reason, str(patient.scans[channel]))
        if shares[channel] < 1 - MAX_MISSED_SHARE:
            log.warnings.append(f"{channel}: {1 - shares[channel]:.1%} of the brain lies outside its field of view and is 0")
    log.add("overlap", f"Every scan covers at least {MIN_OVERLAP:.0%} of the brain.", shares=shares)


def _share(mask: Volume, to_index: Float[np.ndarray, "4 4"], scan: Volume) -> float:
    """Of a mask's voxels, those whose centres, carried by `to_index`, lie within a scan's outer voxel faces."""
    voxels = np.argwhere(mask.array > 0)
    index = voxels @ to_index[:3, :3].T + to_index[:3, 3]
    return float(((index >= -0.5) & (index <= np.array(scan.shape) - 0.5)).all(axis=1).mean())


def to_mni(scan: Volume, name: str, mask: Bool[np.ndarray, "x y z"], whole: Volume, log: Log) -> register.Pose:
    """The 4×4s that carry a point of the MNI152 frame to a scan of that name.

    `scan` is the box of the `whole` scan that holds the brain; what is background counts as far as the whole one reaches.
    """
    values = scan.array[mask]
    low, high = np.percentile(values, (TAIL_PERCENT, 100 - TAIL_PERCENT))
    shown = np.zeros(scan.shape, np.float32)
    shown[mask] = (values.clip(low, high) - low) / max(high - low, 1e-6) + 0.1  # darkest brain stays apart from background 0
    found = register.to_template(lay_on_whole(Volume(shown, scan.affine), whole))
    log.add(
        "to_mni",
        f"The MNI152 brain was laid over the skull-stripped {title(name)} by an affine transform, of which the grid takes the"
        " rigid part, so that sizes are kept.",
        metric=_finite(found.affine.metric),
        coarse_metrics=[_finite(metric) for metric in found.affine.coarse_metrics],
        affine=found.affine.matrix.tolist(),
        bins=register.TEMPLATE_BINS,
    )
    return found


def _finite(metric: float) -> float | None:
    return metric if math.isfinite(metric) else None  # JSON has no infinity


def on_grid(
    scans: Mapping[str, Volume],
    channels: Sequence[str],
    reference: str,
    brains: Mapping[str, Bool[np.ndarray, "..."]],
    from_grid: Mapping[str, Float[np.ndarray, "4 4"]],
    grid: Grid,
    log: Log,
) -> tuple[Float[np.ndarray, "c e e e"], Bool[np.ndarray, "e e e"]]:
    """Every scan resampled once and scaled, in the order of `channels`, and the brain, on the prepared grid.

    `brains` are the brain on each scan's voxels; the 4×4s carry a point of the grid to each scan, RAS+ mm.
    """
    mask = Volume(brains[reference].astype(np.float32), scans[reference].affine)
    part = _box(mask, from_grid[reference], grid)
    share = _resampled(mask, from_grid[reference], grid, part)
    _check(share > 0.5, mask, grid, log)
    tight = bounding_box(share > 0.5)  # a box turned onto the grid is larger than the brain's
    part, share = box_within(part, tight), share[tight]
    shares, inside = {reference: share}, share > 0.5
    volume = np.zeros((len(channels), grid.edge, grid.edge, grid.edge), np.float16)  # as tokens are stored
    figures: dict[str, Any] = {}
    for channel, scan in scans.items():
        share = shares.get(channel)
        if share is None:
            share = _resampled(Volume(brains[channel].astype(np.float32), scan.affine), from_grid[channel], grid, part)
        total = _resampled(Volume(np.where(brains[channel], scan.array, 0), scan.affine), from_grid[channel], grid, part)
        # means over brain voxels alone: neither skull nor an emptied background reaches into the brain's border
        means = np.divide(total, share, out=np.full_like(total, math.nan), where=share > MIN_BRAIN_SHARE)
        scaled = zscore(means, inside)
        if scaled.deviation == 0:
            raise UnusablePatient(f"{channel} is constant inside the brain ({scaled.mean:g})")
        volume[channels.index(channel)][part] = scaled.array
        figures[channel] = {"mean": scaled.mean, "deviation": scaled.deviation}
    log.add(
        "intensity",
        f"Intensities were z-scored inside the brain over all but the outer {TAIL_PERCENT} % at each end.",
        limit=Z_LIMIT,
        scans=figures,
    )
    on_whole = np.zeros(volume.shape[1:], bool)
    on_whole[part] = inside
    return volume, on_whole


def _box(mask: Volume, from_grid: Float[np.ndarray, "4 4"], grid: Grid) -> Box:
    """The grid's box around the brain."""
    to_index = np.linalg.inv(from_grid @ np.array(grid.affine)) @ mask.affine
    return widen(carry_box(bounding_box(mask.array > 0), to_index), (0, 0, 0), (grid.edge,) * 3)


def _check(inside: Bool[np.ndarray, "x y z"], mask: Volume, grid: Grid, log: Log) -> None:
    """How much of the brain lies on the grid. Raises UnusablePatient when none does."""
    share = float(inside.sum() * grid.spacing_mm**3 / 1000 / brain.volume_ml(mask.array > 0, mask))
    log.add(
        "resample",
        f"All scans were resampled once, from brain voxels alone, to {grid.edge}³ voxels of {grid.spacing_mm:g} mm in the"
        " MNI152 frame.",
        brain_on_grid=round(share, 4),
    )
    if not inside.any():
        raise UnusablePatient("empty brain: none of it lies on the prepared grid")
    if share < 1 - MAX_MISSED_SHARE:
        log.warnings.append(f"{1 - share:.1%} of the brain lies outside the prepared grid")


def _resampled(scan: Volume, from_grid: Float[np.ndarray, "4 4"], grid: Grid, part: Box) -> Float[np.ndarray, "x y z"]:
    """A scan on the grid's box; 0 outside the scan, where the brain's share is 0 as well."""
    soft = register.smoothed(scan, [max(grid.spacing_mm, mm) for mm in scan.spacing_mm])
    return resample(soft, box_shape(part), box_affine(np.array(grid.affine), part), from_grid).array


@dataclass(frozen=True, eq=False)
class Scaled:
    """A scan in standard deviations from the mean of its brain, 0 outside; with the mean and deviation that did it."""

    array: Float[np.ndarray, "x y z"]
    mean: float
    deviation: float


def zscore(array: Float[np.ndarray, "x y z"], brain: Bool[np.ndarray, "x y z"]) -> Scaled:
    """z = (intensity - mean) / deviation inside the brain, both over the brain's voxels with their tails pulled in.

    The tails (`TAIL_PERCENT` at each end) are moved to their percentile before the mean and deviation are taken, and kept as
    they are in the result, which is limited to ±`Z_LIMIT`: an enhancing rim stays as bright as it is, yet neither a vessel nor a
    spike changes the scale of the rest. Voxels that are NaN (outside the scan's field of view) count nowhere and become 0, the
    brain's mean.
    """
    known = brain & np.isfinite(array)
    values = array[known].astype(np.float64)
    pulled = values.clip(*np.percentile(values, (TAIL_PERCENT, 100 - TAIL_PERCENT)))
    mean, deviation = float(pulled.mean()), float(pulled.std())
    scaled = np.zeros(array.shape, np.float32)
    if deviation > 0:
        scaled[known] = ((values - mean) / deviation).clip(-Z_LIMIT, Z_LIMIT)
    return Scaled(scaled, mean, deviation)
