"""Networks of any number of sequences: one, two and five, where the default is four."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mri_vit.data import draw
from mri_vit.data.draw import stream
from mri_vit.errors import UsageError
from mri_vit.explain.methods.occlusion import scores_by_scan
from mri_vit.model import network
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.model.weights import fill, inflated_kernel
from mri_vit.pretrain.encoder import untrained
from mri_vit.pretrain.mae import MaskedAutoencoder
from mri_vit.settings.schema import Endpoint, Model, Pretrain, Study
from mri_vit.settings.sections import Explain, Grid, Prepare

GRID = Grid(edge=12, spacing_mm=10.0, patch=4)
HEADS = [Head(Endpoint(name="mgmt", kind="binary"), "binary")]
LISTS = [("flair",), ("t1", "flair"), ("t1", "t1ce", "t2", "flair", "adc")]


def made(channels: tuple[str, ...], seed: int = 0, **changes: object) -> Network:
    torch.manual_seed(seed)
    model = Model.model_validate(
        {"dim": 24, "depth": 2, "heads": 2, "mlp": 32, "zero_head": False, "channels": channels} | changes
    )
    return Network(model, GRID, HEADS, channels).eval()


def given(channels: tuple[str, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    patches = torch.randn(2, 9, len(channels) * 4**3, generator=torch.Generator().manual_seed(1))
    return patches, torch.arange(9).expand(2, -1)


@pytest.mark.parametrize("channels", LISTS, ids=len)
@pytest.mark.parametrize("stem", [{}, {"stem": 8}, {"conv_stem": 4}, {"architecture": "resnet10"}], ids=str)
def test_a_network_reads_every_sequence_and_comes_back_from_its_file(tmp_path: Path, channels: tuple[str, ...], stem: dict):
    net, (patches, position) = made(channels, **stem), given(channels)
    patches.requires_grad_()
    out = net(patches, position)["mgmt"]
    (slope,) = torch.autograd.grad(out.sum(), patches)
    assert slope.view(2, 9, len(channels), -1).abs().sum(dim=(0, 1, 3)).gt(0).all()
    network.save(net, tmp_path / "best.safetensors")
    again = network.load(tmp_path / "best.safetensors").eval()
    assert again.channels == channels
    torch.testing.assert_close(again(patches, position)["mgmt"], out, atol=1e-5, rtol=1e-5)


def test_weights_of_other_sequences_are_refused_by_their_names(tmp_path: Path):
    network.save(made(("t1", "flair")), tmp_path / "two.safetensors")
    other = made(("t1", "t2"))
    with pytest.raises(UsageError, match=r"its model\.channels is \('t1', 'flair'\), the study's \('t1', 't2'\)"):
        fill(other.encoder, tmp_path / "two.safetensors", other.model, GRID)


@pytest.mark.parametrize("channels", LISTS, ids=len)
def test_shapley_values_of_any_number_of_sequences_add_up(channels: tuple[str, ...]):
    net, (patches, position) = made(channels), given(channels)
    found = scores_by_scan(net, patches, position)["mgmt"]
    assert set(found) == {"evidence", "empty", *channels}
    total = torch.stack([found[name] for name in channels]).sum(dim=0)
    torch.testing.assert_close(total, found["evidence"] - found["empty"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_2d_kernel_says_the_same_of_equal_scans_whatever_their_number(count: int):
    kernel, scan = torch.randn(6, 3, 4, 4), torch.randn(4**3)
    four, found = (inflated_kernel(kernel, n) @ scan.repeat(n) for n in (4, count))
    torch.testing.assert_close(found, four, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("channels", LISTS, ids=len)
def test_a_masked_autoencoder_reconstructs_and_augmentation_keeps_one_of_any_number(tmp_path: Path, channels: tuple[str, ...]):
    study = Study(
        name="x", cohort=tmp_path, prepared=tmp_path, output=tmp_path, grid=GRID, channels=channels,
        prepare=Prepare(reference=channels[0]), model=Model(dim=24, depth=1, heads=2, mlp=32),
        pretrain=Pretrain(method="mae"), explain=Explain(patients=0, scored=0),
    )  # fmt: skip
    net, (patches, position) = MaskedAutoencoder(untrained(study), study), given(channels)
    loss = net(patches[:, :4], position[:, :4], patches[:, 4:], position[:, 4:])
    loss.backward()
    assert net.decoder.predict.weight.grad is not None
    assert net.decoder.predict.out_features == len(channels) * 4**3
    kept = [draw.kept_scans(len(channels), 0.9, stream("s", i)) for i in range(50)]
    assert all(one.shape == (len(channels),) and one.any() for one in kept)
