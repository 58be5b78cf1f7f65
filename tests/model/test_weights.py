"""Where an encoder starts from: each kind of file gives its weights, whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.model import baselines, network
from mri_vit.model.checkpoint import read_2d
from mri_vit.model.encoder import Encoder, resize_positions
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.model.weights import fill, image_exposed, inflate, label_exposed, load_encoder, save_encoder
from mri_vit.settings.recipe import Pretrain
from mri_vit.settings.schema import CHANNELS, Endpoint, Model
from mri_vit.settings.sections import Grid

MODEL = Model(dim=24, depth=2, heads=2, mlp=32)
GRID = Grid(edge=8, spacing_mm=10.0, patch=4)
HEADS = [Head(Endpoint(name="mgmt", kind="binary"), "binary")]


def made(seed: int, grid: Grid = GRID, **changes: Any) -> Network:
    torch.manual_seed(seed)
    return Network(MODEL.model_copy(update=changes), grid, HEADS).eval()


def header(net: Network, seen: list[str]) -> dict[str, Any]:
    plain = {key: part.model_dump(mode="json") for key, part in (("model", net.model), ("grid", net.grid))}
    return {
        **plain,
        "channels": list(net.channels),
        "pretrain": Pretrain(method="mae").model_dump(mode="json"),
        "seen": seen,
        "taught": ["c"],
    }


def saved_encoder(path: Path, seed: int = 0, **changes: Any) -> Encoder:
    net = made(seed, **changes)
    save_encoder(net.encoder, header(net, ["a", "b"]), path)
    return net.encoder


def assert_same(one: nn.Module, other: nn.Module) -> None:
    torch.testing.assert_close(one.state_dict(), other.state_dict(), atol=0, rtol=0)


def write_2d(path: Path) -> Path:
    """A random 2D Vision Transformer as timm names it, with 2 × 2 places of patches of 4 × 4."""
    d, generator = 24, torch.Generator().manual_seed(3)
    shapes: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, d), "pos_embed": (1, 5, d), "patch_embed.proj.weight": (d, 3, 4, 4)}
    shapes |= {"patch_embed.proj.bias": (d,), "norm.weight": (d,), "norm.bias": (d,)}
    for i in range(2):
        for name, out, into in [("attn.qkv", 3 * d, d), ("attn.proj", d, d), ("mlp.fc1", 32, d), ("mlp.fc2", d, 32)]:
            shapes |= {f"blocks.{i}.{name}.weight": (out, into), f"blocks.{i}.{name}.bias": (out,)}
        shapes |= {f"blocks.{i}.{norm}.{kind}": (d,) for norm in ("norm1", "norm2") for kind in ("weight", "bias")}
    tensors: dict[str, Tensor] = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    safetensors.torch.save_file(tensors, path)
    return path


def test_an_encoders_file_gives_back_its_weights_and_tells_what_they_are(tmp_path):
    encoder = saved_encoder(tmp_path / "e.safetensors")
    weights, header = load_encoder(tmp_path / "e.safetensors")
    torch.testing.assert_close(weights, dict(encoder.state_dict()), atol=0, rtol=0)
    assert Model.model_validate(header["model"]) == MODEL
    assert Grid.model_validate(header["grid"]) == GRID
    assert Pretrain.model_validate(header["pretrain"]).method == "mae"
    assert header["channels"] == list(CHANNELS)
    assert header["seen"] == image_exposed(tmp_path / "e.safetensors") == ["a", "b"]
    assert header["taught"] == label_exposed(tmp_path / "e.safetensors") == ["c"]


def test_an_encoder_of_an_older_version_is_read_under_the_present_names_of_its_settings(tmp_path: Path):
    net = made(0)
    old = header(net, []) | {"pretrain": {"method": "mae", "rate": 0.002, "batch": 7}, "train": {"clip": 2.0, "warmup": 0.1}}
    save_encoder(net.encoder, old, tmp_path / "e.safetensors")
    _, known = load_encoder(tmp_path / "e.safetensors")
    assert known["pretrain"] == {"method": "mae", "learning_rate": 0.002, "batch_size": 7}
    assert known["train"] == {"grad_clip_norm": 2.0, "warmup": 0.1}


def test_a_pretrained_encoder_and_a_network_fill_every_weight_but_the_heads(tmp_path):
    first, second = made(1), made(2)
    heads = first.head["mgmt"].weight.detach().clone()  # type: ignore[operator]
    fill(first.encoder, (saved_encoder(tmp_path / "e.safetensors"), tmp_path / "e.safetensors")[1], first.model, GRID)
    assert_same(first.encoder, made(0).encoder)
    assert torch.equal(first.head["mgmt"].weight, heads)  # type: ignore[arg-type]
    network.save(second, tmp_path / "n.safetensors")
    fill(first.encoder, tmp_path / "n.safetensors", first.model, GRID)
    assert_same(first.encoder, second.encoder)
    assert image_exposed(tmp_path / "n.safetensors") == []


@pytest.mark.parametrize("kind", ["encoder", "network"])
def test_positions_are_interpolated_to_a_finer_grid_and_the_rest_is_copied(tmp_path, kind: str):
    coarse, finer, file = made(1), Grid(edge=16, spacing_mm=5.0, patch=4), tmp_path / "w.safetensors"
    coarse.encoder.norm_eps = 1e-3
    if kind == "network":
        network.save(coarse, file)
    else:
        save_encoder(coarse.encoder, header(coarse, []), file)
    net = made(2, finer)
    fill(net.encoder, file, net.model, finer)
    assert net.encoder.norm_eps == 1e-3
    expected = coarse.encoder.state_dict()
    expected["position"] = resize_positions(coarse.encoder.position.detach(), 4)
    torch.testing.assert_close(dict(net.encoder.state_dict()), dict(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"depth": 1}, r"its model\.depth is 2, the study's 1$"),
        ({"depth": 3}, r"its model\.depth is 2, the study's 3$"),
        ({"dim": 16}, r"its model\.dim is 24, the study's 16$"),
        ({"dim": 48, "heads": 4}, r"its model\.dim is 24, the study's 48; its model\.heads is 2, the study's 4$"),
        (
            {"dim": None, "depth": None, "heads": None, "mlp": None, "size": "S"},
            r"its model\.dim is 24, the study's 384; .*mlp is 32",
        ),
        ({"mlp": 48}, r"its model\.mlp is 32, the study's 48$"),
        ({"stem": 8}, r"its model\.stem is 0, the study's 8$"),
        ({"conv_stem": 4}, r"its model\.conv_stem is 0, the study's 4$"),
        ({"conv_stem": 4, "texture": 2}, r"conv_stem is 0, the study's 4; its model\.texture is 0, the study's 2$"),
    ],
)
@pytest.mark.parametrize("kind", ["encoder", "network"])
def test_weights_of_another_shape_are_refused_by_the_keys_that_differ_and_leave_the_encoder_as_it_was(
    tmp_path, kind: str, changes: dict, named: str
):
    file = tmp_path / "w.safetensors"
    if kind == "encoder":
        saved_encoder(file)
    else:
        network.save(made(0), file)
    net = made(1, **changes)
    with pytest.raises(UsageError, match=rf"w\.safetensors: .*{named}"):
        fill(net.encoder, file, net.model, GRID)
    assert_same(net.encoder, made(1, **changes).encoder)


def test_weights_that_would_mean_something_else_in_the_same_shapes_are_refused(tmp_path):
    network.save(made(0), tmp_path / "n.safetensors")
    more = MODEL.model_copy(update={"heads": 2 * MODEL.shape[2]})
    with pytest.raises(UsageError, match=r"n\.safetensors: its model\.heads is \d, the study's \d"):
        fill(Network(more, GRID, HEADS).encoder, tmp_path / "n.safetensors", more, GRID)
    closer = GRID.model_copy(update={"spacing_mm": GRID.spacing_mm / 2})
    with pytest.raises(UsageError, match="its positions are of a box of 80 mm, the study's of 40 mm"):
        fill(made(1, closer).encoder, tmp_path / "n.safetensors", MODEL, closer)


def test_a_networks_patches_of_another_size_are_named(tmp_path):
    network.save(made(0), tmp_path / "n.safetensors")
    other = Grid(edge=8, spacing_mm=10.0, patch=2)
    with pytest.raises(UsageError, match="its patches have 4³ voxels, the study's 2³"):
        fill(made(1, other).encoder, tmp_path / "n.safetensors", MODEL, other)


def test_a_file_that_is_missing_or_damaged_is_named(tmp_path):
    encoder, file = made(1).encoder, tmp_path / "e.safetensors"
    with pytest.raises(UsageError, match=r"e\.safetensors: no such file"):
        fill(encoder, file, MODEL, GRID)
    saved_encoder(file)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(IntegrityError, match=r"e\.safetensors"):
        fill(encoder, file, MODEL, GRID)
    with pytest.raises(IntegrityError, match=r"e\.safetensors"):
        load_encoder(file)


def test_a_file_of_other_channels_is_refused(tmp_path):
    saved_encoder(tmp_path / "e.safetensors", channels=("t1ce", "t1", "t2", "flair"))
    with pytest.raises(UsageError, match=r"its model\.channels is \('t1ce', 't1', 't2', 'flair'\), the study's \('t1', 't1ce'"):
        fill(made(1).encoder, tmp_path / "e.safetensors", MODEL, GRID)


def test_weights_from_2d_are_inflated_and_how_norms_divide_goes_from_file_to_file(tmp_path):
    file = write_2d(tmp_path / "2d.safetensors")
    net, expected, fresh = made(1), made(1), made(2).encoder
    fill(net.encoder, file, net.model, GRID)
    inflate(read_2d(file), expected.encoder)
    assert_same(net.encoder, expected.encoder)
    assert net.encoder.norm_eps == 1e-6  # timm's; PyTorch's own is 1e-5
    assert image_exposed(file) == []
    network.save(net, tmp_path / "n.safetensors")
    save_encoder(net.encoder, header(net, []), tmp_path / "e.safetensors")
    for name in ("n", "e"):
        other = made(2).encoder
        fill(other, tmp_path / f"{name}.safetensors", MODEL, GRID)
        patches, position = torch.randn(1, 8, 256, generator=torch.Generator().manual_seed(0)) * 1e-3, torch.arange(8)[None]
        torch.testing.assert_close(other(patches, position), net.encoder(patches, position), atol=0, rtol=0)
        assert {m.eps for m in other.modules() if isinstance(m, nn.LayerNorm)} == {1e-6}
    assert fresh.norm_eps == 1e-5


@pytest.fixture
def convolutional(monkeypatch: pytest.MonkeyPatch) -> Model:
    """A recipe whose network is as small as it can be, under a comparator's name."""
    small = replace(
        baselines.BASELINES["resnet10"],
        build=lambda model, channels, size, patch: nn.Sequential(
            nn.Conv3d(channels, 5, 3), nn.BatchNorm3d(5), nn.AdaptiveAvgPool3d(1), nn.Flatten()
        ),
        width=5,
    )
    monkeypatch.setitem(baselines.BASELINES, "resnet10", small)
    return Model(architecture="resnet10")


def test_the_heads_of_monais_vit_are_as_many_as_its_weights_had(tmp_path):
    theirs, ours = (MODEL.model_copy(update={"architecture": "monai_vit", "heads": heads}) for heads in (1, 2))
    network.save(Network(theirs, GRID, HEADS), tmp_path / "m.safetensors")
    with pytest.raises(UsageError, match=r"its model\.heads is 1, the study's 2"):
        fill(Network(ours, GRID, HEADS).encoder, tmp_path / "m.safetensors", ours, GRID)


def test_a_comparators_network_starts_from_its_own_file_alone(tmp_path, convolutional: Model):
    first, second = Network(convolutional, GRID, HEADS), Network(convolutional, GRID, HEADS)
    network.save(first, tmp_path / "cnn.safetensors")
    fill(second.encoder, tmp_path / "cnn.safetensors", second.model, GRID)
    assert_same(second.encoder, first.encoder)
    vit = made(0)
    network.save(vit, tmp_path / "vit.safetensors")
    for net, file, its, ours in ((vit, "cnn", "resnet10", "vit"), (second, "vit", "vit", "resnet10")):
        with pytest.raises(UsageError, match=f"its weights are of architecture {its}, the study's model is {ours}"):
            fill(net.encoder, tmp_path / f"{file}.safetensors", net.model, GRID)
    contrast, flair = (convolutional.model_copy(update={"channels": (channel,)}) for channel in ("t1ce", "flair"))
    network.save(Network(contrast, GRID, HEADS), tmp_path / "t1ce.safetensors")
    with pytest.raises(UsageError, match=r"its model\.channels is \('t1ce',\), the study's \('flair',\)"):
        fill(Network(flair, GRID, HEADS).encoder, tmp_path / "t1ce.safetensors", flair, GRID)
    finer = Grid(edge=2 * GRID.edge, spacing_mm=GRID.spacing_mm / 2, patch=GRID.patch)
    with pytest.raises(UsageError, match=r"cnn\.safetensors: its kernels are of voxels of 10 mm, the study's of 5 mm"):
        fill(Network(convolutional, finer, HEADS).encoder, tmp_path / "cnn.safetensors", convolutional, finer)
    with pytest.raises(UsageError, match="no other architecture than vit"):
        fill(second.encoder, write_2d(tmp_path / "2d.safetensors"), second.model, GRID)
