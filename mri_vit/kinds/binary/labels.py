"""Labels of a binary marker: 0, 1, or an empty cell."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

from mri_vit.kinds.kind import LabelRows, Labels, Scored, Side
from mri_vit.metrics import sample_size
from mri_vit.metrics.decision import Threshold, choose_threshold
from mri_vit.metrics.within_fold import WithinFold, within_fold_auc
from mri_vit.settings.schema import Endpoint


class BinaryLabels(Labels):
    """Positive and negative patients, compared in pairs of one each."""

    symbol, measure, rarer = "AUC", "auc", "patients of the rarer class"
    marked_as, planned_as = "positive", "marker"
    # TERTp 0.79 (meta-analysis, PMID 42265510), PTEN 0.79 (doi:10.1007/s00234-019-02244-7); MGMT is far below
    expected = 0.80

    def read(self, endpoint: Endpoint, column: str, cell: str) -> float:
        if cell not in ("0", "1", "0.0", "1.0"):
            raise ValueError("expected 0, 1, or empty when missing")
        return float(cell)

    def sides(self, endpoint: Endpoint, labels: LabelRows) -> tuple[Side, Side]:
        one, zero = (np.flatnonzero(labels[:, 0] == value).tolist() for value in (1, 0))
        return ("1", f"{endpoint.name} = 1", one), ("0", f"{endpoint.name} = 0", zero)

    def strata(self, endpoint: Endpoint, labels: LabelRows) -> list[str]:
        return [f"{value:.0f}" for value in labels[:, 0]]

    def needed(self, count: Counter[str]) -> set[str]:
        return {"0", "1"}

    def counted(self, endpoint: Endpoint, count: Counter[str]) -> str:
        return f"{count['1']} patients with 1 and {count['0']} with 0"

    def lacking(self, endpoint: Endpoint, count: Counter[str]) -> str:
        return f"patients with {'1' if count['1'] == self.rarest(count) else '0'}"

    unlearnable = "the validation patients are of one class"

    def is_learnable(self, strata: set[str]) -> bool:
        return {"0", "1"} <= strata

    def fold_gap(self, count: Counter[str]) -> tuple[str, str] | None:
        if count["0"] and count["1"]:
            return None
        return "only one class", "its AUC is undefined and left out of the mean"

    def threshold(self, training: Scored, validation: Scored) -> Threshold | None:
        """From which score a patient is called positive, by validation patients of both classes, unseen by the weights."""
        positive = validation.labels[:, 0] == 1
        if positive.all() or not positive.any():
            return None
        return choose_threshold(validation.subjects, positive, validation.scores[:, 0])

    def known_rows(self, endpoint: Endpoint, rows: pd.DataFrame) -> pd.DataFrame:
        rows = super().known_rows(endpoint, rows)
        return rows.assign(truth=rows.truth == 1)

    def fold_weights(self, labels: LabelRows, group: Shaped[np.ndarray, " n"]) -> dict[Any, float]:
        """Pairs of a positive and a negative."""
        positive = labels[:, 0] == 1
        return {
            name: float((positive & (group == name)).sum() * (~positive & (group == name)).sum())
            for name in np.unique(group).tolist()
        }

    def figures(
        self,
        labels: LabelRows,
        score: Float[np.ndarray, "b n k"],
        of_all: Float[np.ndarray, "m c"],
        group: Shaped[np.ndarray, " m"],
    ) -> Float[np.ndarray, " b"]:
        """AUCs, ties counting one half, all at once."""
        from scipy.stats import rankdata  # here, because it takes a second to import, and a table needs none of it

        positive = labels[:, 0] == 1
        count = int(positive.sum())
        above = rankdata(score[:, :, 0], axis=1)[:, positive].sum(axis=1) - count * (count + 1) / 2
        pairs = count * (len(labels) - count)
        return above / pairs if pairs else np.full(len(score), np.nan)

    def within(self, labels: LabelRows, score: Float[np.ndarray, "n k"], group: Shaped[np.ndarray, " n"]) -> WithinFold:
        return within_fold_auc(labels[:, 0] == 1, score[:, 0], group)

    def count_marked(self, labels: LabelRows) -> int:
        return int((labels[:, 0] == 1).sum())

    def count_rarer(self, labels: LabelRows) -> int:
        return min(self.count_marked(labels), len(labels) - self.count_marked(labels))

    def nominal(self, marked: Bool[np.ndarray, " n"]) -> LabelRows:
        return marked[:, None].astype(float)

    def minima(
        self, share: float, expected: float, parameters: int, null_variance: float
    ) -> tuple[sample_size.Minimum, sample_size.ExternalMinimum]:
        r_squared, most = sample_size.r_squared_of_auc(expected, share), sample_size.largest_r_squared(share)
        here = sample_size.development(parameters, r_squared, most, sample_size.marker_risk(share))
        return here, sample_size.external_marker(expected, share)


PART = BinaryLabels()
