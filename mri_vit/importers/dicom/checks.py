"""Checks: a series goes in, what speaks against converting it comes out.

dcm2niix ends with exit code 0 on a missing slice, a tilted gantry and images that make no volume; it fills, shears or stacks
them. So nothing is converted that these checks have not passed.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from pydicom.pixels.decoders.base import get_decoder
from pydicom.uid import UID

from mri_vit.data.nifti import AFFINE_TOLERANCE, SPACING_MM
from mri_vit.importers.dicom import geometry
from mri_vit.importers.dicom.fault import Fault
from mri_vit.importers.dicom.geometry import DIRECTION, FEWEST_SLICES, SAME_PLACE_MM, UNEVEN
from mri_vit.importers.dicom.header import File, Image
from mri_vit.importers.dicom.series import Series

# What the dcm2niix of PyPI decodes by itself, by its start line (JP2:OpenJPEG, JP-LS:CharLS) and console/nii_dicom.cpp.
DCM2NIIX = {
    "1.2.840.10008.1.2",  # implicit VR little endian
    "1.2.840.10008.1.2.1",  # explicit VR little endian
    "1.2.840.10008.1.2.2",  # explicit VR big endian
    "1.2.840.10008.1.2.4.50",  # JPEG baseline
    "1.2.840.10008.1.2.4.57",  # JPEG lossless
    "1.2.840.10008.1.2.4.70",  # JPEG lossless, first-order prediction
    "1.2.840.10008.1.2.4.80",  # JPEG-LS lossless
    "1.2.840.10008.1.2.4.81",  # JPEG-LS near-lossless
    "1.2.840.10008.1.2.4.90",  # JPEG 2000 lossless
    "1.2.840.10008.1.2.4.91",  # JPEG 2000
    "1.2.840.10008.1.2.5",  # RLE
}
ROUNDED = 0.1  # of a spacing: how far off one may be that was written with one digit behind the point
MODALITIES = {"CT", "PT", "NM", "US", "CR", "DX", "XA", "MG", "SC", "OT", "RTIMAGE", "RTDOSE", "SEG"}  # that may be shown


def faults(series: Series) -> list[Fault]:
    """What speaks against converting a series, nothing where it is fit; the later checks rest on the earlier ones."""
    for check in (_pixels, _header, _one_kind, _stack, _steps, _completeness, _modality):
        if faults := check(series):
            cause = f"{series.oddity}, and they make no volume: " if series.oddity else ""
            return [Fault(cause + fault.reason, fault.uids) for fault in faults]
    return []


def decompress_first(series: Series) -> bool:
    """Whether dcm2niix cannot decode the files, and pydicom has to do it before."""
    return any(file.syntax not in DCM2NIIX for file in series.files)


def _pixels(series: Series) -> list[Fault]:
    """Files whose pixels are missing, cut off, coloured or stored in a way that nothing here decodes."""
    for file in series.files:
        if not file.syntax:
            return [Fault("image {} is compressed, and has no file meta information that says how", (file.sop_uid,))]
        if not _decodable(file):
            known = UID(file.syntax).name  # the UID itself where the standard has no name for it
            name = f"{known} ({file.syntax})" if known != file.syntax else "{1}, which the DICOM standard does not know"
            return [Fault(f"image {{0}} has the transfer syntax {name}; no codec here decodes it", (file.sop_uid, file.syntax))]
        if file.samples != 1:
            return [Fault(f"image {{}} has {file.samples} samples per pixel (colour); expected 1", (file.sop_uid,))]
        if file.bytes_expected is not None and file.bytes_found < file.bytes_expected:
            told = f"holds {file.bytes_found:,} bytes of pixels where its header announces {file.bytes_expected:,}"
            return [Fault(f"image {{}} {told}: it is cut off", (file.sop_uid,))]
        if file.concatenated > 1:
            told = f"is one of {file.concatenated} over which a volume is spread (a concatenation); expected one multi-frame file"
            return [Fault(f"image {{}} {told}", (file.sop_uid,))]
        held = sum(image.path == file.path for image in series.images) if file.frames > 1 else 1
        if held != file.frames:
            told = f"announces {file.frames} frames and gives the place of {held}"
            return [Fault(f"image {{}} {told}", (file.sop_uid,))]
    return []


def _decodable(file: File) -> bool:
    if file.syntax in DCM2NIIX:
        return True
    syntax = UID(file.syntax)
    if not syntax.is_transfer_syntax:
        return False
    if not syntax.is_compressed:
        return True
    try:
        return get_decoder(syntax).is_available
    except NotImplementedError:  # pydicom has no decoder for it at all, as for video
        return False


def _header(series: Series) -> list[Fault]:
    """Slices whose place is unknown."""
    for image in series.images:
        for value, name in (
            (image.position_mm, "ImagePositionPatient"),
            (image.orientation, "ImageOrientationPatient"),
            (image.spacing_mm, "PixelSpacing"),
        ):
            if not np.isfinite(value).all():
                return [Fault(f"image {{}} has no usable {name}: its place is unknown", (image.sop_uid,))]
        row, column = np.reshape(image.orientation, (2, 3))
        upright = abs(float(row @ column)) < DIRECTION
        if not upright or np.abs(np.linalg.norm([row, column], axis=1) - 1).max() > DIRECTION:
            return [
                Fault("image {} has an ImageOrientationPatient that is no pair of perpendicular directions", (image.sop_uid,))
            ]
        if min(image.spacing_mm) < SPACING_MM[0] or max(image.spacing_mm) > SPACING_MM[1]:
            told = " x ".join(f"{x:g}" for x in image.spacing_mm)
            return [
                Fault(f"image {{}} has pixels of {told} mm; expected {SPACING_MM[0]} to {SPACING_MM[1]} mm", (image.sop_uid,))
            ]
    return []


def _one_kind(series: Series) -> list[Fault]:
    """Slices that differ in direction, matrix or spacing."""
    first = series.images[0]
    if series.mixed:
        return [Fault("mixed series: images {} and {} have different descriptions, and not enough images each", series.mixed)]
    for image in series.images[1:]:
        told = _difference(first, image)
        if told:
            return [Fault(f"{told}: images {{}} and {{}}", (first.sop_uid, image.sop_uid))]
    return []


def _difference(one: Image, other: Image) -> str:
    if not np.allclose(one.orientation, other.orientation, atol=DIRECTION):
        cosine = float(np.clip(abs(geometry.normal(one) @ geometry.normal(other)), 0, 1))
        return f"mixed orientation, slices {np.degrees(np.arccos(cosine)):.1f} degrees apart"
    if one.matrix != other.matrix:
        return f"mixed matrix, {one.matrix[0]} x {one.matrix[1]} and {other.matrix[0]} x {other.matrix[1]}"
    if not np.allclose(one.spacing_mm, other.spacing_mm, rtol=AFFINE_TOLERANCE):
        return f"mixed spacing, {_mm(one.spacing_mm)} and {_mm(other.spacing_mm)} mm"
    return ""


def _stack(series: Series) -> list[Fault]:
    """Images that are no stack of slices: all in one place, some in the same place, or too few."""
    slices = geometry.ordered(series.images)
    places = geometry.places_mm(slices)
    steps = np.diff(places)
    if len(slices) > 1 and places[-1] - places[0] < SAME_PLACE_MM:
        return [Fault(f"no volume: all {len(slices)} images lie in the same place")]
    if (steps < SAME_PLACE_MM).any():
        at = int(np.argmax(steps < SAME_PLACE_MM))
        told = f"duplicate slice: {int((steps < SAME_PLACE_MM).sum())} of {len(slices)} lie where another does, first at"
        return [Fault(f"{told} {places[at]:.2f} mm along the normal ({{}} and {{}})", _pair(slices, at))]
    if len(slices) < FEWEST_SLICES:
        return [Fault(f"too few slices for a volume: {len(slices)}; expected {FEWEST_SLICES} or more")]
    return []


def _steps(series: Series) -> list[Fault]:
    """Slices that are missing or unevenly spaced, or stacked along another direction than the normal."""
    slices = geometry.ordered(series.images)
    places = geometry.places_mm(slices)
    steps = np.diff(places)
    usual = float(np.median(steps))
    found = []
    off = np.abs(steps - usual) > UNEVEN * usual
    if off.any():
        at = int(np.argmax(off))
        where = f"from {places[at]:.2f} to {places[at + 1]:.2f} mm along the normal ({{}} and {{}}), a step of {steps[at]:.2f} mm"
        more = f", and {int(off.sum()) - 1} more such steps" if off.sum() > 1 else ""
        found.append(Fault(f"{_uneven(steps[at], usual)}: {where} where {usual:.2f} mm is usual{more}", _pair(slices, at)))
    if (tilt := _tilt_degrees(geometry.positions_mm(slices), places)) > np.degrees(np.arcsin(DIRECTION)):
        found.append(Fault(f"tilted gantry: slices are stacked {tilt:.1f} degrees off their normal"))
    return found


def _uneven(step_mm: float, usual_mm: float) -> str:
    """A gap of whole steps is named as missing slices."""
    missing = round(step_mm / usual_mm) - 1
    if missing < 1 or abs(step_mm / usual_mm - missing - 1) > UNEVEN * (missing + 1):
        return "unevenly spaced slices"
    return "missing slice" if missing == 1 else f"{missing} missing slices"


def _tilt_degrees(positions: Float[np.ndarray, "n 3"], places: Float[np.ndarray, "n"]) -> float:
    """Angle between the line from the first to the last slice and the normal."""
    length = float(np.linalg.norm(positions[-1] - positions[0]))
    return float(np.degrees(np.arccos(np.clip((places[-1] - places[0]) / length, -1, 1))))


def _completeness(series: Series) -> list[Fault]:
    """Slices that are missing evenly or at an end, so that those that are there make up a volume of their own."""
    count, stored, announced = len(series.images), len(series.stored), series.in_acquisition
    derived = "DERIVED" in series.tags.image_type  # a reformatted or computed image repeats what was true of its source
    if stored and series.in_series > series.under_uid:
        return [_fewer(series.under_uid, series.in_series, "NumberOfSeriesRelatedInstances or ImagesInSeries")]
    elsewhere = series.acquired == announced or (series.phases > 1 and stored and announced % stored == 0)  # as other echoes
    if stored and announced > stored and not derived and not elsewhere:
        return [_fewer(stored, announced, "ImagesInAcquisition")]
    step = float(np.median(np.diff(geometry.places_mm(geometry.ordered(series.images)))))
    declared, thickness = _declared_mm(series)
    times = round(step / declared) if declared > 0 else 1
    if times > 1 and abs(step - times * declared) <= ROUNDED * declared and not _explained(step, declared, thickness, derived):
        told = f"{count} lie {step:.2f} mm apart where SpacingBetweenSlices says {declared:g} mm"
        return [Fault(f"missing slices: {told}; expected {(count - 1) * times + 1} or more")]
    stride = _stride(series)
    if stride > 1 and not _fills(step, declared, thickness) and not _explained(step, declared, thickness, derived):
        number = "InstanceNumber" if series.stored else "InStackPositionNumber"
        told = f"{number} goes up by {stride} from each of {count} to the next"
        return [Fault(f"missing slices: {told}; expected {(count - 1) * stride + 1} or more")]
    return []


def _fewer(count: int, expected: int, field: str) -> Fault:
    return Fault(f"missing slices: {count} images; expected {expected}, by {field}")


def _declared_mm(series: Series) -> tuple[float, float]:
    """SpacingBetweenSlices and SliceThickness, NaN where images lack them or differ in them."""
    return _agreed([image.between_mm for image in series.images]), _agreed([image.thickness_mm for image in series.images])


def _agreed(values: list[float]) -> float:
    return abs(values[0]) if np.allclose(values, values[0], rtol=AFFINE_TOLERANCE) else math.nan  # of some the sign is negative


def _explained(step: float, declared: float, thickness: float, derived: bool) -> bool:
    """Whether a declared spacing that is a fraction of the step says nothing of missing slices.

    Some scanners write the gap between slices in place of the distance of their centres; it is less than a slice is thick, or
    else slices would overlap. Reformatted images may repeat the spacing of their source.
    """
    is_gap = declared < thickness * (1 - UNEVEN) and abs(step - thickness - declared) <= ROUNDED * declared
    return is_gap or (derived and abs(step - thickness) <= UNEVEN * thickness)


def _stride(series: Series) -> int:
    """By how much the instance number rises or falls from slice to slice, if always alike; 1 where others fill the gaps."""
    numbers = [image.instance for image in geometry.ordered(series.images)]
    steps = set(np.abs(np.diff(numbers)).tolist())
    if len(steps) != 1 or len(set(series.stored)) > len(numbers):
        return 1
    return int(steps.pop())


def _fills(step: float, declared: float, thickness: float) -> bool:
    """Whether slices follow each other as declared, or so closely that none fits between them."""
    if declared > 0:
        return abs(step - declared) <= UNEVEN * step
    return step < 2 * thickness * (1 - UNEVEN)


def _modality(series: Series) -> list[Fault]:
    modality = series.files[0].modality
    if modality == "MR":
        return []
    return [Fault(f"modality {modality if modality in MODALITIES else 'other than MR'}; expected MR")]


def _pair(slices: list[Image], at: int) -> tuple[str, str]:
    """UIDs of a slice and the next; of frames of one file the same twice."""
    return slices[at].sop_uid, slices[at + 1].sop_uid


def _mm(spacing: tuple[float, ...]) -> str:
    return " x ".join(f"{x:g}" for x in spacing)
