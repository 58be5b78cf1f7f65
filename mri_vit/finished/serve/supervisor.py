"""Supervisor: a thread that gives the worker one job after another, and starts it again where it dies; no job is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from mri_vit.finished.predict import Allowed
from mri_vit.finished.serve.jobs import ATTEMPTS, RESULT, SENT, Job, Jobs

STARTING_S = 600.0  # until a worker is ready: some gigabytes of weights from a slow disk
LONGEST_S = 3600.0  # of one patient: ViT-B/16 in ten folds takes some minutes
PAUSE_S = 5.0  # before a worker is started again that ended before it was ready
AGAIN_S = 30.0  # until a job is tried again for which disk or memory was lacking
Health = Literal["starting", "ready", "working", "lacking", "unusable", "stopped"]


class Supervisor(threading.Thread):
    """Works through the jobs until it is stopped."""

    def __init__(self, model: Path, jobs: Jobs, allowed: Allowed) -> None:
        super().__init__(name="supervisor", daemon=True)
        self.model, self.jobs, self.allowed = model, jobs, allowed
        self.health: Health = "starting"
        self.words = ""  # why the model is unusable, or what is lacking
        self.worker: subprocess.Popen[str] | None = None
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        """End the worker; a job that it is at work on waits for the next start."""
        self._stop_asked.set()
        if self.worker:
            self.worker.kill()
        self.join()
        self.health = "stopped"

    def run(self) -> None:
        while not self._stop_asked.is_set():
            try:
                with self._ready_worker() as worker:
                    if worker is None:
                        return
                    while worker.poll() is None and (job := self.jobs.take_next(self._stop_asked)):
                        try:
                            self._work(worker, job)
                        except Exception:
                            self._tried_in_vain(job, "a fault of mri-vit")
                            raise
            except Exception:  # a fault of ours must not end the thread, for nothing would be predicted any more
                traceback.print_exc()
                self._stop_asked.wait(PAUSE_S)

    @contextmanager
    def _ready_worker(self) -> Iterator[subprocess.Popen[str] | None]:
        """A worker that is ready; None where the model cannot be used, which no new start would change."""
        self.health = "starting"
        command = [sys.executable, "-m", "mri_vit.finished.serve.worker", str(self.model)]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        self.worker = worker
        try:
            with _killed_after(worker, STARTING_S):
                first = next(_messages(worker), {})
            if "unusable" in first:
                self.health, self.words = "unusable", first["unusable"]
                yield None
                return
            if "ready" in first:
                self.health = "ready"
            else:
                self.words = f"the worker ended with code {worker.wait()} while it was starting"
                self._stop_asked.wait(PAUSE_S)
            yield worker
        finally:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                with suppress(OSError):  # a line that a dead worker did not read
                    pipe.close()  # type: ignore[union-attr]  # both are pipes

    def _work(self, worker: subprocess.Popen[str], job: Job) -> None:
        home = self.jobs.home(job)
        self.health, self.words = "working", ""
        request = {
            "scans": str(home / SENT / job.name),
            "result": str(home / RESULT),
            "allowed": asdict(self.allowed),
        }
        assert worker.stdin
        try:
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
        except OSError:  # it died while it had nothing to do, which is not this patient's fault
            self.jobs.put(replace(job, state="queued", words=""))
            return
        with _killed_after(worker, LONGEST_S):
            end = self._followed(worker, job)
        if "done" in end:
            self.jobs.put(replace(job, state="done", words="", finished=time.time()))
        elif "failed" in end:
            self.jobs.put(replace(job, state="failed", words=_without_paths(end["failed"], home), finished=time.time()))
        elif "lacking" in end:
            self._lacks(job, _without_paths(end["lacking"], home), "memory" in end)
        elif self._stop_asked.is_set():
            self.jobs.put(replace(job, state="queued", words=""))
        else:
            self._tried_in_vain(job, f"the worker ended with code {worker.wait()} on this patient")
        if worker.poll() is None and self.health == "working":
            self.health = "ready"

    def _lacks(self, job: Job, words: str, memory: bool) -> None:
        """Try a job again later; others go on. A patient who needs too much memory is given up as one who kills the worker is."""
        if memory:
            self._tried_in_vain(job, words)
            return
        self.health, self.words = "lacking", "the disk, or what may be written there"
        again = time.time() + AGAIN_S
        self.jobs.put(replace(job, state="queued", words=f"waits, for something is lacking: {words}", not_before=again))

    def _tried_in_vain(self, job: Job, how: str) -> None:
        attempts = job.attempts + 1
        if attempts < ATTEMPTS:
            again = time.time() + PAUSE_S
            self.jobs.put(replace(job, state="queued", attempts=attempts, words=f"waits again: {how}", not_before=again))
            return
        words = f"{how}, {attempts} times; the machine may lack memory"
        self.jobs.put(replace(job, state="failed", attempts=attempts, words=words, finished=time.time()))

    def _followed(self, worker: subprocess.Popen[str], job: Job) -> dict[str, str]:
        """The worker's last message of a job, {} where it died; what it does meanwhile is kept with the job."""
        for message in _messages(worker):
            if "doing" not in message:
                return message
            stage = message["doing"].partition(":")[0]
            if stage in STAGES:
                self.jobs.put(replace(job, words=STAGES[stage]))
        return {}


STAGES = {  # by the stage that ended, what begins
    "prepare": "comparing with the run's patients",
    "compare": "predicting",
    "predict": "making maps and the page",
}


@contextmanager
def _killed_after(worker: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    clock = threading.Timer(seconds, worker.kill)
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def _messages(worker: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert worker.stdout
    for line in worker.stdout:
        if line.endswith("\n"):  # else the worker was killed while it was writing
            yield json.loads(line)


def _without_paths(words: str, home: Path) -> str:
    """A message without the folders of the service, which say nothing to a sender."""
    for folder in (home / SENT, home / RESULT, home):
        words = words.replace(f"{folder}/", "").replace(str(folder), "the patient's folder")
    return words
