"""What is measured of grades: the generalised C, weighted kappa, and what `class_measures` has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from mri_vit.kinds.class_measures import ClassMeasures, wide
from mri_vit.metrics import ordinal
from mri_vit.metrics.within_fold import PairErrors, survival_errors
from mri_vit.report.numbers.judged import averaged
from mri_vit.report.schema.classes import OrdinalFigures
from mri_vit.report.schema.parts import Estimate
from mri_vit.settings.schema import Endpoint


class OrdinalMeasures(ClassMeasures):
    """C of pairs of unequal grade within a fold, by the expected grade."""

    kind = "ordinal"

    def figures_of(
        self, endpoint: Endpoint, rows: pd.DataFrame, common: dict[str, Any], seed: int, inflated: float
    ) -> OrdinalFigures:
        people, judged = averaged(rows), common["judged"]
        kappa = ordinal.weighted_kappa(people.label.to_numpy(int), self.called(people), len(endpoint.classes or ()))
        d = Estimate(**{end: 2 * getattr(judged, end) - 1 for end in ("value", "low", "high")})
        return OrdinalFigures(**common, somers_d=d, weighted_kappa=wide(kappa, inflated, -1.0, 1.0))

    def called(self, people: pd.DataFrame) -> Int[np.ndarray, " n"]:
        """The grade next to the expected one."""
        return np.rint(people.score.to_numpy(float)).astype(int)

    def errors(self, rows: pd.DataFrame, group: np.ndarray) -> PairErrors:
        label, score = rows.label.to_numpy(float), rows.score.to_numpy(float)
        return survival_errors(-label, np.ones(len(label), bool), score, group)


PART = OrdinalMeasures()
