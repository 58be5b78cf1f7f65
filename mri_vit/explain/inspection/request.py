"""Request: what to look at in a network of a run, and whether the run has it. Quick to import."""

from __future__ import annotations

from dataclasses import dataclass

from mri_vit.crossval.comparators import networks
from mri_vit.crossval.folds import Split
from mri_vit.errors import UsageError
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study

MINUTES = 3.0  # that a person waits for a page; the demo's takes two of one core
VIT_OPTIONS = ("position_mm", "layer", "head")  # what can be wanted of a Vision Transformer alone


@dataclass(frozen=True)
class Request:
    """What to look at; fold, layer and head are counted from 1. None: as `measure_vit` and `chosen_fold` choose."""

    model: str = VIT
    fold: int | None = None
    patient: str | None = None
    position_mm: tuple[float, float, float] | None = None  # RAS+ mm of the grid's frame
    layer: int | None = None
    head: int | None = None
    minutes: float = MINUTES  # that all may take together; of features and landscapes those that fit are measured


def chosen_fold(study: Study, split: Split, request: Request) -> int:
    """The fold asked for; else the one that tests the patient asked for; else the first. Counted from 0.

    Raises UsageError where the run has no such network or fold, the fold does not test the patient, or the network is no Vision
    Transformer and something was asked of its attention.
    """
    taking_part = networks(study)
    if not request.minutes >= 0:
        raise UsageError(f"--minutes {request.minutes:g}: expected 0 or more")
    if request.model not in taking_part:
        raise UsageError(f"--model {request.model}: the run has {', '.join(taking_part)}")
    own = taking_part[request.model]
    if own.model.architecture == "vit" and not own.model.attends:
        raise UsageError(f"--model {request.model}: it has no block whose attention could be shown (model.depth 0)")
    if own.model.architecture != "vit" and (given := [key for key in VIT_OPTIONS if getattr(request, key) is not None]):
        option = given[0].removesuffix("_mm")
        raise UsageError(
            f"--{option}: {request.model} is a {own.model.architecture}, which has no attention of ours; leave it out"
        )
    number = request.fold
    if number is None:
        number = next((index for index, ids in enumerate(split, 1) if request.patient in ids), 1)
    if not 1 <= number <= len(split):
        raise UsageError(f"--fold {number}: the run has folds 1 to {len(split)}")
    if request.patient and request.patient not in split[number - 1]:
        raise UsageError(f"--patient {request.patient}: not a test patient of fold {number} ({', '.join(split[number - 1])})")
    return number - 1
