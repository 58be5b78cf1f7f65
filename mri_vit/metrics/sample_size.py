"""Sample size: which AUC or C a study can show, before its data, and how many patients a prediction model needs.

Power is that of the report's own test (`within_fold.p_above_chance`), refitting and several results included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import root_scalar
from scipy.special import expit, log_expit, logit, ndtr, ndtri

from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.discrimination import wilson_of_c
from mri_vit.metrics.within_fold import ALPHA, CHANCE, interval_inflation, least_above_chance

NODES = 100  # of the quadrature: R² is exact to 1e-8 for AUCs up to 0.99
MOST = 1 - 1e-6  # an AUC or C so near 1 is no longer distinguished from 1
# Riley et al. 2019, doi:10.1002/sim.7992, as their pmsampsize has them
SHRINKAGE = 0.9  # of the coefficients at least
OPTIMISM = 0.05  # of the apparent R² of Nagelkerke at most
RISK_MARGIN = 0.05  # half the width of the interval of the overall risk
# Riley et al. 2021, doi:10.1002/sim.9025, as their pmvalsampsize has them: widths of 95 % intervals
WIDTH_OE, WIDTH_SLOPE, WIDTH_C = 0.2, 0.2, 0.1


@dataclass(frozen=True)
class Detection:
    """The test against chance that a study will make, and what it finds.

    `error` is the standard error of the figure without a signal, for scores as given; `inflated` what refitting multiplies it by
    (`within_fold.inflation`); `results` the number of those that Holm's method corrects together.
    """

    error: float
    inflated: float
    results: int = 1

    @property
    def critical(self) -> float:
        """The least figure that is called better than chance whatever the other results are; above 1 where there is none."""
        return least_above_chance(self.error, self.inflated, ALPHA / self.results)

    def standard_error(self, value: float) -> float:
        """Of an AUC or C of so much over other patients and trainings.

        Formula: SE0 sqrt(6 (Q1 + Q2 - 2 a²)) times `interval_inflation`, Q1 = a / (2 - a), Q2 = 2 a² / (1 + a).
        Assumption: exponential scores and classes of about equal size; C as an AUC of the same error without a signal.
        Source: Hanley & McNeil 1982, doi:10.1148/radiology.143.1.7063747.
        """
        spread = 6 * (value / (2 - value) + 2 * value**2 / (1 + value) - 2 * value**2)
        return self.error * math.sqrt(spread) * interval_inflation(value, self.inflated)

    def power(self, value: float) -> float:
        """The probability that a model which reaches `value` on average is called better than chance.

        Formula: the figure is logit-normal with the mean `value`: Φ((μ - logit(critical)) / s), s = SE / (a (1 - a)) and μ =
        logit(a) + ½ s² (2a - 1). Of 72 kinds of simulated study of 82 to 300 patients 70 have that power to 2.0
        points, the worst to 2.3 (`pipelines/reproduce.py null_studies/power`).
        """
        if not self.error > 0 or self.critical >= 1:
            return 0.0 if self.error > 0 else math.nan
        value = min(value, MOST)
        s = self.standard_error(value) / (value * (1 - value))
        return float(ndtr((logit(value) + s**2 * (2 * value - 1) / 2 - logit(self.critical)) / s))

    def found(self, power: float) -> float:
        """The least AUC or C that is called better with so much power; NaN where none is."""
        if not self.power(MOST) >= power:
            return math.nan
        return float(root_scalar(lambda value: self.power(value) - power, bracket=(CHANCE, MOST)).root)

    def interval(self, value: float) -> tuple[float, float]:
        """The 95 % interval that a figure of `value` will have, by `discrimination.wilson_of_c`, for an AUC too."""
        given = Detection(self.error, 1.0).standard_error(value) ** 2
        return wilson_of_c(value, given, self.error**2, self.inflated > 1)


@dataclass(frozen=True)
class Minimum:
    """Patients that a regression needs, by Riley's three criteria; infinite where a criterion cannot be met."""

    shrinkage: float  # 1: coefficients shrink by at most a tenth
    optimism: float  # 2: R² is overstated by at most 0.05
    risk: float  # 3: the overall risk is known to ± 0.05

    @property
    def patients(self) -> float:
        return max(self.shrinkage, self.optimism, self.risk)


@dataclass(frozen=True)
class ExternalMinimum:
    """Patients that an external validation needs for 95 % intervals no wider than pmvalsampsize's."""

    observed_to_expected: float  # 0.2 wide
    slope: float  # 0.2 wide
    discrimination: float  # AUC or C, 0.1 wide

    @property
    def patients(self) -> float:
        return max(self.observed_to_expected, self.slope, self.discrimination)


def development(parameters: int, r_squared: float, most: float, risk: float) -> Minimum:
    """Patients for a regression of so many predictor parameters.

    Formula: n = P / ((S - 1) ln(1 - R² / S)), S 0.9 for the first criterion and R² / (R² + 0.05 max R²) for the second; the
    third is `risk`, which the outcome decides.
    Source: Riley et al. 2019, doi:10.1002/sim.7992.
    `r_squared`, `most`: of Cox and Snell, expected and the greatest that is possible.

    >>> development(24, 0.288, largest_r_squared(0.174), marker_risk(0.174)).patients  # the example of pmsampsize
    662.0
    """
    optimistic = r_squared / (r_squared + OPTIMISM * most)
    return Minimum(_shrunk(parameters, r_squared, SHRINKAGE), _shrunk(parameters, r_squared, optimistic), risk)


def _shrunk(parameters: int, r_squared: float, shrinkage: float) -> float:
    if not 0 < r_squared < shrinkage:
        return math.inf
    return _up(parameters / ((shrinkage - 1) * math.log(1 - r_squared / shrinkage)))


def marker_risk(prevalence: float) -> float:
    """Patients from which a marker's overall risk is known to ± 0.05: (z / 0.05)² φ (1 - φ)."""
    return _up((Z_95 / RISK_MARGIN) ** 2 * prevalence * (1 - prevalence))


def survival_risk(deaths: float) -> float:
    """Patients from which the risk of death is known to ± 0.05 at any time, where the share `deaths` dies.

    Formula: with a constant hazard and E deaths S(t) has the error -S ln S / sqrt(E), at most 1 / (e sqrt(E)): 208 deaths.
    """
    return _up((Z_95 / (RISK_MARGIN * math.e)) ** 2 / deaths)


def largest_r_squared(prevalence: float) -> float:
    """The greatest R² of Cox and Snell that a marker allows: 1 - (φ^φ (1 - φ)^(1 - φ))²."""
    return 1 - math.exp(2 * (prevalence * math.log(prevalence) + (1 - prevalence) * math.log(1 - prevalence)))


def largest_r_squared_of_survival(deaths: float) -> float:
    """Likewise of survival with a constant hazard, where the share `deaths` dies: 1 - exp(2 d (ln d - 1))."""
    return 1 - math.exp(2 * deaths * (math.log(deaths) - 1))


def r_squared_of_auc(auc: float, prevalence: float) -> float:
    """R² of Cox and Snell that a logistic regression of this AUC has.

    Formula: 1 - exp(-2 (l - l0) / n) of linear predictors that are normal with one variance in both classes, integrated exactly.
    Source: Riley et al. 2021, doi:10.1002/sim.8806, who simulate it.
    """
    predictor, weight = _predictors(auc, prevalence)
    p = expit(predictor)
    gained = float((weight * (p * log_expit(predictor) + (1 - p) * log_expit(-predictor))).sum())
    return 1 - math.exp(-2 * (gained - prevalence * math.log(prevalence) - (1 - prevalence) * math.log(1 - prevalence)))


def r_squared_of_c(c: float, deaths: float) -> float:
    """R² of Cox and Snell that a Cox regression of this C has, where the share `deaths` dies.

    Formula: D = 5.50 (C - ½) + 10.26 (C - ½)³; R²_D = D² / (D² + 8 π / 6), O'Quigley's R² = R²_D (π²/6) / (1 - (1 - π²/6) R²_D),
    R²_CS = 1 - (1 - R²)^deaths.
    Source: Jinks et al. 2015, doi:10.1186/s12874-015-0078-y, for D; Riley et al. 2019, doi:10.1002/sim.7992, for the rest.
    """
    d = 5.50 * (c - CHANCE) + 10.26 * (c - CHANCE) ** 3
    of_d = d**2 / (d**2 + 8 * math.pi / 6)
    explained = of_d * math.pi**2 / 6 / (1 - (1 - math.pi**2 / 6) * of_d)
    return 1 - (1 - explained) ** deaths


def external_marker(auc: float, prevalence: float) -> ExternalMinimum:
    """Patients for the external validation of a calibrated model of a marker.

    Formula: var(ln O:E) = (1 - φ) / (n φ); var(slope) = I_a / (n (I_a I_b - I_ab²)), of the information w = p (1 - p) of the
    linear predictors of `r_squared_of_auc`; the AUC by `discrimination.newcombe_variance`, solved for n.
    Source: Riley et al. 2021, doi:10.1002/sim.9025.
    """
    predictor, weight = _predictors(auc, prevalence)
    p = expit(predictor)
    information = weight * p * (1 - p)
    a, ab, b = (float((information * predictor**power).sum()) for power in (0, 1, 2))
    half = ((1 - auc) / (2 - auc) + auc / (1 + auc)) / 2  # needed n² - half n - (1 - 2 half) = 0
    needed = (WIDTH_C / 2 / Z_95) ** 2 * prevalence * (1 - prevalence) / (auc * (1 - auc))
    return ExternalMinimum(
        _up((1 - prevalence) / prevalence / _log_error(WIDTH_OE) ** 2),
        _up(a / (a * b - ab**2) / (WIDTH_SLOPE / 2 / Z_95) ** 2),
        _up((half + math.sqrt(half**2 + 4 * needed * (1 - 2 * half))) / (2 * needed)),
    )


def _predictors(auc: float, prevalence: float) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Linear predictors of a calibrated logistic regression, normal in each class, and their weights, which add up to 1.

    Formula: variance v = 2 Φ⁻¹(AUC)², means logit φ - v / 2 of negatives and logit φ + v / 2 of positives: their log-odds are
    the predictor itself.
    """
    node, weight = hermegauss(NODES)
    variance = 2 * float(ndtri(auc)) ** 2
    means = logit(prevalence) + np.array([-0.5, 0.5]) * variance
    predictor = means[:, None] + math.sqrt(variance) * node
    return predictor.ravel(), (np.array([1 - prevalence, prevalence])[:, None] * weight / weight.sum()).ravel()


def _up(patients: float) -> float:
    return float(math.ceil(patients))


def _log_error(width: float) -> float:
    """The error of a logarithm whose 95 % interval about 1 is so wide."""
    return math.asinh(width / 2) / Z_95


def external_survival(c: float, deaths: float, null_variance: float) -> ExternalMinimum:
    """Likewise of survival, where the share `deaths` dies.

    Formula: var(ln O:E) = 1 / E; var(slope) = 1 / (E σ²), σ = D sqrt(π / 8) of the linear predictor, D as in `r_squared_of_c`;
    the error of C by `Detection.standard_error`, its variance falling with the number of patients.
    Source: Riley et al. 2022, doi:10.1002/sim.9275, for the aims; Schoenfeld 1983, doi:10.2307/2531021, for the slope.
    `null_variance`: of C of one patient, that is n times its squared error without a signal.
    """
    d = 5.50 * (c - CHANCE) + 10.26 * (c - CHANCE) ** 3
    of_one = Detection(math.sqrt(null_variance), 1.0).standard_error(c) ** 2
    return ExternalMinimum(
        _up(1 / deaths / _log_error(WIDTH_OE) ** 2),
        _up(1 / (deaths * d**2 * math.pi / 8) / (WIDTH_SLOPE / 2 / Z_95) ** 2) if d > 0 else math.inf,
        _up(of_one / (WIDTH_C / 2 / Z_95) ** 2),
    )
