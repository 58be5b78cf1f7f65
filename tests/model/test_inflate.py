"""Weights from 2D: a random Vision Transformer of the transformers library is the oracle; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from mri_vit.data import tokens
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.model.checkpoint import read_2d
from mri_vit.model.encoder import POSITION_STD, Encoder
from mri_vit.model.weights import depth_term, inflate, inflated_positions

DIM, DEPTH, HEADS, MLP, SIDE, PATCH = 48, 2, 3, 96, 4, 16
State = dict[str, Tensor]


@pytest.fixture(scope="module")
def classifier() -> Any:
    """A small random ViT as transformers makes it, biases and norms drawn too, so that none is 0 or 1."""
    from transformers import ViTConfig, ViTForImageClassification  # here, because its import takes seconds

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=MLP,
        image_size=SIDE * PATCH, patch_size=PATCH,
    )  # fmt: skip
    model = ViTForImageClassification(config).eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.fixture
def state(classifier: Any) -> State:
    """Its weights as timm names them."""
    theirs, ours = classifier.vit.state_dict(), {}
    for new, old in {
        "cls_token": "embeddings.cls_token", "pos_embed": "embeddings.position_embeddings",
        "patch_embed.proj.weight": "embeddings.patch_embeddings.projection.weight",
        "patch_embed.proj.bias": "embeddings.patch_embeddings.projection.bias",
        "norm.weight": "layernorm.weight", "norm.bias": "layernorm.bias",
    }.items():  # fmt: skip
        ours[new] = theirs[old]
    for i in range(DEPTH):
        for kind in ("weight", "bias"):
            old, new = f"layers.{i}", f"blocks.{i}"
            ours[f"{new}.attn.qkv.{kind}"] = torch.cat([theirs[f"{old}.attention.{p}_proj.{kind}"] for p in "qkv"])
            ours[f"{new}.attn.proj.{kind}"] = theirs[f"{old}.attention.o_proj.{kind}"]
            ours[f"{new}.norm1.{kind}"] = theirs[f"{old}.layernorm_before.{kind}"]
            ours[f"{new}.norm2.{kind}"] = theirs[f"{old}.layernorm_after.{kind}"]
            for part in ("mlp.fc1", "mlp.fc2"):
                ours[f"{new}.{part}.{kind}"] = theirs[f"{old}.{part}.{kind}"]
    return {key: value.clone() for key, value in ours.items()} | {"head.weight": torch.zeros(10, DIM)}


def write(state: State, path: Path) -> Path:
    safetensors.torch.save_file(state, path)
    return path


def write_jax(state: State, path: Path) -> Path:
    """The same ViT as the original JAX code stores it: inputs before outputs, heads apart."""
    out = {
        "cls": state["cls_token"],
        "embedding/kernel": state["patch_embed.proj.weight"].permute(2, 3, 1, 0),
        "embedding/bias": state["patch_embed.proj.bias"],
        "Transformer/posembed_input/pos_embedding": state["pos_embed"],
        "Transformer/encoder_norm/scale": state["norm.weight"],
        "Transformer/encoder_norm/bias": state["norm.bias"],
        "head/kernel": state["head.weight"].T,
    }
    for i in range(DEPTH):
        root, block = f"Transformer/encoderblock_{i}", f"blocks.{i}"
        for jax, timm in {"LayerNorm_0": "norm1", "LayerNorm_2": "norm2"}.items():
            out[f"{root}/{jax}/scale"], out[f"{root}/{jax}/bias"] = (state[f"{block}.{timm}.{k}"] for k in ("weight", "bias"))
        for jax, timm in {"Dense_0": "fc1", "Dense_1": "fc2"}.items():
            out[f"{root}/MlpBlock_3/{jax}/kernel"] = state[f"{block}.mlp.{timm}.weight"].T
            out[f"{root}/MlpBlock_3/{jax}/bias"] = state[f"{block}.mlp.{timm}.bias"]
        attention = f"{root}/MultiHeadDotProductAttention_1"
        weights, biases = (state[f"{block}.attn.qkv.{kind}"].chunk(3) for kind in ("weight", "bias"))
        for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            out[f"{attention}/{name}/kernel"] = weight.T.reshape(DIM, HEADS, DIM // HEADS)
            out[f"{attention}/{name}/bias"] = bias.reshape(HEADS, DIM // HEADS)
        out[f"{attention}/out/kernel"] = state[f"{block}.attn.proj.weight"].T.reshape(HEADS, DIM // HEADS, DIM)
        out[f"{attention}/out/bias"] = state[f"{block}.attn.proj.bias"]
    np.savez(path, allow_pickle=False, **{key: value.numpy() for key, value in out.items()})
    return path


def encoder(side: int = SIDE, patch: int = PATCH, **changed: Any) -> Encoder:
    shape: dict[str, Any] = {"dim": DIM, "depth": DEPTH, "heads": HEADS, "mlp": MLP} | changed
    return Encoder(4 * patch**3, side**3, **shape).eval()


def filled(path: Path) -> Encoder:
    made = encoder()
    inflate(read_2d(path), made)
    return made


@torch.no_grad()
def test_copied_blocks_give_the_output_of_transformers_on_the_same_tokens(classifier: Any, tmp_path: Path):
    classifier.save_pretrained(tmp_path)
    ours, theirs = filled(tmp_path / "model.safetensors"), classifier.vit
    for x in (theirs.embeddings(torch.randn(1, 3, SIDE * PATCH, SIDE * PATCH)), torch.randn(2, 30, DIM)):
        y, expected = x, x
        for layer in theirs.layers:
            expected = layer(expected, None)
        for block in ours.layers:
            y = block(y)
        torch.testing.assert_close(ours.norm(y), theirs.layernorm(expected), atol=1e-5, rtol=0)
        assert (y - x).abs().max() > 0.1  # the blocks did something


def axial(image: Tensor) -> tuple[Tensor, Tensor]:
    """A volume whose every axial slice is the image, in all scans, as patches and places; x runs to the right, y to the front."""
    in_plane = image.flip(0, 1).T  # [row column], from the front and from the right, to [x y]
    volume = in_plane[None, :, :, None].expand(4, -1, -1, len(image))
    return torch.from_numpy(tokens.patchify(volume.numpy(), PATCH))[None], torch.arange(SIDE**3)[None]


def plane(embedded: Tensor) -> Tensor:
    """[places d] of our grid as [row column k d] of the image."""
    return embedded.reshape(SIDE, SIDE, SIDE, DIM).flip(0, 1).transpose(0, 1)


@torch.no_grad()
def test_a_volume_constant_in_depth_gives_the_2d_patch_embedding_of_the_grey_image(classifier: Any, state: State, tmp_path: Path):
    image = torch.randn(SIDE * PATCH, SIDE * PATCH)
    expected = classifier.vit.embeddings.patch_embeddings(image.expand(1, 3, -1, -1))[0].reshape(SIDE, SIDE, 1, DIM)
    ours = filled(write(state, tmp_path / "w.safetensors"))
    patches, position = axial(image)
    torch.testing.assert_close(plane(ours.embed(patches)[0]), expected.expand(-1, -1, SIDE, -1), atol=1e-4, rtol=0)
    with_positions = plane(ours.tokens(patches, position)[0, 1:]).mean(dim=2)  # the term in depth is 0 on average
    in_2d = classifier.vit.embeddings(image.expand(1, 3, -1, -1))[0]
    torch.testing.assert_close(with_positions.reshape(-1, DIM), in_2d[1:], atol=1e-4, rtol=0)
    torch.testing.assert_close(ours.tokens(patches, position)[0, 0], in_2d[0])


def test_a_patch_kernel_sees_every_slice_alike(state: State, tmp_path: Path):
    weight = (
        filled(write(state, tmp_path / "w.safetensors")).state_dict()["embed.weight"].reshape(DIM, -1, PATCH)
    )  # [d (c x y) z]
    assert weight.equal(weight[:, :, :1].expand_as(weight))


def test_one_vit_in_any_naming_fills_equal_encoders(classifier: Any, state: State, tmp_path: Path):
    classifier.save_pretrained(tmp_path)
    torch.save({"model": state, "epoch": 3}, tmp_path / "mae.pth")
    paths = [
        tmp_path / "model.safetensors",  # as transformers writes it, behind "vit."
        write(classifier.vit.state_dict(), tmp_path / "memory.safetensors"),  # as it names its modules
        write_jax(state, tmp_path / "original.npz"),
        tmp_path / "mae.pth",
        write({key: value.double() for key, value in state.items()}, tmp_path / "double.safetensors"),
    ]
    expected = filled(write(state, tmp_path / "timm.safetensors")).state_dict()
    assert not torch.equal(expected["blocks.1.mlp.0.weight"], encoder().state_dict()["blocks.1.mlp.0.weight"])
    for path in paths:
        for name, tensor in filled(path).state_dict().items():
            torch.testing.assert_close(tensor, expected[name], atol=0, rtol=0, msg=f"{path.name}: {name}")


def test_positions_of_another_side_keep_their_course_and_their_cls():
    row, column = torch.meshgrid(torch.arange(14.0), torch.arange(14.0), indexing="ij")
    table = torch.stack([row, column], dim=2).reshape(1, -1, 2) * 100  # so large that the term in depth is nothing beside it
    table = torch.cat([torch.full((1, 1, 2), 7.0), table], dim=1)
    made = inflated_positions(table, 28)
    assert made[0, 0].tolist() == [7, 7]
    grid = made[0, 1:].reshape(28, 28, 28, 2)  # [x y z d]
    step = (
        grid[10:20, 10:20, 10] - grid[11:21, 11:21, 10]
    )  # one place to the left and one to the back: half a place down and right
    torch.testing.assert_close(step, torch.full_like(step, 50), atol=10, rtol=0)  # bicubic is not quite straight
    assert (grid[0, :, 10, 1] > grid[27, :, 10, 1]).all()  # columns run to the patient's left
    assert (grid[:, 0, 10, 0] > grid[:, 27, 10, 0]).all()  # rows run to the back


def test_the_term_in_depth_starts_small_tells_the_slices_apart_and_is_learned(state: State, tmp_path: Path):
    for dim in (DIM, 7):
        term = depth_term(14, dim)
        assert term.shape == (14, dim)
        torch.testing.assert_close(term.mean(dim=0), torch.zeros(dim), atol=1e-7, rtol=0)
        assert float(term.square().mean().sqrt()) == pytest.approx(POSITION_STD)
        assert torch.pdist(term).min() > POSITION_STD / 10
    assert torch.equal(depth_term(1, DIM), torch.zeros(1, DIM))
    ours = filled(write(state, tmp_path / "w.safetensors"))
    ours(torch.randn(1, 5, 4 * PATCH**3), torch.arange(5)[None]).sum().backward()
    assert ours.position.grad is not None
    assert (ours.position.grad[0, 1:6].abs().sum(dim=1) > 0).all()


def changed(**keys: Tensor | None) -> Callable[[State], State]:
    """Keys of the state put in (their dots written as __), or taken out where None."""
    named = {key.replace("__", "."): value for key, value in keys.items()}
    return lambda state: {key: value for key, value in (state | named).items() if value is not None}


DIM_ONES = torch.ones(DIM)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (changed(register_tokens=torch.ones(1, 4, DIM)), r"it has register tokens, as DINOv2's \(register_tokens\)"),
        (changed(reg_token=torch.ones(1, 4, DIM), blocks__0__ls1__gamma=DIM_ONES), r"\(reg_token\) and LayerScale, as DINOv2's"),
        (changed(dist_token=torch.ones(1, 1, DIM)), r"a distillation token, as DeiT's \(dist_token\)"),
        (changed(blocks__0__mlp__w12__weight=torch.ones(2, DIM), blocks__0__mlp__fc1__weight=None), r"SwiGLU.*mlp\.w12\.weight"),
        (changed(blocks__1__attn__q_norm__weight=DIM_ONES), r"blocks\.1\.attn\.q_norm\.weight does not belong to a plain ViT"),
        (changed(blocks__1__attn__qkv__bias=None), r"blocks\.1\.attn\.qkv\.bias is missing$"),
        (changed(norm__weight=None, norm__bias=None), r"norm\.weight is missing, and 1 more"),
        (changed(blocks__0__mlp__fc2__weight=torch.ones(DIM, 5)), r"blocks\.0\.mlp\.fc2\.weight has shape \[48, 5\].*\[48, 96\]"),
        (changed(pos_embed=torch.ones(1, 15, DIM)), r"pos_embed has shape \[1, 15, 48\]; a 2D ViT of width 48 has \[1, 17, 48\]"),
        (lambda state: {"conv1.weight": DIM_ONES}, r"no Vision Transformer in the names of timm, transformers or the original"),
        (lambda state: {key.replace("s.0", "s.7"): value for key, value in state.items()}, r"blocks\.0\.norm.* is missing"),
    ],
)  # fmt: skip
def test_what_is_no_plain_vit_is_refused_by_file_and_key(
    state: State, tmp_path: Path, change: Callable[[State], State], told: str
):
    with pytest.raises(UsageError, match=r"w\.safetensors: .*" + told):
        read_2d(write(change(state), tmp_path / "w.safetensors"))


def test_dinov2_as_transformers_names_it_is_refused_for_its_registers_and_layer_scale(tmp_path: Path):
    from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    config = Dinov2WithRegistersConfig(hidden_size=DIM, num_hidden_layers=1, num_attention_heads=HEADS, image_size=28)
    model = Dinov2WithRegistersModel(config)
    model.save_pretrained(tmp_path)
    for path in (tmp_path / "model.safetensors", write(model.state_dict(), tmp_path / "memory.safetensors")):
        with pytest.raises(UsageError, match=r"register tokens, as DINOv2's \(embeddings\.register_tokens\)") as refused:
            read_2d(path)
        assert "LayerScale" in str(refused.value)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"depth": 0}, r"it needs model\.depth 2 \(the study's is 0\)"),
        ({"depth": 3}, r"it needs model\.depth 2 \(the study's is 3\)"),
        ({"dim": 96, "mlp": 192}, r"it needs model\.dim 48 \(the study's is 96\), model\.mlp 96 \(the study's is 192\)"),
        ({"heads": 4}, r"it needs model\.heads 3 \(the study's is 4\)"),
        ({"patch": 4}, r"it needs grid\.patch 16 \(the study's is 4\)"),
        ({"stem": 8}, r"its patch kernels need one linear map; leave model\.stem and model\.conv_stem out"),
    ],
)
def test_a_checkpoint_that_does_not_fit_the_study_is_refused_and_the_encoder_left_alone(
    state: State, tmp_path: Path, made: dict[str, int], told: str
):
    ours = encoder(**made)
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    with pytest.raises(UsageError, match=r"w\.npz: " + told):
        inflate(read_2d(write_jax(state, tmp_path / "w.npz")), ours)
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())


class Harmful:
    """What a pickle must not bring to life."""


def test_a_damaged_file_is_an_integrity_error_that_names_it(state: State, tmp_path: Path):
    whole = [write(state, tmp_path / "w.safetensors"), write_jax(state, tmp_path / "w.npz"), tmp_path / "w.pth"]
    torch.save(state, whole[-1])
    for path in whole:
        for content in (path.read_bytes()[: path.stat().st_size // 2], b"", b"no weights"):
            path.write_bytes(content)
            with pytest.raises(IntegrityError, match=rf"{path.name}: weights cannot be read"):
                read_2d(path)
    for content in (Harmful(), [1, 2], {"model": 3}):
        torch.save(content, whole[-1])
        with pytest.raises(IntegrityError, match=r"w\.pth: weights cannot be read"):
            read_2d(whole[-1])


def test_a_file_that_is_absent_or_of_another_kind_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match=r"none\.npz: no such file"):
        read_2d(tmp_path / "none.npz")
    (tmp_path / "w.h5").write_bytes(b"")
    with pytest.raises(UsageError, match=r"w\.h5: found \.h5; expected \.safetensors, \.npz, \.pth"):
        read_2d(tmp_path / "w.h5")
