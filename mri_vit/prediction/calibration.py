"""Calibration: a run's out-of-fold scores and truths, and the folds' scores of a new patient, go in; a probability comes out.

Letters: r rows (a patient's visits and repeats), n patients, f folds' models, b resamples.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import expit

from mri_vit.metrics.bootstrap import CONFIDENCE, RESAMPLES, counts, percentile_interval
from mri_vit.metrics.calibration import calibration_line, drawn_lines, log_odds
from mri_vit.prediction.document import Calibrated

FEWEST = 10  # of the rarer class: two coefficients at five events each (Vittinghoff & McCulloch 2007, doi:10.1093/aje/kwk052)
SENTENCE = (
    "The share of the marker among patients of the run's cohort whom a fold's model, not trained on them, gave such a score: a"
    " logistic line through {n} patients' out-of-fold scores, applied to each fold's model, mean of {f}. The interval is of the"
    " line alone, by a bootstrap of patients; it holds where the marker is as frequent as there ({share:.0%})."
)


def on_line(slope: float, intercept: float, scores: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Scores on the scale of calibrated probabilities."""
    return expit(intercept + slope * log_odds(scores))


def probability(
    rows: pd.DataFrame, scores: Float[np.ndarray, " f"], generator: np.random.Generator
) -> tuple[Calibrated | None, str | None]:
    """The calibrated probability of a new patient, or None and why there is none.

    Definition: logit P(y = 1) = intercept + slope logit s is fitted to out-of-fold scores s, each by one fold's model, and
    applied to each fold's score of the new patient, which is exchangeable with them; the mean over the folds is given. Applied
    to the mean of the folds' scores, which vary less than one fold's, the same line would claim less than it may; averaged
    afterwards, each part is what was calibrated. A mean of calibrated probabilities is itself too cautious, if anything
    (Ranjan & Gneiting 2010, doi:10.1111/j.1467-9868.2009.00726.x).
    Assumption: the patient comes from the run's population, with its prevalence.
    Source: Cox 1958, doi:10.1093/biomet/45.3-4.562; Steyerberg et al. 2004, doi:10.1002/sim.1844.

    Parameters
    ----------
    rows : the run's own model's rows of `predictions.csv` for one binary endpoint: patient, score, truth (NaN: not known),
        threshold.
    scores : float [f], of the new patient by each fold's model, a mean over its seeds.
    generator : of the bootstrap, which draws patients with all their rows.
    """
    known = rows[rows.truth.notna()]
    truth, score = known.truth.to_numpy(bool), known.score.to_numpy(float)
    patient, names = pd.factorize(known.patient)
    n = len(names)
    positive = int(known.groupby("patient").truth.first().sum())
    if min(positive, n - positive) < FEWEST:
        return None, f"{positive} of {n} patients with a known label are positive; {FEWEST} of either kind are needed"
    if score.min() < 0 or score.max() > 1:
        return None, "the scores are no probabilities"
    slope, intercept = calibration_line(truth, score)
    if math.isnan(slope):
        return None, "the out-of-fold scores separate the two classes without an error, through which no line can be laid"
    drawn = counts(np.zeros(n), generator, RESAMPLES)[:, patient]  # (b, r)
    slopes, intercepts = drawn_lines(truth, score, drawn, (slope, intercept))
    if np.isnan(slopes).mean() > (1 - CONFIDENCE) / 2:  # a quantile may lie among them
        return None, "in too many resamples the out-of-fold scores separate the two classes, so that the line has no interval"
    if float(percentile_interval(slopes)[0]) <= 0:
        return None, "the slope of the line through the out-of-fold scores cannot be told from 0"
    at, each = log_odds(scores), on_line(slope, intercept, scores)  # (f,)
    low, high = percentile_interval(expit(intercepts[:, None] + slopes[:, None] * at).mean(axis=1))
    said = SENTENCE.format(n=n, f="one" if len(scores) == 1 else f"the {len(scores)}", share=positive / n)
    return (
        Calibrated(
            value=float(each.mean()),
            low=float(low),
            high=float(high),
            least=float(each.min()),
            most=float(each.max()),
            threshold=float(on_line(slope, intercept, rows.threshold.to_numpy(float)).mean()),
            slope=slope,
            intercept=intercept,
            n=n,
            positive=positive,
            sentence=said,
        ),
        None,
    )
