"""The verb `inspect`: a run goes in, a page on what one of its networks has learned comes out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from rich.console import Console

from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.folds import Split
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.explain.inspection import page
from mri_vit.explain.inspection.learned import Costly, Learned, passes
from mri_vit.explain.inspection.learned import measure as measure_learned
from mri_vit.explain.inspection.measures import measure
from mri_vit.explain.inspection.subject import Subject, find_fold, of_fold
from mri_vit.model.baselines import BASELINES
from mri_vit.prepare import unchanged
from mri_vit.run import files, integrity, ownership
from mri_vit.run.integrity import as_written
from mri_vit.run.screen import WARNING, duration, say, waiting
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study

LONG_S = 600  # from here on it is said how long it takes; the demo takes two minutes of one core
OF_TOKENS = ("place_mm", "layer", "head")  # what can be wanted of a Vision Transformer alone


BESIDE = 2  # comparators whose landscapes stand beside the study's own: each takes minutes, and --model shows any


@dataclass(frozen=True)
class Wanted:
    """What to look at; fold, layer and head are counted from 1. None: as `measures.measure` and `subject.find_fold` choose."""

    model: str = VIT
    fold: int | None = None
    patient: str | None = None
    place_mm: tuple[float, float, float] | None = None  # RAS+ mm of the grid's frame
    layer: int | None = None
    head: int | None = None
    without: tuple[Costly, ...] = ()


def run(
    study: Study,
    patients: Sequence[Patient],
    split: Split,
    folder: Path,
    wanted: Wanted,
    output: Path | None,
    console: Console,
) -> Path:
    """Write the page of a network of the run in `folder` into `output`, or where that is None into `inspect` beside the network's
    folds; print where it is and return its path.

    Raises
    ------
    UsageError
        The run has no such network, what is wanted of it is not there, or `output` holds something else.
    IntegrityError
        The fold's weights or its test patients are not those that were written.
    """
    taking_part = networks(study)
    if wanted.model not in taking_part:
        raise UsageError(f"--model {wanted.model}: the run has {', '.join(taking_part)}")
    own = taking_part[wanted.model]
    if own.model.architecture == "vit" and not own.model.attends:
        raise UsageError(f"--model {wanted.model}: it has no block whose attention could be shown (model.depth 0)")
    if own.model.architecture != "vit" and (given := [key for key in OF_TOKENS if getattr(wanted, key) is not None]):
        option = given[0].removesuffix("_mm")
        raise UsageError(
            f"--{option}: {wanted.model} is a {own.model.architecture}, which has no attention of ours; leave it out"
        )
    output = output or comparator_folder(folder, wanted.model) / files.INSPECT
    page.refuse(output)
    fold = find_fold(study, patients, split, wanted.fold, wanted.patient)
    names = [wanted.model]
    if wanted.model == VIT and "landscape" not in wanted.without:
        names += [name for name in convolutional(study) if (fold.home(folder, name) / files.WEIGHTS).exists()][:BESIDE]
    integrity.refuse_changed_run(folder, console, [fold.home(folder, name).relative_to(folder).as_posix() for name in names])
    of_landscape = () if "landscape" in wanted.without else fold.train
    unchanged.refuse_changed_patients(study, [*fold.test, *of_landscape], folder)
    subject, *beside = (of_fold(fold, taking_part[name], folder, wanted.patient, name) for name in names)
    numbers = None
    if own.model.architecture == "vit":
        numbers = measure(subject, wanted.place_mm, wanted.layer, wanted.head)
    with ownership.held(output, ["figures"]):
        learned = _learned(subject, beside, [fold.home(folder, name) for name in names], wanted.without, console)
        written = page.write(subject, output, numbers, learned)
    say(console, f"inspection: {written}")
    return written


def _learned(
    subject: Subject, beside: Sequence[Subject], homes: Sequence[Path], without: Sequence[Costly], console: Console
) -> Learned:
    """What is learned, with a word beforehand where that takes long."""
    if len(set(without)) == len(get_args(Costly)):
        return Learned()
    seconds = sum(
        passes(len(one.after.heads), 1, without if one is subject else ("features", *without)) * seconds_each(home, one.study)
        for one, home in zip((subject, *beside), homes, strict=True)
    )
    if seconds > LONG_S:
        said = (
            f"features and loss landscapes take about {duration(seconds)} at the pace at which the run's patients were predicted"
        )
        say(console, f"{said}; --without features landscape leaves them out", WARNING)
    with waiting(console, "features and loss landscapes"):
        return measure_learned(subject, beside, without)


def seconds_each(home: Path, study: Study) -> float:
    """How long one of the fold's networks took for a patient when it was trained; 0 where that was not written."""
    file = home / files.COST
    if not file.exists():
        return 0.0
    with as_written(file):
        return float(json.loads(file.read_bytes())["patient_seconds"]) / study.train.seeds


def convolutional(study: Study) -> list[str]:
    """The study's convolutional comparators: those whose last map Grad-CAM can read."""
    found = {name: BASELINES.get(of.model.architecture) for name, of in networks(study).items() if name != VIT}
    return [name for name, baseline in found.items() if baseline and baseline.layer and baseline.averaged]
