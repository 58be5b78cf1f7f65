"""What processes of a test do; beside the tests, because a process that imports pytest takes longer to start than to work."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from mri_vit.errors import UsageError
from mri_vit.run.jobs import Task
from mri_vit.settings.schema import Study


def square(number: int, folder: Path) -> int:
    """Squares; 3 kills its own process, once the others beside it have begun."""
    with (folder / f"begun-{number}").open("a") as file:
        file.write("x")
    if number == 3:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 4:
        time.sleep(0.5)  # in the other process when that happens
    return number**2


def say_and_wait(folder: Path) -> None:
    """Writes the numbers of its process and of the one that it came from, and works for longer than any test."""
    unfinished = folder / "writing"
    unfinished.write_text(f"{os.getpid()} {os.getppid()}")
    unfinished.rename(folder / "process")
    time.sleep(600)


def refuse(number: int) -> None:
    raise UsageError(f"{number} is refused")


def square_of(number: int) -> int:
    return number**2


def visible() -> tuple[str, int]:
    """The GPUs that this process sees, and its number."""
    time.sleep(0.2)  # so that every process has its share
    return os.environ["CUDA_VISIBLE_DEVICES"], os.getpid()


def started_with() -> tuple[dict[str, str], dict[str, str]]:
    """The file of each module of ours that this process has imported, and its environment."""
    ours = {name: str(module.__file__) for name, module in sys.modules.items() if name.startswith("mri_vit")}
    return ours, dict(os.environ)


def a_task(study: Study) -> Task:
    """A study's job, as it would be handed to a cluster."""
    return Task(square_of, {"p1": ("p1", study, [square_of])}, Path())
