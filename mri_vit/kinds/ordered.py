"""What grades and numbers have in common: patients are compared in pairs that differ, by one number each."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from mri_vit.kinds.kind import LabelRows, Labels
from mri_vit.metrics.concordance import comparable_pairs, concordances
from mri_vit.metrics.ordinal import within_fold_order
from mri_vit.metrics.within_fold import WithinFold


class OrderedLabels(Labels):
    """Labels with an order; what is judged is the generalised C."""

    symbol, measure = "C", "generalised_c"

    def fold_weights(self, labels: LabelRows, group: Shaped[np.ndarray, " n"]) -> dict[Any, float]:
        """Pairs of patients who differ."""
        return comparable_pairs(-labels[:, 0], np.ones(len(labels), bool), group)

    def figures(
        self,
        labels: LabelRows,
        score: Float[np.ndarray, "b n k"],
        of_all: Float[np.ndarray, "m c"],
        group: Shaped[np.ndarray, " m"],
    ) -> Float[np.ndarray, " b"]:
        return concordances(-labels[:, 0], np.ones(len(labels), bool), expected(score))

    def within(self, labels: LabelRows, score: Float[np.ndarray, "n k"], group: Shaped[np.ndarray, " n"]) -> WithinFold:
        return within_fold_order(labels[:, 0], expected(score), group)

    def count_rarer(self, labels: LabelRows) -> int:
        counts = np.unique(labels[:, 0], return_counts=True)[1]
        return len(labels) - int(counts.max(initial=0))


def expected(score: Float[np.ndarray, "*b k"]) -> Float[np.ndarray, "*b"]:
    """The expected grade of probabilities of grades, counted from 0; a single number is one already."""
    return np.asarray(score[..., 0] if score.shape[-1] == 1 else score @ np.arange(score.shape[-1], dtype=float))
