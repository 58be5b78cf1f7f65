"""Rotated: scans, or a prepared patient, and a rotation go in; the same head turned in its field of view comes out.

Rotations are right-handed in RAS+ mm, about an axis through a point: a positive one about x carries the front to the top (the
chin goes up), about y the top to the right, about z the right to the front.

Letters: x y z voxels of a scan, e voxels along an edge of the grid, c channels, n points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.transform import Rotation

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume, mean_index, read, read_mask, resample, write
from mri_vit.prepare import brain

AXES = ("x", "y", "z")
Change = Callable[[Volume], Volume]
EXACT = 15  # digits of a cosine: at 90 degrees it is then 0, and voxels fall on voxels


def about(axis: str, degrees: float, centre_mm: Float[np.ndarray, "3"]) -> Float[np.ndarray, "4 4"]:
    """The rotation about an axis ("x", "y" or "z") through a point: it carries where a point was to where it is, RAS+ mm."""
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler(axis, degrees, degrees=True).as_matrix().round(EXACT)
    matrix[:3, 3] = centre_mm - matrix[:3, :3] @ centre_mm
    return matrix


def scan_turned(scan: Volume, matrix: Float[np.ndarray, "4 4"]) -> Volume:
    """A scan whose content was carried by a rigid 4×4 (RAS+ mm) and seen on the same voxels, in one linear interpolation.

    What comes into view from beyond the field of view is background. Of a skull-stripped scan the brain is turned and cut out
    anew: a border that fades would be brain to whoever takes for brain what differs from background.
    """
    background = brain.border_value(scan.array)
    if not brain.is_stripped(scan):
        return resample(scan, scan.shape, scan.affine, np.linalg.inv(matrix), outside=background)
    inside = brain.foreground(scan.array)
    means, inside = _turned((scan.array - background)[None], inside, scan.affine, matrix)
    return Volume(np.where(inside, means[0] + background, background).astype(np.float32), scan.affine, scan.notes)


def tokens_turned(prepared: Tokens, matrix: Float[np.ndarray, "4 4"]) -> Tokens:
    """A prepared patient whose volume was carried by a rigid 4×4 (the grid's RAS+ mm) and cut into places anew.

    Intensities are interpolated from brain voxels alone and not scaled anew; what leaves the grid is lost.
    """
    volume = tokens.to_volume(prepared).astype(np.float32)
    means, inside = _turned(volume, (volume != 0).any(axis=0), np.array(prepared.grid.affine), matrix)
    return tokens.from_volume(means, inside, prepared.grid, prepared.config_sha256, prepared.channels)


def _turned(
    volume: Float[np.ndarray, "c x y z"],
    inside: Bool[np.ndarray, "x y z"],
    affine: Float[np.ndarray, "4 4"],
    matrix: Float[np.ndarray, "4 4"],
) -> tuple[Float[np.ndarray, "c x y z"], Bool[np.ndarray, "x y z"]]:
    """Arrays of one grid carried by a 4×4, each voxel the mean of the brain's alone, and the brain there."""
    back = np.linalg.inv(matrix)

    def seen(array: Float[np.ndarray, "x y z"]) -> Float[np.ndarray, "x y z"]:
        return resample(Volume(array.astype(np.float32), affine), inside.shape, affine, back).array

    share = seen(inside.astype(np.float32))
    there = share > 0.5
    means = [np.divide(seen(np.where(inside, one, 0)), share, out=np.zeros_like(share), where=there) for one in volume]
    return np.stack(means), there


def content_turned(patient: Patient, matrix: Float[np.ndarray, "4 4"], folder: Path) -> Patient:
    """The patient whose scans, and brain mask where there is one, show the head turned; the files go into `folder`."""
    return _written(patient, folder, lambda scan: scan_turned(scan, matrix), lambda mask: _mask_turned(mask, matrix))


def there_and_back(patient: Patient, matrix: Float[np.ndarray, "4 4"], folder: Path) -> Patient:
    """The patient whose scans were turned and turned back: two interpolations, and nothing moved."""
    back = np.linalg.inv(matrix)
    return _written(
        patient,
        folder,
        lambda scan: scan_turned(scan_turned(scan, matrix), back),
        lambda mask: _mask_turned(_mask_turned(mask, matrix), back),
    )


def header_turned(patient: Patient, matrix: Float[np.ndarray, "4 4"], folder: Path) -> Patient:
    """The patient whose scans have the same voxels, and headers that say that these lie turned."""

    def moved(scan: Volume) -> Volume:
        return replace(scan, affine=matrix @ scan.affine)

    return _written(patient, folder, moved, moved)


def _mask_turned(mask: Volume, matrix: Float[np.ndarray, "4 4"]) -> Volume:
    there = resample(mask, mask.shape, mask.affine, np.linalg.inv(matrix)).array > 0.5
    return Volume(there.astype(np.float32), mask.affine)


def _written(patient: Patient, folder: Path, of_scan: Change, of_mask: Change) -> Patient:
    """The patient with each scan and the brain mask changed and written."""
    folder.mkdir(parents=True, exist_ok=True)
    scans = {}
    for channel, path in patient.scans.items():
        scans[channel] = path and folder / f"{channel}.nii"
        if path:
            write(of_scan(read(path)), folder / f"{channel}.nii")
    mask = patient.brain_mask and folder / "brain_mask.nii"
    if patient.brain_mask:
        write(of_mask(read_mask(patient.brain_mask)), folder / "brain_mask.nii")
    return replace(patient, scans=scans, brain_mask=mask)


def centre_mm(prepared: Tokens) -> Float[np.ndarray, "3"]:
    """The middle of a prepared patient's brain, the grid's RAS+ mm."""
    inside = (tokens.to_volume(prepared) != 0).any(axis=0)
    return (np.array(prepared.grid.affine) @ [*mean_index(inside), 1])[:3]


def carried(matrix: Float[np.ndarray, "4 4"], points_mm: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
    """Points where a 4×4 carries them."""
    return points_mm @ matrix[:3, :3].T + matrix[:3, 3]
