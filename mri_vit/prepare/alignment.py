"""Alignment: a patient's scans go in; out comes for each the 4×4 that carries a point of the reference, or of MNI152, to it.

The steps in their order, each with its entry in the log; `register` does the work.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.data.cohort import Patient
from mri_vit.data.volume import Volume
from mri_vit.errors import UnusablePatient
from mri_vit.prepare import box, intensity, register
from mri_vit.prepare.log import Log
from mri_vit.settings.sequences import title, titles

OVERLAP = 0.90  # least share of the reference's brain inside every scan's field of view; a tumour must not be in the missing part
MISSED = 0.005  # of the brain outside a scan's field of view: a rim that needs no warning


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
    block: box.Box,
    log: Log,
) -> None:
    """Share of the reference brain's voxels whose centres lie within each scan's outer faces; under `OVERLAP` is unusable.

    `mask` is the brain (1) on the reference's voxels, `block` its box there.
    """
    shares = {}
    for channel, scan in scans.items():
        to_index = np.linalg.inv(scan.affine) @ from_reference[channel] @ mask.affine
        shares[channel] = 1.0 if _holds(scan, box.carried(block, to_index)) else round(_share(mask, to_index, scan), 4)
        if shares[channel] < OVERLAP:
            held = f"{shares[channel]:.1%} of the {title(reference)}'s brain"
            reason = f"field of view of {channel} holds {held}; expected {OVERLAP:.0%} or more"
            raise UnusablePatient(reason, str(patient.scans[channel]))
        if shares[channel] < 1 - MISSED:
            log.warnings.append(f"{channel}: {1 - shares[channel]:.1%} of the brain lies outside its field of view and is 0")
    log.add("overlap", f"Every scan covers at least {OVERLAP:.0%} of the brain.", shares=shares)


def _holds(scan: Volume, block: box.Box) -> bool:
    """Whether all of a block of voxels is within a scan."""
    return all(part.start >= 0 and part.stop <= n for part, n in zip(block, scan.shape, strict=True))


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
    low, high = np.percentile(values, (intensity.TAIL_PERCENT, 100 - intensity.TAIL_PERCENT))
    shown = np.zeros(scan.shape, np.float32)
    shown[mask] = (values.clip(low, high) - low) / max(high - low, 1e-6) + 0.1  # darkest brain stays apart from background 0
    found = register.to_template(box.laid(Volume(shown, scan.affine), whole))
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
