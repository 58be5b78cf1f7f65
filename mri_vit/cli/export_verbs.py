"""Verbs that export a finished run: to conventions by which others read its images and its provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App

from mri_vit.cli.arguments import Output

exports = App(name="export", help="Export a finished run: images to BIDS, provenance to RO-Crate.")


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
