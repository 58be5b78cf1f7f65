"""Ledger: what is known of a stage's jobs while it runs, in small files of the run's folder that anybody may read.

Whoever works on a job says so in a file that goes when the work ends; whoever handed jobs out writes down what a cluster was
given, what was lost and what failed. Results are not here: a job is done when its own files are there.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mri_vit.run.atomic import write_bytes
from mri_vit.run.ownership import record

PAGE = "handed_out.json"
WORKING = ".working.json"  # how the files of those who work end


@dataclass
class Page:
    """What was handed out: to whom, each task's jobs with hashes of what there is to do, and what failed."""

    executor: str
    submitted: dict[str, dict[str, str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def write(self, home: Path) -> None:
        """Replace what stands in the stage's folder."""
        home.mkdir(parents=True, exist_ok=True)
        write_bytes(json.dumps(asdict(self)).encode(), home / PAGE)


def read(home: Path) -> Page | None:
    """What was handed out in a stage's folder; None where nothing was, or it cannot be read."""
    content = record(home / PAGE)
    try:
        return Page(**content) if content else None
    except TypeError:  # of another version
        return None


@contextmanager
def working(home: Path | None, name: str) -> Iterator[None]:
    """Say in `home` who works on a job for as long as the block lasts; without a `home` nothing is said."""
    if home is None:
        yield
        return
    file = _sign(home, name)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def turn_to(home: Path, name: str) -> None:
    """Say in `home` that this process works on a job now, and no longer on another."""
    for file in home.glob(f"*{WORKING}"):
        if record(file).get("process") == os.getpid():
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
    found = [record(file) for file in sorted(home.glob(f"*{WORKING}"))]
    return [one for one in found if {"job", "host", "process", "since"} <= one.keys()]


def forget(home: Path | None, name: str) -> None:
    """The process that worked on this was killed."""
    if home is None:
        return
    (home / f"{name.replace(' ', '+')}{WORKING}").unlink(missing_ok=True)


def close(home: Path) -> None:
    """Everything is done: the stage's folder goes, and that of all stages with the last."""
    shutil.rmtree(home, ignore_errors=True)
    with suppress(OSError):
        home.parent.rmdir()
