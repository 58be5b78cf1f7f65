"""Folder: a folder that exists is complete. It is built under another name beside its place, and renamed when all is on disk."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def complete(target: Path) -> Iterator[Path]:
    """A new folder to fill with files that are fsynced; it takes the place of `target` unless the block raises.

    Killed at any moment, `target` is the old folder, the new one, or (for an instant while one gives way) none.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target)
    beside = target.with_name(f".{target.name}.part-{os.getpid()}")
    beside.mkdir()
    try:
        yield beside
        _fsync(beside)
        if target.exists():
            old = target.with_name(f".{target.name}.old-{os.getpid()}")
            target.rename(old)
            beside.rename(target)
            shutil.rmtree(old)
        else:
            beside.rename(target)
        _fsync(target.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def sweep(target: Path) -> None:
    """Remove what killed runs left behind beside `target`; what a living process is building stays."""
    for path in target.parent.glob(f".{target.name}.*"):
        ended = re.fullmatch(rf"\.{re.escape(target.name)}\.(part|old)-(\d+)", path.name)
        if ended and not _alive(int(ended[2])):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    if pid == os.getpid():
        return False  # ours, from an earlier attempt
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's, but there
        return True
    return True


def _fsync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
