"""Features of prepared patients: what the encoder says of each sequence, fused; resumed, recorded, refused."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made.foreign import dino_state, monai_vit, written
from reproductions.features.encoders import readings
from rich.console import Console

from mri_vit import cli
from mri_vit.data import cohort, tokens
from mri_vit.errors import UsageError
from mri_vit.features import extraction, foreign
from mri_vit.features.extraction import Asked
from mri_vit.features.fitting import CLS, HEADS, MEAN
from mri_vit.features.foreign import Card
from mri_vit.model import network
from mri_vit.model.network import Network
from mri_vit.pretrain.encoder import header_of
from mri_vit.settings.schema import Study
from mri_vit.settings.source import LICENCE_NOT_STATED, OWN_LICENCE

FOUR = ("t1", "t1ce", "t2", "flair")
PATIENTS = 8  # of the tiny study's 24


@pytest.fixture
def study(tiny: Study) -> Study:
    """The tiny study of patients whose sequences are z-scored, as real ones are."""
    for path in extraction.in_folder(tiny.prepared).values():
        prepared = tokens.load(path)
        dense = tokens.to_volume(prepared).astype(np.float32)
        brain = (dense != 0).any(axis=0)
        for array in dense:
            array[brain] = (array[brain] - array[brain].mean()) / array[brain].std()
        tokens.save(tokens.from_volume(dense, brain, tiny.grid, "-"), path)
    return tiny


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return written(monai_vit().state_dict(), tmp_path / "w.ckpt", "backbone.")


def asked(weights: Path, fusion: Any = "concatenate", channels: tuple[str, ...] = (), **card: Any) -> Asked:
    return Asked(weights, channels, fusion, {"heads": 4, **card})


def write(study: Study, wanted: Asked, output: Path) -> tuple[extraction.Features, int, str]:
    """The features, how many patients were left out, and what was printed."""
    printed = io.StringIO()
    left_out = extraction.write(some(study), wanted, output, Console(file=printed, width=300))
    return extraction.load_features(output / extraction.FILE), left_out, printed.getvalue()


def some(study: Study) -> dict[str, Path]:
    """A few of the tiny study's patients."""
    return dict(list(extraction.in_folder(study.prepared).items())[:PATIENTS])


def said_of(study: Study, name: str, weights: Path) -> dict[str, torch.Tensor]:
    """What the encoder says of each sequence of a patient, one after the other: [4 d]."""
    encoder, expected = foreign.load(weights, Card(heads=4), study.grid)
    volumes = foreign.expected_scan(tokens.load(study.prepared / name / "tokens.safetensors"), expected, FOUR).volumes
    each = [encoder.network(torch.from_numpy(volume)[None, None]) for volume in volumes]
    return {reading: torch.cat([one[reading] for one in each]) for reading in each[0]}


def test_an_encoder_of_one_channel_reads_each_sequence_and_they_stand_side_by_side_or_are_averaged(study, weights, tmp_path):
    beside, _, _ = write(study, asked(weights), tmp_path / "beside")
    mean, _, _ = write(study, asked(weights, "mean"), tmp_path / "mean")
    assert beside.patients == tuple(f"p0{number}" for number in range(PATIENTS))
    for row, name in enumerate(beside.patients[:3]):
        said = said_of(study, name, weights)
        for reading, rows in said.items():
            np.testing.assert_allclose(beside.vectors[reading][row], rows.flatten().numpy(), atol=1e-5)
            np.testing.assert_allclose(mean.vectors[reading][row], rows.mean(dim=0).numpy(), atol=1e-5)
    assert (beside.origin.fusion, mean.origin.fusion) == ("concatenate", "mean")


def test_an_encoder_of_several_channels_reads_those_that_are_named_in_their_order(study, tmp_path):
    path = written(monai_vit(channels=2).state_dict(), tmp_path / "two.pt")
    there, back = (write(study, asked(path, channels=order), tmp_path / order[0])[0] for order in (("t1", "t2"), ("t2", "t1")))
    assert (there.origin.channels, there.origin.fusion, there.vectors[MEAN].shape) == (("t1", "t2"), "none", (PATIENTS, 24))
    assert not np.allclose(there.vectors[MEAN], back.vectors[MEAN])
    with pytest.raises(UsageError, match=r"two\.pt: the encoder reads 2 channels at once; found t1, t1ce, t2, flair"):
        write(study, asked(path), tmp_path / "all")
    with pytest.raises(UsageError, match=r"--channels adc: found t1, t1ce, t2, flair in .*tokens\.safetensors"):
        write(study, asked(path, channels=("t1", "adc")), tmp_path / "none")


def test_the_file_says_what_was_read_by_what_and_under_which_licence(study, weights, tmp_path):
    found, _, _ = write(study, asked(weights, licence="CC-BY-4.0", spacing_mm=6.0), tmp_path / "f")
    origin = found.origin
    assert (origin.weights, origin.licence, origin.architecture, origin.heads) == ("w.ckpt", "CC-BY-4.0", "MONAI ViT", 4)
    assert origin.expected == {"edge": 16, "patch": 8, "spacing_mm": 6.0, "intensity": "zscore", "axes": "RAS"}
    assert len(origin.weights_sha256) == 64
    assert origin.channels == FOUR


@pytest.mark.parametrize(
    ("licence", "told"),
    [("CC-BY-NC-4.0", "does not allow commercial use"), (None, "is not stated"), ("CC-BY-4.0", "")],
)
def test_a_licence_with_a_catch_is_a_warning(study, weights, tmp_path, licence: str | None, told: str):
    found, _, said = write(study, asked(weights, licence=licence), tmp_path / "f")
    assert found.origin.licence == (licence or LICENCE_NOT_STATED)
    assert (f"w.ckpt: the licence of these weights{', ' + licence + ',' if licence else ''} {told}" in said) == bool(told)


def test_a_command_that_was_stopped_goes_on_and_ends_with_the_same_file(study, weights, tmp_path, monkeypatch):
    whole, _, _ = write(study, asked(weights), tmp_path / "whole")
    original, read = foreign.expected_scan, []

    def until_the_fifth(prepared, expected, channels):
        read.append(1)
        if len(read) == 5:
            raise KeyboardInterrupt
        return original(prepared, expected, channels)

    monkeypatch.setattr(foreign, "expected_scan", until_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        write(study, asked(weights), tmp_path / "f")
    assert not (tmp_path / "f" / extraction.FILE).exists()
    resumed, _, _ = write(study, asked(weights), tmp_path / "f")
    assert len(read) == 5 + PATIENTS - 4  # four were there
    np.testing.assert_array_equal(resumed.vectors[MEAN], whole.vectors[MEAN])
    write(study, asked(weights), tmp_path / "f")
    assert len(read) == 5 + PATIENTS - 4


def test_a_patient_whose_voxels_changed_is_read_anew(study, weights, tmp_path):
    before, _, _ = write(study, asked(weights), tmp_path / "f")
    path = study.prepared / "p00" / "tokens.safetensors"
    prepared = tokens.load(path)
    tokens.save(dataclasses.replace(prepared, patches=-prepared.patches), path)
    after, _, _ = write(study, asked(weights), tmp_path / "f")
    assert not np.allclose(before.vectors[MEAN][0], after.vectors[MEAN][0])
    np.testing.assert_array_equal(before.vectors[MEAN][1:], after.vectors[MEAN][1:])


def test_an_output_of_other_weights_or_settings_is_refused(study, weights, tmp_path):
    write(study, asked(weights, licence="MIT"), tmp_path / "f")
    with pytest.raises(UsageError, match=r"features\.safetensors: holds features of another licence; choose another output"):
        write(study, asked(weights, licence="CC-BY-4.0"), tmp_path / "f")
    other = written(monai_vit(qkv_bias=True).state_dict(), tmp_path / "w2.ckpt")
    with pytest.raises(UsageError, match="holds features of another weights"):
        write(study, asked(other, licence="MIT"), tmp_path / "f")


def test_a_patient_without_a_sequence_is_left_out_where_it_has_its_own_place_and_taken_where_it_has_none(
    study, weights, tmp_path
):
    path = study.prepared / "p03" / "tokens.safetensors"
    prepared = tokens.load(path)
    patches = prepared.patches.reshape(-1, 4, 8).copy()
    patches[:, 1] = 0
    tokens.save(dataclasses.replace(prepared, patches=patches.reshape(len(patches), -1)), path)
    beside, left_out, said = write(study, asked(weights), tmp_path / "beside")
    assert (left_out, len(beside.patients), "p03" in beside.patients) == (1, PATIENTS - 1, False)
    assert "left out p03" in said
    assert "the sequence t1ce is missing; --fusion mean takes those that there are" in said
    mean, left_out, _ = write(study, asked(weights, "mean"), tmp_path / "mean")
    assert (left_out, len(mean.patients)) == (0, PATIENTS)


def test_a_cube_that_does_not_hold_the_brain_is_said(study, weights, tmp_path):
    _, _, said = write(study, asked(weights, spacing_mm=2.0), tmp_path / "f")
    assert "16 voxels of 2 mm hold" in said
    _, _, said = write(study, asked(weights), tmp_path / "g")
    assert "cut off" not in said


def test_a_cohort_on_another_scale_is_refused_with_the_first_reason(tiny, weights, tmp_path):
    for path in extraction.in_folder(tiny.prepared).values():
        prepared = tokens.load(path)
        tokens.save(dataclasses.replace(prepared, patches=prepared.patches * 50), path)
    with pytest.raises(UsageError, match=r"w\.ckpt: no patient could be read; the first because t1 has a mean of"):
        write(tiny, asked(weights), tmp_path / "f")


def own_network(study: Study, path: Path) -> Network:
    torch.manual_seed(3)
    net = Network(study.model.model_copy(update={"pool": "max"}), study.grid, [], study.channels).eval()
    net.label_exposed, net.image_exposed = ("p01",), ("p02",)
    network.save(net, path)
    return net


def test_a_network_of_ours_is_read_as_the_comparison_reads_it_and_names_whom_it_knows(study, tmp_path):
    net = own_network(study, tmp_path / "best.safetensors")
    found, _, _ = write(study, Asked(tmp_path / "best.safetensors", (), "concatenate", {"licence": None}), tmp_path / "f")
    people = cohort.read(study.cohort, study.endpoints)[:PATIENTS]
    expected = readings(net.encoder, people, study)
    assert set(found.vectors) == {CLS, MEAN, HEADS}
    for name, rows in expected.items():
        np.testing.assert_allclose(found.vectors[name], rows, atol=1e-6)
    assert (found.origin.licence, found.origin.taught, found.origin.seen) == (OWN_LICENCE, ("p01",), ("p02",))


def test_a_pretrained_encoder_of_ours_is_read(study, tmp_path):
    from mri_vit.model.weights import save_encoder

    net = own_network(study, tmp_path / "best.safetensors")
    pretraining = study.pretrain.model_copy(update={"method": "mae"})
    header = header_of(study.model_copy(update={"pretrain": pretraining}), cohort.read(study.cohort, study.endpoints), 1)
    save_encoder(net.encoder, header | {"model": net.model.model_dump(mode="json")}, tmp_path / "encoder.safetensors")
    found, _, _ = write(study, Asked(tmp_path / "encoder.safetensors", (), "concatenate", {}), tmp_path / "f")
    expected, _, _ = write(study, Asked(tmp_path / "best.safetensors", (), "concatenate", {}), tmp_path / "g")
    np.testing.assert_array_equal(found.vectors[HEADS], expected.vectors[HEADS])
    assert len(found.origin.seen) == 24


def test_a_file_of_ours_takes_no_card_and_no_other_patients(study, tmp_path):
    own_network(study, tmp_path / "best.safetensors")
    with pytest.raises(UsageError, match=r"leave --heads out"):
        write(study, asked(tmp_path / "best.safetensors"), tmp_path / "f")
    known, path = extraction.load_ours(tmp_path / "best.safetensors"), study.prepared / "p00" / "tokens.safetensors"
    prepared = tokens.load(path)
    with pytest.raises(UsageError, match=r"tokens\.safetensors: prepared on the grid .* the encoder reads"):
        extraction.read_ours(dataclasses.replace(known, grid=known.grid.model_copy(update={"spacing_mm": 1.0})), prepared, path)
    with pytest.raises(UsageError, match=r"found the sequences t1, t1ce, t2, flair; the encoder reads t1, t2"):
        extraction.read_ours(dataclasses.replace(known, channels=("t1", "t2")), prepared, path)


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    return int(end.value.code or 0)


def test_the_verb_takes_a_folder_of_prepared_patients_or_a_study_and_says_who_is_not_prepared(study, tmp_path, capsys):
    path = written(dino_state(), tmp_path / "dino.pt")
    options = ("--weights", str(path), "--licence", "CC-BY-NC-SA-4.0", "--edge", "16")
    assert ended("features", str(study.prepared), *options, "-o", str(tmp_path / "a")) == 0
    assert "does not allow commercial use" in capsys.readouterr().out
    lines = [f'{key} = "{getattr(study, key)}"' for key in ("name", "cohort", "prepared", "output")]
    lines += ["[grid]", "edge = 8", "spacing_mm = 10.0", "patch = 2", '[[endpoints]]\nname = "mgmt"\nkind = "binary"']
    (tmp_path / "study.toml").write_text("\n".join(lines))
    assert ended("features", str(tmp_path / "study.toml"), *options, "-o", str(tmp_path / "b")) == 0
    one, two = (extraction.load_features(tmp_path / name / extraction.FILE) for name in "ab")
    assert one.patients == two.patients
    np.testing.assert_array_equal(one.vectors[CLS], two.vectors[CLS])
    (study.prepared / "p23" / "tokens.safetensors").unlink()
    assert ended("features", str(tmp_path / "study.toml"), *options, "-o", str(tmp_path / "c")) == 3
    assert "1 patients are not prepared and are left out, first p23" in capsys.readouterr().out


def test_nothing_to_read_and_nothing_to_read_with_are_named(study, weights, tmp_path):
    with pytest.raises(UsageError, match="there is no prepared patient"):
        extraction.write({}, asked(weights), tmp_path / "f", Console(quiet=True))
    with pytest.raises(UsageError, match=r"none\.pt: no such file \(--weights\)"):
        write(study, asked(tmp_path / "none.pt"), tmp_path / "f")
