"""Likeness: a copy that was turned, resampled and bent in contrast is found again, and different patients are not flagged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from mri_vit.data.volume import Volume, canonical, read, resample, write
from mri_vit.errors import UnusablePatient
from mri_vit.importers import persons
from mri_vit.importers.persons import Subject

pytestmark = pytest.mark.long(14)

PATIENTS = (
    "tumours/BraTS2021_01477",
    "tumours/BraTS2021_01479",
    "tumours/BraTS2021_01483",
    "stripped/TCGA-DU-7294",
    "raw/TCGA-FG-6692",
)


def made_anew(path: Path, copy: Path, seed: int) -> Path:
    """The scan turned by some degrees, at 2 mm, its intensities bent."""
    scan, generator = canonical(read(path)), np.random.default_rng(seed)
    nx, ny, nz = np.ceil(np.array(scan.shape) * np.array(scan.spacing_mm) / 2).astype(int).tolist()
    shape = (nx, ny, nz)
    affine = np.eye(4)
    affine[:3, :3] = 2 * Rotation.from_euler("xyz", generator.normal(0, 5, 3), degrees=True).as_matrix()
    middle = scan.affine @ np.r_[(np.array(scan.shape) - 1) / 2, 1]
    affine[:3, 3] = middle[:3] - affine[:3, :3] @ ((np.array(shape) - 1) / 2)
    array = 3 * np.maximum(resample(scan, shape, affine).array, 0) ** 0.8
    write(Volume(array.astype(np.float32), affine), copy)
    return copy


@pytest.mark.parametrize("names", [PATIENTS[1:4:2], pytest.param(PATIENTS, marks=pytest.mark.slow)], ids=["two", "five"])
def test_copies_of_real_patients_are_found_and_no_two_different_ones(shared, tmp_path, names):
    scans = {Subject("a", Path(name).name): shared / "data" / name / "flair.nii.gz" for name in names}
    copies = {
        Subject("b", f"copy{index}"): made_anew(path, tmp_path / f"{index}.nii.gz", index)
        for index, path in enumerate(scans.values())
    }
    person = {subject: index for index, subject in enumerate({**scans, **copies})}
    found, headless = persons.alike_pairs({**scans, **copies}, person)
    assert headless == []
    assert {(pair.one, pair.other) for pair in found} == set(zip(scans, copies, strict=True))
    assert min(pair.correlation for pair in found) > 0.9  # and so no pair lies between 0.8 and 0.9
    known = {subject: index % len(scans) for index, subject in enumerate({**scans, **copies})}
    assert persons.alike_pairs({**scans, **copies}, known) == ([], [])  # who is known as one person is not flagged


def test_nobody_looks_like_nobody_and_a_scan_of_nothing_is_refused(tmp_path):
    assert persons.alike_pairs({}, {}) == ([], [])
    assert persons.neighbours(np.zeros((2, 5))) == [(0, 1)]
    write(Volume(np.zeros((20, 20, 20), np.float32), np.diag([8.0, 8, 8, 1])), tmp_path / "a.nii.gz")
    with pytest.raises(UnusablePatient, match="an empty image"):
        persons.alike_pairs({Subject("x", "a"): tmp_path / "a.nii.gz"}, {Subject("x", "a"): 0})


def test_scans_of_few_slices_or_without_a_head_end_nothing(tmp_path):
    ramp = np.arange(800, dtype=np.float32).reshape(20, 20, 2)
    dark = np.full((20, 20, 20), 9, np.float32)
    dark[5:15, 5:15, 5:15] = 1  # darker than its border
    for name, array in (("few", ramp), ("again", ramp + 1), ("dark", dark)):
        write(Volume(array, np.diag([8.0, 8, 8, 1])), tmp_path / f"{name}.nii.gz")
    scans = {Subject("x", name): tmp_path / f"{name}.nii.gz" for name in ("few", "again", "dark")}
    _, headless = persons.alike_pairs(scans, {subject: index for index, subject in enumerate(scans)})
    assert headless == [Subject("x", "dark")]
