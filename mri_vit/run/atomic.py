"""Atomic: a file that exists is whole, however its writer ended; no imaging library is needed to write one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mri_vit.run import parts


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; then fsync, rename: a file that exists is whole, and its mode the umask's.

    What a killed process leaves is swept when its run is next claimed, or with the part folder that it was in.
    """
    beside = path.with_name(f".{parts.name_for(path.name)}{parts.FILE_ENDING}")
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
