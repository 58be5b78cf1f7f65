"""A patient who was taken into the queue is lost by nothing but the time that is stated."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mri_vit.errors import FolderHeld, OutOfResource, UsageError
from mri_vit.finished.serve import jobs as module
from mri_vit.finished.serve.jobs import Job, Jobs, QueueFull, held

GO = threading.Event()


def added(jobs: Jobs, name: str) -> Job:
    with jobs.adding(name, 100) as (job, sent):
        (sent / "scan").write_text(name)
    return job


def test_the_oldest_waits_least_and_work_goes_on_where_a_server_ended(tmp_path: Path):
    jobs = Jobs(tmp_path, 3600.0)
    first, second = added(jobs, "a"), added(jobs, "b")
    assert jobs.before(second) == 1
    taken = jobs.take_next(GO)
    assert taken
    assert (taken.id, taken.state) == (first.id, "running")
    with pytest.raises(UsageError, match="being worked on"):
        jobs.delete(taken)
    again = Jobs(tmp_path, 3600.0)  # as after a power cut
    assert [(job.name, job.state) for job in again.listed()] == [("a", "queued"), ("b", "queued")]
    assert (again.home(first) / "sent" / "scan").read_text() == "a"


def test_three_who_send_at_once_are_three_jobs(tmp_path: Path):
    jobs = Jobs(tmp_path, 3600.0)
    senders = [threading.Thread(target=lambda name=name: [added(jobs, f"{name}{i}") for i in range(10)]) for name in "abc"]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert len({job.name for job in jobs.listed()}) == 30
    assert len({job.name for job in Jobs(tmp_path, 3600.0).listed()}) == 30


def test_a_patient_who_cannot_be_stored_leaves_nothing(tmp_path: Path):
    jobs = Jobs(tmp_path, 3600.0)
    with pytest.raises(IsADirectoryError), jobs.adding("a", 100) as (_, sent):
        sent.write_text("a file where the folder is")
    assert jobs.listed() == []
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ("0" * 31 + "1")).mkdir()  # a server ended while a patient was being sent
    assert Jobs(tmp_path, 3600.0).listed() == []
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_loses_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    jobs = Jobs(tmp_path, 3600.0)
    job = added(jobs, "a")
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_bytes", lambda *_: (_ for _ in ()).throw(OutOfResource("full")))
        jobs.put(replace(job, state="done"))
        with pytest.raises(OutOfResource):
            added(jobs, "b")
    assert [(one.name, one.state) for one in jobs.listed()] == [("a", "done")]
    assert [(one.name, one.state) for one in Jobs(tmp_path, 3600.0).listed()] == [("a", "queued")]


def test_a_queue_takes_as_many_as_it_says_and_counts_again_once_all_is_there(tmp_path: Path):
    jobs = Jobs(tmp_path, 3600.0)
    with pytest.raises(QueueFull, match="1 patients wait"), jobs.adding("slow", 1), jobs.adding("quick", 1):
        pass
    assert [job.name for job in jobs.listed()] == ["quick"]
    with pytest.raises(QueueFull), jobs.adding("third", 1):
        raise AssertionError("its scans are not even read")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_job_that_waits_for_room_lets_others_go_first(tmp_path: Path):
    jobs = Jobs(tmp_path, 3600.0)
    big, small = added(jobs, "big"), added(jobs, "small")
    jobs.put(replace(big, not_before=time.time() + 60))
    taken = jobs.take_next(GO)
    assert taken
    assert taken.id == small.id


def test_two_who_delete_one_patient_and_a_folder_in_use_harm_nothing(tmp_path: Path):
    jobs = Jobs(tmp_path, 3600.0)
    job = added(jobs, "a")
    jobs.put(replace(job, state="done", finished=0.0))
    home = jobs.home(job)
    jobs.delete(job)
    jobs.delete(job)
    assert jobs.listed() == []
    assert not home.exists()
    (tmp_path / ".deleted-x").mkdir()  # what could not be removed before
    (tmp_path / ".deleted-x" / "scan").write_text("x")
    assert Jobs(tmp_path, 3600.0).listed() == []
    jobs.delete_old()
    assert list(tmp_path.iterdir()) == []


def test_finished_patients_are_deleted_after_the_stated_time_and_others_never(tmp_path: Path):
    jobs = Jobs(tmp_path, 60.0)
    old, fresh, waiting = (added(jobs, name) for name in "abc")
    jobs.put(replace(old, state="done", finished=time.time() - 61))
    jobs.put(replace(fresh, state="failed", finished=time.time() - 30))
    jobs.put(replace(waiting, created=time.time() - 1000))
    jobs.delete_old()
    assert {job.name for job in jobs.listed()} == {"b", "c"}
    assert not (tmp_path / old.id).exists()
    assert (tmp_path / fresh.id / "sent").exists()


def test_a_folder_of_something_else_and_one_in_use_are_refused(tmp_path: Path):
    with held(tmp_path / "a"):
        assert (tmp_path / "a").stat().st_mode & 0o077 == 0
        with pytest.raises(FolderHeld, match="another service"), held(tmp_path / "a"):
            pass
    (tmp_path / "a" / "thesis.txt").write_text("mine")
    (tmp_path / "a" / ".spool").mkdir()
    (tmp_path / "a").chmod(0o755)
    with pytest.raises(UsageError, match=r"thesis\.txt, which no service wrote"):
        Jobs(tmp_path / "a", 60.0)
    assert (tmp_path / "a" / "thesis.txt").read_text() == "mine"
    assert (tmp_path / "a" / ".spool").is_dir()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755, "nothing of it is changed"
    (tmp_path / "b").mkdir(mode=0o755)
    Jobs(tmp_path / "b", 60.0)
    assert (tmp_path / "b").stat().st_mode & 0o077 == 0


def test_a_record_is_plain_json(tmp_path: Path):
    jobs = Jobs(tmp_path, 60.0)
    job = added(jobs, "a")
    assert json.loads((jobs.home(job) / "job.json").read_text())["state"] == "queued"
