"""Training and cross-validation: deterministic, resumable at any moment, and blind to the labels it is tested on."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import safetensors.torch
import torch

from mri_vit.crossval import folds
from mri_vit.crossval.loop import cross_validate
from mri_vit.data import cohort, predictions, tokens
from mri_vit.data.store import all_tokens, labels, token_file
from mri_vit.errors import IntegrityError
from mri_vit.model import network
from mri_vit.predictors.network import Neural
from mri_vit.run import files, folder
from mri_vit.run.atomic import replacing
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study
from mri_vit.train import checkpoint
from mri_vit.train.feed import Feed
from mri_vit.train.supervised import fit, outputs, settle, shares, untrained

pytestmark = [
    pytest.mark.long(26),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]


OPTIONS: list[dict[str, Any]] = [  # of [train]
    {"ema": 0.9}, {"mixup": 0.8}, {"modality_dropout": 0.5}, {"freeze_fraction": 0.25},
    {"layer_decay": 0.5, "embedding_lr_factor": 0.2},
    {"token_budget": None, "flip_lr": False, "class_weights": False},
]  # fmt: skip
NETWORKS: list[dict[str, Any]] = [  # of [model]
    {"pool": "mean"}, {"pool": "max"}, {"stem": 8}, {"conv_stem": 4}, {"zero_head": False},
    {"tokens": "all"}, {"depth": 0, "pool": "max"},
]  # fmt: skip
EVERYTHING: dict[str, Any] = {
    "ema": 0.9,
    "mixup": 0.8,
    "modality_dropout": 0.3,
    "freeze_fraction": 0.3,
    "layer_decay": 0.7,
    "embedding_lr_factor": 0.5,
}


def changed(study: Study, model: dict[str, Any] | None = None, **train: Any) -> Study:
    return study.model_copy(
        update={"train": study.train.model_copy(update=train), "model": study.model.model_copy(update=model or {})}
    )


def trained(study: Study) -> Path:
    patients = cohort.read(study.cohort, study.endpoints)
    study.output.mkdir(exist_ok=True)
    splits = folds.make(patients, study.endpoints, study.train, study.seed)
    score, survival = cross_validate(
        patients, splits, study, study.output, "vit", lambda folder, seed: Neural(study, folder, seed)
    )
    predictions.save(survival, study.output / "survival.csv")
    predictions.save(score, study.output / "predictions.csv")
    return study.output


def test_every_patient_is_predicted_once_by_a_model_that_did_not_train_on_it(tiny):
    table = predictions.load(trained(tiny) / "predictions.csv")
    assert list(table.columns) == predictions.COLUMNS
    assert sorted(table[table.endpoint == "mgmt"].patient) == [f"p{i:02d}" for i in range(24)]
    binary = table[table.endpoint == "mgmt"]
    assert binary.score.between(0, 1).all()
    assert binary.truth.isna().sum() == 3
    survival = pd.read_csv(tiny.output / "survival.csv")
    assert survival.survival.between(0, 1).all()
    assert set(survival.horizon_days) == set(predictions.HORIZONS_DAYS)
    history = pd.read_csv(tiny.output / "fold-1" / "history.csv")
    assert list(history.columns) == ["epoch", "seconds", "loss", "tune", "tune_mgmt", "tune_os"]
    assert list((tiny.output / "fold-1" / "tensorboard").glob("events*"))
    for fold in ("fold-1", "fold-2"):
        environment = json.loads((tiny.output / fold / "environment.json").read_text())
        assert environment["device"] == folder.device()
        assert environment["device"].startswith(("CPU ", "GPU "))


def test_a_batch_without_any_known_label_trains_without_nan(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    unknown = [replace(p, labels=dict.fromkeys(p.labels, math.nan)) for p in patients[4:16]]  # some batches are all unknown
    net = fit(patients[:4] + unknown, patients[16:], tiny, tiny.output, seed=0)
    assert all(torch.isfinite(p).all() for p in net.parameters())


def test_an_endpoint_that_only_gets_worse_counts_as_no_better_than_knowing_nothing():
    now, start = {"a": torch.tensor(3.0), "b": torch.tensor(0.2), "c": torch.tensor(0.0)}, {"a": 0.7, "b": 0.8, "c": 0.0}
    assert shares(now, {k: torch.tensor(v) for k, v in start.items()}) == pytest.approx({"a": 1.0, "b": 0.25, "c": 1.0})


def test_an_endpoint_alone_may_be_worse_than_knowing_nothing_so_that_its_best_evaluation_is_known():
    start = {"a": torch.tensor(0.5)}
    assert shares({"a": torch.tensor(1.0)}, start) == {"a": 2.0}
    assert shares({"a": torch.tensor(0.75)}, start) == {"a": 1.5}


def test_patience_ends_training_early(tiny):
    impatient = tiny.model_copy(
        update={"train": tiny.train.model_copy(update={"patience": 1, "epochs": 50, "learning_rate": 1.0})}
    )
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    fit(patients[:16], patients[16:], impatient, tiny.output, seed=0)
    with (tiny.output / "history.csv").open() as file:
        assert len(list(csv.DictReader(file))) < 50


def test_a_cox_endpoint_trains_and_tells_survival(tiny):
    cox = tiny.model_copy(update={"model": tiny.model.model_copy(update={"survival": "cox"})})
    trained(cox)
    survival = pd.read_csv(tiny.output / "survival.csv").pivot(index="patient", columns="horizon_days", values="survival")
    assert (survival.diff(axis=1).iloc[:, 1:] <= 0).all(axis=None)


RUN = """
import sys
from pathlib import Path
from mri_vit.settings import file as study_file
from mri_vit.train import checkpoint
checkpoint.SAVE_SECONDS = 0.0
sys.path[:0] = {folders!r}
from test_supervised import trained
trained(study_file.load(Path(sys.argv[1])))
"""


MOMENTS = ("fold-1/last/state.safetensors", "fold-1/predictions.csv", "fold-2/last/state.safetensors")


@pytest.mark.parametrize("moments", [MOMENTS[2:], pytest.param(MOMENTS, marks=pytest.mark.slow)], ids=["once", "thrice"])
def test_a_run_killed_at_any_moment_ends_with_the_same_bytes(tiny, tmp_path, moments):
    longer = changed(tiny, epochs=12, **EVERYTHING)
    whole = trained(longer).joinpath("predictions.csv").read_bytes()
    again = longer.model_copy(update={"output": tmp_path / "killed"})
    (tmp_path / "study.toml").write_text(study_file.dumps(again))
    (tmp_path / "run.py").write_text(RUN.format(folders=[str(Path(__file__).parent), str(Path(__file__).parents[1])]))
    command = [sys.executable, str(tmp_path / "run.py"), str(tmp_path / "study.toml")]
    for moment in moments:
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (again.output / moment).exists():
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (again.output / "predictions.csv").exists()
    assert trained(again).joinpath("predictions.csv").read_bytes() == whole


class PowerCut(BaseException):
    """Nothing in the library catches it, as nothing catches SIGKILL."""


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])  # write; a cut and a run take a second
def test_a_power_cut_before_any_write_changes_no_prediction(tiny, tmp_path, monkeypatch, every: int):
    study = changed(tiny, {"survival": "cox"}, epochs=2, **EVERYTHING)
    writes = []
    rename = Path.replace  # how every write ends: before it, the file is not there

    def counted(beside: Path, path: Path) -> Path:
        if cut is not None and len(writes) >= cut:
            raise PowerCut
        writes.append(path.name)
        return rename(beside, path)

    monkeypatch.setattr(Path, "replace", counted)
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)
    cut = None
    whole = trained(study).joinpath("predictions.csv").read_bytes()
    total = len(writes)
    assert set(writes) == {
        "best.safetensors", "state.safetensors", "history.csv", "cost.json", "predictions.csv", "survival.csv", "hashes.json",
        "environment.json",
    }  # fmt: skip
    again = study.model_copy(update={"output": tmp_path / "cut"})
    for cut in range(0, total, every):
        writes.clear()
        with pytest.raises(PowerCut):
            trained(again)
        cut = None
        assert trained(again).joinpath("predictions.csv").read_bytes() == whole
        shutil.rmtree(again.output)


def test_a_damaged_checkpoint_is_refused_and_named(tiny, monkeypatch):
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    fit(patients[:16], patients[16:], tiny, tiny.output, seed=0)
    file = tiny.output / files.STATE
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(IntegrityError, match=r"state\.safetensors"):
        fit(patients[:16], patients[16:], tiny, tiny.output, seed=0)


def test_the_state_is_written_by_time_and_not_by_epochs_and_is_gone_when_the_fold_is_done(tiny, monkeypatch):
    written: list[int] = []
    save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda state, *rest: (written.append(state.epoch), save(state, *rest)))
    now = iter(range(0, 10**6, 7))  # every look at the clock is 7 s after the last, of which an epoch has three
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: next(now))
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    fit(patients[:16], patients[16:], changed(tiny, epochs=7), tiny.output, seed=0)
    assert written == [3, 6]
    assert (tiny.output / files.STATE).exists()
    monkeypatch.undo()
    home = trained(tiny)
    assert not list(home.glob("fold-*/last"))


def test_labels_are_columns_of_the_endpoint(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)[:2]
    assert labels(patients, tiny.endpoints[1]).tolist() == [[100.0, 0.0], [137.0, 1.0]]


# --- The options of [model] and [train] --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [*[(o, {}) for o in OPTIONS], *[({}, m) for m in NETWORKS]], ids=str)
def test_with_each_option_training_changes_the_network_and_its_predictions_are_finite(tiny, options):
    loop, model = options
    study = changed(tiny, model, epochs=2, **loop)
    patients = cohort.read(study.cohort, study.endpoints)
    predictor = Neural(study, study.output, seed=0)
    predictor.fit(patients[:8], patients[8:12])
    score, survival = predictor.predict([cohort.without_labels(p) for p in patients[12:]])
    assert len(score) == 2 * 12
    assert score.score.map(math.isfinite).all()
    assert survival.survival.between(0, 1).all()
    assert predictor.represent(patients[12:13]).shape == (1, 16)
    start = untrained(patients[:8], study, seed=0)
    assert all(not torch.equal(a, b) for a, b in zip(start.head.parameters(), predictor.network.head.parameters(), strict=True))
    differs = [not torch.equal(a, b) for a, b in zip(start.parameters(), predictor.network.parameters(), strict=True)]
    assert sum(differs) >= 0.9 * len(differs)  # what no patient's loss depends on stays, such as a key's bias


def test_training_begins_from_the_weights_that_are_named(tiny, tmp_path):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    other = untrained(patients, tiny, seed=7)
    network.save(other, tmp_path / "start.safetensors")
    begun = untrained(patients, changed(tiny, {"weights": tmp_path / "start.safetensors"}), seed=0)
    torch.testing.assert_close(begun.encoder.state_dict(), other.encoder.state_dict(), atol=0, rtol=0)


def test_the_average_is_that_of_the_weights_after_every_step(tiny, monkeypatch):
    from mri_vit.train import supervised

    kept: list[dict[str, torch.Tensor]] = []
    update = supervised.AveragedModel.update_parameters

    def noted(self, model) -> None:
        kept.append({name: parameter.detach().clone() for name, parameter in model.named_parameters()})
        update(self, model)

    monkeypatch.setattr(supervised.AveragedModel, "update_parameters", noted)
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    found = fit(patients[:16], patients[16:], changed(tiny, epochs=1, ema=0.6), tiny.output, seed=0)
    assert len(kept) == 4  # sixteen patients in batches of four
    for name, parameter in found.named_parameters():
        average = kept[0][name]
        for step in kept[1:]:
            average = 0.6 * average + 0.4 * step[name]
        torch.testing.assert_close(parameter.detach(), average, atol=1e-6, rtol=1e-5)
    assert any(not torch.equal(parameter, kept[-1][name]) for name, parameter in found.named_parameters())


def encoder_in(file: Path) -> dict[str, torch.Tensor]:
    """The encoder's weights in a checkpoint."""
    held = safetensors.torch.load_file(file)
    return {name.removeprefix("net/0.encoder."): value for name, value in held.items() if name.startswith("net/0.encoder.")}


def test_while_it_is_frozen_the_encoder_stays_and_then_it_learns(tiny, monkeypatch):
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)
    half = changed(tiny, epochs=4, freeze_fraction=0.5, patience=9)
    patients = cohort.read(half.cohort, half.endpoints)
    start = dict(untrained(patients[:16], half, seed=0).encoder.state_dict())

    def stop(epoch: int, *_: object) -> None:
        if epoch == 3:
            raise PowerCut

    with pytest.raises(PowerCut):  # what was written last is the state after epoch 2
        fit(patients[:16], patients[16:], half, half.output, seed=0, report=stop)
    torch.testing.assert_close(encoder_in(half.output / files.STATE), start, atol=0, rtol=0)
    assert safetensors.torch.load_file(half.output / files.STATE)["net/0.head.mgmt.weight"].any()  # it starts from zero
    fit(patients[:16], patients[16:], half, half.output, seed=0)
    after = encoder_in(half.output / files.STATE)
    assert not any(torch.equal(after[name], start[name]) for name in ("cls", "embed.weight", "blocks.0.mlp.0.weight"))


def test_the_time_of_training_is_added_up_over_a_runs_starts(tiny, monkeypatch):
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    seconds = []
    for epochs in (1, 3):
        fit(patients[:16], patients[16:], changed(tiny, epochs=epochs), tiny.output, seed=0)
        seconds.append(pd.read_csv(tiny.output / "history.csv").seconds.tolist())
    assert seconds[1][:1] == seconds[0]
    assert 0 < seconds[1][0] < seconds[1][1] < seconds[1][2] < 60


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path):
    with replacing(tmp_path / "a.txt") as beside:
        beside.write_text("whole")
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]

    def cut() -> None:
        with replacing(tmp_path / "a.txt") as beside:
            beside.write_text("ha")
            raise PowerCut

    with pytest.raises(PowerCut):
        cut()
    assert (tmp_path / "a.txt").read_text() == "whole"


def test_settled_means_are_those_of_the_networks_inputs_now_and_outputs_then_differ_between_patients(tiny):
    study = changed(tiny, {"architecture": "resnet10"}, batch_size=4, flip_lr=False, intensity_jitter=0.0, token_budget=None)
    patients = cohort.read(study.cohort, study.endpoints)
    net = untrained(patients, changed(study, {"zero_head": False}), 0)
    for norm in (norms := [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm3d)]):
        norm.running_mean.fill_(1e6)  # type: ignore[union-attr]
    settle(net, Feed(patients[:8], study, torch.device("cpu"), seed=0))
    first = net.encoder.net.conv1
    volumes = [
        net.encoder.volume(*all_tokens(tokens.load(token_file(study.prepared, patient)), study.model)) for patient in patients[:8]
    ]
    expected = first(torch.cat(volumes)).mean(dim=(0, 2, 3, 4))
    assert torch.allclose(norms[0].running_mean, expected, rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]
    assert outputs(net, patients, study, torch.device("cpu"))["mgmt"].std() > 1e-3


@pytest.mark.parametrize("architecture", [pytest.param("seresnext50", marks=pytest.mark.slow), "hybrid"])  # 18 s and 7 s
def test_a_convolutional_network_learns_survival_and_a_stopped_training_ends_with_the_same_bytes(
    tiny, tmp_path, architecture: str
):
    study = changed(tiny, {"architecture": architecture, "survival": "cox"}, epochs=2, batch_size=4, ema=0.5, token_budget=None)
    patients = cohort.read(study.cohort, study.endpoints)

    def stop(epoch: int, *_: float) -> None:
        if epoch == 2:
            raise KeyboardInterrupt

    whole = fit(patients[:12], patients[12:], study, tmp_path / "whole", seed=0)
    with pytest.raises(KeyboardInterrupt):
        fit(patients[:12], patients[12:], study, tmp_path / "stopped", seed=0, report=stop)
    resumed = fit(patients[:12], patients[12:], study, tmp_path / "stopped", seed=0)
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)
    found = outputs(whole, patients, study, torch.device("cpu"))
    assert found["os"].shape == (24, 1)
    assert all(value.isfinite().all() and value.std() > 0 for value in found.values())
