"""A folder that exists is complete, is one writer's, and nothing that is not ours gives way to it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.run import atomic
from mri_vit.run import atomic as folders
from mri_vit.run.atomic import BUILDING, complete


def nothing(_: Path) -> None:
    """Everything may be replaced."""


BUILD = """
import os, sys, time
from pathlib import Path
from mri_vit.run.atomic import complete
os.getpid = lambda: 7  # as in containers, each of which counts its processes from 1
print(flush=True)
sys.stdin.readline()
for number in range(40):
    with complete(Path(sys.argv[1]) / f"P{number % 2}", lambda _: None) as part:
        (part / "one").write_text(f"{sys.argv[2]} {number}")
        time.sleep(0.001)
        (part / "two").write_text(f"{sys.argv[2]} {number}")
"""


def test_processes_with_the_same_id_that_build_the_same_folders_at_once_leave_each_whole_and_of_one_writer(tmp_path: Path):
    calls = [[sys.executable, "-c", BUILD, str(tmp_path), writer] for writer in "abc"]
    processes = [subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for call in calls]
    for process in processes:
        assert process.stdout
        process.stdout.readline()  # all are ready before the first begins
    for process in processes:
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert [process.communicate() and process.returncode for process in processes] == [0, 0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["P0", "P1"]  # and no part of anybody is left
    for target in tmp_path.iterdir():
        assert sorted(path.name for path in target.iterdir()) == ["one", "two"]
        assert (target / "one").read_text() == (target / "two").read_text()


def test_what_another_process_has_finished_meanwhile_stays_and_ours_is_dropped(tmp_path: Path):
    with complete(tmp_path / "P", nothing, lambda folder: (folder / "same").exists()) as part:
        (part / "ours").touch()
        (tmp_path / "P").mkdir()
        (tmp_path / "P" / "same").touch()
    assert [path.name for path in (tmp_path / "P").iterdir()] == ["same"]
    assert [path.name for path in tmp_path.iterdir()] == ["P"]


def test_what_appears_at_the_target_meanwhile_and_is_not_ours_stays(tmp_path: Path):
    def refuse(folder: Path) -> None:
        raise UsageError(f"{folder} is somebody's")

    def build() -> None:
        with complete(tmp_path / "P", refuse) as part:
            (part / "ours").touch()
            (tmp_path / "P").mkdir()
            (tmp_path / "P" / "t1.nii.gz").write_text("raw")

    with pytest.raises(UsageError, match="somebody's"):
        build()
    assert (tmp_path / "P" / "t1.nii.gz").read_text() == "raw"


KILLED = """
import os, signal, sys
from pathlib import Path
from mri_vit.run.atomic import complete
with complete(Path(sys.argv[1]), lambda _: None) as part:
    (part / "half").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_leaves_is_swept_and_what_a_living_one_builds_is_not(tmp_path: Path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "A")], check=False)
    (killed,) = (path for path in (tmp_path / BUILDING).iterdir() if path.is_dir())
    with complete(tmp_path / "B", nothing) as living:
        assert not killed.exists()
        (living / "file").touch()
        with complete(tmp_path / "A", nothing) as part:
            (part / "file").touch()
        assert (living / "file").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A", "B"]


def left(home: Path, host: str, old: bool) -> Path:
    """A part and its lease as a process that died on `host` left them."""
    part = home / f"P.{host}-7-0123abcd"
    part.mkdir(parents=True)
    lease = part.with_name(part.name + atomic.LEASE_ENDING)
    lease.touch()
    if old:
        os.utime(lease, (0, 0))
    return part


def test_a_building_place_that_another_process_removes_before_it_is_listed_leaves_nothing_to_sweep(tmp_path: Path, monkeypatch):
    scandir = os.scandir

    def gone_first(path):
        Path(path).rmdir()  # empty by now: its last part has just been moved into its place
        return scandir(path)

    (tmp_path / BUILDING).mkdir()
    monkeypatch.setattr(os, "scandir", gone_first)
    atomic.sweep_folders(tmp_path / BUILDING)
    assert not (tmp_path / BUILDING).exists()


def test_another_hosts_part_is_swept_only_when_it_has_rested_because_its_lock_may_not_reach_here(tmp_path: Path):
    fresh, old = left(tmp_path / "fresh", "elsewhere", old=False), left(tmp_path / "old", "elsewhere", old=True)
    atomic.sweep_folders(fresh.parent)
    atomic.sweep_folders(old.parent)
    assert fresh.exists()
    assert not old.parent.exists()
    held = left(tmp_path / "held", "elsewhere", old=True)
    with FileLock(held.with_name(held.name + atomic.LEASE_ENDING)):
        atomic.sweep_folders(held.parent)
    assert held.exists()


def test_on_a_disk_without_locks_folders_are_completed_and_no_part_is_swept(tmp_path: Path, monkeypatch):
    def unsupported(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    part = left(tmp_path / BUILDING, atomic._host(), old=True)
    monkeypatch.setattr(FileLock, "acquire", unsupported)
    with complete(tmp_path / "P", nothing) as new:
        (new / "file").touch()
    assert (tmp_path / "P" / "file").exists()
    assert part.exists()


def test_parts_of_older_versions_are_swept_once_their_process_is_gone_and_they_have_rested(tmp_path: Path):
    names = (".P1.part-999999999", f".P1.part-{os.getpid()}", ".other.part-999999999", ".P1.old-999999998")
    for name in names:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    fresh = tmp_path / ".P1.part-999999997"
    fresh.mkdir()
    atomic.sweep_older(tmp_path, {"P1"})
    assert {path.name for path in tmp_path.iterdir()} == {names[1], names[2], fresh.name}


def test_completing_a_folder_does_not_list_its_finished_neighbours(tmp_path: Path, monkeypatch):
    listed: list[Path] = []
    scandir, listdir = os.scandir, os.listdir
    monkeypatch.setattr(os, "scandir", lambda path=".": listed.append(Path(path)) or scandir(path))
    monkeypatch.setattr(os, "listdir", lambda path=".": listed.append(Path(path)) or listdir(path))
    with complete(tmp_path / "P", nothing) as part:
        (part / "file").touch()
    assert tmp_path not in listed


def test_a_target_or_a_building_place_that_is_a_link_is_refused_before_anything_is_written(tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("P", folders.BUILDING):
        (tmp_path / name).symlink_to(elsewhere)
        with pytest.raises(IntegrityError, match="is a link"), complete(tmp_path / "P", nothing):
            raise AssertionError("nothing is to be built")
        (tmp_path / name).unlink()
    assert not list(elsewhere.iterdir())
    shutil.rmtree(elsewhere)
