"""A 3D DINO ViT from a file gives what transformers' DINOv3 and DINOv2 give where they are given the same tokens and angles."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
from einops import rearrange
from made.foreign import State, dino_state, written
from torch import Tensor, nn

from mri_vit.errors import UsageError
from mri_vit.features import transformers
from mri_vit.features.fitting import CLS, MEAN, Foreign
from mri_vit.model.checkpoint import read_tensors


def loaded(path: Path, heads: int | None = None, edge: int | None = None) -> Foreign:
    return transformers.read_dino(read_tensors(path), path, heads, edge)


class Angles3D(nn.Module):
    """transformers' rotary table with a third axis: the middles of patches, 2π · coordinate / period, pairs as halves."""

    def __init__(self, side: int, periods: Tensor) -> None:
        super().__init__()
        self.side, self.periods = side, periods

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        middles = 2.0 * torch.arange(0.5, self.side) / self.side - 1.0
        coordinates = torch.cartesian_prod(middles, middles, middles)
        angles = (2 * math.pi * coordinates[:, :, None] / self.periods[None, None, :]).flatten(1, 2).tile(2)
        return angles.cos(), angles.sin()


def of_transformers(state: State, blocks: str, mlp: dict[str, str]) -> State:
    """Our tiny file's weights under transformers' names (5.23), which has each linear map apart."""
    found = {f"embeddings.{key}": state[key] for key in ("cls_token", "register_tokens")}
    for key, value in state.items():
        if match := re.match(r"blocks\.(\d+)\.(.+)\.(\w+)$", key):
            number, part, kind = match.groups()
            before = f"{blocks}{number}."
            if part == "attn.qkv":
                found |= {f"{before}attention.{n}_proj.{kind}": one for n, one in zip("qkv", value.chunk(3), strict=True)}
            elif part == "mlp.w12":
                found |= {f"{before}mlp.{n}_proj.{kind}": one for n, one in zip(("gate", "up"), value.chunk(2), strict=True)}
            elif part in ("ls1", "ls2"):
                found[f"{before}layer_scale{part[-1]}.lambda1"] = value
            else:
                found[f"{before}{ {'attn.proj': 'attention.o_proj', **mlp}.get(part, part) }.{kind}"] = value
    return found


def test_rotary_features_are_those_of_transformers_dinov3_with_a_third_axis(tmp_path: Path):
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    state = dino_state()
    config = DINOv3ViTConfig(
        hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_register_tokens=3, patch_size=4,
        num_channels=1, image_size=12, key_bias=True, layer_norm_eps=1e-5,
    )  # fmt: skip
    theirs = DINOv3ViTModel(config).eval()
    theirs.embeddings.patch_embeddings = nn.Conv3d(1, 24, 4, stride=4)  # type: ignore[assignment]
    theirs.rope_embeddings = Angles3D(3, state["rope_embed.periods"])  # type: ignore[assignment]
    weights = of_transformers(state, "model.layer.", {"mlp.fc1": "mlp.up_proj", "mlp.fc2": "mlp.down_proj"})
    for kind in ("weight", "bias"):
        weights |= {
            f"embeddings.patch_embeddings.{kind}": state[f"patch_embed.proj.{kind}"],
            f"norm.{kind}": state[f"norm.{kind}"],
        }
    assert theirs.load_state_dict(weights, strict=False) == (["embeddings.mask_token"], [])
    volume = torch.randn(2, 1, 12, 12, 12)
    with torch.no_grad():
        expected = theirs(volume).last_hidden_state
    found = loaded(written(state, tmp_path / "w.pth"))
    torch.testing.assert_close(found.network.tokens(volume), expected, rtol=1e-4, atol=1e-5)
    read = found.network(volume)
    torch.testing.assert_close(read[CLS], expected[:, 0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(read[MEAN], expected[:, 4:].mean(dim=1), rtol=1e-4, atol=1e-5)
    assert (found.channels, found.edge, found.patch, found.heads) == (1, None, 4, 2)


@pytest.mark.parametrize("swiglu", [False, True])
def test_learned_features_are_those_of_transformers_dinov2_given_each_patch_as_a_pixel(tmp_path: Path, swiglu: bool):
    """A learned table knows no axes: 4³ places are as well 8² pixels, each of as many channels as a patch has voxels."""
    from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    state = dino_state(rotary=False, swiglu=swiglu)
    config = Dinov2WithRegistersConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, num_register_tokens=3, patch_size=1, num_channels=64,
        image_size=8, use_swiglu_ffn=swiglu, mlp_ratio=2, layer_norm_eps=1e-6,
    )  # fmt: skip
    theirs = Dinov2WithRegistersModel(config).eval()
    weights = of_transformers(state, "encoder.layer.", {"mlp.w3": "mlp.down_proj"})
    weights["embeddings.position_embeddings"] = state["pos_embed"]
    weights["embeddings.patch_embeddings.projection.weight"] = rearrange(
        state["patch_embed.proj.weight"], "d 1 x y z -> d (x y z) 1 1"
    )
    weights["embeddings.patch_embeddings.projection.bias"] = state["patch_embed.proj.bias"]
    weights |= {f"layernorm.{kind}": state[f"norm.{kind}"] for kind in ("weight", "bias")}
    assert theirs.load_state_dict(weights, strict=False) == (["embeddings.mask_token"], [])
    volume = torch.randn(2, 1, 16, 16, 16)
    pixels = rearrange(volume, "b 1 (i x) (j y) (k z) -> b (x y z) (i j k)", x=4, y=4, z=4).unflatten(-1, (8, 8))
    with torch.no_grad():
        expected = theirs(pixels).last_hidden_state
    found = loaded(written(state, tmp_path / "w.safetensors", "teacher.backbone."), heads=2)
    torch.testing.assert_close(found.network.tokens(volume), expected, rtol=1e-4, atol=1e-5)
    assert found.edge == 16


def as_published(state: State, how: str) -> State:
    """The same weights under another code's names."""
    if how == "chunks":  # DINOv2's, whose blocks lie in several lists
        return {key.replace("blocks.0.", "blocks.0.0.").replace("blocks.1.", "blocks.1.1."): one for key, one in state.items()}
    if how == "storage":  # DINOv3's, which masks the key's bias
        renamed = {key.replace("register_tokens", "storage_tokens"): one for key, one in state.items()}
        for key in [key for key in renamed if key.endswith("qkv.bias")]:
            one = torch.ones(3, 24)
            one[1] = torch.nan if "0" in key else 0.0
            renamed[f"{key}_mask"] = one.flatten()
        return renamed
    renamed = {}  # queries apart from keys and values, as in SPECTRE's code
    for key, one in state.items():
        if ".attn.qkv." in key:
            renamed |= {key.replace("qkv", "q"): one[:24], key.replace("qkv", "kv"): one[24:]}
        else:
            renamed[key.replace("register_tokens", "reg_token").replace("rope_embed.", "rope.")] = one
    return renamed


@pytest.mark.parametrize("how", ["chunks", "storage", "apart"])
def test_other_names_mean_the_same_weights(tmp_path: Path, how: str):
    state = dino_state()
    if how == "storage":
        for block in (0, 1):
            state[f"blocks.{block}.attn.qkv.bias"][24:48] = 0  # what the mask makes of it
    volume = torch.randn(1, 1, 8, 8, 8)
    plain, other = (
        loaded(written(one, tmp_path / f"{i}.pth")).network(volume) for i, one in enumerate((state, as_published(state, how)))
    )
    assert torch.equal(plain[CLS], other[CLS])
    assert torch.equal(plain[MEAN], other[MEAN])


def test_registers_and_layer_scale_may_be_absent(tmp_path: Path):
    state = {key: one for key, one in dino_state().items() if "register" not in key and ".ls" not in key}
    assert loaded(written(state, tmp_path / "w.pth")).network.tokens(torch.randn(1, 1, 8, 8, 8)).shape == (1, 9, 24)


@pytest.mark.parametrize("key", [key for key in dino_state() if key != "mask_token" and "rope" not in key])
def test_every_weight_of_the_file_moves_the_features(tmp_path: Path, key: str):
    volume = torch.randn(1, 1, 8, 8, 8)
    moved = dino_state()
    moved[key] = moved[key] + torch.linspace(-1, 1, moved[key].numel()).reshape(moved[key].shape)
    before, after = (loaded(written(one, tmp_path / f"{i}.pth")).network(volume) for i, one in enumerate((dino_state(), moved)))
    assert not torch.allclose(before[CLS], after[CLS], atol=1e-4)


def test_a_file_that_does_not_fit_is_refused_by_file_and_key(tmp_path: Path):
    state = dino_state()
    for change, told in (
        (
            {"blocks.1.mlp.fc1.weight": torch.ones(48, 12)},
            r"blocks\.1\.mlp\.fc1\.weight has shape \[48, 12\]; expected \[48, 24\]",
        ),
        (
            {"patch_embed.proj.weight": torch.ones(24, 3, 4, 4)},
            r"patch_embed\.proj\.weight has shape \[24, 3, 4, 4\], a 2D network",
        ),
        ({"patch_embed.norm.weight": torch.ones(24)}, r"patch_embed\.norm\.weight has no place"),
        ({"blocks.3.norm1.weight": torch.ones(24)}, r"blocks\.2 is missing; found 3 blocks"),
    ):
        with pytest.raises(UsageError, match=r"w\.pth: " + told):
            loaded(written(state | change, tmp_path / "w.pth"))
    with pytest.raises(UsageError, match=r"rope\.periods is of heads 12 wide; found 4 heads"):
        loaded(written(state, tmp_path / "w.pth"), heads=4)
    del state["rope_embed.periods"]
    with pytest.raises(UsageError, match=r"found neither pos_embed nor rope\.periods; positions are not known"):
        loaded(written(state, tmp_path / "w.pth"))


def test_a_large_published_shape_is_read_as_that():
    with torch.device("meta"):
        state = {key: torch.empty(one.shape) for key, one in dino_state(dim=1080, heads=12).items()}
        state["patch_embed.proj.weight"] = torch.empty(1080, 1, 16, 16, 16)
    found = transformers.read_dino(state, Path("large.safetensors"), None, None)
    assert (found.channels, found.edge, found.patch, found.heads) == (1, None, 16, 12)
