"""The points of ROC and precision-recall curves: one model's rows in, points and bootstrap bands out.

n is the number of patients, b the number of bootstrap draws, u the number of distinct scores and one more, g that of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from sklearn.metrics import precision_recall_curve, roc_curve

from mri_vit.metrics import bootstrap
from mri_vit.report.numbers.judged import by_fold, flags, floats
from mri_vit.report.schema.binary import PrecisionRecall, Roc

GRID = np.arange(101) / 100  # false positive rates, whole per cents: finer than a fold of a hundred negatives resolves
Rates = Float[np.ndarray, "b u"]


def roc(rows: pd.DataFrame, pooled: pd.DataFrame, generator: np.random.Generator) -> Roc:
    """True positive rates over a grid of false positive rates: mean and sample deviation over folds, pooled, and its band.

    The mean of folds is vertical averaging (Fawcett 2006, doi:10.1016/j.patrec.2005.10.010). The band holds, at each false
    positive rate, 95 % of the curves of patients drawn with replacement within their class; it is pointwise.
    """
    truth, score = flags(pooled.truth), floats(pooled.score)
    folds = [curve(flags(here.truth), floats(here.score)) for _, _, here in by_fold(rows)]
    defined = np.array([values for values in folds if not math.isnan(values[0])]).reshape(-1, len(GRID))
    unknown = np.full(len(GRID), math.nan)
    low, high = band(truth, score, generator)
    return Roc(
        false_positives=tuple(GRID.tolist()),
        mean=tuple((defined.mean(axis=0) if len(defined) else unknown).tolist()),
        deviation=tuple((defined.std(axis=0, ddof=1) if len(defined) > 1 else unknown).tolist()),
        pooled=tuple(curve(truth, score).tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
    )


def curve(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"]) -> Float[np.ndarray, " g"]:
    """True positive rate at each point of the grid, by scikit-learn's ROC curve; NaN where only one class is present."""
    if not truth.any() or truth.all():
        return np.full(len(GRID), math.nan)
    false_positives, true_positives, _ = roc_curve(truth, score, drop_intermediate=False)
    return np.interp(GRID, false_positives, true_positives)  # at a vertical step: its upper end


def band(
    truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"], generator: np.random.Generator
) -> tuple[Float[np.ndarray, " g"], Float[np.ndarray, " g"]]:
    """Pointwise 95 % band of the ROC curve by a bootstrap of patients, stratified by class; NaN with one class only."""
    if not truth.any() or truth.all():
        return np.full(len(GRID), math.nan), np.full(len(GRID), math.nan)

    def curves(true_positives: Rates, false_positives: Rates) -> Float[np.ndarray, "b g"]:
        return np.stack([np.interp(GRID, x, y) for x, y in zip(false_positives, true_positives, strict=True)])

    return _interval(curves, truth, score, generator)


def precision_recall(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"]) -> PrecisionRecall:
    """Every point of the precision-recall curve, by scikit-learn; no points where only one class is present."""
    if not truth.any() or truth.all():
        return PrecisionRecall(recall=(), precision=())
    precision, recall, _ = precision_recall_curve(truth, score)
    return PrecisionRecall(recall=tuple(recall.tolist()), precision=tuple(precision.tolist()))


def average_precision_interval(
    truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"], generator: np.random.Generator
) -> tuple[float, float]:
    """95 % interval of the average precision by the same bootstrap as the band; (NaN, NaN) with one class only.

    Drawing within the classes keeps the prevalence, which the average precision depends on.
    """
    if not truth.any() or truth.all():
        return math.nan, math.nan

    def average_precision(recall: Rates, false_positives: Rates) -> Float[np.ndarray, " b"]:
        hits, alarms = recall[:, 1:] * truth.sum(), false_positives[:, 1:] * (~truth).sum()
        called = hits + alarms
        precision = hits / np.where(called > 0, called, 1.0)  # where nobody is called, recall does not step either
        return (np.diff(recall, axis=1) * precision).sum(axis=1)

    low, high = _interval(average_precision, truth, score, generator)
    return float(low), float(high)


def _interval(
    measure: Callable[[Rates, Rates], Float[np.ndarray, "b *measures"]],
    truth: Bool[np.ndarray, " n"],
    score: Float[np.ndarray, " n"],
    generator: np.random.Generator,
) -> tuple[Float[np.ndarray, "*measures"], Float[np.ndarray, "*measures"]]:
    """95 % interval of what is measured of the true and the false positive rates of patients drawn within their class."""
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.r_[np.diff(score[order]) != 0, True])  # equal scores are called positive together
    positive, negative = truth[order], ~truth[order]
    return bootstrap.interval(
        lambda drawn: measure(_rates(drawn, positive, last), _rates(drawn, negative, last)), negative, generator
    )


def _rates(drawn: Float[np.ndarray, "b n"], here: Bool[np.ndarray, " n"], last: np.ndarray) -> Rates:
    """Share of a class among the first patients up to each of `last`, from nobody called positive to everybody."""
    shares = np.cumsum(drawn * here, axis=1)[:, last] / here.sum()
    return np.concatenate([np.zeros((len(drawn), 1)), shares], axis=1)
