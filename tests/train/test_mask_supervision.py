"""Guidance by tumour masks: each target's least is where it should be, and prediction neither has nor needs anything of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

from mri_vit.crossval.comparators import check
from mri_vit.data import cohort, draw, tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.draw import EMPTY_ROW
from mri_vit.errors import UsageError
from mri_vit.model.heads import Head
from mri_vit.model.network import Network
from mri_vit.prepare.prepared import mask_on_grid
from mri_vit.run import files
from mri_vit.settings.recipe import Model
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid, Prepare
from mri_vit.train import checkpoint, mask_supervision
from mri_vit.train.feed import Feed
from mri_vit.train.loop import Turn
from mri_vit.train.mask_supervision import Masks, MaskSupervised, attention_loss, network_pass, within
from mri_vit.train.supervised import fit, untrained

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine
ALL: dict[str, Any] = {
    "mask_supervision_attention": 1.0,
    "mask_supervision_patch_labels": 1.0,
    "mask_supervision_token_labels": 1.0,
}


def changed(study: Study, model: dict[str, Any] | None = None, **train: Any) -> Study:
    settings = {"model": study.model.model_copy(update=model or {}), "train": study.train.model_copy(update=train)}
    return study.model_copy(update=settings)


@pytest.fixture
def masked(tiny: Study) -> tuple[Study, list[Patient]]:
    """The tiny cohort, of whom all but every fifth have a tumour of 3³ voxels at a place of their own."""
    rng, patients = np.random.default_rng(1), []
    for index, patient in enumerate(cohort.read(tiny.cohort, tiny.endpoints)):
        record = {"config_sha256": "", "inputs": {}, "steps": [], "to_grid": {"t1ce": np.eye(4).tolist()}}
        (tiny.prepared / patient.id / files.PATIENT).write_text(json.dumps(record))
        drawn = np.zeros((8, 8, 8), np.uint8)
        i, j, k = rng.integers(1, 4, 3)
        drawn[i : i + 3, j : j + 3, k : k + 3] = 1
        mask = tiny.cohort.parent / f"{patient.id}-tumour.nii.gz"
        nib.save(nib.Nifti1Image(drawn, np.array(tiny.grid.affine)), mask)  # type: ignore[attr-defined]
        patients.append(patient if index % 5 == 4 else replace(patient, tumour_mask=mask))
    return tiny, patients


def test_a_tokens_share_is_that_of_its_place_and_unknown_without_a_mask(masked):
    study, patients = masked
    known, unknown = patients[3], patients[4]
    masks = Masks([unknown, known], study)
    stored = tokens.load(study.prepared / known.id / files.TOKENS)
    whole = mask_on_grid(known.tumour_mask, study.prepared / known.id, study.grid)
    share = tokens.patchify(whole[None].astype(np.float32), study.grid.patch).mean(axis=1)
    assert share.sum() > 0
    drawn = draw.drawn(1, stored.position, study, len(stored.position) + 3, np.random.default_rng(0))
    np.testing.assert_allclose(masks(drawn)[0], np.where(drawn.row[0] == EMPTY_ROW, 0, share[drawn.position[0]]), rtol=1e-6)
    assert (drawn.row == EMPTY_ROW).sum() == 3  # which are air, without tumour
    assert masks(replace(drawn, patient=np.zeros_like(drawn.patient))).isnan().all()


def test_a_moved_and_mirrored_tokens_share_is_that_of_the_moved_and_mirrored_mask(masked):
    study, patients = masked
    stored = tokens.load_place(study.prepared / patients[3].id / files.TOKENS)
    drawn = draw.drawn(0, stored, study, len(stored), np.random.default_rng(0))
    whole = mask_on_grid(patients[3].tumour_mask, study.prepared / patients[3].id, study.grid)
    for by in ((1, 0, 0), (-1, 1, -1)):
        moved = replace(drawn, moved=np.broadcast_to(np.array(by), drawn.moved.shape), mirrored=np.ones_like(drawn.mirrored))
        expected = tokens.patchify(np.roll(whole, by, (0, 1, 2))[None].astype(np.float32), study.grid.patch).mean(axis=1)
        np.testing.assert_allclose(Masks(patients[3:5], study)(moved)[0], expected[drawn.position[0]], rtol=1e-6)


def test_without_a_single_mask_there_is_nothing_to_learn_from(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    supervised = changed(tiny, mask_supervision_attention=1.0)
    check(supervised, patients)  # they are found when patients are prepared
    with pytest.raises(UsageError, match="none of 24 patients has one, and with"):
        check(supervised.model_copy(update={"prepare": Prepare(tumour="given")}), patients)
    with pytest.raises(UsageError, match="tumours are found in FLAIR"):
        check(supervised.model_copy(update={"channels": ("t1", "t1ce")}), patients)
    with pytest.raises(UsageError, match="none of 24 training patients has one"):
        Masks(patients, supervised)


def test_attention_is_best_where_it_is_shared_out_as_the_tumour_is():
    share = torch.tensor([[0.2, 0.0, 0.6, 0.2], [torch.nan] * 4, [0.0] * 4])
    logits = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(0))
    weight = share[0] ** 2 / (share[0] ** 2).sum()
    least = -(weight * weight.clamp_min(1e-30).log()).sum()  # its entropy
    best = F.pad(weight, (1, 0)).clamp_min(1e-30).log().expand(3, 2, 5)
    torch.testing.assert_close(attention_loss(best, share), least)
    assert attention_loss(logits, share) > least
    by_hand = -(weight * logits[0].log_softmax(-1)[:, 1:]).sum(-1).mean()  # of the only patient with tumour
    torch.testing.assert_close(attention_loss(logits, share), by_hand)
    assert attention_loss(logits[1:], share[1:]) == 0


def test_regions_count_by_the_square_of_their_share_of_tumour():
    regions, share = torch.randn(3, 4, 5), torch.tensor([[0.0, 0.5, 0.0, 1.0], [0.0] * 4, [torch.nan] * 4])
    torch.testing.assert_close(within(regions, share)[0], (regions[0, 1] + 4 * regions[0, 3]) / 5)
    assert (within(regions, share)[1:] == 0).all()


@pytest.mark.parametrize(
    "model", [{}, {"depth": 1}, {"depth": 0, "pool": "max"}, {"architecture": "resnet10"}, {"architecture": "resnet10_max"}]
)
def test_a_guided_network_puts_out_what_the_network_does(masked, model: dict[str, Any]):
    study, patients = masked
    study = changed(study, {**model, "zero_head": False}, **ALL, token_budget=None)
    plain = untrained(patients, study, 0).eval()
    guided = MaskSupervised(plain, study.train).eval()
    patches, position = torch.randn(2, 20, 32), torch.stack([torch.randperm(64)[:20] for _ in range(2)])
    share, labels = torch.rand(2, 20), {"mgmt": torch.tensor([[1.0], [0.0]]), "os": torch.tensor([[90.0, 1.0], [500.0, 0.0]])}
    outs, loss = guided.with_auxiliary_loss(patches, position, share, labels)
    for name, expected in plain(patches, position).items():
        torch.testing.assert_close(outs[name], expected)
        torch.testing.assert_close(guided(patches, position)[name], expected)
    loss.backward()
    assert loss > 0
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in guided.told.parameters())
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in guided.encoded.parameters())
    assert len(guided.encoded) == (0 if "architecture" in model else 2)  # a map's voxels are encoded, and told already


def test_only_encoded_tokens_know_where_they_are_and_what_else_there_is(masked):
    study, patients = masked
    study = changed(study, {"zero_head": False, "drop_path": 0.0, "depth": 2}, mask_supervision_token_labels=1.0)
    plain = untrained(patients, study, 0).eval()
    patches, position, share = torch.randn(1, 20, 32), torch.arange(20)[None], torch.rand(1, 20)
    seen, elsewhere = network_pass(plain, patches, position, share), network_pass(plain, patches, position + 7, share)
    others = torch.cat([patches[:, :1], torch.randn(1, 19, 32)], dim=1)
    among_others = network_pass(plain, others, position, share)
    for one in (elsewhere, among_others):
        torch.testing.assert_close(one.regions[:, 0], seen.regions[:, 0])
        assert one.encoded is not None
        assert seen.encoded is not None
        assert (one.encoded[:, 0] - seen.encoded[:, 0]).abs().max() > 1e-4


@pytest.mark.parametrize("model", [{"depth": 1}, {"depth": 3}, {"depth": 0, "pool": "max"}])
def test_encoded_tokens_are_those_that_the_last_block_reads(masked, model: dict[str, Any]):
    study, patients = masked
    net = untrained(patients, changed(study, {**model, "zero_head": False, "drop_path": 0.0}), 0).eval()
    patches, position, read = torch.randn(1, 20, 32), torch.arange(20)[None], []
    if net.encoder.layers:
        net.encoder.layers[-1].register_forward_pre_hook(lambda _, given: read.append(given[0]))
    seen = network_pass(net, patches, position, torch.rand(1, 20))
    torch.testing.assert_close(seen.encoded, (read or [net.encoder.tokens(patches, position)])[0][:, 1:])


def test_a_map_is_told_the_share_of_the_part_of_the_box_that_it_stands_for():
    grid = Grid(edge=64, spacing_mm=4.0, patch=8)
    net = Network(Model(architecture="resnet10"), grid, [Head(Study.model_fields["endpoints"].default[0], "binary")]).eval()
    position, box = torch.arange(512)[None], net.encoder.box
    share = torch.zeros(1, 512)
    share[0, position[0][box.slot(position)[0] < np.prod(box.sides)]] = 1.0  # everything that is read is tumour
    found = network_pass(net, torch.zeros(1, 512, 4 * 512), position, share)
    assert found.regions.shape[:2] == found.share.shape
    torch.testing.assert_close(found.share, torch.ones_like(found.share))
    half = share * (position // 64 < 4)  # the lower half of x
    found = network_pass(net, torch.zeros(1, 512, 4 * 512), position, half)
    torch.testing.assert_close(found.share.mean(), half.sum() / share.sum(), atol=1e-6, rtol=0)


def test_guidance_makes_cls_attend_to_the_tumour_and_leaves_nothing_in_the_file(masked, tmp_path):
    study, patients = masked
    study = changed(study, {"drop_path": 0.0}, epochs=30, learning_rate=5e-3, token_budget=None, flip_lr=False)
    attended, kept = {}, {}
    for name, weights in (("plain", dict[str, Any]()), ("guided", ALL)):
        (folder := tmp_path / name).mkdir()
        net = fit(patients[:16], patients[16:], changed(study, **weights), folder, 0).eval()
        attended[name] = np.mean([on_tumour(net, patient, study) for patient in patients[:16] if patient.tumour_mask])
        kept[name] = set(safetensors.torch.load_file(folder / files.WEIGHTS))
    assert kept["guided"] == kept["plain"]
    assert attended["guided"] > 1.3 * attended["plain"]


@torch.no_grad()
def on_tumour(net: Network, patient: Patient, study: Study) -> float:
    """How many times the attention of an even share CLS pays to places with tumour."""
    assert patient.tumour_mask
    stored = tokens.load(study.prepared / patient.id / files.TOKENS)
    patches, position = torch.from_numpy(stored.patches).float()[None], torch.from_numpy(stored.position.astype(np.int64))[None]
    matrix = net.encoder.attention(patches, position)[-1]
    tumour = mask_on_grid(patient.tumour_mask, study.prepared / patient.id, study.grid)
    holds = tokens.patchify(tumour[None].astype(np.float32), study.grid.patch)[stored.position].any(axis=1)
    return float(matrix[0, :, 0, 1:].mean(dim=0)[torch.from_numpy(holds)].sum() / holds.mean())


def test_a_guided_training_that_was_stopped_goes_on_as_if_it_had_not_been(masked, tmp_path, monkeypatch):
    study, patients = masked
    study = changed(study, **ALL, tumour_tokens_first=True, translation_mm=10.0, token_budget=8, epochs=6)
    (tmp_path / "whole").mkdir()
    whole = fit(patients[:16], patients[16:], study, tmp_path / "whole", 0)
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)

    def stop(epoch: int, epochs: int, loss: float, rate: float) -> None:
        if epoch == 4:
            raise KeyboardInterrupt

    (tmp_path / "stopped").mkdir()
    with pytest.raises(KeyboardInterrupt):
        fit(patients[:16], patients[16:], study, tmp_path / "stopped", 0, stop)
    resumed = fit(patients[:16], patients[16:], study, tmp_path / "stopped", 0)
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(("precision", "dtype"), [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)])
def test_guidance_is_computed_in_the_precision_that_is_asked_for(
    masked, tmp_path, monkeypatch, precision: str, dtype: torch.dtype
):
    study, patients = masked
    seen = set()

    def watched(logits: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        seen.add(logits.dtype)
        return attention_loss(logits, share)

    monkeypatch.setattr(mask_supervision, "attention_loss", watched)
    fit(patients[:16], patients[16:], changed(study, **ALL, precision=precision, epochs=1), tmp_path, 0)
    assert seen == {dtype}


def test_a_token_budget_keeps_the_tokens_that_hold_tumour(masked):
    study, patients = masked
    feed = Feed(patients, changed(study, tumour_tokens_first=True, token_budget=20), torch.device("cpu"), 0)
    drawn = feed.draw(Turn(0, 0, tuple(range(4)), (0,) * 4))
    for patient in range(4):
        holds = set(np.flatnonzero(feed.masks.holds[patient]))
        assert 0 < len(holds) <= 20
        assert holds <= set(drawn.row[patient].tolist())


@pytest.mark.parametrize("architecture", ["monai_vit", "swin_vit", "hybrid_resnet10"])
def test_a_network_without_tokens_or_a_map_cannot_be_guided(masked, architecture: str):
    study, patients = masked
    study = changed(study, {"architecture": architecture}, mask_supervision_attention=1.0, token_budget=None)
    study = study.model_copy(update={"grid": Grid(edge=64, spacing_mm=4.0, patch=8)})
    with pytest.raises(UsageError, match=f"{architecture} has neither"):
        check(study, patients)
