"""Volume: a 3D scan and where it lies, read strictly from a NIfTI file and resampled; and boxes of its voxels.

World coordinates are RAS+ millimetres throughout: x grows to the patient's right, y to the front, z to the top. A `Box` is the
block of voxels that holds a brain, a third of a scan's or of the grid's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from jaxtyping import Bool, Float, Shaped

from mri_vit.data import nifti
from mri_vit.errors import UnusablePatient
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import source

Image = Any  # SimpleITK's image: its import takes 120 MB, which whoever only checks a study can do without
Box = tuple[slice, slice, slice]
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


def read(path: Path, part: Box = nifti.WHOLE) -> Volume:
    """Read a NIfTI-1 or -2 file (.nii, .nii.gz), or a box of it, as float32, or raise UnusablePatient saying what is wrong.

    The file is decompressed to its end with its CRC checked, and must hold exactly the voxels that its header announces.
    """
    return _read(Path(path), partial(nifti.parse, part=part))


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


def write(volume: Volume, path: Path, mark: str = "", step: float | None = None) -> None:
    """Write a NIfTI-1 file atomically; sform and qform both carry the affine, and free-text header fields stay blank but for a
    `mark`, `nifti.SYNTHETIC`. What is stored is the array; with a `step` its numbers count so much each (scl_slope).
    """
    array = volume.array
    if not array.flags.f_contiguous:  # as a file has it: nibabel would copy slice by slice
        array = nifti.in_c_order(array.T, array.dtype).T
    image = nib.Nifti1Image(array, volume.affine)
    if step is not None:
        image.header.set_slope_inter(step, 0)
    image.set_sform(volume.affine, code=1)
    image.set_qform(volume.affine, code=1)
    image.header.set_xyzt_units("mm")
    image.header["descrip"] = mark.encode()
    content = image.to_bytes()
    write_bytes(nifti.packed(content) if path.name.endswith(".gz") else content, path)


def canonical(volume: Volume) -> Volume:
    """The same scan with its array axes permuted and flipped to lie closest to RAS+; no voxel is resampled."""
    orientation = nib.io_orientation(volume.affine)
    array = nib.apply_orientation(volume.array, orientation)
    affine = volume.affine @ nib.orientations.inv_ornt_aff(orientation, volume.shape)
    return Volume(array if array.flags.c_contiguous else nifti.in_c_order(array, array.dtype), affine, volume.notes)


def laid_as(volume: Volume, affine: Float[np.ndarray, "4 4"]) -> Volume:
    """A volume of RAS+ axes with its axes as those of `affine`, which `canonical` permuted and flipped; no voxel is resampled."""
    back = nib.orientations.ornt_transform(nib.orientations.axcodes2ornt("RAS"), nib.io_orientation(affine))
    return Volume(np.ascontiguousarray(nib.apply_orientation(volume.array, back)), affine, volume.notes)


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


def bounding_box(mask: Bool[np.ndarray, "x y z"]) -> Box:
    """The smallest block that holds all of a mask, which must not be empty."""
    x = _ends(mask, (1, 2))
    y = _ends(mask[x], (0, 2))
    return x, y, _ends(mask[x, y], (0, 1))


def _ends(mask: Bool[np.ndarray, "x y z"], others: tuple[int, int]) -> slice:
    """Along one axis, from the first to the last where a mask has a voxel."""
    at = np.flatnonzero(mask.any(axis=others))
    return slice(int(at[0]), int(at[-1]) + 1)


def mean_index(mask: Bool[np.ndarray, "x y z"]) -> Float[np.ndarray, "3"]:
    """Mean index of the voxels of a mask, which must not be empty."""
    part = bounding_box(mask)
    counts = [np.count_nonzero(mask[part], axis=others) for others in ((1, 2), (0, 2), (0, 1))]
    return np.array([np.average(np.arange(p.start, p.stop), weights=n) for p, n in zip(part, counts, strict=True)])


def brain_box(
    scan: Volume, mask: Volume, brain: Box, to_scan: Float[np.ndarray, "4 4"], margin_mm: float
) -> tuple[Volume, Bool[np.ndarray, "x y z"]]:
    """The box of a scan that holds the brain and a margin, and the brain on its voxels.

    `mask` is the brain (1) on another scan's voxels and `brain` its box there; `to_scan` carries a point of that scan to this
    one, RAS+ mm.
    """
    there = carry_box(brain, np.linalg.inv(scan.affine) @ to_scan @ mask.affine)
    box = widen(there, [math.ceil(margin_mm / mm) for mm in scan.spacing_mm], scan.shape)
    part = cut_box(scan, box)
    if scan.shape == mask.shape and np.array_equal(to_scan @ mask.affine, scan.affine):
        return part, np.ascontiguousarray(mask.array[box] > 0.5)
    source = cut_box(mask, widen(brain, (1, 1, 1), mask.shape))
    return part, resample(source, part.shape, part.affine, np.linalg.inv(to_scan)).array > 0.5


def widen(box: Box, voxels: Sequence[int], shape: Sequence[int]) -> Box:
    """The box with so many voxels more on both sides of each axis, inside a grid of `shape`; always one voxel or more."""
    starts = [min(max(part.start - more, 0), n - 1) for part, more, n in zip(box, voxels, shape, strict=True)]
    x, y, z = (
        slice(start, max(min(part.stop + more, n), start + 1))
        for start, part, more, n in zip(starts, box, voxels, shape, strict=True)
    )
    return x, y, z


def middle_half(box: Box) -> Box:
    """The middle half of a box along each axis."""
    quarters = [(part.stop - part.start) // 4 for part in box]
    x, y, z = (slice(part.start + n, part.stop - n) for part, n in zip(box, quarters, strict=True))
    return x, y, z


def carry_box(box: Box, matrix: Float[np.ndarray, "4 4"]) -> Box:
    """The block of another grid that covers a box, also where that grid ends; `matrix` carries a voxel index to one there."""
    faces = [(part.start - 0.5, part.stop - 0.5) for part in box]
    index = (matrix @ np.array([[*corner, 1.0] for corner in product(*faces)]).T)[:3]
    low, high = np.floor(index.min(axis=1)).astype(int), np.ceil(index.max(axis=1)).astype(int) + 1
    x, y, z = (slice(int(start), int(stop)) for start, stop in zip(low, high, strict=True))
    return x, y, z


def box_shape(box: Box) -> tuple[int, int, int]:
    x, y, z = (part.stop - part.start for part in box)
    return x, y, z


def box_within(outer: Box, inner: Box) -> Box:
    """A box of a box as one of the whole grid."""
    x, y, z = (slice(o.start + i.start, o.start + i.stop) for o, i in zip(outer, inner, strict=True))
    return x, y, z


def cut_box(volume: Volume, box: Box) -> Volume:
    """A box of a volume as a volume of its own, at the same place."""
    return Volume(np.ascontiguousarray(volume.array[box]), box_affine(volume.affine, box), volume.notes)


def box_affine(affine: Float[np.ndarray, "4 4"], box: Box) -> Float[np.ndarray, "4 4"]:
    """The affine of a box of a grid."""
    moved = affine.copy()
    moved[:3, 3] = (affine @ [*(part.start for part in box), 1])[:3]
    return moved


def lay_on_whole(part: Volume, whole: Volume) -> Volume:
    """A box on the whole that it was cut from, which is 0 elsewhere."""
    start = np.rint(np.linalg.inv(whole.affine) @ part.affine[:, 3])[:3].astype(int)
    x, y, z = (slice(first, first + n) for first, n in zip(start.tolist(), part.shape, strict=True))
    array = np.zeros(whole.shape, part.array.dtype)
    array[x, y, z] = part.array
    return Volume(array, whole.affine, part.notes)
