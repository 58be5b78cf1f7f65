"""The command line's verbs on a finished run, and on weights that others have learned."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mri_vit.cli.arguments import Output, Overrides, StudyFile, loaded, trained
from mri_vit.errors import UsageError
from mri_vit.run import files
from mri_vit.settings.recipe import VIT


def status(study: StudyFile) -> None:
    """Show how far a run is: what is done, at work, waiting and failed in each stage, and the time left. Only reads files."""
    from rich.console import Console

    from mri_vit import status as of_run

    of_run.show(of_run.status(loaded(study, {})), Console())


def inspect(
    run: Path,
    *,
    model: str = VIT,
    fold: int | None = None,
    patient: str | None = None,
    place: tuple[float, float, float] | None = None,
    layer: int | None = None,
    head: int | None = None,
    without: Annotated[tuple[Literal["features", "landscape"], ...], Parameter(consume_multiple=True)] = (),
    output: Annotated[Path | None, Output] = None,
) -> None:
    """Show what a network of a finished RUN folder has learned: its filters, positions, attention and one head step by step; the
    inputs that it answers most to, and its loss landscape.

    Parameters
    ----------
    run
        Folder of a trained run.
    model
        One of the run's comparators instead of the study's own network; one that is no Vision Transformer has no attention.
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
    without
        What is left out: features, landscape or both. They pass through the network thousands of times, and a large one needs a
        GPU for it.
    output
        Folder for index.html and the figures; RUN/inspect where none is named, RUN/rivals/MODEL/inspect of a comparator.
    """
    from rich.console import Console

    from mri_vit import study as stages
    from mri_vit.explain.inspection.inspect_network import Request

    wanted = Request(model, fold, patient, place, layer, head, without)
    stages.inspect(loaded(run, {}), run, wanted, output, Console())


def report(
    study: StudyFile | None = None,
    *,
    predictions: Path | None = None,
    subgroups: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    patient_pages: bool = False,
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
    patient_pages
        Write a page of each patient, however many there are; above 2,000 there is none unless it is asked for.
    """
    from rich.console import Console

    from mri_vit.report.pages import terminal
    from mri_vit.run.folder import claimed

    if study and not predictions and not subgroups:
        paths = {key: os.path.abspath(overrides[key]) for key in ("cohort", "output") if key in overrides}
        with claimed(trained(loaded(study, overrides | paths))) as folder:
            terminal.report_run(folder, Console(), patient_pages)
    elif predictions and not study and set(overrides) == {"cohort", "output"}:
        terminal.report_table(
            predictions, Path(overrides["cohort"]), Path(overrides["output"]), subgroups, Console(), patient_pages
        )
    else:
        raise UsageError(
            "expected a study file alone (its run is reported; --output X means the run in X, as with every verb, and subgroups"
            " are --report.subgroups), or no study file but all of --predictions, --cohort and --output"
        )


def evaluate(run: Path, *, study: Path, allow_synthetic: bool = False, **overrides: Overrides) -> int:
    """Judge a finished RUN folder on another cohort with known labels; nothing is fitted anew.

    Parameters
    ----------
    run
        Folder of a trained run.
    study
        Study file of the other cohort: name, cohort, prepared, output and endpoints; the rest is the run's.
    allow_synthetic
        Judge a run of synthetic patients on real ones too; the report says so.
    """
    from rich.console import Console

    from mri_vit.finished.evaluate import evaluate as evaluate_run

    other = loaded(study, overrides)
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
    """Predict new patients from their SCANS with the fold models of a finished RUN folder; writes a folder of each.

    Parameters
    ----------
    run
        Folder of a trained run.
    scans
        One patient's folder of NIfTI files or DICOM series; or a table with the column patient and those of the run's scans (t1,
        t1ce, t2, flair, unless its study names others). No label is read.
    output
        Folder for predictions.csv and the patients' folders.
    workers
        Patients prepared at a time.
    show_untrusted
        Show also what the run's report did not tell from chance, marked as such.
    allow_known
        Predict also patients on whom the run was trained, marked as such.
    allow_synthetic
        Let a run of synthetic patients predict real ones too, marked as such.
    """
    from rich.console import Console

    from mri_vit.finished.predict import Allowed
    from mri_vit.finished.predict import predict as predict_patients

    allowed = Allowed(show_untrusted, allow_known, allow_synthetic)
    return 3 if predict_patients(run, scans, output, workers, allowed, Console()) else 0


def compare(a: Path, b: Path, *, output: Annotated[Path | None, Output] = None) -> None:
    """Compare two finished runs: what differs, and paired tests.

    Parameters
    ----------
    a
        Folder of a run that is cross-validated, or of an evaluation on another cohort.
    b
        Folder of the other run; differences are A less B.
    output
        Folder for index.html and comparison.json; comparison-A-B in the present folder where none is named.
    """
    from rich.console import Console

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
    """Write what a frozen encoder, of others or of ours, reads of each prepared patient; goes on where it was stopped.

    Parameters
    ----------
    source
        Study file, folder of a run, or folder of prepared patients.
    weights
        File of weights: a MONAI ViT, a 3D DINO ViT or a Primus as .safetensors, .pt, .pth or .ckpt; or a network or pretrained
        encoder of ours. A file WEIGHTS.toml beside it may hold what the next options say.
    output
        Folder for features.safetensors.
    licence
        Terms of the weights, such as CC-BY-4.0; they stand wherever the features are used. Unset: not stated.
    channels
        Sequences that are read, in the encoder's order; all where none is named. Give it once for each.
    fusion
        Of an encoder of one channel, which reads each sequence by itself: side by side, or the mean.
    heads
        Attention heads, where the width does not tell them.
    edge
        Voxels along the edge of the cube that is read, where the weights serve any.
    spacing_mm
        Edge of its voxels; as large as lays the cube over the prepared box where none is given.
    intensity
        What the brain's voxels are brought to: zscore, or unit for 0 to 1.
    axes
        Where the array's axes point to, such as RAS; SAR is nnU-Net's z, y, x.
    """
    study = None if any(source.glob(f"*/{files.TOKENS}")) else loaded(source, {})  # before what takes longer to import
    from rich.console import Console

    from mri_vit.features import extraction
    from mri_vit.run.screen import WARNING, say

    console = Console()
    prepared, unprepared = extraction.of_study(study) if study else (extraction.in_folder(source), [])
    if unprepared:
        say(console, f"{len(unprepared)} patients are not prepared, the first {unprepared[0]}; they are left out", WARNING)
    card = {"licence": licence, "heads": heads, "edge": edge, "spacing_mm": spacing_mm, "intensity": intensity, "axes": axes}
    return (
        3
        if extraction.write(prepared, extraction.Asked(weights, channels, fusion, card), output, console) + len(unprepared)
        else 0
    )
