"""Verbs of `mri-vit export`: what leaves a run or a prediction for other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App

from mri_vit.cli.arguments import Output

exports = App(name="export", help="Export a prediction as DICOM objects for a PACS.")


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
