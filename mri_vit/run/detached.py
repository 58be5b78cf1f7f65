"""Detached: a command line that goes on when its terminal has gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mri_vit.run import files


def detached(words: Sequence[str], folder: Path) -> int:
    """Start `mri-vit` with these words, printing to the log in `folder`; the number of its process, which nobody waits for."""
    folder.mkdir(parents=True, exist_ok=True)
    log = str(folder / files.LOG)
    command = [sys.executable, "-c", "from mri_vit.cli import main; main()", *words]
    printing = (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    reading = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    both = (os.POSIX_SPAWN_DUP2, 1, 2)
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=[reading, printing, both], setsid=True)
