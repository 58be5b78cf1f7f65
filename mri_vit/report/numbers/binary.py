"""All that is measured of one model on one binary endpoint: its rows in, the content of `metrics.json` out.

Every resampling starts its own generator from the study's seed, so that models of the same patients share their draws.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.metrics import calibration, decision, delong, discrimination
from mri_vit.report.numbers import points
from mri_vit.report.numbers.judged import averaged, by_fold, first_repeat, flags, floats, fold_of, fold_summary, has_folds, tied
from mri_vit.report.numbers.pooled import nothing_told, permutation, remark

# n is the number of patients

THRESHOLDS = np.arange(1, 100) / 100  # whole per cents: each is a choice of harm against benefit (Vickers & Elkin 2006)
PERMUTATIONS = 9999  # the least p is then 0.0001, so that it survives Holm over a few dozen results


def measure(rows: pd.DataFrame, seed: int) -> dict[str, Any]:
    """One model's result, without what needs the other models (comparison, Holm correction, verdict).

    Parameters
    ----------
    rows : as `judged.known_rows` gives them, one for each patient and repeat; at least one.
    seed : of the study.

    Returns
    -------
    dict, as in `metrics.json`; what is undefined is NaN, what does not apply is None.
    """
    pooled = averaged(rows)
    truth, score = flags(pooled.truth), floats(pooled.score)
    value = discrimination.auc(truth, score)
    low, high = delong.delong_interval(truth, score)
    drawn_low, drawn_high = discrimination.bootstrap_interval(truth, score, np.random.default_rng(seed))
    folds = [_fold(repeat, fold, here) for repeat, fold, here in by_fold(rows)]
    return {
        "n": len(pooled),
        "positive": int(truth.sum()),
        "prevalence": float(truth.mean()),
        "auc": {"value": value, "low": low, "high": high},
        "auc_bootstrap": {"low": drawn_low, "high": drawn_high},
        "auc_within_folds": {"value": _within(rows)} if has_folds(rows) else None,
        "remark": nothing_told(score) or _remark(rows),
        "chance_error": discrimination.chance_error(int(truth.sum()), int((~truth).sum())),
        "permutation": permutation(discrimination.permutation_p, (truth,), score, pooled.group.to_numpy(), seed, PERMUTATIONS),
        "average_precision": _average_precision(truth, score, seed),
        **of_probabilities(truth, score),
        "operating_point": _operating_point(first_repeat(rows)),
        "roc": points.roc(rows, pooled, np.random.default_rng(seed)),
        "precision_recall": points.precision_recall(truth, score),
        "folds": folds,
        **fold_summary(folds, "auc"),
    }


def of_probabilities(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"]) -> dict[str, Any]:
    """Brier score, calibration and net benefit; null, with the reason, where scores are no probabilities."""
    outside = int(((score < 0) | (score > 1)).sum())
    if outside:
        reason = f"{outside} of {len(score)} scores lie outside 0 to 1: they rank patients, but are no probabilities"
        return {"brier": None, "calibration": None, "net_benefit": None, "not_probability": reason}
    brier = {"value": calibration.brier(truth, score), **asdict(calibration.brier_decomposition(truth, score))}
    benefit = decision.net_benefit(truth, score, THRESHOLDS).tolist()
    return {"brier": brier, "calibration": _calibration(truth, score), "net_benefit": benefit, "not_probability": None}


def recalibrated(rows: pd.DataFrame) -> dict[str, Any] | None:
    """Brier score and calibration after logistic recalibration on these same patients; None where it cannot be fitted.

    It shows how the model would look if its scale fitted this cohort. It was fitted on the labels that it is shown with,
    so it is a description and not a test.
    """
    pooled = averaged(rows)
    truth, score = flags(pooled.truth), floats(pooled.score)
    if ((score < 0) | (score > 1)).any():
        return None
    probability = calibration.recalibrated(truth, score)
    if np.isnan(probability).any():
        return None
    label = "fitted on this cohort's own labels: a description, not a test"
    return {"label": label, "brier": calibration.brier(truth, probability), **_calibration(truth, probability)}


def _calibration(truth: Bool[np.ndarray, " n"], probability: Float[np.ndarray, " n"]) -> dict[str, Any]:
    slope, intercept = calibration.calibration_line(truth, probability)
    found = calibration.reliability_curve(truth, probability)
    columns = (found.predicted, found.observed, found.low, found.high, found.n)
    keys = ("predicted", "observed", "low", "high", "n")
    return {
        "slope": slope,
        "intercept": intercept,
        "in_the_large": calibration.calibration_in_the_large(truth, probability),
        "ece": calibration.expected_calibration_error(truth, probability),
        "bins": [dict(zip(keys, values, strict=True)) for values in zip(*(column.tolist() for column in columns), strict=True)],
    }


def _average_precision(truth: Bool[np.ndarray, " n"], score: Float[np.ndarray, " n"], seed: int) -> dict[str, float]:
    low, high = points.average_precision_interval(truth, score, np.random.default_rng(seed))
    value = discrimination.average_precision(truth, score)
    return {"value": value, "low": low, "high": high, "chance": float(truth.mean())}


def _operating_point(rows: pd.DataFrame) -> dict[str, Any] | None:
    """The four rates at the thresholds chosen on tuning patients; None where the table has no threshold."""
    rows = rows.loc[rows.threshold.notna()]
    if not len(rows):
        return None
    found = decision.operating_point(flags(rows.truth), floats(rows.score) >= floats(rows.threshold))
    rates = {name: getattr(found, name)._asdict() for name in ("sensitivity", "specificity", "ppv", "npv")}
    thresholds = [
        {"repeat": repeat, "fold": fold, "threshold": float(here.threshold.iloc[0])} for repeat, fold, here in by_fold(rows)
    ]
    return {**rates, "thresholds": thresholds, "n": len(rows)}


def _within(rows: pd.DataFrame) -> float:
    return discrimination.auc_within(flags(rows.truth), floats(rows.score), fold_of(rows))


def _remark(rows: pd.DataFrame) -> str | None:
    once = first_repeat(rows)
    return remark("AUC", discrimination.auc(flags(once.truth), floats(once.score)), _within(once), rows.repeat.nunique())


def _fold(repeat: int, fold: int, here: pd.DataFrame) -> dict[str, Any]:
    positives = int(here.truth.sum())
    return {
        "repeat": repeat,
        "fold": fold,
        "n": len(here),
        "positive": positives,
        "tied": tied(floats(here.score)),
        "auc": discrimination.auc(flags(here.truth), floats(here.score)),
        "chance_error": discrimination.chance_error(positives, len(here) - positives),
    }
