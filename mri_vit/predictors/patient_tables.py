"""Tables of numbers from prepared patients, a row per visit id: volumes, first-order intensity, and radiomics of the tumour.

Intensity: what a marker does to brightness alone shows here, without position, shape or texture; a network must find more than
this. Radiomics is an upper reference and no control: the mask is drawn by readers who saw the tumour, and no network needs it to
predict, unless scans are cut around it. Its features are nyxus' of three dimensions: intensity, shape and texture.

Letters: f grid positions with brain, c sequences, v voxels of a patch, n voxels of a region, e grid edge.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
from einops import rearrange
from jaxtyping import Bool, Float

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import read_mask
from mri_vit.errors import IntegrityError, UnusablePatient, UsageError
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record, mask_on_grid
from mri_vit.run import files, integrity
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written, read_json_or_empty
from mri_vit.settings.schema import Study

PERCENTILES = (10, 50, 90, 99)
STATISTICS = ("mean", "sd", "skewness", "kurtosis", *(f"p{percent}" for percent in PERCENTILES), "max")
FAMILIES = ["*3D_ALL*"]
OF_A_FILE = ("intensity_image", "mask_image", "ROI_label", "t_index")  # nyxus' columns that are no feature
# nyxus cuts intensities down to whole numbers, and counts co-occurrences of these as they are, whatever its `coarse_gray_depth`:
# tenths of the brain's standard deviation, from ten below its mean. A tumour then has 40 to 110 levels (12 synthetic patients);
# PyRadiomics' FAQ aims at 30 to 130. Hundredths gave each voxel nearly its own, and took thirty times as long.
STEP, LOWEST = 0.1, -10.0
MARGIN_VOXELS = 1  # voxels around the tumour that are handed over


def volume_table(patients: Sequence[Patient], study: Study) -> pd.DataFrame:
    """Brain volume from each prepared patient and, where any is given, tumour volume from its mask, in ml."""
    rows = []
    for patient in patients:
        steps = load_record(study.prepared / patient.id)["steps"]
        with as_written(study.prepared / patient.id / files.PATIENT, PREPARE_AGAIN):
            row = {"brain_ml": float(next(step for step in steps if step["step"] == "brain")["brain_ml"])}
        if any(p.tumour_mask for p in patients):
            row["tumour_ml"] = math.nan
        if patient.tumour_mask:
            mask = read_mask(patient.tumour_mask)
            voxel_ml = abs(np.linalg.det(mask.affine[:3, :3])) / 1000  # mm³ to ml
            row["tumour_ml"] = float((mask.array != 0).sum() * voxel_ml)
        rows.append(row)
    return pd.DataFrame(rows, index=pd.Index([p.id for p in patients]))


# --- intensity ----------------------------------------------------------------------------------------------------------------


def intensity_table(patients: Sequence[Patient], study: Study) -> pd.DataFrame:
    """A row per visit id: nine statistics of each sequence over the brain, as the network reads it, and over the tumour.

    Columns are `<sequence>_<statistic>` and, where any patient has a tumour mask, `tumour_<sequence>_<statistic>`. A missing
    sequence, a patient without a mask, and a mask that holds no brain voxel of the grid give NaN.

    Raises IntegrityError naming the patient whose tokens or mask cannot be read.
    """
    masks = any(p.tumour_mask for p in patients)
    rows = []
    for patient in patients:
        try:
            stored = tokens.load(study.prepared / patient.id / files.TOKENS, study.channels)
            row = statistics(brain_voxels(stored), study.channels)
            if masks:
                inside = np.zeros_like(_brain(stored))
                if patient.tumour_mask:
                    tumour = mask_on_grid(patient.tumour_mask, study.prepared / patient.id, stored.grid)[None].astype(np.float32)
                    inside = (tokens.patchify(tumour, stored.grid.patch)[stored.position] > 0) & _brain(stored)
                row |= {f"tumour_{name}": value for name, value in statistics(_voxels(stored, inside), study.channels).items()}
        except (IntegrityError, UnusablePatient) as error:
            raise IntegrityError(f"patient {patient.id}: no intensities for the control: {error}") from None
        rows.append(row)
    return pd.DataFrame(rows, index=pd.Index([p.id for p in patients]), dtype=float)


def described(table: pd.DataFrame, channels: Sequence[str]) -> str:
    """The columns in words: "mean, sd, … of t1, t1ce, t2, flair in the brain and in the tumour"."""
    where = "in the brain and in the tumour" if any(name.startswith("tumour_") for name in table) else "in the brain"
    return f"{', '.join(STATISTICS)} of {', '.join(channels)} {where} ({len(table.columns)} columns)"


def statistics(voxels: Float[np.ndarray, "c n"], channels: Sequence[str]) -> dict[str, float]:
    """Mean, SD, skewness, excess kurtosis, percentiles and maximum of each sequence's voxels; NaN where they are undefined.

    Skewness and kurtosis are the moment ratios m₃ / m₂^(3/2) and m₄ / m₂² − 3 (as scipy's `skew` and `kurtosis`).
    """
    row = {}
    for channel, values in zip(channels, voxels.astype(np.float64), strict=True):
        if not values.any():  # not acquired: stored as zeros; or an empty region
            numbers = [math.nan] * len(STATISTICS)
        else:
            mean = values.mean()
            away = values - mean
            square = away * away
            variance = square.mean()
            skewness, kurtosis = math.nan, math.nan
            if variance > 0:
                skewness, kurtosis = (square * away).mean() / variance**1.5, (square * square).mean() / variance**2 - 3
            numbers = [mean, math.sqrt(variance), skewness, kurtosis, *np.percentile(values, PERCENTILES), values.max()]
        row |= {f"{channel}_{name}": float(number) for name, number in zip(STATISTICS, numbers, strict=True)}
    return row


def brain_voxels(stored: Tokens) -> Float[np.ndarray, "c n"]:
    """Each sequence's values in the brain, as the network reads them."""
    return _voxels(stored, _brain(stored))


def _brain(stored: Tokens) -> Bool[np.ndarray, "f v"]:
    """Which voxels of the stored patches are brain: outside it every sequence is exactly zero."""
    return (rearrange(stored.patches, "f (c v) -> f c v", c=len(stored.channels)) != 0).any(axis=1)


def _voxels(stored: Tokens, region: Bool[np.ndarray, "f v"]) -> Float[np.ndarray, "c n"]:
    """Each sequence's values in a region."""
    patches = rearrange(stored.patches, "f (c v) -> c f v", c=len(stored.channels))
    return np.stack([values[region] for values in patches])


# --- radiomics ----------------------------------------------------------------------------------------------------------------


def installed() -> Any:
    """nyxus, imported here, because it is an extra. Raises UsageError where it is not installed."""
    try:
        return import_module("nyxus")
    except ImportError:
        remedy = "pip install 'mri-vit[radiomics]'"
        raise UsageError(f"controls.radiomics: nyxus is not installed, which computes it: {remedy}") from None


def radiomics_table(patients: Sequence[Patient], study: Study) -> pd.DataFrame:
    """A row per visit id: features in columns `<sequence>_<nyxus' name>`; no columns where no patient has a tumour mask.

    NaN for a patient without a mask or with none of it in the brain, for a sequence that was not acquired, and for a feature that
    nyxus does not find.

    Raises IntegrityError naming the patient whose tokens or mask cannot be read, UsageError without nyxus.
    """
    installed()
    rows = []
    for patient in patients:
        try:
            rows.append(_of_patient(patient, patient.tumour_mask, study) if patient.tumour_mask else {})
        except (IntegrityError, UnusablePatient, OSError) as error:
            raise IntegrityError(f"patient {patient.id}: no radiomics: {error}") from None
    return pd.DataFrame(rows, pd.Index([p.id for p in patients]), dtype=float)


def _of_patient(patient: Patient, mask: Path, study: Study) -> dict[str, float]:
    """A patient's features, which take seconds and are kept beside the prepared patients with all that decides them."""
    kept = study.prepared / files.RADIOMICS / f"{patient.id}.json"
    made_of = {
        "tokens": integrity.sha256(study.prepared / patient.id / files.TOKENS),
        "mask": integrity.sha256(mask),
        "channels": list(study.channels),
        "nyxus": installed().__version__,
        "settings": [*FAMILIES, STEP, LOWEST, MARGIN_VOXELS],
    }
    known = read_json_or_empty(kept)
    if known.get("made_of") != made_of:
        computed = _computed(patient, mask, study)
        values = {name: value if math.isfinite(value) else None for name, value in computed.items()}  # JSON has no NaN
        known = {"made_of": made_of, "values": values}
        kept.parent.mkdir(exist_ok=True)
        write_bytes(json.dumps(known).encode(), kept)
    return {name: math.nan if value is None else float(value) for name, value in known["values"].items()}


def _computed(patient: Patient, mask: Path, study: Study) -> dict[str, float]:
    stored = tokens.load(study.prepared / patient.id / files.TOKENS, study.channels)
    volume = tokens.to_volume(stored).astype(np.float32)
    tumour = mask_on_grid(mask, study.prepared / patient.id, stored.grid) & (volume != 0).any(axis=0)
    row: dict[str, float] = {}
    for channel, sequence in zip(study.channels, volume, strict=True):
        if tumour.any() and sequence.any():
            row |= {f"{channel}_{name}": value for name, value in features(sequence, tumour, stored.grid.spacing_mm).items()}
    return row


def features(sequence: Float[np.ndarray, "e e e"], tumour: Bool[np.ndarray, "e e e"], spacing_mm: float) -> dict[str, float]:
    """nyxus' features of a sequence in the tumour, by its names; NaN where one is not finite."""
    box = tuple(slice(max(0, at.min() - MARGIN_VOXELS), at.max() + 1 + MARGIN_VOXELS) for at in np.nonzero(tumour))
    levels = np.clip(np.rint((sequence[box] - LOWEST) / STEP), 0, np.iinfo(np.int16).max).astype(np.int16)
    affine = np.diag([spacing_mm, spacing_mm, spacing_mm, 1.0])
    with TemporaryDirectory(prefix="mri-vit-") as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nyxus', of shapes that a few voxels do not have
        image, mask = (Path(temporary) / f"{name}.nii" for name in ("image", "mask"))
        nib.save(nib.Nifti1Image(levels, affine), image)  # type: ignore[attr-defined]
        nib.save(nib.Nifti1Image(tumour[box].astype(np.uint8), affine), mask)  # type: ignore[attr-defined]
        table = installed().Nyxus3D(features=FAMILIES, n_feature_calc_threads=1).featurize_files([str(image)], [str(mask)], False)
    row = table.drop(columns=list(OF_A_FILE)).iloc[0].astype(float)
    return {str(name): value if math.isfinite(value) else math.nan for name, value in row.items()}
