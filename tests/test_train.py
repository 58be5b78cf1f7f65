"""Training and cross-validation: deterministic, resumable at any moment, and blind to the labels it is tested on."""

from __future__ import annotations

import csv
import itertools
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from mri_vit import checkpoint, cohort, config, folds, predictions, tokens, train
from mri_vit.batches import drawn, everything, labels, training_batch
from mri_vit.config import Study
from mri_vit.crossval import cross_validate
from mri_vit.errors import IntegrityError
from mri_vit.model import network
from mri_vit.train import fit, rate, shares
from mri_vit.vit import VisionTransformer

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


def trained(study: Study) -> Path:
    patients = cohort.read(study.cohort, study.endpoints)
    study.output.mkdir(exist_ok=True)
    divisions = folds.make(patients, study.endpoints, study.train, study.seed)
    score, survival = cross_validate(
        patients, divisions, study, study.output, "vit", lambda folder, seed: VisionTransformer(study, folder, seed)
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
    assert list(history.columns) == ["epoch", "loss", "tune", "tune_mgmt", "tune_os"]
    assert list((tiny.output / "fold-1" / "tensorboard").glob("events*"))


def test_a_batch_without_any_known_label_trains_without_nan(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    unknown = [replace(p, labels=dict.fromkeys(p.labels, math.nan)) for p in patients[4:16]]  # some batches are all unknown
    net = fit(patients[:4] + unknown, patients[16:], tiny, tiny.output, seed=0)
    assert all(torch.isfinite(p).all() for p in net.parameters())


def test_tokens_are_drawn_to_the_budget_without_repeats(tiny):
    patient = cohort.read(tiny.cohort, tiny.endpoints)[0]
    prepared = tokens.load(tiny.prepared / patient.id / "tokens.safetensors")
    generator = torch.Generator().manual_seed(0)
    patches, place = drawn(prepared, tiny, 16, generator)
    assert patches.shape == (1, 16, 32)
    assert len(place.unique()) == 16
    assert set(place[0].tolist()) <= set(prepared.place.tolist())
    patches, place = drawn(prepared, tiny, 60, generator)
    assert len(place.unique()) == 60
    background = ~torch.isin(place[0], torch.from_numpy(prepared.place.astype("int64")))
    assert int(background.sum()) == 60 - len(prepared.place)
    assert not patches[0, background].any()


def test_all_tokens_are_the_foreground_ones_on_an_empty_grid(tiny):
    patient = cohort.read(tiny.cohort, tiny.endpoints)[0]
    prepared = tokens.load(tiny.prepared / patient.id / "tokens.safetensors")
    whole = tiny.model_copy(update={"model": tiny.model.model_copy(update={"tokens": "all"})})
    patches, place = everything(prepared, whole)
    assert place[0].tolist() == list(range(64))
    torch.testing.assert_close(patches[0, prepared.place.astype("int64")], torch.from_numpy(prepared.patches).float())


def test_augmentation_leaves_the_background_at_zero_and_follows_the_generator(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)[:4]
    first = training_batch(patients, tiny, torch.Generator().manual_seed(3))
    again = training_batch(patients, tiny, torch.Generator().manual_seed(3))
    other = training_batch(patients, tiny, torch.Generator().manual_seed(4))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert (first[0] == 0).any()


def test_the_rate_rises_to_its_peak_and_falls_to_zero(tiny):
    rates = [rate(step, 100, tiny) for step in range(101)]
    assert max(rates) == rates[9] == tiny.train.rate
    assert rates[100] == pytest.approx(0, abs=1e-12)
    assert all(a < b for a, b in itertools.pairwise(rates[:10]))
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))


def test_an_endpoint_that_only_gets_worse_counts_as_no_better_than_knowing_nothing():
    now, start = {"a": torch.tensor(3.0), "b": torch.tensor(0.2), "c": torch.tensor(0.0)}, {"a": 0.7, "b": 0.8, "c": 0.0}
    assert shares(now, {k: torch.tensor(v) for k, v in start.items()}) == pytest.approx({"a": 1.0, "b": 0.25, "c": 1.0})


def test_patience_ends_training_early(tiny):
    impatient = tiny.model_copy(update={"train": tiny.train.model_copy(update={"patience": 1, "epochs": 50, "rate": 1.0})})
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
from mri_vit import config
sys.path.insert(0, {tests!r})
from test_train import trained
trained(config.load(Path(sys.argv[1])))
"""


def test_a_run_killed_at_any_moment_ends_with_the_same_bytes(tiny, tmp_path):
    longer = tiny.model_copy(update={"train": tiny.train.model_copy(update={"epochs": 12})})
    whole = trained(longer).joinpath("predictions.csv").read_bytes()
    again = longer.model_copy(update={"output": tmp_path / "killed"})
    (tmp_path / "study.toml").write_text(config.dumps(again))
    (tmp_path / "run.py").write_text(RUN.format(tests=str(Path(__file__).parent)))
    command = [sys.executable, str(tmp_path / "run.py"), str(tmp_path / "study.toml")]
    for moment in ("fold-1/last/state.safetensors", "fold-1/predictions.csv", "fold-2/last/state.safetensors"):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (again.output / moment).exists():
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (again.output / "predictions.csv").exists()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    assert (again.output / "predictions.csv").read_bytes() == whole


class PowerCut(BaseException):
    """Nothing in the library catches it, as nothing catches SIGKILL."""


@pytest.mark.parametrize("survival", ["hazard", "cox"])
def test_a_power_cut_before_any_write_changes_no_prediction(tiny, tmp_path, monkeypatch, survival: str):
    short = tiny.train.model_copy(update={"epochs": 2})
    study = tiny.model_copy(update={"train": short, "model": tiny.model.model_copy(update={"survival": survival})})
    writes = []
    for module in (checkpoint, network, predictions, train):
        plain = module.write_bytes

        def counted(content: bytes, path: Path, plain=plain) -> None:
            if cut is not None and len(writes) >= cut:
                raise PowerCut
            writes.append(path.name)
            plain(content, path)

        monkeypatch.setattr(module, "write_bytes", counted)
    cut = None
    whole = trained(study).joinpath("predictions.csv").read_bytes()
    total = len(writes)
    assert {"best.safetensors", "state.safetensors", "history.csv", "predictions.csv", "survival.csv"} == set(writes)
    again = study.model_copy(update={"output": tmp_path / "cut"})
    for cut in range(total):
        writes.clear()
        with pytest.raises(PowerCut):
            trained(again)
        cut = None
        assert trained(again).joinpath("predictions.csv").read_bytes() == whole
        shutil.rmtree(again.output)


def test_a_damaged_checkpoint_is_refused_and_named(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    fit(patients[:16], patients[16:], tiny, tiny.output, seed=0)
    file = tiny.output / checkpoint.FILE
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(IntegrityError, match=r"state\.safetensors"):
        fit(patients[:16], patients[16:], tiny, tiny.output, seed=0)


def test_labels_are_columns_of_the_endpoint(tiny):
    patients = cohort.read(tiny.cohort, tiny.endpoints)[:2]
    assert labels(patients, tiny.endpoints[1]).tolist() == [[100.0, 0.0], [137.0, 1.0]]
