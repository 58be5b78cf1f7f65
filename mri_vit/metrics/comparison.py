"""Tests over many results at once: differences of r repeated folds or of c runs, and h p-values, in; one honest p each out."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.stats import norm
from scipy.stats import t as student

ROUNDING = 1e-6  # of AUCs: below it a spread is rounding alone; one of 10,000 patients who changes rank makes 3e-5


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
    """
    if n_train < 1 or n_test < 1:
        raise ValueError(f"found {n_train} training and {n_test} test patients; expected at least one of each")
    defined = differences[~np.isnan(differences)]
    # Equal numbers can have a variance of rounding alone, so it is their range that tells whether they vary.
    if len(defined) < 2 or np.ptp(defined) == 0:
        return math.nan, math.nan
    error = math.sqrt((1 / len(defined) + n_test / n_train) * float(defined.var(ddof=1)))
    t = float(defined.mean()) / error
    return t, float(student.sf(t, len(defined) - 1))


def over_runs(values: Float[np.ndarray, " c"], error: float) -> tuple[float, float]:
    """How far the 95 % interval of the mean of c runs' `values` reaches, and the p of that mean's being 0.

    Definition: two things are chance: which patients were judged, and which run it was (cohort, initial weights, training). The
    wider interval and the larger p are taken: the first knows nothing of runs, and the second, from few values, is small by
    luck at times. As neither test alone finds more than 5 % of what is not there, their conjunction does not.
    Formula: over patients the normal law with standard error `error`; over runs Student's t with c - 1 degrees of freedom, of
    the values' own standard deviation over √c.
    Assumption: runs are independent of each other; their values are near normal.

    Parameters
    ----------
    values : float [c], one for each run; with one, patients alone are counted.
    error : of their mean over patients, whose variance is known, as by DeLong; 0 where there is none.

    Returns
    -------
    (reach, p); both NaN where `error` is; without any spread reach is 0, and p 1 for a mean of 0, NaN for another, which cannot
    be tested.
    """
    if math.isnan(error):
        return math.nan, math.nan
    count, mean = len(values), abs(float(values.mean()))
    between = float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    spreads = [(spread, law) for spread, law in ((error, norm()), (between, student(count - 1))) if spread > ROUNDING]
    if not spreads:
        return 0.0, 1.0 if mean < ROUNDING else math.nan
    reach = max(spread * float(law.isf(0.025)) for spread, law in spreads)
    return reach, max(2 * float(law.sf(mean / spread)) for spread, law in spreads)


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
    """
    adjusted = np.full(len(p), math.nan)
    known = np.flatnonzero(~np.isnan(p))
    if ((p[known] < 0) | (p[known] > 1)).any():
        raise ValueError(f"found p-values from {p[known].min():g} to {p[known].max():g}; expected them within 0 and 1")
    order = known[np.argsort(p[known], kind="stable")]
    left = np.arange(len(order), 0, -1)  # tests not yet passed, this one included
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(left * p[order]))
    return adjusted
