"""All that is measured of one model on one binary endpoint: its rows in, a result of `metrics.json` out.

Every resampling starts its own generator from the study's seed, so that models of the same patients share their draws.

n is the number of patients, b the number of bootstrap draws, u the number of distinct scores and one more, g that of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from sklearn.metrics import precision_recall_curve, roc_curve

from mri_vit.metrics import calibration, calibration_curve, decision, discrimination, intervals, within_fold
from mri_vit.metrics.calibration import probability_intervals
from mri_vit.metrics.discrimination import wilson_of_auc
from mri_vit.report.numbers import chance
from mri_vit.report.numbers.chance import Background
from mri_vit.report.numbers.judged import (
    THRESHOLDS,
    averaged,
    by_fold,
    calibration_groups,
    first_repeat,
    flags,
    floats,
    fold_of,
    fold_summary,
    has_folds,
    outside,
    smooth,
    tied,
    widened,
)
from mri_vit.report.schema.binary import (
    AveragePrecision,
    BinaryFigures,
    BinaryFold,
    Brier,
    Calibration,
    OperatingPoint,
    PrecisionRecall,
    Recalibrated,
    Roc,
    Threshold,
)
from mri_vit.report.schema.measured import Caveats, Measurement
from mri_vit.report.schema.parts import NOT_TRAINED_ON, Band, Estimate, Interval, Value
from mri_vit.settings.schema import Endpoint

GRID = np.arange(101) / 100  # false positive rates, whole per cents: finer than a fold of a hundred negatives resolves
RECALIBRATED = "fitted on this cohort's own labels: a description, not a test"
Rates = Float[np.ndarray, "b u"]


def measure(endpoint: Endpoint, rows: pd.DataFrame, background: Background, seed: int) -> Measurement:
    """One model by itself.

    Parameters
    ----------
    rows : as `judged.known_rows` gives them, one for each patient and repeat; at least one.
    background : what the test against chance rests on.
    seed : of the study.
    """
    pooled = averaged(rows)
    truth, score = flags(pooled.truth), floats(pooled.score)
    positives, negatives = int(truth.sum()), int((~truth).sum())
    tested = chance.measure(endpoint, rows, background)
    # Of one repeat: the models of a mean score share their patients.
    inflated = chance.inflation(first_repeat(rows), background.design)
    ranked = within_fold.interval_inflation(tested.judged.value, inflated)
    value = discrimination.auc(truth, score)
    wilson_low, wilson_high = wilson_of_auc(
        value, discrimination.delong_variance(truth, score), positives, negatives, background.design not in NOT_TRAINED_ON
    )
    auc = widened(value, discrimination.delong_interval(truth, score), ranked, least=0.0, most=1.0)
    folds = tuple(_fold(repeat, fold, here) for repeat, fold, here in by_fold(rows))
    figures = BinaryFigures(
        n=len(pooled),
        positive=positives,
        prevalence=float(truth.mean()),
        judged=tested.judged,
        retraining=tested.retraining,
        within_sites=tested.within_sites,
        auc=Estimate(**auc),
        auc_wilson=Interval(low=wilson_low, high=wilson_high),
        auc_within_folds=Value(value=_within(rows)) if has_folds(rows) else None,
        chance_error=discrimination.chance_error(positives, negatives),
        average_precision=_average_precision(truth, score, seed, ranked),
        **vars(of_probabilities(truth, score, seed, inflated) if not outside(score) else OfProbabilities()),
        operating_point=_operating_point(first_repeat(rows)),
        roc=roc(rows, pooled, np.random.default_rng(seed), ranked),
        precision_recall=precision_recall(truth, score),
        folds=folds,
        **vars(fold_summary(folds, [fold.auc for fold in folds])),
        recalibrated=recalibrated(rows) if background.design == "external" else None,
    )
    return Measurement(figures, tested.chance_test, caveats(endpoint, rows))


@dataclass(frozen=True)
class OfProbabilities:
    """Fields of a result that need scores to be probabilities; empty where they are none."""

    brier: Brier | None = None
    calibration: Calibration | None = None
    net_benefit: tuple[float, ...] | None = None
    net_benefit_band: Band | None = None


def of_probabilities(
    truth: Bool[np.ndarray, " n"], probability: Float[np.ndarray, " n"], seed: int, inflated: float
) -> OfProbabilities:
    """Brier score, calibration and net benefit, with intervals by one bootstrap of the patients, `inflated` times as wide.

    O:E and the intercept, which say whether probabilities are right on the whole, are not widened: folds that are stratified by
    label leave nothing there for refitting to scatter (they cover 98 to 100 %, `pipelines/reproduce.py null_studies/beside`).
    """
    sure = probability_intervals(truth, probability, THRESHOLDS, np.random.default_rng(seed))
    observed_to_expected = calibration.observed_to_expected(truth, probability)
    slope, _ = calibration.calibration_line(truth, probability)
    of_slope = widened(slope, sure.slope, inflated)
    scaled = widened(calibration.scaled_brier(truth, probability), sure.scaled, inflated, most=1.0)
    benefit = decision.net_benefit(truth, probability, THRESHOLDS)
    low, high = intervals.widened(benefit, *sure.net_benefit, inflated)
    return OfProbabilities(
        brier=Brier(
            **widened(calibration.brier(truth, probability), sure.brier, inflated, least=0.0, most=1.0),
            **asdict(calibration_curve.brier_decomposition(truth, probability)),
            scaled=Estimate(**scaled),
        ),
        calibration=Calibration(
            **_line(truth, probability),
            slope_interval=Interval(low=of_slope["low"], high=of_slope["high"]),
            intercept_interval=Interval(low=sure.intercept[0], high=sure.intercept[1]),
            observed_to_expected=Estimate(**widened(observed_to_expected, sure.observed_to_expected, 1.0)),
            **smooth(truth.astype(float), probability, seed, inflated),
        ),
        net_benefit=tuple(benefit.tolist()),
        net_benefit_band=Band(low=tuple(low.tolist()), high=tuple(high.clip(None, 1).tolist())),
    )


def caveats(endpoint: Endpoint, rows: pd.DataFrame) -> Caveats:
    """What limits the result."""
    people, once = averaged(rows), first_repeat(rows)
    truth, score = flags(people.truth), floats(people.score)
    value = discrimination.auc(flags(once.truth), floats(once.score))
    both = bool(truth.any() and not truth.all())
    return Caveats(
        tied=tied(score),
        apart=chance.scales_apart(endpoint, rows, value, _within(once)),
        outside=outside(score),
        like_truth=both and bool((score == truth).all()),
        gap=float(score[truth].min() - score[~truth].max()) if both and not outside(score) else math.nan,
        has_cutoffs=False,
    )


def recalibrated(rows: pd.DataFrame) -> Recalibrated | None:
    """Brier score and calibration after logistic recalibration on these same patients; None where it cannot be fitted.

    It shows how the model would look if its scale fitted this cohort. It was fitted on the labels that it is shown with,
    so it is a description and not a test.
    """
    pooled = averaged(rows)
    truth, score = flags(pooled.truth), floats(pooled.score)
    if outside(score):
        return None
    probability = calibration.recalibrated(truth, score)
    if np.isnan(probability).any():
        return None
    return Recalibrated(label=RECALIBRATED, brier=calibration.brier(truth, probability), **_line(truth, probability))


def _line(truth: Bool[np.ndarray, " n"], probability: Float[np.ndarray, " n"]) -> dict[str, Any]:
    """Fields that calibration and recalibration share."""
    slope, intercept = calibration.calibration_line(truth, probability)
    return {
        "slope": slope,
        "intercept": intercept,
        "in_the_large": calibration.calibration_in_the_large(truth, probability),
        "ece": calibration_curve.expected_calibration_error(truth, probability),
        "bins": calibration_groups(calibration_curve.reliability_curve(truth, probability)),
    }


def _average_precision(
    truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"], seed: int, inflated: float
) -> AveragePrecision:
    ends = average_precision_interval(truth, score, np.random.default_rng(seed))
    value = discrimination.average_precision(truth, score)
    return AveragePrecision(**widened(value, ends, inflated, least=0.0, most=1.0), chance=float(truth.mean()))


def _operating_point(rows: pd.DataFrame) -> OperatingPoint | None:
    """The four rates at the thresholds chosen on validation patients; None where the table has no threshold."""
    rows = rows.loc[rows.threshold.notna()]
    if not len(rows):
        return None
    found = decision.operating_point(flags(rows.truth), floats(rows.score) >= floats(rows.threshold))
    thresholds = tuple(
        Threshold(repeat=repeat, fold=fold, threshold=float(here.threshold.iloc[0])) for repeat, fold, here in by_fold(rows)
    )
    return OperatingPoint(
        sensitivity=Estimate(**found.sensitivity._asdict()),
        specificity=Estimate(**found.specificity._asdict()),
        ppv=Estimate(**found.ppv._asdict()),
        npv=Estimate(**found.npv._asdict()),
        thresholds=thresholds,
        own_optimum=sum(_is_own_optimum(here) for _, _, here in by_fold(rows)),
        n=len(rows),
    )


def _is_own_optimum(here: pd.DataFrame) -> bool:
    """Whether no other threshold would part the fold's own classes better, which one chosen elsewhere seldom does."""
    truth, score = flags(here.truth), floats(here.score)
    best = decision.youden_threshold(truth, score)
    if math.isnan(best) or _youden(truth, score, best) <= 0:  # equal scores: every threshold is as good
        return False
    return _youden(truth, score, float(here.threshold.iloc[0])) >= _youden(truth, score, best) - 1e-12


def _youden(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"], threshold: float) -> float:
    """Sensitivity + specificity - 1."""
    return float((score[truth] >= threshold).mean() - (score[~truth] >= threshold).mean())


def _within(rows: pd.DataFrame) -> float:
    return discrimination.auc_within(flags(rows.truth), floats(rows.score), fold_of(rows))


def _fold(repeat: int, fold: int, here: pd.DataFrame) -> BinaryFold:
    positives = int(here.truth.sum())
    return BinaryFold(
        repeat=repeat,
        fold=fold,
        n=len(here),
        positive=positives,
        tied=tied(floats(here.score)),
        auc=discrimination.auc(flags(here.truth), floats(here.score)),
        chance_error=discrimination.chance_error(positives, len(here) - positives),
    )


def roc(rows: pd.DataFrame, pooled: pd.DataFrame, generator: np.random.Generator, inflated: float) -> Roc:
    """True positive rates over a grid of false positive rates: mean and sample deviation over folds, pooled, and its band.

    The mean of folds is vertical averaging (Fawcett 2006, doi:10.1016/j.patrec.2005.10.010). The band holds, at each false
    positive rate, 95 % of the curves of patients drawn with replacement within their class, and is `inflated` times as wide; it
    is pointwise.
    """
    truth, score = flags(pooled.truth), floats(pooled.score)
    folds = [interpolated_roc(flags(here.truth), floats(here.score)) for _, _, here in by_fold(rows)]
    defined = np.array([values for values in folds if not math.isnan(values[0])]).reshape(-1, len(GRID))
    unknown = np.full(len(GRID), math.nan)
    curve = interpolated_roc(truth, score)
    low, high = (end.clip(0, 1) for end in intervals.widened(curve, *band(truth, score, generator), inflated))
    return Roc(
        false_positives=tuple(GRID.tolist()),
        mean=tuple((defined.mean(axis=0) if len(defined) else unknown).tolist()),
        deviation=tuple((defined.std(axis=0, ddof=1) if len(defined) > 1 else unknown).tolist()),
        pooled=tuple(curve.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
    )


def interpolated_roc(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"]) -> Float[np.ndarray, " g"]:
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

    return _band_interval(curves, truth, score, generator)


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
        precision = hits / np.where(called > 0, called, 1.0)  # where no patient is called positive, recall does not step
        return (np.diff(recall, axis=1) * precision).sum(axis=1)

    low, high = _band_interval(average_precision, truth, score, generator)
    return float(low), float(high)


def _band_interval(
    measure: Callable[[Rates, Rates], Float[np.ndarray, "b *measures"]],
    truth: Bool[np.ndarray, " n"],
    score: Float[np.ndarray, " n"],
    generator: np.random.Generator,
) -> tuple[Float[np.ndarray, "*measures"], Float[np.ndarray, "*measures"]]:
    """95 % interval of what is measured of the true and the false positive rates of patients drawn within their class."""
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.r_[np.diff(score[order]) != 0, True])  # equal scores are called positive together
    positive, negative = truth[order], ~truth[order]
    return intervals.interval(
        lambda drawn: measure(_rates(drawn, positive, last), _rates(drawn, negative, last)), negative, generator
    )


def _rates(drawn: Float[np.ndarray, "b n"], here: Bool[np.ndarray, " n"], last: np.ndarray) -> Rates:
    """Share of a class among the first patients up to each of `last`, from no patient called positive to all."""
    shares = np.cumsum(drawn * here, axis=1)[:, last] / here.sum()
    return np.concatenate([np.zeros((len(drawn), 1)), shares], axis=1)
