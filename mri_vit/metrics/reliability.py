"""Whether predicted probabilities are the shares that are seen, in bins: truth and probability of n patients in, figures out.

n is the number of patients, c the number of bins that hold a patient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from mri_vit.metrics.checked import Flags, Numbers, numbers, predicted
from mri_vit.metrics.proportion import wilson_interval


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

    Returns
    -------
    Decomposition; all NaN without a patient.

    Raises
    ------
    ValueError for a label other than 0 and 1, a probability that is NaN or outside [0, 1], arrays of unequal length, or bins
    that are not positive.
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

    Returns
    -------
    float in [0, 1]; defined with a single class too; NaN without a patient.

    Raises
    ------
    ValueError for a label other than 0 and 1, a probability that is NaN or outside [0, 1], arrays of unequal length, or bins
    that are not positive.

    Examples
    --------
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

    Returns
    -------
    Reliability, bins in rising order of probability; without a patient, arrays of length 0.

    Raises
    ------
    ValueError for a label other than 0 and 1, a probability that is NaN or outside [0, 1], arrays of unequal length, or bins
    that are not positive.
    """
    truth, probability = predicted(truth, probability)
    bin_of, mean, observed, n = _binned(truth, probability, bins)
    positive = np.bincount(bin_of, weights=truth, minlength=len(n)).astype(int)
    low, high = wilson_interval(positive, n)
    return Reliability(mean, observed, n, low, high)


def quantile_groups(values: Numbers, groups: int) -> Int[np.ndarray, " n"]:
    """Group 0, 1, ... of each value, cut at the quantiles into about equal numbers; equal values share a group.

    Groups that would be empty are not numbered, so every number up to the largest occurs.

    Raises
    ------
    ValueError when a value is NaN or infinite, or groups is not positive.
    """
    values = numbers(values, "values")
    _refuse_no_bins(groups)
    if not len(values):
        return np.zeros(0, dtype=int)
    # method="inverted_cdf" cuts at values that occur; between them, rounding could part equal ones.
    edges = np.quantile(values, np.arange(1, groups) / groups, method="inverted_cdf")
    return np.unique(np.searchsorted(edges, values, side="left"), return_inverse=True)[1]


def _binned(
    truth: Bool[np.ndarray, " n"], probability: Float[np.ndarray, " n"], bins: int
) -> tuple[Int[np.ndarray, " n"], Float[np.ndarray, " c"], Float[np.ndarray, " c"], Int[np.ndarray, " c"]]:
    """Each patient's bin; each bin's mean probability, observed share and number of patients."""
    bin_of = quantile_groups(probability, bins)
    n = np.bincount(bin_of)
    return bin_of, np.bincount(bin_of, weights=probability) / n, np.bincount(bin_of, weights=truth) / n, n


def _refuse_no_bins(bins: int) -> None:
    if bins < 1:
        raise ValueError(f"found {bins} bins; expected at least 1")
