"""Conversion: a series goes in; what speaks against converting it, or its volume, comes out.

dcm2niix ends with exit code 0 on a missing slice, a tilted gantry and images that make no volume; it fills, shears or stacks
them. So nothing is converted that the checks have not passed, and its voxels are held against the headers.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
from pathlib import Path

import dcm2niix
import nibabel as nib
import numpy as np
from jaxtyping import Float
from pydicom.pixels.decoders.base import get_decoder
from pydicom.uid import UID, DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian, MRImageStorage, generate_uid

from mri_vit.data.nifti import AFFINE_TOLERANCE, SPACING_MM
from mri_vit.data.volume import Volume, canonical
from mri_vit.importers.dicom.header import File, Image, lenient, read_dataset
from mri_vit.importers.dicom.identity import Fault, Refused
from mri_vit.importers.dicom.series import (
    DIRECTION_TOLERANCE,
    MIN_SLICES,
    SAME_PLACE_MM,
    UNEVEN_STEP,
    Series,
    drift_mm,
    ordered_slices,
    places_mm,
    positions_mm,
    slice_normal,
    volume_affine,
    volume_shape,
)

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


def conversion_faults(series: Series) -> list[Fault]:
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
            detail = f"holds {file.bytes_found:,} bytes of pixels where its header announces {file.bytes_expected:,}"
            return [Fault(f"image {{}} {detail}: it is cut off", (file.sop_uid,))]
        if file.concatenated > 1:
            detail = (
                f"is one of {file.concatenated} over which a volume is spread (a concatenation); expected one multi-frame file"
            )
            return [Fault(f"image {{}} {detail}", (file.sop_uid,))]
        held = sum(image.path == file.path for image in series.images) if file.frames > 1 else 1
        if held != file.frames:
            detail = f"announces {file.frames} frames and gives the place of {held}"
            return [Fault(f"image {{}} {detail}", (file.sop_uid,))]
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
        upright = abs(float(row @ column)) < DIRECTION_TOLERANCE
        if not upright or np.abs(np.linalg.norm([row, column], axis=1) - 1).max() > DIRECTION_TOLERANCE:
            return [
                Fault("image {} has an ImageOrientationPatient that is no pair of perpendicular directions", (image.sop_uid,))
            ]
        if min(image.spacing_mm) < SPACING_MM[0] or max(image.spacing_mm) > SPACING_MM[1]:
            detail = " x ".join(f"{x:g}" for x in image.spacing_mm)
            return [
                Fault(f"image {{}} has pixels of {detail} mm; expected {SPACING_MM[0]} to {SPACING_MM[1]} mm", (image.sop_uid,))
            ]
    return []


def _one_kind(series: Series) -> list[Fault]:
    """Slices that differ in direction, matrix or spacing."""
    first = series.images[0]
    if series.mixed:
        return [Fault("mixed series: images {} and {} have different descriptions, and not enough images each", series.mixed)]
    for image in series.images[1:]:
        detail = _difference(first, image)
        if detail:
            return [Fault(f"{detail}: images {{}} and {{}}", (first.sop_uid, image.sop_uid))]
    return []


def _difference(one: Image, other: Image) -> str:
    if not np.allclose(one.orientation, other.orientation, atol=DIRECTION_TOLERANCE):
        cosine = float(np.clip(abs(slice_normal(one) @ slice_normal(other)), 0, 1))
        return f"mixed orientation, slices {np.degrees(np.arccos(cosine)):.1f} degrees apart"
    if one.matrix != other.matrix:
        return f"mixed matrix, {one.matrix[0]} x {one.matrix[1]} and {other.matrix[0]} x {other.matrix[1]}"
    if not np.allclose(one.spacing_mm, other.spacing_mm, rtol=AFFINE_TOLERANCE):
        return f"mixed spacing, {_mm(one.spacing_mm)} and {_mm(other.spacing_mm)} mm"
    return ""


def _stack(series: Series) -> list[Fault]:
    """Images that are no stack of slices: all in one place, some in the same place, or too few."""
    slices = ordered_slices(series.images)
    places = places_mm(slices)
    steps = np.diff(places)
    if len(slices) > 1 and places[-1] - places[0] < SAME_PLACE_MM:
        return [Fault(f"no volume: all {len(slices)} images lie in the same place")]
    if (steps < SAME_PLACE_MM).any():
        at = int(np.argmax(steps < SAME_PLACE_MM))
        detail = f"duplicate slice: {int((steps < SAME_PLACE_MM).sum())} of {len(slices)} lie where another does, first at"
        return [Fault(f"{detail} {places[at]:.2f} mm along the normal ({{}} and {{}})", _pair(slices, at))]
    if len(slices) < MIN_SLICES:
        return [Fault(f"too few slices for a volume: {len(slices)}; expected {MIN_SLICES} or more")]
    return []


def _steps(series: Series) -> list[Fault]:
    """Slices that are missing or unevenly spaced, or stacked along another direction than the normal."""
    slices = ordered_slices(series.images)
    places = places_mm(slices)
    steps = np.diff(places)
    usual = float(np.median(steps))
    faults = []
    off = np.abs(steps - usual) > UNEVEN_STEP * usual
    if off.any():
        at = int(np.argmax(off))
        where = f"from {places[at]:.2f} to {places[at + 1]:.2f} mm along the normal ({{}} and {{}}), a step of {steps[at]:.2f} mm"
        more = f", and {int(off.sum()) - 1} more such steps" if off.sum() > 1 else ""
        faults.append(Fault(f"{_uneven(steps[at], usual)}: {where} where {usual:.2f} mm is usual{more}", _pair(slices, at)))
    if (tilt := _tilt_degrees(positions_mm(slices), places)) > np.degrees(np.arcsin(DIRECTION_TOLERANCE)):
        faults.append(Fault(f"tilted gantry: slices are stacked {tilt:.1f} degrees off their normal"))
    return faults


def _uneven(step_mm: float, usual_mm: float) -> str:
    """A gap of whole steps is named as missing slices."""
    missing = round(step_mm / usual_mm) - 1
    if missing < 1 or abs(step_mm / usual_mm - missing - 1) > UNEVEN_STEP * (missing + 1):
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
    step = float(np.median(np.diff(places_mm(ordered_slices(series.images)))))
    declared, thickness = _declared_mm(series)
    times = round(step / declared) if declared > 0 else 1
    if times > 1 and abs(step - times * declared) <= ROUNDED * declared and not _explained(step, declared, thickness, derived):
        detail = f"{count} lie {step:.2f} mm apart where SpacingBetweenSlices says {declared:g} mm"
        return [Fault(f"missing slices: {detail}; expected {(count - 1) * times + 1} or more")]
    stride = _stride(series)
    if stride > 1 and not _fills(step, declared, thickness) and not _explained(step, declared, thickness, derived):
        number = "InstanceNumber" if series.stored else "InStackPositionNumber"
        detail = f"{number} goes up by {stride} from each of {count} to the next"
        return [Fault(f"missing slices: {detail}; expected {(count - 1) * stride + 1} or more")]
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
    is_gap = declared < thickness * (1 - UNEVEN_STEP) and abs(step - thickness - declared) <= ROUNDED * declared
    return is_gap or (derived and abs(step - thickness) <= UNEVEN_STEP * thickness)


def _stride(series: Series) -> int:
    """By how much the instance number rises or falls from slice to slice, if always alike; 1 where others fill the gaps."""
    numbers = [image.instance for image in ordered_slices(series.images)]
    steps = set(np.abs(np.diff(numbers)).tolist())
    if len(steps) != 1 or len(set(series.stored)) > len(numbers):
        return 1
    return int(steps.pop())


def _fills(step: float, declared: float, thickness: float) -> bool:
    """Whether slices follow each other as declared, or so closely that none fits between them."""
    if declared > 0:
        return abs(step - declared) <= UNEVEN_STEP * step
    return step < 2 * thickness * (1 - UNEVEN_STEP)


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


TOLERANCE_MM = 1e-3  # between dcm2niix's affine and the headers', at the farthest corner, beside what rounding explains
TIMEOUT_S = 600  # a series takes seconds; one that takes longer hangs
DCM2NIIX_OPTIONS = (
    *("-g", "i"),  # heed no ~/.dcm2nii.ini
    *("-b", "n"),  # no JSON sidecar, which repeats the header
    *("-z", "n"),
    *("-x", "i"),  # neither crop nor rotate: voxels as they were stored
    *("-f", "volume"),  # nothing of the header in the name
)


def convert_series(series: Series, scratch: Path) -> Volume:
    """The series as a volume: its voxels as they were stored, in the order of axes nearest RAS+, and the headers' affine.

    `scratch` is where a temporary folder is made; nothing of it remains.

    Raises
    ------
    Refused
        dcm2niix fails, or what it writes is not the one volume that the headers describe.
    """
    with tempfile.TemporaryDirectory(dir=scratch.resolve(), prefix=".dcm2niix-") as name:
        given, made = Path(name, "in"), Path(name, "out")
        given.mkdir()
        made.mkdir()
        _stage(series, given)
        try:
            done = subprocess.run(
                [dcm2niix.bin, *DCM2NIIX_OPTIONS, "-o", str(made), str(given)],
                stdin=subprocess.DEVNULL,
                capture_output=True,  # what it prints names patients and paths, and is shown nowhere
                timeout=TIMEOUT_S,
                env={"HOME": name, "LC_ALL": "C"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Refused(Fault(f"dcm2niix took longer than {TIMEOUT_S} s")) from None
        if done.returncode:
            syntax = UID(series.files[0].syntax)
            stored = f"; pixels are stored as {syntax.name}, and may be damaged" if syntax.is_compressed else ""
            raise Refused(Fault(f"dcm2niix ended with exit code {done.returncode}{stored}"))
        files = sorted(path for path in made.iterdir() if path.suffix == ".nii")
        if len(files) != 1:
            raise Refused(Fault(f"dcm2niix made {len(files)} files of it; expected 1"))
        converted = _loaded(files[0])
    return _verified(converted, series)


def _stage(series: Series, folder: Path) -> None:
    """Put the series' files, and no others, in a folder under names of our own.

    They are links, or copies where dcm2niix has no codec, would part images by their UIDs, or would stack slices by instance
    numbers that do not run with their places: of a series of six such slices it makes a volume of two, with exit code 0.
    """
    files = {file.path: file for file in series.files}
    order = list(dict.fromkeys(image.path for image in ordered_slices(series.images)))
    linked = series.as_stored and not decompress_first(series) and _runs_with_place(series)
    uid = series.series_uid or generate_uid()
    for number, path in enumerate(order, start=1):
        place = folder / f"{number:06}.dcm"
        if linked:
            place.symlink_to(path.resolve())
        else:
            _rewrite(files[path], uid, number, place)


def _runs_with_place(series: Series) -> bool:
    """Whether instance numbers rise, or fall, from slice to slice; those of frames of one file say nothing."""
    steps = np.diff([image.instance for image in ordered_slices(series.images)])
    return len(series.files) == 1 or bool((steps > 0).all() or (steps < 0).all())


def _rewrite(file: File, series_uid: str, number: int, place: Path) -> None:
    """A copy of a file with another instance number, and decompressed; what names the series is the same in all."""
    try:
        with lenient():
            dataset = read_dataset(file.path)
            if dataset.file_meta.TransferSyntaxUID.is_encapsulated:
                dataset.decompress(generate_instance_uid=False)
            elif dataset.file_meta.TransferSyntaxUID == DeflatedExplicitVRLittleEndian:
                dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
            dataset.InstanceNumber, dataset.SeriesNumber = number, 1
            dataset.SeriesInstanceUID = dataset.StudyInstanceUID = series_uid
            dataset.StudyDate = dataset.StudyTime = dataset.SeriesDescription = dataset.ProtocolName = ""
            dataset.SOPClassUID = dataset.get("SOPClassUID") or MRImageStorage  # which old files lack
            dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid()
            dataset.save_as(place, enforce_file_format=True)
    except Exception as error:  # pydicom and its codecs raise whatever a damaged file leads to
        raise Refused(Fault(f"image {{}} cannot be decoded ({type(error).__name__})", (file.sop_uid,))) from None


def _loaded(path: Path) -> Volume:
    image = nib.Nifti1Image.from_filename(path)
    if len(image.shape) != 3:
        raise Refused(Fault(f"dcm2niix made an image of {' x '.join(map(str, image.shape))}; expected three dimensions"))
    array = np.asanyarray(image.dataobj)
    if array.dtype == np.float64:  # scaled; float32 holds 16 bits of a scanner exactly enough
        array = array.astype(np.float32)
    return Volume(np.array(array), np.asarray(image.affine, np.float64))


def _verified(converted: Volume, series: Series) -> Volume:
    """dcm2niix's voxels on the headers' grid, unless matrix, slices or affine of the two differ.

    dcm2niix takes the step between slices from two neighbours; the headers' affine takes it from the first and the last. Where
    a scanner rounds positions to 0.001 mm, the two drift apart by tenths of a millimetre over 180 slices, and the latter holds.
    """
    slices = ordered_slices(series.images)
    expected = canonical(Volume(np.broadcast_to(np.uint8(0), volume_shape(slices)), volume_affine(slices)))
    upright = canonical(converted)
    if upright.shape != expected.shape:
        detail = f"{' x '.join(map(str, upright.shape))} voxels; the headers say {' x '.join(map(str, expected.shape))}"
        raise Refused(Fault(f"dcm2niix made a volume of {detail}"))
    apart_mm = np.sort(corners_apart_mm(upright.affine, expected.affine, expected.shape))
    for corners_mm, allowed_mm in ((apart_mm[:4], TOLERANCE_MM), (apart_mm, TOLERANCE_MM + drift_mm(slices))):
        if corners_mm.max() > allowed_mm:  # the slice at one end lies where its header says, the one at the other drifts
            detail = f"{corners_mm.max():.4f} mm from where the headers do; tolerance {allowed_mm:.4f} mm"
            raise Refused(Fault(f"dcm2niix put the volume {detail}"))
    return Volume(upright.array, expected.affine)


def corners_apart_mm(
    one: Float[np.ndarray, "4 4"], other: Float[np.ndarray, "4 4"], shape: tuple[int, int, int]
) -> Float[np.ndarray, "8"]:
    """How far apart two affines put each corner of a volume."""
    corners = np.array(np.meshgrid(*[(0, n - 1) for n in shape], [1], indexing="ij"), float).reshape(4, -1)
    return np.linalg.norm(((one - other) @ corners)[:3], axis=0)
