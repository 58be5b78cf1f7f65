"""Resource: memory and disk. An exception goes in; what was lacking, how much was needed and how much is free comes out.

PyTorch, safetensors and TensorBoard each have an exception of their own for a full disk or for memory that is not there.
"""

from __future__ import annotations

import ctypes
import errno
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from mri_vit.errors import MriVitError, OutOfResource, UsageError

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # no space, no more of the user's share of it, no larger file
WRITE_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}
DISK = re.compile(r"(?i)no space left|os error 28\b|disk quota exceeded|file too large|os error 27\b|os error 122\b")
MEMORY = re.compile(r"(?i)out of memory|not enough memory|bad_alloc|CPUAllocator|(unable to|cannot|can't|failed to) allocate")
REQUESTED_BYTES = re.compile(r"(?i)(?:allocate)\s+([\d.]+)\s*(bytes|[KMGTP]i?B)\b")
UNITS = {"bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15}
UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "pib": 2**50}
CGROUP = Path("/sys/fs/cgroup")  # of a container or a job, which may have less than the machine
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
MAX_TRIM_BYTES = 2**31 - 1  # bytes at the heap's end that are given back, the largest number that mallopt takes
LARGE_BLOCK_BYTES = 2**30  # bytes of a block that comes from the kernel itself and goes back to it; activations are smaller


def lack(error: BaseException, place: Path, disk_bytes: int = 0, smaller: str = "") -> OutOfResource | None:
    """The error as one of ours where it says that memory or disk ran out or that writing is not allowed; else None.

    `place`: where it was to be written.
    `disk_bytes`: what is written there at a time, where that is known.
    `smaller`: which settings would need less memory.
    """
    if isinstance(error, MriVitError):
        return None
    if isinstance(error, BrokenExecutor):
        return OutOfResource(f"{place}: a process was killed, probably for lack of memory: {megabytes(free_memory())} free")
    number = error.errno if isinstance(error, OSError) else None
    message = " ".join(str(error).split())
    file = f" ({error.filename})" if isinstance(error, OSError) and error.filename else ""
    if number in DISK_FULL or (number is None and DISK.search(message)):
        needed = f"{megabytes(disk_bytes)} needed, " if disk_bytes else ""
        remedy = "make room, and the same command goes on"
        return OutOfResource(f"{place}: the disk is full{file}: {needed}{megabytes(free_disk(place))} free; {remedy}")
    if number in WRITE_REFUSED:
        return OutOfResource(f"{place}: not allowed to write{file}: {error.strerror if isinstance(error, OSError) else message}")
    if isinstance(error, MemoryError) or number == errno.ENOMEM or MEMORY.search(message):
        asked = REQUESTED_BYTES.search(message)
        needed = f"{megabytes(round(float(asked[1]) * UNITS[asked[2].lower()]))} needed at once, " if asked else ""
        free = "" if "CUDA" in message else f"{megabytes(free_memory())} free"
        device = " of the GPU" if "CUDA" in message else ""
        remedy = (
            f"; try {smaller}" if smaller else "; try fewer prepare.workers, or a smaller train.batch_size or train.token_budget"
        )
        return OutOfResource(f"{place}: out of memory{device}: {needed}{free or message[:300]}{remedy}; the same command goes on")
    return None


@contextmanager
def naming_lack(place: Path, disk_bytes: Callable[[], int], smaller: str) -> Iterator[None]:
    """Around work that may run out of memory or disk: raises OutOfResource with what was needed and what is free.

    `disk_bytes` is asked only then.
    """
    try:
        yield
    except Exception as error:
        if lack(error, place) and (lacking := lack(error, place, disk_bytes(), smaller)):
            raise lacking from error
        raise


def megabytes(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:,.0f} MB" if count < 1e10 else f"{count / 1e9:,.0f} GB"


def free_memory() -> int:
    """Bytes that a process can still have, of the machine's and of the container's."""
    import psutil  # here, because few ask

    free = [psutil.virtual_memory().available]
    limit, used = (_lines(CGROUP / name) for name in ("memory.max", "memory.current"))
    if limit and used and limit[0].isdigit():
        free.append(max(0, int(limit[0]) - int(used[0])))
    return min(free)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").splitlines()
    except OSError:  # no container, or another kernel
        return []


def free_disk(place: Path) -> int:
    """Bytes that are free where a file or folder is, or would be: in the nearest folder that there is."""
    there = next((folder for folder in (place, *place.parents) if folder.is_dir()), Path("/"))
    return shutil.disk_usage(there).free


def require_gpus(count: int) -> None:
    """Raise UsageError where this process sees fewer GPUs than `train.devices` asks for."""
    import torch  # here, because it takes seconds

    there = torch.cuda.device_count()
    if there < count:
        enough = f"train.devices {max(1, there)} needs no more than there are"
        raise UsageError(f"train.devices is {count}, and this process sees {there} GPU{'s' * (there != 1)}; {enough}")


@cache
def keep_freed_memory() -> bool:
    """Keep freed memory for the rest of this process; whether its C library allows that. No number depends on it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not glibc; on Windows not even a library of the process itself
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGE_BLOCK_BYTES) and mallopt(TRIM_THRESHOLD, MAX_TRIM_BYTES))
