"""What is shown of a new patient's survival: the risk group and probabilities to be alive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mri_vit.data.predictions import HORIZONS_DAYS
from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.finished.of_kind import Shown
from mri_vit.finished.out_of_fold import MONTH_DAYS, OutOfFold
from mri_vit.finished.predicted_endpoints import deviation, shared
from mri_vit.finished.prediction_document import Horizon, Survival, SurvivalValue
from mri_vit.metrics.survival import survival_steps
from mri_vit.report.schema.kinds import Result
from mri_vit.settings.schema import Endpoint


class SurvivalShown(Shown):
    """The group of high or of low risk."""

    def found(
        self, endpoint: Endpoint, rows: pd.DataFrame, result: Result | None, withheld: str | None, seed: int
    ) -> dict[str, Any]:
        known = rows.dropna(subset=["time_days", "event"]).drop_duplicates("patient")
        if not len(known):
            return {}
        event = known.event.to_numpy(dtype=float)
        other = event == 2 if endpoint.competing else None
        days, alive = survival_steps(known.time_days.to_numpy(dtype=float), event == 1, other)
        months = MONTH_DAYS * np.arange(math.floor(days[-1] / MONTH_DAYS) + 1)
        return {"alive": tuple(alive[np.searchsorted(days, months, side="right") - 1].tolist())}

    def shown(
        self,
        endpoint: Endpoint,
        outputs: Sequence[FoldOutputs] | None,
        run: OutOfFold,
        untrusted: str | None,
        about: dict[str, Any],
    ) -> Survival:
        value = None if outputs is None else _value(endpoint, outputs, run)
        return Survival(kind="survival", competing=endpoint.competing, value=value, **about)

    def score_cells(self, result: Survival) -> Iterable[dict[str, Any]]:
        value = result.value
        return [
            {"score": value.score if value else math.nan, "probability": math.nan, "call": (value.side if value else None) or ""}
        ]

    def survival_cells(self, result: Survival) -> Iterable[dict[str, Any]]:
        alive = [at.survival for at in result.value.horizons] if result.value else [math.nan] * len(HORIZONS_DAYS)
        return [{"horizon_days": days, "survival": share} for days, share in zip(HORIZONS_DAYS, alive, strict=True)]


def _value(endpoint: Endpoint, outputs: Sequence[FoldOutputs], run: OutOfFold) -> SurvivalValue:
    name = endpoint.name
    each = np.array([seed[name] for fold in outputs for seed in fold.survival])  # (networks, t)
    means = np.mean([np.mean([seed[name] for seed in fold.survival], axis=0) for fold in outputs], axis=0)  # (t,)
    horizons = tuple(
        Horizon(
            days=days,
            survival=float(means[t]),
            deviation=deviation(each[:, t]),
            minimum=float(each[:, t].min()),
            maximum=float(each[:, t].max()),
        )
        for t, days in enumerate(HORIZONS_DAYS)
    )
    fields = shared(endpoint, outputs, run)
    side = None if math.isnan(fields["threshold"]) else "high risk" if fields["score"] >= fields["threshold"] else "low risk"
    return SurvivalValue(side=side, horizons=horizons, **fields)


PART = SurvivalShown()
