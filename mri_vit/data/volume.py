"""Volume: a 3D scan and where it lies. A NIfTI file goes in, strictly read; a Volume or an UnusablePatient comes out.

World coordinates are RAS+ millimetres throughout: x grows to the patient's right, y to the front, z to the top.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from jaxtyping import Float, Shaped

from mri_vit.data import nifti
from mri_vit.errors import UnusablePatient
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import source

Image = Any  # SimpleITK's image: its import takes 120 MB, which whoever only checks a study can do without
LINEAR = 2  # sitk.sitkLinear
LPS = np.diag([-1.0, -1.0, 1.0, 1.0])  # RAS+ (NIfTI) to LPS+ (ITK) and back


@dataclass(frozen=True, eq=False)
class Volume:
    """A scan `array` [X, Y, Z] and its `affine`, 4×4 from voxel index to RAS+ mm; `notes` say what reading had to settle."""

    array: Shaped[np.ndarray, "x y z"]
    affine: Float[np.ndarray, "4 4"]
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int, int]:
        x, y, z = self.array.shape
        return x, y, z

    @property
    def spacing_mm(self) -> tuple[float, float, float]:
        x, y, z = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(x), float(y), float(z)


def read(path: Path) -> Volume:
    """Read a NIfTI-1 or -2 file (.nii, .nii.gz) as float32, or raise UnusablePatient saying what is wrong with it.

    The file is decompressed to its end with its CRC checked, and must hold exactly the voxels that its header announces.
    """
    return _read(Path(path), nifti.parse)


def read_mask(path: Path) -> Volume:
    """Read a mask as `read` does a scan, but with any slope: where it is one that no intensities have, the mask is 0 and 1."""
    return _read(Path(path), nifti.parse_mask)


def _read(path: Path, parse: Callable[[bytes, bool], nifti.Parsed]) -> Volume:
    if wrong := source.fault(path):
        raise UnusablePatient(wrong, str(path))
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UnusablePatient(f"cannot be read: {error.strerror}", str(path)) from None
    try:
        return Volume(*parse(raw, path.suffix.lower() == ".gz"))
    except UnusablePatient as fault:
        raise UnusablePatient(fault.reason, str(path)) from None


def write(volume: Volume, path: Path, mark: str = "") -> None:
    """Write a NIfTI-1 file atomically; sform and qform both carry the affine, and free-text header fields stay blank but for a
    `mark`, `nifti.SYNTHETIC`.
    """
    image = nib.Nifti1Image(volume.array, volume.affine)
    image.set_sform(volume.affine, code=1)
    image.set_qform(volume.affine, code=1)
    image.header.set_xyzt_units("mm")
    image.header["descrip"] = mark.encode()
    content = image.to_bytes()
    if path.name.endswith(".gz"):
        content = gzip.compress(
            content, compresslevel=4, mtime=0
        )  # 4: within 5 % of 9's size at a third of the time; mtime 0: equal bytes
    write_bytes(content, path)


def canonical(volume: Volume) -> Volume:
    """The same scan with its array axes permuted and flipped to lie closest to RAS+; no voxel is resampled."""
    orientation = nib.io_orientation(volume.affine)
    array = nib.apply_orientation(volume.array, orientation)
    affine = volume.affine @ nib.orientations.inv_ornt_aff(orientation, volume.shape)
    return Volume(np.ascontiguousarray(array), affine, volume.notes)


def to_itk(volume: Volume) -> Image:
    """As a SimpleITK image (LPS+ mm), whose first axis is the volume's last: so its voxels are ITK's as they lie in memory."""
    import SimpleITK as sitk

    image = sitk.GetImageFromArray(volume.array)
    lps = LPS @ volume.affine
    steps = lps[:3, 2::-1]
    spacing = np.linalg.norm(steps, axis=0)
    image.SetSpacing(spacing.tolist())
    image.SetDirection((steps / spacing).flatten().tolist())
    image.SetOrigin(lps[:3, 3].tolist())
    return image


def itk_transform(ras: Float[np.ndarray, "4 4"]) -> Any:
    """A 4×4 between RAS+ mm spaces as ITK's affine transform between LPS+ mm spaces."""
    import SimpleITK as sitk

    lps = LPS @ ras @ LPS
    transform = sitk.AffineTransform(3)
    transform.SetMatrix(lps[:3, :3].flatten().tolist())
    transform.SetTranslation(lps[:3, 3].tolist())
    return transform


def resample(
    volume: Volume,
    shape: tuple[int, int, int],
    affine: Float[np.ndarray, "4 4"],
    to_source: Float[np.ndarray, "4 4"] | None = None,
    interpolation: int = LINEAR,
    outside: float = 0.0,
) -> Volume:
    """`volume` seen on another grid in one interpolation.

    `shape` and `affine` are the target grid's; `to_source` (4×4, default identity) carries a target point in RAS+ mm to the
    source's RAS+ mm. Voxels whose centre falls outside the source get `outside`.
    """
    import SimpleITK as sitk

    target = to_itk(Volume(np.zeros((1, 1, 1), np.uint8), affine))
    sampler = sitk.ResampleImageFilter()
    sampler.SetSize(list(shape[::-1]))
    sampler.SetOutputSpacing(target.GetSpacing())
    sampler.SetOutputDirection(target.GetDirection())
    sampler.SetOutputOrigin(target.GetOrigin())
    sampler.SetTransform(itk_transform(np.eye(4) if to_source is None else to_source))
    sampler.SetInterpolator(interpolation)
    sampler.SetDefaultPixelValue(outside)
    return Volume(sitk.GetArrayFromImage(sampler.Execute(to_itk(volume))), affine, volume.notes)
