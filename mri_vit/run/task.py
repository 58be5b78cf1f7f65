"""Task: what a process elsewhere is handed, what comes back, and what a cluster is that does it."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from mri_vit.run import ledger
from mri_vit.settings.executor import Executor, Slurm
from mri_vit.settings.schema import Study

FROM_OUTSIDE = ("submitit", "subprocess", "torch.multiprocessing")  # whose errors say that a process was stopped, not what it did
Done = dict[str, tuple[Exception | None, Any]]  # by job what its function raised, or gave


@dataclass(frozen=True)
class Where:
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
        return {name: hashlib.sha256(described((self.function, given)).encode()).hexdigest() for name, given in self.jobs.items()}

    def __call__(self) -> Done:
        done: Done = {}
        for name, arguments in self.jobs.items():
            try:
                done[name] = None, said(self.home, name, self.function, arguments)
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


def described(given: Any) -> str:
    """What a job is given, in words that are the same in every process; where it is to be done is no part of it."""
    if isinstance(given, Study):
        return repr(given.model_copy(update={"executor": Executor(), "slurm": Slurm()}))
    if is_dataclass(given):
        return f"{type(given).__qualname__}({', '.join(described(getattr(given, one.name)) for one in fields(given))})"
    if isinstance(given, (list, tuple)):
        return f"[{', '.join(map(described, given))}]"
    return f"{given.__module__}.{given.__qualname__}" if callable(given) else repr(given)


def said(home: Path | None, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Do a job, and say in `home` who works on it."""
    with ledger.working(home, name):
        return function(*arguments)
