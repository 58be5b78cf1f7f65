"""How much figures of several groups differ beyond chance, and what one more group will have: values and variances in.

Letters: g groups, such as hospitals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import root_scalar
from scipy.stats import chi2, lognorm, norm

from mri_vit.metrics.comparison import Z_95

STEPS, NEAR = 10_000, 1e-12  # of the iteration for REML; it takes tens, and hundreds where the variances are very unequal
# Of AUCs of one model from cohort to cohort: the distribution of their standard deviation over 469 models for heart disease
# with 1,603 external validations, log-normal on the scale of the AUC: van Leeuwen et al. 2025, doi:10.1002/sim.70011.
ASSUMED_TAU, ASSUMED_TAU_SD = 0.055, 0.015
QUANTILES = 200  # of tau, over which an interval is a mean: its ends are within 0.002 of those of ten times as many
LARGEST, PLACES = 1e4, 500  # of tau², in variances of the values, that is looked at, and at how many; between two it is drawn
# straight on a scale of ratios: 4 % apart


def i_squared(values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"]) -> float:
    """The share of the variation between g groups that is beyond chance, between 0 and 1.

    Formula: max(0, (Q - (g - 1)) / Q), Q = sum_g w_g (x_g - x̄)², w_g = 1 / variance, x̄ the mean weighted by w.
    Assumption: each value is near normal with the variance given. Groups without a variance above 0 are left out.
    Source: Cochran 1954, doi:10.2307/3001666; Higgins & Thompson 2002, doi:10.1002/sim.1186.

    Returns
    -------
    float; NaN with fewer than two groups.

    Examples
    --------
    >>> round(i_squared(np.array([0.6, 0.8]), np.array([0.005, 0.005])), 2)
    0.75
    """
    usable = variances > 0  # false for NaN
    if usable.sum() < 2:
        return math.nan
    values, weights = values[usable], 1 / variances[usable]
    q = float((weights * (values - (weights * values).sum() / weights.sum()) ** 2).sum())
    return max(0.0, (q - (len(values) - 1)) / q) if q else 0.0


@dataclass(frozen=True)
class RandomEffects:
    """The mean of g groups' true values with its standard error, and the standard deviation `tau` of these values."""

    groups: int
    mean: float
    error: float
    tau: float


def random_effects(values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"]) -> RandomEffects:
    """Random-effects meta-analysis of g groups' values, tau by restricted maximum likelihood.

    Formula: the tau² ≥ 0 at which tau² = sum w²((x - x̄)² - v) / sum w² + 1 / sum w, w = 1 / (v + tau²), x̄ weighted by w;
    the error of x̄ is that of Hartung and Knapp, √(max(1, q) / sum w), q = sum w (x - x̄)² / (g - 1); q below 1 is not
    believed, for with few groups it is often chance.
    Assumption: each value is near normal with the variance given, above 0.
    Source: Viechtbauer 2005, doi:10.3102/10769986030003261, for REML; Hartung & Knapp 2001, doi:10.1002/sim.1009; Röver et al.
    2015, doi:10.1186/s12874-015-0091-1, for the limit of q; on logit C: Snell et al. 2018, doi:10.1177/0962280217705678;
    Debray et al. 2019, doi:10.1177/0962280218785504.

    Returns
    -------
    RandomEffects; all NaN but the number of groups with fewer than two.

    Examples
    --------
    >>> found = random_effects(np.array([0.2, 0.9, 0.4, 1.4]), np.array([0.04, 0.05, 0.03, 0.06]))
    >>> print(f"{found.mean:.2f}, tau {found.tau:.2f}")
    0.71, tau 0.48
    """
    groups = len(values)
    if groups < 2:
        return RandomEffects(groups, math.nan, math.nan, math.nan)
    squared = float(np.var(values, ddof=1))
    for _ in range(STEPS):
        weight = 1 / (variances + squared)
        mean = float((weight * values).sum() / weight.sum())
        new = (weight**2 * ((values - mean) ** 2 - variances)).sum() / (weight**2).sum() + 1 / weight.sum()
        before, squared = squared, max(0.0, float(new))
        if abs(squared - before) <= NEAR * (1 + squared):
            break
    weight = 1 / (variances + squared)
    mean = float((weight * values).sum() / weight.sum())
    q = float((weight * (values - mean) ** 2).sum()) / (groups - 1)
    return RandomEffects(groups, mean, math.sqrt(max(1.0, q) / weight.sum()), math.sqrt(squared))


def prediction_interval(values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"]) -> tuple[float, float]:
    """95 % prediction interval of the true value of one more group, for which tau is no better known than it is.

    Formula: the 0.025 and 0.975 quantiles of the mean, over tau's confidence distribution, of normal distributions about x̄(tau)
    with the variance tau² + 1 / sum w(tau). The distribution is that of the tau² at which Q = sum w (x - x̄)², w = 1 / (v +
    tau²), is the 1 - u quantile of chi² with g - 1 degrees of freedom, u uniform; 0 where Q is below it at every tau².
    Assumption: the true values are of a normal distribution, from which the next group's is drawn too.
    Source: Viechtbauer 2007, doi:10.1002/sim.2514, for Q's distribution; Nagashima, Noma & Furukawa 2019,
    doi:10.1177/0962280218773520, for the interval. By simulation (`tests/metrics/test_heterogeneity.py`) it covers 93 to 99 %
    where x̄ ± t √(tau² + error²) with the tau of REML and g - 2 degrees of freedom (Higgins, Thompson & Spiegelhalter 2009,
    doi:10.1111/j.1467-985X.2008.00552.x) covers 84 to 99 %.

    Returns
    -------
    (low, high); both NaN with fewer than three groups.
    """
    groups = len(values)
    if groups < 3:
        return math.nan, math.nan
    largest = LARGEST * (float(np.var(values)) + float(variances.max()))
    looked = np.r_[0.0, np.geomspace(largest * NEAR, largest, PLACES)]
    _, q = _mean_and_q(values, variances, looked)
    wanted = chi2.ppf(1 - _middles(), groups - 1)
    squared = np.interp(-wanted, -q, looked)  # q falls as tau² grows
    mean, _ = _mean_and_q(values, variances, squared)
    deviation = np.sqrt(squared + 1 / (1 / (variances[:, None] + squared)).sum(axis=0))
    return _quantile(mean, deviation, 0.025), _quantile(mean, deviation, 0.975)


def assumed_interval(value: float, low: float, high: float) -> tuple[float, float]:
    """95 % prediction interval of an AUC or C elsewhere, where too few groups say how much it differs between them.

    Formula: the 0.025 and 0.975 quantiles of the mean, over a log-normal tau of mean 0.055 and standard deviation 0.015, of
    normal distributions about `value`, whose variance is that of the interval's side plus tau²; within [0, 1]. The variance of
    a side is ((value - low) / 1.96)², so that the interval holds the one given, which is narrower towards 1.
    Assumption: models of brain MRI differ between hospitals as those for heart disease do, from whose validations this tau is.
    Nothing in the data at hand says so.
    Source: van Leeuwen et al. 2025, doi:10.1002/sim.70011.

    Parameters
    ----------
    low, high : 95 % confidence interval of the value.

    Returns
    -------
    (low, high); both NaN where a number is.
    """
    if math.isnan(value + low + high):
        return math.nan, math.nan
    spread = math.sqrt(math.log(1 + (ASSUMED_TAU_SD / ASSUMED_TAU) ** 2))
    tau = lognorm.ppf(_middles(), spread, scale=ASSUMED_TAU * math.exp(-(spread**2) / 2))
    mean = np.full(QUANTILES, value)
    below, above = (np.hypot(tau, (end - value) / Z_95) for end in (low, high))
    return max(0.0, _quantile(mean, below, 0.025)), min(1.0, _quantile(mean, above, 0.975))


def _middles() -> Float[np.ndarray, " quantiles"]:
    """Shares of a distribution, each in the middle of one of so many equal parts."""
    return (np.arange(QUANTILES) + 0.5) / QUANTILES


def _mean_and_q(
    values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"], squared: Float[np.ndarray, " t"]
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """The weighted mean and Cochran's Q at each of t values of tau²."""
    weight = 1 / (variances[:, None] + squared)
    mean = (weight * values[:, None]).sum(axis=0) / weight.sum(axis=0)
    return mean, (weight * (values[:, None] - mean) ** 2).sum(axis=0)


def _quantile(mean: Float[np.ndarray, " t"], deviation: Float[np.ndarray, " t"], share: float) -> float:
    """A quantile of the mean of t normal distributions."""
    low, high = (float(end) for end in (np.min(mean - 10 * deviation), np.max(mean + 10 * deviation)))  # ten: beyond any share
    return root_scalar(lambda x: float(norm.cdf((x - mean) / deviation).mean()) - share, bracket=(low, high)).root
