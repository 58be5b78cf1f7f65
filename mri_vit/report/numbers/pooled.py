"""What is asked of any figure of pooled out-of-fold scores: do the folds share a scale, and what else limits it?"""

from __future__ import annotations

from dataclasses import dataclass

from mri_vit.metrics.calibration_curve import Reliability
from mri_vit.metrics.survival import SurvivalCalibration
from mri_vit.report.schema.part import CalibrationGroup

# Below the 0.024 that chance alone gives to an AUC of the 577 pooled patients of Saeed et al. 2023, the two say the same.
MUCH_APART = 0.02


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
    like_truth: bool  # the score is the label itself, or every risk follows the order of the deaths
    gap: float  # of probabilities: the least of a positive less the largest of a negative; NaN where there is none to take
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
