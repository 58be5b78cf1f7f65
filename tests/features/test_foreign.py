"""A file is known by its keys, and lays its cube over the prepared box unless its card says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from made.foreign import dino_state, monai_vit, written
from safetensors.torch import load_file

from mri_vit.errors import UsageError
from mri_vit.features import foreign
from mri_vit.features.foreign import Card
from mri_vit.settings.sections import Grid

GRID = Grid(edge=16, spacing_mm=10.0, patch=4)
ORACLES = Path(__file__).parents[1] / "oracles"


def primus_state() -> dict[str, torch.Tensor]:
    before = "full.weights."
    return {k.removeprefix(before): v for k, v in load_file(ORACLES / "primus_published.safetensors").items() if before in k}


@pytest.mark.parametrize(
    ("state", "heads", "name", "edge", "axes"),
    [
        (lambda: monai_vit().state_dict(), 4, "MONAI ViT", 16, "RAS"),
        (primus_state, 2, "Primus", 12, "SAR"),
        (dino_state, None, "3D DINO ViT", 96, "RAS"),
        (lambda: dino_state(rotary=False), 2, "3D DINO ViT", 16, "RAS"),
    ],
)
def test_each_architecture_is_told_by_its_keys(tmp_path: Path, state, heads: int | None, name: str, edge: int, axes: str):
    encoder, expected = foreign.load(written(state(), tmp_path / "w.pt", "net."), Card(heads=heads), GRID)
    assert (encoder.architecture, expected.edge, expected.axes, expected.intensity) == (name, edge, axes, "zscore")
    assert expected.spacing_mm == pytest.approx(160 / edge)  # the whole box


def test_the_card_goes_before_what_is_assumed(tmp_path: Path):
    path = written(dino_state(), tmp_path / "w.pt")
    card = Card(edge=32, spacing_mm=2.0, intensity="unit", axes="LPS")
    _, expected = foreign.load(path, card, GRID)
    assert (expected.edge, expected.spacing_mm, expected.intensity, expected.axes) == (32, 2.0, "unit", "LPS")
    with pytest.raises(UsageError, match=r"w\.pt: an edge of 30 voxels is no multiple of its patch of 4"):
        foreign.load(path, Card(edge=30), GRID)


def test_an_edge_that_the_weights_do_not_have_is_refused(tmp_path: Path):
    path = written(monai_vit().state_dict(), tmp_path / "w.pt")
    with pytest.raises(UsageError, match=r"position_embeddings is of 2³ patches of 8³, an edge of 16; found 96"):
        foreign.load(path, Card(heads=4, edge=96), GRID)


def test_a_file_of_no_known_architecture_is_told_what_is_known(tmp_path: Path):
    path = written({"layer1.weight": torch.ones(2)}, tmp_path / "resnet.pth")
    with pytest.raises(UsageError, match=r"resnet\.pth: no known 3D encoder: found keys such as layer1\.weight; .*Primus"):
        foreign.load(path, Card(), GRID)


def test_2d_weights_are_told_apart(tmp_path: Path):
    flat = dino_state(rotary=False) | {"patch_embed.proj.weight": torch.ones(24, 3, 4, 4)}
    with pytest.raises(UsageError, match=r"w\.pth: patch_embed\.proj\.weight has shape \[24, 3, 4, 4\], a 2D network"):
        foreign.load(written(flat, tmp_path / "w.pth"), Card(heads=2), GRID)


STATES = [(lambda: monai_vit().state_dict(), 4), (primus_state, 2), (dino_state, None), (lambda: dino_state(False), 2)]


@pytest.mark.parametrize(("state", "heads"), STATES, ids=["monai", "primus", "rotary", "learned"])
def test_a_tensor_that_is_gone_or_of_another_shape_ends_in_a_sentence_about_the_file(
    tmp_path: Path, state, heads: int | None, monkeypatch: pytest.MonkeyPatch
):
    whole, refusals, tried = state(), 0, 0
    for key, value in whole.items():
        for other in (None, value.sum(), value.flatten(), value[..., :-1], value[None], value[:0]):
            changed = {name: one for name, one in whole.items() if name != key} | ({} if other is None else {key: other})
            monkeypatch.setattr(foreign, "read_tensors", lambda path, changed=changed: changed)
            tried += 1
            try:
                foreign.load(tmp_path / "w.pt", Card(heads=heads), GRID)
            except UsageError as refused:
                refusals += str(refused).startswith(f"{tmp_path / 'w.pt'}: ")
    assert refusals > 0.8 * tried  # a vector is its own flattened self, and a mask token may be as it likes
