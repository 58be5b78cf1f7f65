"""Whether a predicted probability means what it says: truth and probability of n patients in; measures and their intervals out.

n is the number of patients, b of bootstrap resamples, t of thresholds. All intervals are of the same resamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Real
from scipy.optimize import minimize, root_scalar
from scipy.special import expit, logit

from mri_vit.metrics.calibration_curve import Loess
from mri_vit.metrics.checked import Drawn, Flags, Numbers, Scores, Truth, numbers, predicted, probabilities, refuse_unequal
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.decision import odds
from mri_vit.metrics.intervals import CONFIDENCE, RESAMPLES, distribution, percentile_interval, widened

CURVE_POINTS = 41  # at which a calibration curve is drawn, from the least to the largest prediction
PROBABILITY_EPS = 2.0**-23  # single-precision epsilon: networks write 0 and 1 for what lies closer, and a logit needs an inside
MAX_NEWTON_STEPS = 100  # of Newton's method; a line that exists takes about ten
MIN_STEP_SHARE = 1e-6  # of a step that is shortened
GRADIENT_TOL = 1e-10  # of the gradient per patient, as in `calibration_line`
Bounds = tuple[float, float]


def brier(truth: Flags, probability: Numbers) -> float:
    """Brier score: the mean squared distance of probability and outcome.

    Formula: mean of (p_i - y_i)². Lower is better; always predicting the prevalence q gives q (1 - q).
    Assumption: none; the score mixes calibration and discrimination (see `calibration_curve.brier_decomposition`).
    Source: Brier 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2.
    Returns: float in [0, 1]; defined with a single class too; NaN without a patient.

    >>> truth, probability = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> round(brier(truth, probability), 3)
    0.158
    """
    truth, probability = predicted(truth, probability)
    if not len(truth):
        return math.nan
    return float(((probability - truth) ** 2).mean())


def scaled_brier(truth: Flags, probability: Numbers) -> float:
    """Scaled Brier score, or index of prediction accuracy: the share of the null model's Brier score that a model saves.

    Formula: 1 - Brier / (q (1 - q)), q the share of positives among these patients, which the null model gives to each. 1 at
    best, 0 for the null model, below 0 for probabilities that are worse than it.
    Assumption: none. Rank alone does not decide it: probabilities that rank well and are miscalibrated may be below 0.
    Source: Kattan & Gerds 2018, doi:10.1186/s41512-018-0029-2; Steyerberg et al. 2010, doi:10.1097/EDE.0b013e3181c30fb2.
    Returns: float, at most 1; NaN with a single class.

    >>> truth, probability = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> round(scaled_brier(truth, probability), 3)
    0.367
    """
    truth, probability = predicted(truth, probability)
    if not truth.any() or truth.all():
        return math.nan
    return 1 - brier(truth, probability) / float(truth.var())


def calibration_line(truth: Flags, probability: Numbers) -> tuple[float, float]:
    """Calibration slope and intercept: the logistic regression of the outcome on the logit of the probability.

    Definition: logit P(y = 1) = intercept + slope logit p. Slope 1 and intercept 0 are ideal; a slope below 1 means that
    predictions are too extreme. The intercept belongs to the slope; whether predictions are too high or too low on the
    whole is given by `calibration_in_the_large`.
    Formula: maximum likelihood without a penalty. Probabilities are moved into [2^-23, 1 - 2^-23] first.
    Assumption: miscalibration is a straight line on the logit scale.
    Source: Cox 1958, doi:10.1093/biomet/45.3-4.562; Van Calster et al. 2016, doi:10.1016/j.jclinepi.2015.12.005.
    Returns: (slope, intercept); both NaN where no finite maximum exists: one class only, equal probabilities, or classes that
    the probabilities separate without an error.

    >>> truth, probability = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> slope, intercept = calibration_line(truth, probability)
    >>> print(f"{slope:.2f}, {intercept:.2f}")
    1.89, 0.95
    """
    truth, probability = predicted(truth, probability)
    x = log_odds(probability)
    if not truth.any() or truth.all():
        return math.nan, math.nan
    # The maximum exists only where the classes overlap on both sides (Albert & Anderson 1984, doi:10.1093/biomet/71.1.1).
    if not (x[~truth].max() > x[truth].min() and x[truth].max() > x[~truth].min()):
        return math.nan, math.nan
    middle, spread = float(x.mean()), float(x.std())
    design = np.stack([np.ones(len(x)), (x - middle) / spread])  # scaled, so that one tolerance fits every cohort

    def loss(beta: np.ndarray) -> float:
        return float((np.logaddexp(0, beta @ design) - truth * (beta @ design)).mean())

    def gradient(beta: np.ndarray) -> np.ndarray:
        return design @ (expit(beta @ design) - truth) / len(x)

    def hessian(beta: np.ndarray) -> np.ndarray:
        fitted = expit(beta @ design)
        return (design * (fitted * (1 - fitted))) @ design.T / len(x)

    found = minimize(loss, np.zeros(2), jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-10})
    slope = float(found.x[1]) / spread
    return slope, float(found.x[0]) - slope * middle


def slope_interval(truth: Flags, probability: Numbers, inflated: float = 1.0) -> tuple[float, float, float]:
    """The slope of `calibration_line` with its 95 % interval by the information matrix, which needs no bootstrap.

    Formula: slope ± 1.96 c SE, SE² = 1 / sum w (x - x̄)², w = q (1 - q) of the fitted q, x̄ weighted by w; c is `inflated`.
    Source: McCullagh & Nelder 1989, Generalized Linear Models, chapter 4.
    Returns: (slope, low, high); NaN where there is no line.
    """
    truth, probability = predicted(truth, probability)
    slope, intercept = calibration_line(truth, probability)
    if math.isnan(slope):
        return math.nan, math.nan, math.nan
    x = log_odds(probability)
    fitted = expit(intercept + slope * x)
    weight = fitted * (1 - fitted)
    information = float((weight * (x - (weight * x).sum() / weight.sum()) ** 2).sum())
    reach = inflated * Z_95 / math.sqrt(information)
    return slope, slope - reach, slope + reach


def calibration_in_the_large(truth: Flags, probability: Numbers) -> float:
    """Whether predictions are too low (above 0) or too high (below 0) on the whole: the calibration intercept at slope 1.

    Formula: the a that solves sum expit(a + logit p_i) = sum y_i, the maximum likelihood with the slope held at 1.
    Assumption: predictions are off by one constant on the logit scale.
    Source: Cox 1958, doi:10.1093/biomet/45.3-4.562; Steyerberg et al. 2010, doi:10.1097/EDE.0b013e3181c30fb2.
    Returns: float, on the logit scale; NaN when only one class is present, since no finite a will do.
    """
    truth, probability = predicted(truth, probability)
    if not truth.any() or truth.all():
        return math.nan
    x = log_odds(probability)
    target = float(logit(truth.mean()))
    # At these ends every patient's probability lies below, or above, the prevalence: the root is between.
    low, high = target - float(x.max()) - 1, target - float(x.min()) + 1
    return float(root_scalar(lambda a: float(expit(a + x).mean() - truth.mean()), bracket=(low, high), xtol=1e-12).root)


def recalibrated(truth: Flags, probability: Numbers) -> Float[np.ndarray, " n"]:
    """Probabilities after logistic recalibration on these same patients: a description, not a test.

    Definition: expit(intercept + slope logit p) with the `calibration_line` of these patients, so they show how the model
    would look if its scale fitted this cohort. Their calibration is ideal by construction and proves nothing.
    Assumption: as for `calibration_line`.
    Source: Cox 1958, doi:10.1093/biomet/45.3-4.562; Steyerberg et al. 2004, doi:10.1002/sim.1844.
    Returns: float [n]; all NaN where the calibration line is undefined.
    """
    truth, probability = predicted(truth, probability)
    slope, intercept = calibration_line(truth, probability)
    return expit(intercept + slope * log_odds(probability))


def observed_to_expected(truth: Flags, probability: Numbers) -> float:
    """O:E ratio: how many positives there are for each that the probabilities expect.

    Formula: sum y_i / sum p_i. 1 is ideal; above it predictions are too low on the whole, below it too high.
    Assumption: none.
    Source: Debray et al. 2017, doi:10.1136/bmj.i6460.
    Returns: float; NaN where no positive is expected: without a patient, or where every probability is 0.

    >>> truth, probability = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> round(observed_to_expected(truth, probability), 3)
    1.212
    """
    truth, probability = predicted(truth, probability)
    expected = float(probability.sum())
    return float(truth.sum()) / expected if expected > 0 else math.nan


def integrated_calibration_index(truth: Flags, probability: Numbers) -> float:
    """ICI: the mean distance, over patients, of the predicted probability and a smooth calibration curve.

    Formula: mean of abs(c(p_i) - p_i), c the local regression (`calibration_curve.Loess`) of the outcome on the probability,
    drawn between the ends of its cells as R's loess does by default.
    Assumption: the curve is smooth. It is above zero for a perfect model of few patients; compare only at equal n.
    Source: Austin & Steyerberg 2019, doi:10.1002/sim.8281.
    Returns: float; NaN without a patient.
    """
    truth, probability = predicted(truth, probability)
    if not len(truth):
        return math.nan
    return float(drawn_distances(CalibrationCurve.of(truth, probability), np.ones((1, len(truth))))[0, 0])


@dataclass(frozen=True)
class CalibrationCurve:
    """The smooth calibration curve of n patients, to be fitted to any draw of them."""

    probability: Scores
    smoother: Loess

    @classmethod
    def of(cls, observed: Truth | Float[np.ndarray, " n"], probability: Scores) -> CalibrationCurve:
        """`observed`: 0 or 1, or of a survival its pseudo-value (see `survival.pseudo_survival`)."""
        return cls(probability, Loess.of(probability, observed.astype(float)))


def drawn_distances(curve: CalibrationCurve, drawn: Drawn) -> Float[np.ndarray, "b 3"]:
    """ICI, E50 and E90 of each of b bootstrap draws: mean, median and 90th percentile, over patients, of the distance between
    prediction and curve (Austin & Steyerberg 2019). `drawn` says how often each patient came up, as often in each draw.
    """
    distance = np.abs(curve.smoother.fit(drawn, curve.probability) - curve.probability)
    times = np.repeat(distance.ravel(), drawn.ravel().astype(int)).reshape(len(drawn), -1)
    return np.column_stack([times.mean(axis=1), *np.quantile(times, [0.5, 0.9], axis=1)])


@dataclass(frozen=True)
class SmoothCalibration:
    """ICI, E50 and E90 as (value, low, high), and the smooth curve at g predictions with its pointwise 95 % band."""

    ici: tuple[float, float, float]
    e50: tuple[float, float, float]
    e90: tuple[float, float, float]
    predicted: Float[np.ndarray, " g"]
    observed: Float[np.ndarray, " g"]
    low: Float[np.ndarray, " g"]
    high: Float[np.ndarray, " g"]


def smooth_calibration(
    observed: Numbers, probability: Numbers, generator: np.random.Generator, inflated: float = 1.0, resamples: int = RESAMPLES
) -> SmoothCalibration | None:
    """The smooth calibration curve, and how far predictions are from it, with intervals by a bootstrap of patients.

    Definition: see `CalibrationCurve` and `drawn_distances`; intervals and band are percentiles, `inflated` times as wide where
    models were refitted (see `intervals.widened`). The reach of the smoother stays that of all patients; as resampling adds waves
    to the curve, resampled distances are larger than that of the patients, and a lower end is not set above this.
    Where a curve of few patients leaves 0 to 1, it and the distances are cut there.
    Assumption: patients are independent; the curve is smooth.
    Source: Austin & Steyerberg 2019, doi:10.1002/sim.8281; Efron & Tibshirani 1993, chapter 13.
    `observed`: [n], 0 or 1, or of a survival its pseudo-values (`survival.pseudo_survival`).
    Returns: SmoothCalibration, without ends where all outcomes are equal, as nothing then shows how they vary; None without a
    patient.
    """
    observed, probability = numbers(observed, "outcomes"), probabilities(probability)
    refuse_unequal(outcomes=len(observed), predictions=len(probability))
    if not len(observed):
        return None
    curve = CalibrationCurve.of(observed, probability)
    at = np.linspace(probability.min(), probability.max(), CURVE_POINTS)

    def measures(drawn: Drawn) -> Float[np.ndarray, "b measures"]:
        return np.concatenate([drawn_distances(curve, drawn), curve.smoother.fit(drawn, at)], axis=1)

    values = distribution(measures, np.zeros(len(observed)), generator, resamples)
    own = measures(np.ones((1, len(observed))))[0]
    low, high = percentile_interval(values)
    low, high = widened(own, np.minimum(low, own), np.maximum(high, own), inflated)
    low, high = (ends.clip(0, 1) if np.ptp(observed) > 0 else np.full(len(own), math.nan) for ends in (low, high))
    ici, e50, e90 = zip(own[:3].clip(0, 1).tolist(), low[:3].tolist(), high[:3].tolist(), strict=True)
    return SmoothCalibration(ici, e50, e90, at, own[3:].clip(0, 1), low[3:], high[3:])


def log_odds(probability: Scores) -> Float[np.ndarray, " n"]:
    """The logit of probabilities moved into [2^-23, 1 - 2^-23]."""
    return logit(np.clip(probability, PROBABILITY_EPS, 1 - PROBABILITY_EPS))


@dataclass(frozen=True)
class ProbabilityIntervals:
    """(low, high) of each measure of `calibration` and, threshold by threshold, of the net benefit."""

    brier: Bounds
    scaled: Bounds
    slope: Bounds
    intercept: Bounds
    observed_to_expected: Bounds
    net_benefit: tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]


def probability_intervals(
    truth: Flags,
    probability: Numbers,
    thresholds: Real[np.ndarray, " t"],
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
) -> ProbabilityIntervals:
    """Confidence intervals of what is measured of probabilities, by a patient-level percentile bootstrap.

    Definition: patients are drawn freely, not within their class, because the intercept, the O:E ratio and the net benefit
    hang on the prevalence, which is as uncertain as the rest. A resample where a measure is undefined is left out; where more
    than one in forty has no finite calibration line (separated classes, or one class alone), so that a quantile may lie
    among them, slope and intercept get no interval. The null model of the scaled Brier score gives the patients' own share of
    positives on every draw: the share of each draw would always seem the better. The band of the net benefit is pointwise.
    Assumption: patients are independent; the model is taken as given (training is not repeated).
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.
    Returns: ProbabilityIntervals; NaN throughout where only one class is present, as nothing then shows how the outcome varies.
    """
    truth, probability = predicted(truth, probability)
    thresholds = numbers(thresholds, "thresholds")
    harm = odds(thresholds)
    if not truth.any() or truth.all():
        nowhere = np.full(len(thresholds), math.nan)
        return ProbabilityIntervals(*[(math.nan, math.nan)] * 5, net_benefit=(nowhere, nowhere))
    error, called = (probability - truth) ** 2, probability[:, None] >= thresholds
    benefit = called * np.where(truth[:, None], 1.0, -harm)  # (n, t): what calling the patient is worth
    line, null = calibration_line(truth, probability), (truth - truth.mean()) ** 2

    def measures(drawn: Drawn) -> Float[np.ndarray, "b measures"]:
        slope, intercept = drawn_lines(truth, probability, drawn, line)
        expected = drawn @ probability
        ratio = (drawn @ truth) / np.where(expected > 0, expected, math.nan)
        score = drawn @ error / len(truth)
        single = [score, 1 - score / (drawn @ null / len(truth)), slope, intercept, ratio]
        return np.concatenate([np.stack(single, axis=1), drawn @ benefit / len(truth)], axis=1)

    values = distribution(measures, np.zeros(len(truth)), generator, resamples)
    values[:, 2:4] = np.where(np.isnan(values[:, 2:4]).mean(axis=0) > (1 - CONFIDENCE) / 2, math.nan, values[:, 2:4])
    low, high = percentile_interval(values)
    pairs = zip(low[:5].tolist(), high[:5].tolist(), strict=True)
    return ProbabilityIntervals(*pairs, net_benefit=(low[5:], high[5:]))


def drawn_lines(
    truth: Truth, probability: Scores, drawn: Drawn, line: Bounds
) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Slope and intercept (`calibration_line`) of each of b draws; `drawn` says how often each patient came up.

    All lines are found together by Newton's method from the patients' own `line`, a step halved where it would raise the
    gradient, which is zero at the maximum alone. NaN where no finite line exists. A thousand fits one by one take 0.4 to 0.5 s
    where this takes 0.01 to 0.02, some twenty times a report.
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
    for _ in range(MAX_NEWTON_STEPS):
        flat = np.abs(at.gradient).max(axis=1) < GRADIENT_TOL * at.counts.sum(axis=1)
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
        cls, beta: Float[np.ndarray, "b 2"], design: Float[np.ndarray, "2 n"], truth: Truth, counts: Float[np.ndarray, "b n"]
    ) -> _Lines:
        fitted = expit(beta @ design)
        return cls(beta, counts, fitted, (counts * (fitted - truth)) @ design.T)

    def of(self, rows: np.ndarray) -> _Lines:
        return self if rows.all() else _Lines(*(part[rows] for part in vars(self).values()))


def _stepped(at: _Lines, design: Float[np.ndarray, "2 n"], truth: Truth) -> _Lines:
    """The lines after a step of Newton's, of which each takes the share 1, 1/2, 1/4, ... that does not raise its gradient."""
    curvature, gradient = at.counts * at.fitted * (1 - at.fitted), at.gradient
    a, b, c = curvature.sum(axis=1), curvature @ design[1], curvature @ design[1] ** 2
    step = np.stack([c * gradient[:, 0] - b * gradient[:, 1], a * gradient[:, 1] - b * gradient[:, 0]], axis=1)
    step /= (a * c - b**2)[:, None]
    share, rows, found = 1.0, np.arange(len(step)), _Lines.at(at.beta - step, design, truth, at.counts)
    while share > MIN_STEP_SHARE:
        rows = rows[(found.gradient[rows] ** 2).sum(axis=1) > (gradient[rows] ** 2).sum(axis=1)]
        if not len(rows):
            break
        share /= 2
        shorter = _Lines.at(at.beta[rows] - share * step[rows], design, truth, at.counts[rows])
        for part in ("beta", "fitted", "gradient"):
            getattr(found, part)[rows] = getattr(shorter, part)
    return found


def _overlap(truth: Truth, x: Float[np.ndarray, " n"], drawn: Drawn) -> Bool[np.ndarray, " b"]:
    """Whether the classes of a draw overlap on both sides, so that a finite line exists (see `calibration_line`)."""
    positive, negative = (drawn > 0) & truth, (drawn > 0) & ~truth
    # Without one of the classes, both of its ends are infinite on the wrong side, and no overlap is found.
    highest = [np.where(here, x, -math.inf).max(axis=1) for here in (negative, positive)]
    lowest = [np.where(here, x, math.inf).min(axis=1) for here in (positive, negative)]
    return (highest[0] > lowest[0]) & (highest[1] > lowest[1])
