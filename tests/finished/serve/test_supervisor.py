"""The worker's answers, and what becomes of a job where something is lacking or the worker cannot start."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from mri_vit.errors import UsageError
from mri_vit.finished.exported_model import ExportedModel
from mri_vit.finished.predict import Allowed
from mri_vit.finished.serve import supervisor as module
from mri_vit.finished.serve import worker
from mri_vit.finished.serve.jobs import Jobs
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
        (MemoryError(), "lacking", "memory"),
        (UsageError("t1.nii.gz: no scan"), "failed", "t1.nii.gz: no scan"),
        (ZeroDivisionError(), "failed", "a fault of mri-vit"),
    ],
)
def test_an_answer_says_whether_the_patient_or_the_machine_is_at_fault(error, key, words, tmp_path, tiny: Study, monkeypatch):
    monkeypatch.setattr(worker, "predict_by", raising(error))
    found = worker.answer(ExportedModel(tmp_path, tiny, {}), tmp_path / "scans", tmp_path, Allowed(), io.StringIO())
    assert list(found) == [key]
    assert words in found[key]


def test_lines_of_a_console_become_messages():
    stream = io.StringIO()
    told = worker.Told(stream)
    told.write("prepare: 1 of 1")
    told.write(" in 2 s\n\npredict")
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [{"doing": "prepare: 1 of 1 in 2 s"}]


def test_a_job_waits_where_the_disk_is_full_and_is_done_once_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    jobs = Jobs(tmp_path, 3600.0)
    with jobs.adding("a"):
        pass
    answers = iter([{"lacking": f"{tmp_path}: the disk is full"}, {"done": "a"}])
    states = []

    def followed(self: Supervisor, *_: object) -> dict[str, str]:
        states.append(self.jobs.listed()[0].state)
        return next(answers)

    monkeypatch.setattr(Supervisor, "_followed", followed)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    supervisor = Supervisor(tmp_path, jobs, Allowed())
    idle = subprocess.Popen(["sleep", "60"], text=True)
    try:
        for state, words in (("queued", "disk is full"), ("done", "")):
            job = jobs.take_next(threading.Event())
            assert job
            supervisor._work(idle, job)
            (after,) = jobs.listed()
            assert (after.state, words in after.words) == (state, True)
    finally:
        idle.kill()
        idle.wait()
    assert states == ["running", "running"]


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
