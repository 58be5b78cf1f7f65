"""What is asked of any figure of pooled out-of-fold scores: could chance have made it, and do the folds share a scale?

n is the number of patients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped

from mri_vit.metrics.calibration import Reliability
from mri_vit.metrics.survival import SurvivalCalibration
from mri_vit.report.schema.comparison import Permutation
from mri_vit.report.schema.part import CalibrationGroup

# Below the 0.024 that chance alone gives to an AUC of the 577 pooled patients of Saeed et al. 2023, the two say the same.
MUCH_APART = 0.02


def permutation(
    test: Callable[..., float],
    labels: tuple[np.ndarray, ...],
    score: Float[np.ndarray, " n"],
    group: Shaped[np.ndarray, " n"],
    seed: int,
    permutations: int,
) -> Permutation:
    """One-sided permutation p of doing as well (`p`) and as badly (`p_below`, that of the opposite scores), not yet corrected."""
    above, below = (test(*labels, side, group, np.random.default_rng(seed), permutations) for side in (score, -score))
    return Permutation(p=above, p_adjusted=math.nan, permutations=permutations, p_below=below, p_below_adjusted=math.nan)


@dataclass(frozen=True)
class Apart:
    """A pooled figure and that of pairs within a fold, both of the first repeat, that are far apart."""

    pooled: float
    within: float
    repeats: int  # of the run


@dataclass(frozen=True)
class Caveats:
    """What limits a result beside its figures; `metrics.json` has it in words."""

    tied: bool  # all scores are equal, so that the model does not distinguish any patients
    apart: Apart | None
    outside: int  # scores of a binary endpoint outside 0 to 1
    has_cutoffs: bool  # of a survival endpoint: every patient's risk has a threshold from the training fold


def apart(pooled: float, within: float, repeats: int) -> Apart | None:
    """The two figures where they are far apart; else None.

    Both are of the first repeat alone: a mean over repeats is the score of an ensemble and does better than one model, so that
    over several repeats the two would differ without any difference of scale.
    """
    differ = abs(pooled - within) > MUCH_APART  # false for NaN too: nothing can be said of what is undefined
    return Apart(pooled, within, repeats) if differ else None


def calibration_groups(found: Reliability | SurvivalCalibration) -> tuple[CalibrationGroup, ...]:
    """The points of a calibration curve."""
    columns = (column.tolist() for column in (found.predicted, found.observed, found.low, found.high, found.n))
    return tuple(
        CalibrationGroup(predicted=predicted, observed=observed, low=low, high=high, n=n)
        for predicted, observed, low, high, n in zip(*columns, strict=True)
    )
