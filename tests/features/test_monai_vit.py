"""MONAI's ViT from a file is the very network that wrote it, whatever the file is wrapped in; anything else is refused by key."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from made.foreign import State, monai_vit, written

from mri_vit.errors import UsageError
from mri_vit.features import foreign
from mri_vit.features.fitting import CLS, FIRST_TOKEN, MEAN, Foreign
from mri_vit.model.checkpoint import read_tensors


def loaded(path: Path, heads: int | None = 4) -> Foreign:
    return foreign.read_monai_vit(read_tensors(path), path, heads, None)


@pytest.mark.parametrize(("name", "prefix"), [("w.safetensors", ""), ("w.ckpt", "backbone."), ("w.pt", "module.encoder.")])
def test_features_are_those_of_monais_own_network(tmp_path: Path, name: str, prefix: str):
    net = monai_vit()
    found = loaded(written(net.state_dict(), tmp_path / name, prefix))
    volume = torch.randn(2, 1, 16, 16, 16)
    tokens = net(volume)[0]
    read = found.network(volume)
    assert set(read) == {MEAN, FIRST_TOKEN}
    assert torch.equal(read[MEAN], tokens.mean(dim=1))
    assert torch.equal(read[FIRST_TOKEN], tokens[:, 0])  # what BrainIAC's code calls CLS
    assert (found.channels, found.edge, found.patch, found.heads) == (1, 16, 8, 4)


def test_a_class_token_and_a_bias_are_read_where_the_file_has_them(tmp_path: Path):
    net = monai_vit(classification=True, qkv_bias=True)
    found = loaded(written(net.state_dict(), tmp_path / "w.safetensors"))
    volume = torch.randn(1, 1, 16, 16, 16)
    del net.classification_head  # MONAI then gives every token
    tokens = net(volume)[0]
    assert torch.equal(found.network(volume)[CLS], tokens[:, 0])
    assert torch.equal(found.network(volume)[MEAN], tokens[:, 1:].mean(dim=1))


def test_a_linear_map_of_patches_is_read_as_well_as_a_convolution(tmp_path: Path):
    net = monai_vit(channels=4, proj_type="perceptron")
    found = loaded(written(net.state_dict(), tmp_path / "w.safetensors"))
    volume = torch.randn(1, 4, 16, 16, 16)
    assert torch.equal(found.network(volume)[MEAN], net(volume)[0].mean(dim=1))
    assert (found.channels, found.patch) == (4, 8)


def test_what_older_versions_of_monai_saved_and_never_read_is_left_out(tmp_path: Path):
    state = monai_vit().state_dict()
    older = {key: value for key, value in state.items() if "norm_cross_attn" not in key}
    older |= {"blocks.0.cross_attn.to_q.weight": torch.randn(24, 24)}
    volume = torch.randn(1, 1, 16, 16, 16)
    now, then = (loaded(written(one, tmp_path / f"{len(one)}.pt")).network(volume) for one in (state, older))
    assert torch.equal(now[MEAN], then[MEAN])


def test_brainiacs_published_shape_is_read_as_that():
    from monai.networks.nets.vit import ViT

    with torch.device("meta"):
        state = ViT(1, (96, 96, 96), (16, 16, 16), 768, 3072, 12, 12, save_attn=True).state_dict()
    found = foreign.read_monai_vit(state, Path("brainiac.ckpt"), None, None)
    assert (found.channels, found.edge, found.patch, found.heads) == (1, 96, 16, 12)
    assert sum(value.numel() for value in found.network.state_dict().values()) == sum(
        value.numel() for key, value in state.items() if "cross" not in key
    )


@pytest.mark.long
def test_a_file_of_brainiacs_published_shape_gives_the_features_of_monais_network(tmp_path: Path):
    from monai.networks.nets.vit import ViT

    torch.manual_seed(0)
    net = ViT(1, (96, 96, 96), (16, 16, 16), 768, 3072, 12, 12).eval()
    found = loaded(written(net.state_dict(), tmp_path / "brainiac.ckpt", "backbone."), heads=None)
    volume = torch.randn(1, 1, 96, 96, 96)
    with torch.no_grad():
        tokens, read = net(volume)[0], found.network(volume)
    assert tokens.shape == (1, 216, 768)
    assert torch.equal(read[MEAN], tokens.mean(dim=1))
    assert torch.equal(read[FIRST_TOKEN], tokens[:, 0])


def without(state: State, key: str) -> State:
    return {name: value for name, value in state.items() if name != key}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda s: without(s, "blocks.1.attn.qkv.weight"),
            r"backbone\.blocks\.1\.attn\.qkv\.weight is missing; expected .*72, 24",
        ),
        (lambda s: s | {"norm.weight": torch.ones(12)}, r"backbone\.norm\.weight has shape \[12\]; expected \[24\]"),
        (lambda s: s | {"norm2.weight": torch.ones(12)}, r"backbone\.norm2\.weight has no place in this architecture"),
        (lambda s: s | {foreign.MONAI_ANCHOR: torch.ones(1, 9, 24)}, r"position_embeddings is of 9 positions, which are no cube"),
        (
            lambda s: s | {"patch_embedding.patch_embeddings.weight": torch.ones(24, 1, 8, 8)},
            r"has shape \[24, 1, 8, 8\], a 2D network; expected \[width, channels, p, p, p\]",
        ),
        (
            lambda s: s | {"patch_embedding.patch_embeddings.weight": torch.ones(24, 1, 8, 8, 4)},
            r"patches that are no cubes",
        ),
        (
            lambda s: {k: v for k, v in s.items() if not k.startswith("blocks.0.mlp")},
            r"blocks\.0\.mlp\.linear1\.weight is missing",
        ),
        (lambda s: {k: v for k, v in s.items() if not k.startswith("blocks.0.")}, r"blocks\.0 is missing|is missing"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_file_and_key(tmp_path: Path, change, told: str):
    path = written(change(monai_vit().state_dict()), tmp_path / "w.safetensors", "backbone.")
    with pytest.raises(UsageError, match=r"w\.safetensors: .*" + told):
        loaded(path)


def test_heads_that_no_file_says_are_asked_for(tmp_path: Path):
    path = written(monai_vit().state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match=r"width 24 is of no known size; give --heads"):
        loaded(path, None)
    with pytest.raises(UsageError, match=r"width 24 is no multiple of 5 heads"):
        loaded(path, 5)


def test_of_a_student_and_its_teacher_the_teacher_is_read_and_of_two_students_neither(tmp_path: Path):
    net, other = monai_vit(), monai_vit().state_dict()
    both = {f"teacher.{k}": v for k, v in net.state_dict().items()} | {f"student.{k}": v + 1 for k, v in other.items()}
    volume = torch.randn(1, 1, 16, 16, 16)
    assert torch.equal(loaded(written(both, tmp_path / "w.pt")).network(volume)[MEAN], net(volume)[0].mean(dim=1))
    two = {f"{part}.{k}": v for part in ("a", "b") for k, v in other.items()}
    with pytest.raises(UsageError, match=r"several encoders, under 'a\.' and 'b\.'; expected one"):
        loaded(written(two, tmp_path / "two.pt"))
