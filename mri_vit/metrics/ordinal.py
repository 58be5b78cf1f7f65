"""How well predictions order patients by grade or by a number, and how far they agree with a grade.

n is the number of patients, k of grades, which are whole numbers from 0 to k - 1 in their order; a fold's test patients are a
group, scored by one model.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from mri_vit.metrics.checked import Groups, Labels, Numbers, classes, grouped, measured, refuse_unequal
from mri_vit.metrics.comparison import Z_95
from mri_vit.metrics.continuous import Estimate
from mri_vit.metrics.within_fold import WithinFold, within_fold_c


def within_fold_order(outcome: Numbers, score: Numbers, group: Groups) -> WithinFold:
    """Generalised C of the pairs within a group whose outcomes differ, of grades and of numbers alike.

    Definition: among such pairs, the share in which the one of the higher outcome has the higher score, ties of score counting
    one half. Of two grades it is the AUC; Somers' D of the score given the outcome is 2 C - 1.
    Formula: `within_fold.within_fold_c` of patients who all died, the highest outcome first, so that the standard error without a
    signal is exact with ties of either side, and the influences are the infinitesimal jackknife's. Time is O(n log n).
    Assumption: scores are comparable inside a group.
    Source: Harrell et al. 1996, doi:10.1002/(SICI)1097-0258(19960229)15:4<361::AID-SIM168>3.0.CO;2-4; Somers 1962,
    doi:10.2307/2090408; Daniels 1944, doi:10.1093/biomet/33.2.129.
    Returns: WithinFold; all NaN where no two outcomes of a group differ.

    >>> found = within_fold_order(np.array([0, 0, 1, 2]), np.array([0.1, 0.4, 0.35, 0.8]), np.zeros(4))
    >>> print(f"{found.value:.2f} ± {found.error:.2f}")
    0.80 ± 0.28
    """
    outcome, score = measured(outcome, score, "outcomes", "scores")
    return within_fold_c(-outcome, np.ones(len(outcome), dtype=bool), score, grouped(group, len(outcome)))


def weighted_kappa(truth: Labels, predicted: Labels, k: int) -> Estimate:
    """Cohen's kappa of true and predicted grades with quadratic weights, and its 95 % interval.

    Definition: the agreement beyond that of chance, a miss of two grades weighing as four misses of one. 1 at best, 0 where true
    and predicted grades have nothing to do with each other, below 0 where they disagree more than that.
    Formula: (a - e) / (1 - e), a = sum w_ij p_ij, e = sum w_ij r_i c_j, w_ij = 1 - (i - j)² / (k - 1)², r and c the shares of the
    true and the predicted grades; variance (sum p_ij (w_ij - (u_i + v_j) (1 - kappa))² - (kappa - e (1 - kappa))²) /
    (n (1 - e)²), u_i = sum_j w_ij c_j and v_j = sum_i w_ij r_i; kappa ± z times its root, cut at -1 and 1.
    Assumption: patients are independent, and many; of few, or near 1, the interval is too narrow. Kappa depends on how common
    each grade is, so that cohorts with other shares are not compared by it.
    Source: Cohen 1968, doi:10.1037/h0026256; Fleiss, Cohen & Everitt 1969, doi:10.1037/h0028106, for the variance.
    Returns: Estimate; NaN without a patient, or where truth and prediction are one and the same grade for all; the ends are NaN
    where the variance is 0, as for predictions that are all right or all equal.

    >>> found = weighted_kappa(np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 1, 2, 1]), 3)
    >>> print(f"{found.value:.2f}, {found.low:.2f} to {found.high:.2f}")
    0.67, 0.23 to 1.00
    """
    truth, predicted = classes(truth, "labels", k), classes(predicted, "predictions", k)
    refuse_unequal(labels=len(truth), predictions=len(predicted))
    apart = np.subtract.outer(np.arange(k), np.arange(k))
    agreed = 1 - (apart / max(k - 1, 1)) ** 2
    share = np.bincount(truth * k + predicted, minlength=k * k).reshape(k, k) / max(len(truth), 1)
    chance = float((agreed * np.outer(share.sum(axis=1), share.sum(axis=0))).sum())
    if not len(truth) or (np.ptp(truth) == 0 and np.array_equal(truth, predicted)):
        return Estimate(math.nan, math.nan, math.nan)
    kappa = (float((agreed * share).sum()) - chance) / (1 - chance)
    reach = Z_95 * math.sqrt(_kappa_variance(share, agreed, kappa, chance) / len(truth))
    if not reach:
        return Estimate(kappa, math.nan, math.nan)
    return Estimate(kappa, max(-1.0, kappa - reach), min(1.0, kappa + reach))


def _kappa_variance(share: Float[np.ndarray, "k k"], agreed: Float[np.ndarray, "k k"], kappa: float, chance: float) -> float:
    """Of kappa times the root of n; 0 where it is of rounding alone."""
    of_truth, of_predicted = agreed @ share.sum(axis=0), share.sum(axis=1) @ agreed
    away = agreed - np.add.outer(of_truth, of_predicted) * (1 - kappa) - (kappa - chance * (1 - kappa))  # of mean 0
    variance = float((share * away**2).sum()) / (1 - chance) ** 2
    return variance if variance > np.finfo(float).eps else 0.0
