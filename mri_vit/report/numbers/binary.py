"""All that is measured of one model on one binary endpoint: its rows in, a result of `metrics.json` out.

Every resampling starts its own generator from the study's seed, so that models of the same patients share their draws.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.metrics import calibration, calibration_curve, decision, delong, discrimination
from mri_vit.metrics import calibration as calibration_interval
from mri_vit.metrics.delong import auc_interval
from mri_vit.report.numbers import chance, points
from mri_vit.report.numbers.chance import Background
from mri_vit.report.numbers.judged import averaged, by_fold, first_repeat, flags, floats, fold_of, fold_summary, has_folds, tied
from mri_vit.report.numbers.pooled import Caveats, apart, calibration_groups
from mri_vit.report.schema.binary import (
    AveragePrecision,
    Band,
    BinaryFold,
    BinaryResult,
    Brier,
    Calibration,
    OperatingPoint,
    Recalibrated,
    Threshold,
)
from mri_vit.report.schema.part import Estimate, Interval, Value
from mri_vit.settings.endpoint import Endpoint

# n is the number of patients

THRESHOLDS = np.arange(1, 100) / 100  # whole per cents: each is a choice of harm against benefit (Vickers & Elkin 2006)


def measure(endpoint: Endpoint, rows: pd.DataFrame, background: Background, seed: int) -> BinaryResult:
    """One model's result, without what needs the other models (comparison, Holm correction, verdict) and without words.

    Parameters
    ----------
    rows : as `judged.known_rows` gives them, one for each patient and repeat; at least one.
    background : what the test against chance rests on.
    seed : of the study.
    """
    pooled = averaged(rows)
    truth, score = flags(pooled.truth), floats(pooled.score)
    wilson_low, wilson_high = auc_interval(truth, score)
    found = chance.measure(endpoint, rows, background)
    low, high = delong.delong_interval(truth, score)
    drawn_low, drawn_high = discrimination.bootstrap_interval(truth, score, np.random.default_rng(seed))
    folds = tuple(_fold(repeat, fold, here) for repeat, fold, here in by_fold(rows))
    summary = fold_summary(folds, [fold.auc for fold in folds])
    return BinaryResult(
        n=len(pooled),
        positive=int(truth.sum()),
        prevalence=float(truth.mean()),
        judged=found.judged,
        auc=Estimate(value=discrimination.auc(truth, score), low=low, high=high),
        auc_wilson=Interval(low=wilson_low, high=wilson_high),
        auc_bootstrap=Interval(low=drawn_low, high=drawn_high),
        auc_within_folds=Value(value=_within(rows)) if has_folds(rows) else None,
        remark=None,
        chance_error=discrimination.chance_error(int(truth.sum()), int((~truth).sum())),
        chance_test=found.chance_test,
        retraining=found.retraining,
        within_sites=found.within_sites,
        too_good=None,
        average_precision=_average_precision(truth, score, seed),
        **vars(of_probabilities(truth, score, seed) if not outside(score) else OfProbabilities()),
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
        versus_controls={},
        versus_best=None,
        versus_own=None,
        verdict="",
        verdict_kind="undefined",
    )


@dataclass(frozen=True)
class OfProbabilities:
    """Fields of a result that need scores to be probabilities; empty where they are none."""

    brier: Brier | None = None
    calibration: Calibration | None = None
    net_benefit: tuple[float, ...] | None = None
    net_benefit_band: Band | None = None


def of_probabilities(truth: Bool[np.ndarray, " n"], probability: Float[np.ndarray, " n"], seed: int) -> OfProbabilities:
    """Brier score, calibration and net benefit, with intervals by one bootstrap of the patients."""
    sure = calibration_interval.probability_intervals(truth, probability, THRESHOLDS, np.random.default_rng(seed))
    observed_to_expected = calibration.observed_to_expected(truth, probability)
    ici = calibration.integrated_calibration_index(truth, probability)
    low, high = sure.net_benefit
    return OfProbabilities(
        brier=Brier(
            **_estimate(calibration.brier(truth, probability), sure.brier),
            **asdict(calibration_curve.brier_decomposition(truth, probability)),
        ),
        calibration=Calibration(
            **_line(truth, probability),
            slope_interval=Interval(low=sure.slope[0], high=sure.slope[1]),
            intercept_interval=Interval(low=sure.intercept[0], high=sure.intercept[1]),
            observed_to_expected=Estimate(**_estimate(observed_to_expected, sure.observed_to_expected)),
            ici=Estimate(**_estimate(ici, sure.ici)),
        ),
        net_benefit=tuple(decision.net_benefit(truth, probability, THRESHOLDS).tolist()),
        net_benefit_band=Band(low=tuple(low.tolist()), high=tuple(high.tolist())),
    )


def caveats(rows: pd.DataFrame) -> Caveats:
    """What limits the result."""
    people, once = averaged(rows), first_repeat(rows)
    truth, score = flags(people.truth), floats(people.score)
    value = discrimination.auc(flags(once.truth), floats(once.score))
    both = bool(truth.any() and not truth.all())
    return Caveats(
        tied=tied(score),
        apart=apart(value, _within(once), rows.repeat.nunique()),
        outside=outside(score),
        like_truth=both and bool((score == truth).all()),
        gap=float(score[truth].min() - score[~truth].max()) if both and not outside(score) else math.nan,
        has_cutoffs=False,
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
    return Recalibrated(label="", brier=calibration.brier(truth, probability), **_line(truth, probability))


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


def _estimate(value: float, ends: tuple[float, float]) -> dict[str, float]:
    return {"value": value, "low": ends[0], "high": ends[1]}


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
