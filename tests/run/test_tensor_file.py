"""Files are replaced whole, have the mode that any new file gets, and equal tensors are equal bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from mri_vit.model import network
from mri_vit.model.weights import save_encoder
from mri_vit.run import atomic
from mri_vit.run.atomic import replacing, write_bytes
from mri_vit.run.integrity import sort_header
from mri_vit.settings.schema import Model
from mri_vit.settings.sections import Grid
from mri_vit.train import checkpoint


def test_a_sorted_header_keeps_every_tensor_and_every_word(tmp_path: Path):
    tensors = {"b": torch.arange(3), "a": torch.ones(2, dtype=torch.float16)}
    told = {"z": '"quoted"\\ \n\x01\x7f', "ä": "한글", "a": "1"}
    safetensors.torch.save_file(tensors, tmp_path / "file", told)
    size = (tmp_path / "file").stat().st_size
    sort_header(tmp_path / "file")
    assert (tmp_path / "file").stat().st_size == size
    with safetensors.safe_open(str(tmp_path / "file"), "pt") as file:
        assert file.metadata() == told
        assert all(torch.equal(file.get_tensor(name), tensor) for name, tensor in tensors.items())


def test_equal_networks_encoders_and_states_are_equal_bytes(tmp_path: Path):
    """Keys of the metadata come in another order at every writing, so a few writings tell."""
    grid, model = Grid(edge=4, patch=2), Model(dim=8, depth=1, heads=2, mlp=8)
    net = network.Network(model, grid, [])
    optimiser = torch.optim.AdamW(net.parameters())
    for index in range(5):
        network.save(net, tmp_path / f"network-{index}")
        save_encoder(net.encoder, {"a": 1, "b": 2, "c": 3}, tmp_path / f"encoder-{index}")
        checkpoint.save(checkpoint.State(), net, optimiser, tmp_path / f"state-{index}")
    for kind in ("network", "encoder", "state"):
        assert len({file.read_bytes() for file in tmp_path.glob(f"{kind}-*")}) == 1


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_every_file_has_the_mode_of_the_umask(tmp_path: Path, umask: int):
    before = os.umask(umask)
    try:
        write_bytes(b"plain", tmp_path / "plain")
        network.save(network.Network(Model(dim=8, depth=1, heads=2, mlp=8), Grid(edge=4, patch=2), []), tmp_path / "weights")
    finally:
        os.umask(before)
    assert [oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()] == [oct(0o666 & ~umask)] * 2


def test_two_writers_of_one_file_do_not_meet_in_one_part(tmp_path: Path):
    with replacing(tmp_path / "file") as one, replacing(tmp_path / "file") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "file").read_text() == "one"  # whole, and of one of them
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


KILLED = """
import os, signal, sys
from pathlib import Path
from mri_vit.run.atomic import replacing
with replacing(Path(sys.argv[1])) as part:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_part_file_of_a_killed_writer_is_swept_and_no_other_file(tmp_path: Path):
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / ("x" * 200))], check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    for name in ("own.part", ".hidden.part", ".own.host-1-zzz.part"):
        (tmp_path / name).touch()
    atomic.sweep_files(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"own.part", ".hidden.part", ".own.host-1-zzz.part"}
