"""The one way in which a metric refuses missing values: a clear error with their number, never a quiet result."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def refuse_missing(values: Float[np.ndarray, "*any"], name: str) -> None:
    """Raise a ValueError that says how many of the values called `name` are NaN, if any is."""
    count = int(np.isnan(values).sum())
    if count:
        raise ValueError(f"{count} of {values.size} {name} are NaN; expected a number for every patient")
