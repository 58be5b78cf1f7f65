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
from mri_vit.metrics.calibration import CalibrationCurve, calibration_line, drawn_ici, log_odds
from mri_vit.metrics.checked import Flags, Numbers, numbers, predicted
from mri_vit.metrics.decision import odds

MOST_STEPS = 100  # of Newton's method; a line that exists takes about ten
SMALLEST_SHARE = 1e-6  # of a step that is shortened
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
    line, curve = calibration_line(truth, probability), CalibrationCurve.of(truth, probability)

    def measures(drawn: Float[np.ndarray, "b n"]) -> Float[np.ndarray, "b measures"]:
        slope, intercept = drawn_lines(truth, probability, drawn, line)
        expected = drawn @ probability
        ratio = (drawn @ truth) / np.where(expected > 0, expected, math.nan)
        single = [drawn @ error / len(truth), slope, intercept, ratio, drawn_ici(curve, drawn)]
        return np.concatenate([np.stack(single, axis=1), drawn @ benefit / len(truth)], axis=1)

    values = distribution(measures, np.zeros(len(truth)), generator, resamples)
    values[:, 1:3] = np.where(np.isnan(values[:, 1:3]).mean(axis=0) > (1 - confidence) / 2, math.nan, values[:, 1:3])
    pairs = [_bounds(values[:, column], confidence) for column in range(5)]
    own_ici = float(drawn_ici(curve, np.ones((1, len(truth))))[0])
    pairs[4] = min(pairs[4][0], own_ici), pairs[4][1]
    low, high = percentile_interval(values[:, 5:], confidence)
    return ProbabilityIntervals(*pairs, net_benefit=(low, high))


def drawn_lines(
    truth: Bool[np.ndarray, " n"], probability: Float[np.ndarray, " n"], drawn: Float[np.ndarray, "b n"], line: Bounds
) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Slope and intercept (`calibration_line`) of each of b draws; `drawn` says how often each patient came up.

    All lines are found together by Newton's method from the patients' own `line`, a step halved where it would raise the
    gradient, which is zero at the maximum alone. NaN where no finite line exists.
    """
    x = log_odds(probability)
    found = np.full((len(drawn), 2), math.nan)
    left = np.flatnonzero(_overlap(truth, x, drawn))
    if not len(left):
        return found[:, 0], found[:, 1]
    middle, spread = float(x.mean()), float(x.std())
    design = np.stack([np.ones(len(x)), (x - middle) / spread])  # (2, n), scaled, so that one tolerance fits every cohort
    slope, intercept = line  # it exists where a draw's does
    at = _Lines.at(np.tile([intercept + slope * middle, slope * spread], (len(left), 1)), design, truth, drawn[left])
    for _ in range(MOST_STEPS):
        flat = np.abs(at.gradient).max(axis=1) < FLAT * at.counts.sum(axis=1)
        found[left[flat]] = at.beta[flat]
        left, at = left[~flat], at.of(~flat)
        if not len(left):
            break
        at = _stepped(at, design, truth)
    return found[:, 1] / spread, found[:, 0] - found[:, 1] / spread * middle


@dataclass(frozen=True)
class _Lines:
    """Lines beta of b draws on the scaled design, what they fit to each patient, and the gradient of the loss."""

    beta: Float[np.ndarray, "b 2"]
    counts: Float[np.ndarray, "b n"]
    fitted: Float[np.ndarray, "b n"]
    gradient: Float[np.ndarray, "b 2"]

    @classmethod
    def at(
        cls,
        beta: Float[np.ndarray, "b 2"],
        design: Float[np.ndarray, "2 n"],
        truth: Bool[np.ndarray, " n"],
        counts: Float[np.ndarray, "b n"],
    ) -> _Lines:
        fitted = expit(beta @ design)
        return cls(beta, counts, fitted, (counts * (fitted - truth)) @ design.T)

    def of(self, rows: np.ndarray) -> _Lines:
        return self if rows.all() else _Lines(*(part[rows] for part in vars(self).values()))


def _stepped(at: _Lines, design: Float[np.ndarray, "2 n"], truth: Bool[np.ndarray, " n"]) -> _Lines:
    """The lines after a step of Newton's, of which each takes the share 1, 1/2, 1/4, ... that does not raise its gradient."""
    curvature, gradient = at.counts * at.fitted * (1 - at.fitted), at.gradient
    a, b, c = curvature.sum(axis=1), curvature @ design[1], curvature @ design[1] ** 2
    step = np.stack([c * gradient[:, 0] - b * gradient[:, 1], a * gradient[:, 1] - b * gradient[:, 0]], axis=1)
    step /= (a * c - b**2)[:, None]
    share, rows, found = 1.0, np.arange(len(step)), _Lines.at(at.beta - step, design, truth, at.counts)
    while share > SMALLEST_SHARE:
        rows = rows[(found.gradient[rows] ** 2).sum(axis=1) > (gradient[rows] ** 2).sum(axis=1)]
        if not len(rows):
            break
        share /= 2
        shorter = _Lines.at(at.beta[rows] - share * step[rows], design, truth, at.counts[rows])
        for part in ("beta", "fitted", "gradient"):
            getattr(found, part)[rows] = getattr(shorter, part)
    return found


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
