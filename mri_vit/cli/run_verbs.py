"""Verbs on a run: its status, report and networks; evaluate, predict and compare with it; features of frozen encoders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mri_vit.cli.arguments import Margin, Output, Overrides, StudyFile, as_written, loaded, trained
from mri_vit.errors import UsageError
from mri_vit.run import files
from mri_vit.settings.defaults import CARD
from mri_vit.settings.recipe import VIT
from mri_vit.settings.source import fault, shown


def status(study: StudyFile) -> None:
    """Show a run's progress: jobs done, running, waiting and failed in each stage, and the time left. Only reads files."""
    from rich.console import Console

    from mri_vit import status as of_run

    of_run.show(of_run.status(loaded(study, {})), Console())


def inspect(
    run: Path,
    *,
    model: str = VIT,
    fold: int | None = None,
    patient: str | None = None,
    position: tuple[float, float, float] | None = None,
    layer: int | None = None,
    head: int | None = None,
    minutes: float = 3.0,
    output: Annotated[Path | None, Output] = None,
) -> None:
    """Show what a network of a finished RUN has learned: filters, positions, attention, a head step by step, units, loss.

    Parameters
    ----------
    run
        Folder of a trained run.
    model
        A comparator instead of the study's own network; only Vision Transformers have attention.
    fold
        Fold of the network, counted from 1; by default the one that tested the patient, or the first.
    patient
        A test patient of the fold; by default the first.
    position
        Point whose attention is shown: mm to the right, front and top on the prepared grid; by default rollout's peak.
    layer
        Layer of the attention, counted from 1; by default the last.
    head
        Head of the attention, counted from 1; by default the mean over heads.
    minutes
        How long it may take. Features and loss landscapes run the network thousands of times: what would take longer is
        left out, and the time that it takes is named. 0 leaves both out.
    output
        Folder for index.html and figures; by default RUN/inspect, or RUN/rivals/MODEL/inspect for a comparator.
    """
    from rich.console import Console

    from mri_vit import study as stages
    from mri_vit.explain.inspection.request import Request

    wanted = Request(model, fold, patient, position, layer, head, minutes)
    stages.inspect(loaded(run, {}), run, wanted, output, Console())


def report(
    study: StudyFile | None = None,
    *,
    predictions: Path | None = None,
    design: Literal["cross-validation", "external"] = "cross-validation",
    subgroups: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    numbers: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    grades: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    competing: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    margin: Margin | None = None,
    thresholds: Annotated[tuple[float, float] | None, Parameter(show_default=False)] = None,
    patient_pages: bool = False,
    **overrides: Overrides,
) -> None:
    """Write a report and print its results, for a STUDY's run or for a table of predictions made elsewhere.

    Parameters
    ----------
    predictions
        Table of predictions, instead of STUDY: patient, endpoint, score; optional class (a row for each), model, repeat, fold,
        truth, time_days, event, threshold. Needs --cohort, the table of its patients, and --output, the folder for index.html
        and metrics.json.
    design
        With --predictions: external where no model was trained on these patients, as on a held-out test set; else errors are
        enlarged for refitting.
    subgroups
        With --predictions: further columns of the cohort table for subgroups, beside sex, age and site.
    numbers
        With --predictions: endpoints that are numbers, such as an age.
    grades
        With --predictions: endpoints whose classes are grades, in the order of the table's rows.
    competing
        With --predictions: survival endpoints with 2 in the event column for an event that came first; os="death of another
        cause" names it.
    margin
        With --predictions: a model is not inferior to another whose AUC or C it falls short of by less (report.margin).
    thresholds
        With --predictions: lowest and highest risk from which one would act, for net benefit over this range.
    patient_pages
        Write a page per patient even for more than 5,000 patients.
    """
    from rich.console import Console

    from mri_vit.run.folder import claimed

    given = predictions or subgroups or numbers or grades or competing or margin or thresholds
    if study and not given and design == "cross-validation":
        paths = {key: os.path.abspath(overrides[key]) for key in ("cohort", "output") if key in overrides}
        with claimed(trained(loaded(study, overrides | paths))) as folder:
            from mri_vit.report.pages import report_files

            report_files.report_run(folder, Console(), patient_pages)
    elif predictions and not study and set(overrides) == {"cohort", "output"}:
        for table in (predictions, Path(overrides["cohort"])):
            if wrong := fault(table):  # before what takes longer to import
                raise UsageError(f"{shown(table)}: {wrong}".replace("no such file", "no such table"))
        from mri_vit.report.pages import report_files
        from mri_vit.report.reading.foreign_table import Declared

        cohort, output = Path(overrides["cohort"]), Path(overrides["output"])
        declared = Declared(design == "external", subgroups, numbers, grades, competing, margin, thresholds)
        report_files.report_table(predictions, cohort, output, Console(), patient_pages, declared)
    else:
        raise UsageError(
            "expected either a study file (with --output X for the run in X, and --report.subgroups or --report.thresholds), or "
            "all of --predictions, --cohort and --output without a study file"
        )


def evaluate(run: Path, *, study: Path, allow_synthetic: bool = False, **overrides: Overrides) -> int:
    """Evaluate a finished RUN on another cohort with labels; no network is trained.

    Parameters
    ----------
    run
        Folder of a trained run.
    study
        Study file of the other cohort: name, cohort, prepared, output and endpoints; all else is taken from the run.
    allow_synthetic
        Evaluate a run of synthetic patients on real ones; the report warns of it.
    """
    from rich.console import Console

    from mri_vit.finished.evaluate import evaluate as evaluate_run

    other = as_written(study, {"recipe": CARD} | overrides)  # which fills nothing in: what the file leaves out is the run's
    return 3 if evaluate_run(run, other, set(other.model_fields_set), Console(), allow_synthetic) else 0


def predict(
    run: Path,
    scans: Annotated[Path, Parameter(alias="--cohort")],
    output: Annotated[Path, Output],
    workers: int = 1,
    *,
    show_untrusted: bool = False,
    allow_known: bool = False,
    allow_synthetic: bool = False,
) -> int:
    """Predict new patients from their SCANS with all fold models of a finished RUN; writes a folder per patient.

    Parameters
    ----------
    run
        Folder of a trained run.
    scans
        One patient's folder of NIfTI files or DICOM series; or a table with the columns patient and the run's sequences (t1,
        t1ce, t2, flair, unless its study names others). Labels are not read.
    output
        Folder for predictions.csv and the patients' folders.
    workers
        Patients prepared in parallel.
    show_untrusted
        Also show endpoints that the run's report found no better than chance, marked as unreliable.
    allow_known
        Also predict patients that the run was trained on, marked as such.
    allow_synthetic
        Predict real patients with a run of synthetic ones, marked as such.
    """
    from rich.console import Console

    from mri_vit.finished.predict import Allowed
    from mri_vit.finished.predict import predict as predict_patients

    allowed = Allowed(show_untrusted, allow_known, allow_synthetic)
    return 3 if predict_patients(run, scans, output, workers, allowed, Console()) else 0


def compare(a: Path, b: Path, *, output: Annotated[Path | None, Output] = None) -> None:
    """Compare two finished runs: differing settings, and paired tests of their models.

    Parameters
    ----------
    a
        Folder of a cross-validated run, or of an evaluation on another cohort.
    b
        Folder of the other run; differences are A minus B.
    output
        Folder for index.html and comparison.json; by default comparison-A-B in the current folder.
    """
    from rich.console import Console

    from mri_vit.run.folder import refuse_unfinished

    for run in (a, b):
        refuse_unfinished(run)  # before what takes longer to import
    from mri_vit.finished import compare as stage

    stage.run(a, b, output, Console())


def features(
    source: Path,
    *,
    weights: Path,
    output: Annotated[Path, Output],
    licence: str | None = None,
    channels: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    fusion: Literal["concatenate", "mean"] = "concatenate",
    heads: int | None = None,
    edge: int | None = None,
    spacing_mm: float | None = None,
    intensity: Literal["zscore", "unit"] | None = None,
    axes: str | None = None,
) -> int:
    """Write each prepared patient's features by a frozen encoder.

    Parameters
    ----------
    source
        Study file, folder of a run, or folder of prepared patients.
    weights
        Weights: a MONAI ViT, a 3D DINO ViT or a Primus as .safetensors, .pt, .pth or .ckpt; or a network or pretrained encoder
        of mri-vit. A file WEIGHTS.toml beside it may hold the options below.
    output
        Folder for features.safetensors.
    licence
        Licence of the weights, such as CC-BY-4.0; it is recorded with the features. Unset: not stated.
    channels
        Sequences to read, in the encoder's order; by default all. Repeat the option for each.
    fusion
        For an encoder of one channel, which reads each sequence separately: concatenate or average the features.
    heads
        Attention heads, where the width does not determine them.
    edge
        Voxels along the edge of the input cube, where the weights allow any.
    spacing_mm
        Its voxel size; by default the cube covers the prepared box.
    intensity
        Intensity scaling inside the brain: zscore, or unit for 0 to 1.
    axes
        Orientation of the array's axes, such as RAS; SAR is nnU-Net's z, y, x.
    """
    study = None if any(source.glob(f"*/{files.TOKENS}")) else loaded(source, {})
    if wrong := fault(weights):  # before what takes longer to import
        raise UsageError(f"{shown(weights)}: {wrong} (--weights)")
    from rich.console import Console

    from mri_vit.features import extraction
    from mri_vit.run.screen import WARNING, say

    console = Console()
    prepared, unprepared = extraction.of_study(study) if study else (extraction.in_folder(source), [])
    if unprepared:
        say(console, f"{len(unprepared)} patients are not prepared and are left out, first {unprepared[0]}", WARNING)
    card = {"licence": licence, "heads": heads, "edge": edge, "spacing_mm": spacing_mm, "intensity": intensity, "axes": axes}
    return (
        3
        if extraction.write(prepared, extraction.Asked(weights, channels, fusion, card), output, console) + len(unprepared)
        else 0
    )


def serve(
    model: Path,
    *,
    port: int = 8080,
    host: str = "127.0.0.1",
    folder: Path = Path("mri-vit-serve"),
    keep_hours: float = 24.0,
    show_untrusted: bool = False,
    allow_known: bool = False,
    allow_synthetic: bool = False,
) -> None:
    """Predict patients that a browser or program sends, by a MODEL.

    Parameters
    ----------
    model
        Folder of `mri-vit export model`.
    port
        Port to listen on; 0 chooses a free one.
    host
        Address to listen on. Any other than loopback asks for a token, that of the variable MRI_VIT_TOKEN or a new one.
    folder
        Folder for the patients who are sent.
    keep_hours
        Hours after which a finished patient is deleted.
    show_untrusted, allow_known, allow_synthetic
        As for `predict`.
    """
    from rich.console import Console

    from mri_vit.finished.predict import Allowed

    try:
        from mri_vit.finished.serve import server
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed, which the service needs: pip install 'mri-vit[serve]'") from None
    allowed = Allowed(show_untrusted, allow_known, allow_synthetic)
    server.serve(model, host, port, folder, 3600 * keep_hours, allowed, Console())
