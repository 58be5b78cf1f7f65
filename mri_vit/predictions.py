"""The second waist: one table of predictions, whoever made it, and what a predictor must offer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pandas as pd

from mri_vit.errors import UsageError
from mri_vit.volume import write_bytes

if TYPE_CHECKING:
    from mri_vit.cohort import Patient

COLUMNS = ["patient", "model", "repeat", "fold", "endpoint", "score", "truth", "time_days", "event"]
SURVIVAL_COLUMNS = ["patient", "model", "repeat", "fold", "endpoint", "horizon_days", "survival"]
KEY = ["model", "repeat", "endpoint", "patient"]  # a patient is predicted once per model, repeat and endpoint


class Predictor(Protocol):
    """Anything that learns from some patients and predicts others.

    Whatever is learned from data (weights, early stopping, cut-points) is learned inside `fit`;
    `predict` sees no label of the patients that it is given.
    """

    def fit(self, train: Sequence[Patient], tune: Sequence[Patient]) -> None: ...

    def predict(self, patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Two tables: (patient, endpoint, score) and (patient, endpoint, horizon_days, survival).

        `score` is a probability for a binary endpoint and a risk for survival (higher = earlier death);
        `survival` is the probability of being alive at `horizon_days`.
        """
        ...


def save(table: pd.DataFrame, path: Path) -> None:
    """Write a predictions or survival table atomically; 9 digits, which a float32 survives, so equal runs give equal bytes."""
    write_bytes(table.to_csv(index=False, float_format="%.9g", lineterminator="\n").encode(), path)


def load(path: Path) -> pd.DataFrame:
    """Read `predictions.csv`; patient ids stay text, missing truths stay missing.

    Raises UsageError when a column is missing or a patient is predicted twice by one model and repeat.
    """
    table = pd.read_csv(path, dtype={"patient": str, "model": str, "endpoint": str}, keep_default_na=False, na_values=[""])
    missing = [column for column in COLUMNS if column not in table.columns]
    if missing:
        raise UsageError(f"{path}: no column {', '.join(missing)}; expected {', '.join(COLUMNS)}")
    twice = table[table.duplicated(KEY, keep=False)]
    if len(twice):
        rows = [int(index) + 2 for index in twice.index.tolist()[:4]]  # line 1 is the header
        raise UsageError(f"{path}: patient {twice.patient.iloc[0]} is predicted more than once: rows {rows}")
    return table
