"""Paths and processes on a system that is not Linux: no process is a copy of another, and no name is used that only POSIX has."""

from __future__ import annotations

import ast
import json
import ntpath
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from whole_road import FINISHED, SHRUNKEN, parted, words

from mri_vit.run import atomic, files

pytestmark = pytest.mark.long(45)
ROOT = Path(__file__).parents[2]
# What every process of such a system lacks. `HAVE_SEND_HANDLE` is how Python knows that it has no fork server.
LACKING = """
import multiprocessing, os, signal
from multiprocessing import reduction
multiprocessing.set_start_method("spawn")
reduction.HAVE_SEND_HANDLE = False
for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "killpg", "getpgid", "setsid"):
    delattr(os, name)
open(os.path.join(os.environ["STARTED"], str(os.getpid())), "w").close()
"""


STAGES = """
from mri_vit.cli import main
if __name__ == "__main__":
    for verb in ("prepare", "train", "explain"):
        try:
            main([verb, "study.toml", *{options}])
        except SystemExit as end:
            assert end.code == 0, (verb, end.code)
"""


def test_a_study_without_fork_gives_the_numbers_of_one_in_a_single_process(scans: Path, finished: Path, tmp_path: Path):
    site, started = tmp_path / "site", tmp_path / "started"
    site.mkdir()
    started.mkdir()
    (site / "sitecustomize.py").write_text(LACKING)  # which every process of Python imports as it starts
    parted(scans, tmp_path)
    (tmp_path / "study.toml").write_text(FINISHED)
    (tmp_path / "stages.py").write_text(STAGES.format(options=words({**SHRUNKEN, "train.epochs": 1, "train.workers": 2})))
    path = os.pathsep.join(map(str, (site, ROOT)))
    clean = os.environ | {"PYTHONPATH": path, "STARTED": str(started), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "stages.py"], cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(started.iterdir())) >= 1 + 2 + 2, "the command itself, and two processes of each of two stages"
    for table in (files.PREDICTIONS, files.SURVIVAL):
        assert (tmp_path / "run" / table).read_bytes() == (finished / "run" / table).read_bytes(), table
    assert list((tmp_path / "run" / files.MAPS).iterdir())


@pytest.mark.parametrize("system", ["Windows", "Darwin"])
def test_no_name_is_used_that_another_system_lacks(system: str, tmp_path: Path):
    probe = tmp_path / "probe.py"
    probe.write_text("import os, sys\nos.fork()\nif sys.platform == 'linux':\n    os.sched_getaffinity(0)\n")
    found = [Path(one["file"]).name for one in unknown(system, ROOT / "mri_vit" / "run", probe)]
    assert found == ["probe.py"] * (system == "Windows"), found  # what it is to find it finds, outside a guard alone


def unknown(system: str, *sources: Path) -> list[dict[str, str]]:
    """What pyright knows not to be there on a system, by the declarations of Python's standard library."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonplatform", system, "--pythonpath", sys.executable]
    done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, cwd=ROOT)
    return [one for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]


@pytest.mark.parametrize("call", ["os.kill", "os.rename"])  # of Windows the one sends Ctrl-C, the other replaces no file
def test_no_call_is_made_that_does_something_else_on_windows(call: str):
    module, name = call.split(".")
    for file in (ROOT / "mri_vit").rglob("*.py"):
        attributes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)]
        assert not [one for one in attributes if one.attr == name and ast.unparse(one.value) == module], file


def test_a_process_lives_until_it_ends():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = platform.node()
    assert [atomic.lives(host, process) for process in (os.getpid(), os.getppid(), ended.pid, 10**30)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_path_on_another_drive_stays_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files.os, "path", ntpath)
    assert files.path_from(r"C:\study\run", r"C:\study\scans\t1.nii") == r"..\scans\t1.nii"
    assert files.path_from(r"C:\study\run", r"D:\scans\t1.nii") == r"D:\scans\t1.nii"


def test_a_lease_is_gone_with_its_end_where_an_open_file_cannot_be_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    locks: list[FileLock] = []

    class Lock(FileLock):
        def __init__(self, *given: object, **named: object) -> None:
            super().__init__(*given, **named)  # pyright: ignore
            locks.append(self)

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if any(lock.is_locked and Path(lock.lock_file) == path for lock in locks):
            raise PermissionError(13, "in use", str(path))
        os.unlink(path) if path.exists() or not missing_ok else None

    monkeypatch.setattr(atomic, "FileLock", Lock)
    monkeypatch.setattr(Path, "unlink", unlink)
    monkeypatch.setattr(atomic, "WINDOWS", True)
    with atomic.leased(tmp_path / "home", "P001") as part:
        (part / "file").touch()
    assert locks
    assert list(tmp_path.iterdir()) == []
