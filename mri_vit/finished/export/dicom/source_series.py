"""Source series: the folder of one MR series goes in; its identity, geometry and voxels come out, for objects beside it.

Without a series there is an anonymous one, with a scan's geometry, no person and no date.
"""

from __future__ import annotations

import hashlib
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from einops import rearrange
from jaxtyping import Float, Shaped
from pydicom import Dataset
from pydicom.uid import UID, EnhancedMRImageStorage, LegacyConvertedEnhancedMRImageStorage, MRImageStorage
from pydicom.valuerep import format_number_as_ds

from mri_vit.data.nifti import corners_apart_mm
from mri_vit.data.volume import LPS, Volume
from mri_vit.errors import UsageError
from mri_vit.importers.dicom.conversion import conversion_faults, convert_series
from mri_vit.importers.dicom.header import Image, lenient, read_dataset
from mri_vit.importers.dicom.identity import Refused
from mri_vit.importers.dicom.series import Series, find_series, ordered_slices, places_mm, volume_affine, volume_shape
from mri_vit.run.integrity import sha256

SAME_PLACE_MM = 0.1  # between voxels of a series and of a NIfTI file of it: float32 affines of real scanners agree to 0.01 mm
# Of the Patient, General Study and Patient Study modules (DICOM PS3.3, C.7.1.1, C.7.2.1, C.7.2.2) what an archive files by.
PERSON = (
    *("PatientName", "PatientID", "IssuerOfPatientID", "IssuerOfPatientIDQualifiersSequence", "OtherPatientIDsSequence"),
    *("PatientBirthDate", "PatientBirthTime", "PatientSex", "PatientAge", "PatientSize", "PatientWeight"),
    *("PatientIdentityRemoved", "DeidentificationMethod", "DeidentificationMethodCodeSequence"),
)
STUDY = (
    *("StudyInstanceUID", "StudyDate", "StudyTime", "StudyID", "StudyDescription", "AccessionNumber"),
    *("IssuerOfAccessionNumberSequence", "ReferringPhysicianName", "TimezoneOffsetFromUTC"),
)
ALWAYS_THERE = (  # type 2: there in every object, if need be empty
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex"),
    *("StudyDate", "StudyTime", "StudyID", "AccessionNumber", "ReferringPhysicianName"),
)
DIFFER_IN_A_SERIES = ("PatientAge", "PatientSize", "PatientWeight", "TimezoneOffsetFromUTC")  # of no person's identity
NO_FRAME = (
    "the series has no FrameOfReferenceUID, so the objects have one of their own: some viewers will not lay them over the series"
)
MR_CLASSES = (MRImageStorage, EnhancedMRImageStorage, LegacyConvertedEnhancedMRImageStorage)
ANONYMOUS = {
    "PatientName": "ANONYMOUS",
    "PatientID": "ANONYMOUS",
    "PatientIdentityRemoved": "YES",
    "DeidentificationMethod": "exported by mri-vit without a source series",
}


@dataclass(frozen=True, eq=False)
class SourceSeries:
    """A series as far as objects that are derived from it need it.

    `images` describe its geometry for highdicom, without a person: a data set per slice, or one of a multi-frame file.
    `identity` holds the elements of patient and study as the series has them, decoded. `affine` carries (column, row, slice) to
    RAS+ mm and `shape` counts these; `order` says which slice each frame of `images` is. An anonymous series has no `voxels`.
    """

    images: tuple[Dataset, ...]
    identity: Dataset
    affine: Float[np.ndarray, "4 4"]
    shape: tuple[int, int, int]
    order: tuple[int, ...]
    voxels: Volume | None
    sha256: str  # of all its files
    remark: str = ""  # for the user

    @property
    def is_anonymous(self) -> bool:
        return self.voxels is None

    def frames(self, array: Shaped[np.ndarray, "columns rows slices"]) -> Shaped[np.ndarray, "frames rows columns"]:
        """Voxels in the order of `affine`, as frames of `images`."""
        return np.ascontiguousarray(rearrange(array, "columns rows slices -> slices rows columns")[list(self.order)])


def read_source_series(folder: Path) -> SourceSeries:
    """The one MR series in a folder, at any depth.

    Raises UsageError where there is none, several, one of another modality, one that is no volume, or one whose files disagree
    on patient or study. Messages hold UIDs and are for a terminal.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no folder; expected one with the files of a DICOM series")
    contents = find_series(folder)
    if not contents.series:
        raise UsageError(f"{folder}: holds no DICOM image; expected the files of one series")
    series = contents.series[0]
    if contents.unreadable:
        raise UsageError(f"{contents.unreadable[0]}: starts as DICOM and cannot be read; expected the files of one series alone")
    if len(contents.series) > 1:
        studies = len({(one.patient_id, one.study_uid) for one in contents.series})
        of_studies = f" of {studies} studies" if studies > 1 else ""
        raise UsageError(f"{folder}: holds {len(contents.series)} series or parts of one{of_studies}; expected one series alone")
    if series.oddity or series.part:
        raise UsageError(
            f"{folder}: {series.oddity or 'the series has several volumes'}; expected one series with UIDs of its own"
        )
    if faults := conversion_faults(series):
        raise UsageError(f"{folder}: {faults[0].with_uids()}")
    with lenient():
        headers = [read_dataset(file.path, stop_before_pixels=True) for file in series.files]
        identity, kind, frame_uid = _identity(folder, headers), _kind(folder, headers), _frame_uid(folder, headers)
    remark = "" if frame_uid else NO_FRAME
    series = replace(series, frame_uid=frame_uid or hashed_uid(series.study_uid, series.series_uid, "frame of reference"))
    with tempfile.TemporaryDirectory(prefix="mri-vit-") as scratch:  # only its owner can read it
        try:
            voxels = convert_series(series, Path(scratch))
        except Refused as refused:
            raise UsageError(f"{folder}: {refused.fault.with_uids()}") from None
    slices = ordered_slices(series.images)
    content = hashlib.sha256("".join(sorted(sha256(file.path) for file in series.files)).encode()).hexdigest()
    place = {id(image): number for number, image in enumerate(slices)}
    if len(series.files) == 1:  # a multi-frame file has its frames in any order
        images = (_multi_frame(series, kind),)
        order = tuple(place[id(image)] for image in series.images)
    else:
        images = tuple(_single_frame(series, image, kind) for image in slices)
        order = tuple(range(len(slices)))
    return SourceSeries(images, identity, volume_affine(slices), volume_shape(slices), order, voxels, content, remark)


def _frame_uid(folder: Path, datasets: Sequence[Dataset]) -> str:
    """The frame of reference; "" where an anonymised series has none."""
    uids = {str(dataset.get("FrameOfReferenceUID") or "") for dataset in datasets}
    if len(uids) > 1:
        raise UsageError(f"{folder}: its files have {len(uids)} values of FrameOfReferenceUID; expected one position of the head")
    return uids.pop()


def _identity(folder: Path, datasets: Sequence[Dataset]) -> Dataset:
    """Patient and study of the files, all of which must say the same."""
    identity = Dataset()
    for dataset in datasets:
        dataset.decode()  # by its own character set, for the objects have another
    for keyword in (*PERSON, *STUDY):
        values = {str(dataset.get(keyword) or "").strip() for dataset in datasets}
        if len(values) > 1 and keyword not in DIFFER_IN_A_SERIES:
            raise UsageError(f"{folder}: its files have {len(values)} values of {keyword}; expected one patient and one study")
        if len(values) == 1 and keyword in datasets[0]:
            identity[keyword] = datasets[0][keyword]
    if not identity.get("StudyInstanceUID"):
        raise UsageError(f"{folder}: its files have no StudyInstanceUID; objects of it would have no study")
    for keyword in ALWAYS_THERE:
        if keyword not in identity:
            setattr(identity, keyword, "")
    return identity


def _kind(folder: Path, datasets: Sequence[Dataset]) -> UID:
    """The SOP class of the files, by which objects refer to them; old files lack it."""
    kinds = {UID(str(dataset.get("SOPClassUID") or MRImageStorage)) for dataset in datasets}
    if other := sorted(kinds - set(MR_CLASSES)):
        raise UsageError(f"{folder}: holds objects of the class {other[0].name}; expected MR images")
    if len(kinds) > 1:
        raise UsageError(f"{folder}: holds {' and '.join(sorted(kind.name for kind in kinds))}; expected one kind of image")
    return kinds.pop()


def _single_frame(series: Series, image: Image, kind: UID) -> Dataset:
    dataset = _described(series, image.sop_uid, image.matrix)
    first = series.images[0]
    dataset.SOPClassUID = kind
    dataset.ImagePositionPatient = _decimals(image.position_mm)
    dataset.ImageOrientationPatient = _decimals(first.orientation)  # highdicom wants the same text in all
    dataset.PixelSpacing = _decimals(first.spacing_mm)
    dataset.SliceThickness = _thickness(series)
    return dataset


def _multi_frame(series: Series, kind: UID) -> Dataset:
    first = series.images[0]
    dataset = _described(series, first.sop_uid, first.matrix)
    dataset.SOPClassUID = kind
    dataset.NumberOfFrames = len(series.images)
    measures = _item(PixelSpacing=_decimals(first.spacing_mm), SliceThickness=_thickness(series))
    orientation = _item(ImageOrientationPatient=_decimals(first.orientation))
    dataset.SharedFunctionalGroupsSequence = [_item(PixelMeasuresSequence=[measures], PlaneOrientationSequence=[orientation])]
    positions = [_item(ImagePositionPatient=_decimals(image.position_mm)) for image in series.images]
    dataset.PerFrameFunctionalGroupsSequence = [_item(PlanePositionSequence=[position]) for position in positions]
    return dataset


def _described(series: Series, sop_uid: str, matrix: tuple[int, int]) -> Dataset:
    """Patient and study stay empty: they are laid over the finished object, as the series has them."""
    empty = dict.fromkeys(ALWAYS_THERE, "")
    return _item(
        **empty,
        StudyInstanceUID=series.study_uid,
        SeriesInstanceUID=series.series_uid,
        FrameOfReferenceUID=series.frame_uid,
        SOPInstanceUID=sop_uid,
        Modality="MR",
        Rows=matrix[0],
        Columns=matrix[1],
    )


def _thickness(series: Series) -> str:
    """As the header says, which may be silent; then the step from slice to slice."""
    declared = abs(series.images[0].thickness_mm)
    places = places_mm(ordered_slices(series.images))
    return format_number_as_ds(declared if declared > 0 else float(places[-1] - places[0]) / (len(places) - 1))


def _item(**values: Any) -> Dataset:
    item = Dataset()
    for keyword, value in values.items():
        setattr(item, keyword, value)
    return item


def _decimals(values: Sequence[float]) -> list[str]:
    return [format_number_as_ds(float(value)) for value in values]


def anonymous_series(shape: tuple[int, int, int], affine: Float[np.ndarray, "4 4"], seed: str) -> SourceSeries:
    """A series of no person, on the voxels of a scan's NIfTI file: its third axis counts frames, its second rows."""
    columns, rows, frames = shape
    lps = LPS @ affine
    spacing = np.linalg.norm(lps[:3, :3], axis=0)
    orientation = (lps[:3, :2] / spacing[:2]).T.ravel()
    study, series, frame = (hashed_uid(seed, name) for name in ("study", "series", "frame of reference"))
    images = []
    for number in range(frames):
        image = _item(
            **dict.fromkeys(ALWAYS_THERE, ""),
            StudyInstanceUID=study,
            SeriesInstanceUID=series,
            FrameOfReferenceUID=frame,
            SOPInstanceUID=hashed_uid(seed, "image", number),
            SOPClassUID=MRImageStorage,
            Modality="MR",
            Rows=rows,
            Columns=columns,
            ImagePositionPatient=_decimals((lps @ [0, 0, number, 1])[:3].tolist()),
            ImageOrientationPatient=_decimals(orientation.tolist()),
            PixelSpacing=_decimals([spacing[1], spacing[0]]),
            SliceThickness=format_number_as_ds(float(spacing[2])),
        )
        images.append(image)
    identity = _item(**{**dict.fromkeys(ALWAYS_THERE, ""), **ANONYMOUS, "StudyInstanceUID": study})
    return SourceSeries(tuple(images), identity, affine, shape, tuple(range(frames)), None, seed)


def hashed_uid(*parts: object) -> str:
    """A UID of a hash (DICOM PS3.5, B.2): equal parts have equal UIDs."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return f"2.25.{uuid.UUID(bytes=digest[:16], version=5).int}"


def laid_on(
    volume: Volume, shape: tuple[int, int, int], affine: Float[np.ndarray, "4 4"]
) -> tuple[Shaped[np.ndarray, "x y z"], float]:
    """The voxels of a volume in the order of another grid's axes, and how far apart the two put a corner, in mm.

    Axes are permuted and flipped, and no voxel is resampled. The distance is infinite where the grids have other sizes.
    """
    orientation = nib.io_orientation(np.linalg.inv(affine) @ volume.affine)
    if np.isnan(orientation).any():
        return volume.array, np.inf
    array = nib.apply_orientation(volume.array, orientation)
    if array.shape != shape:
        return array, np.inf
    turned = volume.affine @ nib.orientations.inv_ornt_aff(orientation, volume.shape)
    return array, float(corners_apart_mm(turned, affine, shape).max())
