"""Ownership: what this package may write over and delete. Only what it wrote itself, and nothing behind a link."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mri_vit.errors import IntegrityError, UsageError

LEFT_BY_SYSTEMS = (".DS_Store", "Thumbs.db", "desktop.ini")  # what macOS and Windows leave in a folder that somebody looked at
LOCK_FILES = (".lock", ".holder")  # of an output that a process holds, or held


def refuse_link(path: Path) -> None:
    """Raise IntegrityError where something is to be written through a link."""
    if path.is_symlink():
        raise IntegrityError(
            f"{path} is a link to {os.readlink(path)}; nothing is written through a link: name the folder itself"
        )


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


def record(file: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where there is none or the file is no JSON."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
