"""Alignment: a patient's scans go in; out comes for each the 4×4 that carries a point of the T1ce, or of the MNI152 frame, to it.

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
from mri_vit.prepare import intensity, register
from mri_vit.prepare.log import Log
from mri_vit.settings.schema import REFERENCE

OVERLAP = 0.90  # least share of the T1ce's brain inside every scan's field of view; a tumour must not be in the missing part
MISSED = 0.005  # of the brain outside a scan's field of view: a rim that needs no warning


def to_t1ce(scans: dict[str, Volume], log: Log) -> dict[str, np.ndarray]:
    """For each scan the 4×4 that carries a point of the T1ce to it."""
    matrices: dict[str, np.ndarray] = {}
    figures: dict[str, Any] = {}
    for channel, scan in scans.items():
        matrices[channel] = np.eye(4)
        if channel == REFERENCE:
            continue
        found = register.to_reference(scans[REFERENCE], scan)
        if not math.isfinite(found.metric):
            raise UnusablePatient(f"{channel} and {REFERENCE} cannot be aligned: they share no space")
        matrices[channel] = found.matrix
        by_header = bool(np.array_equal(found.matrix, np.eye(4)))
        figures[channel] = {
            "metric": found.metric,
            "metric_by_header": _finite(found.first_metric),
            "kept": "header" if by_header else "registration",
        }
    log.add(
        "to_t1ce",
        "T1, T2 and FLAIR were rigidly aligned to T1ce by maximising Mattes mutual information (SimpleITK).",
        copies_mm=register.FINE_MM,
        bins=register.BINS,
        scans=figures,
    )
    return matrices


def within_brain(scans: dict[str, Volume], from_t1ce: dict[str, np.ndarray], mask: Volume, log: Log) -> dict[str, np.ndarray]:
    """The same 4×4s, settled on the brain and the fluid around it."""
    near = register.around(mask, register.INNER_MARGIN_MM)
    matrices = dict(from_t1ce)
    figures: dict[str, Any] = {}
    for channel in (channel for channel in scans if channel != REFERENCE):
        found = register.refine(scans[REFERENCE], scans[channel], from_t1ce[channel], near)
        matrices[channel] = found.matrix
        figures[channel] = {"metric": _finite(found.metric), "metric_before": _finite(found.first_metric)}
    log.add(
        "within_brain",
        f"These alignments were then refined on the brain and the {register.INNER_MARGIN_MM:g} mm around it.",
        bins=register.BINS,
        scans=figures,
    )
    return matrices


def check_overlap(patient: Patient, scans: dict[str, Volume], from_t1ce: dict[str, np.ndarray], mask: Volume, log: Log) -> None:
    """Share of the T1ce brain's voxels whose centres lie within each scan's outer voxel faces; under `OVERLAP` is unusable."""
    points = mask.affine @ np.vstack([np.argwhere(mask.array > 0).T, np.ones(int((mask.array > 0).sum()))])
    shares = {}
    for channel, scan in scans.items():
        index = (np.linalg.inv(scan.affine) @ from_t1ce[channel] @ points)[:3]
        inside = ((index >= -0.5) & (index <= np.array(scan.shape)[:, None] - 0.5)).all(axis=0)
        shares[channel] = round(float(inside.mean()), 4)
        if shares[channel] < OVERLAP:
            reason = f"field of view of {channel} holds {shares[channel]:.1%} of the T1ce's brain; expected {OVERLAP:.0%} or more"
            raise UnusablePatient(reason, str(patient.scans[channel]))
        if shares[channel] < 1 - MISSED:
            log.warnings.append(f"{channel}: {1 - shares[channel]:.1%} of the brain lies outside its field of view and is 0")
    log.add("overlap", f"Every scan covers at least {OVERLAP:.0%} of the brain.", shares=shares)


def to_mni(t1ce: Volume, mask: Bool[np.ndarray, "x y z"], log: Log) -> Float[np.ndarray, "4 4"]:
    """The 4×4 that carries a point of the MNI152 frame to the T1ce."""
    low, high = np.percentile(t1ce.array[mask], (intensity.TAIL_PERCENT, 100 - intensity.TAIL_PERCENT))
    shown = (t1ce.array.clip(low, high) - low) / max(high - low, 1e-6) + 0.1  # darkest brain stays apart from background 0
    found = register.to_template(Volume(np.where(mask, shown, 0).astype(np.float32), t1ce.affine))
    log.add(
        "to_mni",
        "The skull-stripped T1ce was rigidly aligned to the MNI152 brain, so that sizes are kept.",
        metric=_finite(found.metric),
        coarse_metrics=[_finite(metric) for metric in found.coarse_metrics],
        bins=register.TEMPLATE_BINS,
    )
    return found.matrix


def _finite(metric: float) -> float | None:
    return metric if math.isfinite(metric) else None  # JSON has no infinity
