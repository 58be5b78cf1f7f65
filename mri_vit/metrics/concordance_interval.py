"""How sure a concordance is: time, event and risk of n patients in, bootstrap intervals of C out.

Times are in days; event is True for a death and False for a patient censored at that time. n is the number of patients,
d of whom died; b is the number of resamples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from mri_vit.metrics.bootstrap import CONFIDENCE, RESAMPLES, interval
from mri_vit.metrics.censoring import drawn_censoring_survival
from mri_vit.metrics.checked import Flags, Numbers, outcome
from mri_vit.metrics.concordance import Days, Event, Risk, harrell_c, uno_c, uno_weight
from mri_vit.metrics.pairs import Ranges, comparable_ranges, concordant_ranges, pair_weight


def harrell_interval(
    time_days: Numbers,
    event: Flags,
    risk: Numbers,
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> tuple[float, float]:
    """Confidence interval of Harrell's C by a patient-level percentile bootstrap.

    Definition: patients are drawn with replacement, C is computed on each draw, and the interval runs between its
    quantiles. A draw is a vector w of how often each patient came up, and its C is w'Qw / w'Pw with Q the concordance and
    P the comparability of each pair; neither is ever listed (see `pairs.concordant_ranges`).
    Assumption: patients are independent; the models are taken as given (training is not repeated). Draws without a
    comparable pair are left out. Time is O(n log n) for each draw.
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.

    Returns
    -------
    (low, high); both NaN when C itself is undefined.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    Five patients say nothing:

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> risk = np.array([0.9, 0.4, 0.6, 0.5, 0.1])
    >>> low, high = harrell_interval(time_days, event, risk, np.random.default_rng(0))
    >>> print(f"{low:.2f} to {high:.2f}")
    0.00 to 1.00
    """
    time_days, event, risk = outcome(time_days, event, risk)
    if math.isnan(harrell_c(time_days, event, risk)):
        return math.nan, math.nan
    pairs, even = Pairs.of(time_days, event, risk), np.ones((1, event.sum()))
    low, high = interval(lambda drawn: drawn_c(pairs, drawn, even), np.zeros(len(risk)), generator, resamples, confidence)
    return float(low), float(high)


def uno_interval(
    time_days: Numbers,
    event: Flags,
    risk: Numbers,
    generator: np.random.Generator,
    tau: float | None = None,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> tuple[float, float]:
    """Confidence interval of Uno's C (with G(t)) by a patient-level percentile bootstrap.

    Definition: as `harrell_interval`, with the censoring curve estimated anew on each draw.
    Assumption: as for Uno's C and for `harrell_interval`.
    Source: Efron & Tibshirani 1993, chapter 13; Uno et al. 2011, doi:10.1002/sim.4154.

    Returns
    -------
    (low, high); both NaN when C itself is undefined.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.
    """
    time_days, event, risk = outcome(time_days, event, risk)
    if math.isnan(uno_c(time_days, event, risk, tau)):
        return math.nan, math.nan

    pairs = Pairs.of(time_days, event, risk)

    def weighted_c(drawn: Float[np.ndarray, "b n"]) -> Float[np.ndarray, " b"]:
        weight = uno_weight(drawn_censoring_survival(time_days, event, drawn)[:, event], time_days[event], tau)
        return drawn_c(pairs, drawn, weight)

    low, high = interval(weighted_c, np.zeros(len(risk)), generator, resamples, confidence)
    return float(low), float(high)


@dataclass(frozen=True)
class Pairs:
    """Where the pairs of each death are found, whatever the draw."""

    event: Event
    comparable: list[Ranges]
    concordant: list[Ranges]

    @classmethod
    def of(cls, time_days: Days, event: Event, risk: Risk) -> Pairs:
        return cls(event, comparable_ranges(time_days, event), concordant_ranges(time_days, event, risk))


def drawn_c(pairs: Pairs, drawn: Float[np.ndarray, "b n"], weight: Float[np.ndarray, "#b d"]) -> Float[np.ndarray, " b"]:
    """C of each draw, deaths weighted; NaN for a draw without a comparable pair."""
    died = drawn[:, pairs.event] * weight  # (b, d)
    comparable, concordant = (pair_weight(ranges, drawn, died) for ranges in (pairs.comparable, pairs.concordant))
    return concordant / np.where(comparable > 0, comparable, math.nan)
