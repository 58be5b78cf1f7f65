"""Labels of grades: the name of one, in the order of the study file, or an empty cell."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from mri_vit.kinds.classes import ClassLabels
from mri_vit.kinds.kind import LabelRows, Side
from mri_vit.metrics.concordance import comparable_pairs, concordances
from mri_vit.metrics.ordinal import within_fold_order
from mri_vit.metrics.within_fold import WithinFold
from mri_vit.settings.schema import Endpoint


class OrdinalLabels(ClassLabels):
    """Patients of different grade, compared in pairs."""

    symbol, measure, rarer = "C", "generalised_c", "patients beside the commonest grade"

    def sides(self, endpoint: Endpoint, labels: LabelRows) -> tuple[Side, Side]:
        """The highest grade that occurs and the lowest."""
        ends = [int(labels[:, 0].max(initial=0)), int(labels[:, 0].min(initial=len(endpoint.classes or ()) - 1))]
        names = [(endpoint.classes or ())[end] for end in ends]
        rows = [np.flatnonzero(labels[:, 0] == end).tolist() for end in ends]
        return ("high", f"{endpoint.name} {names[0]}", rows[0]), ("low", f"{endpoint.name} {names[1]}", rows[1])

    def needed(self, count: Counter[str]) -> set[str]:
        """The two commonest grades: a fold without a rare one still has pairs."""
        return {stratum for stratum, _ in count.most_common(2)}

    def fold_gap(self, count: Counter[str]) -> tuple[str, str] | None:
        return None if len(count) > 1 else ("only one grade", "C is undefined there")

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
    return score[..., 0] if score.shape[-1] == 1 else score @ np.arange(score.shape[-1], dtype=float)


PART = OrdinalLabels()
