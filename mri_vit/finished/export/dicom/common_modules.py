"""Common modules: what all objects of an export share: equipment, identity, dates and UIDs, all of them from the inputs alone.

highdicom fills a new object with the time of day and random UIDs; both are replaced, so that the same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from importlib.metadata import version
from typing import Any

from highdicom.sr import CodedConcept
from pydicom import Dataset
from pydicom.dataelem import DataElement

from mri_vit.finished.export.dicom.predicted_scans import PredictedScans
from mri_vit.finished.export.dicom.source_series import SourceSeries, hashed_uid

MANUFACTURER = "mri-vit"
SCHEME = "99MRIVIT"  # of codes that no standard has; PS3.16, 8: names of private schemes begin with 99
HIGHDICOM_ROOT = "1.2.826.0.1.3680043.10.511.3."  # of highdicom's random UIDs
NO_DATE, NO_TIME = "19000101", "000000"  # of anonymous objects, which must have a ContentDate
FIRST_SERIES_NUMBER = 9001  # behind a scanner's, so that a study still opens with its scans
WRITERS = ("mri-vit", "highdicom", "pydicom", "numpy", "pillow")  # on which the bytes depend
TEXT = {"LO": 64, "SH": 16}  # longest texts by value representation, PS3.5, 6.2


@dataclass(frozen=True, eq=False)
class Export:
    """A prediction, the series that its objects lie beside, and the scan that this is."""

    predicted: PredictedScans
    source: SourceSeries
    scan: str
    seed: str  # of all UIDs: a hash of everything that the objects are made of

    def uid(self, *parts: object) -> str:
        """The UID of a part of this export."""
        return hashed_uid(self.seed, *parts)

    @property
    def model_id(self) -> str:
        """Which networks predicted: the first digits of their weights' hash."""
        weights = "".join(sorted(one.sha256 for one in self.predicted.document.run.weights))
        return hashlib.sha256(weights.encode()).hexdigest()[:16]

    @property
    def software(self) -> str:
        return self.predicted.document.versions.get("mri-vit", "unknown")

    def placed(self, series: str, number: int, instance: int = 1) -> dict[str, Any]:
        """Arguments of every object of highdicom: its series, the `number`-th of the export, its place in it, the equipment."""
        return {
            "series_instance_uid": self.uid("series", series),
            "series_number": FIRST_SERIES_NUMBER + number,
            "sop_instance_uid": self.uid("object", series, instance),
            "instance_number": instance,
            "manufacturer": MANUFACTURER,
            "manufacturer_model_name": cut(f"mri-vit, study {self.predicted.document.run.study}", "LO"),
            "software_versions": self.software,
            "device_serial_number": self.model_id,
            "specific_character_set": "ISO_IR 192",
        }


def seed_of(predicted: PredictedScans, source_sha256: str) -> str:
    """A hash of all inputs and of the versions that write: no two different objects share a UID."""
    parts = [source_sha256, *predicted.hashes(), *(f"{name} {version(name)}" for name in WRITERS)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def private_code(value: str, meaning: str) -> CodedConcept:
    """A code of our own scheme."""
    return CodedConcept(cut(value, "SH"), SCHEME, cut(meaning, "LO"))


def cut(text: str, kind: str) -> str:
    """A text as long as its value representation allows; a backslash would part it in two."""
    return text.replace("\\", "/")[: TEXT[kind]]


def completed(dataset: Dataset, export: Export) -> Dataset:
    """An object of highdicom with the source's identity, the prediction's date, and UIDs that are hashes."""
    for keyword in ("InstanceCreationDate", "InstanceCreationTime", "PatientBirthDate"):
        if keyword in dataset:
            del dataset[keyword]
    dataset.ContentDate, dataset.ContentTime = _made(export)
    if dataset.Modality != "SR":
        dataset.BodyPartExamined = "BRAIN"
    if "ContentLabel" in dataset and "ContentCreatorName" not in dataset:
        dataset.ContentCreatorName = ""  # type 2, which highdicom leaves out
    for equipment in dataset.get("ContributingEquipmentSequence", ()):
        equipment.pop("ContributionDateTime", None)
    for element in export.source.identity:
        dataset[element.tag] = element
    if export.source.is_anonymous:
        _remove_references(dataset)
    names: dict[str, str] = {}

    def settle(_: Dataset, element: DataElement) -> None:
        if element.VR == "UI" and str(element.value).startswith(HIGHDICOM_ROOT):
            place = f"generated {len(names)}"
            element.value = names.setdefault(str(element.value), export.uid(dataset.SOPInstanceUID, place))

    dataset.walk(settle)
    return dataset


def _made(export: Export) -> tuple[str, str]:
    """When the patient was predicted, on the source's clock where it names its zone, else in UTC; no date of an anonymous one."""
    if export.source.is_anonymous:
        return NO_DATE, NO_TIME
    made = datetime.fromisoformat(export.predicted.document.made).astimezone(_zone(export.source.identity))
    return f"{made:%Y%m%d}", f"{made:%H%M%S}"


def _zone(identity: Dataset) -> timezone:
    offset = str(identity.get("TimezoneOffsetFromUTC") or "").strip()
    try:
        sign = -1 if offset[0] == "-" else 1
        return timezone(sign * timedelta(hours=int(offset[1:3]), minutes=int(offset[3:5])))
    except (IndexError, ValueError):
        return UTC


def _remove_references(dataset: Dataset) -> None:
    """An anonymous series has no images to refer to."""
    for keyword in ("SourceImageSequence", "ReferencedSeriesSequence"):
        if keyword in dataset:
            del dataset[keyword]
    for frame in dataset.get("PerFrameFunctionalGroupsSequence", ()):
        if "DerivationImageSequence" in frame:
            del frame.DerivationImageSequence
