"""Predicted scans: a patient's folder of `mri-vit predict` goes in; its document, and the scan that a DICOM series is, come out.

A map on another person's series would be the worst fault, and ids are hashes: so a series is known by its voxels alone. They are
those of a scan that was predicted, by the hash that preparation recorded, or else those of the reference's brain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from pydantic import ValidationError

from mri_vit.data import nifti
from mri_vit.data.volume import Volume, canonical, read, read_mask
from mri_vit.errors import IntegrityError, UnusablePatient, UsageError
from mri_vit.explain.outputs.map_files import brain_only
from mri_vit.finished import prediction_document
from mri_vit.finished.export.dicom.source_series import SAME_PLACE_MM, SourceSeries, laid_on
from mri_vit.finished.prediction_document import Prediction, ShownMap
from mri_vit.run import files
from mri_vit.run.integrity import as_written, read_json, sha256
from mri_vit.settings.recipe import title

PREDICT_AGAIN = "predict the patient again"
LEVELS_APART = 1  # of 255: rounding of a series that another program scaled
LEAST_BRAIN_VOXELS = 1000  # whose levels can be no coincidence


@dataclass(frozen=True, eq=False)
class Stored:
    """Where a scan's file has its voxels, and the SHA-256 of these."""

    shape: tuple[int, int, int]
    affine: Float[np.ndarray, "4 4"]
    voxels_sha256: str


@dataclass(frozen=True, eq=False)
class PredictedScans:
    """A patient's prediction with its folder, and by sequence the scans that it was made from."""

    folder: Path
    document: Prediction
    scans: Mapping[str, Stored]

    @property
    def reference(self) -> str:
        """The sequence whose space tumour mask, brain and pictures are in."""
        return self.document.preparation.reference

    @property
    def maps(self) -> tuple[ShownMap, ...]:
        return self.document.maps.maps if self.document.maps else ()

    @property
    def tumour_file(self) -> Path | None:
        """The tumour's mask; None where there is none. Raises UsageError where an older version left it elsewhere."""
        if self.document.preparation.tumour.tumour_ml is None:
            return None
        file = self.folder / files.TUMOUR
        if not file.is_file():
            raise UsageError(f"{self.folder}: no {files.TUMOUR}, although a tumour mask was used; {PREDICT_AGAIN}")
        return file

    def doubt(self, entry: ShownMap) -> str:
        """ "not reliable" of a map of endpoints of which none is; else ""."""
        explained = [entry.endpoint] if entry.endpoint else list(self.document.endpoints)
        return "" if any(prediction_document.is_trusted(self.document, name) for name in explained) else "not reliable"

    def map_on(self, entry: ShownMap, scan: str) -> Volume:
        """A map on a scan's voxels, float32; one of zeros, which `read` refuses as empty, too."""
        if scan not in entry.files:
            raise UsageError(f"{self.folder}: the map “{entry.title}” has no file on {title(scan)}; {PREDICT_AGAIN}")
        file = self.folder / entry.files[scan]
        if entry.peak or not file.is_file():
            return read_image(file)
        with file.open("rb") as stream:
            announced = nifti.announced(stream.read(nifti.START_BYTES), file.name.endswith(".gz"))
        x, y, z = announced.shape
        return Volume(np.zeros((x, y, z), np.float32), announced.affine)

    def hashes(self) -> list[str]:
        """Of all files that an export is made from."""
        given = (prediction_document.FILE, files.TUMOUR, *(name for entry in self.maps for name in entry.files.values()))
        brain = self.document.maps.brain if self.document.maps else None
        return [sha256(self.folder / name) for name in sorted({*given, *filter(None, [brain])}) if (self.folder / name).is_file()]


def read_image(file: Path, how: Callable[[Path], Volume] = read) -> Volume:
    """A volume of the prediction. Raises IntegrityError where it is not as it was written."""
    try:
        return how(file)
    except UnusablePatient as fault:
        raise IntegrityError(f"{fault}; {PREDICT_AGAIN}") from None


def read_prediction(folder: Path) -> PredictedScans:
    """A patient's folder of `mri-vit predict`. Raises UsageError where it is none, or one of another version."""
    file = folder / prediction_document.FILE
    if not file.is_file():
        raise UsageError(f"{folder}: no {prediction_document.FILE}; expected a patient's folder that `mri-vit predict` wrote")
    content = read_json(file, remedy=PREDICT_AGAIN)
    if content.get("schema") != prediction_document.SCHEMA:
        raise UsageError(
            f"{file}: layout {content.get('schema')}; this version reads {prediction_document.SCHEMA}: {PREDICT_AGAIN}"
        )
    with as_written(file, PREDICT_AGAIN):
        try:
            document = Prediction.model_validate(content)
        except ValidationError as error:
            raise ValueError(f"{error.error_count()} faults, first in {'.'.join(map(str, error.errors()[0]['loc']))}") from None
        scans = {name: _stored(scan) for name, scan in _scans_read(document).items() if "stored" in scan}
    if document.preparation.reference not in scans:
        raise UsageError(f"{file}: does not say where the scans' voxels lie; {PREDICT_AGAIN}")
    return PredictedScans(folder, document, scans)


def _scans_read(document: Prediction) -> dict[str, Any]:
    step = next(step for step in document.preparation.steps if step.step == "read")
    scans = (step.model_extra or {}).get("scans", {})
    return dict(scans) if isinstance(scans, Mapping) else {}


def _stored(scan: Mapping[str, Any]) -> Stored:
    x, y, z = scan["stored"]["shape"]
    affine = np.array(scan["stored"]["affine"], float)
    if affine.shape != (4, 4):
        raise ValueError("an affine that is not 4×4")
    return Stored((int(x), int(y), int(z)), affine, str(scan["voxels_sha256"]))


def scan_of(series: SourceSeries, predicted: PredictedScans, named: Path) -> str:
    """The sequence that a series is.

    Parameters
    ----------
    series
        With voxels.
    named
        Its folder, for messages.

    Raises
    ------
    UsageError
        No predicted scan has these voxels at this place: the series may be another patient's, or the scans were changed between
        the archive and the prediction.
    """
    assert series.voxels is not None
    apart = {}
    for name, scan in predicted.scans.items():
        array, apart_mm = laid_on(series.voxels, scan.shape, scan.affine)
        if apart_mm <= SAME_PLACE_MM:
            stored = Volume(np.asarray(array, np.float32), scan.affine)
            if hashlib.sha256(canonical(stored).array.data).hexdigest() == scan.voxels_sha256:
                return name
            if name == predicted.reference and _has_brain(stored, predicted):
                return name
        apart[name] = apart_mm
    raise UsageError(f"{named}: {_why_not(series, predicted, apart)}; nothing was exported")


def _has_brain(scan: Volume, predicted: PredictedScans) -> bool:
    """Whether a scan has the brain that the prediction published: the series may have been stripped or scaled before it."""
    brain = predicted.document.maps.brain if predicted.document.maps else None
    if brain is None or not (predicted.folder / brain).is_file():
        return False
    levels, apart_mm = laid_on(read_image(predicted.folder / brain), scan.shape, scan.affine)
    inside = levels > 0
    if apart_mm > SAME_PLACE_MM or inside.sum() < LEAST_BRAIN_VOXELS:
        return False
    found = brain_only(scan, inside).array.astype(np.float32)
    return bool(np.abs(found - levels).max() <= LEVELS_APART)


def _why_not(series: SourceSeries, predicted: PredictedScans, apart_mm: Mapping[str, float]) -> str:
    names = ", ".join(title(name) for name in predicted.scans)
    same = [name for name, mm in apart_mm.items() if mm <= SAME_PLACE_MM]
    if same:
        return (
            f"its voxels lie where those of {title(same[0])} do and have other values, so it may be ANOTHER PATIENT'S; expected"
            f" one of the series that were predicted ({names})"
        )
    assert series.voxels is not None
    upright = np.ascontiguousarray(np.asarray(series.voxels.array, np.float32))
    digest = hashlib.sha256(upright.data).hexdigest()
    if moved := [name for name, scan in predicted.scans.items() if scan.voxels_sha256 == digest]:
        return (
            f"it has the voxels of {title(moved[0])}, which was predicted {apart_mm[moved[0]]:.2f} mm away from where the series"
            f" lies (tolerance {SAME_PLACE_MM} mm)"
        )
    sizes = ", ".join(f"{title(name)} {_by(scan.shape)}" for name, scan in predicted.scans.items())
    return (
        f"its {_by(series.shape)} voxels are those of no predicted scan ({sizes}), so it may be ANOTHER PATIENT'S; expected one"
        f" of the series that were predicted, unchanged ({names}), or none, for anonymous objects"
    )


def _by(shape: tuple[int, int, int]) -> str:
    return "×".join(map(str, shape))


def tumour_mask(predicted: PredictedScans) -> Volume | None:
    """The tumour (1) where the patient has a mask."""
    file = predicted.tumour_file
    if file is None:
        return None
    mask = read_image(file, read_mask)
    return Volume((mask.array != 0).astype(np.uint8), mask.affine)
