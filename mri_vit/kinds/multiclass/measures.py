"""What is measured of classes: Hand and Till's M, the polytomous discrimination index, and what `class_measures` has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.special import logit

from mri_vit.kinds.binary.measures import PROBABILITY_EPS
from mri_vit.kinds.class_measures import ClassMeasures, pair_figures, wide
from mri_vit.kinds.classes import shares
from mri_vit.metrics import multiclass
from mri_vit.metrics.continuous import Estimate as Bounds
from mri_vit.report.numbers.judged import averaged
from mri_vit.report.schema.classes import MulticlassFigures, PairOfClasses
from mri_vit.settings.schema import Endpoint


class MulticlassMeasures(ClassMeasures):
    """M of pairs within a fold (Hand & Till 2001, doi:10.1023/A:1010920819831)."""

    kind = "multiclass"

    def figures_of(
        self, endpoint: Endpoint, rows: pd.DataFrame, common: dict[str, Any], seed: int, inflated: float
    ) -> MulticlassFigures:
        people, names = averaged(rows), endpoint.classes or ()
        label, columns = people.label.to_numpy(int), shares(people)
        found = Bounds(multiclass.pdi(label, columns), *multiclass.pdi_interval(label, columns, np.random.default_rng(seed)))
        return MulticlassFigures(
            **common,
            pdi=wide(found, inflated, 0.0, 1.0),
            pdi_chance=1 / len(names),
            pairs=tuple(PairOfClasses(one=one, other=other, value=value) for one, other, value in pair_figures(names, rows)),
        )

    def evidence(self, endpoint: Endpoint, scores: pd.DataFrame) -> Float[np.ndarray, " n"]:
        """Log odds of the class that is called against all others."""
        return logit(shares(scores).max(axis=1).clip(PROBABILITY_EPS, 1 - PROBABILITY_EPS))

    def called(self, people: pd.DataFrame) -> Int[np.ndarray, " n"]:
        """The most probable class; of equally probable ones the first."""
        return shares(people).argmax(axis=1)


PART = MulticlassMeasures()
