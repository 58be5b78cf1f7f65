"""Jobs: what a process elsewhere is handed, what comes back, and what a cluster is; and the ledger: small files of a run's folder
that say, while a stage runs, which process works on which job, what was handed out and what failed. Any process may read them.

Results are not in the ledger: a job is done when its own files are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Executor, Slurm

LEDGER = "handed_out.json"
WORKING = ".working.json"  # how the files of those who work end


@dataclass
class Ledger:
    """What was handed out: to whom, each task's jobs with hashes of what there is to do, and what failed."""

    executor: str
    submitted: dict[str, dict[str, str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def write(self, home: Path) -> None:
        """Replace what stands in the stage's folder."""
        home.mkdir(parents=True, exist_ok=True)
        write_bytes(json.dumps(asdict(self)).encode(), home / LEDGER)


def read_ledger(home: Path) -> Ledger | None:
    """What was handed out in a stage's folder; None where nothing was, or it cannot be read."""
    content = read_json_or_empty(home / LEDGER)
    try:
        return Ledger(**content) if content else None
    except TypeError:  # of another version
        return None


@contextmanager
def working_on(home: Path | None, name: str) -> Iterator[None]:
    """Say in `home` who works on a job for as long as the block lasts; without a `home` nothing is said."""
    if home is None:
        yield
        return
    file = _sign(home, name)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def turn_to_job(home: Path, name: str) -> None:
    """Say in `home` that this process works on a job now, and no longer on another."""
    for file in home.glob(f"*{WORKING}"):
        if read_json_or_empty(file).get("process") == os.getpid():
            file.unlink(missing_ok=True)
    _sign(home, name)


def _sign(home: Path, name: str) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    file = home / f"{name.replace(' ', '+')}{WORKING}"
    said = {"job": name, "host": platform.node(), "process": os.getpid()}
    write_bytes(json.dumps({**said, "since": datetime.now(UTC).isoformat(timespec="seconds")}).encode(), file)
    return file


def workers(home: Path) -> list[dict[str, Any]]:
    """Who works in a stage's folder: job, host, process, since. Who was killed is among them until somebody notices."""
    found = [read_json_or_empty(file) for file in sorted(home.glob(f"*{WORKING}"))]
    return [one for one in found if {"job", "host", "process", "since"} <= one.keys()]


def forget_worker(home: Path | None, name: str) -> None:
    """The process that worked on this was killed."""
    if home is None:
        return
    (home / f"{name.replace(' ', '+')}{WORKING}").unlink(missing_ok=True)


def close_ledger(home: Path) -> None:
    """Everything is done: the stage's folder goes, and that of all stages with the last."""
    shutil.rmtree(home, ignore_errors=True)
    with suppress(OSError):
        home.parent.rmdir()


FROM_OUTSIDE = ("submitit", "subprocess", "torch.multiprocessing")  # whose errors say that a process was stopped, not what it did
Done = dict[str, tuple[Exception | None, Any]]  # by job what its function raised, or gave


@dataclass(frozen=True)
class Workplace:
    """Where jobs are done: in so many processes here, or as the settings say, so many in a bundle; what is known is in `home`."""

    workers: int
    home: Path | None = None
    bundle: int = 1
    settings: Executor = field(default_factory=Executor)
    slurm: Slurm = field(default_factory=Slurm)
    devices: int = 1  # GPUs that a process here sees, where there are any

    @property
    def here(self) -> bool:
        """Whether it is this machine."""
        return self.settings.kind == "local"


@dataclass(frozen=True)
class Lost:
    """How work ended that came to nothing: its process was killed, or its machine went away."""

    how: str


@dataclass(frozen=True)
class Task:
    """Some of a stage's jobs, which a process does one after the other; what it gives is as `Done`."""

    function: Callable[..., Any]
    jobs: dict[str, tuple[Any, ...]]
    home: Path

    def digests(self) -> dict[str, str]:
        """By job a hash of what is to be done, by which a process that starts again knows what it had handed in."""
        return {name: hashlib.sha256(job_text((self.function, given)).encode()).hexdigest() for name, given in self.jobs.items()}

    def __call__(self) -> Done:
        done: Done = {}
        for name, arguments in self.jobs.items():
            try:
                done[name] = None, do_job(self.home, name, self.function, arguments)
            except Exception as error:
                if type(error).__module__.startswith(FROM_OUTSIDE):
                    raise
                traceback.print_exc()
                error.add_note(f"in the job {name}, where it was raised:\n{traceback.format_exc()}")
                done[name] = error, None  # whoever handed it out raises it
                break
        return done


@runtime_checkable
class Cluster(Protocol):
    """What does tasks elsewhere. A task is known by the name that the cluster gave it."""

    most: int  # tasks that are handed in at a time

    def submit(self, tasks: Sequence[Task]) -> list[str]:
        """Hand tasks in; their names, in this order."""
        ...

    def waiting(self, names: Sequence[str]) -> set[str]:
        """Which of the tasks that an earlier process handed in are in the queue or at work."""
        ...

    def ended(self, names: Sequence[str]) -> dict[str, Done | Lost]:
        """Those of the tasks that have ended."""
        ...

    def drop(self, names: Sequence[str]) -> None:
        """Take back those of the tasks that have not begun."""
        ...

    def left(self, names: Sequence[str]) -> str:
        """What becomes of tasks whose results nobody waits for, and how to end them."""
        ...


def job_text(given: Any) -> str:
    """What a job is given, in words that are the same in every process; where it is to be done is no part of it."""
    if isinstance(given, Study):
        return repr(given.model_copy(update={"executor": Executor(), "slurm": Slurm()}))
    if is_dataclass(given):
        return f"{type(given).__qualname__}({', '.join(job_text(getattr(given, one.name)) for one in fields(given))})"
    if isinstance(given, (list, tuple)):
        return f"[{', '.join(map(job_text, given))}]"
    return f"{given.__module__}.{given.__qualname__}" if callable(given) else repr(given)


def do_job(home: Path | None, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Do a job, and say in `home` who works on it."""
    with working_on(home, name):
        return function(*arguments)
