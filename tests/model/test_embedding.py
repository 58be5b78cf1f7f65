"""The patch embeddings: each reads its own patch and nothing else, and convolutions are those of a dense volume's patch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mri_vit.data import tokens
from mri_vit.model.encoder import ENERGY_EPS, VAR_EPS, ConvolutionalStem, TexturedStem, embedding, mean_square

KINDS = [(None, None), (12, None), (None, 6)]  # linear, two maps, convolutions
DIM = 10


def made(stem: int | None, conv_stem: int | None, edge: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return embedding(4 * edge**3, DIM, stem, conv_stem, channels=4)


def convolved(stem: ConvolutionalStem, cube: Tensor) -> Tensor:
    """The stem's token of one cube [c x y z], each convolution written out."""
    x = cube[None]
    *strided, last = [layer for layer in stem.layers if isinstance(layer, nn.Conv3d)]
    for layer in strided:
        x = F.gelu(F.conv3d(x, layer.weight, layer.bias, stride=2, padding=1))
    return F.conv3d(x, last.weight, last.bias)[0, :, 0, 0, 0]


@pytest.mark.parametrize("edge", [1, 2, 3, 4, 6, 8, 16])
def test_the_convolutional_stem_is_a_dense_convolution_of_each_patch_by_itself(edge: int):
    stem = made(None, 6, edge)
    assert isinstance(stem, ConvolutionalStem)
    volume = np.random.default_rng(edge).normal(size=(4, 2 * edge, 2 * edge, 2 * edge)).astype(np.float32)
    found = stem(torch.from_numpy(tokens.patchify(volume, edge))[None])[0]
    for position in range(8):
        i, j, k = (edge * index for index in np.unravel_index(position, (2, 2, 2)))
        cube = torch.from_numpy(volume[:, i : i + edge, j : j + edge, k : k + edge])
        torch.testing.assert_close(found[position], convolved(stem, cube), atol=1e-5, rtol=1e-5)


def test_each_strided_convolution_halves_the_edge_and_doubles_the_channels():
    stem = made(None, 6, edge=16)
    assert isinstance(stem, ConvolutionalStem)
    layers = [layer for layer in stem.layers if isinstance(layer, nn.Conv3d)]
    assert [(layer.in_channels, layer.out_channels) for layer in layers] == [(4, 6), (6, 12), (12, 24), (24, DIM)]
    assert [layer.kernel_size for layer in layers] == [(3, 3, 3)] * 3 + [(2, 2, 2)]  # 16, 8, 4, then 2 voxels are left


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d], ids=str)
def test_a_mean_square_and_its_slope_are_those_of_the_formula(layout: torch.memory_format):
    torch.manual_seed(0)
    x = torch.randn(3, 4, 2, 3, 2, dtype=torch.double).contiguous(memory_format=layout).requires_grad_()
    torch.testing.assert_close(mean_square(x), x.square().mean(dim=(2, 3, 4)))
    assert torch.autograd.gradcheck(mean_square, x)
    half = x.detach().bfloat16()
    torch.testing.assert_close(mean_square(half), half.float().square().mean(dim=(2, 3, 4)))  # summed in single precision


def textured(edge: int = 4, filters: int = 5) -> TexturedStem:
    torch.manual_seed(0)
    stem = embedding(4 * edge**3, DIM, None, 6, channels=4, texture=filters)
    assert isinstance(stem, TexturedStem)
    return stem


@pytest.mark.parametrize("edge", [2, 3, 4, 8])
def test_texture_adds_the_log_energy_of_filters_that_see_no_brightness(edge: int):
    stem, cube = textured(edge), torch.randn(1, 4, edge, edge, edge)
    mean, variance = cube.mean(dim=(2, 3, 4), keepdim=True), cube.var(dim=(2, 3, 4), keepdim=True)
    both = torch.cat([cube, (cube - mean) / (variance + VAR_EPS).sqrt()], dim=1)
    weight = stem.filters.weight - stem.filters.weight.mean(dim=(2, 3, 4), keepdim=True)
    energy = F.conv3d(both, weight).pow(2).mean(dim=(2, 3, 4))
    expected = stem.energy((energy + ENERGY_EPS).log())[0] + convolved(stem.stem, both[0])
    torch.testing.assert_close(stem(cube.reshape(1, 1, -1))[0, 0], expected, atol=1e-5, rtol=1e-4)
    lifted = torch.cat([cube + 3, (cube - mean) / (variance + VAR_EPS).sqrt()], dim=1)  # brighter by 3 everywhere
    torch.testing.assert_close(F.conv3d(lifted, weight), F.conv3d(both, weight), atol=1e-4, rtol=1e-3)


def test_an_even_patch_is_embedded_by_finite_numbers():
    for value in (0.0, 1.0):
        patch = torch.full((1, 1, 256), value, requires_grad=True)
        token = textured()(patch)
        token.sum().backward()
        assert token.isfinite().all()
        assert patch.grad is not None
        assert patch.grad.isfinite().all()


@pytest.mark.parametrize(("stem", "conv_stem"), KINDS)
def test_a_token_is_of_its_own_patch_alone(stem: int | None, conv_stem: int | None):
    embed = made(stem, conv_stem)
    generator = torch.Generator().manual_seed(1)
    patches = torch.randn(2, 7, 256, generator=generator)
    changed = patches.clone()
    changed[1, 3] = torch.randn(256, generator=generator)
    before, after = embed(patches), embed(changed)
    assert before.shape == (2, 7, DIM)
    other = (before - after).abs().amax(dim=2) > 1e-6
    assert other.nonzero().tolist() == [[1, 3]]
    torch.testing.assert_close(embed(patches[:1, [5]])[0, 0], before[0, 5], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("stem", "conv_stem"), KINDS)
def test_every_voxel_of_every_scan_is_read(stem: int | None, conv_stem: int | None):
    patches = torch.randn(1, 1, 256, generator=torch.Generator().manual_seed(1), requires_grad=True)
    made(stem, conv_stem)(patches).square().sum().backward()
    assert patches.grad is not None
    assert (patches.grad != 0).all()


@pytest.mark.parametrize("edge", range(1, 33))
def test_the_edge_of_a_patch_is_found_from_how_many_numbers_it_has(edge: int):
    with torch.device("meta"):
        stem = made(None, 2, edge)
    assert isinstance(stem, ConvolutionalStem)
    assert stem.edge == edge
