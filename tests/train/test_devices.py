"""One training on two devices: two processes of this machine learn what one does, in float64 to the last digits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from mri_vit import study as stages
from mri_vit.crossval import comparators
from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import BadNumbers, UsageError
from mri_vit.pretrain.encoder import pretrain
from mri_vit.run import files, resource
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Model, Study
from mri_vit.settings.sections import Executor
from mri_vit.train import devices
from mri_vit.train.supervised import fit

pytestmark = [
    pytest.mark.long(27),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
    pytest.mark.usefixtures("double"),
]
STEPS = 6
CLOSE = 1e-10  # of weights after these steps; measured: 2e-13 from labels, 2e-15 (MAE) and 4e-12 to 8e-12 (DINO) without
RATE = 1e-3  # of pretraining; at 1e-2 DINO's sharp teacher makes 1e-10 of the last digits


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float64, in which two orders of adding differ by 1e-16 a step, and processes of this machine for GPUs."""
    monkeypatch.setattr(devices, "precision", lambda study: "64-true")
    monkeypatch.setattr(devices, "require_gpus", lambda count: None)


def some(study: Study) -> list[Patient]:
    return cohort.read(study.cohort, study.endpoints)


def changed(study: Study, count: int, pretrain: dict[str, Any] = {}, **train: Any) -> Study:  # noqa: B006 (read alone)
    settings = study.model_dump()
    settings["train"] |= {"devices": count, "epochs": 2, "batch_size": 6, **train}
    settings["pretrain"] |= {"epochs": 2, "batch_size": 6, **pretrain}
    return Study.model_validate(settings)


def furthest(one: Path, other: Path) -> float:
    first, second = load_file(one), load_file(other)
    assert first.keys() == second.keys()
    assert {tensor.dtype for tensor in first.values()} == {torch.float64}
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@pytest.mark.parametrize("survival", [pytest.param("hazard", marks=pytest.mark.slow), "cox"])
def test_two_devices_learn_from_labels_what_one_does(tiny, survival: str):
    """Missing labels, risk sets over the batch, mixup, drop-path and a moving average are all in it."""
    study = tiny.model_copy(update={"model": tiny.model.model_copy(update={"survival": survival})})
    train, val, found = some(study)[:18], some(study)[18:], []
    for count in (1, 2):
        folder = study.output / str(count)
        fit(train, val, changed(study, count, mixup=0.4, ema=0.9, learning_rate=1e-2), folder, seed=3)
        found.append(folder / files.WEIGHTS)
    assert furthest(*found) < CLOSE


@pytest.mark.parametrize("method", ["mae", pytest.param("dino", marks=pytest.mark.slow)])
def test_two_devices_learn_without_labels_what_one_does(tiny, method: str):
    """A masked autoencoder's mean over voxels of the brain, DINO's centre and what it standardises are of the whole batch."""
    found = []
    for count in (1, 2):
        file = tiny.output / str(count) / "encoder.safetensors"
        study = changed(tiny, count, {"method": method, "learning_rate": RATE}, token_budget=None)
        told = pretrain(some(tiny)[:18], study, file, seed=3)
        found.append((file, told))
    (one, alone), (other, together) = found
    assert furthest(one, other) < CLOSE
    torch.testing.assert_close(torch.tensor(together.loss), torch.tensor(alone.loss), rtol=0, atol=CLOSE)


@pytest.mark.slow
def test_a_fault_in_the_processes_reaches_the_first_as_it_is(tiny):
    with pytest.raises(BadNumbers, match=r"train\.learning_rate"):
        fit(some(tiny)[:18], some(tiny)[18:], changed(tiny, 2, learning_rate=1e300), tiny.output / "run", seed=0)


def test_what_does_not_hold_is_refused_with_its_reason(tiny):
    with pytest.raises(ValueError, match=r"train.batch_size 5 cannot be shared out evenly among train\.devices 2"):
        changed(tiny, 2, batch_size=5)
    with pytest.raises(ValueError, match=r"pretrain\.batch_size 5 cannot be shared out"):
        changed(tiny, 2, {"batch_size": 5, "method": "mae"})
    with pytest.raises(UsageError, match="batches of 7"):
        pretrain(some(tiny)[:7], changed(tiny, 2, {"batch_size": 8, "method": "mae"}), tiny.output / "e.safetensors", seed=0)
    of_resnet = {"model": {"architecture": "resnet10"}, "explain": {"patients": 0, "scored": 0}, "train": {"devices": 2}}
    with pytest.raises(ValueError, match="normalises over a batch"):
        Study.model_validate(tiny.model_dump() | of_resnet)


def test_a_comparator_that_normalises_over_a_batch_learns_on_one_device(tiny):
    resnet = Comparator(name="resnet", model={"architecture": "resnet10"})
    study = changed(tiny, 2).model_copy(update={"comparators": (resnet,)})
    assert study.of(resnet).train.devices == 1


def test_more_devices_than_there_are_gpus_are_refused(tiny, monkeypatch):
    monkeypatch.setattr(devices, "require_gpus", resource.require_gpus)
    for there, words in ((0, "0 GPUs; train.devices 1 needs"), (1, "1 GPU; train.devices 1 needs")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda there=there: there)
        with pytest.raises(UsageError, match=rf"train\.devices is 2, and this process sees {words}"):
            devices.several_devices(changed(tiny, 2))


def test_missing_gpus_are_refused_before_training_prints_or_writes_anything(tiny, monkeypatch, capsys):
    study = changed(tiny, 2, {"method": "mae"}, token_budget=None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for stage in (stages.train, stages.pretrain):
        with pytest.raises(UsageError, match=r"vit: train\.devices is 2, and this process sees 1 GPU"):
            stage(study, study.output, Console())
    assert capsys.readouterr().out == ""
    assert not study.output.exists()
    comparators.refuse_missing_gpus(tiny)
    comparators.refuse_missing_gpus(study.model_copy(update={"executor": Executor(kind="slurm")}))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    comparators.refuse_missing_gpus(study)


@pytest.mark.parametrize(
    ("architecture", "workspace", "refuses"),
    [("vit", ":4096:8", True), ("vit", ":0:0", False), ("resnet10", ":4096:8", False)],
    ids=["attention", "products in any order", "poolings"],
)
def test_on_a_gpu_what_has_no_order_is_refused_while_our_own_encoder_trains(tiny, monkeypatch, architecture, workspace, refuses):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", workspace)
    study = tiny.model_copy(update={"model": Model(architecture=architecture)})

    def trained(_: Any) -> tuple[bool, bool]:
        devices._deterministic(torch.device("cuda"), study.model)
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    assert devices.on_devices(study, trained) == (True, not refuses)
    assert not torch.are_deterministic_algorithms_enabled()  # whoever explains a network that pools comes after


def test_fabric_gives_no_tips_among_a_studys_own_words(tiny, tmp_path):
    study = tmp_path / "study.toml"
    mixed = tiny.model_copy(update={"train": tiny.train.model_copy(update={"precision": "bf16-mixed"})})
    study.write_text(study_file.dumps(mixed))
    script = f"""from pathlib import Path
from mri_vit.settings import file
from mri_vit.train import devices
print(devices.one_device(file.load(Path({str(study)!r}))).device)"""
    said = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout
    assert not said.stderr
