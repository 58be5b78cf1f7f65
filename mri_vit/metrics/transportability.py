"""Other cohorts: drift of calibration from one to another, and how far figures differ between hospitals beyond chance.

Drift takes both cohorts' truths and probabilities and gives each measure in both, and the difference, with bootstrap
intervals. Heterogeneity takes figures of g hospitals with their variances. Times are in days; event is True for a death. n is
the number of patients of a cohort, b that of resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import root_scalar
from scipy.special import ndtr
from scipy.stats import chi2, lognorm
from scipy.stats import t as student

from mri_vit.metrics.calibration import calibration_line, drawn_lines
from mri_vit.metrics.checked import Days, Drawn, Events, Flags, Numbers, followed, numbers, predicted, refuse_unequal
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.competing_risks import drawn_incidence
from mri_vit.metrics.interaction import cochran_q, mean_and_q
from mri_vit.metrics.intervals import CONFIDENCE, RESAMPLES, distribution, percentile_interval

REML_ITERATIONS, REML_TOL = 10_000, 1e-12  # it takes tens, and hundreds where the variances are very unequal
# Of AUCs of one model from cohort to cohort: the distribution of their standard deviation over 469 models for heart disease
# with 1,603 external validations, log-normal on the scale of the AUC: van Leeuwen et al. 2025, doi:10.1002/sim.70011.
ASSUMED_TAU, ASSUMED_TAU_SD = 0.055, 0.015
MEAN_NODES = (
    50  # of Gauss and Legendre, over the quantiles of the mean at one tau: ends within 0.001 of those of ten times as many
)
TAU_QUANTILES = 200  # of tau, over which an interval is a mean: its ends are within 0.002 of those of ten times as many
# tau² is looked at up to so many variances of the values, at so many points 4 % apart, and interpolated between
MAX_TAU_RATIO, TAU_POINTS = 1e4, 500

Measures = Callable[[Float[np.ndarray, "b n"]], Float[np.ndarray, "b measures"]]
Ends = tuple[float, float, float]  # a value, and the low and the high end of its 95 % interval


@dataclass(frozen=True)
class Cohort:
    """One cohort's measures: how many patients, what takes draws of them to a column for each measure, and whether any varies."""

    n: int
    measures: Measures
    varies: bool  # whether some have the outcome and some have not; else resamples would all agree


@dataclass(frozen=True)
class Drift:
    """One measure in the first cohort, in the other, and the other's less the first's."""

    inside: Ends
    outside: Ends
    difference: Ends


def of_markers(truth: Flags, probability: Numbers) -> Cohort:
    """Calibration slope, intercept, O:E ratio and excess of one cohort's probabilities of a binary outcome.

    Formula: slope and intercept as by `calibration.calibration_line`; O:E = sum y_i / sum p_i; excess = mean of p_i - y_i, by
    which the probabilities run too high. A draw has no slope and intercept where no finite line exists, and where one in forty
    has none, the interval has no ends, for a quantile may lie among them. Of one class nothing has ends, and no slope is
    defined: nothing then shows how the outcome varies.
    Source: Van Calster et al. 2016, doi:10.1016/j.jclinepi.2015.12.005; Debray et al. 2017, doi:10.1136/bmj.i6460.
    """
    truth, probability = predicted(truth, probability)
    line = calibration_line(truth, probability)

    def measures(drawn: Drawn) -> Float[np.ndarray, "b measures"]:
        slope, intercept = drawn_lines(truth, probability, drawn, line)
        return np.column_stack([slope, intercept, *_whole(drawn @ truth, drawn @ probability, len(truth))])

    return Cohort(len(truth), measures, bool(truth.any() and not truth.all()))


def of_survival(time_days: Numbers, event: Flags, alive: Numbers, at_day: float, other: Flags | None = None) -> Cohort:
    """O:E ratio and excess of one cohort's probabilities to die by a day, with `alive` the probabilities to live.

    Formula: as for markers, the observed share being 1 - S(day), S the Kaplan-Meier curve; where another event may come first,
    `other`, the cumulative incidence (`competing_risks.cumulative_incidence`).
    Assumption: censoring is unrelated to survival.
    Source: Debray et al. 2019, doi:10.1177/0962280218785504, for O:E with censoring.
    """
    time_days, event = followed(time_days, event)
    alive = numbers(alive, "probabilities of survival")
    refuse_unequal(times=len(time_days), probabilities=len(alive))
    last = time_days.max(initial=0)
    ended = event if other is None else event | other
    beyond = at_day > last and not ended[time_days == last].all()  # no patient was followed up to that day

    def measures(drawn: Drawn) -> Float[np.ndarray, "b measures"]:
        died = (
            1 - drawn_survival(time_days, event, drawn, at_day)
            if other is None
            else drawn_incidence(time_days, event, other, drawn, np.array([at_day]))[:, 0]
        )
        observed = np.full(len(drawn), math.nan) if beyond else died * len(alive)
        return np.column_stack(_whole(observed, drawn @ (1 - alive), len(alive)))

    return Cohort(len(alive), measures, bool((event & (time_days <= at_day)).any() and (time_days > at_day).any()))


def drawn_survival(time_days: Days, event: Events, drawn: Drawn, at_day: float) -> Float[np.ndarray, " b"]:
    """The Kaplan-Meier survival at a day of each of b draws; `drawn` says how often each patient came up."""
    days = np.unique(time_days[event & (time_days <= at_day)])
    at_risk = drawn @ (time_days[:, None] >= days)  # (b, days)
    died = drawn @ ((time_days[:, None] == days) & event[:, None])
    return (1 - died / np.where(at_risk > 0, at_risk, 1)).prod(axis=1)


def drift(inside: Cohort, outside: Cohort, seed: int, resamples: int = RESAMPLES) -> tuple[Drift, ...]:
    """Each measure of two cohorts without a patient in common, and the outside's less the inside's.

    Definition: either cohort's patients are drawn with replacement, independently of the other's; the difference's interval
    runs between the quantiles of the differences of draws.
    Assumption: patients are independent; the model is taken as given. Out-of-fold scores of the first cohort are taken as one
    model's.
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 8.
    Returns: A Drift for each of the cohorts' measures; the ends are NaN where more than one in forty draws is undefined.

    Half of those who are given 0.5 are positive in the one, a quarter in the other:

    >>> half = np.full(40, 0.5)
    >>> found = drift(of_markers(np.arange(40) % 2, half), of_markers(np.arange(40) % 4 == 0, half), seed=0)
    >>> print(f"{found[3].difference[0]:.2f}")
    0.25
    """
    values = [cohort.measures(np.ones((1, cohort.n)))[0] for cohort in (inside, outside)]
    draws = [
        distribution(cohort.measures, np.zeros(cohort.n), np.random.default_rng([seed, stream]), resamples)
        for stream, cohort in enumerate((inside, outside))
    ]
    draws = [one if cohort.varies else np.full_like(one, math.nan) for one, cohort in zip(draws, (inside, outside), strict=True)]
    rows = [_with_ends(*one) for one in zip(values, draws, strict=True)]
    rows.append(_with_ends(values[1] - values[0], draws[1] - draws[0]))
    return tuple(Drift(*each) for each in zip(*rows, strict=True))


def _with_ends(value: Float[np.ndarray, " m"], draws: Float[np.ndarray, "b m"]) -> list[Ends]:
    """Each measure's value with its percentile interval."""
    undefined = np.isnan(value) | (np.isnan(draws).mean(axis=0) > (1 - CONFIDENCE) / 2)
    low, high = percentile_interval(np.where(undefined, 0.0, draws))
    ends = np.where(undefined, math.nan, np.stack([low, high]))
    return [(float(one), float(a), float(b)) for one, a, b in zip(value, *ends, strict=True)]


def _whole(observed: Float[np.ndarray, " b"], expected: Float[np.ndarray, " b"], n: int) -> list[Float[np.ndarray, " b"]]:
    """O:E and the excess of what was expected, per patient."""
    return [observed / np.where(expected > 0, expected, math.nan), (expected - observed) / n]


def on_arcsine(value: float, patients: float) -> tuple[float, float]:
    """An AUC or C on the scale on which its variance does not depend on it, and that variance.

    Formula: x = arcsin sqrt((a n + 3/8) / (n + 3/4)), variance 1 / (4 n + 2), of a figure a with the variance of a share of n
    patients.
    Assumption: as for a share. On the logit scale a hospital's variance grows with its figure, so that weights favour low
    figures: with 20 hospitals and an AUC of 0.87 the mean's interval covers 70 % (`pipelines/reproduce.py null_studies/sites`).
    Source: Anscombe 1948, doi:10.1093/biomet/35.3-4.246.
    """
    return math.asin(math.sqrt((value * patients + 0.375) / (patients + 0.75))), 1 / (4 * patients + 2)


def of_arcsine(angle: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Figures on their own scale, from 0 to 1."""
    return np.sin(np.clip(angle, 0, math.pi / 2)) ** 2


def spread_of_figures(found: RandomEffects) -> float:
    """tau of AUCs or Cs that were pooled on the arcsine scale, in units of the AUC or C, by the delta method about their mean."""
    share = float(of_arcsine(np.array([found.mean]))[0])
    return found.tau * 2 * math.sqrt(share * (1 - share))


def i_squared(values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"]) -> float:
    """The share of the variation between g groups that is beyond chance, between 0 and 1.

    Formula: max(0, (Q - (g - 1)) / Q), Q as by `interaction.cochran_q`.
    Assumption: as there.
    Source: Higgins & Thompson 2002, doi:10.1002/sim.1186.
    Returns: float; NaN with fewer than two groups.

    >>> round(i_squared(np.array([0.6, 0.8]), np.array([0.005, 0.005])), 2)
    0.75
    """
    found = cochran_q(values, variances)
    return float(np.maximum(0, (found.chi2 - found.df) / found.chi2)) if found.chi2 else 0.0  # of NaN NaN


@dataclass(frozen=True)
class Mixture:
    """A mixture of t normal distributions, whose weights add up to 1."""

    mean: Float[np.ndarray, " t"]
    deviation: Float[np.ndarray, " t"]
    weight: Float[np.ndarray, " t"]

    def below(self, x: float) -> float:
        """The share of values below x."""
        return float((self.weight * ndtr((x - self.mean) / self.deviation)).sum())


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
    Returns: RandomEffects; all NaN but the number of groups with fewer than two.

    >>> found = random_effects(np.array([0.2, 0.9, 0.4, 1.4]), np.array([0.04, 0.05, 0.03, 0.06]))
    >>> print(f"{found.mean:.2f}, tau {found.tau:.2f}")
    0.71, tau 0.48
    """
    groups = len(values)
    if groups < 2:
        return RandomEffects(groups, math.nan, math.nan, math.nan)
    squared = float(np.var(values, ddof=1))
    for _ in range(REML_ITERATIONS):
        weight, (mean, _) = 1 / (variances + squared), mean_and_q(values, variances[:, None] + squared)
        new = (weight**2 * ((values - mean) ** 2 - variances)).sum() / (weight**2).sum() + 1 / weight.sum()
        before, squared = squared, max(0.0, float(new))
        if abs(squared - before) <= REML_TOL * (1 + squared):
            break
    mean, q = (one.item() for one in mean_and_q(values, variances[:, None] + squared))
    error = math.sqrt(max(1.0, q / (groups - 1)) / (1 / (variances + squared)).sum())
    return RandomEffects(groups, mean, error, math.sqrt(squared))


def mean_interval(found: RandomEffects) -> tuple[float, float]:
    """95 % interval of the mean of groups' true values, from `random_effects`.

    Formula: mean ± t error, t the 0.975 quantile of g - 1 degrees of freedom.
    Assumption: groups are independent. Of hospitals that trained each other's models it covers 92 to 98 %, for the error is not
    below chance's; allowing for refitting as well it would cover 98 to 100 % (`pipelines/reproduce.py null_studies/sites`).
    Source: Hartung & Knapp 2001, doi:10.1002/sim.1009; R's metafor as `rma(test="adhoc")`.
    Returns: (low, high); both NaN with fewer than two groups.
    """
    if found.groups < 2:
        return math.nan, math.nan
    reach = float(student.ppf(0.975, found.groups - 1)) * found.error
    return found.mean - reach, found.mean + reach


def prediction_interval(
    values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"], inflated: float = 1.0
) -> tuple[float, float]:
    """95 % prediction interval of the true value of one more group, for which tau is no better known than it is.

    Formula: the 0.025 and 0.975 quantiles of x̄(tau) + t c e(tau) + tau z over tau's confidence distribution, t of Student's law
    with g - 1 degrees of freedom, z normal, e(tau) the error of `random_effects` at tau, c `inflated`. The distribution is
    that of the tau² at which Q = sum w (x - x̄)², w = 1 / (v + tau²), is the 1 - u quantile of chi² of g - 1 degrees, u
    uniform; 0 where Q is below it at every tau².
    Assumption: the true values are of a normal distribution, from which the next group's is drawn too.
    Source: Viechtbauer 2007, doi:10.1002/sim.2514, for Q's distribution; Nagashima, Noma & Furukawa 2019,
    doi:10.1177/0962280218773520, for the interval, whose e is not limited. Its coverage, beside that of x̄ ± t √(tau² + error²)
    with the tau of REML and g - 2 degrees of freedom (Higgins, Thompson & Spiegelhalter 2009,
    doi:10.1111/j.1467-985X.2008.00552.x), is in `pipelines/reproductions/null_studies/README.md`.
    Returns: (low, high); both NaN with fewer than three groups.
    """
    if len(values) < 3:
        return math.nan, math.nan
    predictive = _predictive(values, variances, inflated)
    return _quantile(predictive, 0.025), _quantile(predictive, 0.975)


def share_above(values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"], at: float, inflated: float = 1.0) -> float:
    """The share of further groups whose true value is expected above `at`, by the distribution of `prediction_interval`.

    Source: as there; as a summary of heterogeneity: Riley, Higgins & Deeks 2011, doi:10.1136/bmj.d549.
    Returns: float in [0, 1]; NaN with fewer than three groups.
    """
    if len(values) < 3:
        return math.nan
    return 1 - _predictive(values, variances, inflated).below(at)


def _predictive(values: Float[np.ndarray, " g"], variances: Float[np.ndarray, " g"], inflated: float) -> Mixture:
    """The distribution of a further group's true value."""
    largest = MAX_TAU_RATIO * (float(np.var(values)) + float(variances.max()))
    looked = np.r_[0.0, np.geomspace(largest * REML_TOL, largest, TAU_POINTS)]
    _, q = mean_and_q(values, variances[:, None] + looked)
    wanted = chi2.ppf(1 - _middles(), len(values) - 1)
    squared = np.interp(-wanted, -q, looked)  # q falls as tau² grows
    mean, q = mean_and_q(values, variances[:, None] + squared)
    error = np.sqrt(np.maximum(1, q / (len(values) - 1)) / (1 / (variances[:, None] + squared)).sum(axis=0))
    at, weight = np.polynomial.legendre.leggauss(MEAN_NODES)
    off = student.ppf((1 + at) / 2, len(values) - 1)
    deviation = np.sqrt(squared) + REML_TOL * (1 + float(np.abs(values).max()))  # above 0
    middles = mean[:, None] + inflated * np.outer(error, off)
    weights = np.tile(weight / 2 / TAU_QUANTILES, TAU_QUANTILES)
    return Mixture(middles.ravel(), np.repeat(deviation, MEAN_NODES), weights)


def assumed_interval(value: float, low: float, high: float) -> tuple[float, float]:
    """95 % prediction interval of an AUC or C elsewhere, where too few groups say how much it differs between them.

    Formula: the 0.025 and 0.975 quantiles of the mean, over a log-normal tau of mean 0.055 and standard deviation 0.015, of
    normal distributions about `value`, whose variance is that of the interval's side plus tau²; within [0, 1]. The variance of
    a side is ((value - low) / 1.96)², so that the interval holds the one given, which is narrower towards 1.
    Assumption: models of brain MRI differ between hospitals as those for heart disease do, from whose validations this tau is.
    Nothing in the data at hand says so.
    Source: van Leeuwen et al. 2025, doi:10.1002/sim.70011.
    `low`, `high`: 95 % confidence interval of the value.
    Returns: (low, high); both NaN where a number is.
    """
    if math.isnan(value + low + high):
        return math.nan, math.nan
    spread = math.sqrt(math.log(1 + (ASSUMED_TAU_SD / ASSUMED_TAU) ** 2))
    tau = lognorm.ppf(_middles(), spread, scale=ASSUMED_TAU * math.exp(-(spread**2) / 2))
    mean, weight = np.full(TAU_QUANTILES, value), np.full(TAU_QUANTILES, 1 / TAU_QUANTILES)
    below, above = (Mixture(mean, np.hypot(tau, (end - value) / Z_95), weight) for end in (low, high))
    return max(0.0, _quantile(below, 0.025)), min(1.0, _quantile(above, 0.975))


def _middles() -> Float[np.ndarray, " quantiles"]:
    """Shares of a distribution, each in the middle of one of so many equal parts."""
    return (np.arange(TAU_QUANTILES) + 0.5) / TAU_QUANTILES


def _quantile(of: Mixture, share: float) -> float:
    """A quantile of a mixture."""
    low, high = (float(end) for end in (np.min(of.mean - 10 * of.deviation), np.max(of.mean + 10 * of.deviation)))  # beyond any
    return root_scalar(lambda x: of.below(x) - share, bracket=(low, high)).root
