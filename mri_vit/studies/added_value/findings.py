"""What is found of an added value: a run's model in; the analysis, the same beside a simpler risk and on permuted labels, out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from mri_vit.errors import UsageError
from mri_vit.metrics.comparison import holm
from mri_vit.report.numbers.chance import ALPHA
from mri_vit.studies.added_value import people
from mri_vit.studies.added_value.numbers import RISK, AddedValue, measure
from mri_vit.studies.added_value.people import Asked, Taken

Tried = AddedValue | str  # or why it could not be analysed


@dataclass(frozen=True, eq=False)
class Findings:
    """All that is found; `p_risk` and `p_covariates` are Holm's of both likelihood ratios, the risk's and the covariates'."""

    asked: Asked
    taken: Taken
    found: AddedValue
    p_risk: float
    p_covariates: float
    beside: Mapping[str, Tried]  # by control that reads the scans
    permuted: Tried | None


def find(asked: Asked) -> Findings:
    """Measure all of it. Raises UsageError where the main analysis cannot be made."""
    taken = people.taken(asked)
    found = measure(taken.people, asked.inflated)
    p_risk, p_covariates = holm(np.array([found.test.p, found.reverse.p])).tolist()
    return Findings(
        asked=asked,
        taken=taken,
        found=found,
        p_risk=p_risk,
        p_covariates=p_covariates,
        beside={name: tried for name in people.simpler(asked) if (tried := _tried(asked, partial(people.beside, asked, name)))},
        permuted=_tried(asked, partial(people.permuted, asked)),
    )


def adds(found: AddedValue, p: float) -> bool:
    """Whether a risk adds by more than chance, and as a risk does: a higher one dies sooner."""
    return p <= ALPHA and found.both[RISK].value > 1


def _tried(asked: Asked, take: Callable[[], Taken | None]) -> Tried | None:
    try:
        taken = take()
        return measure(taken.people, asked.inflated) if taken else None
    except UsageError as error:
        return str(error)
