"""Confidence intervals: the percentile bootstrap of any statistic of n patients, and Wilson's interval of a share.

A resample is a row of counts, how often each patient came up. So a statistic is written once for weighted patients, and one
matrix product serves all b resamples.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer, UInt

from mri_vit.metrics.checked import Groups, refuse_unequal

RESAMPLES = 1000  # Efron & Tibshirani 1993, section 13.3: about a thousand for a percentile interval
CONFIDENCE = 0.95
MAX_COUNTS = 4_000_000  # counts drawn together, in a byte each: 4 MB, so that memory does not grow with the cohort
MAX_NUMBERS = 250_000  # counts that a statistic gets together: 2 MB, so that what it makes of them stays in a core's cache
MIN_RESAMPLES = 25  # together, however many patients: what a statistic reads of each patient is read once for them all
MAX_CACHED = 48  # draws of a stratum in a portion, kept for the next statistic: 5,000 patients, freely and by class, make 8

Statistic = Callable[[Float[np.ndarray, "b n"]], Float[np.ndarray, "b *measures"]]


def interval(
    statistic: Statistic,
    strata: Groups,
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> tuple[Float[np.ndarray, "*measures"], Float[np.ndarray, "*measures"]]:
    """Confidence interval of a statistic by a percentile bootstrap of patients.

    Definition: patients are drawn with replacement, each stratum its own number, the statistic is computed on each resample,
    and the interval runs between the quantiles of its values. Resamples where it is undefined are left out.
    Assumption: one row per patient; patients are independent; the model is taken as given (training is not repeated).
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.
    `statistic`: takes float [b, n], how often each patient came up in each of b resamples; gives float [b, ...], NaN where it is
    undefined.
    `strata`: [n], the group within which a patient is drawn; one value for all where patients are drawn freely.
    Returns: (low, high), each of the statistic's shape; NaN where it is undefined in every resample.

    The mean age of four patients:

    >>> age = np.array([40.0, 50.0, 60.0, 70.0])
    >>> low, high = interval(lambda counts: counts @ age / 4, np.zeros(4), np.random.default_rng(0))
    >>> print(f"{low:.1f} to {high:.1f}")
    45.0 to 65.0
    """
    return percentile_interval(distribution(statistic, strata, generator, resamples), confidence)


def distribution(
    statistic: Statistic, strata: Groups, generator: np.random.Generator, resamples: int = RESAMPLES
) -> Float[np.ndarray, "b *measures"]:
    """The statistic's value on each resample, as `interval` takes them."""
    return np.concatenate([statistic(drawn) for drawn in _blocks(strata, generator, resamples)])


def counts(strata: Groups, generator: np.random.Generator, resamples: int = RESAMPLES) -> Float[np.ndarray, "b n"]:
    """How often each patient comes up when each stratum is drawn with replacement, strata in the order of their names."""
    return _counts(strata, generator, resamples).astype(float)


def percentile_interval(
    values: Float[np.ndarray, "b *measures"], confidence: float = CONFIDENCE
) -> tuple[Float[np.ndarray, "*measures"], Float[np.ndarray, "*measures"]]:
    """The quantiles of a statistic's values between which `confidence` of them lie; NaN are left out, and NaN alone stays NaN."""
    tail, unknown = (1 - confidence) / 2, np.isnan(values).all(axis=0)
    values = np.where(unknown, 0.0, values)
    quantile = np.nanquantile if np.isnan(values).any() else np.quantile  # the latter is many times faster
    low, high = quantile(values, [tail, 1 - tail], axis=0)
    return np.where(unknown, math.nan, low), np.where(unknown, math.nan, high)


def widened(
    value: Float[np.ndarray, "*measures"],
    low: Float[np.ndarray, "*measures"],
    high: Float[np.ndarray, "*measures"],
    inflated: float,
) -> tuple[Float[np.ndarray, "*measures"], Float[np.ndarray, "*measures"]]:
    """An interval of scores as given, for scores of models that were refitted: its ends `inflated` times as far from the value.

    Assumption: refitting scatters the value about as scores as given scatter it; see `within_fold.inflation`, and for the
    coverage `pipelines/reproduce.py null_studies/beside`.
    """
    return value - inflated * (value - low), value + inflated * (high - value)


def portions(draws: int, patients: int, most: int) -> list[int]:
    """`draws` in portions of at most `most` numbers, or of `MIN_RESAMPLES` draws where these are more."""
    together = max(MIN_RESAMPLES, most // max(patients, 1))
    return [min(together, draws - start) for start in range(0, draws, together)]


def _blocks(strata: Groups, generator: np.random.Generator, resamples: int) -> Iterator[Float[np.ndarray, "b n"]]:
    """The counts of `resamples` resamples, a few at a time."""
    for portion in portions(resamples, len(strata), MAX_COUNTS):
        drawn, start = _counts(strata, generator, portion), 0
        for block in portions(portion, len(strata), MAX_NUMBERS):
            yield drawn[start : start + block].astype(float)
            start += block


def _counts(strata: Groups, generator: np.random.Generator, resamples: int) -> UInt[np.ndarray, "b n"]:
    of_strata = []
    for name in np.unique(strata):
        members = np.flatnonzero(strata == name)
        drawn, after = _drawn(json.dumps(generator.bit_generator.state), len(members), resamples)
        generator.bit_generator.state = after
        of_strata.append((members, drawn))
    if len(of_strata) == 1:
        return of_strata[0][1]
    drawn = np.zeros((resamples, len(strata)), np.result_type(np.uint8, *(drawn for _, drawn in of_strata)))
    for members, of_stratum in of_strata:
        drawn[:, members] = of_stratum
    return drawn


@lru_cache(MAX_CACHED)
def _drawn(state: str, size: int, resamples: int) -> tuple[UInt[np.ndarray, "b size"], Any]:
    """How often each of `size` patients comes up, and the state that NumPy's default generator in `state` then has.

    Every model of the same patients starts from the study's seed; so the first one's draws, kept, are the next one's.
    """
    copy = np.random.default_rng()
    copy.bit_generator.state = json.loads(state)
    drawn = copy.multinomial(size, np.full(size, 1 / size), size=resamples)
    small = drawn.astype(np.min_scalar_type(drawn.max(initial=0)))
    small.flags.writeable = False  # shared by all who ask for it
    return small, copy.bit_generator.state


class Rate(NamedTuple):
    """A share with its confidence interval; all three NaN when it is a share of no patients."""

    value: float
    low: float
    high: float


def wilson_interval(
    count: Integer[np.ndarray, " b"], total: Integer[np.ndarray, " b"]
) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Confidence interval of each share, by Wilson's score method (without continuity correction), by scipy.

    Definition: the shares p that a two-sided score test does not reject.
    Formula: (q + z²/2N ± z sqrt(q (1 - q) / N + z²/4N²)) / (1 + z²/N), with q = count / N and z the normal quantile.
    Assumption: independent patients, each with the same chance.
    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.
    Returns: (low, high), each float [b] in [0, 1]; NaN where the total is 0.

    >>> low, high = wilson_interval(np.array([8]), np.array([10]))
    >>> print(f"{low[0]:.3f} to {high[0]:.3f}")
    0.490 to 0.943
    """
    refuse_unequal(counts=len(count), totals=len(total))
    if ((count < 0) | (count > total)).any():
        raise ValueError(f"found counts {count.tolist()} of totals {total.tolist()}; expected counts from 0 to the total")
    from scipy.stats import binomtest  # here, because it takes a third of a second

    bounds = [
        binomtest(int(k), int(n)).proportion_ci(CONFIDENCE, method="wilson") if n else (math.nan, math.nan)
        for k, n in zip(count, total, strict=True)
    ]
    low, high = np.array(bounds, dtype=float).reshape(-1, 2).T
    return low, high


def rate(count: int, total: int) -> Rate:
    """The share `count / total` with its 95 % Wilson interval (see `wilson_interval`); NaN three times when the total is 0.

    >>> rate(8, 10).value
    0.8
    """
    low, high = wilson_interval(np.array([count]), np.array([total]))
    return Rate(count / total if total else math.nan, float(low[0]), float(high[0]))
