"""Atomic writing: a file or folder that exists is complete, however its writer ended. It is written under another name beside
its place (a part) and renamed when all of it is on disk. No imaging library is needed.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from mri_vit.errors import IntegrityError

FILE_ENDING, LEASE_ENDING, OLD_ENDING = ".part", ".lease", ".old"
NAME = re.compile(r".+\.([A-Za-z0-9-]{1,16})-(\d+)-[0-9a-f]{8}")  # see `name_for`; the groups are host and process
STEM_LIMIT = 120  # characters of a file's name that stay in its part's: with host, process and number under the usual 255
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # how a disk says that it has no locks
ATTEMPTS = 1000  # at a lease while others tidy up the folder that it goes into: each is a few system calls
# A lock may not reach other hosts (NFS with "nolock", Lustre with "localflock"): what one of these builds is left alone for a
# day, by the clock of the disk. Nobody prepares one patient for so long.
FOREIGN_REST_S = 24 * 3600.0


def name_for(name: str) -> str:
    """A name for the part of the file or folder `name` that nobody else chooses."""
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
    """A new folder in `home`, which nobody sweeps while the block lasts; what is left of it then goes, and `home` if empty."""
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
            file.unlink(missing_ok=True)  # before it is released, so that nobody takes a lease that is about to go
            lock.release()


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
        (home / lease).unlink(missing_ok=True)
        lock.release()
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
    """The machine, told from others whose names begin alike."""
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
    """Whether a process lives; of another machine's nobody knows, and it is said to."""
    return host != platform.node() or _alive(process)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's, but there
        return True
    return True


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
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file that is whole or not there."""
    with replacing(path) as beside:
        beside.write_bytes(content)


BUILDING = ".building"  # beside the target: parts lie in it, so that no sweep lists thousands of finished neighbours
OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST)


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
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
