"""The command line: one verb per stage, thin. Everything slow is imported inside the verbs, so that --help is at once."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mri_vit.errors import MriVitError, OutOfResource, UsageError

if TYPE_CHECKING:
    from mri_vit.config import Study

Overrides = Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]
EPILOGUE = "Any setting of the study file can be given behind it, e.g. --train.epochs 5. Not a medical device."


def _version() -> str:
    from importlib.metadata import version

    from mri_vit.workspace import device

    return "\n".join([f"{name} {version(name)}" for name in ("mri-vit", "torch", "monai")] + [f"device {device()}"])


app = App(
    name="mri-vit",
    help=f"Brain-tumour MRI to cross-validated reports and attention maps. {EPILOGUE}",
    version=_version,
    version_format="plaintext",
    suppress_keyboard_interrupt=False,
)


def _load(study: Path, overrides: Sequence[str]) -> Study:
    """The settings of a study file, or of the run in a folder."""
    from mri_vit import origin, study_file

    words = [part for word in overrides for part in (word.split("=", 1) if word.startswith("--") else [word])]
    if len(words) % 2 or not all(word.startswith("--") for word in words[::2]):
        raise UsageError(f"expected pairs such as --train.epochs 5, found {' '.join(overrides)}")
    settings = {key.removeprefix("--"): value for key, value in zip(words[::2], words[1::2], strict=True)}
    if not study.is_dir():
        return study_file.load(study, settings)
    here = study.resolve()
    if not (here / "environment.json").exists():  # a folder with a study file in it is no run
        return study_file.load(here / "study.toml", settings)
    loaded = origin.settings(here, settings)
    return loaded.model_copy(update={"output": here})  # it may have been moved since its settings were written


@app.command
def demo(study: Path = Path("configs/demo.toml"), *overrides: Overrides) -> int:
    """Make the built-in cohort where STUDY expects it, then run the study on it."""
    from rich.console import Console

    from mri_vit import demo as cohort
    from mri_vit.study import run

    settings, console = _load(study, overrides), Console()
    with console.status("making the built-in cohort"):
        cohort.make(settings.cohort.parent)
    return 3 if run(settings, console) else 0


@app.command
def check(study: Path, *overrides: Overrides) -> int:
    """Check the study file, the cohort table and weights to start from; prepares and trains nothing."""
    from rich.console import Console

    from mri_vit import cohort, contest, folds
    from mri_vit.controls import clinical_columns

    settings = _load(study, overrides)
    patients = cohort.read(settings.cohort, settings.endpoints, settings.prepare.needs)
    folds.make(patients, settings.endpoints, settings.train, settings.seed)
    contest.check(settings, patients)
    known = ", ".join(f"{e.name} {sum(p.knows(e) for p in patients)}" for e in settings.endpoints)
    gone = {p.id: [channel for channel, scan in p.scans.items() if not (scan and scan.exists())] for p in patients}
    needs = set(settings.prepare.needs)  # and a file that is named must be there
    out = [p.id for p in patients if any(channel in needs or p.scans[channel] for channel in gone[p.id])]
    console = Console()
    console.print(f"{settings.name}: {len(patients)} patients; labels known: {known}", highlight=False)
    if "clinical" in settings.controls.models:
        columns = ", ".join(clinical_columns(patients, settings)) or "no column: there will be no such control"
        console.print(f"the control clinical-only reads {columns}", highlight=False)
    for patient, scans in gone.items():
        if scans:
            then = "the patient will be excluded" if patient in out else "it is left empty"
            console.print(f"[yellow]{patient}: no {', no '.join(scans)}; {then}[/]", highlight=False)
    return 3 if out else 0


@app.command
def prepare(study: Path, *overrides: Overrides) -> int:
    """Prepare every patient's scans onto the grid; works for a few patients too, of whom no folds can be made."""
    from rich.console import Console

    from mri_vit import cohort
    from mri_vit import study as stages
    from mri_vit.workspace import claimed

    settings = _load(study, overrides)
    with claimed(settings) as folder:
        patients = stages.freeze(settings, cohort.read(settings.cohort, settings.endpoints, settings.prepare.needs), folder)
        return 3 if stages.prepare(settings, patients, folder, Console()) else 0


@app.command
def pretrain(study: Path, *overrides: Overrides) -> None:
    """Learn the encoders that training starts from, without labels, on the prepared patients; `train` does it if need be."""
    _stage("pretrain", _load(study, overrides))


@app.command
def train(study: Path, *overrides: Overrides) -> None:
    """Cross-validate on the prepared patients."""
    _stage("train", _load(study, overrides))


@app.command
def explain(study: Path, *overrides: Overrides) -> None:
    """Write maps of what drove each prediction, in the patient's own space, and judge them; STUDY may be a run's folder."""
    _stage("explain", _load(study, overrides))


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

    stages.inspect(_load(run, []), run, fold, patient, place, layer, head, output, Console())


@app.command
def report(
    study: Path | None = None,
    *overrides: Overrides,
    predictions: Path | None = None,
    cohort: Path | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    subgroups: tuple[str, ...] = (),
) -> None:
    """Write the report and print the results: of a STUDY, or of a table of predictions made elsewhere.

    Parameters
    ----------
    study
        Study file.
    predictions
        CSV with patient, endpoint and score, and what else is known of model, repeat, fold, truth, time_days, event, threshold.
    cohort
        The table of the patients that it is about: patient, labels, clinical columns.
    output
        Folder for index.html and metrics.json.
    subgroups
        Columns of the cohort table to look into beside sex, age and site (of a STUDY: --report.subgroups).
    """
    from rich.console import Console

    from mri_vit import study as stages
    from mri_vit.workspace import claimed

    table = (predictions, cohort, output)
    if study and not any(table):
        with claimed(_load(study, overrides)) as folder:
            stages.report(folder, Console())
    elif predictions and cohort and output and not study:
        stages.report_table(predictions, cohort, output, subgroups, Console())
    else:
        raise UsageError("expected a study file, or all of --predictions, --cohort and --output")


@app.command
def evaluate(run: Path, *overrides: Overrides, study: Path) -> int:
    """Judge a finished RUN folder on another cohort with known labels; nothing is fitted anew.

    Parameters
    ----------
    run
        Folder of a trained run.
    study
        Study file of the other cohort: name, cohort, prepared, output and endpoints; the rest is the run's.
    """
    from rich.console import Console

    from mri_vit.ensemble import evaluate as evaluate_run

    other = _load(study, overrides)
    return 3 if evaluate_run(run, other, set(other.model_fields_set), Console()) else 0


def _stage(name: str, study: Study) -> None:
    from rich.console import Console

    from mri_vit import study as stages
    from mri_vit.workspace import claimed

    with claimed(study) as folder:
        getattr(stages, name)(study, folder, Console())


@app.command
def run(study: Path, *overrides: Overrides) -> int:
    """All stages in order, going on where an earlier run stopped."""
    from rich.console import Console

    from mri_vit.study import run as run_study

    return 3 if run_study(_load(study, overrides), Console()) else 0


@app.command
def predict(run: Path, cohort: Path, output: Path, workers: int = 1) -> int:
    """Predict the patients of another COHORT table with the fold models of a finished RUN folder.

    Parameters
    ----------
    run
        Folder of a trained run.
    cohort
        Table with the columns patient, t1, t1ce, t2, flair; no label is read.
    output
        Folder for predictions.csv.
    workers
        Patients prepared at a time.
    """
    from rich.console import Console

    from mri_vit.ensemble import predict as predict_cohort

    return 3 if predict_cohort(run, cohort, output, workers, Console()) else 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `mri-vit`: runs a verb and turns how it ended into the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(_exit_code(lambda: app(arguments, result_action="return_value")))


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _exit_code(verb: Callable[[], object]) -> int:
    try:
        code = verb()
        return code if isinstance(code, int) else 0
    except MriVitError as error:
        print(f"mri-vit: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("mri-vit: interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        print(f"mri-vit: out of memory or disk, or not allowed to write: {error}; the same command goes on", file=sys.stderr)
        return OutOfResource.exit_code
