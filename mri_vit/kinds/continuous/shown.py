"""What is shown of a new patient's number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.finished.of_kind import Shown, Strip
from mri_vit.finished.out_of_fold import OutOfFold
from mri_vit.finished.predicted_endpoints import shared
from mri_vit.finished.prediction_document import Continuous, ContinuousValue
from mri_vit.report.schema.continuous import ContinuousResult
from mri_vit.report.schema.kinds import Result
from mri_vit.settings.schema import Endpoint


class ContinuousShown(Shown):
    """The mean over the networks, and within which distance of it the run's patients lie."""

    def shown(
        self,
        endpoint: Endpoint,
        outputs: Sequence[FoldOutputs] | None,
        run: OutOfFold,
        untrusted: str | None,
        about: dict[str, Any],
    ) -> Continuous:
        value = None if outputs is None else _value(endpoint, outputs, run)
        return Continuous(kind="continuous", unit=endpoint.unit or "", value=value, **about)

    def found(
        self, endpoint: Endpoint, rows: pd.DataFrame, result: Result | None, withheld: str | None, seed: int
    ) -> dict[str, Any]:
        if not isinstance(result, ContinuousResult):
            return {}
        return {"agreement": (result.agreement.lower.value, result.agreement.upper.value), "log": result.log}

    def on_strip(self, result: Continuous) -> Strip:
        """Without a threshold: what the table of predictions has there is the training patients' mean."""
        assert result.value is not None
        return Strip(result.value.score, math.nan, f"predicted{f', {result.unit}' if result.unit else ''}")


def _value(endpoint: Endpoint, outputs: Sequence[FoldOutputs], run: OutOfFold) -> ContinuousValue:
    fields = shared(endpoint, outputs, run)
    low = high = math.nan
    if run.agreement:  # predicted − observed, or predicted / observed, lies between the limits
        limits = np.array(run.agreement[::-1])
        low, high = (fields["score"] / np.exp(limits) if run.log else fields["score"] - limits).tolist()
    return ContinuousValue(side=None, low=low, high=high, **fields)


PART = ContinuousShown()
