"""The prepared patient on disk: exact, small and refusing what it is not."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from made.examples import examples
from made.views import flipped

from mri_vit.data import tokens
from mri_vit.errors import IntegrityError
from mri_vit.settings.schema import CHANNELS
from mri_vit.settings.sections import Grid

GRID = Grid(edge=12, spacing_mm=2.0, patch=3)


def prepared(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(4, 12, 12, 12)).astype(np.float32), rng.random((12, 12, 12)) < 0.02


@examples(25)
@given(st.integers(0, 1000))
def test_the_dense_volume_comes_back_exactly(seed: int):
    volume, brain = prepared(seed)
    made = tokens.from_volume(volume, brain, GRID, "-")
    np.testing.assert_array_equal(tokens.to_volume(made), np.where(brain, volume, 0).astype(np.float16))
    held = {tuple(index // 3) for index in np.argwhere(brain)}
    assert {tuple(int(i) for i in np.unravel_index(p, (4, 4, 4))) for p in made.position} == held


@examples(25)
@given(st.integers(0, 1000))
def test_the_mirror_is_that_of_the_dense_volume(seed: int):
    volume, brain = prepared(seed)
    made = tokens.from_volume(volume, brain, GRID, "-")
    np.testing.assert_array_equal(tokens.to_volume(flipped(made)), tokens.to_volume(made)[:, ::-1])


def test_place_counts_z_fastest_as_the_design_says():
    brain = np.zeros((12, 12, 12), bool)
    brain[3, 6, 9] = True
    assert tokens.from_volume(np.zeros((4, 12, 12, 12), np.float32), brain, GRID, "-").position.tolist() == [(1 * 4 + 2) * 4 + 3]


def test_a_file_says_what_it_is_and_is_read_back(tmp_path):
    made = tokens.from_volume(*prepared(0), GRID, "abc")
    tokens.save(made, tmp_path / "tokens.safetensors")
    again = tokens.load(tmp_path / "tokens.safetensors")
    np.testing.assert_array_equal(tokens.load_place(tmp_path / "tokens.safetensors"), made.position)
    np.testing.assert_array_equal(again.patches, made.patches)
    np.testing.assert_array_equal(again.position, made.position)
    assert (again.grid, again.config_sha256) == (GRID, "abc")
    assert not list(tmp_path.glob("*.part"))


def test_another_channel_order_or_a_damaged_file_is_refused(tmp_path):
    arrays = {"patches": np.zeros((1, 108), np.float16), "place": np.zeros(1, np.int16)}
    metadata = {
        "schema": tokens.SCHEMA,
        "channels": json.dumps(["t2", "t1", "t1ce", "flair"]),
        "grid": GRID.model_dump_json(),
        "config_sha256": "",
    }
    (tmp_path / "other").write_bytes(safetensors.numpy.save(arrays, metadata))
    with pytest.raises(IntegrityError, match="found the sequences t2, t1, t1ce, flair; expected t1, t1ce, t2, flair"):
        tokens.load(tmp_path / "other", CHANNELS)
    (tmp_path / "cut").write_bytes((tmp_path / "other").read_bytes()[:50])
    with pytest.raises(IntegrityError, match="cut: not a prepared patient"):
        tokens.load(tmp_path / "cut")


def test_the_default_grid_has_2744_places_and_mirrors_about_the_midline():
    grid = Grid()
    assert (grid.side, grid.positions) == (14, 2744)
    x = np.array(grid.affine) @ np.array([[0, 223], [0, 0], [0, 0], [1, 1]])
    assert x[0, 0] == -x[0, 1]
