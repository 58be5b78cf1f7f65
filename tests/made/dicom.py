"""DICOM series made for tests: a head of a few slices, in classic files or as one enhanced multi-frame file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence as Items
from pydicom.uid import (
    UID,
    EnhancedMRImageStorage,
    ExplicitVRLittleEndian,
    MediaStorageDirectoryStorage,
    MRImageStorage,
    generate_uid,
)

from mri_vit.data.volume import Volume
from mri_vit.importers.dicom import header

AXIAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
OBLIQUE = (0.96, 0.28, 0.0, -0.224, 0.768, 0.6)
SPACING_MM = (1.5, 1.25)  # between rows, between columns: not the same, so that a mix-up shows
STEP_MM = 3.0
ORIGIN_MM = (-40.0, -30.5, 12.25)


def head(slices: int = 6, rows: int = 20, columns: int = 24) -> Shaped[np.ndarray, "slices rows columns"]:
    """Voxels of which no two slices, rows or columns are alike."""
    k, j, i = np.indices((slices, rows, columns))
    return (100 + 40 * k + 3 * j + i).astype(np.uint16)


FOUR = {"t1": "t1 mprage", "t1ce": "t1 mprage post", "t2": "t2 tse", "flair": "t2 flair"}


def write_study(folder: Path, number: int, channels: Sequence[str] = tuple(FOUR), **tags: Any) -> None:
    """A study whose voxels tell its scans from each other, by thousands, and from those of studies with another number.

    `tags` are those of all its series; the `number` is its StudyInstanceUID as well, unless they say otherwise.
    """
    study = {"StudyInstanceUID": f"1.2.{number}", "FrameOfReferenceUID": f"1.3.{number}"} | tags
    for at, channel in enumerate(channels):
        voxels = head() + 1000 * list(FOUR).index(channel) + 10_000 * number
        series: dict[str, Any] = {"SeriesDescription": FOUR[channel], "SeriesNumber": at + 1} | study
        write_series(folder / channel, voxels, **series)


def normal(orientation: Sequence[float]) -> np.ndarray:
    return np.cross(orientation[:3], orientation[3:])


def write_series(
    folder: Path,
    voxels: Shaped[np.ndarray, "slices rows columns"] | None = None,
    orientation: Sequence[float] = AXIAL,
    steps: Sequence[float] | None = None,
    edit: Callable[[Dataset, int], None] = lambda dataset, number: None,
    **tags: Any,
) -> list[Path]:
    """A classic series, a file per slice; `steps` say how many slice distances each lies above the first.

    `edit` may change the data set of each slice before it is written; `tags` are set in all of them.
    """
    voxels = head() if voxels is None else voxels
    series, study = generate_uid(), generate_uid()
    paths = []
    for number, plane in enumerate(voxels):
        dataset = _common(plane, MRImageStorage, ExplicitVRLittleEndian)
        dataset.StudyInstanceUID, dataset.SeriesInstanceUID = study, series
        dataset.ImageOrientationPatient = list(orientation)
        above = (steps[number] if steps else number) * STEP_MM
        dataset.ImagePositionPatient = [round(float(x), 9) for x in np.array(ORIGIN_MM) + above * normal(orientation)]
        dataset.PixelSpacing = list(SPACING_MM)
        dataset.InstanceNumber = number + 1
        _set(dataset, tags)
        edit(dataset, number)
        paths.append(_save(dataset, folder / f"IM{number:04}"))
    return paths


def write_volume(folder: Path, volume: Volume, **tags: Any) -> list[Path]:
    """A classic series of a scan's voxels, rounded, at the place that its affine says; its third axis counts slices."""
    lps = np.diag([-1.0, -1.0, 1.0, 1.0]) @ volume.affine
    spacing = np.linalg.norm(lps[:3, :3], axis=0)
    row, column = (lps[:3, axis] / spacing[axis] for axis in (0, 1))
    voxels = np.rint(volume.array - min(volume.array.min(), 0)).astype(np.uint16).transpose(2, 1, 0)

    def place(dataset: Dataset, number: int) -> None:
        dataset.ImagePositionPatient = [round(float(x), 6) for x in (lps @ [0, 0, number, 1])[:3]]
        dataset.PixelSpacing = [round(float(x), 9) for x in (spacing[1], spacing[0])]
        dataset.SliceThickness = round(float(spacing[2]), 9)

    direction = [round(float(x), 9) for x in (*row, *column)]
    return write_series(folder, voxels, direction, edit=place, **tags)


def write_enhanced(folder: Path, voxels: Shaped[np.ndarray, "slices rows columns"], contrast: str = "T2", **tags: Any) -> Path:
    """An enhanced multi-frame file: what all frames share in one group, the place of each in its own."""
    dataset = _common(voxels[0], EnhancedMRImageStorage, ExplicitVRLittleEndian)
    dataset.NumberOfFrames = len(voxels)
    dataset.PixelData = voxels.tobytes()
    dataset.StudyInstanceUID, dataset.SeriesInstanceUID = generate_uid(), generate_uid()
    shared = Dataset()
    shared.PixelMeasuresSequence = _item(PixelSpacing=list(SPACING_MM), SliceThickness=STEP_MM)
    shared.PlaneOrientationSequence = _item(ImageOrientationPatient=list(OBLIQUE))
    shared.MRImageFrameTypeSequence = _item(FrameType=["ORIGINAL", "PRIMARY", "M", "NONE"], AcquisitionContrast=contrast)
    shared.MREchoSequence = _item(EffectiveEchoTime=95.0)
    shared.MRTimingAndRelatedParametersSequence = _item(RepetitionTime=5000.0)
    dataset.SharedFunctionalGroupsSequence = Items([shared])
    frames = []
    for number in range(len(voxels)):
        frame = Dataset()
        position = np.array(ORIGIN_MM) + number * STEP_MM * normal(OBLIQUE)
        frame.PlanePositionSequence = _item(ImagePositionPatient=[round(float(x), 9) for x in position])
        frame.FrameContentSequence = _item(StackID="1", InStackPositionNumber=number + 1, DimensionIndexValues=[1, number + 1])
        frames.append(frame)
    dataset.PerFrameFunctionalGroupsSequence = Items(frames)
    _set(dataset, tags)
    return _save(dataset, folder / "enhanced")


def encapsulate_as(path: Path, syntax: str) -> None:
    """Announce another transfer syntax of a file, and wrap its plain pixels as those of a compressed one are."""
    dataset = dcmread(path)
    dataset.file_meta.TransferSyntaxUID = UID(syntax)
    dataset.PixelData = encapsulate([dataset.PixelData])
    dataset["PixelData"].VR = "OB"
    dataset.save_as(path, implicit_vr=False, little_endian=True)


def affine(orientation: Sequence[float]) -> np.ndarray:
    """From (column, row, slice) to RAS+ mm, worked out apart from the importer's."""
    columns = [
        np.array(orientation[:3]) * SPACING_MM[1],
        np.array(orientation[3:]) * SPACING_MM[0],
        normal(orientation) * STEP_MM,
        np.array(ORIGIN_MM),
    ]
    flip = np.array([-1.0, -1.0, 1.0])
    return np.vstack([np.stack([flip * column for column in columns], axis=1), [0, 0, 0, 1]])


def _common(plane: np.ndarray, kind: UID, syntax: UID) -> Dataset:
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = kind
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID = generate_uid()
    dataset.PatientID, dataset.PatientName, dataset.StudyDate = "MRN-1", "Doe^Jane", "20240131"
    dataset.Modality, dataset.Manufacturer = "MR", "SIEMENS"
    dataset.Rows, dataset.Columns = plane.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 16, 16, 15, 0
    dataset.ImageType = ["ORIGINAL", "PRIMARY", "M", "NONE"]
    dataset.PixelData = plane.tobytes()
    return dataset


def _set(dataset: Dataset, tags: dict[str, Any]) -> None:
    for keyword, value in tags.items():
        setattr(dataset, keyword, value)


def _item(**values: Any) -> Items:
    item = Dataset()
    _set(item, values)
    return Items([item])


def _save(dataset: Dataset, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset["PixelData"].VR = "OW"
    dataset.save_as(path, enforce_file_format=True)
    return path


def dicomdir(folder: Path, *listed: list[str]) -> None:
    """A DICOMDIR in `folder` that lists files by the parts of their names."""
    records = []
    for parts in listed:
        record = Dataset()
        record.DirectoryRecordType = "IMAGE"
        with header.lenient():  # names that break rules
            record.ReferencedFileID = parts
        records.append(record)
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.DirectoryRecordSequence = Items(records)
    with header.lenient():
        dataset.save_as(folder / "DICOMDIR", enforce_file_format=True)
