"""Header: one DICOM file goes in; the position of its slices, the storage of its pixels and the kind of scan come out.

Classic files hold a slice, enhanced multi-frame files a slice per frame, whose position is in "functional groups" (DICOM PS3.3,
C.7.6.16): those that all frames share, and those of each frame. A DICOMDIR lists files that may be missing.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import Any

from pydicom import Dataset, config, dcmread
from pydicom.uid import (
    UID,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    MediaStorageDirectoryStorage,
)

from mri_vit.errors import IntegrityError
from mri_vit.importers.dicom.identity import Person, person_of
from mri_vit.settings import source

DEFERRED_BYTES = 4096  # longer values (pixels) stay on disk; only their position and length are read


@dataclass(frozen=True)
class File:
    """How a file stores its pixels."""

    path: Path
    sop_uid: str
    syntax: str  # transfer syntax UID
    frames: int  # as announced
    samples: int  # per pixel: 1, or 3 of a colour image
    modality: str
    bytes_expected: int | None  # None where pixels are compressed
    bytes_found: int
    is_part_10: bool = True  # standard files have a preamble, and a header with their encoding
    concatenated: int = 1  # files over which the frames of one object were spread


@dataclass(frozen=True)
class Image:
    """A slice with position and direction in LPS+ mm, as in DICOM; NaN where the header has none."""

    sop_uid: str
    position_mm: tuple[float, ...]  # centre of the first pixel
    orientation: tuple[float, ...]  # direction of a row, then of a column
    spacing_mm: tuple[float, ...]  # between rows, then between columns
    matrix: tuple[int, int]  # rows, columns
    instance: int  # number within the series, or of a frame within its stack; it should follow the position, and may not
    kind: tuple[object, ...]  # echo, image type, b-value, time: these separate volumes that were stored as one series
    path: Path = Path()  # of its file: several files may have one UID
    between_mm: float = math.nan  # from the centre of a slice to that of the next, as the header declares it
    thickness_mm: float = math.nan


@dataclass(frozen=True)
class Tags:
    """The fields on the kind of scan; times in ms, NaN where the header has none."""

    words: str  # description, protocol and names of the sequence, each on a line of its own, which is empty where there is none
    agent: str  # of contrast; "" where the header has no such field or an empty one
    image_type: tuple[str, ...]
    contrast: str  # of enhanced files: T1, T2, FLUID_ATTENUATED …
    sequence: tuple[str, ...]  # SE, IR, GR, EP
    variant: tuple[str, ...]  # SP: spoiled, MP: magnetisation prepared …
    echo_ms: float
    repetition_ms: float
    inversion_ms: float
    is_3d: bool
    number: int  # of the series, by which a repetition is later
    options: tuple[str, ...] = ()  # FS: fat saturation


class NoImage(Enum):
    """Kinds of files without an image."""

    DIRECTORY = "a DICOMDIR"
    OTHER = "a report, a plan or another object without pixels"
    UNREADABLE = "a file that starts as DICOM and cannot be read"


@dataclass(frozen=True)
class Protocol:
    """The fields that separate several sequences that were stored as one series."""

    words: tuple[str, ...]  # descriptions
    weighting: tuple[object, ...]  # sequence, TR, TI, agent
    series_number: int

    @property
    def unnumbered(self) -> tuple[str, ...]:
        """Descriptions without a number at their end, which may be a slice's."""
        return tuple(re.sub(r"\W*\d+$", "", text) or text for text in self.words)


@dataclass(frozen=True)
class Header:
    """The fields of one file that an import needs."""

    patient_id: str
    person: Person
    study_uid: str
    study_date: str
    study_s: float  # seconds of the day at which the study began, NaN where unknown
    taken_s: float  # seconds of the day at which the image was taken, NaN where unknown
    taken_date: str
    series_uid: str
    frame_uid: str  # of the frame of reference: constant while a patient lies in the scanner
    acquisition: int
    protocol: Protocol
    images_in_acquisition: int  # as announced; 0 where unknown
    images_in_series: int
    phases: int  # echoes or times in the header
    tags: Tags
    file: File
    images: tuple[Image, ...]


def read_header(path: Path) -> Header | NoImage:
    """The header of a file, or why it has none."""
    try:
        with lenient():
            return _parsed(read_dataset(path, defer_size=DEFERRED_BYTES), path)
    except Exception:  # pydicom may raise anything on a damaged file
        return NoImage.UNREADABLE


def read_dataset(path: Path, **options: Any) -> Dataset:
    """A file's data elements, also without preamble; the transfer syntax of its meta information is then that of the content.

    A compressed file without meta information gets none. The start of the file must show that it is DICOM.
    """
    with path.open("rb") as file:
        prefixed = file.read(4) == b"DICM"
        content = dcmread(BytesIO(file.read()) if prefixed else path, force=True, **({} if prefixed else options))
    if "TransferSyntaxUID" not in content.file_meta:
        pixels = content.get_item("PixelData") if "PixelData" in content else None
        implicit, little = content.original_encoding
        plain = ImplicitVRLittleEndian if implicit else ExplicitVRLittleEndian if little else ExplicitVRBigEndian
        compressed = getattr(pixels, "length", 0) == source.UNDEFINED
        content.preamble = None  # as of a file that lacks all meta information
        content.file_meta.TransferSyntaxUID = UID("") if compressed else plain
    return content


@contextmanager
def lenient() -> Iterator[None]:
    """Read values that break a rule of the standard without pydicom's warnings, which quote them."""
    mode = config.settings.reading_validation_mode
    config.settings.reading_validation_mode = config.IGNORE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        config.settings.reading_validation_mode = mode


def _parsed(dataset: Dataset, path: Path) -> Header | NoImage:
    if dataset.file_meta.get("MediaStorageSOPClassUID") == MediaStorageDirectoryStorage or "DirectoryRecordSequence" in dataset:
        return NoImage.DIRECTORY
    if "SOPInstanceUID" not in dataset:  # which every object has
        return NoImage.UNREADABLE
    if "PixelData" not in dataset or "Rows" not in dataset:
        return NoImage.OTHER

    def text(keyword: str) -> str:
        return str(dataset.get(keyword) or "").strip()

    def count(keyword: str) -> int:
        value = text(keyword)
        return int(value) if value.isdecimal() else 0

    patient_id, study_uid, study_date = text("PatientID"), text("StudyInstanceUID"), text("StudyDate")
    fields = (text(keyword) for keyword in ("PatientSex", "PatientBirthDate", "PatientAge", "PatientName", "IssuerOfPatientID"))
    tags = _tags(dataset)
    taken = (_seconds(text(keyword)) for keyword in ("AcquisitionDateTime", "AcquisitionTime", "SeriesTime", "ContentTime"))
    return Header(
        patient_id,
        person_of(patient_id, study_uid, study_date, *fields),
        study_uid,
        study_date,
        _seconds(text("StudyTime")),
        next(filter(math.isfinite, taken), math.nan),
        text("AcquisitionDateTime")[:8] or text("AcquisitionDate") or text("SeriesDate"),
        text("SeriesInstanceUID"),
        text("FrameOfReferenceUID"),
        count("AcquisitionNumber"),
        _protocol(dataset, tags),
        count("ImagesInAcquisition"),
        max(count("ImagesInSeries"), count("NumberOfSeriesRelatedInstances")),
        max(count("NumberOfTemporalPositions"), count("EchoNumbers")),
        tags,
        _file(dataset, path),
        _images(dataset, path),
    )


def _protocol(dataset: Dataset, tags: Tags) -> Protocol:
    words = ("SeriesDescription", "ProtocolName")
    times = (tags.repetition_ms, tags.inversion_ms)
    return Protocol(
        tuple(" ".join(str(dataset.get(word) or "").split()) for word in words),
        (
            tags.sequence,
            tags.variant,
            str(dataset.get("ContrastBolusAgent") or ""),
            str(dataset.get("FlipAngle") or ""),
            *(None if math.isnan(ms) else round(ms) for ms in times),
        ),
        tags.number,
    )


NO_TIMES = {0, 1, 12 * 3600, 24 * 3600 - 1}  # seconds of the day that software writes where it has no time


def _seconds(text: str) -> float:
    """The second of the day of a time, or of a date and time, in DICOM's form; NaN for none."""
    digits = re.sub(r"[^0-9.]", "", re.sub(r"[+-]\d{4}$", "", text))
    parsed = re.fullmatch(r"(?:\d{8})?(\d\d)(\d\d)?(\d\d(?:\.\d*)?)?", digits)
    if not parsed:
        return math.nan
    hours, minutes, seconds = (float(part or 0) for part in parsed.groups())
    second = hours * 3600 + minutes * 60 + seconds
    return math.nan if second in NO_TIMES else second


def _file(dataset: Dataset, path: Path) -> File:
    syntax = UID(str(dataset.file_meta.TransferSyntaxUID or ""))
    frames = int(dataset.get("NumberOfFrames") or 1)
    samples = int(dataset.get("SamplesPerPixel") or 1)
    pixels = dataset.get_item("PixelData")
    compressed = not syntax.is_transfer_syntax or syntax.is_compressed or syntax == DeflatedExplicitVRLittleEndian
    size = path.stat().st_size
    if compressed:
        expected, found = None, size
    else:
        start = getattr(pixels, "value_tell", None) or size
        found = min(getattr(pixels, "length", 0), size - start) if pixels.value is None else len(pixels.value)
        expected = int(dataset.Rows) * int(dataset.Columns) * frames * samples * int(dataset.BitsAllocated) // 8
    return File(
        path,
        str(dataset.SOPInstanceUID),
        str(syntax),
        frames,
        samples,
        str(dataset.get("Modality")),
        expected,
        found,
        dataset.preamble is not None,
        int(dataset.get("InConcatenationTotalNumber") or 1),
    )


def _images(dataset: Dataset, path: Path) -> tuple[Image, ...]:
    frames = dataset.get("PerFrameFunctionalGroupsSequence") or (None,)
    shared = next(iter(dataset.get("SharedFunctionalGroupsSequence") or ()), None)
    return tuple(_image(dataset, [one for one in (frame, shared) if one is not None], path) for frame in frames)


def _image(dataset: Dataset, groups: Sequence[Dataset], path: Path) -> Image:
    echo = _value(dataset, groups, "MREchoSequence", "EffectiveEchoTime") or dataset.get("EchoTime")
    return Image(
        str(dataset.SOPInstanceUID),
        _numbers(_value(dataset, groups, "PlanePositionSequence", "ImagePositionPatient"), 3),
        _numbers(_value(dataset, groups, "PlaneOrientationSequence", "ImageOrientationPatient"), 6),
        _numbers(_value(dataset, groups, "PixelMeasuresSequence", "PixelSpacing"), 2),
        (int(dataset.Rows), int(dataset.Columns)),
        int(_value(dataset, groups, "FrameContentSequence", "InStackPositionNumber") or dataset.get("InstanceNumber") or 0),
        (
            str(echo),
            _strings(_value(dataset, groups, "MRImageFrameTypeSequence", "FrameType") or dataset.get("ImageType")),
            str(dataset.get("DiffusionBValue")),
            str(dataset.get("TemporalPositionIdentifier")),
        ),
        path,
        _number(_value(dataset, groups, "PixelMeasuresSequence", "SpacingBetweenSlices")),
        _number(_value(dataset, groups, "PixelMeasuresSequence", "SliceThickness")),
    )


def _tags(dataset: Dataset) -> Tags:
    names = ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence")
    groups = [dataset[name].value[0] for name in names if dataset.get(name)]

    def of(sequence: str, keyword: str) -> Any:
        return _value(dataset, groups, sequence, keyword)

    words = ("SeriesDescription", "ProtocolName", "SequenceName", "PulseSequenceName")
    coded = dataset.get("ContrastBolusAgentSequence")
    sequence = _strings(dataset.get("ScanningSequence"))
    if str(of("MRModifierSequence", "InversionRecovery")) == "YES":
        sequence = (*sequence, "IR")
    return Tags(
        "\n".join(" ".join(str(dataset.get(word) or "").split()) for word in words),
        str(dataset.get("ContrastBolusAgent") or "").strip() or (str(coded[0].get("CodeMeaning") or "coded") if coded else ""),
        _strings(dataset.get("ImageType")),
        str(of("MRImageFrameTypeSequence", "AcquisitionContrast") or "").strip(),
        sequence,
        _strings(dataset.get("SequenceVariant")),
        _number(of("MREchoSequence", "EffectiveEchoTime") or dataset.get("EchoTime")),
        _number(of("MRTimingAndRelatedParametersSequence", "RepetitionTime")),
        _number(of("MRModifierSequence", "InversionTimes") or of("MRModifierSequence", "InversionTime")),
        dataset.get("MRAcquisitionType") == "3D",
        int(dataset.get("SeriesNumber") or 0),
        _strings(dataset.get("ScanOptions")),
    )


def _value(dataset: Dataset, groups: Sequence[Dataset], sequence: str, keyword: str) -> Any:
    """A field of a frame's functional groups, first its own, then the shared ones, or else of the file."""
    for group in groups:
        items = group.get(sequence)
        if items and items[0].get(keyword) is not None:
            return items[0].get(keyword)
    return dataset.get(keyword)


def _strings(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _number(value: Any) -> float:
    """A field as a number, the first where it has several; NaN where there is none."""
    if value is None or value == "":
        return math.nan
    return float(value if isinstance(value, (str, int, float)) else value[0])


def _numbers(value: Any, count: int) -> tuple[float, ...]:
    """A field of `count` numbers, NaN where it is not one."""
    if value is None or isinstance(value, str) or len(value) != count:
        return (math.nan,) * count
    return tuple(float(x) for x in value)


def missing_files(path: Path, folder: Path) -> list[Path]:
    """Files that the DICOMDIR at `path` lists and `folder` lacks, regardless of case.

    Raises
    ------
    IntegrityError
        It lists a file outside the folder.
    """
    with lenient():
        records = read_dataset(path).get("DirectoryRecordSequence") or ()
        ids = [record.get("ReferencedFileID") or () for record in records]
        names = [[file_id] if isinstance(file_id, str) else list(file_id) for file_id in ids]
    absent = []
    for parts in filter(None, names):  # some systems write the parts as one, with backslashes
        listed = path.parent.joinpath(*(part for name in parts for part in str(name).split("\\")))
        if not listed.resolve().is_relative_to(folder.resolve()):
            raise IntegrityError(f"{path}: lists a file outside {folder}; nothing outside is read: copy the whole medium")
        if not _exists(listed, path.parent):
            absent.append(listed)
    return absent


def _exists(listed: Path, home: Path) -> bool:
    if listed.is_file():
        return True
    place = home
    for part in listed.relative_to(home).parts:
        entries = place.iterdir() if place.is_dir() else ()
        near = next((entry for entry in entries if entry.name.lower() == part.lower()), None)
        if not near:
            return False
        place = near
    return place.is_file()
