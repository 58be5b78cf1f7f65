"""Refits: the penalised regressions of `tabular`, fitted to many label vectors at once.

A permutation of labels that leaves the scores alone takes the folds' models as independent, which they are not: each patient
trains the models that score the others. Fitting again to the permuted labels has no such assumption, and a convex regression of
some dozen columns is fitted in milliseconds.

Letters: b label vectors, n training rows, t other rows, k columns, r directions in which the training rows differ (at most k
and at most n), q = r, or r + 1 with an intercept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from mri_vit.errors import BadNumbers
from mri_vit.metrics.risk_sets import RiskSets, Rows
from mri_vit.predictors.regressions import PRIOR_VARIANCE

PREDICTOR_TOL = 1e-6  # change of a linear predictor in the last step; rounding alone can make 1e-8
MAX_STEP_RATIO = 0.3  # a step longer than this share of the one before asks for a new Hessian
MAX_STEPS = 200  # four to twenty are needed
SINGULAR_VALUE_TOL = 1e-10  # of the largest singular value: a direction below it is rounding


def rotated(
    train: Float[np.ndarray, "n k"], other: Float[np.ndarray, "t k"]
) -> tuple[Float[np.ndarray, "n r"], Float[np.ndarray, "t r"]]:
    """The rows along the directions in which the centred training rows differ.

    An L2 penalty is the same along any orthogonal axes, and the penalised coefficients have no part in other directions: the
    fit is the same with r ≤ n columns.
    """
    _, size, directions = np.linalg.svd(train, full_matrices=False)
    axes = directions[size > SINGULAR_VALUE_TOL * size.max(initial=0)].T
    return train @ axes, other @ axes


def logistic(
    train: Float[np.ndarray, "n k"], positive: Bool[np.ndarray, "b n"], other: Float[np.ndarray, "t k"]
) -> Float[np.ndarray, "b t"]:
    """Log odds of the other rows by a logistic regression fitted to each label vector; NaN where it has one class.

    Equal to scikit-learn's `LogisticRegression(C=PRIOR_VARIANCE)` of centred columns: an unpenalised intercept, and a penalty of
    1/2 on the squares of the coefficients.
    """
    train, other = rotated(train, other)
    x = np.column_stack([train, np.ones(len(train))])  # the intercept comes last
    penalty = np.append(np.full(train.shape[1], 1 / PRIOR_VARIANCE), 0.0)
    several = positive.any(axis=1) & ~positive.all(axis=1)
    y = positive[several]

    def gradient(beta: Float[np.ndarray, "a q"], rows: Rows) -> Float[np.ndarray, "a q"]:
        return (y[rows] - expit(beta @ x.T)) @ x - penalty * beta

    def hessian(beta: Float[np.ndarray, "a q"], rows: Rows) -> Float[np.ndarray, "a q q"]:
        p = expit(beta @ x.T)
        return np.stack([(x.T * weight) @ x for weight in p * (1 - p)]) + np.diag(penalty)

    found = np.full((len(positive), len(other)), np.nan)
    beta = _maximum(x, len(y), gradient, hessian)
    found[several] = beta[:, :-1] @ other.T + beta[:, -1:]
    return found


def cox(
    train: Float[np.ndarray, "n k"],
    time: Int[np.ndarray, "b n"] | Float[np.ndarray, "b n"],
    event: Bool[np.ndarray, "b n"],
    other: Float[np.ndarray, "t k"],
) -> Float[np.ndarray, "b t"]:
    """Log hazard ratios of the other rows by a Cox regression fitted to each vector of outcomes; NaN where no patient died.

    Equal to lifelines' `CoxPHFitter(penalizer=1 / (PRIOR_VARIANCE n))` of columns of mean 0 and variance 1: Efron's likelihood of
    ties; lifelines divides a column by its SD with n − 1, so that a coefficient's penalty is n / (n − 1) times 1/2 its square.
    """
    n = len(train)
    train, other = rotated(train, other)
    penalty = n / (n - 1) / PRIOR_VARIANCE
    several = event.any(axis=1)
    line = RiskSets(time[several], event[several])

    def gradient(beta: Float[np.ndarray, "a r"], rows: Rows) -> Float[np.ndarray, "a r"]:
        _, expected, _ = line.deaths(beta @ train.T, rows)
        return (event[several][rows] - expected) @ train - penalty * beta

    def hessian(beta: Float[np.ndarray, "a r"], rows: Rows) -> Float[np.ndarray, "a r r"]:
        theta, expected, share = line.deaths(beta @ train.T, rows)
        means = (line.mean_at_risk(train, *one) for one in zip(rows.tolist(), theta, share, strict=True))
        parts = [(train.T * weight) @ train - mean.T @ mean for weight, mean in zip(expected, means, strict=True)]
        return np.stack(parts) + penalty * np.eye(train.shape[1])

    found = np.full((len(event), len(other)), np.nan)
    found[several] = _maximum(train, int(several.sum()), gradient, hessian) @ other.T
    return found


def _maximum(
    x: Float[np.ndarray, "n q"],
    vectors: int,
    gradient: Callable[[Float[np.ndarray, "a q"], Rows], Float[np.ndarray, "a q"]],
    hessian: Callable[[Float[np.ndarray, "a q"], Rows], Float[np.ndarray, "a q q"]],
) -> Float[np.ndarray, "b q"]:
    """The maximum of as many concave functions of the linear predictor x β, by Newton's method.

    A Hessian (here the negative one) serves as long as steps shrink quickly, since a gradient costs a fraction of it. A step that
    ends where the function falls again about as steeply as it rose is halved.
    """
    beta, step = np.zeros((2, vectors, x.shape[1]))
    rise = np.zeros(vectors)  # of the function along the step, where the step began
    inverse = np.zeros((vectors, x.shape[1], x.shape[1]))
    before = np.zeros(vectors)  # the length of the last step; 0 asks for a new Hessian
    active = np.arange(vectors)
    for _ in range(MAX_STEPS):
        if not len(active):
            return beta
        slope = gradient(beta[active], active)
        too_far = (slope * step[active]).sum(axis=1) < -rise[active] / 2
        halved, onward, slope = active[too_far], active[~too_far], slope[~too_far]
        step[halved] /= 2
        beta[halved] -= step[halved]
        rise[halved] /= 2
        before[halved] = 0
        step[onward] = np.matmul(inverse[onward], slope[:, :, None])[:, :, 0]
        length = np.abs(step[onward] @ x.T).max(axis=1)
        stale = (before[onward] == 0) | (length > MAX_STEP_RATIO * before[onward])
        if stale.any():
            rows = onward[stale]
            inverse[rows] = np.linalg.inv(hessian(beta[rows], rows))
            step[rows] = np.matmul(inverse[rows], slope[stale][:, :, None])[:, :, 0]
            length[stale] = np.abs(step[rows] @ x.T).max(axis=1)
        beta[onward] += step[onward]
        rise[onward] = (slope * step[onward]).sum(axis=1)
        before[onward] = length
        active = np.concatenate([halved, onward[length > PREDICTOR_TOL]])
    raise BadNumbers(f"a regression on permuted labels did not converge in {MAX_STEPS} steps")
