"""Heap: what a step of a network frees stays with the process, for the next step needs as much.

glibc gives a large block back to the kernel when it is freed, and the kernel clears every page of the next one anew: a third of
the time of a step of configs/gbm.toml on one thread (docs/decisions.md).
"""

from __future__ import annotations

import ctypes
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
NEVER = 2**31 - 1  # bytes at the heap's end that are given back, the largest number that mallopt takes
LARGE = 2**30  # bytes of a block that comes from the kernel itself and goes back to it; activations are smaller


@cache
def reused() -> bool:
    """Keep freed memory for the rest of this process; whether its C library can be told so. No number depends on it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGE) and mallopt(TRIM_THRESHOLD, NEVER))
