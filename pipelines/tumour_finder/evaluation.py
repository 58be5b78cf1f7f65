"""Evaluation of the tumour finder on patients whose tumour was drawn: Dice, volume and the share of each grid position.

Its one setting, the probability from which a voxel is tumour, is chosen for each patient on the others. Beside it stands the
simplest thing that could find a tumour: the largest piece of FLAIR above a brightness, chosen in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage

from mri_vit.data import tokens
from mri_vit.data.volume import Volume, read_mask, resample
from mri_vit.importers.new_patients import read_new_patients
from mri_vit.prepare import finder
from mri_vit.prepare.agreement import of_grid
from mri_vit.prepare.bias import MAD_TO_SD
from mri_vit.prepare.patient import prepare_patient
from mri_vit.prepare.prepared import load_record
from mri_vit.prepare.tumour import tumour_shares
from mri_vit.run import files
from mri_vit.settings.recipe import CHANNELS, FLAIR, T1_LIKE
from mri_vit.settings.sections import Grid, Prepare

GRID = Grid(edge=112, spacing_mm=2.0, patch=8)  # the finder's voxels in 14³ positions
Mask = Bool[np.ndarray, "x y z"]
LEVELS = {  # what is chosen: probabilities, and robust standard deviations of FLAIR above the brain's median
    "finder": (0.3, 0.4, 0.5, 0.6, 0.7),
    "FLAIR alone": (1.0, 1.25, 1.5, 1.75, 2.0, 2.5),
}


@dataclass(frozen=True)
class Found:
    """A patient's masks by way and level, on the drawn mask's voxels, with the drawn one; and what the finder took."""

    drawn: Mask
    masks: Mapping[str, Mapping[float, Mask]]
    shares: Mapping[str, Mapping[float, float]]  # correlation of each grid position's share of tumour
    confidence: float
    seconds: float


def dice(one: Mask, other: Mask) -> float:
    return float(2 * (one & other).sum() / max(one.sum() + other.sum(), 1))


def evaluate(folders: list[Path], scratch: Path) -> list[dict[str, float | str]]:
    """A row per patient and way; every folder holds one patient's scans, with a mask of the tumour on the reference's grid."""
    found = {folder.name: find(folder, scratch) for folder in folders}
    rows = []
    for way, levels in LEVELS.items():
        scores = {name: {level: dice(one.masks[way][level], one.drawn) for level in levels} for name, one in found.items()}
        for name, one in found.items():
            others = [scores[other] for other in found if other != name]
            level = max(levels, key=lambda at: float(np.mean([score[at] for score in others])))
            rows.append(
                {
                    "patient": name,
                    "way": way,
                    "level": level,
                    "dice": scores[name][level],
                    "volume": float(one.masks[way][level].sum() / one.drawn.sum()),
                    "shares": one.shares[way][level],
                    "confidence": one.confidence if way == "finder" else "",
                    "seconds": one.seconds if way == "finder" else "",
                }
            )
    return rows


def find(folder: Path, scratch: Path) -> Found:
    """Prepare the patient in a folder on the finder's grid, and find the tumour there at every level."""
    (patient,) = read_new_patients(folder, CHANNELS, (FLAIR,), scratch / "out", print).patients
    assert patient.tumour_mask, f"{folder} holds no mask of the tumour"
    channels = tuple(channel for channel in CHANNELS if patient.scans.get(channel))
    reference = next((channel for channel in T1_LIKE if channel in channels), FLAIR)
    home = prepare_patient(patient, scratch, channels, GRID, Prepare(reference=reference, needs=channels, tumour="none"))
    stored, record = tokens.load(home / files.TOKENS), load_record(home)
    volume = tokens.to_volume(stored).astype(np.float32)
    copies = of_grid(volume, (volume != 0).any(axis=0), channels, GRID)
    to_grid = np.array(record["to_grid"][reference])
    to_reference = np.array(next(step["affine"] for step in record["steps"] if step["step"] == "to_mni"))
    to_template = np.linalg.inv(to_reference) @ np.linalg.inv(to_grid)  # the reference is a T1, so it is what was aligned
    began = time.monotonic()
    seen = finder.find(copies.scans, copies.brain, copies.affine, to_template)
    seconds = time.monotonic() - began
    drawn = read_mask(patient.tumour_mask)
    true = drawn.array != 0
    expected = tumour_shares(drawn, to_grid, stored)
    sources = {
        "finder": (finder.probability_of(copies.scans, copies.brain, copies.affine, to_template)[1], finder.BOX_AFFINE),
        "FLAIR alone": (_robust_z(copies.scans[FLAIR], copies.brain), copies.affine),
    }
    masks: dict[str, dict[float, Mask]] = {way: {} for way in LEVELS}
    shares: dict[str, dict[float, float]] = {way: {} for way in LEVELS}
    for way, (array, affine) in sources.items():
        for level in LEVELS[way]:
            part = Volume(finder.pieces(array > level).astype(np.float32), affine)
            masks[way][level] = resample(part, drawn.shape, drawn.affine, to_grid).array > 0.5
            share = tumour_shares(Volume(masks[way][level], drawn.affine), to_grid, stored)
            shares[way][level] = float(np.corrcoef(share, expected)[0, 1]) if share.any() else 0.0
    return Found(true, masks, shares, seen.confidence, seconds)


def _robust_z(scan: Float[np.ndarray, "x y z"], brain: Mask) -> Float[np.ndarray, "x y z"]:
    """In robust standard deviations from the brain's median, smoothed a little."""
    soft = ndimage.gaussian_filter(scan, 0.8)
    middle = np.median(scan[brain])
    return (soft - middle) / (MAD_TO_SD * np.median(np.abs(scan[brain] - middle))) * brain
