"""Rollout against exact fractions and the full matrix product, and maps against known places in the world."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import nibabel as nib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nibabel.affines import apply_affine
from scipy.spatial.transform import Rotation

from mri_vit.config import Grid
from mri_vit.explain.native import on_grid, to_native
from mri_vit.explain.rollout import chain, rollout
from mri_vit.model.encoder import Encoder, attention_weights
from mri_vit.volume import Volume

GRID = Grid(edge=56, spacing_mm=4.0, patch=4)


def full_product(matrices: list[torch.Tensor]) -> torch.Tensor:
    """The definition, written out: Â = ½·mean + ½·I for each block, the last block on the left."""
    product = torch.eye(matrices[0].shape[-1], dtype=matrices[0].dtype).expand(len(matrices[0]), -1, -1)
    for attention in matrices:
        product = (attention.mean(dim=1) / 2 + torch.eye(attention.shape[-1], dtype=attention.dtype) / 2) @ product
    return product[:, 0]


@settings(deadline=None, max_examples=20)
@given(depth=st.integers(1, 4), heads=st.sampled_from([1, 2, 4]), n=st.integers(2, 27), seed=st.integers(0, 100))
def test_the_carried_row_is_the_cls_row_of_the_full_product(depth: int, heads: int, n: int, seed: int):
    torch.manual_seed(seed)
    encoder = Encoder(32, 27, 16, depth, heads, 32).double().eval()
    patches = 3 * torch.randn(2, n, 32, dtype=torch.float64)
    place = torch.stack([torch.randperm(27)[:n] for _ in range(2)])
    row = rollout(encoder, patches, place)
    torch.testing.assert_close(row, full_product(encoder.attention(patches, place)).detach(), atol=1e-6, rtol=0)
    torch.testing.assert_close(row.sum(dim=1), torch.ones(2, dtype=torch.float64), atol=1e-6, rtol=0)


def test_each_item_of_a_batch_has_its_own_map():
    torch.manual_seed(0)
    encoder = Encoder(32, 27, 16, 3, 2, 32).eval()
    patches, place = 3 * torch.randn(3, 9, 32), torch.stack([torch.randperm(27)[:9] for _ in range(3)])
    alone = torch.cat([rollout(encoder, patches[i : i + 1], place[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(rollout(encoder, patches, place), alone, atol=1e-6, rtol=0)


def test_the_exact_toy_comes_out_in_its_fractions(shared):
    toy = json.loads((shared / "refs" / "rollout_toy.json").read_text())
    layers = [
        torch.tensor([[[float(Fraction(x)) for x in row] for row in head] for head in layer])
        for layer in toy["layers_heads_rows"]
    ]
    means = [layer.double().mean(dim=0)[None] for layer in layers]
    row = chain(means[-1][:, 0].clone(), means[:-1])[0]
    assert row.tolist() == pytest.approx([float(Fraction(x)) for x in toy["rollout_mean"]["matrix"][0]], abs=1e-7)


def test_the_four_token_toy_on_which_the_popular_code_goes_wrong(shared):
    toy = json.loads((shared / "refs" / "rollout_toy.json").read_text())
    layers = torch.tensor(toy["toy4_layers"], dtype=torch.float64)
    assert chain(layers[1][None, 0].clone(), [layers[0][None]])[0].tolist() == pytest.approx(toy["toy4_dr0"]["fixed"], abs=1e-12)


def test_the_worked_attention_example(shared):
    toy = json.loads((shared / "refs" / "rollout_toy.json").read_text())["seed004_attention"]
    q, k = torch.tensor(toy["q"], dtype=torch.float64), torch.tensor(toy["K=V"], dtype=torch.float64)
    unscaled = attention_weights(q[None, None, None] * math.sqrt(3), k[None, None])[0, 0, 0]  # takes back the division by √3
    assert unscaled.tolist() == pytest.approx(toy["weights"], abs=1e-9)
    assert [round(x, 3) for x in unscaled.tolist()] == toy["printed_weights"]
    assert [round(x, 3) for x in (unscaled @ k).tolist()] == toy["printed_context"]
    assert attention_weights(q[None, None, None], k[None, None])[0, 0, 0].tolist() == pytest.approx(
        toy["scaled_by_sqrt3_weights"], abs=1e-9
    )


def hot_place(point_mm: np.ndarray) -> tuple[Volume, np.ndarray]:
    """A map that is hot at the place nearest to a grid point, and that place's centre in grid mm."""
    size_mm = GRID.patch * GRID.spacing_mm
    corner = np.array(GRID.affine)[:3, 3] - GRID.spacing_mm / 2
    index = ((point_mm - corner) // size_mm).astype(int)
    value = np.zeros(GRID.places, np.float32)
    value[np.ravel_multi_index(tuple(index), (GRID.side,) * 3)] = 1
    brain = np.ones((GRID.edge,) * 3, bool)
    return on_grid(value, np.arange(GRID.places), brain, GRID), corner + (index + 0.5) * size_mm


def test_a_value_lies_on_its_own_place_of_the_grid():
    volume, centre = hot_place(np.array([37.0, -50.0, 20.0]))
    weight = volume.array / volume.array.sum()
    points = (
        np.stack(np.meshgrid(*[np.arange(GRID.edge)] * 3, indexing="ij"), -1) @ volume.affine[:3, :3].T + volume.affine[:3, 3]
    )
    np.testing.assert_allclose((weight[..., None] * points).sum(axis=(0, 1, 2)), centre, atol=0.5)


def test_a_constant_map_stays_constant_up_to_the_brains_border():
    rng = np.random.default_rng(0)
    place = np.sort(rng.choice(GRID.places, 500, replace=False))
    brain = np.zeros(GRID.places, bool)
    brain[place] = True
    dense = brain.reshape((GRID.side,) * 3).repeat(4, 0).repeat(4, 1).repeat(4, 2)
    volume = on_grid(np.full(500, 3.0, np.float32), place, dense, GRID)
    np.testing.assert_allclose(volume.array[dense], 3.0, rtol=1e-5)
    assert not volume.array[~dense].any()


@pytest.mark.parametrize("codes", [c for c in itertools.product("RL", "AP", "SI")] + [("S", "R", "P"), ("A", "I", "L")])
@pytest.mark.parametrize("oblique", [0, 17])
def test_a_hot_place_lands_at_its_world_position_in_any_native_scan(codes: tuple[str, str, str], oblique: int):
    grid_mark = np.array([37.0, -50.0, 20.0])  # to the right, at the back, above
    heat, centre = hot_place(grid_mark)
    to_grid = np.eye(4)
    to_grid[:3, :3] = Rotation.from_euler("xyz", [5, -7, 4], degrees=True).as_matrix()
    to_grid[:3, 3] = [3, -12, 8]
    shape = np.array([60, 72, 40])
    affine = np.eye(4)
    affine[:3, :3] = Rotation.from_euler("zyx", [oblique, oblique / 2, 0], degrees=True).as_matrix() @ np.diag([3.0, 3.0, 5.0])
    affine[:3, 3] = -affine[:3, :3] @ (shape / 2) + [0, -20, 0]
    ornt = nib.orientations.ornt_transform(nib.orientations.axcodes2ornt(codes), nib.orientations.axcodes2ornt("RAS"))
    turned = affine @ nib.orientations.inv_ornt_aff(ornt, shape)
    native = Volume(
        np.zeros(nib.orientations.apply_orientation(np.empty(shape), nib.orientations.axcodes2ornt(codes)).shape, np.uint8),
        turned,
    )
    seen = to_native(heat, native, to_grid)
    peak = apply_affine(turned, np.array(np.unravel_index(seen.array.argmax(), seen.shape)))
    expected = apply_affine(np.linalg.inv(to_grid), centre)
    assert np.linalg.norm(peak - expected) < 16  # one place
    assert peak[0] > 0  # the right stays right
