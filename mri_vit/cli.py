"""The command line: one verb per stage, thin. Everything slow is imported inside the verbs, so that --help is at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from cyclopts import App, Parameter

from mri_vit.cohort_cli import cohorts, imports
from mri_vit.errors import UsageError
from mri_vit.run import exit_code, files
from mri_vit.settings import options

if TYPE_CHECKING:
    from rich.console import Console

    from mri_vit.qc.stage import Looked
    from mri_vit.settings.schema import Study

StudyFile = Annotated[Path, Parameter(help="Study file, or the folder of a run.")]
if TYPE_CHECKING:
    Overrides = str  # of any key
else:
    Overrides = Unpack[options.overrides()]
EPILOGUE = (
    "Any key of the study file can be overridden, e.g. --train.epochs 5; `mri-vit run --help` lists them. Not a medical device."
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
    help_formatter=options.Layout(),
    default_parameter=Parameter(negative=()),  # cyclopts adds options such as --no-x and --empty-x
    suppress_keyboard_interrupt=False,
    exit_on_error=False,
    print_error=False,
    verbose=False,
)


def _load(study: Path, overrides: dict[str, str]) -> Study:
    """The settings of a study file, or of the run in a folder, with the keys that were given."""
    from mri_vit.run import origin
    from mri_vit.settings import file as study_file

    if not os.path.isdir(study):  # unlike Path.is_dir, it takes any name
        return study_file.load(study, overrides)
    here = study.resolve()
    if not (here / files.ENVIRONMENT).exists():  # a folder with a study file in it is no run
        return study_file.load(here / files.STUDY, overrides)
    if "output" in overrides:
        raise UsageError(f"{study} is a run, which is its own output; leave --output out, or name the study file")
    loaded = origin.settings(here, overrides)
    return loaded.model_copy(update={"output": here})  # it may have been moved since its settings were written


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

    from mri_vit.run.screen import say
    from mri_vit.settings.demo import study_file

    study, console = study or study_file(), Console()
    settings = _load(study, overrides)  # before what takes longer to import
    from mri_vit.study import run
    from mri_vit.synthetic import cohort

    say(console, f"study file {study}, run {settings.output}")
    with console.status("making the built-in cohort"):
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
    settings = _load(study, overrides)  # before what takes longer to import
    from rich.console import Console

    from mri_vit.preflight import stage, words
    from mri_vit.run.screen import say

    found = stage.check(settings)
    if json:
        print(found.model_dump_json(indent=1))
    else:
        console = Console()
        for line, style in words.lines(found):
            say(console, line, style)
    return found.exit_code


@app.command
def prepare(study: StudyFile, **overrides: Overrides) -> int:
    """Prepare every patient's scans onto the grid; works for a few patients too, of whom no folds can be made."""
    settings = _load(study, overrides)  # before what takes longer to import

    from rich.console import Console

    with _looked(settings, Console()) as looked:
        return 3 if looked.excluded else 0


@app.command
def qc(study: StudyFile, **overrides: Overrides) -> int:
    """Prepare every patient who is not prepared yet, look at all, and write a page that shows the worst first."""
    settings = _load(study, overrides)

    from rich.console import Console

    from mri_vit.qc import page

    console = Console()
    with _looked(settings, console) as looked:
        page.write(settings, looked, settings.output / files.LOOKED, console)
        return 3 if looked.excluded else 0


@app.command
def pretrain(study: StudyFile, **overrides: Overrides) -> None:
    """Learn the encoders that training starts from, without labels, on the prepared patients; `train` does it if need be."""
    _stage("pretrain", _load(study, overrides))


@app.command
def train(study: StudyFile, **overrides: Overrides) -> None:
    """Cross-validate on the prepared patients."""
    _stage("train", _load(study, overrides))


@app.command
def explain(study: StudyFile, **overrides: Overrides) -> None:
    """Write maps of what drove each prediction, in the patient's own space, and judge them; STUDY may be a run's folder."""
    _stage("explain", _trained(_load(study, overrides)))


@app.command
def inspect(
    run: Path,
    *,
    fold: int | None = None,
    patient: str | None = None,
    place: tuple[float, float, float] | None = None,
    layer: int | None = None,
    head: int | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> None:
    """Show what the network of a finished RUN folder has learned: filters, positions, attention, and one head step by step.

    Parameters
    ----------
    run
        Folder of a trained run.
    fold
        Whose network, counted from 1; the one that had not seen the patient where none is named, or the first.
    patient
        One of the fold's test patients; the first where none is named.
    place
        A point whose attention is shown, in mm of the prepared grid to the right, front and top; rollout's peak where none is.
    layer
        Whose attention is shown, counted from 1; the last where none is named.
    head
        Likewise; the mean of the heads where none is named.
    output
        Folder for index.html and the figures; RUN/inspect where none is named.
    """
    from rich.console import Console

    from mri_vit import study as stages

    stages.inspect(_load(run, {}), run, fold, patient, place, layer, head, output, Console())


@app.command
def report(
    study: StudyFile | None = None,
    *,
    predictions: Path | None = None,
    subgroups: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    **overrides: Overrides,
) -> None:
    """Write the report and print the results: of a STUDY, or of a table of predictions made elsewhere.

    Parameters
    ----------
    predictions
        A table instead of a study: patient, endpoint, score; where known model, repeat, fold, truth, time_days, event, threshold.
        It goes with --cohort, the table of its patients, and --output, the folder for index.html and metrics.json.
    subgroups
        With --predictions: columns of the cohort table to look into beside sex, age and site.
    """
    from rich.console import Console

    from mri_vit import study as stages
    from mri_vit.run.folder import claimed

    if study and not predictions and not subgroups:
        paths = {key: os.path.abspath(overrides[key]) for key in ("cohort", "output") if key in overrides}
        with claimed(_trained(_load(study, overrides | paths))) as folder:
            stages.report(folder, Console())
    elif predictions and not study and set(overrides) == {"cohort", "output"}:
        stages.report_table(predictions, Path(overrides["cohort"]), Path(overrides["output"]), subgroups, Console())
    else:
        raise UsageError(
            "expected a study file alone (its run is reported; --output X means the run in X, as with every verb, and subgroups"
            " are --report.subgroups), or no study file but all of --predictions, --cohort and --output"
        )


@app.command
def schema(*, of: Literal["report", "check"] = "report", output: Annotated[Path | None, Parameter(alias="-o")] = None) -> None:
    """Write the JSON Schema of a report's metrics.json, or of what `check --json` prints.

    Parameters
    ----------
    of
        Which of the two.
    output
        The file; if none is given, the schema is printed.
    """
    import json

    from mri_vit.preflight import document
    from mri_vit.report.schema import metrics
    from mri_vit.run.atomic import write_bytes

    described = {"report": metrics, "check": document}[of].json_schema()
    text = json.dumps(described, indent=1, ensure_ascii=False)
    if output:
        write_bytes(f"{text}\n".encode(), output)
    else:
        print(text)


@app.command
def evaluate(run: Path, *, study: Path, **overrides: Overrides) -> int:
    """Judge a finished RUN folder on another cohort with known labels; nothing is fitted anew.

    Parameters
    ----------
    run
        Folder of a trained run.
    study
        Study file of the other cohort: name, cohort, prepared, output and endpoints; the rest is the run's.
    """
    from rich.console import Console

    from mri_vit.external import evaluate as evaluate_run

    other = _load(study, overrides)
    return 3 if evaluate_run(run, other, set(other.model_fields_set), Console()) else 0


def _trained(study: Study) -> Study:
    """The same study. Raises UsageError where its output holds no run to go on with, before a folder is made for it."""
    if not (study.output / files.PREDICTIONS).exists():
        raise UsageError(f"{study.output}: no {files.PREDICTIONS}; run `mri-vit train` first")
    return study


@contextmanager
def _looked(settings: Study, console: Console) -> Iterator[Looked]:
    """Every patient prepared and looked at, of whom no folds need to be made; the run's folder is held meanwhile."""
    from mri_vit.data import cohort, frozen
    from mri_vit.qc import stage
    from mri_vit.run.folder import claimed

    with claimed(settings) as folder:
        patients = frozen.freeze(settings, cohort.of_study(settings), folder)
        yield stage.prepare_and_look(settings, patients, folder, console)


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

    settings = _load(study, overrides)  # before torch, which takes seconds to import
    if detach:
        from mri_vit.run.detached import detached
        from mri_vit.run.screen import say

        process = detached(["run", str(study), *(f"--{key}={value}" for key, value in overrides.items())], settings.output)
        say(Console(), f"process {process} runs the study; `mri-vit status {settings.output}` shows how far it is, and what it")
        say(Console(), f"prints is in {settings.output / files.LOG}")
        return 0
    from mri_vit.study import run as run_study

    return run_study(settings, Console())


@app.command
def status(study: StudyFile) -> None:
    """Show how far a run is: what is done, at work, waiting and failed in each stage, and the time left. Only reads files."""
    from rich.console import Console

    from mri_vit import status as of_run

    of_run.show(of_run.status(_load(study, {})), Console())


@app.command
def predict(run: Path, cohort: Path, output: Path, workers: int = 1) -> int:
    """Predict the patients of another COHORT table with the fold models of a finished RUN folder.

    Parameters
    ----------
    run
        Folder of a trained run.
    cohort
        Table with the column patient and those of the run's scans (t1, t1ce, t2, flair, unless its study names others); no
        label is read.
    output
        Folder for predictions.csv.
    workers
        Patients prepared at a time.
    """
    from rich.console import Console

    from mri_vit.external import predict as predict_cohort

    return 3 if predict_cohort(run, cohort, output, workers, Console()) else 0


app.command(imports)
app.command(cohorts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `mri-vit`: runs a verb and turns how it ended into the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(exit_code.of(lambda: app(arguments, result_action="return_value")))


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)
