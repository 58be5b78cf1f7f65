"""Alone: one process at a time makes what lies in a folder; a second waits, and then finds it made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from mri_vit.run.parts import NO_LOCKS

FILE = ".making.lock"


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder that is there until the block ends; the kernel lets go of it when the process dies.

    On a disk without locks nobody waits, and what two processes make at once is written by both, file by file.
    """
    lock = FileLock(folder / FILE, fallback_to_soft=False)
    try:
        lock.acquire(poll_interval=1)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()
