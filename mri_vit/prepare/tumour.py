"""Tumour: whether a patient's tumour mask is one, in the brain that was prepared, and scans cut around it.

Its volume is a control, and its place judges maps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import distance_transform_edt
from scipy.spatial import KDTree

from mri_vit.data import tokens
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume, read_mask, resample
from mri_vit.errors import UnusablePatient
from mri_vit.prepare.brain import volume_ml
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record, reference_of, reference_to_grid
from mri_vit.run import files
from mri_vit.run.integrity import as_written
from mri_vit.settings.sections import Grid
from mri_vit.settings.sequences import title

NEAREST = 1  # sitk.sitkNearestNeighbor
MOST_LABELS = 32  # values of a mask besides 0, unless it counts metastases as 1, 2, 3 …; BraTS has 3, a scan hundreds
WHOLE = 0.02  # from a whole number: 8 bits for four labels store them by steps of 0.016
MOST_OF_BRAIN = 0.5  # of the brain: the ten real masks have 0.017 to 0.142, and a hemisphere is less
LEAST_INSIDE = 0.5  # of the mask, in the brain: the ten real masks have 0.98 and more on a grid of 4 mm


def check(mask: Path, prepared: Path) -> None:
    """See that a mask can be a tumour's and lies in the prepared brain. Raises UnusablePatient as `refuse` does.

    Parameters
    ----------
    mask
        In the space of the patient's reference scan; what is not 0 is tumour.
    prepared
        The patient's folder.
    """
    stored = tokens.load(prepared / files.TOKENS)
    brain = Volume((tokens.to_volume(stored) != 0).any(axis=0), np.array(stored.grid.affine))
    with as_written(prepared / files.PATIENT, PREPARE_AGAIN):
        brain_ml = float(load_record(prepared)["brain_ml"])
    refuse(read_mask(mask), reference_to_grid(prepared), brain, brain_ml, reference_of(prepared), str(mask))


def refuse(
    mask: Volume, to_grid: Float[np.ndarray, "4 4"], brain: Volume, brain_ml: float, reference: str, file: str = ""
) -> None:
    """Raise UnusablePatient where a tumour mask is a scan, a probability map or a whole brain, or lies elsewhere.

    Parameters
    ----------
    mask
        What is not 0 is tumour.
    to_grid
        From a point of the mask's space to that of the brain, RAS+ mm.
    brain
        Or as much of it as was kept.
    brain_ml
        Volume of all of it.
    reference
        The scan in whose space the mask lies.
    file
        The mask's, for the message.
    """
    drawn = mask.array != 0
    labels, size_ml = np.unique(mask.array[drawn]), volume_ml(drawn, mask)
    size = f"the tumour mask holds {size_ml:.0f} ml, {size_ml / brain_ml:.0%} of the brain"
    counted = len(labels) < 256 and np.array_equal(labels, np.arange(1, len(labels) + 1))  # in a byte
    if (len(labels) > MOST_LABELS and not counted) or (len(labels) > 1 and np.abs(labels - np.rint(labels)).max() > WHOLE):
        values = f"{len(labels)} values from {labels[0]:g} to {labels[-1]:g}"
        reason = f"{size}, and {values}; expected 0 outside the tumour and whole numbers in it, not a scan or probabilities"
        raise UnusablePatient(reason, file)
    if size_ml > MOST_OF_BRAIN * brain_ml:
        reason = f"{size}; expected {MOST_OF_BRAIN:.0%} or less: a tumour, not a scan or the brain"
        raise UnusablePatient(reason, file)
    where = f"expected a mask in the space of the {title(reference)}"
    inside = inside_share(mask, to_grid, brain)
    if inside == 0:
        away_mm = distance_mm(mask, to_grid, brain)
        raise UnusablePatient(f"the tumour mask lies {away_mm:.0f} mm away from the prepared brain; {where}", file)
    if inside < LEAST_INSIDE:
        raise UnusablePatient(f"only {inside:.0%} of the tumour mask's {size_ml:.0f} ml lie in the prepared brain; {where}", file)


def around(
    mask: Path,
    volume: Float[np.ndarray, "c e e e"],
    brain: Bool[np.ndarray, "e e e"],
    margin_mm: float,
    from_grid: Float[np.ndarray, "4 4"],
    grid: Grid,
    reference: str,
) -> tuple[Float[np.ndarray, "c e e e"], Bool[np.ndarray, "e e e"]]:
    """Scans on the grid, and the brain there, emptied further than the margin from every voxel of the tumour.

    Parameters
    ----------
    mask
        In the reference's space; what is not 0 is tumour.
    volume, brain
        c scans and the brain on the grid of e voxels along an edge.
    from_grid
        From a point of the grid to the reference's space, RAS+ mm.

    Raises UnusablePatient where the mask cannot be read, and as `refuse` does.
    """
    drawn, there = read_mask(mask), Volume(brain, np.array(grid.affine))
    refuse(drawn, np.linalg.inv(from_grid), there, volume_ml(brain, there), reference, str(mask))
    tumour = _drawn(drawn, from_grid, grid)
    near = brain & (np.asarray(distance_transform_edt(~tumour)) * grid.spacing_mm <= margin_mm)
    return volume * near, near


def on_grid(mask: Path, prepared: Path, grid: Grid) -> Bool[np.ndarray, "e e e"]:
    """Which voxels of the grid of e voxels along an edge are tumour: the mask, in the reference's space, by nearest neighbour.

    `prepared` is the patient's folder. Raises UnusablePatient where the mask cannot be read.
    """
    return _drawn(read_mask(mask), np.linalg.inv(reference_to_grid(prepared)), grid)


def _drawn(mask: Volume, from_grid: Float[np.ndarray, "4 4"], grid: Grid) -> Bool[np.ndarray, "e e e"]:
    whole = Volume((mask.array != 0).astype(np.uint8), mask.affine)
    return resample(whole, (grid.edge, grid.edge, grid.edge), np.array(grid.affine), from_grid, NEAREST).array != 0


def tumour_shares(mask: Volume, to_grid: Float[np.ndarray, "4 4"], prepared: Tokens) -> Float[np.ndarray, "places"]:
    """The tumour's share of the brain voxels of every place of the grid; 0 where there is no brain.

    `mask` lies in the world of the patient's reference (any voxel that is not 0 is tumour) on whatever voxels; `to_grid`
    carries a point of it to the grid, RAS+ mm.
    """
    grid = prepared.grid
    drawn = Volume((mask.array != 0).astype(np.float32), mask.affine)
    on_grid = resample(drawn, (grid.edge, grid.edge, grid.edge), np.array(grid.affine), np.linalg.inv(to_grid)).array
    brain = (tokens.to_volume(prepared) != 0).any(axis=0)
    voxels, tumour = (
        tokens.patchify(part[None].astype(np.float32), grid.patch).sum(axis=1)
        for part in (brain, brain & (on_grid > 0.5))  # 0.5: a voxel is tumour where most of what is around its centre is
    )
    return tumour / np.maximum(voxels, 1)


def inside_share(tumour: Volume, to_grid: Float[np.ndarray, "4 4"], brain: Volume) -> float:
    """Of a mask's voxels, those whose nearest voxel of a brain's grid is the brain's; `to_grid` is as `distance_mm` has it."""
    points = _points_mm(tumour.array != 0, np.linalg.inv(brain.affine) @ to_grid @ tumour.affine)
    index = np.rint(points).astype(int)
    on_grid = ((index >= 0) & (index < brain.shape)).all(axis=1)
    return float(brain.array[tuple(index[on_grid].T)].sum() / len(index))


def distance_mm(tumour: Volume, to_grid: Float[np.ndarray, "4 4"], brain: Volume) -> float:
    """From a mask to the nearest voxel of a brain, 0 where a voxel of the mask is one of the brain's.

    `to_grid` carries a point of the mask's space to the brain's, RAS+ mm.
    """
    if inside_share(tumour, to_grid, brain) > 0:
        return 0.0
    surface = (tumour.array != 0) & ~_surrounded(tumour.array != 0)  # the nearest points of both lie on their surfaces
    rim = brain.array & ~_surrounded(brain.array)
    points = _points_mm(surface, to_grid @ tumour.affine)
    return float(KDTree(_points_mm(rim, brain.affine)).query(points)[0].min())


def _points_mm(mask: Bool[np.ndarray, "x y z"], affine: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "n 3"]:
    return np.argwhere(mask) @ affine[:3, :3].T + affine[:3, 3]


def _surrounded(mask: Bool[np.ndarray, "x y z"]) -> Bool[np.ndarray, "x y z"]:
    """Voxels all of whose six neighbours are in the mask too."""
    padded = np.pad(mask, 1)
    shifted = [np.roll(padded, step, axis) for axis in range(3) for step in (-1, 1)]
    return np.logical_and.reduce(shifted)[1:-1, 1:-1, 1:-1]
