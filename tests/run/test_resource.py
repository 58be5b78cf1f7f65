"""What runs out, and numbers that are none: each with a code of its own, what was needed and what is free."""

from __future__ import annotations

import errno
import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch

from mri_vit.cli import exit_code
from mri_vit.data import cohort
from mri_vit.errors import BadNumbers, OutOfResource
from mri_vit.model.network import state_bytes
from mri_vit.predictors.network import Neural
from mri_vit.run import resource
from mri_vit.run.resource import lack
from mri_vit.train import checkpoint
from mri_vit.train.supervised import fit

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        safetensors.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:603] . unexpected pos: No space left on device"),
    ],
)
def test_a_full_disk_says_what_is_needed_and_what_is_free(tmp_path: Path, error: Exception):
    found = lack(error, tmp_path / "fold-1", disk_bytes=400_000_000)
    assert isinstance(found, OutOfResource)
    assert "the disk is full: 400 MB needed, " in str(found)
    assert "MB free; " in str(found) or "GB free; " in str(found)


def test_memory_that_is_not_there_says_what_was_asked_for_and_a_smaller_setting(tmp_path: Path):
    with pytest.raises(RuntimeError) as end:
        torch.empty(1 << 55)
    found = lack(end.value, tmp_path, smaller="a train.batch_size below 8")
    assert "out of memory: 144,115,188 GB needed at once, " in str(found)
    assert "free; try a train.batch_size below 8" in str(found)
    with pytest.raises(MemoryError) as lacking:
        np.empty(1 << 55)
    assert "needed at once" in str(lack(lacking.value, tmp_path))
    cuda = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139 GiB")
    assert "out of memory of the GPU: 2,147 MB needed at once" in str(lack(cuda, tmp_path))
    assert resource.free_memory() > 0


def test_another_fault_is_no_lack(tmp_path: Path):
    assert lack(ValueError("a matrix"), tmp_path) is None
    assert lack(BadNumbers("not enough memory"), tmp_path) is None


def test_a_disk_that_is_full_ends_training_with_4_and_it_goes_on_later(tiny, tmp_path, monkeypatch, capsys):
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    save = checkpoint.save

    def full(*arguments: object) -> None:
        raise safetensors.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "save", full)
    predictor = Neural(tiny, tmp_path / "fold-1", 0)
    assert exit_code.of(lambda: predictor.fit(patients[4:], patients[:4])) == 4
    said = capsys.readouterr().err
    assert f"{resource.megabytes(state_bytes(tiny))} needed, " in said
    assert "free; make room" in said
    monkeypatch.setattr(checkpoint, "save", save)
    assert exit_code.of(lambda: Neural(tiny, tmp_path / "fold-1", 0).fit(patients[4:], patients[:4])) == 0


@pytest.mark.parametrize("which", ["loss", "validation loss"])
def test_a_loss_that_is_no_number_ends_with_7_and_the_remedy(tiny, tmp_path, monkeypatch, which: str):
    from mri_vit.train import supervised

    losses = supervised.losses

    def broken(net, outs, patients):
        good = losses(net, outs, patients)
        training = next(iter(outs.values())).requires_grad
        spoiled = which == "loss" if training else which == "validation loss" and (tmp_path / "began").exists()
        (tmp_path / "began").touch()
        return {name: loss * (math.nan if spoiled else 1.0) for name, loss in good.items()}

    monkeypatch.setattr(supervised, "losses", broken)
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    with pytest.raises(BadNumbers, match=rf"{which}.* became nan in epoch 1; try a train\.learning_rate below") as end:
        fit(patients[4:], patients[:4], tiny, tmp_path, 0)
    assert end.value.exit_code == 7


def test_training_within_a_clusters_job_runs_as_anywhere(tiny, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    srun = tmp_path / "bin" / "srun"
    srun.write_text("#!/bin/sh\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}{os.pathsep}{os.environ['PATH']}")
    patients = cohort.read(tiny.cohort, tiny.endpoints)
    short = tiny.model_copy(update={"train": tiny.train.model_copy(update={"epochs": 1})})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*srun.*")
        fit(patients[4:], patients[:4], short, tmp_path / "installed", 0)  # `srun` is there, and was not used
        for key, value in {
            "NTASKS": "2",
            "JOB_NAME": "study",
            "JOB_ID": "7",
            "PROCID": "0",
            "LOCALID": "0",
            "NODEID": "0",
        }.items():
            monkeypatch.setenv(f"SLURM_{key}", value)
        fit(patients[4:], patients[:4], short, tmp_path / "job", 0)  # sbatch --ntasks=2
    assert all((tmp_path / name / "best.safetensors").is_file() for name in ("installed", "job"))
