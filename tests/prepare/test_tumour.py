"""Tumour masks: one that lies elsewhere is no measure of this patient's tumour."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mri_vit.data import tokens
from mri_vit.data.volume import Volume, write
from mri_vit.errors import UnusablePatient
from mri_vit.prepare import tumour
from mri_vit.prepare.prepared import Log
from mri_vit.prepare.register import mni152
from mri_vit.settings.sections import Grid

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


GRID = Grid(edge=32, spacing_mm=5.0, patch=4)
INSIDE = np.zeros((32, 32, 32), bool)
INSIDE[8:24, 8:24, 8:24] = True  # 512 ml


@pytest.fixture
def prepared(tmp_path):
    """The folder of a patient whose brain is `INSIDE`, and whose reference lies as the grid does."""
    volume = np.random.default_rng(0).normal(size=(4, 32, 32, 32)).astype(np.float32)
    tokens.save(tokens.from_volume(volume, INSIDE, GRID, "-"), tmp_path / "tokens.safetensors")
    record = {"config_sha256": "", "inputs": {}, "steps": [], "to_grid": {"t1ce": np.eye(4).tolist()}, "brain_ml": 512.0}
    (tmp_path / "patient.json").write_text(json.dumps(record))
    return tmp_path


def checked(prepared, array: np.ndarray, shift_mm: float = 0.0) -> None:
    affine = np.array(GRID.affine)
    affine[0, 3] += shift_mm
    write(Volume(array.astype(np.float32), affine), prepared / "mask.nii.gz")
    tumour.check(prepared / "mask.nii.gz", prepared)


def cube(edge: int) -> np.ndarray:
    """1 in a corner of the brain, `edge` voxels of 5 mm wide."""
    array = np.zeros(INSIDE.shape)
    array[8 : 8 + edge, 8 : 8 + edge, 8 : 8 + edge] = 1
    return array


RANDOM = np.random.default_rng(1)
LABELS = cube(8) * RANDOM.choice([1, 2, 4], INSIDE.shape)
T2 = RANDOM.integers(1, 900, INSIDE.shape)
PROBABILITY = RANDOM.uniform(0.01, 1, INSIDE.shape)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(cube(8), id="64 ml"),
        pytest.param(cube(12), id="216 ml, 42 % of the brain"),
        pytest.param(cube(8) / 3, id="one value that is no whole number"),
        pytest.param(LABELS, id="the labels of BraTS"),
        pytest.param(np.rint(LABELS * 255 / 4) * 4 / 255, id="the labels of BraTS in 8 bits, as SPM scales them"),
        pytest.param(cube(8) * RANDOM.integers(0, 25, INSIDE.shape), id="25 metastases, each with its number"),
        pytest.param(cube(8) * (np.arange(INSIDE.size).reshape(INSIDE.shape) % 40 + 1), id="and 40"),
    ],
)
def test_a_tumour_mask_is_taken_whatever_its_labels(prepared, array: np.ndarray):
    checked(prepared, array)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        pytest.param(INSIDE, r"512 ml, 100% of the brain; expected 50% or less", id="the whole brain"),
        pytest.param(np.ones_like(INSIDE) * (T2 > 9), r"\d\d\d% of the brain; expected 50%", id="the whole head as a mask"),
        pytest.param(cube(13), r"275 ml, 54% of the brain", id="more than half of the brain"),
        pytest.param(T2, r"4096 ml, 800% of the brain, and 899 values from 1 to 899", id="a T2 scan of a head"),
        pytest.param(T2 * INSIDE, r"512 ml, 100% of the brain, and \d+ values from 1 to 899", id="a stripped T2 scan"),
        pytest.param(T2 * cube(6), r"27 ml, 5% of the brain, and \d+ values", id="a scan of the tumour alone"),
        pytest.param(PROBABILITY * INSIDE, r"512 ml, 100% of the brain, and \d+ values from 0\.01", id="the brain's probability"),
        pytest.param(PROBABILITY.round(1) * cube(8), r"12% of the brain, and 10 values from", id="ten probabilities"),
    ],
)
def test_a_scan_a_brain_and_probabilities_are_no_tumour_mask(prepared, array, words):
    with pytest.raises(UnusablePatient, match=rf"mask\.nii\.gz: the tumour mask holds .*{words}"):
        checked(prepared, array)


@pytest.mark.parametrize(
    ("shift_mm", "words"), [(-15.0, None), (-30.0, "only 25% of the tumour mask's 64 ml"), (-300.0, r"lies 2\d\d mm away")]
)
def test_a_mask_that_lies_mostly_outside_the_brain_is_refused(prepared, shift_mm: float, words: str | None):
    if words is None:
        checked(prepared, cube(8), shift_mm)
        return
    with pytest.raises(UnusablePatient, match=rf"mask\.nii\.gz: .*{words}.*prepared brain"):
        checked(prepared, cube(8), shift_mm)


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
    kept, near = tumour.around(tmp_path / "mask.nii.gz", volume, brain, margin_mm, from_grid, grid, "t1ce", Log())
    away = np.linalg.norm((np.argwhere(brain)[:, None] - np.argwhere(drawn)) * 4.0, axis=-1).min(axis=1)
    expected = np.zeros_like(brain)
    expected[brain] = away <= margin_mm
    np.testing.assert_array_equal(near, expected)
    np.testing.assert_array_equal(kept, np.where(expected, volume, 0))
    with pytest.raises(UnusablePatient, match=r"the tumour mask lies .* mm away from the prepared brain"):
        tumour.around(tmp_path / "mask.nii.gz", volume, brain, margin_mm, np.eye(4), grid, "t1ce", Log())


def test_the_template_is_nilearns_to_the_bit_without_importing_nilearn():
    from nilearn.datasets import load_mni152_template

    ours, image = mni152(), load_mni152_template(resolution=1)
    np.testing.assert_array_equal(ours.array / ours.array.max(), np.asarray(image.get_fdata(), np.float32))
    np.testing.assert_array_equal(ours.affine, image.affine)
