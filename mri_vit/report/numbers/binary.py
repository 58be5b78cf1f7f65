"""All that is measured of one model on one binary endpoint: its rows in, a result of `metrics.json` out.

Every resampling starts its own generator from the study's seed, so that models of the same patients share their draws.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.metrics import calibration, decision, delong, discrimination
from mri_vit.report.numbers import points
from mri_vit.report.numbers.judged import averaged, by_fold, first_repeat, flags, floats, fold_of, fold_summary, has_folds, tied
from mri_vit.report.numbers.pooled import Caveats, apart, calibration_groups, permutation
from mri_vit.report.schema.binary import (
    AveragePrecision,
    BinaryFold,
    BinaryResult,
    Brier,
    Calibration,
    OperatingPoint,
    Recalibrated,
    Threshold,
)
from mri_vit.report.schema.part import Estimate, Interval, Value

# n is the number of patients

THRESHOLDS = np.arange(1, 100) / 100  # whole per cents: each is a choice of harm against benefit (Vickers & Elkin 2006)
PERMUTATIONS = 9999  # the least p is then 0.0001, so that it survives Holm over a few dozen results


def measure(rows: pd.DataFrame, seed: int) -> BinaryResult:
    """One model's result, without what needs the other models (comparison, Holm correction, verdict) and without words.

    Parameters
    ----------
    rows : as `judged.known_rows` gives them, one for each patient and repeat; at least one.
    seed : of the study.
    """
    pooled = averaged(rows)
    truth, score = flags(pooled.truth), floats(pooled.score)
    low, high = delong.delong_interval(truth, score)
    drawn_low, drawn_high = discrimination.bootstrap_interval(truth, score, np.random.default_rng(seed))
    folds = tuple(_fold(repeat, fold, here) for repeat, fold, here in by_fold(rows))
    summary = fold_summary(folds, [fold.auc for fold in folds])
    are_probabilities = not outside(score)
    return BinaryResult(
        n=len(pooled),
        positive=int(truth.sum()),
        prevalence=float(truth.mean()),
        auc=Estimate(value=discrimination.auc(truth, score), low=low, high=high),
        auc_bootstrap=Interval(low=drawn_low, high=drawn_high),
        auc_within_folds=Value(value=_within(rows)) if has_folds(rows) else None,
        remark=None,
        chance_error=discrimination.chance_error(int(truth.sum()), int((~truth).sum())),
        permutation=permutation(discrimination.permutation_p, (truth,), score, pooled.group.to_numpy(), seed, PERMUTATIONS),
        average_precision=_average_precision(truth, score, seed),
        brier=_brier(truth, score) if are_probabilities else None,
        calibration=_calibration(truth, score) if are_probabilities else None,
        net_benefit=tuple(decision.net_benefit(truth, score, THRESHOLDS).tolist()) if are_probabilities else None,
        not_probability=None,
        operating_point=_operating_point(first_repeat(rows)),
        roc=points.roc(rows, pooled, np.random.default_rng(seed)),
        precision_recall=points.precision_recall(truth, score),
        folds=folds,
        fold_mean=summary.mean,
        fold_variance=summary.variance,
        undefined_folds=summary.undefined,
        tied_folds=summary.tied,
        repeats=summary.repeats,
        recalibrated=None,
        versus_clinical=None,
        versus_own=None,
        verdict="",
        verdict_kind="undefined",
    )


def caveats(rows: pd.DataFrame) -> Caveats:
    """What limits the result."""
    score, once = floats(averaged(rows).score), first_repeat(rows)
    value = discrimination.auc(flags(once.truth), floats(once.score))
    return Caveats(
        tied=tied(score), apart=apart(value, _within(once), rows.repeat.nunique()), outside=outside(score), has_cutoffs=False
    )


def outside(score: Float[np.ndarray, " n"]) -> int:
    """How many scores lie outside 0 to 1, so that scores are no probabilities."""
    return int(((score < 0) | (score > 1)).sum())


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
    return Recalibrated(label="", brier=calibration.brier(truth, probability), **dict(_calibration(truth, probability)))


def _brier(truth: Bool[np.ndarray, " n"], probability: Float[np.ndarray, " n"]) -> Brier:
    parts = asdict(calibration.brier_decomposition(truth, probability))
    return Brier(value=calibration.brier(truth, probability), **parts)


def _calibration(truth: Bool[np.ndarray, " n"], probability: Float[np.ndarray, " n"]) -> Calibration:
    slope, intercept = calibration.calibration_line(truth, probability)
    return Calibration(
        slope=slope,
        intercept=intercept,
        in_the_large=calibration.calibration_in_the_large(truth, probability),
        ece=calibration.expected_calibration_error(truth, probability),
        bins=calibration_groups(calibration.reliability_curve(truth, probability)),
    )


def _average_precision(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"], seed: int) -> AveragePrecision:
    low, high = points.average_precision_interval(truth, score, np.random.default_rng(seed))
    value = discrimination.average_precision(truth, score)
    return AveragePrecision(value=value, low=low, high=high, chance=float(truth.mean()))


def _operating_point(rows: pd.DataFrame) -> OperatingPoint | None:
    """The four rates at the thresholds chosen on tuning patients; None where the table has no threshold."""
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
        n=len(rows),
    )


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
