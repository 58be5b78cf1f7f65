"""Moving scans by whole voxels: the windows are those of the dense volume, rolled, wherever a patch was stored."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from mri_vit.data import draw, store, tokens
from mri_vit.data.draw import NO_PATCH, neighbours
from mri_vit.data.store import Held
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid

GRID = Grid(edge=16, spacing_mm=4.0, patch=4)


def volume_and_store(seed: int = 0) -> tuple[np.ndarray, np.ndarray, Held]:
    """A brain of three channels that does not reach the grid's border, and its patches."""
    random = np.random.default_rng(seed)
    brain = np.zeros((16, 16, 16), bool)
    brain[4:12, 3:11, 5:14] = True
    volume = np.where(brain, random.normal(size=(3, 16, 16, 16)), 0).astype(np.float16)
    patches = tokens.patchify(volume, GRID.patch)
    position = np.flatnonzero((patches != 0).any(axis=1)).astype(np.int16)
    rows = torch.from_numpy(np.concatenate([patches[position], np.zeros((1, patches.shape[1]), np.float16)]))
    return volume, position, Held(rows, [position], GRID)


@pytest.mark.parametrize("by", [(1, 0, 0), (0, -2, 0), (0, 0, 2), (2, 1, -2), (-1, -2, 1), (-2, -2, -2)])
def test_a_moved_patch_is_the_patch_of_the_moved_volume(by: tuple[int, int, int]):
    volume, position, held = volume_and_store()
    asked = draw.plain(0, np.arange(len(position)), position.astype(np.int64), 3)
    asked = replace(asked, moved=np.broadcast_to(np.array(by), asked.moved.shape))
    found = held.take(asked).patches[0].numpy()
    expected = tokens.patchify(np.roll(volume, by, (1, 2, 3)), GRID.patch)[position]
    np.testing.assert_array_equal(found, expected)
    mirrored = replace(asked, mirrored=np.ones_like(asked.mirrored))
    flipped = expected.reshape(len(position), 3, 4, 4, 4)[:, :, ::-1].reshape(len(position), -1)
    np.testing.assert_array_equal(held.take(mirrored).patches[0].numpy(), flipped)


def test_air_stays_air_and_who_is_not_moved_is_as_stored():
    _, position, held = volume_and_store()
    asked = draw.plain(0, np.array([0, draw.EMPTY_ROW, 1]), np.array([position[0], 0, position[1]], np.int64), 3)
    two = draw.stacked([asked, replace(asked, moved=np.ones_like(asked.moved))])
    found = held.take(two).patches
    assert torch.equal(found[0], held.take(asked).patches[0])
    assert not torch.equal(found[1], found[0])
    assert (found[:, 1] == 0).all()


def test_neighbours_are_the_places_beside_a_place():
    side, position = 4, np.arange(64, dtype=np.int16)[::-1]
    near = neighbours(position, side)
    for f, (a, b, c) in product((0, 21, 63), product(range(3), repeat=3)):
        i, j, k = np.add(np.unravel_index(int(position[f]), (side,) * 3), (a - 1, b - 1, c - 1))
        inside = min(i, j, k) >= 0 and max(i, j, k) < side
        expected = int(np.flatnonzero(position == (i * side + j) * side + k)[0]) if inside else NO_PATCH
        assert near[f, a, b, c] == expected


def test_moves_are_drawn_up_to_the_length_asked_for_and_change_nothing_else(tiny: Study):
    off, on = (
        tiny.model_copy(update={"train": tiny.train.model_copy(update={"translation_mm": length})}) for length in (0.0, 10.0)
    )
    plain = draw.plain(0, np.arange(40), np.arange(40), 4)
    pairs = [[draw.augmented(plain, study, np.random.default_rng(seed)) for study in (off, on)] for seed in range(200)]
    assert all(np.array_equal(a.gain, b.gain) and np.array_equal(a.mirrored, b.mirrored) for a, b in pairs)
    assert not any(a.moved.any() for a, _ in pairs)
    moves = np.array([b.moved[0, 0] for _, b in pairs])
    assert {tuple(sorted(set(column))) for column in moves.T.tolist()} == {(-1, 0, 1)}  # a voxel is 10 mm


def test_a_length_that_is_a_whole_number_of_voxels_but_for_rounding_is_that_many(tiny: Study):
    of = {
        "train": tiny.train.model_copy(update={"translation_mm": 0.3}),
        "grid": tiny.grid.model_copy(update={"spacing_mm": 0.1}),
    }
    plain, study = draw.plain(0, np.arange(40), np.arange(40), 4), tiny.model_copy(update=of)
    moves = [int(draw.augmented(plain, study, np.random.default_rng(seed)).moved[0, 0, 0]) for seed in range(100)]
    assert (min(moves), max(moves)) == (-3, 3)


def test_a_moved_epoch_is_the_same_from_memory_and_from_disk(tiny: Study):
    files = [tiny.prepared / f"p{i:02d}" / "tokens.safetensors" for i in range(3)]
    held, read = store.held(files, torch.device("cpu")), store.Read(files, torch.device("cpu"))
    parts = [draw.drawn(i, held.position[i], tiny, 20, np.random.default_rng(i)) for i in (2, 0, 2)]
    moved = [replace(part, moved=np.full_like(part.moved, step)) for step, part in zip((1, 0, -1), parts, strict=True)]
    asked = draw.stacked(moved)
    assert torch.equal(held.take(asked).patches, read.take(asked).patches)
    assert torch.equal(held.take(asked).patches[1], held.take(parts[1]).patches[0])
