"""Observed against predicted: truth and probability of n patients in; the observed share in bins, and a smooth curve, out.

n is the number of patients, c of bins that hold a patient, g of points of the curve, b of sets of weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from mri_vit.metrics.checked import Flags, Numbers, Scores, Truth, numbers, predicted
from mri_vit.metrics.intervals import wilson_interval

SPAN = 0.75  # share of the patients in each local fit; the default of R's loess, as are the quadratic and the tricube
SINGULAR_TOL = 1e-9  # of a determinant whose elements are of order 1: below it too few distinct values hold a curve


@dataclass(frozen=True)
class Decomposition:
    """The Brier score in parts: brier = reliability - resolution + uncertainty + within."""

    reliability: float
    resolution: float
    uncertainty: float
    within: float


@dataclass(frozen=True)
class Reliability:
    """A calibration curve; every array has one entry for each bin that holds a patient."""

    predicted: Float[np.ndarray, " c"]
    observed: Float[np.ndarray, " c"]
    n: Int[np.ndarray, " c"]
    low: Float[np.ndarray, " c"]
    high: Float[np.ndarray, " c"]


def brier_decomposition(truth: Flags, probability: Numbers, bins: int = 10) -> Decomposition:
    """The Brier score as reliability - resolution + uncertainty + within, exactly.

    Definition: with bins of mean probability p_b and observed share y_b, and the prevalence q,
    reliability = mean (p_b - y_b)² (distance from calibration, lower is better), resolution = mean (y_b - q)² (how far the
    bins differ, higher is better), uncertainty = q (1 - q) (of the cohort alone), and within = mean
    (p_i - p_b)² - 2 mean (y_i - y_b)(p_i - p_b): the two terms that binning leaves over, zero when a bin holds one value.
    Means run over patients. Bins hold about equal numbers, and equal probabilities share a bin.
    Assumption: enough patients in a bin; with few, reliability and resolution both come out too large (Bröcker 2012,
    doi:10.1007/s00382-011-1191-1).
    Source: Murphy 1973, doi:10.1175/1520-0450(1973)012<0595:ANVPOT>2.0.CO;2; the terms within bins: Stephenson et al. 2008,
    doi:10.1175/2007WAF2006116.1.
    Returns: Decomposition; all NaN without a patient.
    """
    truth, probability = predicted(truth, probability)
    if not len(truth):
        return Decomposition(math.nan, math.nan, math.nan, math.nan)
    bin_of, mean, observed, _ = _binned(truth, probability, bins)
    expected, seen, prevalence = mean[bin_of], observed[bin_of], float(truth.mean())
    left_over = (probability - expected) ** 2 - 2 * (truth - seen) * (probability - expected)
    return Decomposition(
        reliability=float(((expected - seen) ** 2).mean()),
        resolution=float(((seen - prevalence) ** 2).mean()),
        uncertainty=prevalence * (1 - prevalence),
        within=float(left_over.mean()),
    )


def expected_calibration_error(truth: Flags, probability: Numbers, bins: int = 10) -> float:
    """Expected calibration error (ECE) of the probability of the positive class, over bins of equal width.

    Definition: the mean, over patients, of the distance between their bin's mean probability and its observed share.
    Formula: sum_b n_b / n abs(p_b - y_b), bins (0, 1/B], (1/B, 2/B], ..., the first with 0.
    Assumption: none, but it depends on the bins and is above zero for a perfect model of few patients; compare only at
    equal n and bins.
    Source: Naeini et al. 2015, doi:10.1609/aaai.v29i1.9602; equal width and ten or so bins: Guo et al. 2017, arXiv:1706.04599.
    Returns: float in [0, 1]; defined with a single class too; NaN without a patient.

    >>> truth, probability = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> round(expected_calibration_error(truth, probability), 4)
    0.1375
    """
    truth, probability = predicted(truth, probability)
    _refuse_no_bins(bins)
    if not len(truth):
        return math.nan
    inner = np.arange(1, bins) / bins
    bin_of = np.searchsorted(inner, probability, side="left")  # a probability on an edge belongs to the bin below
    excess = np.bincount(bin_of, weights=probability - truth, minlength=bins)  # n_b (p_b - y_b)
    return float(np.abs(excess).sum() / len(truth))


def reliability_curve(truth: Flags, probability: Numbers, bins: int = 10) -> Reliability:
    """Mean predicted probability against observed share, in bins of about equal numbers.

    Definition: patients are cut at the quantiles of their probability; equal probabilities share a bin, so there may be
    fewer bins than asked for. The interval of a share is Wilson's at 95 %.
    Assumption: patients of a bin are alike enough for one share.
    Source: Van Calster et al. 2016, doi:10.1016/j.jclinepi.2015.12.005; Wilson 1927, doi:10.1080/01621459.1927.10502953.
    Returns: Reliability, bins in rising order of probability; without a patient, arrays of length 0.
    """
    truth, probability = predicted(truth, probability)
    bin_of, mean, observed, n = _binned(truth, probability, bins)
    positive = np.bincount(bin_of, weights=truth, minlength=len(n)).astype(int)
    low, high = wilson_interval(positive, n)
    return Reliability(mean, observed, n, low, high)


def quantile_groups(values: Numbers, groups: int) -> Int[np.ndarray, " n"]:
    """Group 0, 1, ... of each value, cut at the quantiles into about equal numbers; equal values share a group.

    Groups that would be empty are not numbered, so every number up to the largest occurs.
    """
    values = numbers(values, "values")
    _refuse_no_bins(groups)
    if not len(values):
        return np.zeros(0, dtype=int)
    # method="inverted_cdf" cuts at values that occur; between them, rounding could part equal ones.
    edges = np.quantile(values, np.arange(1, groups) / groups, method="inverted_cdf")
    return np.unique(np.searchsorted(edges, values, side="left"), return_inverse=True)[1]


def _binned(
    truth: Truth, probability: Scores, bins: int
) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " c"], Float[np.ndarray, " c"], Int[np.ndarray, " c"]]:
    """Each patient's bin; each bin's mean probability, observed share and number of patients."""
    bin_of = quantile_groups(probability, bins)
    n = np.bincount(bin_of)
    return bin_of, np.bincount(bin_of, weights=probability) / n, np.bincount(bin_of, weights=truth) / n, n


def _refuse_no_bins(bins: int) -> None:
    if bins < 1:
        raise ValueError(f"found {bins} bins; expected at least 1")


@dataclass(frozen=True)
class Loess:
    """Local quadratic regression of y on x, as R's `loess` with its defaults and `surface = "direct"` gives it.

    Definition: at each of g points a quadratic is fitted to the nearest 75 % of the patients by least squares, near ones
    weighing more, and its value there is the curve's. Where values are too few or too equal for a quadratic, a line or a mean is.
    Formula: weights are (1 - (d/h)³)³ of the distance d, h that of the ⌊0.75 n⌋th nearest of all n patients. h does not depend
    on how often a draw counts each patient, so that it is one smoother for all draws.
    Assumption: the curve is near a quadratic within the reach.
    Source: Cleveland & Devlin 1988, doi:10.1080/01621459.1988.10478639; R's `loess`.

    A parabola is its own curve:

    >>> x = np.arange(8.0)
    >>> print(Loess.of(x, x**2, np.array([2.5, 6.0])).fit(np.ones((1, 8))).round(6))
    [[ 6.25 36.  ]]
    """

    moments: Float[np.ndarray, "5 g n"]  # kernel times distance to the power 0 to 4
    outcome: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], at: Float[np.ndarray, " g"]) -> Loess:
        distance = np.abs(x - at[:, None])  # (g, n)
        nearest = max(int(len(x) * SPAN + 1e-5), 1)  # 1e-5 as in R, against rounding
        reach = np.partition(distance, nearest - 1, axis=1)[:, nearest - 1, None]
        # Where so many share one value that the reach is 0, these alone count.
        u = np.where(reach > 0, (x - at[:, None]) / np.where(reach > 0, reach, 1.0), np.where(distance > 0, 2.0, 0.0))
        near = np.clip(1 - np.abs(u) ** 3, 0, None) ** 3
        u = u.clip(-1, 1)  # beyond it nothing weighs
        moments = np.empty((5, *u.shape))  # filled in place: the largest array of a report of many patients
        for power in range(5):
            moments[power] = near * u**power
        return cls(moments, y)

    def fit(self, weight: Float[np.ndarray, "b n"]) -> Float[np.ndarray, "b g"]:
        """The curve at each point for b sets of weights; 0 where no patient with a weight is within reach."""
        s0, s1, s2, s3, s4 = (weight @ moment.T for moment in self.moments)  # (b, g) each
        t0, t1, t2 = ((weight * self.outcome) @ moment.T for moment in self.moments[:3])
        # The fits' values at u = 0, by Cramer's rule.
        of_first, of_second, of_third = s2 * s4 - s3**2, s2 * s3 - s1 * s4, s1 * s3 - s2**2
        quadratic, line = s0 * of_first + s1 * of_second + s2 * of_third, s0 * s2 - s1**2
        curved, straight = quadratic > SINGULAR_TOL * s0 * s2 * s4, line > SINGULAR_TOL * s0 * s2
        parabola = (of_first * t0 + of_second * t1 + of_third * t2) / np.where(curved, quadratic, 1.0)
        chord = (s2 * t0 - s1 * t1) / np.where(straight, line, 1.0)
        return np.where(curved, parabola, np.where(straight, chord, t0 / np.where(s0 > 0, s0, 1.0)))
