"""What is shown of a new patient's number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.finished.of_kind import Shown, Strip
from mri_vit.finished.predicted_endpoints import RunResults, shared
from mri_vit.finished.prediction_document import Continuous, ContinuousValue
from mri_vit.report.schema.continuous import ContinuousResult
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Endpoint


class ContinuousShown(Shown):
    """The mean over the networks, and within which distance of it the run's patients lie."""

    def shown(
        self,
        endpoint: Endpoint,
        outputs: Sequence[FoldOutputs] | None,
        run: RunResults,
        untrusted: str | None,
        about: dict[str, Any],
    ) -> Continuous:
        value = None if outputs is None else _value(endpoint, outputs, run)
        return Continuous(kind="continuous", unit=endpoint.unit or "", value=value, **about)

    def on_strip(self, result: Continuous, rows: pd.DataFrame) -> Strip:
        """Without a threshold: what the table of predictions has there is the training patients' mean."""
        assert result.value is not None
        return Strip(rows, result.value.score, math.nan, f"predicted{f', {result.unit}' if result.unit else ''}")


def _value(endpoint: Endpoint, outputs: Sequence[FoldOutputs], run: RunResults) -> ContinuousValue:
    fields = shared(endpoint, outputs, run.of_endpoint(endpoint.name))
    result = run.metrics.endpoints[endpoint.name].models.get(VIT) if endpoint.name in run.metrics.endpoints else None
    low = high = math.nan
    if isinstance(result, ContinuousResult):  # predicted − observed, or predicted / observed, lies between the limits
        limits = np.array([result.agreement.upper.value, result.agreement.lower.value])
        low, high = (fields["score"] / np.exp(limits) if result.log else fields["score"] - limits).tolist()
    return ContinuousValue(side=None, low=low, high=high, **fields)


PART = ContinuousShown()
