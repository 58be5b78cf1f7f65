"""Radiomics: features of the true tumour of each prepared patient's sequences, as a table; an upper reference, and no bar.

The mask is drawn by people who saw the tumour, and no network needs it to predict, unless scans are cut around it: what a network
does not reach of this may be a matter of finding the tumour. Features are nyxus' of three dimensions: intensity, shape and
texture, in the voxels of the tumour on the grid.
Letters: c sequences, e grid edge.
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
from jaxtyping import Bool, Float

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.errors import IntegrityError, UnusablePatient, UsageError
from mri_vit.prepare.tumour import on_grid
from mri_vit.run import files, integrity
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.settings.schema import Study

FAMILIES = ["*3D_ALL*"]
OF_A_FILE = ("intensity_image", "mask_image", "ROI_label", "t_index")  # nyxus' columns that are no feature
# nyxus cuts intensities down to whole numbers, and counts co-occurrences of these as they are, whatever its `coarse_gray_depth`:
# tenths of the brain's standard deviation, from ten below its mean. A tumour then has 40 to 110 levels (12 synthetic patients);
# PyRadiomics' FAQ aims at 30 to 130. Hundredths gave each voxel nearly its own, and took thirty times as long.
STEP, LOWEST = 0.1, -10.0
MARGIN = 1  # voxels around the tumour that are handed over


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
    """A patient's features, which take seconds and are kept beside the prepared patients with what they were made of."""
    kept, made_of = study.prepared / files.RADIOMICS / f"{patient.id}.json", _made_of(patient, mask, study)
    known = read_json_or_empty(kept)
    if known.get("made_of") != made_of:
        found = _computed(patient, mask, study)
        values = {name: value if math.isfinite(value) else None for name, value in found.items()}  # JSON has no NaN
        known = {"made_of": made_of, "values": values}
        kept.parent.mkdir(exist_ok=True)
        write_bytes(json.dumps(known).encode(), kept)
    return {name: math.nan if value is None else float(value) for name, value in known["values"].items()}


def _made_of(patient: Patient, mask: Path, study: Study) -> dict[str, Any]:
    """What decides a patient's features."""
    return {
        "tokens": integrity.sha256(study.prepared / patient.id / files.TOKENS),
        "mask": integrity.sha256(mask),
        "channels": list(study.channels),
        "nyxus": installed().__version__,
        "settings": [*FAMILIES, STEP, LOWEST, MARGIN],
    }


def _computed(patient: Patient, mask: Path, study: Study) -> dict[str, float]:
    stored = tokens.load(study.prepared / patient.id / files.TOKENS, study.channels)
    volume = tokens.to_volume(stored).astype(np.float32)
    tumour = on_grid(mask, study.prepared / patient.id, stored.grid) & (volume != 0).any(axis=0)
    found: dict[str, float] = {}
    for channel, sequence in zip(study.channels, volume, strict=True):
        if tumour.any() and sequence.any():
            found |= {f"{channel}_{name}": value for name, value in features(sequence, tumour, stored.grid.spacing_mm).items()}
    return found


def features(sequence: Float[np.ndarray, "e e e"], tumour: Bool[np.ndarray, "e e e"], spacing_mm: float) -> dict[str, float]:
    """nyxus' features of a sequence in the tumour, by its names; NaN where one is not finite."""
    box = tuple(slice(max(0, at.min() - MARGIN), at.max() + 1 + MARGIN) for at in np.nonzero(tumour))
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
