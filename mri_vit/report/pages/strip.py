"""A patient's score among those of a cohort, as the points of a drawing of fixed size: a row of dots for each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

WIDTH, ROW = 420, 34  # the drawing's own units: its width, and the height of a row of dots
MOST = 400  # dots in a row; of more, every so-many-th by rank, which keeps the shape
GOLDEN = 0.618034  # dots are moved up and down by its multiples, which never line up


@dataclass(frozen=True)
class Strip:
    """Dots by group, the patient's own place, the threshold's, and the ends of the scale in words."""

    groups: Sequence[tuple[str, Sequence[tuple[float, float]]]]  # name, and x and y of each dot
    own: float
    threshold: float | None
    ends: tuple[str, str]
    height: int
    scale: str  # what the scale is of


def strip(rows: pd.DataFrame, kind: str, own: float, threshold: float, scale: str = "score") -> Strip:
    """A drawing from an endpoint's rows of `predictions.csv` (patient, score, truth or event), a score and the threshold.

    A patient of several repeats or visits is one dot, at the mean score.
    """
    column, names = ("truth", ("positive", "negative")) if kind == "binary" else ("event", ("died", "alive at last"))
    people = rows.groupby("patient").agg({"score": "mean", column: "first"})
    flag, scores = people[column], people.score.to_numpy(dtype=float)
    low, high = (
        (0.0, 1.0) if kind == "binary" else (float(min(scores.min(initial=own), own)), float(max(scores.max(initial=own), own)))
    )

    def x(score: float) -> float:
        return round(WIDTH * (score - low) / max(high - low, 1e-9), 1)  # 1e-9: scores that are all the same

    groups = []
    for row, (name, value) in enumerate(zip(names, (1, 0), strict=True)):
        found = np.sort(scores[(flag == value).to_numpy()])
        few = found[np.unique(np.linspace(0, len(found) - 1, min(len(found), MOST)).round().astype(int))] if len(found) else found
        dots = [(x(float(score)), round(ROW * (row + 0.2 + 0.6 * (index * GOLDEN % 1)), 1)) for index, score in enumerate(few)]
        groups.append((f"{name} ({len(found)})", dots))
    at = None if np.isnan(threshold) or not low <= threshold <= high else x(threshold)
    return Strip(groups, x(own), at, (f"{low:.2g}", f"{high:.2g}"), ROW * len(groups), scale)
