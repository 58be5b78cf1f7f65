"""A checkpoint of others is read as tensors, and never as code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.model.checkpoint import WEIGHT_KEYS, read_tensors

WEIGHTS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}


class Runs:
    """What a pickle can do: run a command when it is opened."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("inside", [None, *WEIGHT_KEYS])
def test_weights_are_found_beside_what_else_a_training_saves(tmp_path: Path, inside: str | None):
    path = tmp_path / "w.pth"
    torch.save(WEIGHTS if inside is None else {"epoch": 3, inside: WEIGHTS}, path)
    found = read_tensors(path)
    assert list(found) == list(WEIGHTS)
    assert all(torch.equal(found[key], WEIGHTS[key]) for key in WEIGHTS)


def test_tensors_are_float32_and_what_is_no_weight_is_left_out(tmp_path: Path):
    save_file({"half": torch.ones(2, dtype=torch.float16), "steps": torch.ones(2, dtype=torch.int64)}, tmp_path / "w.safetensors")
    (only,) = read_tensors(tmp_path / "w.safetensors").items()
    assert (only[0], only[1].dtype) == ("half", torch.float32)


def test_a_pickle_that_would_run_a_command_is_refused_and_runs_nothing(tmp_path: Path):
    proof = tmp_path / "ran"
    torch.save({"model": WEIGHTS, "more": Runs(f"touch {proof}")}, tmp_path / "w.pt")
    with pytest.raises(IntegrityError, match=r"w\.pt: weights cannot be read: .* would run code; expected tensors") as refused:
        read_tensors(tmp_path / "w.pt")
    assert "weights_only" not in str(refused.value)  # PyTorch's advice is to run it
    assert not proof.exists()


def test_what_is_no_file_of_weights_is_named(tmp_path: Path):
    (tmp_path / "w.ckpt").write_bytes(b"nothing of the kind")
    with pytest.raises(IntegrityError, match=r"w\.ckpt: weights cannot be read"):
        read_tensors(tmp_path / "w.ckpt")
    for content in ([1, 2], {"model": 3}, {"epoch": torch.tensor(3)}):
        torch.save(content, tmp_path / "w.pt")
        with pytest.raises(IntegrityError, match=r"w\.pt: weights cannot be read"):
            read_tensors(tmp_path / "w.pt")
    with pytest.raises(UsageError, match=r"none\.pt: no such file"):
        read_tensors(tmp_path / "none.pt")
    (tmp_path / "w.h5").touch()
    with pytest.raises(UsageError, match=r"w\.h5: found \.h5; expected \.safetensors"):
        read_tensors(tmp_path / "w.h5")
