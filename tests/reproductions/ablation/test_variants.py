"""Variants of the encoder, held to PyTorch's own layers, to sums over pairs written out, and to the encoder where they are it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reproductions.ablation import vit_variants
from reproductions.ablation.vit_variants import VARIANTS, Along, Everywhere, Relative, Variant, Window, attended
from torch import Tensor, nn

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.model import network
from mri_vit.model.encoder import Block, Encoder
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.settings.schema import CHANNELS, Endpoint, Model
from mri_vit.settings.sections import Grid

SIDE = 4
GRID = Grid(edge=2 * SIDE, spacing_mm=8.0, patch=2)
MODEL = Model(dim=24, depth=2, heads=4, mlp=48, drop_path=0.0)
MGMT = Head(Endpoint(name="mgmt", kind="binary"), "binary")


def made(name: str, **changes: Any) -> Any:
    """The variant of this name, or the encoder itself, with weights of which each matters."""
    torch.manual_seed(0)
    encode = VARIANTS[name].encode if name in VARIANTS else network.encoder
    net = encode(MODEL.model_copy(update=changes), GRID, CHANNELS).eval()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3)
    return net


def inputs(batch: int = 2, n: int = 20, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Patches at n of the grid's places, other places for each patient."""
    generator = torch.Generator().manual_seed(seed)
    position = torch.stack([torch.randperm(GRID.positions, generator=generator)[:n] for _ in range(batch)])
    return torch.randn(batch, n, 32, generator=generator), position


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


# --- of the encoder's own parts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["cls", "mean", "max"])
@pytest.mark.parametrize("padded", [False, True])
def test_with_the_encoders_positions_steps_and_full_attention_a_variant_is_the_encoder(pool: Any, padded: bool):
    own = made("vit", pool=pool)
    patches, position = inputs()
    present = torch.arange(20).expand(2, -1) < torch.tensor([[20], [13]]) if padded else None
    expected = own(patches, position, present)
    close(Variant(own, vit_variants.learned(own), vit_variants.full(own))(patches, position, present), expected)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_takes_tokens_in_any_order(name: str):
    net, (patches, position) = made(name), inputs()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(2))
    close(net(patches[:, order], position[:, order]), net(patches, position))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("pool", ["cls", "max"])
def test_what_is_not_present_changes_nothing_in_any_variant(name: str, pool: str):
    net, (patches, position) = made(name, pool=pool), inputs(1)
    padded = F.pad(patches, (0, 0, 0, 5), value=7.0), F.pad(position, (0, 5), value=-1)
    close(net(*padded, torch.arange(25)[None] < 20), net(patches, position))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_weight_of_every_variant_is_learned(name: str):
    net, (patches, position) = made(name), inputs()
    net(patches, position).square().sum().backward()
    still = [key for key, weight in net.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not [key for key in still if "scores.1" not in key]
    if name == "relative":  # of the last block CLS alone is read, and its scores have no offset
        assert still == ["scores.1.offsets"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variants_file_is_read_as_what_it_is_and_as_nothing_else(tmp_path: Path, name: str):
    torch.manual_seed(0)
    encode, (patches, position) = VARIANTS[name].encode, inputs()
    net = Network(MODEL.model_copy(update={"zero_head": False}), GRID, [MGMT], encode=encode).eval()
    network.save(net, path := tmp_path / "net.safetensors")
    again = network.load(path, encode).eval()
    close(again(patches, position)["mgmt"], net(patches, position)["mgmt"])
    with pytest.raises(IntegrityError, match=f"found the variant {encode.__name__}; expected none"):
        network.load(path)
    other = vit_variants.local if encode is not vit_variants.local else vit_variants.axial
    with pytest.raises(IntegrityError, match=f"expected {other.__name__}"):
        network.load(path, other)


def test_an_encoders_file_is_no_variants(tmp_path: Path):
    network.save(Network(MODEL, GRID, [MGMT]), path := tmp_path / "net.safetensors")
    with pytest.raises(IntegrityError, match="found the variant none; expected local"):
        network.load(path, vit_variants.local)


def test_variants_are_of_vision_transformers_alone():
    with pytest.raises(UsageError, match="found resnet10"):
        vit_variants.local(Model(architecture="resnet10"), GRID, CHANNELS)


# --- positions ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vit", *VARIANTS])
def test_without_positions_alone_places_may_be_shuffled_over_the_patches(name: str):
    net, (patches, position) = made(name), inputs()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(2))
    change = (net(patches, position[:, order]) - net(patches, position)).abs().max()
    assert change < 1e-5 if name == "no-positions" else change > 1e-3


def test_a_relative_score_is_the_querys_product_with_what_is_learned_of_the_offset():
    torch.manual_seed(0)
    scores, (_, position) = Relative(SIDE, 6), inputs(n=9)
    nn.init.normal_(scores.offsets)
    q = torch.randn(2, 3, 10, 6)
    found = scores(q, position)
    assert not found[:, :, 0].any()
    assert not found[:, :, :, 0].any()
    for b in range(2):
        for i in range(9):
            for j in range(9):
                here, there = ((int(position[b, k]) // 16, int(position[b, k]) // 4 % 4, int(position[b, k]) % 4) for k in (i, j))
                vector = sum(scores.offsets[axis, here[axis] - there[axis] + SIDE - 1] for axis in range(3))
                close(found[b, :, i + 1, j + 1], q[b, :, i + 1] @ vector / math.sqrt(6))


@pytest.mark.parametrize("step", [1, SIDE, SIDE * SIDE])  # along z, y, x
def test_relative_scores_depend_on_the_offset_alone(step: int):
    torch.manual_seed(0)
    scores, q = Relative(SIDE, 6), torch.randn(1, 3, 9, 6)
    corner = torch.tensor([[(i * SIDE + j) * SIDE + k for i in (0, 1) for j in (0, 2) for k in (0, 1)]])
    close(scores(q, corner + step), scores(q, corner))
    farther = corner + step * (corner == corner.max())  # one token alone moves
    assert not torch.allclose(scores(q, farther), scores(q, corner), atol=1e-3)


def test_places_with_a_common_coordinate_share_what_is_learned_of_it():
    positions = vit_variants.PerCoordinate(SIDE, 25)
    at = positions(torch.arange(SIDE**3)[None])[0].unflatten(0, (SIDE, SIDE, SIDE))
    assert at.shape == (SIDE, SIDE, SIDE, 25)
    for axis, width in enumerate((slice(0, 9), slice(9, 17), slice(17, 25))):
        lines = at[..., width].movedim(axis, 0).flatten(1, 2)
        assert (lines == lines[:, :1]).all()
        assert len(lines[:, 0].unique(dim=0)) == SIDE


def test_waves_of_the_raster_are_those_of_a_sentence():
    found = vit_variants.line_waves(torch.arange(7), 10, vit_variants.SENTENCES)
    for number in range(7):
        for pair in range(5):
            angle = number / 10_000 ** (2 * pair / 10)
            close(found[number, [pair, 5 + pair]], torch.tensor([math.sin(angle), math.cos(angle)]))


# --- norms --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "activation"), [(vit_variants.pre_norm, "gelu"), (vit_variants.post_norm, "relu")])
def test_a_block_is_pytorchs_with_norms_before_and_gelu_or_after_and_relu(step: vit_variants.Step, activation: str):
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(
        24, 4, 48, dropout=0.0, activation=activation, norm_first=step is vit_variants.pre_norm, batch_first=True
    )
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = Block(24, 4, 48, 0.0)
    ours.mlp[1] = nn.ReLU() if activation == "relu" else nn.GELU()
    names = {
        "attention.qkv.weight": "self_attn.in_proj_weight", "attention.qkv.bias": "self_attn.in_proj_bias",
        "attention.out.weight": "self_attn.out_proj.weight", "attention.out.bias": "self_attn.out_proj.bias",
        **{f"{our}.{kind}": f"{their}.{kind}" for our, their in (
            ("norm1", "norm1"), ("norm2", "norm2"), ("mlp.0", "linear1"), ("mlp.2", "linear2")
        ) for kind in ("weight", "bias")},
    }  # fmt: skip
    source = theirs.state_dict()
    ours.load_state_dict({our: source[their] for our, their in names.items()})
    x = torch.randn(2, 9, 24)
    close(step(ours, x, lambda q: q.new_zeros(1, 1, 1, 1)), theirs(x))


def test_the_post_norm_variant_is_made_of_such_blocks_and_ends_with_them():
    net, (patches, position) = made("post-norm-relu"), inputs()
    assert [type(block.mlp[1]) for block in net.blocks] == [nn.ReLU] * 2
    tokens = net.embed(patches) + net.position(position)
    x = torch.cat([net.cls.expand(2, -1, -1), tokens], dim=1)
    for block in net.blocks:
        x = block.norm1(x + block.attention(x))
        x = block.norm2(x + block.mlp[2](F.relu(block.mlp[0](x))))
    close(net(patches, position), x[:, 0])


# --- local and axial attention ------------------------------------------------------------------------------------------------


def test_a_window_that_is_the_whole_grid_is_full_attention():
    own, (patches, position) = made("vit"), inputs()
    whole = Variant(own, vit_variants.learned(own), [Window(SIDE, SIDE - 1) for _ in own.blocks])
    close(whole(patches, position), own(patches, position))
    less = Variant(own, vit_variants.learned(own), [Window(SIDE, SIDE - 2) for _ in own.blocks])
    assert (less(patches, position) - own(patches, position)).abs().max() > 1e-3


def test_axial_attention_on_a_grid_of_one_row_is_full_attention():
    own = made("vit", depth=1)
    for axis, step in enumerate((SIDE * SIDE, SIDE, 1)):
        row = 21 // step % SIDE  # the row through place 21 = (1, 1, 1)
        position = (21 + step * (torch.arange(SIDE) - row))[None]
        patches = torch.randn(1, SIDE, 32)
        for other in range(3):
            along = Variant(own, vit_variants.learned(own), [Along(SIDE, other)])
            close(attention(own, along, patches, position)[:, 0], attention(own, own, patches, position)[:, 0])  # CLS sees all
            same = torch.allclose(attention(own, along, patches, position), attention(own, own, patches, position), atol=1e-5)
            assert same == (other == axis)


def attention(own: Encoder, net: Encoder | Variant, patches: Tensor, position: Tensor) -> Tensor:
    """What the first block's attention puts out, for all tokens."""
    (block,), x = own.layers, own.tokens(patches, position)
    scores = net.scores[0] if isinstance(net, Variant) else Everywhere()
    return attended(block.attention, block.norm1(x), lambda q: scores(q, position))


@pytest.mark.parametrize(
    "scores", [Window(SIDE, 0), Window(SIDE, 1), Window(SIDE, 2), Along(SIDE, 0), Along(SIDE, 1), Along(SIDE, 2)]
)
def test_a_place_attends_to_cls_and_to_its_window_or_line_as_if_there_were_nobody_else(scores: Window | Along):
    own, (patches, position) = made("vit"), inputs(1)
    block, x = own.layers[0], own.tokens(patches, position)
    found = attended(block.attention, x, lambda q: scores(q, position))
    close(found[:, 0], block.attention(x)[:, 0])
    where = [(*divmod(int(one) // SIDE, SIDE), int(one) % SIDE) for one in position[0]]
    for i, here in enumerate(where):
        apart = [[abs(a - b) for a, b in zip(here, there, strict=True)] for there in where]
        if isinstance(scores, Window):
            seen = [j for j, far in enumerate(apart) if max(far) <= scores.reach]
        else:
            seen = [j for j, far in enumerate(apart) if not any(far[other] for other in scores.others)]
        alone = x[:, [0, i + 1, *(j + 1 for j in seen if j != i)]]
        close(found[:, i + 1], block.attention(alone)[:, 1])


def test_an_axial_block_is_three_along_x_y_and_z():
    assert [score.others for score in made("axial").scores] == [[1, 2], [0, 2], [0, 1]] * 2
