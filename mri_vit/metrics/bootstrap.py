"""The one bootstrap: a statistic of n patients in, its values over b resamples of them out, and the percentile interval.

A resample is a row of counts, how often each patient came up. So a statistic is written once for weighted patients, and one
matrix product serves all resamples.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from mri_vit.metrics.checked import Groups

RESAMPLES = 1000  # Efron & Tibshirani 1993, section 13.3: about a thousand for a percentile interval
CONFIDENCE = 0.95
MOST_COUNTS = 4_000_000  # counts held together: 32 MB, so that memory does not grow with the cohort

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

    Parameters
    ----------
    statistic : takes float [b, n], how often each patient came up in each of b resamples; gives float [b, ...], NaN where it
        is undefined.
    strata : [n], the group within which a patient is drawn; one value for all where patients are drawn freely.

    Returns
    -------
    (low, high), each of the statistic's shape; NaN where it is undefined in every resample.

    Examples
    --------
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
    blocks = portions(resamples, len(strata))
    return np.concatenate([statistic(counts(strata, generator, block)) for block in blocks])


def counts(strata: Groups, generator: np.random.Generator, resamples: int = RESAMPLES) -> Float[np.ndarray, "b n"]:
    """How often each patient comes up when each stratum is drawn with replacement, strata in the order of their names."""
    drawn = np.zeros((resamples, len(strata)))
    for name in np.unique(strata):
        members = strata == name
        size = int(members.sum())
        drawn[:, members] = generator.multinomial(size, np.full(size, 1 / size), size=resamples)
    return drawn


def percentile_interval(
    values: Float[np.ndarray, "b *measures"], confidence: float = CONFIDENCE
) -> tuple[Float[np.ndarray, "*measures"], Float[np.ndarray, "*measures"]]:
    """The quantiles of a statistic's values between which `confidence` of them lie; NaN are left out."""
    tail = (1 - confidence) / 2
    quantile = np.nanquantile if np.isnan(values).any() else np.quantile  # the latter is many times faster
    low, high = quantile(values, [tail, 1 - tail], axis=0)
    return np.asarray(low), np.asarray(high)


def portions(draws: int, patients: int) -> list[int]:
    """`draws` in portions of at most `MOST_COUNTS` numbers."""
    most = max(1, MOST_COUNTS // max(patients, 1))
    return [min(most, draws - start) for start in range(0, draws, most)]
