"""The verb `inspect`: a run goes in, a page on what one of its networks has learned comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from mri_vit.crossval import folds
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.explain.inspection import page, subject
from mri_vit.prepare import unchanged
from mri_vit.run import files, intact
from mri_vit.run import folder as run_folder
from mri_vit.run.screen import say
from mri_vit.settings.schema import Study


@dataclass(frozen=True)
class Wanted:
    """What to look at; fold, layer and head are counted from 1. None: as `page.write` and `subject.find_fold` choose."""

    fold: int | None = None
    patient: str | None = None
    place_mm: tuple[float, float, float] | None = None  # RAS+ mm of the grid's frame
    layer: int | None = None
    head: int | None = None


def run(study: Study, patients: Sequence[Patient], folder: Path, wanted: Wanted, output: Path, console: Console) -> Path:
    """Write the page of the run in `folder` into `output`, print where it is and return its path.

    Raises
    ------
    UsageError
        The network is none that can be inspected, what is wanted is not there, or `output` holds something else.
    IntegrityError
        The fold's weights or its test patients are not those that were written.
    """
    if study.model.architecture != "vit" or study.model.pool == "class_attention":
        raise UsageError(f"{folder}: the inspection is of Vision Transformers whose CLS goes through every block")
    page.refuse(output)
    split = folds.load(folder / files.FOLDS, patients)[0]
    fold = subject.find_fold(study, patients, split, folder, wanted.fold, wanted.patient)
    intact.refuse_changed(folder, console, [fold.home.name])
    unchanged.refuse_changed_patients(study, fold.test, folder)
    inspected = subject.of_fold(fold, study, folder, wanted.patient)
    with run_folder.held(output, ["figures"]):
        written = page.write(inspected, output, wanted.place_mm, wanted.layer, wanted.head)
    say(console, f"inspection: {written}")
    return written
