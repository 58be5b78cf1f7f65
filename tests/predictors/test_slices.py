"""Frozen 2D features: a random Vision Transformer of the transformers library is the oracle; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from mri_vit.crossval import comparators, comparison, folds
from mri_vit.data import cohort, predictions, tokens
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.model.checkpoint import read_2d
from mri_vit.predictors import slices
from mri_vit.predictors.slices import as_seen, encoder_2d, features, slices_table
from mri_vit.settings.recipe import SLICES
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.sections import Controls, Grid

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine
EDGE = 32  # of the image, as of the grid
GRID = Grid(edge=EDGE, spacing_mm=5.0, patch=8)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """A small random ViT as transformers makes it, biases and norms drawn too, so that none is 0 or 1."""
    from transformers import ViTConfig, ViTModel  # here, because its import takes seconds

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=EDGE, patch_size=8
    )
    model = ViTModel(config, add_pooling_layer=False).eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.fixture(scope="module")
def weights(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "vit.safetensors"
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in theirs.state_dict().items()}, path)
    return path


def asking(study: Study, weights: Path) -> Study:
    return study.model_copy(update={"controls": Controls(models=(SLICES,), slices=weights)})


def head(low: int = 6, high: int = 20, missing: int | None = None) -> tokens.Tokens:
    """A box of brain from one height to another, the same whatever the heights are; a sequence may be missing."""
    noise = np.random.default_rng(0).normal(size=(4, EDGE, EDGE, high - low)).astype(np.float32)
    volume, brain = np.zeros((4, EDGE, EDGE, EDGE), np.float32), np.zeros((EDGE,) * 3, bool)
    volume[..., low:high], brain[4:25, 9:30, low:high] = noise, True
    if missing is not None:
        volume[missing] = 0
    return tokens.from_volume(volume, brain, GRID, "-")


def test_features_are_the_mean_of_transformers_cls_over_grey_slices_seen_from_below(theirs: Any, weights: Path):
    stored = head()
    volume = tokens.to_volume(stored).astype(np.float32)
    found = features(encoder_2d(read_2d(weights)), stored)
    for sequence, own in zip(volume, found, strict=True):
        pictures = []
        for z in range(6, 20):
            picture = np.zeros((EDGE, EDGE), np.float32)
            for x, y in np.ndindex(EDGE, EDGE):
                picture[EDGE - 1 - y, EDGE - 1 - x] = sequence[x, y, z]  # RAS+: y grows to the front, which is up
            pictures.append(picture)
        images = torch.from_numpy(np.stack(pictures))[:, None].expand(-1, 3, -1, -1)
        with torch.no_grad():
            cls = theirs(pixel_values=images).last_hidden_state[:, 0]
        np.testing.assert_allclose(own, cls.double().mean(dim=0).numpy(), atol=1e-5)
    assert found.shape == (4, 128)


def test_slices_of_air_count_nothing_and_a_sequence_that_was_not_acquired_is_missing(weights: Path):
    encoder = encoder_2d(read_2d(weights))
    low, high = features(encoder, head()), features(encoder, head(12, 26))
    np.testing.assert_allclose(low, high, atol=1e-6)
    lacking = features(encoder, head(missing=2))
    assert np.isnan(lacking[2]).all()
    np.testing.assert_allclose(lacking[[0, 1, 3]], low[[0, 1, 3]], atol=1e-6)


def test_a_grid_of_another_size_is_shown_in_the_size_of_the_positions(weights: Path):
    """A picture that is the same all over stays what it is, however it is resized."""
    plain = as_seen(torch.ones(20, 20, 3))
    encoder = encoder_2d(read_2d(weights))
    small, large = slices._of_images(encoder, plain), slices._of_images(encoder, torch.ones(3, EDGE, EDGE))
    torch.testing.assert_close(small, large)


def test_each_patients_features_are_computed_once_for_a_file_and_anew_where_tokens_or_file_are_others(
    tiny: Study, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    study, patients, made = asking(tiny, weights), cohort.read(tiny.cohort, tiny.endpoints)[:3], []
    compute = slices.features
    monkeypatch.setattr(slices, "features", lambda *of: made.append(1) or compute(*of))
    first = slices_table(patients, study)
    assert list(first)[:2] == ["t1_0", "t1_1"]
    assert first.shape == (3, 4 * 128)
    assert slices_table(patients, study).equals(first)
    assert len(made) == 3
    path = study.prepared / patients[1].id / "tokens.safetensors"
    stored = tokens.load(path)
    tokens.save(tokens.Tokens(-stored.patches, stored.position, stored.grid, "-"), path)
    again = slices_table(patients, study)
    assert len(made) == 4
    assert (again != first).any(axis=1).tolist() == [False, True, False]
    kept = next((study.prepared / ".slices").glob(f"*/{patients[0].id}.safetensors"))
    kept.write_bytes(b"damaged")
    assert slices_table(patients, study).equals(again)
    assert len(made) == 5
    other = tmp_path / "other.safetensors"
    state = safetensors.torch.load_file(weights)
    safetensors.torch.save_file(state | {"layernorm.bias": state["layernorm.bias"] + 1}, other)
    np.testing.assert_allclose(slices_table(patients, asking(tiny, other)), again + 1, atol=1e-5)


def test_what_is_wrong_with_the_file_is_said_with_its_name_before_anything_is_trained(tiny: Study, tmp_path: Path):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    with pytest.raises(UsageError, match=r"slices: .*nowhere\.npz: no such file \(controls\.slices\)"):
        comparators.check(asking(tiny, tmp_path / "nowhere.npz"), patients)
    with pytest.raises(UsageError, match=r"nowhere\.npz: no such file; controls\.slices names a 2D Vision"):
        slices_table(patients, asking(tiny, tmp_path / "nowhere.npz"))
    wrong = tmp_path / "wrong.safetensors"
    safetensors.torch.save_file({"conv1.weight": torch.ones(3)}, wrong)
    with pytest.raises(UsageError, match=r"wrong\.safetensors: no Vision Transformer"):
        comparators.check(asking(tiny, wrong), patients)
    with pytest.raises(ValueError, match='slices names a file, and models leaves "slices" out'):
        Controls(models=("volume",), slices=wrong)


def test_a_width_whose_heads_nobody_knows_is_refused(tmp_path: Path):
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=48, num_hidden_layers=1, num_attention_heads=3, intermediate_size=8, image_size=16, patch_size=8
    )
    path = tmp_path / "narrow.safetensors"
    safetensors.torch.save_file(ViTModel(config, add_pooling_layer=False).state_dict(), path)
    with pytest.raises(UsageError, match=r"narrow\.safetensors: a width of 48 .*heads"):
        encoder_2d(read_2d(path))


def test_tokens_that_are_gone_name_the_patient(tiny: Study, weights: Path):
    patients = cohort.read(tiny.cohort, tiny.endpoints)[:2]
    (tiny.prepared / patients[1].id / "tokens.safetensors").unlink()
    with pytest.raises(
        IntegrityError, match=rf"patient {patients[1].id}: no features of slices by vit\.safetensors: .*no such file"
    ):
        slices_table(patients, asking(tiny, weights))


def test_the_control_stands_on_the_same_folds_and_its_file_is_noted_with_its_hash(tiny: Study, weights: Path):
    study = asking(tiny.model_copy(update={"train": tiny.train.model_copy(update={"epochs": 1})}), weights)
    patients = cohort.read(study.cohort, study.endpoints)
    study.output.mkdir()
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    comparison.run(study, patients, splits, study.output, lambda title: lambda *_: None, print)
    table = predictions.load(study.output / "predictions.csv").query("model == 'slices'")
    assert sorted(table[table.endpoint == "mgmt"].patient) == sorted(p.id for p in patients)
    assert set(table.endpoint) == {"mgmt", "os"}
    assert not (study.output / "nulls.csv").exists()
    noted = json.loads((study.output / "notes.json").read_text())["slices_columns"]
    assert "vit.safetensors (licence not stated, SHA-256 " in noted
    assert f"of {', '.join(CHANNELS)} (512 columns)" in noted


def test_without_a_file_it_is_silently_left_out_unless_it_was_asked_for(tiny: Study):
    asked = tiny.model_copy(update={"controls": Controls(models=("slices",))})
    tables, notes = comparison._covariates(asked, cohort.read(tiny.cohort, tiny.endpoints))
    assert tables == {}
    assert notes == {"slices": "no file of a 2D Vision Transformer is given (controls.slices)"}
