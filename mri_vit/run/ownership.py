"""Ownership: what this package may write over and delete (only what it wrote itself, and nothing behind a link), and the locks by
which a folder is held by one process at a time.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from mri_vit.errors import FolderHeld, OutOfResource, UsageError
from mri_vit.run import files
from mri_vit.run.atomic import NO_LOCKS, refuse_link, sweep_files, write_bytes

LEFT_BY_SYSTEMS = (".DS_Store", "Thumbs.db", "desktop.ini")  # what macOS and Windows leave in a folder that somebody looked at
BUILT_ELSEWHERE = files.MAPS  # its folders are built in one of their own, so that no part file of a killed process is in them
MAKING_LOCK = ".making.lock"
LOCK_FILES = (".lock", ".holder")  # of an output that a process holds, or held


def refuse_links(output: Path, patterns: Iterable[str]) -> None:
    """Raise IntegrityError when an output, or one of its folders, is a link: what is written there would lie elsewhere.

    `patterns` are globs of the folders that an output of its kind has. A link to a file is allowed where a folder may be
    found: files are replaced, so the link goes and the file that it leads to stays as it is.
    """
    refuse_link(output)
    for pattern in patterns:
        for path in output.glob(pattern) if "*" in pattern else [output / pattern]:  # a plain glob finds no link to nothing
            if path.is_symlink() and not path.is_file():  # to a folder, or to nothing, where no folder can be made
                refuse_link(path)


def entries(folder: Path) -> list[str]:
    """The names in a folder, but for those that operating systems leave; none where there is no folder."""
    if not folder.is_dir():
        return []
    return sorted(name for name in os.listdir(folder) if name not in LEFT_BY_SYSTEMS and not name.startswith("._"))


def refuse_foreign(output: Path, ours: bool, what: str) -> None:
    """Raise UsageError unless the folder that `what` goes into is not there, is empty, or is `ours`."""
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; expected a folder for {what}, or nothing")
    found = [name for name in entries(output) if name not in LOCK_FILES]
    if found and not ours:
        raise UsageError(
            f"{output} holds {found[0]} and is no {what} of mri-vit's; it is left as it is: choose a new or an empty folder"
        )


def refuse_strangers(folder: Path, own: Callable[[str], bool], what: str) -> None:
    """Raise UsageError when `folder`, which is to be replaced, is none or holds anything but files with names of our `own`."""
    refuse_link(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; expected a folder of {what}, or nothing")
    for name in entries(folder):
        path = folder / name
        if not own(name) or path.is_symlink() or not path.is_file():
            raise UsageError(f"{folder} holds {name}, which is no file of {what}; it is left alone: choose another folder")


@contextmanager
def held(folder: Path, folders: Sequence[str]) -> Iterator[None]:
    """An output folder, made if need be and locked until the end; `folders` are globs of the folders that are written in it.

    Part files that a killed process left in them are swept.

    Raises OutOfResource when it cannot be written, FolderHeld when another run holds it, UsageError when it is no folder,
    IntegrityError when it, or a folder in it, is a link to elsewhere.
    """
    refuse_links(folder, folders)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"output {folder} is no folder; choose another output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout:
        holder = (folder / ".holder").read_text() if (folder / ".holder").exists() else "an unknown process"
        raise FolderHeld(f"{folder} is held by another run ({holder})") from None
    except NotADirectoryError:
        raise UsageError(f"output {folder}: a file stands where a folder is expected; choose another output") from None
    except OSError as error:
        raise OutOfResource(f"{folder} cannot be written: {error.strerror}") from None
    try:  # the kernel frees the lock of a process that died, so a stale one cannot be
        holder = f"process {os.getpid()} on {platform.node()} since {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        write_bytes(holder.encode(), folder / ".holder")
        for path in (folder, *(path for pattern in folders for path in folder.glob(pattern))):
            if path.is_dir() and path.parent.name != BUILT_ELSEWHERE:
                sweep_files(path)
        yield
    finally:
        (folder / ".holder").unlink(missing_ok=True)
        lock.release()


@contextmanager
def file_lock(folder: Path) -> Iterator[None]:
    """Lock an existing folder until the block ends: one process makes what lies in it, a second waits and finds it made.

    The kernel frees the lock when the process dies. On a disk without locks no process waits, and what two processes make at once
    is written by both, file by file.
    """
    lock = FileLock(folder / MAKING_LOCK, fallback_to_soft=False)
    try:
        lock.acquire(poll_interval=1)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()
