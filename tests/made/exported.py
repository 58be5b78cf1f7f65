"""A patient's folder as `mri-vit predict` writes it, and the DICOM series that it was made of: small, and without a run."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from jaxtyping import Float, Shaped

from made import dicom
from made.prediction import EXAMPLE
from mri_vit.data.volume import Volume, canonical, write
from mri_vit.explain.outputs.map_files import STEP, brain_only

SLICES, ROWS, COLUMNS = 12, 20, 24  # 3 × 1.5 × 1.25 mm
PERSON: dict[str, Any] = {
    "SpecificCharacterSet": "ISO_IR 100",
    "PatientName": "Müller^Jörg",
    "PatientID": "MRN-4711",
    "PatientBirthDate": "19600203",
    "PatientSex": "M",
    "StudyInstanceUID": "1.2.3.4",
    "SeriesInstanceUID": "1.2.3.4.5",
    "FrameOfReferenceUID": "1.2.3.9",
    "StudyDate": "20240131",
    "StudyTime": "101112",
    "AccessionNumber": "ACC-77123",
    "StudyDescription": "Schädel MRT",
}


@dataclass(frozen=True, eq=False)
class Predicted:
    """`series` by sequence, and in the order (column, row, slice) of the first: its affine to RAS+ mm, map and tumour."""

    folder: Path
    series: Mapping[str, Path]
    affine: Float[np.ndarray, "4 4"]
    map: Float[np.ndarray, "x y z"]
    tumour: Shaped[np.ndarray, "x y z"]


def make_predicted(
    home: Path,
    orientation: Sequence[float] = dicom.OBLIQUE,
    stored: str = "RAS",
    edit: Mapping[str, Any] = {},  # it is only read
    **tags: Any,
) -> Predicted:
    """A prediction on T1ce, with a FLAIR beside it.

    `stored` are the axes of the NIfTI files, as nibabel names them: an import writes RAS, dcm2niix alone LAS.
    """
    generator = np.random.default_rng(3)
    affine = dicom.affine(orientation)
    series, scans = {}, {}
    for number, name in enumerate(("t1ce", "flair")):
        voxels = dicom.head(SLICES, ROWS, COLUMNS) + 1000 * number + generator.integers(0, 9, (SLICES, ROWS, COLUMNS))
        series[name] = home / name
        given: dict[str, Any] = PERSON | {"SeriesInstanceUID": f"1.2.3.4.{5 + number}"} | tags
        dicom.write_series(series[name], voxels.astype(np.uint16), orientation, **given)
        scans[name] = Volume(voxels.transpose(2, 1, 0).astype(np.float32), affine)
    return write_prediction(home / "predicted" / "P001", scans, series, stored)


def write_prediction(folder: Path, scans: Mapping[str, Volume], series: Mapping[str, Path], stored: str = "RAS") -> Predicted:
    """A prediction of scans, T1ce among them: with a map of noise in a box, a tumour in it, and the document of `EXAMPLE`."""
    shape, affine = scans["t1ce"].shape, scans["t1ce"].affine
    inside = np.zeros(shape, bool)
    inside[tuple(slice(n // 8, n - n // 6) for n in shape)] = True
    steps = np.where(inside, np.random.default_rng(4).integers(1, 900, shape), 0).astype(np.int16)
    tumour = np.zeros(shape, np.uint8)
    tumour[tuple(slice(n // 4, n // 2) for n in shape)] = 1
    (folder / "maps").mkdir(parents=True)
    laid = {name: _laid(scan, stored) for name, scan in scans.items()}
    for space in scans:
        write(_laid(Volume(steps, affine), stored), folder / f"maps/{space}_map.nii.gz", step=STEP)
    write(brain_only(laid["t1ce"], _laid(Volume(inside, affine), stored).array), folder / "maps/brain.nii.gz")
    write(_laid(Volume(tumour, affine), stored), folder / "tumour.nii.gz")
    document = copy.deepcopy(EXAMPLE)
    document["preparation"]["steps"] = [{"step": "read", "methods": "", "scans": {n: _record(v) for n, v in laid.items()}}]
    document["preparation"]["tumour"]["tumour_ml"] = round(float(tumour.sum() * np.prod(scans["t1ce"].spacing_mm)) / 1000, 3)
    document["maps"]["brain"] = "maps/brain.nii.gz"
    document["maps"]["maps"][0]["files"] = {space: f"maps/{space}_map.nii.gz" for space in scans}
    (folder / "prediction.json").write_text(json.dumps(document))
    return Predicted(folder, series, affine, steps.astype(np.float32) * np.float32(STEP), tumour)


def edited(predicted: Predicted, **keys: Any) -> None:
    """Replace keys of `prediction.json`."""
    file = predicted.folder / "prediction.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def _laid(volume: Volume, axes: str) -> Volume:
    """The same voxels with other axes, by nibabel alone."""
    image = nib.Nifti1Image(np.asarray(volume.array, np.float64), volume.affine)
    turn = nib.orientations.ornt_transform(nib.io_orientation(volume.affine), nib.orientations.axcodes2ornt(axes))
    turned = image.as_reoriented(turn)  # type: ignore[arg-type]  # its stub wants lists
    assert turned.affine is not None
    return Volume(np.asarray(turned.dataobj).astype(volume.array.dtype), turned.affine)


def _record(scan: Volume) -> dict[str, Any]:
    upright = canonical(scan)
    return {
        "voxels_sha256": hashlib.sha256(upright.array.data).hexdigest(),
        "stored": {"shape": scan.shape, "affine": scan.affine.tolist()},
    }
