"""Conversion: a series goes in; the faults that forbid converting it, or its volume, come out.

dcm2niix ends with exit code 0 on a missing slice, a tilted gantry and images that form no volume; it fills, shears or stacks
them. So only series that pass the checks are converted, and the result is compared with the headers.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import dcm2niix
import nibabel as nib
import numpy as np
from pydicom.pixels.decoders.base import get_decoder
from pydicom.uid import UID, DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian, MRImageStorage, generate_uid

from mri_vit.data.nifti import AFFINE_TOLERANCE, SPACING_MM, corners_apart_mm
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
MODALITIES = {"CT", "PT", "NM", "US", "CR", "DX", "XA", "MG", "SC", "OT", "RTIMAGE", "RTDOSE", "SEG"}  # that a message may name


def conversion_faults(series: Series) -> list[Fault]:
    """Faults that forbid converting a series, empty where it is fit; the later checks rely on the earlier ones."""
    for check in (_pixels, _header, _one_kind, _stack, _steps, _completeness, _modality):
        if faults := check(series):
            cause = f"{series.oddity}, and they form no volume: " if series.oddity else ""
            return [Fault(cause + fault.reason, fault.uids) for fault in faults]
    return []


def decompress_first(series: Series) -> bool:
    """Whether dcm2niix cannot decode the files, and pydicom has to do it before."""
    return any(file.syntax not in DCM2NIIX for file in series.files)


def _pixels(series: Series) -> list[Fault]:
    """Files whose pixels are missing, cut off, coloured or stored in a way that nothing here decodes."""
    for file in series.files:
        words, uids = "", (file.sop_uid,)
        frames = sum(image.path == file.path for image in series.images) if file.frames > 1 else 1
        if not file.syntax:
            words = "is compressed, and has no file meta information that says how"
        elif not _decodable(file):
            known = UID(file.syntax).name  # the UID itself where the standard has no name for it
            uids = (file.sop_uid,) if known != file.syntax else (file.sop_uid, file.syntax)
            name = f"{known} ({file.syntax})" if known != file.syntax else "{}, which the DICOM standard does not define"
            words = f"has the transfer syntax {name}; no codec here decodes it"
        elif file.samples != 1:
            words = f"has {file.samples} samples per pixel (colour); expected 1"
        elif file.bytes_expected is not None and file.bytes_found < file.bytes_expected:
            announced = f"where its header announces {file.bytes_expected:,}"
            words = f"holds {file.bytes_found:,} bytes of pixels {announced}: it is cut off"
        elif file.concatenated > 1:
            words = f"is one of {file.concatenated} that share a volume (a concatenation); expected one multi-frame file"
        elif frames != file.frames:
            words = f"announces {file.frames} frames and gives the position of {frames}"
        if words:
            return [Fault(f"image {{}} {words}", uids)]
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
    """Slices whose position is unknown."""
    for image in series.images:
        row, column = np.reshape(image.orientation, (2, 3))
        unit = np.abs(np.linalg.norm([row, column], axis=1) - 1).max() <= DIRECTION_TOLERANCE
        fields = ("ImagePositionPatient", image.position_mm), ("ImageOrientationPatient", image.orientation)
        unusable = [name for name, value in (*fields, ("PixelSpacing", image.spacing_mm)) if not np.isfinite(value).all()]
        words = ""
        if unusable:
            words = f"has no usable {unusable[0]}: its position is unknown"
        elif not unit or abs(float(row @ column)) >= DIRECTION_TOLERANCE:
            words = "has an ImageOrientationPatient that is no pair of perpendicular directions"
        elif min(image.spacing_mm) < SPACING_MM[0] or max(image.spacing_mm) > SPACING_MM[1]:
            words = f"has pixels of {_by(image.spacing_mm)} mm; expected {SPACING_MM[0]} to {SPACING_MM[1]} mm"
        if words:
            return [Fault(f"image {{}} {words}", (image.sop_uid,))]
    return []


def _one_kind(series: Series) -> list[Fault]:
    """Slices that differ in direction, matrix or spacing."""
    first = series.images[0]
    if series.mixed:
        return [Fault("mixed series: images {} and {} have different descriptions, and not enough images each", series.mixed)]
    for image in series.images[1:]:
        words = ""
        if not np.allclose(first.orientation, image.orientation, atol=DIRECTION_TOLERANCE):
            cosine = float(np.clip(abs(slice_normal(first) @ slice_normal(image)), 0, 1))
            words = f"mixed orientation, slices {np.degrees(np.arccos(cosine)):.1f} degrees apart"
        elif first.matrix != image.matrix:
            words = "mixed matrix, {} x {} and {} x {}".format(*first.matrix, *image.matrix)
        elif not np.allclose(first.spacing_mm, image.spacing_mm, rtol=AFFINE_TOLERANCE):
            words = f"mixed spacing, {_by(first.spacing_mm)} and {_by(image.spacing_mm)} mm"
        if words:
            return [Fault(f"{words}: images {{}} and {{}}", (first.sop_uid, image.sop_uid))]
    return []


def _stack(series: Series) -> list[Fault]:
    """Images that form no stack of slices: all at one position, some at the same position, or too few."""
    slices = ordered_slices(series.images)
    places = places_mm(slices)
    repeated = np.diff(places) < SAME_PLACE_MM
    if len(slices) > 1 and places[-1] - places[0] < SAME_PLACE_MM:
        return [Fault(f"no volume: all {len(slices)} images lie at the same position")]
    if repeated.any():
        at = int(np.argmax(repeated))
        words = f"duplicate slice: {int(repeated.sum())} of {len(slices)} lie where another does, first at {places[at]:.2f} mm"
        return [Fault(f"{words} along the normal ({{}} and {{}})", _pair(slices, at))]
    if len(slices) < MIN_SLICES:
        return [Fault(f"too few slices for a volume: {len(slices)}; expected {MIN_SLICES} or more")]
    return []


def _steps(series: Series) -> list[Fault]:
    """Slices that are missing or unevenly spaced, or stacked along another direction than the normal."""
    slices = ordered_slices(series.images)
    places, positions = places_mm(slices), positions_mm(slices)
    steps = np.diff(places)
    usual = float(np.median(steps))
    faults = []
    off = np.abs(steps - usual) > UNEVEN_STEP * usual
    if off.any():
        at = int(np.argmax(off))
        missing = round(steps[at] / usual) - 1  # a gap of whole steps is named as missing slices
        whole = missing >= 1 and abs(steps[at] / usual - missing - 1) <= UNEVEN_STEP * (missing + 1)
        what = ("missing slice" if missing == 1 else f"{missing} missing slices") if whole else "unevenly spaced slices"
        where = f"from {places[at]:.2f} to {places[at + 1]:.2f} mm along the normal ({{}} and {{}}), a step of {steps[at]:.2f} mm"
        more = f", and {int(off.sum()) - 1} more such steps" if off.sum() > 1 else ""
        faults.append(Fault(f"{what}: {where} where {usual:.2f} mm is usual{more}", _pair(slices, at)))
    length = float(np.linalg.norm(positions[-1] - positions[0]))  # the line of the slices, against their normal
    tilt = float(np.degrees(np.arccos(np.clip((places[-1] - places[0]) / length, -1, 1))))
    if tilt > np.degrees(np.arcsin(DIRECTION_TOLERANCE)):
        faults.append(Fault(f"tilted gantry: slices are stacked {tilt:.1f} degrees off their normal"))
    return faults


def _completeness(series: Series) -> list[Fault]:
    """Slices that are missing evenly or at an end, so that the others form a volume of their own."""
    count, stored, announced = len(series.images), len(series.stored), series.in_acquisition
    derived = "DERIVED" in series.tags.image_type  # a reformatted or computed image repeats what was true of its source
    if stored and series.in_series > series.under_uid:
        return [_fewer(series.under_uid, series.in_series, "NumberOfSeriesRelatedInstances or ImagesInSeries")]
    elsewhere = series.acquired == announced or (series.phases > 1 and stored and announced % stored == 0)  # as other echoes
    if stored and announced > stored and not derived and not elsewhere:
        return [_fewer(stored, announced, "ImagesInAcquisition")]
    slices = ordered_slices(series.images)
    step = float(np.median(np.diff(places_mm(slices))))
    declared = _agreed([image.between_mm for image in series.images])  # SpacingBetweenSlices
    thickness = _agreed([image.thickness_mm for image in series.images])
    explained = _explained(step, declared, thickness, derived)
    times = round(step / declared) if declared > 0 else 1
    if times > 1 and abs(step - times * declared) <= ROUNDED * declared and not explained:
        words = f"{count} lie {step:.2f} mm apart where SpacingBetweenSlices says {declared:g} mm"
        return [Fault(f"missing slices: {words}; expected {(count - 1) * times + 1} or more")]
    # Slices that follow each other as declared, or so closely that none fits between them, are complete.
    close = abs(step - declared) <= UNEVEN_STEP * step if declared > 0 else step < 2 * thickness * (1 - UNEVEN_STEP)
    numbers = [image.instance for image in slices]
    strides = set(np.abs(np.diff(numbers)).tolist())
    stride = int(strides.pop()) if len(strides) == 1 and len(set(series.stored)) <= len(numbers) else 1  # others may fill gaps
    if stride > 1 and not close and not explained:
        number = "InstanceNumber" if series.stored else "InStackPositionNumber"
        words = f"{number} goes up by {stride} from each of {count} to the next"
        return [Fault(f"missing slices: {words}; expected {(count - 1) * stride + 1} or more")]
    return []


def _fewer(count: int, expected: int, field: str) -> Fault:
    return Fault(f"missing slices: {count} images; expected {expected}, by {field}")


def _agreed(values: list[float]) -> float:
    """The value of all images, NaN where some lack it or differ."""
    return abs(values[0]) if np.allclose(values, values[0], rtol=AFFINE_TOLERANCE) else math.nan  # of some the sign is negative


def _explained(step: float, declared: float, thickness: float, derived: bool) -> bool:
    """Whether a declared spacing that is a fraction of the step is no evidence of missing slices.

    Some scanners write the gap between slices in place of the distance of their centres; it is less than a slice is thick, or
    else slices would overlap. Reformatted images may repeat the spacing of their source.
    """
    is_gap = declared < thickness * (1 - UNEVEN_STEP) and abs(step - thickness - declared) <= ROUNDED * declared
    return is_gap or (derived and abs(step - thickness) <= UNEVEN_STEP * thickness)


def _modality(series: Series) -> list[Fault]:
    modality = series.files[0].modality
    if modality == "MR":
        return []
    return [Fault(f"modality {modality if modality in MODALITIES else 'other than MR'}; expected MR")]


def _pair(slices: list[Image], at: int) -> tuple[str, str]:
    """UIDs of a slice and the next; of frames of one file the same twice."""
    return slices[at].sop_uid, slices[at + 1].sop_uid


def _by(sizes: Sequence[int | float]) -> str:
    return " x ".join(f"{x:g}" for x in sizes)


TOLERANCE_MM = 1e-3  # between the affines of dcm2niix and the headers, at the farthest corner, beyond what rounding explains
TIMEOUT_S = 600  # a series takes seconds; one that takes longer hangs
NEEDED_BY_WINDOWS = ("SYSTEMROOT",)  # without which it starts no program
DCM2NIIX_OPTIONS = (
    *("-g", "i"),  # ignore ~/.dcm2nii.ini
    *("-b", "n"),  # no JSON sidecar, which repeats the header
    *("-z", "n"),
    *("-x", "i"),  # neither crop nor rotate: voxels as stored
    *("-f", "volume"),  # no header field in the name
)


def convert_series(series: Series, scratch: Path) -> Volume:
    """The series as a volume: its voxels as stored, in the order of axes nearest RAS+, and the headers' affine.

    `scratch` is where a temporary folder is made; nothing of it remains.

    Raises
    ------
    Refused
        dcm2niix fails, or what it writes is not the one volume that the headers describe.
    """
    with tempfile.TemporaryDirectory(dir=scratch.resolve(), prefix=".dcm2niix-") as name:
        staged, made = Path(name, "in"), Path(name, "out")
        staged.mkdir()
        made.mkdir()
        _stage(series, staged)
        try:
            done = subprocess.run(
                [dcm2niix.bin, *DCM2NIIX_OPTIONS, "-o", str(made), str(staged)],
                stdin=subprocess.DEVNULL,
                capture_output=True,  # its output names patients and paths, and is never shown
                timeout=TIMEOUT_S,
                env={"HOME": name, "LC_ALL": "C"} | {key: os.environ[key] for key in NEEDED_BY_WINDOWS if key in os.environ},
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

    They are links, or copies where dcm2niix has no codec, would separate images by their UIDs, or would stack slices by instance
    numbers that do not follow their positions: of a series of six such slices it makes a volume of two, with exit code 0.
    """
    files = {file.path: file for file in series.files}
    slices = ordered_slices(series.images)
    steps = np.diff([image.instance for image in slices])  # of frames of one file they are no evidence
    ordered = len(series.files) == 1 or bool((steps > 0).all() or (steps < 0).all())
    linked = series.as_stored and not decompress_first(series) and ordered
    uid = series.series_uid or generate_uid()
    for number, path in enumerate(dict.fromkeys(image.path for image in slices), start=1):
        target = folder / f"{number:06}.dcm"
        if linked:
            _link(path.resolve(), target)
        else:
            _rewrite(files[path], uid, number, target)


def _link(file: Path, target: Path) -> None:
    """A link to the file, or a copy where the disk has no links, or Windows allows this user none."""
    try:
        target.symlink_to(file)
    except OSError:
        shutil.copyfile(file, target)


def _rewrite(file: File, series_uid: str, number: int, target: Path) -> None:
    """A decompressed copy of a file with another instance number; the fields that name the series are equal in all."""
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
            dataset.save_as(target, enforce_file_format=True)
    except Exception as error:  # pydicom and its codecs may raise anything on a damaged file
        raise Refused(Fault(f"image {{}} cannot be decoded ({type(error).__name__})", (file.sop_uid,))) from None


def _loaded(path: Path) -> Volume:
    image = nib.Nifti1Image.from_filename(path)
    if len(image.shape) != 3:
        raise Refused(Fault(f"dcm2niix made an image of {_by(image.shape)}; expected three dimensions"))
    array = np.asanyarray(image.dataobj)
    if array.dtype == np.float64:  # scaled; float32 holds 16 bits of a scanner exactly enough
        array = array.astype(np.float32)
    return Volume(np.array(array), np.asarray(image.affine, np.float64))


def _verified(converted: Volume, series: Series) -> Volume:
    """dcm2niix's voxels on the headers' grid, unless matrix, slices or affine of the two differ.

    dcm2niix takes the step between slices from two neighbours; the headers' affine takes it from the first and the last. Where
    a scanner rounds positions to 0.001 mm, the two drift apart by tenths of a millimetre over 180 slices; the latter is right.
    """
    slices = ordered_slices(series.images)
    expected = canonical(Volume(np.broadcast_to(np.uint8(0), volume_shape(slices)), volume_affine(slices)))
    upright = canonical(converted)
    if upright.shape != expected.shape:
        words = f"{_by(upright.shape)} voxels; the headers say {_by(expected.shape)}"
        raise Refused(Fault(f"dcm2niix made a volume of {words}"))
    apart_mm = np.sort(corners_apart_mm(upright.affine, expected.affine, expected.shape))
    for corners_mm, allowed_mm in ((apart_mm[:4], TOLERANCE_MM), (apart_mm, TOLERANCE_MM + drift_mm(slices))):
        if corners_mm.max() > allowed_mm:  # the slice at one end lies where its header says, the one at the other drifts
            words = f"{corners_mm.max():.4f} mm from where the headers do; tolerance {allowed_mm:.4f} mm"
            raise Refused(Fault(f"dcm2niix put the volume {words}"))
    return Volume(upright.array, expected.affine)
