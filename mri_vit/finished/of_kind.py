"""What is shown of a new patient's prediction, by the kind of the endpoint."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.finished.prediction_document import AnyPredicted
from mri_vit.kinds.kind import part
from mri_vit.report.schema.kinds import Result
from mri_vit.settings.schema import Endpoint

if TYPE_CHECKING:
    from mri_vit.finished.out_of_fold import OutOfFold


class Strip(NamedTuple):
    """A patient's score among those of the run's patients."""

    own: float
    threshold: float
    scale: str = "score"
    column: str = "score"  # of `OutOfFold.groups`


class Shown(ABC):
    """A kind's part of `prediction.json` and of the tables of predictions."""

    def found(
        self, endpoint: Endpoint, rows: pd.DataFrame, result: Result | None, withheld: str | None, seed: int
    ) -> dict[str, Any]:
        """The kind's own fields of `OutOfFold`, from a run's rows and result of an endpoint."""
        return {}

    @abstractmethod
    def shown(
        self,
        endpoint: Endpoint,
        outputs: Sequence[FoldOutputs] | None,
        run: OutOfFold,
        untrusted: str | None,
        about: dict[str, Any],
    ) -> AnyPredicted:
        """The endpoint with its value, None where nothing is shown; `untrusted` says why a value is unreliable."""

    def score_cells(self, result: Any) -> Iterable[dict[str, Any]]:
        """Cells of each row of the table of scores."""
        return [{"score": result.value.score if result.value else math.nan, "probability": math.nan, "call": ""}]

    def survival_cells(self, result: Any) -> Iterable[dict[str, Any]]:
        """Cells of each row of the table of survival."""
        return []

    def on_strip(self, result: Any) -> Strip:
        """The patient among the run's patients."""
        return Strip(result.value.score, result.value.threshold)

    def question(self, value: Any) -> int | None:
        """As `heads.question` where a map has to explain the call and not what a network alone would say; else None."""
        return None

    def called_otherwise(self, endpoint: str, fold: FoldOutputs, value: Any) -> bool:
        """Whether a fold's first network alone calls the patient otherwise than all together."""
        return False


def of(kind: str) -> Shown:
    """The part of a kind that is about new patients."""
    return part(kind, "shown")
