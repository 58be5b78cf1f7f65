"""How sure measures of probabilities are: truth and probability of n patients in, bootstrap intervals of the measures out.

n is the number of patients, b the number of resamples, t the number of thresholds. All measures are of the same resamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Real
from scipy.special import expit

from mri_vit.metrics.bootstrap import CONFIDENCE, RESAMPLES, distribution, percentile_interval
from mri_vit.metrics.calibration import calibration_line, drawn_ici, log_odds
from mri_vit.metrics.checked import Flags, Numbers, numbers, predicted
from mri_vit.metrics.decision import odds

MOST_STEPS = 100  # of Newton's method; a line that exists takes about ten
SMALLEST_SHARE, ROUNDING = 1e-6, 1e-13  # of a step that is shortened; of a loss that rounding alone raises
FLAT = 1e-10  # of the gradient per patient, as in `calibration_line`

Bounds = tuple[float, float]


@dataclass(frozen=True)
class ProbabilityIntervals:
    """(low, high) of each measure of `calibration` and, threshold by threshold, of the net benefit."""

    brier: Bounds
    slope: Bounds
    intercept: Bounds
    observed_to_expected: Bounds
    ici: Bounds
    net_benefit: tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]


def probability_intervals(
    truth: Flags,
    probability: Numbers,
    thresholds: Real[np.ndarray, " t"],
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> ProbabilityIntervals:
    """Confidence intervals of what is measured of probabilities, by a patient-level percentile bootstrap.

    Definition: patients are drawn freely, not within their class, because the intercept, the O:E ratio and the net benefit
    hang on the prevalence, which is as uncertain as the rest. A resample where a measure is undefined is left out; where more
    than one in forty has no finite calibration line (separated classes, or one class alone), so that a quantile may lie
    among them, slope and intercept get no interval. The reach of the ICI's smoother stays that of all patients; as
    resampling adds waves to the curve, resampled ICIs are larger than that of the patients, and the lower end is not set above
    this. The band of the net benefit is pointwise.
    Assumption: patients are independent; the model is taken as given (training is not repeated).
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.

    Returns
    -------
    ProbabilityIntervals; NaN throughout where only one class is present, as nothing then shows how the outcome varies.

    Raises
    ------
    ValueError for a label other than 0 and 1, a probability that is NaN or outside [0, 1], a threshold outside [0, 1), or
    arrays of unequal length.
    """
    truth, probability = predicted(truth, probability)
    thresholds = numbers(thresholds, "thresholds")
    harm = odds(thresholds)
    if not truth.any() or truth.all():
        nowhere = np.full(len(thresholds), math.nan)
        return ProbabilityIntervals(*[(math.nan, math.nan)] * 5, net_benefit=(nowhere, nowhere))
    error, called = (probability - truth) ** 2, probability[:, None] >= thresholds
    benefit = called * np.where(truth[:, None], 1.0, -harm)  # (n, t): what calling the patient is worth

    def measures(drawn: Float[np.ndarray, "b n"]) -> Float[np.ndarray, "b measures"]:
        slope, intercept = drawn_lines(truth, probability, drawn)
        expected = drawn @ probability
        ratio = (drawn @ truth) / np.where(expected > 0, expected, math.nan)
        single = [drawn @ error / len(truth), slope, intercept, ratio, drawn_ici(truth, probability, drawn)]
        return np.concatenate([np.stack(single, axis=1), drawn @ benefit / len(truth)], axis=1)

    values = distribution(measures, np.zeros(len(truth)), generator, resamples)
    values[:, 1:3] = np.where(np.isnan(values[:, 1:3]).mean(axis=0) > (1 - confidence) / 2, math.nan, values[:, 1:3])
    pairs = [_bounds(values[:, column], confidence) for column in range(5)]
    own_ici = float(drawn_ici(truth, probability, np.ones((1, len(truth))))[0])
    pairs[4] = min(pairs[4][0], own_ici), pairs[4][1]
    low, high = percentile_interval(values[:, 5:], confidence)
    return ProbabilityIntervals(*pairs, net_benefit=(low, high))


def drawn_lines(
    truth: Bool[np.ndarray, " n"], probability: Float[np.ndarray, " n"], drawn: Float[np.ndarray, "b n"]
) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Slope and intercept (`calibration_line`) of each of b draws; `drawn` says how often each patient came up.

    All lines are found together by Newton's method, a step halved where it would raise the loss. NaN where no finite one
    exists.
    """
    x = log_odds(probability)
    found = np.full((len(drawn), 2), math.nan)
    left = np.flatnonzero(_overlap(truth, x, drawn))
    if not len(left):
        return found[:, 0], found[:, 1]
    middle, spread = float(x.mean()), float(x.std())
    z = (x - middle) / spread  # scaled, so that one tolerance fits every cohort
    slope, intercept = calibration_line(truth, probability)  # near the lines of the draws; it exists where a draw's does
    beta = np.tile([intercept + slope * middle, slope * spread], (len(left), 1))
    design = np.stack([np.ones(len(z)), z])  # (2, n)
    for _ in range(MOST_STEPS):
        counts = drawn[left]
        fitted = expit(beta @ design)
        gradient = (counts * (fitted - truth)) @ design.T
        curvature = counts * fitted * (1 - fitted)
        a, b, c = curvature.sum(axis=1), curvature @ z, curvature @ z**2
        flat = np.abs(gradient).max(axis=1) < FLAT * counts.sum(axis=1)
        found[left[flat]] = beta[flat]
        left, beta, counts, gradient = (part[~flat] for part in (left, beta, counts, gradient))
        if not len(left):
            break
        a, b, c = a[~flat], b[~flat], c[~flat]
        step = np.stack([c * gradient[:, 0] - b * gradient[:, 1], a * gradient[:, 1] - b * gradient[:, 0]], axis=1)
        step /= (a * c - b**2)[:, None]
        beta = beta - step * _shortened(beta, step, design, truth, counts)[:, None]
    return found[:, 1] / spread, found[:, 0] - found[:, 1] / spread * middle


def _shortened(
    beta: Float[np.ndarray, "b 2"],
    step: Float[np.ndarray, "b 2"],
    design: Float[np.ndarray, "2 n"],
    truth: Bool[np.ndarray, " n"],
    counts: Float[np.ndarray, "b n"],
) -> Float[np.ndarray, " b"]:
    """The share of each step, 1, 1/2, 1/4, ..., that does not raise the loss."""

    def loss(at: Float[np.ndarray, "c 2"], rows: np.ndarray) -> Float[np.ndarray, " c"]:
        line = at @ design
        return (counts[rows] * (np.logaddexp(0, line) - truth * line)).sum(axis=1)

    share = np.ones(len(beta))
    rows = np.arange(len(beta))
    before = loss(beta, rows)
    while len(rows) and share[rows[0]] > SMALLEST_SHARE:
        worse = loss(beta[rows] - step[rows] * share[rows, None], rows) > before[rows] * (1 + ROUNDING)
        rows = rows[worse]
        share[rows] /= 2
    return share


def _overlap(
    truth: Bool[np.ndarray, " n"], x: Float[np.ndarray, " n"], drawn: Float[np.ndarray, "b n"]
) -> Bool[np.ndarray, " b"]:
    """Whether the classes of a draw overlap on both sides, so that a finite line exists (see `calibration_line`)."""
    positive, negative = (drawn > 0) & truth, (drawn > 0) & ~truth
    # Without one of the classes, both of its ends are infinite on the wrong side, and no overlap is found.
    highest = [np.where(here, x, -math.inf).max(axis=1) for here in (negative, positive)]
    lowest = [np.where(here, x, math.inf).min(axis=1) for here in (positive, negative)]
    return (highest[0] > lowest[0]) & (highest[1] > lowest[1])


def _bounds(values: Float[np.ndarray, " b"], confidence: float) -> Bounds:
    if np.isnan(values).all():
        return math.nan, math.nan
    low, high = percentile_interval(values, confidence)
    return float(low), float(high)
