"""Folder: a folder that exists is complete. It is built under another name near its place, and renamed when all is on disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mri_vit.run import parts
from mri_vit.run.ownership import refuse_link

BUILDING = ".building"  # beside the target: parts lie in it, so that no sweep lists thousands of finished neighbours
OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST)


@contextmanager
def complete(target: Path, refuse: Callable[[Path], None], done: Callable[[Path], bool] = lambda _: False) -> Iterator[Path]:
    """A new folder to fill with files that are fsynced; it takes the place of `target` unless the block raises.

    Killed at any moment, `target` is the old folder, the new one, or (for an instant while one gives way) none. It never holds
    files of two writers: of several at once each builds a folder of its own.

    Parameters
    ----------
    target
        Where the folder goes.
    refuse
        Raises when what is at `target` is not ours to delete; it is asked right before that.
    done
        Whether what lies at `target` by then is what was to be made, by another process that was faster: it then stays.
    """
    home = target.parent / BUILDING
    refuse_link(target)
    refuse_link(home)
    target.parent.mkdir(parents=True, exist_ok=True)
    parts.sweep_folders(home)
    with parts.leased(home, target.name) as part:
        yield part
        _fsync(part)
        _place(part, target, refuse, done)
        _fsync(target.parent)


def _place(part: Path, target: Path, refuse: Callable[[Path], None], done: Callable[[Path], bool]) -> None:
    old = part.with_name(part.name + parts.OLD_ENDING)
    while not _moved(part, target):
        if done(target):
            return
        refuse(target)
        with suppress(FileNotFoundError):  # another process took it away, for its own
            target.rename(old)
        placed = _moved(part, target)
        shutil.rmtree(old, ignore_errors=True)
        if placed:
            return


def _moved(part: Path, target: Path) -> bool:
    """Rename a folder, if nothing (or only an empty folder) is in its place."""
    try:
        part.rename(target)
    except OSError as error:
        if error.errno in OCCUPIED:
            return False
        raise
    return True


def _fsync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
