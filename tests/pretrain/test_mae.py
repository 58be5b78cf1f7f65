"""The masked autoencoder and its training: what is visible, what is reconstructed, what the loss counts, what the file says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from made.views import flipped, loaded, views

from mri_vit.data import cohort
from mri_vit.data.draw import Member
from mri_vit.data.tokens import Tokens
from mri_vit.errors import BadNumbers, IntegrityError, UsageError
from mri_vit.model.weights import load_encoder
from mri_vit.pretrain import mae
from mri_vit.pretrain.encoder import pretrain, untrained
from mri_vit.pretrain.mae import VARIANCE_FLOOR, MaskedAutoencoder, encoded, masked_error, scattered, target, visible
from mri_vit.settings.recipe import Pretrain
from mri_vit.settings.schema import Study
from mri_vit.train import checkpoint
from mri_vit.train.loop import rate

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


@pytest.fixture
def study(tiny: Study) -> Study:
    settings = Pretrain(method="mae", epochs=3, batch_size=8, learning_rate=1e-3)
    return tiny.model_copy(update={"pretrain": settings})


def changed(study: Study, **sections: Any) -> Study:
    return study.model_copy(update=sections)


def plain(study: Study) -> Study:
    """The study without augmentation."""
    return changed(study, train=study.train.model_copy(update={"flip_lr": False, "intensity_jitter": 0.0}))


def patients_of(study: Study) -> list[cohort.Patient]:
    return cohort.read(study.cohort, study.endpoints)


def some(study: Study, count: int = 4) -> list[Tokens]:
    return loaded(patients_of(study)[:count], study)


def objective(study: Study, seed: int = 0) -> MaskedAutoencoder:
    torch.manual_seed(seed)
    return MaskedAutoencoder(untrained(study), study)


def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_patches(seed: int = 0) -> torch.Tensor:
    """2 patients × 3 patches of 4 channels × 8 voxels; some voxels are background, one patch has a single brain voxel."""
    patches = torch.randn(2, 3, 32, generator=random(seed)).view(2, 3, 4, 8)
    patches[0, 0, :, 3:] = 0
    patches[0, 1, :, 1:] = 0
    patches[1, 2, 2, 4] = 0  # zero in one channel alone: still brain
    return patches.reshape(2, 3, 32)


def naive_loss(predicted: np.ndarray, patches: np.ndarray) -> float:
    """The same loss number by number."""
    total, count = 0.0, 0
    for told, patch in zip(predicted.reshape(-1, 4, 8), patches.reshape(-1, 4, 8), strict=True):
        brain = [x for x in range(8) if any(patch[c, x] != 0 for c in range(4))]
        for c in range(4):
            values = [float(patch[c, x]) for x in brain]
            mean = sum(values) / len(values)
            variance = sum((value - mean) ** 2 for value in values) / len(values)
            for x, value in zip(brain, values, strict=True):
                total += (float(told[c, x]) - (value - mean) / math.sqrt(variance + VARIANCE_FLOOR)) ** 2
                count += 1
    return total / count


def test_the_loss_is_that_of_a_loop_over_every_number():
    patches, predicted = some_patches(), torch.randn(2, 3, 32, generator=random(1))
    assert masked_error(predicted, *target(patches, "patch", 4)).item() == pytest.approx(
        naive_loss(predicted.numpy(), patches.numpy()), rel=1e-5
    )


def test_a_target_has_no_mean_and_at_most_unit_variance_in_each_channel_and_is_zero_outside_the_brain():
    wanted, brain = target(some_patches(), "patch", 4)
    assert not wanted[~brain].any()
    x, of = wanted.view(2, 3, 4, 8), brain.view(2, 3, 4, 8)
    count = of.sum(dim=3)
    torch.testing.assert_close(x.sum(dim=3) / count, torch.zeros(2, 3, 4), atol=1e-6, rtol=0)
    assert (x.square().sum(dim=3) / count <= 1).all()
    assert (x[1, 0].square().mean(dim=1) > 0.9).all()  # a whole patch of usual contrast


def test_a_patch_of_faint_noise_is_not_blown_up():
    faint = 1 + 0.001 * torch.randn(1, 1, 32, generator=random(0))
    assert target(faint, "patch", 4)[0].abs().max() < 0.1


def test_a_gain_and_a_shift_change_the_target_little():
    patches = 2 * some_patches()
    other = torch.where(patches == 0, patches, 1.1 * patches + 0.2)
    whole = (slice(1, 2), slice(0, 2))  # patches without background
    torch.testing.assert_close(target(patches, "patch", 4)[0][whole], target(other, "patch", 4)[0][whole], atol=0.02, rtol=0)


def test_background_voxels_do_not_count():
    patches, predicted = some_patches(), torch.randn(2, 3, 32, generator=random(1))
    wanted, brain = target(patches, "patch", 4)
    other = torch.where(brain, predicted, 1e6)
    assert masked_error(predicted, wanted, brain) == masked_error(other, wanted, brain)


def test_a_batch_without_any_brain_has_a_loss_of_zero():
    wanted, brain = target(torch.zeros(1, 2, 32), "patch", 4)
    assert masked_error(torch.ones(1, 2, 32), wanted, brain) == 0


def test_the_error_of_a_perfect_decoder_is_zero_and_visible_patches_do_not_count(study, monkeypatch):
    net = objective(study)
    seen, at, hidden, position = views(net, some(study), np.random.default_rng(0))
    monkeypatch.setattr(net.decoder, "forward", lambda *_: target(hidden, "patch", 4)[0])
    assert net(seen, at, hidden, position) == 0
    monkeypatch.setattr(net.decoder, "forward", lambda *_: torch.zeros_like(hidden))
    assert net(seen, at, hidden, position) == net(seen + 1, at, hidden, position) > 0


@pytest.mark.parametrize(("count", "share", "seen"), [(640, 0.25, 160), (7, 0.25, 2), (2, 0.01, 1), (3, 0.99, 2)])
def test_the_encoder_sees_the_share_asked_for_but_never_all_and_never_none(count: int, share: float, seen: int):
    assert visible(count, share) == seen


def test_one_token_cannot_be_both_seen_and_hidden():
    with pytest.raises(ValueError, match="found 1 tokens"):
        visible(1, 0.25)


def test_views_are_tokens_of_the_patient_seen_or_hidden_and_none_is_both(study):
    study = plain(study)
    patients = some(study)
    smallest = min(len(one.position) for one in patients)
    seen, at, hidden, position = views(objective(study), patients, np.random.default_rng(0))
    assert at.shape[1] == seen.shape[1] == round(0.25 * smallest)
    assert position.shape[1] == hidden.shape[1] == math.ceil(mae.RECONSTRUCTED_SHARE * (smallest - at.shape[1]))
    for b, one in enumerate(patients):
        everywhere = torch.cat([at[b], position[b]])
        assert len(everywhere.unique()) == len(everywhere)
        where = {int(p): index for index, p in enumerate(one.position)}
        stored = one.patches[[where[int(p)] for p in everywhere]]
        np.testing.assert_array_equal(torch.cat([seen[b], hidden[b]]).numpy(), stored.astype(np.float32))


def test_in_time_every_token_is_visible_and_every_token_is_reconstructed(study):
    patient = some(study, 1)[0]
    net, generator = objective(plain(study)), np.random.default_rng(0)
    shown = [views(net, [patient], generator) for _ in range(40)]
    for index in (1, 3):
        assert set(torch.cat([view[index][0] for view in shown]).tolist()) == set(patient.position.tolist())


def test_nothing_of_a_hidden_patch_reaches_the_encoder(study):
    net = objective(plain(study)).eval()
    patient = some(study, 1)[0]
    seen, at, hidden, _place = views(net, [patient], np.random.default_rng(0))
    other = patient.patches.copy()
    other[~np.isin(patient.position, at[0].numpy())] += 5
    seen_then, _, hidden_then, _ = views(net, [replace(patient, patches=other)], np.random.default_rng(0))
    assert torch.equal(encoded(net.encoder, seen, at), encoded(net.encoder, seen_then, at))
    assert (hidden != hidden_then).all()


def test_the_decoder_reconstructs_by_place_and_not_by_order(study):
    net = objective(study).eval()
    seen, at, _hidden, position = views(net, some(study), np.random.default_rng(0))
    known = encoded(net.encoder, seen, at)
    told = net.decoder(known, at, position)
    torch.testing.assert_close(net.decoder(known, at, position.flip(1)), told.flip(1), atol=1e-5, rtol=1e-4)
    again = net.decoder(torch.cat([known[:, :1], known[:, 1:].flip(1)], dim=1), at.flip(1), position)
    torch.testing.assert_close(again, told, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(told[:, 0], told[:, 1], atol=1e-3)


@pytest.mark.parametrize("kind", ["patch", "scan"])
def test_a_scan_that_a_patient_lacks_does_not_count(kind: Literal["patch", "scan"]):
    patches = some_patches()
    lacking = patches.view(2, 3, 4, 8).clone()
    lacking[1, :, 3] = 0
    counted = target(lacking.reshape(2, 3, 32), kind, 4)[1].view(2, 3, 4, 8)
    expected = target(patches, kind, 4)[1].view(2, 3, 4, 8).clone()
    expected[1, :, 3] = False
    assert torch.equal(counted, expected)


def test_of_a_scan_what_is_reconstructed_is_what_stands_there():
    patches = some_patches()
    wanted, brain = target(patches, "scan", 4)
    assert torch.equal(wanted, patches)
    assert torch.equal(brain, target(patches, "patch", 4)[1])


@pytest.mark.parametrize("pool", ["cls", "mean", "max"])
def test_given_the_readout_the_decoder_knows_nothing_that_heads_do_not(study, monkeypatch, pool: str):
    read = study.pretrain.model_copy(update={"decoder_reads": "readout"})
    net = objective(changed(study, pretrain=read, model=study.model.model_copy(update={"pool": pool}))).eval()
    seen, at, hidden, position = views(net, some(study), np.random.default_rng(0))
    assert not torch.allclose(net(seen, at, hidden, position), net(2 * seen, at, hidden, position))
    monkeypatch.setattr(net.encoder, "readout", lambda x, *_: torch.ones_like(x[:, 0]))
    assert torch.equal(net(seen, at, hidden, position), net(2 * seen, at.flip(1), hidden, position))


@pytest.mark.parametrize("reads", ["tokens", "readout"])
def test_a_gradient_reaches_every_weight(study, reads: str):
    net = objective(changed(study, pretrain=study.pretrain.model_copy(update={"decoder_reads": reads})))
    net(*views(net, some(study), np.random.default_rng(0))).backward()
    assert [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_two_patients_are_learned_by_heart(study, monkeypatch):
    monkeypatch.setattr(mae, "DECODER_WIDTH", 2)
    net, patients, generator = objective(plain(study)), some(study, 2), np.random.default_rng(0)
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(150):
        optimiser.zero_grad()
        net(*views(net, patients, generator)).backward()
        optimiser.step()
    net.watched()
    net(*views(net, patients, generator))
    assert net.watched()["unexplained"] < 0.45  # their noise is white, and the mean of the two explains half


def test_the_share_unexplained_of_predicting_nothing_is_one(study, monkeypatch):
    net = objective(study)
    monkeypatch.setattr(net.decoder, "forward", lambda known, at, position: torch.zeros(*position.shape, 32))
    net(*views(net, some(study), np.random.default_rng(0)))
    assert net.watched() == {"unexplained": 1.0}
    assert math.isnan(net.watched()["unexplained"])


def test_tokens_scattered_over_the_brain_are_drawn_without_repeats(study):
    patient = some(study, 1)[0]
    assert sorted(scattered(Member(0, patient.position, np.random.default_rng(0)), len(patient.position)).tolist()) == list(
        range(len(patient.position))
    )


def test_pretraining_leaves_an_encoder_that_fits_and_a_header_that_says_whose_scans_it_saw(study):
    patients = patients_of(study)[:8]
    epochs: list[int] = []
    file = study.output / "pretrain" / "encoder.safetensors"
    history = pretrain(patients, study, file, 0, lambda epoch, *_: epochs.append(epoch))
    weights, header = load_encoder(file)
    untrained(study).load_state_dict(weights)
    torch.manual_seed(0)
    start = untrained(study).state_dict()
    assert not any(torch.equal(weights[name], start[name]) for name in start)
    assert header["seen"] == sorted(patient.subject for patient in patients)
    assert header["model"] == study.model.model_dump(mode="json")
    assert header["pretrain"]["method"] == "mae"
    assert list(history.columns) == ["epoch", "loss", "unexplained"]
    assert history.epoch.tolist() == epochs == [1, 2, 3]
    assert sorted(path.name for path in file.parent.iterdir()) == ["encoder.csv", "encoder.safetensors"]


def test_pretraining_goes_on_from_given_weights_and_names_the_patients_of_both(study, tmp_path):
    patients, first, second = patients_of(study), tmp_path / "first", tmp_path / "second"
    pretrain(patients[:4], study, first, 0)
    still = study.pretrain.model_copy(update={"learning_rate": 1e-12, "epochs": 1})
    model = study.model.model_copy(update={"weights": first})
    pretrain(patients[4:8], study.model_copy(update={"model": model, "pretrain": still}), second, 1)
    for name, tensor in weights_of(first).items():
        torch.testing.assert_close(weights_of(second)[name], tensor)
    assert load_encoder(second)[1]["seen"] == sorted(patient.subject for patient in patients[:8])


def weights_of(file: Path) -> dict[str, torch.Tensor]:
    return load_encoder(file)[0]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("method", ["mae", "dino"])
def test_a_killed_pretraining_ends_with_the_same_weights(study, tmp_path, monkeypatch, method: str):
    study = study.model_copy(update={"pretrain": study.pretrain.model_copy(update={"method": method, "local_crops": 1})})
    patients = patients_of(study)[:8]
    history = pretrain(patients, study, tmp_path / "whole" / "e.safetensors", 0)
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)

    def killed(epoch: int, *_: float) -> None:
        if epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(patients, study, tmp_path / "killed" / "e.safetensors", 0, killed)
    assert not (tmp_path / "killed" / "e.safetensors").exists()
    again = pretrain(patients, study, tmp_path / "killed" / "e.safetensors", 0)
    assert same(weights_of(tmp_path / "whole" / "e.safetensors"), weights_of(tmp_path / "killed" / "e.safetensors"))
    assert again.to_dict() == history.to_dict()


def test_labels_change_nothing_and_another_seed_does(study, tmp_path):
    patients = patients_of(study)[:8]
    blind = [replace(patient, labels=dict.fromkeys(patient.labels, math.nan)) for patient in patients]
    pretrain(patients, study, tmp_path / "a", 0)
    pretrain(blind, study, tmp_path / "b", 0)
    pretrain(patients, study, tmp_path / "c", 1)
    assert same(weights_of(tmp_path / "a"), weights_of(tmp_path / "b"))
    assert not same(weights_of(tmp_path / "a"), weights_of(tmp_path / "c"))


def test_a_damaged_or_foreign_encoder_is_refused(study, tmp_path):
    file = tmp_path / "e.safetensors"
    pretrain(patients_of(study)[:4], study, file, 0)
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(IntegrityError, match="weights cannot be read"):
        load_encoder(file)
    with pytest.raises(IntegrityError, match="expected mri-vit encoder 1"):
        load_encoder(study.prepared / "p00" / "tokens.safetensors")


def test_pretraining_without_a_method_or_a_transformer_or_with_one_patient_is_refused(study, tiny, tmp_path):
    with pytest.raises(UsageError, match="'none' on 24 patients"):
        pretrain(patients_of(tiny), tiny, tmp_path / "e", 0)
    network = study.model_copy(update={"model": study.model.model_copy(update={"architecture": "resnet10"})})
    with pytest.raises(UsageError, match="for architecture vit, found resnet10"):
        pretrain(patients_of(study), network, tmp_path / "e", 0)
    with pytest.raises(UsageError, match="on 1 patients"):
        pretrain(patients_of(study)[:1], study, tmp_path / "e", 0)


def test_a_loss_that_is_no_number_stops_with_the_remedy(study, tmp_path, monkeypatch):
    monkeypatch.setattr(mae, "masked_error", lambda predicted, *_: predicted.sum() * math.inf)
    with pytest.raises(BadNumbers, match=r"in epoch 1; try a pretrain\.learning_rate below 0\.001"):
        pretrain(patients_of(study)[:4], study, tmp_path / "e", 0)


def test_the_rate_rises_to_its_peak_and_falls_to_zero(study):
    rates = [rate(step, 100, study.pretrain.learning_rate, study.train.warmup) for step in range(101)]
    assert max(rates) == rates[9] == study.pretrain.learning_rate
    assert rates[100] == pytest.approx(0, abs=1e-12)
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_a_mirrored_view_is_one_of_the_mirrored_patient(study):
    mirrored = study.model_copy(update={"train": study.train.model_copy(update={"intensity_jitter": 0.0})})
    patient = some(study, 1)[0]
    mirror_image = flipped(patient)
    found = set()
    net, generator = objective(mirrored), np.random.default_rng(0)
    for _ in range(12):
        seen, at, _, _ = views(net, [patient], generator)
        for name, whole in (("as it is", patient), ("mirrored", mirror_image)):
            where = {int(p): index for index, p in enumerate(whole.position)}
            if all(int(p) in where for p in at[0]) and (seen[0].numpy() == whole.patches[[where[int(p)] for p in at[0]]]).all():
                found.add(name)
    assert found == {"as it is", "mirrored"}
