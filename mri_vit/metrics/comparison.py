"""Tests over many results at once: r differences of repeated folds or h p-values in; one honest p each out."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student


def nadeau_bengio(differences: Float[np.ndarray, " r"], n_train: int, n_test: int) -> tuple[float, float]:
    """Corrected resampled t-test of the differences of two models over repeated cross-validation.

    Definition: is the mean difference (a - b, one value for each fold of each repeat) greater than zero? The plain t-test
    takes the differences for independent, but their training sets overlap, so its p is far too small.
    Formula: t = mean / sqrt((1/r + n_test/n_train) s²), s² the sample variance; p = P(T > t), T of r - 1 degrees of freedom.
    Assumption: differences are near normal, and two folds correlate by n_test / (n_train + n_test), a rule of thumb.
    Source: Nadeau & Bengio 2003, doi:10.1023/A:1024068626366; over repeats: Bouckaert & Frank 2004,
    doi:10.1007/978-3-540-24775-3_3.

    Parameters
    ----------
    differences : float [r], one for each fold of each repeat; NaN (undefined in a fold) are left out.
    n_train, n_test : patients in a training and in a test set.

    Returns
    -------
    (t, p_greater); both NaN with fewer than two differences or when they do not vary.

    Raises
    ------
    ValueError when n_train or n_test is not positive.

    Examples
    --------
    >>> t, p = nadeau_bengio(np.array([0.02, 0.05, 0.01, 0.04, 0.03]), n_train=80, n_test=20)
    >>> print(f"{t:.2f}, p {p:.3f}")
    2.83, p 0.024
    """
    if n_train < 1 or n_test < 1:
        raise ValueError(f"found {n_train} training and {n_test} test patients; expected at least one of each")
    defined = differences[~np.isnan(differences)]
    # Equal numbers can have a variance of rounding alone, so their range decides whether they vary.
    if len(defined) < 2 or np.ptp(defined) == 0:
        return math.nan, math.nan
    error = math.sqrt((1 / len(defined) + n_test / n_train) * float(defined.var(ddof=1)))
    t = float(defined.mean()) / error
    return t, float(student.sf(t, len(defined) - 1))


def holm(p: Float[np.ndarray, " h"]) -> Float[np.ndarray, " h"]:
    """Holm's step-down adjustment, which keeps the chance of even one false finding among h tests below the level.

    Formula: for the i-th smallest (i from 1) of the h defined p, max over j <= i of (h - j + 1) p_j, at most 1.
    Assumption: none about how the tests depend on each other.
    Source: Holm 1979, Scandinavian Journal of Statistics 6:65, https://www.jstor.org/stable/4615733.

    Returns
    -------
    float [h], in the order given; NaN stay NaN and are not counted among the tests.

    Raises
    ------
    ValueError when a p lies outside [0, 1].

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    adjusted = np.full(len(p), math.nan)
    known = np.flatnonzero(~np.isnan(p))
    if ((p[known] < 0) | (p[known] > 1)).any():
        raise ValueError(f"found p-values from {p[known].min():g} to {p[known].max():g}; expected them within 0 and 1")
    order = known[np.argsort(p[known], kind="stable")]
    left = np.arange(len(order), 0, -1)  # tests not yet passed, this one included
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(left * p[order]))
    return adjusted
