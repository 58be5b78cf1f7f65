"""Several runs of one model on the same patients and folds: their spread with an interval, and the difference of two models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mri_vit.metrics.discrimination import wilson_of_auc
from mri_vit.metrics.within_fold import WithinFold
from reproductions.features.probe_results import Versus
from reproductions.run_statistics import over_starts


@dataclass(frozen=True)
class Spread:
    """The mean AUC of runs, their standard deviation with the divisor r - 1 (NaN of one), and the mean's 95 % interval."""

    mean: float
    sd: float
    low: float
    high: float


def spread(runs: Sequence[WithinFold], positives: int, negatives: int) -> Spread:
    """The spread of r runs on patients of whom so many are positive and negative.

    Formula: an AUC is of the pairs within a fold. The interval is `wilson_of_auc`, of a model that was refitted, with the
    variance sum of squares of the patients' mean influences + SD² / r, so that it holds patients and runs.
    """
    values = np.array([run.value for run in runs])
    sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    over_patients = float((np.mean([run.influence for run in runs], axis=0) ** 2).sum())
    variance = over_patients + (sd**2 / len(values) if len(values) > 1 else 0.0)
    mean = float(values.mean())
    low, high = wilson_of_auc(mean, variance, positives, negatives, refits=True)
    return Spread(mean, sd, min(low, mean), max(high, mean))  # Wilson's end is a mean of 1 but for its last bits


def paired(ours: Sequence[WithinFold], theirs: Sequence[WithinFold], inflated: float) -> Versus:
    """The difference of two mean AUCs on the same patients and folds, and the two-sided test that it is zero.

    Formula: over patients the error is `inflated` (see `within_fold.inflation`) times the root of the sum of squared differences
    of mean influences; over runs the spread of one difference for each; interval and p hold both (`over_starts`).
    Assumption: as of `within_fold.compared`; runs of one number begin alike.
    """
    influence = np.mean([a.influence - b.influence for a, b in zip(ours, theirs, strict=True)], axis=0)
    each = np.array([a.value - b.value for a, b in zip(ours, theirs, strict=True)])
    reach, p = over_starts(each, inflated * math.sqrt(float((influence**2).sum())))
    difference, reach = float(each.mean()), math.nan if math.isnan(p) else reach
    return Versus(difference, difference - reach, difference + reach, p, math.nan)
