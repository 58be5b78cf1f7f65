"""Labels of classes without an order: the name of one, or an empty cell."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from mri_vit.kinds.classes import ClassLabels, from_table, shares
from mri_vit.kinds.kind import LabelRows
from mri_vit.metrics.multiclass import within_fold_m
from mri_vit.metrics.within_fold import WithinFold
from mri_vit.settings.schema import Endpoint


class MulticlassLabels(ClassLabels):
    """Patients of every two classes, compared in pairs."""

    symbol, measure, rarer = "M", "hand_till_m", "patients of the rarest class"

    def arrays(self, people: pd.DataFrame) -> tuple[LabelRows, Float[np.ndarray, "n k"]]:
        return people[["label"]].to_numpy(float), shares(people)

    def completed(self, endpoint: Endpoint, table: Path) -> Endpoint:
        return from_table(endpoint, table) if endpoint.lacks_classes else endpoint

    def needed(self, count: Counter[str]) -> set[str]:
        return set(count)

    def fold_gap(self, count: Counter[str]) -> tuple[str, str] | None:
        return None if len(count) > 1 else ("only one class", "M is undefined there")

    def fold_weights(self, labels: LabelRows, group: Shaped[np.ndarray, " n"]) -> dict[Any, float]:
        """The groups' shares of the pairs of every two classes, which all weigh as much."""
        weight, names = pair_weights(labels[:, 0].astype(int), group), np.unique(group).tolist()
        counts = [np.bincount(labels[group == name, 0].astype(int), minlength=len(weight)) for name in names]
        return {
            name: float((np.triu(np.outer(count, count), 1) * weight).sum()) for name, count in zip(names, counts, strict=True)
        }

    def figures(
        self,
        labels: LabelRows,
        score: Float[np.ndarray, "b n k"],
        of_all: Float[np.ndarray, "m c"],
        group: Shaped[np.ndarray, " m"],
    ) -> Float[np.ndarray, " b"]:
        from scipy.stats import rankdata  # here, because it takes a second to import, and a table needs none of it

        label, weight = labels[:, 0].astype(int), pair_weights(of_all[:, 0].astype(int), group)
        won, pairs = np.zeros(len(score)), 0.0
        for one, other in combinations(np.unique(label).tolist(), 2):
            both = (label == one) | (label == other)
            first = label[both] == one
            m, k = int(first.sum()), int((~first).sum())
            for score_of, of in ((one, first), (other, ~first)):
                count = int(of.sum())
                above = rankdata(score[:, both, score_of], axis=1)[:, of].sum(axis=1) - count * (count + 1) / 2
                won += weight[one, other] * above / 2
            pairs += weight[one, other] * m * k
        return won / pairs if pairs else np.full(len(score), np.nan)

    def within(self, labels: LabelRows, score: Float[np.ndarray, "n k"], group: Shaped[np.ndarray, " n"]) -> WithinFold:
        return within_fold_m(labels[:, 0].astype(int), score, group)

    def untied(self, labels: LabelRows) -> Float[np.ndarray, "n k"]:
        """A column for each class, in orders that have nothing to do with each other."""
        classes = int(labels[:, 0].max(initial=0)) + 1
        return np.random.default_rng(0).permuted(np.tile(np.arange(len(labels), dtype=float), (classes, 1)), axis=1).T

    def count_rarer(self, labels: LabelRows) -> int:
        counts = np.unique(labels[:, 0], return_counts=True)[1]
        return int(counts.min()) if len(counts) > 1 else 0


def pair_weights(label: Int[np.ndarray, " n"], group: Shaped[np.ndarray, " n"]) -> Float[np.ndarray, "g g"]:
    """What a pair within a group weighs in M, by the classes of its two patients, of which the first is lower; 0 without one."""
    counts = np.array([np.bincount(label[group == name], minlength=label.max(initial=0) + 1) for name in np.unique(group)])
    pairs = np.triu(counts.T @ counts, 1).astype(float)
    return np.divide(1.0, pairs * max(int((pairs > 0).sum()), 1), out=np.zeros_like(pairs), where=pairs > 0)


PART = MulticlassLabels()
