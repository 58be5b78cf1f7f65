"""Atomic writing: a file or folder that exists is complete, however its writer ended. It is written under another name beside
its place (a part) and renamed when all of it is on disk. Nothing is written through a link, and only what this package wrote is
replaced or deleted; a lock lets one process at a time hold a folder. No imaging library is needed.

A part's name gives host, process and a random number, because process ids alone repeat between hosts and containers. A part
folder has a lease beside it, a locked file: the kernel frees the lock when the process dies, whatever the clock says.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from mri_vit.errors import FolderHeld, IntegrityError, OutOfResource, UsageError
from mri_vit.run import files

FILE_ENDING, LEASE_ENDING, OLD_ENDING = ".part", ".lease", ".old"
NAME = re.compile(r".+\.([A-Za-z0-9-]{1,16})-(\d+)-[0-9a-f]{8}")  # see `name_for`; the groups are host and process
WINDOWS = os.name == "nt"  # which opens no folder and removes no open file
STEM_LIMIT = 120  # characters of a file's name that stay in its part's: with host, process and number under the usual 255
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # how a disk says that it has no locks
ATTEMPTS = 1000  # at a lease while others tidy up the folder that it goes into: each is a few system calls
# A lock may not reach other hosts (NFS with "nolock", Lustre with "localflock"): what one of these builds is left alone for a
# day, by the clock of the disk. No patient takes so long to prepare.
FOREIGN_REST_S = 24 * 3600.0
BUILDING = ".building"  # beside the target: parts lie in it, so that no sweep lists thousands of finished neighbours
OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST)
LEFT_BY_SYSTEMS = (".DS_Store", "Thumbs.db", "desktop.ini")  # what macOS and Windows leave in a folder that somebody looked at
BUILT_ELSEWHERE = files.MAPS  # its folders are built in one of their own, so that no part file of a killed process is in them
MAKING_LOCK = ".making.lock"
LOCK_FILES = (".lock", ".holder")  # of an output that a process holds, or held


def name_for(name: str) -> str:
    """A name for the part of the file or folder `name` that no other process chooses."""
    return f"{name[:STEM_LIMIT]}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}"


def sweep_files(folder: Path) -> None:
    """Remove the part files in `folder` that no other process is writing: a cluster's job may, while its run is claimed anew.

    Those of other machines are left for a day, those of processes that live here for good.
    """
    for entry in _entries(folder):
        own = entry.name.startswith(".") and entry.name.endswith(FILE_ENDING) and entry.is_file(follow_symlinks=False)
        if own and (known := NAME.fullmatch(entry.name.removesuffix(FILE_ENDING))):
            path, process = Path(entry.path), int(known[2])
            foreign = known[1] != _host()
            if _rest_s(path) >= FOREIGN_REST_S if foreign else process == os.getpid() or not _alive(process):
                path.unlink(missing_ok=True)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except FileNotFoundError:  # a cluster's job has just ended there
        return []


@contextmanager
def leased(home: Path, name: str) -> Iterator[Path]:
    """A new folder in `home`, which is not swept while the block lasts; what is left of it then goes, and `home` if empty."""
    part = home / name_for(name)
    try:
        with _lease(part):
            try:
                part.mkdir()
                yield part
            finally:
                shutil.rmtree(part, ignore_errors=True)
    finally:
        with suppress(OSError):  # not empty, or another process was faster
            home.rmdir()


@contextmanager
def _lease(part: Path) -> Iterator[None]:
    """Hold a part's lease; on a disk without locks there is none, and no sweep touches a part without one."""
    file = part.with_name(part.name + LEASE_ENDING)
    lock = FileLock(file, fallback_to_soft=False)
    for attempt in range(ATTEMPTS):
        try:
            part.parent.mkdir(exist_ok=True)
            lock.acquire(timeout=0)
            break
        except (
            FileNotFoundError,
            FileExistsError,
            Timeout,
        ):  # another process has just removed the empty folder, or the file without a part
            if attempt == ATTEMPTS - 1:
                raise
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            file.unlink(missing_ok=True)
            break
    try:
        yield
    finally:
        if lock.is_locked:
            _end_lease(lock, file)


def _end_lease(lock: BaseFileLock, file: Path) -> None:
    """Remove a lease that this process holds before it is released, so that no process takes one that is about to go."""
    if not WINDOWS:
        file.unlink(missing_ok=True)
    lock.release()
    if WINDOWS:
        with suppress(OSError):  # another process has just opened it
            file.unlink(missing_ok=True)


def sweep_folders(home: Path) -> None:
    """Remove the part folders of processes that have died, and what they had moved out of the way."""
    try:  # asking first whether it is there would say little: another process removes it as soon as it is empty
        names = {entry.name for entry in os.scandir(home) if not entry.is_symlink()}
    except (FileNotFoundError, NotADirectoryError):
        return
    for lease in sorted(name for name in names if name.endswith(LEASE_ENDING)):
        part = lease.removesuffix(LEASE_ENDING)
        known = NAME.fullmatch(part)
        if not known or (known[1] != _host() and _rest_s(home / lease) < FOREIGN_REST_S):
            continue
        lock = FileLock(home / lease, fallback_to_soft=False)
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError):  # its process lives; it has just ended; or there are no locks
            continue
        for left in (part, part + OLD_ENDING):
            shutil.rmtree(home / left, ignore_errors=True)
        _end_lease(lock, home / lease)
    with suppress(OSError):
        home.rmdir()


def sweep_older(home: Path, names: set[str]) -> None:
    """Remove what versions before 0.5 left of the folders `names`: `.P001.part-123`, named by the process id alone.

    Their process may live on another host, so they must also have rested for a day. `home` is listed, which takes a while where
    it has thousands of entries: once per stage.
    """
    for entry in os.scandir(home):
        left = re.fullmatch(r"\.(.+)\.(?:part|old)-(\d+)", entry.name)
        own = left and left[1] in names and entry.is_dir(follow_symlinks=False)
        if left and own and not _alive(int(left[2])) and _rest_s(Path(entry.path)) >= FOREIGN_REST_S:
            shutil.rmtree(entry.path, ignore_errors=True)


def _host() -> str:
    """The machine, distinguished from others whose names begin alike."""
    name = platform.node()
    return f"{re.sub(r'[^A-Za-z0-9-]', '-', name)[:9]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _rest_s(path: Path) -> float:
    """How long ago a file or folder changed; none where it is gone or of the future. Measured by the disk's own clock."""
    try:
        changed = path.stat().st_mtime
        probe = path.with_name("." + name_for("clock") + FILE_ENDING)
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
    except OSError:
        return 0.0
    return now - changed


def lives(host: str, process: int) -> bool:
    """Whether a process lives; one of another machine counts as living."""
    return host != platform.node() or _alive(process)


def _alive(pid: int) -> bool:
    import psutil  # here, because few ask; and not signal 0 of `os.kill`, which on Windows is Ctrl-C

    try:
        return psutil.pid_exists(pid)
    except OverflowError:  # no process has such a number
        return False


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; then fsync, rename: a file that exists is whole, and its mode the umask's.

    What a killed process leaves is swept when its run is next claimed, or with the part folder that it was in.
    """
    beside = path.with_name(f".{name_for(path.name)}{FILE_ENDING}")
    beside.touch(exist_ok=False)
    mode = beside.stat().st_mode
    try:
        yield beside
        with beside.open("r+b") as file:
            if os.fstat(file.fileno()).st_mode != mode:  # safetensors puts another file there, of mode 0600
                beside.chmod(stat.S_IMODE(mode))
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file that is whole or not there."""
    with replacing(path) as beside:
        beside.write_bytes(content)


def refuse_link(path: Path) -> None:
    """Raise IntegrityError where something is to be written through a link."""
    if path.is_symlink():
        raise IntegrityError(
            f"{path} is a link to {os.readlink(path)}; nothing is written through a link: name the folder itself"
        )


@contextmanager
def complete(target: Path, refuse: Callable[[Path], None], done: Callable[[Path], bool] = lambda _: False) -> Iterator[Path]:
    """A new folder to fill with files that are fsynced; it takes the place of `target` unless the block raises.

    Killed at any moment, `target` is the old folder, the new one, or (for an instant while one gives way) none. It never holds
    files of two writers: of several at once each builds a folder of its own.

    `target`: where the folder goes.
    `refuse`: raises when what is at `target` is not ours to delete; it is asked right before that.
    `done`: whether what lies at `target` by then is what was to be made, by another process that was faster: it then stays.
    """
    home = target.parent / BUILDING
    refuse_link(target)
    refuse_link(home)
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep_folders(home)
    with leased(home, target.name) as part:
        yield part
        _fsync(part)
        _place(part, target, refuse, done)
        _fsync(target.parent)


def _place(part: Path, target: Path, refuse: Callable[[Path], None], done: Callable[[Path], bool]) -> None:
    old = part.with_name(part.name + OLD_ENDING)
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
    if WINDOWS:  # it writes the names in a folder down by itself
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
        holder = (folder / ".holder").read_text(encoding="utf-8") if (folder / ".holder").exists() else "an unknown process"
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
