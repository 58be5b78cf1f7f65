"""Verbs of `mri-vit export`: what leaves a run or a prediction for other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App

from mri_vit.cli.arguments import Output

exports = App(name="export", help="Export a run's model or images, or a prediction as DICOM.")


@exports.command(name="model")
def export_model(run: Path, *, output: Annotated[Path, Output]) -> None:
    """Write the model of a finished RUN into a folder that predicts as the run does, without ids, labels or paths.

    Parameters
    ----------
    run
        Folder of a trained run.
    output
        Folder for the model; it is a MONAI bundle, too.
    """
    from rich.console import Console

    from mri_vit.finished.export import model

    model.export_model(run, output, Console())


@exports.command(name="onnx")
def export_onnx(model: Path, *, output: Annotated[Path, Output]) -> None:
    """Write the networks of a RUN or exported MODEL as ONNX: scores and attention rollout from any number of tokens.

    Parameters
    ----------
    model
        Folder of a trained run, or of a model that was exported from one.
    output
        Folder for fold-1.onnx and so on; the mean over them is the prediction.
    """
    from rich.console import Console

    from mri_vit.finished.export import onnx_files

    onnx_files.export_onnx(model, output, Console())


@exports.command(name="dicom")
def export_dicom(prediction: Path, *, source: Path | None = None, output: Annotated[Path, Output]) -> None:
    """Export a patient's prediction as DICOM objects: captures, parametric maps, tumour segmentation and structured report.

    Parameters
    ----------
    prediction
        A patient's folder of `mri-vit predict`.
    source
        Folder of the DICOM series of a scan that was predicted, best the T1ce: the objects get its patient and study, and lie on
        its voxels. Another series is refused. Without it they are anonymous.
    output
        Folder for the .dcm files.
    """
    from rich.console import Console

    from mri_vit.finished.export import dicom

    dicom.writer().export_dicom(prediction, source, output, Console())


@exports.command(name="bids")
def export_bids(run: Path, *, output: Annotated[Path, Output], licence: str | None = None) -> None:
    """Write prepared scans, masks and maps of a finished RUN as a BIDS derivatives dataset, without labels.

    Parameters
    ----------
    run
        Folder of a trained run.
    output
        A new or an empty folder.
    licence
        Licence of the dataset, such as CC-BY-4.0. Unset: not stated.
    """
    from rich.console import Console

    from mri_vit.finished.trained_run import open_run

    finished = open_run(run)  # before what takes longer to import
    from mri_vit.finished.export import bids

    bids.export(finished, output, licence, Console())


@exports.command(name="crate")
def export_crate(run: Path, *, output: Annotated[Path, Output], licence: str | None = None) -> None:
    """Write the provenance of a finished RUN as an RO-Crate: settings, versions, verdicts and hashes, nothing of a patient.

    Parameters
    ----------
    run
        Folder of a trained run.
    output
        A new or an empty folder.
    licence
        Licence of what the crate holds, such as CC-BY-4.0. Unset: not stated.
    """
    from rich.console import Console

    from mri_vit.finished.trained_run import open_run

    finished = open_run(run)  # before what takes longer to import
    from mri_vit.finished.export import crate

    crate.export(finished, output, licence, Console())
