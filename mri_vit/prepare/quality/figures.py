"""Figures: a prepared patient's scans on their way go in; the numbers by which someone, or a limit, judges them come out.

They stand under "quality" in `patient.json`; rounded, and null where there is nothing to tell from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.transform import Rotation

from mri_vit.data.volume import Volume, resample
from mri_vit.prepare import brain as brains_of
from mri_vit.prepare import register
from mri_vit.prepare.quality import acquisition, agreement, coverage, sequences
from mri_vit.prepare.quality.copies import Copies

QUANTILES = tuple(np.linspace(0.02, 0.98, 25).tolist())  # of a scan in its brain: what its histogram is compared by


def of_scan(
    whole: Volume,
    scan: Volume,
    corrected: Volume,
    brain: Bool[np.ndarray, "x y z"],
    mask: Volume,
    from_reference: Float[np.ndarray, "4 4"],
) -> dict[str, Any]:
    """Of one scan as it was taken, on its own voxels.

    `scan` is the box of the `whole` one that holds the `brain`, `corrected` the same without its bias field. The 4×4 carries a
    point of the reference scan, on whose voxels the brain is the `mask`, to this one.
    """
    background = brains_of.border_value(whole.array)
    taken, sparse = scan.array[brain], acquisition.sparse(whole)
    in_sparse = resample(mask, sparse.shape, sparse.affine, np.linalg.inv(from_reference)).array > 0.5
    return _rounded(
        {
            "filled": float((taken != background).mean()),
            "signal_to_noise": acquisition.signal_to_noise(scan, brain),
            "ghosts": acquisition.ghosts(sparse, in_sparse, background),
            "shading": acquisition.shading(taken, corrected.array[brain]),
        }
    )


def of_patient(
    copies: Copies,
    mask: Volume,
    pose: register.Pose,
    reference: str,
    taken: Mapping[str, Volume],
    of_scans: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """All figures of a patient.

    Parameters
    ----------
    copies
        Of the scans on `copies.GRID`, whatever the study's grid.
    mask
        The brain (1) on the reference scan's voxels.
    pose
        How the MNI152 brain lies over it.
    reference
        The scan that the others were aligned to.
    taken
        The scans as they were taken, axes laid as RAS+.
    of_scans
        `of_scan` of each.
    """

    def aligned_mirrored(channel: str) -> Float[np.ndarray, "x y z"]:
        mirrored = Volume(np.ascontiguousarray(taken[channel].array[::-1]), taken[channel].affine)
        return copies.seen(mirrored, register.to_reference(taken[reference], mirrored).matrix @ pose.rigid)

    judged = [channel for channel, scan in taken.items() if agreement.shows_folds(channel, scan)]
    judged = judged if reference in judged else []
    agreed = agreement.of_copies(copies, reference, judged, aligned_mirrored)
    scans = {
        channel: {
            **of_scans[channel],
            **(_rounded(_likeness(agreed.scans[channel])) if channel in agreed.scans else {}),
            "quantiles": [round(value, 3) for value in np.quantile(scan[copies.brain], QUANTILES).tolist()],
        }
        for channel, scan in copies.scans.items()
    }
    whole = {
        "turned_degrees": turn(pose.rigid),
        "middle_degrees": agreed.middle_degrees,
        "middle_mm": agreed.middle_mm,
        "squeezed": coverage.squeezed(pose.affine.matrix),
        "fluid_contrast": sequences.fluid_contrast(copies),
        "enhancement": sequences.enhancement(copies),
    }
    return _rounded(whole) | {"coverage": _rounded(coverage.shares(mask, pose.affine.matrix)), "scans": scans}


def turn(matrix: Float[np.ndarray, "4 4"]) -> float:
    """Degrees by which a rigid 4×4 turns."""
    return float(np.degrees(Rotation.from_matrix(matrix[:3, :3]).magnitude()))


def _likeness(found: agreement.Likeness) -> dict[str, float | None]:
    return {
        "likeness": found.direct,
        "mirrored_likeness": found.mirrored,
        "own_to_mirrored": found.ratio,
        "reversed": found.reversed,
    }


def _rounded(found: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None or not math.isfinite(value) else round(value, 4) for name, value in found.items()}
