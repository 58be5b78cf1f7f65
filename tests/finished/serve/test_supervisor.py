"""The worker's answers, and what becomes of a job where something is lacking or the worker cannot start."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mri_vit.errors import FolderHeld, UsageError
from mri_vit.finished.exported_model import ExportedModel
from mri_vit.finished.predict import Allowed
from mri_vit.finished.serve import supervisor as module
from mri_vit.finished.serve import worker
from mri_vit.finished.serve.jobs import ATTEMPTS, Jobs
from mri_vit.finished.serve.supervisor import Supervisor
from mri_vit.settings.schema import Study


def raising(error: BaseException) -> Any:
    def raise_it(*_: object) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("error", "key", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "lacking", "the disk is full"),
        (FolderHeld("another run"), "lacking", "an earlier worker"),
        (UsageError("t1.nii.gz: no scan"), "failed", "t1.nii.gz: no scan"),
        (ZeroDivisionError(), "failed", "a fault of mri-vit"),
    ],
)
def test_an_answer_says_whether_the_patient_or_the_machine_is_at_fault(error, key, words, tmp_path, tiny: Study, monkeypatch):
    monkeypatch.setattr(worker, "predict_by", raising(error))
    found = worker.answer(ExportedModel(tmp_path, tiny, {}), tmp_path / "scans", tmp_path, Allowed(), io.StringIO())
    assert list(found) == [key]
    assert words in found[key]


def test_memory_that_is_lacking_is_said_to_be_that(tmp_path: Path, tiny: Study, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker, "predict_by", raising(MemoryError()))
    found = worker.answer(ExportedModel(tmp_path, tiny, {}), tmp_path / "scans", tmp_path, Allowed(), io.StringIO())
    assert list(found) == ["lacking", "memory"]


def test_lines_of_a_console_become_messages():
    stream = io.StringIO()
    told = worker.ProgressLines(stream)
    told.write("prepare: 1 of 1")
    told.write(" in 2 s\n\npredict")
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [{"doing": "prepare: 1 of 1 in 2 s"}]


@pytest.fixture
def idle() -> Iterator[subprocess.Popen[str]]:
    """A process that reads what it is sent and does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()
    with contextlib.suppress(OSError):
        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe


def ended(supervisor: Supervisor, process: subprocess.Popen[str], *answers: dict[str, str]) -> list[tuple[str, str, int]]:
    """State, words and attempts of the one job after each of these answers of a worker."""
    after = []
    for answer in answers:
        supervisor._followed = lambda *_, answer=answer: answer  # type: ignore[method-assign]
        job = supervisor.jobs.take_next(threading.Event())
        assert job
        supervisor._work(process, job)
        (now,) = supervisor.jobs.listed()
        after.append((now.state, now.words, now.attempts))
    return after


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """A supervisor with one job, that tries again at once."""
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    jobs = Jobs(tmp_path, 3600.0)
    with jobs.adding("a", 100):
        pass
    return Supervisor(tmp_path, jobs, Allowed())


def test_a_job_waits_as_long_as_the_disk_is_full_and_is_done_once_there_is_room(waiting: Supervisor, idle):
    full = {"lacking": f"{waiting.jobs.folder}: the disk is full"}
    states = ended(waiting, idle, *[full] * 5, {"done": ""})
    assert [state for state, _, _ in states] == ["queued"] * 5 + ["done"]
    assert "the disk is full" in states[0][1]
    assert states[-1][2] == 0


def test_a_patient_who_needs_too_much_memory_is_given_up(waiting: Supervisor, idle):
    states = ended(waiting, idle, *[{"lacking": "out of memory", "memory": ""}] * 3)
    assert [state for state, _, _ in states] == ["queued", "queued", "failed"]
    assert "out of memory, 3 times" in states[-1][1]


def test_a_worker_that_died_idle_is_no_patients_fault(waiting: Supervisor, idle):
    idle.kill()
    idle.wait()
    ((state, words, attempts),) = ended(waiting, idle, {"done": ""})
    assert (state, words, attempts) == ("queued", "", 0)


def test_a_line_that_a_killed_worker_did_not_end_is_no_message():
    killed = subprocess.Popen(
        [sys.executable, "-c", "print('{\"doing\": \"a\"}'); print('{\"do', end='')"], stdout=subprocess.PIPE, text=True
    )
    with killed:
        assert list(module._messages(killed)) == [{"doing": "a"}]


def test_a_job_of_which_following_fails_is_tried_again_and_not_left_running(waiting: Supervisor, idle, monkeypatch):
    @contextlib.contextmanager
    def ready(self: Supervisor) -> Iterator[subprocess.Popen[str]]:
        yield idle

    def broken(self: Supervisor, *_: object) -> None:
        if self.jobs.listed()[0].attempts == ATTEMPTS - 1:
            self._stop_asked.set()
        raise ZeroDivisionError

    monkeypatch.setattr(Supervisor, "_ready_worker", ready)
    monkeypatch.setattr(Supervisor, "_followed", broken)
    waiting.start()
    waiting.join(30)
    (job,) = waiting.jobs.listed()
    assert (job.state, job.attempts) == ("failed", ATTEMPTS)
    assert "a fault of mri-vit" in job.words


def test_no_fault_ends_the_thread(waiting: Supervisor, monkeypatch: pytest.MonkeyPatch, capsys):
    seen = []

    def broken(self: Supervisor) -> None:
        seen.append(self)
        if len(seen) == 3:
            self._stop_asked.set()
        raise ZeroDivisionError

    monkeypatch.setattr(Supervisor, "_ready_worker", broken)
    waiting.start()
    waiting.join(30)
    assert len(seen) == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_model_that_cannot_be_used_is_said_and_not_tried_again(tmp_path: Path):
    folder = tmp_path / "jobs"
    folder.mkdir()
    jobs = Jobs(folder, 3600.0)
    supervisor = Supervisor(tmp_path / "no-model", jobs, Allowed())
    supervisor.start()
    supervisor.join(60)
    assert not supervisor.is_alive()
    assert supervisor.health == "unusable"
    assert "no-model" in supervisor.words
