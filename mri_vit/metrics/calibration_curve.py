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
CELL = 0.2  # of the span's patients, in a cell that is cut no more; R's default
BOX_MARGIN = 0.005  # of the range, by which the outermost cells are wider; R's
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
    """Local quadratic regression of y on x, as R's `loess` gives it with its defaults.

    Definition: at each of g places a quadratic is fitted to the nearest 75 % of the patients by least squares, near ones
    weighing more; its value there is the curve's, and with its slope the curve is drawn to the next place as a cubic (R's
    `surface = "interpolate"`). Places are the ends and halves of the cells into which x is cut, until a cell holds at most 15 %
    of the patients. Where values are too few or too equal for a quadratic, a line or a mean is.
    Formula: weights are (1 - (d/h)³)³ of the distance d, h that of the ⌊0.75 n⌋th nearest of all n patients. h and the places do
    not depend on how often a draw counts each patient, so that it is one smoother for all draws.
    Assumption: the curve is near a quadratic within the reach. Where nearly all values are tied, R differs by its pseudo-inverse.
    Source: Cleveland & Devlin 1988, doi:10.1080/01621459.1988.10478639; Cleveland & Grosse 1991, doi:10.1007/BF01890836, for the
    cells and cubics; R's `loess`, to which a test holds it.

    A parabola is its own curve:

    >>> x = np.arange(8.0)
    >>> print(Loess.of(x, x**2).fit(np.ones((1, 8)), np.array([2.5, 6.0])).round(6))
    [[ 6.25 36.  ]]
    """

    places: Float[np.ndarray, " g"]
    reach: Float[np.ndarray, "g 1"]
    moments: Float[np.ndarray, "5 g n"]  # kernel times distance, in reaches, to the power 0 to 4
    outcome: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], places: Float[np.ndarray, " g"] | None = None) -> Loess:
        """The smoother of `y` on `x`; `places` only to fit each of them directly (R's `surface = "direct"`)."""
        places = _cell_ends(np.sort(x)) if places is None else places
        distance = np.abs(x - places[:, None])  # (g, n)
        nearest = max(int(len(x) * SPAN + 1e-5), 1)  # 1e-5 as in R, against rounding
        reach = np.partition(distance, nearest - 1, axis=1)[:, nearest - 1, None]
        # Where so many share one value that the reach is 0, these alone count.
        u = np.where(reach > 0, (x - places[:, None]) / np.where(reach > 0, reach, 1.0), np.where(distance > 0, 2.0, 0.0))
        near = np.clip(1 - np.abs(u) ** 3, 0, None) ** 3
        u = u.clip(-1, 1)  # beyond it nothing weighs
        return cls(places, reach, np.stack([near * u**power for power in range(5)]), y)

    def fit(self, weight: Float[np.ndarray, "b n"], at: Float[np.ndarray, " t"]) -> Float[np.ndarray, "b t"]:
        """The curve at each of `at`, within the cells, for b sets of weights."""
        value, slope = self.fit_places(weight)
        if len(self.places) < 2:
            return np.repeat(value, len(at), axis=1)
        left = np.clip(np.searchsorted(self.places, at, side="right") - 1, 0, len(self.places) - 2)
        wide = self.places[left + 1] - self.places[left]
        z = (at - self.places[left]) / wide
        begin, end = (1 - z) ** 2 * (1 + 2 * z), z**2 * (3 - 2 * z)  # Hermite's cubics
        rise, fall = z * (1 - z) ** 2 * wide, -(z**2) * (1 - z) * wide
        return value[:, left] * begin + value[:, left + 1] * end + slope[:, left] * rise + slope[:, left + 1] * fall

    def fit_places(self, weight: Float[np.ndarray, "b n"]) -> tuple[Float[np.ndarray, "b g"], Float[np.ndarray, "b g"]]:
        """The fits' values and slopes at the places; 0 where no patient with a weight is within reach."""
        s0, s1, s2, s3, s4 = (weight @ moment.T for moment in self.moments)  # (b, g) each
        t0, t1, t2 = ((weight * self.outcome) @ moment.T for moment in self.moments[:3])
        # The fits' coefficients by Cramer's rule.
        of_first, of_second, of_third = s2 * s4 - s3**2, s2 * s3 - s1 * s4, s1 * s3 - s2**2
        quadratic, line = s0 * of_first + s1 * of_second + s2 * of_third, s0 * s2 - s1**2
        curved, straight = quadratic > SINGULAR_TOL * s0 * s2 * s4, line > SINGULAR_TOL * s0 * s2
        by_parabola, by_line = np.where(curved, quadratic, 1.0), np.where(straight, line, 1.0)
        mean = t0 / np.where(s0 > 0, s0, 1.0)
        value = np.where(straight, (s2 * t0 - s1 * t1) / by_line, mean)
        value = np.where(curved, (of_first * t0 + of_second * t1 + of_third * t2) / by_parabola, value)
        slope = np.where(straight, (s0 * t1 - s1 * t0) / by_line, 0.0)
        tangent = of_second * t0 + (s0 * s4 - s2**2) * t1 + (s1 * s2 - s0 * s3) * t2
        slope = np.where(curved, tangent / by_parabola, slope)
        return value, slope / np.where(self.reach > 0, self.reach, 1.0)[:, 0]


def _cell_ends(line: Float[np.ndarray, " n"]) -> Float[np.ndarray, " g"]:
    """The ends of R's cells of values in rising order: a cell of more patients than `CELL` allows is cut between its halves, or
    next to them where equal values must not be parted.
    """
    first, last = float(line[0]), float(line[-1])
    if first == last:
        return line[:1]
    margin = BOX_MARGIN * max(last - first, 1e-3 * max(abs(first), abs(last)))  # as R's
    most = int(len(line) * SPAN * CELL)
    ends, cells = {first - margin, last + margin}, [(0, len(line) - 1)]
    while cells:
        low, high = cells.pop()
        if high - low + 1 <= max(most, 1):
            continue
        middle = (low + high + 2) // 2 - 1
        apart = np.flatnonzero(line[low:high] < line[low + 1 : high + 1]) + low  # after which a cut may be
        if not len(apart):
            continue
        cut = int(apart[np.lexsort((apart < middle, np.abs(apart - middle)))[0]])  # the nearest, the later of two
        ends.add(float(line[cut]))
        cells += [(low, cut), (cut + 1, high)]
    return np.array(sorted(ends))
