"""Tumour masks: one that lies elsewhere is no measure of this patient's tumour."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mri_vit.data import tokens
from mri_vit.data.volume import Volume, write
from mri_vit.errors import UnusablePatient
from mri_vit.prepare import tumour
from mri_vit.prepare.register import mni152
from mri_vit.settings.grid import GRID_CENTRE_MM, Grid

BRAIN = Volume(np.pad(np.ones((20, 20, 20), bool), 5), np.diag([2.0, 2.0, 2.0, 1.0]))


def mask(shift_mm: float) -> Volume:
    """A cube of 6 mm, by so much to the right of the brain's middle."""
    affine = np.eye(4)
    affine[:3, 3] = [28.0 + shift_mm, 28.0, 28.0]
    array = np.zeros((12, 12, 12))
    array[3:9, 3:9, 3:9] = 1
    return Volume(array, affine)


@pytest.mark.parametrize(("shift_mm", "away_mm"), [(0.0, 0.0), (15.0, 0.0), (25.0, 8.0), (300.0, 283.0), (-300.0, 274.0)])
def test_a_mask_is_as_far_away_as_its_nearest_voxel_from_the_brain(shift_mm: float, away_mm: float):
    assert tumour.distance_mm(mask(shift_mm), np.eye(4), BRAIN) == pytest.approx(away_mm, abs=2.0)


def test_a_mask_is_carried_to_the_grid_before_it_is_judged():
    moved = np.eye(4)
    moved[0, 3] = -300
    assert tumour.distance_mm(mask(300.0), moved, BRAIN) == 0


def test_a_mask_300_mm_away_is_refused_with_its_distance_and_one_in_the_brain_is_not(tmp_path):
    grid = Grid(edge=16, spacing_mm=10.0, patch=4)
    brain = np.zeros((16, 16, 16), bool)
    brain[4:12, 4:12, 4:12] = True
    volume = np.random.default_rng(0).normal(size=(4, 16, 16, 16)).astype(np.float32)
    tokens.save(tokens.from_volume(volume, brain, grid, "-"), tmp_path / "tokens.safetensors")
    record = {"config_sha256": "", "inputs": {}, "steps": [], "to_grid": {"t1ce": np.eye(4).tolist()}}
    (tmp_path / "patient.json").write_text(json.dumps(record))
    centre = np.array(GRID_CENTRE_MM) - 28.0  # where `mask` has its own
    for shift_mm in (0.0, 300.0):
        there = mask(shift_mm)
        affine = there.affine.copy()
        affine[:3, 3] += centre
        write(Volume(there.array.astype(np.float32), affine), tmp_path / f"{shift_mm:.0f}.nii.gz")
    tumour.check(tmp_path / "0.nii.gz", tmp_path)
    with pytest.raises(UnusablePatient, match=r"300\.nii\.gz: the tumour mask lies 2\d\d mm away from the prepared brain"):
        tumour.check(tmp_path / "300.nii.gz", tmp_path)


@pytest.mark.parametrize("margin_mm", [0.0, 5.0, 12.0])
def test_around_a_tumour_is_kept_what_of_the_brain_is_no_further_than_the_margin(tmp_path, margin_mm: float):
    grid = Grid(edge=16, spacing_mm=4.0, patch=4)
    brain = np.zeros((16, 16, 16), bool)
    brain[4:12, 4:12, 4:12] = True
    volume = np.random.default_rng(0).normal(size=(4, 16, 16, 16)).astype(np.float32) * brain
    drawn = np.zeros((16, 16, 16))
    drawn[9:13, 5:8, 6] = 1  # partly outside the brain
    affine = np.array(grid.affine)
    affine[1, 3] += 30  # the mask's space lies 30 mm further to the front
    write(Volume(drawn.astype(np.float32), affine), tmp_path / "mask.nii.gz")
    from_grid = np.eye(4)
    from_grid[1, 3] = 30
    kept, near = tumour.around(tmp_path / "mask.nii.gz", volume, brain, margin_mm, from_grid, grid, "t1ce")
    away = np.linalg.norm((np.argwhere(brain)[:, None] - np.argwhere(drawn)) * 4.0, axis=-1).min(axis=1)
    expected = np.zeros_like(brain)
    expected[brain] = away <= margin_mm
    np.testing.assert_array_equal(near, expected)
    np.testing.assert_array_equal(kept, np.where(expected, volume, 0))
    with pytest.raises(UnusablePatient, match=r"the tumour mask lies .* mm away from the prepared brain"):
        tumour.around(tmp_path / "mask.nii.gz", volume, brain, margin_mm, np.eye(4), grid, "t1ce")


def test_the_template_is_nilearns_to_the_bit_without_importing_nilearn():
    from nilearn.datasets import load_mni152_template

    ours, image = mni152(), load_mni152_template(resolution=1)
    np.testing.assert_array_equal(ours.array / ours.array.max(), np.asarray(image.get_fdata(), np.float32))
    np.testing.assert_array_equal(ours.affine, image.affine)
