"""DINO of a network of volumes: crops lie in air, and teacher and student each normalise over what they see themselves."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from made.views import loaded, views
from safetensors.torch import load_file
from torch import Tensor, nn

from mri_vit.data import cohort
from mri_vit.data.tokens import to_volume
from mri_vit.errors import UsageError
from mri_vit.model import baselines, network
from mri_vit.model.network import Network
from mri_vit.model.weights import fill, image_exposed, label_exposed, load_encoder
from mri_vit.pretrain import dino
from mri_vit.pretrain.dino import Dino
from mri_vit.pretrain.encoder import pretrain, pretrained, untrained
from mri_vit.settings.recipe import Pretrain
from mri_vit.settings.schema import Comparator, Study
from mri_vit.train import checkpoint
from mri_vit.train.supervised import fit

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine

RATE, EPS = 0.1, 1e-5  # of a step by hand; what PyTorch's batch normalisation adds to a variance


@pytest.fixture
def study(tiny: Study, monkeypatch: pytest.MonkeyPatch) -> Study:
    """The tiny study of a comparator with one convolution, under a ResNet's name."""
    small = replace(
        baselines.BASELINES["resnet10"],
        build=lambda model, channels, size, patch: nn.Sequential(
            nn.Conv3d(channels, 5, 3), nn.BatchNorm3d(5, EPS), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()
        ),
        width=5,
    )
    monkeypatch.setitem(baselines.BASELINES, "resnet10", small)
    monkeypatch.setattr(dino, "PROTOTYPES", 16)
    monkeypatch.setattr(dino, "TEACHER_MOMENTUM", 0.9)  # so that the teacher moves within a test
    learning = {"method": "dino", "epochs": 3, "batch_size": 8, "local_crops": 0}
    return tiny.of(Comparator(name="resnet10", model={"architecture": "resnet10"}, pretrain=learning))


def with_local_crops(study: Study) -> Study:
    return study.model_copy(update={"pretrain": study.pretrain.model_copy(update={"local_crops": 2})})


def objective(study: Study) -> Any:  # a `Dino`, of whose network no type is known
    torch.manual_seed(0)
    net = Dino(untrained(study), study).train()
    net.begin(1)
    return net


def shown(net: Any, study: Study, seed: int = 0) -> list[Tensor]:
    return views(net, loaded(cohort.read(study.cohort, study.endpoints)[:4], study), np.random.default_rng(seed))


def normalised(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Batch normalisation as its paper writes it: over patients and voxels, with the variance of a population."""
    mean = x.mean(dim=(0, 2, 3, 4), keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=(0, 2, 3, 4), keepdim=True)
    return (x - mean) / (variance + EPS).sqrt() * scale.reshape(1, -1, 1, 1, 1) + shift.reshape(1, -1, 1, 1, 1)


def test_a_crop_lies_at_its_places_and_all_else_is_air(study):
    plain = study.model_copy(update={"train": study.train.model_copy(update={"flip_lr": False, "intensity_jitter": 0.0})})
    net = objective(plain)
    patients = loaded(cohort.read(study.cohort, study.endpoints)[:4], study)
    patches, position = views(net, patients, np.random.default_rng(0))
    found = net.encoder.volume(patches, position).numpy()
    (i, j, k), (i_end, j_end, k_end) = net.encoder.box.start, net.encoder.box.end
    p, side = study.grid.patch, study.grid.side
    for row, volume in enumerate(found):
        whole = to_volume(patients[row % 4]).astype(np.float32)
        kept = np.zeros(side**3, bool)
        kept[position[row].numpy()] = True
        there = np.kron(kept.reshape(side, side, side), np.ones((p, p, p), bool))
        expected = np.where(there, whole, 0)[:, i * p : i_end * p, j * p : j_end * p, k * p : k_end * p]
        np.testing.assert_array_equal(volume, expected)
        assert 0 < (volume != 0).sum() < (whole != 0).sum()


def test_two_steps_move_student_teacher_and_centre_as_by_hand(study):
    net, centre = objective(study), torch.zeros(dino.PROTOTYPES)
    for seed in range(2):
        before, crops = copy.deepcopy(net), shown(net, study, seed)
        net(*crops).backward()
        torch.optim.SGD(net.learned(), RATE).step()
        net.zero_grad()
        net.stepped(0.0)
        centre = as_by_hand(before, net, crops, centre)
        torch.testing.assert_close(net.centre, centre, rtol=1e-4, atol=1e-6)
        assert centre.abs().max() > 1e-3  # so that the second step's teacher is centred
        assert any(not torch.equal(then, weight) for then, weight in zip(net.learned(), before.learned(), strict=True))


def as_by_hand(before: Any, after: Any, crops: list[Tensor], centre: Tensor) -> Tensor:
    """Check a step with the network, the loss and both updates written out; returns the centre that it leaves."""
    volume = before.encoder.volume(*crops)

    def features(of: Any) -> Tensor:
        convolution, norm = of.net[0], of.net[1]
        x = torch.nn.functional.conv3d(volume, convolution.weight, convolution.bias)
        return torch.relu(normalised(x, norm.weight, norm.bias)).mean(dim=(2, 3, 4))

    student = before.head(features(before.encoder))
    with torch.no_grad():
        teacher = before.teacher[1](features(before.teacher[0]))
        sharp = torch.softmax((teacher - centre) / dino.TEACHER_TEMPERATURE, dim=1)
    log = torch.log_softmax(student / dino.STUDENT_TEMPERATURE, dim=1)
    first, second = slice(0, 4), slice(4, 8)  # the two views of four patients
    loss = -((sharp[first] * log[second]).sum() + (sharp[second] * log[first]).sum()) / 8
    gradients = torch.autograd.grad(loss, before.learned())
    old = list(before.teacher.parameters())
    for weight, gradient, mine, then, now in zip(
        before.learned(), gradients, old, after.learned(), after.teacher.parameters(), strict=True
    ):
        moved = weight - RATE * gradient
        torch.testing.assert_close(then, moved, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(now, 0.9 * mine + 0.1 * moved, rtol=1e-4, atol=1e-6)
    return dino.CENTRE_MOMENTUM * centre + (1 - dino.CENTRE_MOMENTUM) * teacher.mean(dim=0)


def test_the_teacher_gets_no_gradient_and_all_of_the_student_does(study):
    net = objective(study)
    net(*shown(net, study)).backward()
    assert all(p.grad is None and not p.requires_grad for p in net.teacher.parameters())
    assert all(p.grad is not None for p in net.learned())
    assert {id(p) for p in net.learned()} >= {id(p) for p in net.encoder.parameters()}


def test_running_statistics_are_of_each_networks_own_crops_and_are_not_averaged(study):
    net = objective(with_local_crops(study))
    crops = shown(net, study)
    volumes = [net.encoder.volume(*crops[:2]), net.encoder.volume(*crops[2:])]
    with torch.no_grad():
        large, small = (net.encoder.net[0](volume) for volume in volumes)
    net(*crops)
    student, teacher = net.encoder.net[1], net.teacher[0].net[1]
    of_large = 0.1 * large.mean(dim=(0, 2, 3, 4))  # momentum 0.1, from 0
    torch.testing.assert_close(teacher.running_mean, of_large)
    torch.testing.assert_close(student.running_mean, 0.9 * of_large + 0.1 * small.mean(dim=(0, 2, 3, 4)))
    assert (int(teacher.num_batches_tracked), int(student.num_batches_tracked)) == (1, 2)
    kept = {name: buffer.clone() for name, buffer in net.teacher.named_buffers()}
    net.stepped(0.0)
    assert all(torch.equal(buffer, kept[name]) for name, buffer in net.teacher.named_buffers())


def test_a_killed_pretraining_ends_with_the_same_bytes(study, tmp_path, monkeypatch):
    study, patients = with_local_crops(study), cohort.read(study.cohort, study.endpoints)[:8]
    history = pretrain(patients, study, tmp_path / "whole" / "e.safetensors", 0)
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)

    def killed(epoch: int, *_: float) -> None:
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(patients, study, tmp_path / "killed" / "e.safetensors", 0, killed)
    assert list((tmp_path / "killed").glob("*.state"))
    again = pretrain(patients, study, tmp_path / "killed" / "e.safetensors", 0)
    assert (tmp_path / "whole" / "e.safetensors").read_bytes() == (tmp_path / "killed" / "e.safetensors").read_bytes()
    assert again.to_dict() == history.to_dict()


def test_the_file_says_who_was_seen_and_fills_the_same_network_in_a_study(study, tmp_path):
    patients, file = cohort.read(study.cohort, study.endpoints), tmp_path / "e.safetensors"
    begun = pretrained(study, patients[:8], file, 0)
    weights, header = load_encoder(file)
    assert header["model"]["architecture"] == "resnet10"
    assert image_exposed(file) == sorted(p.subject for p in patients[:8])
    assert label_exposed(file) == []
    assert begun.model.weights == file
    filled = Network(begun.model, begun.grid, [], begun.channels)
    fill(filled.encoder, file, begun.model, begun.grid)
    torch.testing.assert_close(filled.encoder.state_dict(), weights, rtol=0, atol=0)
    assert weights["net.1.num_batches_tracked"] > 0  # statistics come along
    short = begun.model_copy(update={"train": begun.train.model_copy(update={"epochs": 1, "learning_rate": 1e-12})})
    trained = fit(patients[8:12], patients[12:16], short, tmp_path / "fold", seed=0)
    torch.testing.assert_close(trained.encoder.net[0].weight, weights["net.0.weight"], rtol=0, atol=1e-6)
    assert set(trained.image_exposed) == {p.subject for p in patients[:8]}


def test_a_networks_file_is_refused_in_another_architecture(study, tiny, tmp_path):
    file = tmp_path / "e.safetensors"
    pretrain(cohort.read(study.cohort, study.endpoints)[:8], study, file, 0)
    with pytest.raises(UsageError, match=r"e\.safetensors: its weights are of architecture resnet10, the study's model is vit"):
        fill(network.encoder(tiny.model, tiny.grid, tiny.channels), file, tiny.model, tiny.grid)


def test_a_collapse_of_such_a_network_is_found(study, tmp_path):
    patients = cohort.read(study.cohort, study.endpoints)[:8]
    table = pretrain(patients, study, tmp_path / "e.safetensors", 0)
    assert dino.collapsed(table) is None
    net = objective(study)
    with torch.no_grad():
        for network_ in (net.encoder, net.teacher[0]):
            network_.net[1].weight.zero_()  # every feature is the same of everybody
            network_.net[1].bias.fill_(1.0)
    net(*shown(net, study))
    assert "DINO has collapsed" in (dino.collapsed(pd.DataFrame([net.watched()])) or "")


@pytest.mark.parametrize("architecture", ["resnet10", "hybrid_resnet10"])
def test_a_masked_autoencoder_of_another_architecture_is_refused(tiny, tmp_path: Path, architecture: str):
    of = tiny.of(Comparator(name="a", model={"architecture": architecture}))
    asked = of.model_copy(update={"pretrain": Pretrain(method="mae")})
    with pytest.raises(UsageError, match=f"is for architecture vit, found {architecture}, which has no tokens to hide; dino"):
        pretrain(cohort.read(tiny.cohort, tiny.endpoints), asked, tmp_path / "e.safetensors", 0)


def test_the_state_has_both_networks_and_their_statistics(study, tmp_path):
    net = objective(study)
    net(*shown(net, study))
    file = tmp_path / "e.state"
    checkpoint.save(checkpoint.State(), net, torch.optim.AdamW(net.learned()), file)
    names = {name.removeprefix("net/") for name in load_file(file)}
    for owner in ("encoder", "teacher.0"):
        assert {f"{owner}.net.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")} <= names
