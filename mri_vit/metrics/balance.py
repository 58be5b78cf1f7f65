"""How far two groups of patients are apart in one characteristic: means or counts in, a standardised difference out.

k is the number of levels. No p: between random folds the null hypothesis is true by design, and a p grows with the patients
rather than with the difference (Austin 2009; STROBE's explanation, item 14a, doi:10.1371/journal.pmed.0040297).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Integer

from mri_vit.metrics.checked import refuse_unequal


def difference_of_means(mean: float, deviation: float, other_mean: float, other_deviation: float) -> float:
    """The absolute difference of two means in standard deviations.

    Formula: |m1 - m2| / sqrt((s1² + s2²) / 2), s the sample standard deviations.
    Source: Austin 2009, doi:10.1002/sim.3697.

    Returns
    -------
    float, 0 or more; NaN where a group has no mean or no deviation, or neither group varies and the means differ.

    Examples
    --------
    >>> difference_of_means(60.0, 10.0, 65.0, 10.0)
    0.5
    """
    spread = math.sqrt((deviation**2 + other_deviation**2) / 2)
    apart = abs(mean - other_mean)
    if spread == 0:
        return 0.0 if apart == 0 else math.nan
    return apart / spread


def difference_of_shares(counts: Integer[np.ndarray, " k"], others: Integer[np.ndarray, " k"]) -> float:
    """The standardised difference of two groups' shares of k levels.

    Formula: sqrt(d' S⁻ d), d the differences of the shares of all levels but the first and S the mean of both groups' multinomial
    covariances; with two levels |p1 - p2| / sqrt((p1 (1 - p1) + p2 (1 - p2)) / 2).
    Source: Austin 2009, doi:10.1002/sim.3697, for two levels; Yang & Dalton 2012, SAS Global Forum, paper 335, for more.

    Returns
    -------
    float, 0 or more; NaN where a group is empty, or where a share is all of one group and none of the other's.

    Raises
    ------
    ValueError for arrays of unequal length.

    Examples
    --------
    >>> round(difference_of_shares(np.array([50, 50]), np.array([40, 60])), 3)
    0.202
    """
    refuse_unequal(counts=len(counts), others=len(others))
    if not counts.sum() or not others.sum():
        return math.nan
    shares = [found[1:] / found.sum() for found in (counts, others)]
    away = shares[0] - shares[1]
    covariance = sum(np.diag(share) - np.outer(share, share) for share in shares) / 2
    inverse = np.linalg.pinv(np.atleast_2d(covariance))
    explained = np.atleast_2d(covariance) @ inverse @ away
    if not np.allclose(explained, away, atol=1e-9):  # a direction in which neither group varies
        return math.nan
    return float(math.sqrt(max(0.0, away @ inverse @ away)))
