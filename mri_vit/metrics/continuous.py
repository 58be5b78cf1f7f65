"""How close predicted numbers are to measured ones: value and prediction of n patients in; measures and their intervals out.

n is the number of patients, b of bootstrap resamples; a fold's test patients are a group, scored by one model. How often the
order of two patients is right is in `ordinal.within_fold_order`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from mri_vit.metrics.checked import Drawn, Groups, Numbers, Scores, grouped, measured, numbers, refuse_unequal
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.discrimination import ranks
from mri_vit.metrics.intervals import CONFIDENCE, RESAMPLES, distribution, percentile_interval

TAIL = (1 - CONFIDENCE) / 2  # of an interval's two sides, each
PERFECT = 1e-12  # a correlation that is closer to 1 differs by rounding alone
LEAST_LEFT = 1e-9  # of a leverage's distance from 1: where it is smaller, rounding alone is left of the patient's residual


class Estimate(NamedTuple):
    """A number with its 95 % interval; the ends are NaN where nothing shows how it varies."""

    value: float
    low: float
    high: float


class _Moments(NamedTuple):
    """Sums of x y, x² and y² within a group, and by how much one more of each patient would raise them."""

    sums: Float[np.ndarray, " 3"]
    more: Float[np.ndarray, "3 n"]


def within_fold_correlation(value: Numbers, predicted: Numbers, group: Groups, inflated: float = 1.0) -> Estimate:
    """Pearson's correlation of value and prediction, pooled within groups.

    Definition: both are taken as distances from the mean of their group, so that a model which predicts another level in each
    fold gains nothing by it.
    Formula: r = sum_g Sxy_g / sqrt(sum_g Sxx_g sum_g Syy_g); the interval is tanh(artanh r ± z c sqrt(V) / (1 - r²)), V the sum
    of the squared influences (infinitesimal jackknife) times n / (n - G - 2), G groups, so that it is near Fisher's 1 / (n - 3)
    where one group is normal; c = sqrt(1 + (`inflated`² - 1) (1 - r²)), `inflated` at r = 0 and 1 at r = ±1.
    Assumption: predictions of a group are on one scale; patients are independent; the relation is near a line. Of normal numbers
    the interval covers 93 to 97 % from 80 patients on, and 90 to 93 % of 20.
    Source: Fisher 1921, Metron 1:3; Efron 1982, The Jackknife, the Bootstrap and Other Resampling Plans, chapter 6.
    `inflated`: see `within_fold.inflation`; 1 where no model was trained on these patients.
    Returns: Estimate; NaN where a side does not vary inside any group, as for constant predictions; its ends are NaN where r is 1
    or -1, or n - G - 2 is below 1.

    >>> found = within_fold_correlation(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([1.0, 3.0, 2.0, 5.0, 4.0]), np.zeros(5))
    >>> round(found.value, 3)
    0.8
    """
    return _correlation(value, predicted, group, inflated, _products)


def within_fold_spearman(value: Numbers, predicted: Numbers, group: Groups, inflated: float = 1.0) -> Estimate:
    """Spearman's rank correlation of value and prediction within groups.

    Definition: as `within_fold_correlation`, of the midranks within the group, which are divided by its size, so that a group
    weighs as it has patients.
    Formula: likewise; a patient's influence includes what the patient changes in the ranks of the others.
    Assumption: predictions of a group are on one scale; patients are independent. In groups of few patients it is nearer to 0
    than in large ones.
    Source: Spearman 1904, doi:10.2307/1412159; Croux & Dehon 2010, doi:10.1007/s10260-010-0142-z, for the influences.
    Returns: Estimate, likewise.

    >>> found = within_fold_spearman(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([1.0, 9.0, 2.0, 99.0, 50.0]), np.zeros(5))
    >>> round(found.value, 3)
    0.8
    """
    return _correlation(value, predicted, group, inflated, _rank_products)


def _correlation(
    value: Numbers, predicted: Numbers, group: Groups, inflated: float, moments: Callable[[Scores, Scores], _Moments]
) -> Estimate:
    value, predicted = measured(value, predicted)
    group = grouped(group, len(value))
    sums, more = np.zeros(3), np.zeros((3, len(value)))
    names = np.unique(group)
    for name in names:
        here = group == name
        of_group, more[:, here] = moments(value[here], predicted[here])
        sums += of_group
    if not (sums[1] > 0 and sums[2] > 0):
        return Estimate(math.nan, math.nan, math.nan)
    scale = math.sqrt(sums[1]) * math.sqrt(sums[2])  # of the product, which may be below the least number
    r = min(1.0, max(-1.0, float(sums[0]) / scale))
    left = len(value) - len(names) - 2
    if left < 1 or 1 - abs(r) < PERFECT:
        return Estimate(r, math.nan, math.nan)
    influence = more[0] / scale - r / 2 * (more[1] / sums[1] + more[2] / sums[2])
    error = math.sqrt(float((influence**2).sum()) * len(value) / left) / (1 - r**2)
    reach = Z_95 * error * math.sqrt(1 + (inflated**2 - 1) * (1 - r**2))
    return Estimate(r, math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach))


def _products(value: Scores, predicted: Scores) -> _Moments:
    x, y = _centred(value), _centred(predicted)
    more = np.stack([x * y, x**2, y**2])
    return _Moments(more.sum(axis=1), more)


def _rank_products(value: Scores, predicted: Scores) -> _Moments:
    n = len(value)
    u, v = ((ranks(side) - (n + 1) / 2) / n for side in (value, predicted))
    own = np.stack([u * v, u**2, v**2])
    sums = own.sum(axis=1)
    # One more patient a raises the share of who is at or below i where a is, and lowers it elsewhere.
    others = [_above(value, v) + _above(predicted, u), 2 * _above(value, u), 2 * _above(predicted, v)]
    more = own + (np.stack(others) - 2 * sums[:, None]) / n
    return _Moments(sums, more)


def _above(order: Scores, weight: Scores) -> Float[np.ndarray, " n"]:
    """Of each patient, the summed weight of those who are above in order, one half of it where they are equal."""
    _, place = np.unique(order, return_inverse=True)
    each = np.bincount(place, weights=weight)
    return (each[::-1].cumsum()[::-1] - each / 2)[place]


def _centred(values: Scores) -> Float[np.ndarray, " n"]:
    return values - values.mean() if np.ptp(values) > 0 else np.zeros(len(values))  # a mean of equal numbers may be rounded


def r_squared(value: Numbers, predicted: Numbers, reference: Numbers) -> float:
    """The share of the squared error of the training patients' mean that a model saves.

    Formula: 1 - sum (value - predicted)² / sum (value - reference)². 1 at best, 0 for the mean that each patient's model was
    trained with, and below 0 for predictions that are worse than it. It is not the square of a correlation.
    Assumption: `reference` was known without the patient: [n], the mean of the value over the training patients of the fold. The
    mean of the test patients themselves, which scikit-learn takes, is closer to them, and so R² lower.
    Source: Campbell & Thompson 2008, doi:10.1093/rfs/hhm055 (out-of-sample R²); Hawinkel et al. 2024,
    doi:10.1080/00031305.2023.2216252.
    Returns: float, at most 1; NaN where the reference is without an error, or there is no patient.

    >>> round(r_squared(np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 3.0]), np.full(3, 2.0)), 3)
    0.75
    """
    value, predicted, reference = _with_reference(value, predicted, reference)
    missed = float(((value - reference) ** 2).sum())
    return 1 - float(((value - predicted) ** 2).sum()) / missed if missed > 0 else math.nan


@dataclass(frozen=True)
class Errors:
    """Errors in the unit of the value, and `r_squared`, which has none; `reference_mae` is that of the training mean."""

    mae: Estimate
    rmse: Estimate
    r_squared: Estimate
    reference_mae: Estimate


def errors(
    value: Numbers, predicted: Numbers, reference: Numbers, generator: np.random.Generator, resamples: int = RESAMPLES
) -> Errors:
    """Mean absolute error, root mean squared error and R² of predictions, with intervals of one bootstrap of patients.

    Formula: MAE = mean of abs(value - predicted); RMSE = sqrt(mean (value - predicted)²); R²: see `r_squared`. Intervals are
    percentiles.
    Assumption: patients are independent; the model is taken as given (training is not repeated).
    Source: Willmott & Matsuura 2005, doi:10.3354/cr030079; Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.
    `reference`: [n], the mean of the value over the training patients of each patient's fold.
    Returns: Errors; NaN without a patient, and without ends for one.
    """
    value, predicted, reference = _with_reference(value, predicted, reference)
    n = len(value)
    if not n:
        return Errors(*[Estimate(math.nan, math.nan, math.nan)] * 4)
    missed, missed_by_mean = value - predicted, value - reference
    each = np.stack([np.abs(missed), missed**2, np.abs(missed_by_mean), missed_by_mean**2], axis=1)

    def measures(drawn: Drawn) -> Float[np.ndarray, "b 4"]:
        mae, square, reference_mae, reference_square = (drawn @ each / n).T
        saved = 1 - square / np.where(reference_square > 0, reference_square, math.nan)
        return np.stack([mae, np.sqrt(square), saved, reference_mae], axis=1)

    own = measures(np.ones((1, n)))[0].tolist()
    low, high = percentile_interval(distribution(measures, np.zeros(n), generator, resamples))
    if n == 1:
        low = high = np.full(4, math.nan)
    return Errors(*map(Estimate, own, low.tolist(), high.tolist()))


@dataclass(frozen=True)
class Calibration:
    """The line of the value on the prediction, and the mean of value - predicted."""

    slope: Estimate
    intercept: Estimate
    in_the_large: Estimate


def calibration(value: Numbers, predicted: Numbers) -> Calibration:
    """Whether predictions mean what they say: slope and intercept of the value on the prediction, and calibration in the large.

    Definition: value = intercept + slope × predicted. Slope 1 and intercept 0 are ideal; a slope below 1 means that predictions
    are too extreme, above 1 too near their mean. In the large is the mean of value - predicted: above 0 predictions are too low.
    Formula: least squares; the intervals of the line are ± t sqrt(HC3), t of n - 2 degrees of freedom, so that they do not ask
    for errors of equal spread; in the large ± t s / sqrt(n), t of n - 1, s the sample standard deviation.
    Assumption: miscalibration is a straight line; patients are independent.
    Source: MacKinnon & White 1985, doi:10.1016/0304-4076(85)90158-7 (HC3); Long & Ervin 2000, doi:10.1080/00031305.2000.10474549;
    Van Calster et al. 2019, doi:10.1186/s12916-019-1466-7, for what slope and intercept say.
    Returns: Calibration; the line is NaN where predictions do not vary, and without ends where one patient alone decides on a
    side of it (n = 2, or all but one prediction equal); in the large is without ends for one patient.

    >>> found = calibration(np.array([1.0, 2.0, 4.0, 4.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    >>> print(f"{found.slope.value:.2f}, {found.intercept.value:.2f}, {found.in_the_large.value:.2f}")
    1.10, 0.00, 0.25
    """
    value, predicted = measured(value, predicted)
    slope, intercept = _line(value, predicted)
    return Calibration(slope, intercept, _mean(value - predicted))


def _line(value: Scores, predicted: Scores) -> tuple[Estimate, Estimate]:
    """Slope and intercept with their HC3 intervals."""
    n = len(value)
    if not n or np.ptp(predicted) == 0:
        return Estimate(math.nan, math.nan, math.nan), Estimate(math.nan, math.nan, math.nan)
    middle = float(predicted.mean())
    x = predicted - middle
    spread = float((x**2).sum())
    slope, level = float(x @ value) / spread, float(value.mean())
    intercept = level - slope * middle
    left = 1 - (1 / n + x**2 / spread)  # 1 less the leverage
    if n < 3 or (left < LEAST_LEFT).any():
        return Estimate(slope, math.nan, math.nan), Estimate(intercept, math.nan, math.nan)
    residual = (value - level - slope * x) / left
    reach = float(stdtrit(n - 2, 1 - TAIL)) * np.sqrt(
        [float(((x / spread * residual) ** 2).sum()), float((((1 / n - middle * x / spread) * residual) ** 2).sum())]
    )
    of_slope, of_intercept = reach.tolist()
    return Estimate(slope, slope - of_slope, slope + of_slope), Estimate(
        intercept, intercept - of_intercept, intercept + of_intercept
    )


def _mean(values: Scores) -> Estimate:
    """The mean with its t interval."""
    n = len(values)
    if n < 2:
        return Estimate(float(values.mean()) if n else math.nan, math.nan, math.nan)
    mean, reach = float(values.mean()), float(stdtrit(n - 1, 1 - TAIL)) * float(values.std(ddof=1)) / math.sqrt(n)
    return Estimate(mean, mean - reach, mean + reach)


@dataclass(frozen=True)
class Agreement:
    """Of the differences predicted - value: mean, standard deviation, and the limits between which 95 % of them lie."""

    bias: Estimate
    sd: Estimate
    lower: Estimate
    upper: Estimate


def agreement(value: Numbers, predicted: Numbers) -> Agreement:
    """Bland and Altman's bias and limits of agreement of predicted and measured values, each with its 95 % interval.

    Definition: differences are predicted - value, so that a bias above 0 means predictions that are too high (its sign is the
    other one of `calibration`'s in the large).
    Formula: bias d = mean difference, ± t s / sqrt(n); limits d ± 1.96 s, s the sample standard deviation; the intervals of s and
    of the limits are ± t times the jackknife's standard error. Of normal differences that is Bland and Altman's s sqrt(2.92 / n).
    Of 300 Laplace differences it misses 6 % of limits, an exact normal interval 15 %; of log-normal ones (SD of the logarithm
    0.8) 13 to 18 %, and 41 to 54 %.
    Assumption: differences are independent and do not grow with the value; where they do, those of logarithms may not.
    Source: Bland & Altman 1986, doi:10.1016/S0140-6736(86)90837-8, and 1999, doi:10.1177/096228029900800204; Miller 1974,
    doi:10.1093/biomet/61.1.1, on the jackknife.
    Returns: Agreement; all NaN but the bias with fewer than three patients.

    >>> found = agreement(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 2.0, 4.0, 4.0]))
    >>> print(f"{found.bias.value:.2f}, limits {found.lower.value:.2f} to {found.upper.value:.2f}")
    0.50, limits -0.63 to 1.63
    """
    value, predicted = measured(value, predicted)
    difference = predicted - value
    n, bias = len(difference), _mean(difference)
    if n < 3:
        return Agreement(bias, *[Estimate(math.nan, math.nan, math.nan)] * 3)
    centred = difference - bias.value
    squares = float((centred**2).sum())
    s, without = math.sqrt(squares / (n - 1)), np.sqrt(np.maximum(squares - n / (n - 1) * centred**2, 0) / (n - 2))
    mean = bias.value - centred / (n - 1)  # without each patient, as is `without` of s
    lower, upper = ((bias.value + z * s, mean + z * without) for z in (-Z_95, Z_95))
    return Agreement(bias, _jackknifed(s, without), _jackknifed(*lower), _jackknifed(*upper))


def _jackknifed(value: float, without: Scores) -> Estimate:
    """A figure with its t interval, from the same figure without each patient."""
    n = len(without)
    reach = float(stdtrit(n - 1, 1 - TAIL)) * math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    return Estimate(value, value - reach, value + reach)


def _with_reference(value: Numbers, predicted: Numbers, reference: Numbers) -> tuple[Scores, Scores, Scores]:
    value, predicted = measured(value, predicted)
    reference = numbers(reference, "references")
    refuse_unequal(values=len(value), references=len(reference))
    return value, predicted, reference
