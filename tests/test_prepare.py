"""Scans to a prepared patient: made-up heads of the tests' own, and two real patients where ../shared is present."""

import json
import math
import os
import shutil
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
from scipy import ndimage
from scipy.spatial.transform import Rotation

from mri_vit import tokens
from mri_vit.cohort import Patient
from mri_vit.config import CHANNELS, Grid, Prepare, Study
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.prepare import bias, brain, intensity, register
from mri_vit.prepare.patient import config_sha256, load_record, prepare
from mri_vit.volume import Volume, canonical, itk_transform, read, resample, to_itk, write

SHARED = Path(__file__).parents[2] / "shared"
RAW = SHARED / "data" / "raw" / "TCGA-FG-6692"
STRIPPED = SHARED / "data" / "stripped" / "TCGA-DU-7294"
DEMO_GRID = Grid(edge=56, spacing_mm=4.0, patch=4)
needs_raw = pytest.mark.skipif(not RAW.is_dir(), reason="the raw patient of ../shared is not here")
needs_stripped = pytest.mark.skipif(not STRIPPED.is_dir(), reason="the stripped patient of ../shared is not here")


def rigid(degrees: tuple[float, float, float], shift_mm: tuple[float, float, float]) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix()
    matrix[:3, 3] = shift_mm
    return matrix


def distance_mm(a: np.ndarray, b: np.ndarray) -> float:
    """Mean distance of two 4×4s over the corners of a brain's box."""
    corners = np.array([[x, y, z, 1.0] for x in (-60, 60) for y in (-95, 65) for z in (-40, 70)]).T
    return float(np.linalg.norm(((a - b) @ corners)[:3], axis=0).mean())


def contrast(t1: np.ndarray, channel: str) -> np.ndarray:
    """A brain of T1 intensities 0 to 1 as another channel would show it."""
    inverse = np.where(t1 > 0, 1.1 - t1, 0)
    made = {"t1": t1, "t1ce": t1**1.2, "t2": inverse, "flair": np.where(t1 > 0, 0.4 + 0.5 * np.sin(3 * t1), 0)}
    return made[channel].astype(np.float32)


HEAD_POSE = rigid((8, -5, 6), (4, -9, 12))  # MNI152 to the scanner
MOVED = {"t1": np.eye(4), "t1ce": np.eye(4), "t2": rigid((2, -3, 2), (2, 1, -2)), "flair": rigid((-1, 1, 2), (-1, 2, 1))}


def made_scan(channel: str, spacing_mm: tuple[float, float, float]) -> Volume:
    """The MNI152 brain in the scanner's frame, on an oblique coarse grid, with noise inside the brain."""
    whole, _ = register.template()
    shape = tuple(round(length / mm) for length, mm in zip((190, 220, 190), spacing_mm, strict=True))
    affine = rigid((5, 3, -4), (-92, -125, -80)) @ np.diag([*spacing_mm, 1.0])
    to_mni = np.linalg.inv(MOVED[channel] @ HEAD_POSE)
    source = Volume(contrast(whole.array, channel), whole.affine)
    scan = resample(source, shape, affine, to_mni)
    noise = np.random.default_rng(CHANNELS.index(channel)).normal(0, 0.02, scan.array.shape)
    array = np.where(scan.array > 0.05, 800 * (scan.array + noise).clip(0.05), 0)
    return Volume(array.astype(np.float32), affine)


def made_patient(folder: Path, name: str = "P-1") -> Patient:
    folder.mkdir(parents=True, exist_ok=True)
    spacings = {"t1": (4.0, 4.0, 4.0), "t1ce": (3.5, 3.5, 4.0), "t2": (3.5, 3.5, 5.0), "flair": (4.0, 4.0, 4.5)}
    for channel in CHANNELS:
        write(made_scan(channel, spacings[channel]), folder / f"{channel}.nii.gz")
    return patient_in(folder, name)


def patient_in(folder: Path, name: str, brain_mask: Path | None = None) -> Patient:
    return Patient(name, {c: folder / f"{c}.nii.gz" for c in CHANNELS}, {}, {}, brain_mask)


def study_in(folder: Path, grid: Grid = DEMO_GRID, **settings: object) -> Study:
    return Study(
        name="test",
        cohort=folder / "cohort.csv",
        prepared=folder / "prepared",
        output=folder / "runs",
        grid=grid,
        prepare=Prepare.model_validate(settings),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Patient:
    return made_patient(tmp_path_factory.mktemp("made") / "P-1")
