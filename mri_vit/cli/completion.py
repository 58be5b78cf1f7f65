"""Completion: what the Tab key offers behind `mri-vit` in a shell, and the files that make it so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from cyclopts import App
from cyclopts.completion import ShellDetectionError, detect_shell

from mri_vit.errors import UsageError

Shell = Literal["bash", "zsh", "fish"]
STARTUP = {"bash": ".bashrc", "zsh": ".zshrc"}  # fish looks into a folder


def shell_here() -> Shell:
    """The shell that this was called from. Raises UsageError where that is none of those known."""
    try:
        shell = detect_shell()
    except ShellDetectionError:
        shell = None
    if shell is None or shell == "powershell":
        raise UsageError("no shell was recognised; name it: `mri-vit --install-completion` bash, zsh or fish")
    return shell


def install(app: App, shell: Shell, output: Path | None) -> Iterator[str]:
    """Write the script of a shell where that shell looks for it, or to `output` alone; say which files were touched, and how."""
    if output:
        yield f"wrote {app.install_completion(shell=shell, output=output, add_to_startup=False)}; nothing else was touched"
        return
    startup = Path.home() / STARTUP[shell] if shell in STARTUP else None
    before = _lines(startup)
    script = app.install_completion(shell=shell)
    yield f"wrote {script}"
    if added := [line for line in _lines(startup) if line not in before]:
        yield f"added to {startup}:"
        yield from (f"    {line}" for line in added)
    elif startup:
        finds = (
            "it loads the script already" if str(script.parent) in "\n".join(before) else "oh-my-zsh finds the script by itself"
        )
        yield f"left {startup} as it is: {finds}"
    if shell == "zsh":
        yield "zsh completes where its start calls compinit, as most set-ups do"
    yield f"a new {shell} completes verbs, options and keys"


def _lines(file: Path | None) -> list[str]:
    return file.read_text(errors="surrogateescape").splitlines() if file and file.exists() else []
