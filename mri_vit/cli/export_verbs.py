"""Verbs that export: a model that leaves its run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App

from mri_vit.cli.arguments import Output

exports = App(name="export", help="Export a model from a run.")


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
