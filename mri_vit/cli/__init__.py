"""The command line: the app with all its verbs, its entry point, and Tab completion.

Everything slow is imported inside the verbs, so that --help answers at once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.completion import ShellDetectionError, detect_shell

from mri_vit.cli import exit_code, export_verbs, file_verbs, run_verbs, study_verbs
from mri_vit.cli.arguments import HelpLayout, Output
from mri_vit.errors import UsageError

EPILOGUE = (
    "Any key of the study file can be overridden, e.g. --train.epochs 5; `mri-vit settings` lists them. Not a medical device."
)
Shell = Literal["bash", "zsh", "fish"]
STARTUP = {"bash": ".bashrc", "zsh": ".zshrc"}  # fish looks into a folder


def _version() -> str:
    from importlib.metadata import version

    from mri_vit.run.folder import device

    return "\n".join([f"{name} {version(name)}" for name in ("mri-vit", "torch", "monai")] + [f"device {device()}"])


app = App(
    name="mri-vit",
    help=f"Brain-tumour MRI to cross-validated reports and attention maps. {EPILOGUE}",
    version=_version,
    version_format="plaintext",
    help_format="plaintext",
    help_formatter=HelpLayout(),
    default_parameter=Parameter(negative=()),  # cyclopts adds options such as --no-x and --empty-x
    suppress_keyboard_interrupt=False,
    exit_on_error=False,
    print_error=False,
    verbose=False,
)
for verb in (
    *(study_verbs.demo, study_verbs.plan, study_verbs.check, study_verbs.prepare, study_verbs.qc, study_verbs.pretrain),
    *(study_verbs.train, study_verbs.explain, study_verbs.run, run_verbs.inspect, run_verbs.report, run_verbs.status),
    *(
        run_verbs.evaluate,
        run_verbs.compare,
        run_verbs.predict,
        run_verbs.features,
        run_verbs.serve,
        file_verbs.settings,
        file_verbs.schema,
    ),
    *(file_verbs.imports, file_verbs.cohorts, file_verbs.tumour, export_verbs.exports),
):
    app.command(verb)


@app.command(name="--install-completion")
def install_completion(shell: Shell | None = None, *, output: Annotated[Path | None, Output] = None) -> None:
    """Let the Tab key complete verbs, options and keys; prints which files it writes and what it adds to them.

    Parameters
    ----------
    shell
        The shell to complete in; by default the one that runs this command.
    output
        Write only the script, into this file, and change no other file.
    """
    from rich.console import Console

    from mri_vit.run.screen import say

    for line in install(app, shell or shell_here(), output):
        say(Console(), line)


def shell_here() -> Shell:
    """The shell that runs this command. Raises UsageError for an unknown shell."""
    try:
        shell = detect_shell()
    except ShellDetectionError:
        shell = None
    if shell is None or shell == "powershell":
        raise UsageError("no shell was recognised; name it: `mri-vit --install-completion` bash, zsh or fish")
    return shell


def install(app: App, shell: Shell, output: Path | None) -> Iterator[str]:
    """Write a shell's script where the shell looks for it, or only to `output`; yields which files were changed, and how."""
    if output:
        yield f"wrote {app.install_completion(shell=shell, output=output, add_to_startup=False)}; no other file was changed"
        return
    startup = Path.home() / STARTUP[shell] if shell in STARTUP else None
    before = _lines(startup)
    script = app.install_completion(shell=shell)
    yield f"wrote {script}"
    if added := [line for line in _lines(startup) if line not in before]:
        yield f"added to {startup}:"
        yield from (f"    {line}" for line in added)
    elif startup:
        loaded = str(script.parent) in "\n".join(before)
        yield f"left {startup} unchanged: {'it already loads the script' if loaded else 'oh-my-zsh finds the script by itself'}"
    if shell == "zsh":
        yield "zsh completes once its startup file calls compinit, as most set-ups do"
    yield f"open a new {shell} to complete verbs, options and keys"


def _lines(file: Path | None) -> list[str]:
    return file.read_text(errors="surrogateescape").splitlines() if file and file.exists() else []


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `mri-vit`: runs a verb and exits with its code."""
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(exit_code.of(lambda: app(arguments, result_action="return_value")))


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)
