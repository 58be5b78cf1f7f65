"""Intensity: first-order statistics of each prepared patient's sequences, over the brain and over the tumour, as a table.

What a marker does to brightness alone shows here, with no place, shape or texture; a network must find more than this.
Letters: f places with brain, c channels, v voxels of a patch, n voxels of a region.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from einops import rearrange
from jaxtyping import Bool, Float

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.tokens import Tokens
from mri_vit.errors import IntegrityError, UnusablePatient
from mri_vit.prepare.tumour import on_grid
from mri_vit.run import files
from mri_vit.settings.schema import Study

PERCENTILES = (10, 50, 90, 99)
STATISTICS = ("mean", "sd", "skewness", "kurtosis", *(f"p{percent}" for percent in PERCENTILES), "max")


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
                inside = _tumour(patient, study, stored) if patient.tumour_mask else np.zeros_like(_brain(stored))
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
    found = {}
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
        found |= {f"{channel}_{name}": float(number) for name, number in zip(STATISTICS, numbers, strict=True)}
    return found


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


def _tumour(patient: Patient, study: Study, stored: Tokens) -> Bool[np.ndarray, "f v"]:
    """Which brain voxels of the stored patches are tumour."""
    assert patient.tumour_mask
    tumour = on_grid(patient.tumour_mask, study.prepared / patient.id, stored.grid)
    return (tokens.patchify(tumour[None].astype(np.float32), stored.grid.patch)[stored.place] > 0) & _brain(stored)
