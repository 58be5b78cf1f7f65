"""Memory that is freed stays with the process, and nothing else changes."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, sys
import numpy as np
from mri_vit.run.resource import keep_freed_memory

told = keep_freed_memory() if sys.argv[1] == "kept" else None
for _ in range(3):
    block = np.ones(8_000_000)  # 64 MB: glibc takes it from the kernel and gives it back
    del block
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    block = np.ones(8_000_000)
    del block
print(told, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_a_block_that_was_freed_is_not_cleared_by_the_kernel_again():
    said = {}
    for way in ("kept", "plain"):
        done = subprocess.run([sys.executable, "-c", CODE, way], capture_output=True, text=True, check=True)
        told, faults = done.stdout.split()
        said[way] = int(faults)
        assert told == ("True" if way == "kept" else "None")
    assert said["kept"] < 100, "pages are there already"
    assert said["plain"] > 1000, "else this shows nothing"
