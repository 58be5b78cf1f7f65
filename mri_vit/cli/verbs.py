"""The command line and its verbs on a study, thin. Everything slow is imported inside the verbs, so that --help is at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mri_vit.cli import exit_code
from mri_vit.cli.arguments import HelpLayout, Output, Overrides, StudyFile, loaded, trained
from mri_vit.cli.cohort_verbs import cohorts, imports
from mri_vit.cli.completion import Shell, install, shell_here
from mri_vit.cli.format_verbs import schema, settings
from mri_vit.cli.run_verbs import compare, evaluate, features, inspect, predict, report, status
from mri_vit.run import files

if TYPE_CHECKING:
    from rich.console import Console

    from mri_vit.qc.check import CheckedCohort
    from mri_vit.settings.schema import Study

EPILOGUE = (
    "Any key of the study file can be overridden, e.g. --train.epochs 5; `mri-vit settings` lists them. Not a medical device."
)


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


@app.command
def demo(study: Path | None = None, **overrides: Overrides) -> int:
    """Make the built-in cohort where STUDY expects it, then run the study on it; without STUDY, the demo's own.

    Ends with 1 where a verdict differs from what was planted.

    Parameters
    ----------
    study
        Study file; configs/demo.toml where none is named, or mri-vit-demo/configs/demo.toml, which is written if need be.
    """
    from rich.console import Console

    from mri_vit.run.screen import say, waiting
    from mri_vit.settings.demo import study_file

    study, console = study or study_file(), Console()
    settings = loaded(study, overrides)  # before what takes longer to import
    from mri_vit.study import run
    from mri_vit.synthetic import cohort

    say(console, f"study file {study}, run {settings.output}")
    with waiting(console, "making the built-in cohort"):
        cohort.make(settings.cohort.parent)
    return run(settings, console)


@app.command
def check(study: StudyFile, *, json: bool = False, **overrides: Overrides) -> int:
    """List all that is wrong with a study, and the hours, disk and memory it needs; prepares and trains nothing.

    Ends with 2 where the study cannot be run, with 3 where patients would be excluded.

    Parameters
    ----------
    json
        Print one JSON document instead, with all patients by name; `mri-vit schema --of check` describes it.
    """
    settings = loaded(study, overrides)  # before what takes longer to import
    from rich.console import Console

    from mri_vit.preflight import document
    from mri_vit.preflight.check import check as checked_study
    from mri_vit.run.screen import say

    findings = checked_study(settings)
    if json:
        print(findings.model_dump_json(indent=1))
    else:
        console = Console()
        for line, style in document.lines(findings):
            say(console, line, style)
    return findings.exit_code


@app.command
def prepare(study: StudyFile, **overrides: Overrides) -> int:
    """Prepare every patient's scans onto the grid; works even with too few patients for folds."""
    settings = loaded(study, overrides)  # before what takes longer to import

    from rich.console import Console

    with _checked_cohort(settings, Console()) as checked:
        return 3 if checked.excluded else 0


@app.command
def qc(study: StudyFile, **overrides: Overrides) -> int:
    """Prepare every patient who is not prepared yet, check all, and write a page that shows the worst first."""
    settings = loaded(study, overrides)

    from rich.console import Console

    from mri_vit.qc import page

    console = Console()
    with _checked_cohort(settings, console) as checked:
        page.write(settings, checked, settings.output / files.LOOKED, console)
        return 3 if checked.excluded else 0


@app.command
def pretrain(study: StudyFile, **overrides: Overrides) -> None:
    """Learn the encoders that training starts from, without labels, on the prepared patients; `train` does it if need be."""
    _stage("pretrain", loaded(study, overrides))


@app.command
def train(study: StudyFile, **overrides: Overrides) -> None:
    """Cross-validate on the prepared patients."""
    _stage("train", loaded(study, overrides))


@app.command
def explain(study: StudyFile, **overrides: Overrides) -> None:
    """Write maps of what drove each prediction, in the patient's own space, and judge them; STUDY may be a run's folder."""
    _stage("explain", trained(loaded(study, overrides)))


@contextmanager
def _checked_cohort(settings: Study, console: Console) -> Iterator[CheckedCohort]:
    """Prepare and check every patient, without making folds; the run's folder is locked meanwhile."""
    from mri_vit import study as stages
    from mri_vit.data import cohort, frozen
    from mri_vit.run.folder import claimed

    with claimed(settings) as folder:
        patients = frozen.freeze(settings, cohort.of_study(settings), folder)
        yield stages.prepare_and_check(settings, patients, folder, console)


def _stage(name: str, study: Study) -> None:
    from rich.console import Console

    from mri_vit import study as stages
    from mri_vit.run.folder import claimed

    with claimed(study) as folder:
        getattr(stages, name)(study, folder, Console())


@app.command
def run(study: StudyFile, *, detach: bool = False, **overrides: Overrides) -> int:
    """All stages in order, going on where an earlier run stopped.

    Parameters
    ----------
    detach
        Return at once; the run goes on by itself and writes what it would print to run.log in its folder.
    """
    from rich.console import Console

    settings = loaded(study, overrides)  # before torch, which takes seconds to import
    if detach:
        from mri_vit.run.processes import detached
        from mri_vit.run.screen import say

        process = detached(["run", str(study), *(f"--{key}={value}" for key, value in overrides.items())], settings.output)
        say(Console(), f"process {process} runs the study; `mri-vit status {settings.output}` shows how far it is, and what it")
        say(Console(), f"prints is in {settings.output / files.LOG}")
        return 0
    from mri_vit.study import run as run_study

    return run_study(settings, Console())


for verb in (
    inspect,
    report,
    status,
    evaluate,
    compare,
    predict,
    features,
    settings,
    schema,
    imports,
    cohorts,
):
    app.command(verb)


@app.command(name="--install-completion")
def install_completion(shell: Shell | None = None, *, output: Annotated[Path | None, Output] = None) -> None:
    """Let the Tab key complete verbs, options and keys; says which files it writes and what it adds to them.

    Parameters
    ----------
    shell
        The one that runs this where none is named.
    output
        File for the script alone; no other file is touched then.
    """
    from rich.console import Console

    from mri_vit.run.screen import say

    for line in install(app, shell or shell_here(), output):
        say(Console(), line)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `mri-vit`: runs a verb and turns how it ended into the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(exit_code.of(lambda: app(arguments, result_action="return_value")))


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)
