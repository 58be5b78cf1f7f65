"""Flatness: whether a network was trained until its tuning loss fell no more, by the evaluations of its training.

Letters: n evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

LAST = 0.2  # of the epochs that were made: a fall in the last fifth asks for more epochs
FALL = 0.01  # of the loss at the start, which knows nothing: less is within what another seed changes


@dataclass(frozen=True)
class Trainings:
    """Fields of a model about its trainings: of how many the tuning loss is known, and of how many it was flat at the end."""

    trainings: int | None
    flat: int | None


def is_flat(epoch: Float[np.ndarray, " n"], tune: Float[np.ndarray, " n"]) -> bool:
    """Whether the tuning loss was no lower in the last fifth of the epochs than the least before it, but for `FALL`.

    Definition: min over epochs up to 4/5 of the last one of `tune` − min over all of `tune` ≤ 0.01, `tune` in shares of the loss
    at the start. A loss that rises at the end is flat, and so is one that never fell: nothing was learned, and more epochs at
    these rates are not what lacks. False where nothing was evaluated before the last fifth.
    Assumption: the learning rate falls to zero at the planned end, which flattens any loss a little; early stopping ends before.
    """
    before = tune[epoch <= (1 - LAST) * epoch.max()]
    return bool(len(before)) and float(before.min() - tune.min()) <= FALL


def trainings(histories: pd.DataFrame, model: str) -> Trainings:
    """How many of a model's trainings are known and how many were flat; None where none is."""
    own = histories.loc[histories.model == model]
    if not len(own):
        return Trainings(None, None)
    each = [is_flat(rows.epoch.to_numpy(float), rows.tune.to_numpy(float)) for _, rows in own.groupby(["repeat", "fold", "seed"])]
    return Trainings(len(each), sum(each))
