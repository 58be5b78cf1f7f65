"""Models on the patients that they share: each is measured once on these, and once on each resample of them.

So 1300 pairs of 52 models cost little more than 52 models. n is the number of patients, m the number of models, b of resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.metrics import comparison, intervals
from mri_vit.metrics.comparison import Comparison
from mri_vit.metrics.within_fold import WithinFold

Tables = Mapping[str, pd.DataFrame]
Drawn = Float[np.ndarray, "b n"]


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure of m models on the same patients, and on each of b resamples of these."""

    column: Mapping[str, int]  # of each model
    value: Float[np.ndarray, " m"]
    draws: Float[np.ndarray, "b m"]

    def difference(self, model: str, other: str, inflated: float) -> Comparison:
        a, b = self.column[model], self.column[other]
        return comparison.paired_comparison(float(self.value[a] - self.value[b]), self.draws[:, a] - self.draws[:, b], inflated)


@dataclass(frozen=True)
class Shared:
    """Models on the patients and repeats that they share: one row per patient, each model's mean score, and its AUC or C."""

    people: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]  # by model, the same patients
    scores: Mapping[str, Float[np.ndarray, " n"]]
    within_folds: Mapping[str, list[WithinFold]]  # of each repeat
    measured: dict[str, MeasuredFigure] = field(default_factory=dict)  # by figure, once it was asked for


def measure_figure(
    of_models: Mapping[str, Callable[[Drawn], Float[np.ndarray, " b"]]], value: Float[np.ndarray, " m"], patients: int, seed: int
) -> MeasuredFigure:
    """Each model's figure on the same resamples."""
    draws = intervals.distribution(
        lambda drawn: np.stack([of_model(drawn) for of_model in of_models.values()], axis=1),
        np.zeros(patients),
        np.random.default_rng(seed),
        comparison.PAIRED_RESAMPLES,
    )
    return MeasuredFigure({model: column for column, model in enumerate(of_models)}, value, draws)
