"""Jobs of the service: a folder for each patient who was sent, with a record that outlives the server and its worker.

    FOLDER/<id>/job.json       the record, replaced as a whole whenever it changes
    FOLDER/<id>/sent/<name>/   the scans
    FOLDER/<id>/result/<name>/ the patient's page, prediction and maps
    FOLDER/<id>/dicom.zip      DICOM objects, once they were asked for

Ids are random and long: no address can be guessed. All of it is for the owner of the folder alone.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from mri_vit.errors import FolderHeld, OutOfResource, UsageError
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written, read_json

RECORD, SENT, RESULT, DICOM = "job.json", "sent", "result", "dicom.zip"
LOCK, SPOOL, GONE = ".lock", ".spool", ".deleted-"  # beside the jobs: what arrives, and folders on their way out
ATTEMPTS = 3  # after so many deaths of the worker on one patient that patient is given up, for others wait
State = Literal["queued", "running", "done", "failed"]


@dataclass(frozen=True)
class Job:
    """One patient who was sent. Times are seconds since 1970."""

    id: str
    name: str  # of the patient, as the sender wrote it
    created: float
    state: State = "queued"
    words: str = ""  # what is going on, or why it failed
    attempts: int = 0  # that ended with the worker's death, or for lack of memory
    not_before: float = 0.0  # when something was lacking: the next try
    finished: float | None = None

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed")

    @property
    def arrived(self) -> str:
        return datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%d %H:%M UTC")


class QueueFull(UsageError):
    """As many patients wait as are accepted."""


class Jobs:
    """All jobs in a folder, the oldest first; for several threads of one process."""

    def __init__(self, folder: Path, keep_s: float) -> None:
        """Read what an earlier server left: what it was at work on waits again. `keep_s`: seconds that a patient is kept.

        Raises UsageError where the folder holds something else, IntegrityError where a record is damaged.
        """
        self.folder, self.keep_s = folder, keep_s
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}
        for entry in sorted(folder.iterdir()):
            if entry.name in (LOCK, SPOOL) or entry.name.startswith(GONE):
                continue
            if not (entry / RECORD).is_file():
                if entry.is_dir() and _is_id(entry.name):  # a server ended while a patient was being sent
                    shutil.rmtree(entry)
                    continue
                raise UsageError(f"{folder} holds {entry.name}, which no service wrote; choose another folder")
            with as_written(entry / RECORD):
                job = Job(**read_json(entry / RECORD))
            self._jobs[job.id] = replace(job, state="queued", words="") if job.state == "running" else job
        folder.chmod(0o700)  # only now: it is ours
        shutil.rmtree(folder / SPOOL, ignore_errors=True)

    def listed(self) -> list[Job]:
        """Every job, the oldest first."""
        with self._changed:
            return sorted(self._jobs.values(), key=lambda job: job.created)

    def get(self, name: str) -> Job | None:
        with self._changed:
            return self._jobs.get(name)

    def home(self, job: Job) -> Path:
        return self.folder / job.id

    @contextmanager
    def adding(self, name: str, most: int) -> Iterator[tuple[Job, Path]]:
        """A new folder for a patient's scans; the job waits in the queue unless the block raises, which leaves nothing.

        Raises QueueFull where `most` patients wait already, or do by then.
        """
        self._refuse_full(most)
        job = Job(uuid.uuid4().hex, name, time.time())
        home = self.home(job)
        try:
            (home / SENT).mkdir(parents=True)
            yield job, home / SENT
            with self._changed:
                self._refuse_full(most)
                self._write(job)
                self._jobs[job.id] = job
                self._changed.notify_all()
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise

    def _refuse_full(self, most: int) -> None:
        waiting = sum(not job.over for job in self.listed())
        if waiting >= most:
            raise QueueFull(f"{waiting} patients wait already, as many as are accepted; send this one again later")

    def put(self, job: Job) -> None:
        """Keep what became of a job; where the disk is full, until the server ends, and its older record stays."""
        with self._changed:
            self._jobs[job.id] = job
            with suppress(OSError, OutOfResource):
                self._write(job)
            self._changed.notify_all()

    def _write(self, job: Job) -> None:
        write_bytes(json.dumps(asdict(job), indent=1).encode(), self.home(job) / RECORD)

    def take_next(self, stop: threading.Event) -> Job | None:
        """The oldest job that waits and may be tried, as running; None once the service stops."""
        while not stop.is_set():
            with self._changed:
                now = time.time()
                if waiting := [job for job in self._jobs.values() if job.state == "queued" and job.not_before <= now]:
                    taken = replace(min(waiting, key=lambda job: job.created), state="running", words="preparing the scans")
                    self.put(taken)
                    return taken
                self._changed.wait(timeout=1.0)  # a second: how soon a stop is seen
        return None

    def before(self, job: Job) -> int:
        """How many are to be worked on before this one."""
        return sum(not one.over and one.created < job.created for one in self.listed())

    def delete(self, job: Job) -> None:
        """Delete a patient and everything that was made. Raises UsageError while one is being worked on."""
        with self._changed:
            if self._jobs.get(job.id, job).state == "running":
                raise UsageError("this patient is being worked on; delete it when that is over")
            self._jobs.pop(job.id, None)
            with suppress(OSError):  # another deletes it, or what is being written there is not done: the next time
                self.home(job).rename(self.folder / f"{GONE}{job.id}")
        self._remove_deleted()

    def delete_old(self) -> None:
        """Delete patients who were finished longer ago than they are kept, and what could not be removed before."""
        for job in self.listed():
            if job.over and time.time() - (job.finished or job.created) > self.keep_s:
                self.delete(job)
        self._remove_deleted()

    def _remove_deleted(self) -> None:
        for gone in self.folder.glob(f"{GONE}*"):
            shutil.rmtree(gone, ignore_errors=True)


def _is_id(name: str) -> bool:
    try:
        return uuid.UUID(hex=name).hex == name
    except ValueError:
        return False


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder of a service, made if need be; all that is written meanwhile is for the owner alone.

    Raises FolderHeld where another service has it.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; expected a folder for the patients who are sent, or nothing")
    before = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout:
        raise FolderHeld(f"{folder}: another service works with it; choose another folder, or stop the other") from None
    finally:
        os.umask(before)
