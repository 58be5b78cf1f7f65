"""Refits: the penalised regressions of `tabular`, fitted to many label vectors at once.

A permutation of labels that leaves the scores alone takes the folds' models as independent, which they are not: each patient
trains the models that score the others. Fitting again to the permuted labels has no such assumption, and a convex regression of
some dozen columns is fitted in milliseconds.

Letters: b label vectors (a of them still being fitted), n training rows, t other rows, k columns, r directions in which the
training rows differ (at most k and at most n), c classes, g grades, p of the classes that a
label vector has, q coefficients of a fit, m linear predictors (n, or n for each class or cut).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import helmert
from scipy.special import expit, logit
from scipy.special import softmax as shares

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
    beta = _maximum(x, np.zeros((len(y), x.shape[1])), gradient, hessian)
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
    found[several] = _maximum(train, np.zeros((several.sum(), train.shape[1])), gradient, hessian) @ other.T
    return found


def softmax(
    train: Float[np.ndarray, "n k"], label: Int[np.ndarray, "b n"], classes: int, other: Float[np.ndarray, "t k"]
) -> Float[np.ndarray, "b t c"]:
    """Probabilities of the classes by a multinomial regression fitted to each label vector; NaN where it has one class.

    Equal to scikit-learn's `LogisticRegression(C=PRIOR_VARIANCE)` of centred columns, also in what it does with two classes: one
    vector of coefficients is penalised, not one for each class. Labels are 0 to `classes` − 1; a class that a label vector lacks
    has probability 0.
    """

    def fitted(present: Int[np.ndarray, "a n"], kinds: int) -> Float[np.ndarray, "a t c"]:
        if kinds == 2:
            odds = logistic(train, present == 1, other)
            return expit(np.stack([-odds, odds], axis=2))
        return _multinomial(*rotated(train, other), present, kinds)

    return _by_present(label, classes, len(other), fitted)


def _multinomial(
    train: Float[np.ndarray, "n r"], other: Float[np.ndarray, "t r"], label: Int[np.ndarray, "b n"], classes: int
) -> Float[np.ndarray, "b t c"]:
    """The probabilities that `softmax` gives where each label vector has all classes.

    What is added to the coefficients of all classes alike changes no probability, and at the maximum the penalty leaves none of
    it: coefficients of orthonormal contrasts between the classes have the same penalty and no such direction.
    """
    contrasts = helmert(classes)  # a row each, whose sum is zero
    x = np.column_stack([train, np.ones(len(train))])  # the intercept comes last
    each = np.kron(x, contrasts.T)  # (n c, q): coefficients by column, then by contrast
    penalty = np.repeat(np.append(np.full(train.shape[1], 1 / PRIOR_VARIANCE), 0.0), classes - 1)
    y = label[:, :, None] == np.arange(classes)

    def chances(beta: Float[np.ndarray, "a q"]) -> Float[np.ndarray, "a n c"]:
        return shares((beta @ each.T).reshape(len(beta), *y.shape[1:]), axis=2)

    def gradient(beta: Float[np.ndarray, "a q"], rows: Rows) -> Float[np.ndarray, "a q"]:
        return (y[rows] - chances(beta)).reshape(len(beta), -1) @ each - penalty * beta

    def hessian(beta: Float[np.ndarray, "a q"], rows: Rows) -> Float[np.ndarray, "a q q"]:
        p = chances(beta)
        means = ((x[:, :, None] * mean[:, None, :]).reshape(len(x), -1) for mean in p @ contrasts.T)
        parts = [(each.T * one.ravel()) @ each - mean.T @ mean for one, mean in zip(p, means, strict=True)]
        return np.stack(parts) + np.diag(penalty)

    beta = _maximum(each, np.zeros((len(y), each.shape[1])), gradient, hessian)
    predictor = beta @ np.kron(np.column_stack([other, np.ones(len(other))]), contrasts.T).T
    return shares(predictor.reshape(len(y), len(other), classes), axis=2)


def cumulative(
    train: Float[np.ndarray, "n k"], grade: Int[np.ndarray, "b n"], grades: int, other: Float[np.ndarray, "t k"]
) -> Float[np.ndarray, "b t g"]:
    """Probabilities of the grades by a proportional-odds model fitted to each label vector; NaN where it has one grade.

    The log odds of a grade above j are x β − θ_j with rising cuts θ; a penalty of 1/2 on the squares of β, none on the cuts: R's
    `MASS::polr` with a prior. Grades are 0 to `grades` − 1; a grade that a label vector lacks has probability 0.
    """
    train, other = rotated(train, other)

    def fitted(present: Int[np.ndarray, "a n"], kinds: int) -> Float[np.ndarray, "a t g"]:
        return _proportional_odds(train, other, present, kinds)

    return _by_present(grade, grades, len(other), fitted)


def _proportional_odds(
    train: Float[np.ndarray, "n r"], other: Float[np.ndarray, "t r"], grade: Int[np.ndarray, "b n"], grades: int
) -> Float[np.ndarray, "b t g"]:
    """The probabilities that `cumulative` gives where each label vector has all grades.

    With F the logistic function, the probability F(u) − F(l) of a grade between the cuts l and u is F(u) F(−l) (1 − exp(l − u)).
    So the likelihood is that of logistic regressions on whether a row lies above each of the cuts next to its grade, times a
    factor of each gap between cuts: concave, and without differences of nearly equal numbers.
    """
    columns, cuts = train.shape[1], np.arange(grades - 1)
    each = np.column_stack([np.repeat(train, len(cuts), axis=0), np.tile(-np.eye(len(cuts)), (len(train), 1))])  # by row, by cut
    gaps = np.column_stack([np.zeros((len(cuts) - 1, columns)), np.diff(np.eye(len(cuts)), axis=0)])  # of the coefficients
    penalty = np.append(np.full(columns, 1 / PRIOR_VARIANCE), np.zeros(len(cuts)))
    above = grade[:, :, None] > cuts
    beside = ((grade[:, :, None] == cuts) | (grade[:, :, None] == cuts + 1)).reshape(len(grade), -1)
    between = (grade[:, :, None] == cuts[1:]).sum(axis=1)  # rows in each gap
    y = above.reshape(len(grade), -1)

    def gradient(beta: Float[np.ndarray, "a q"], rows: Rows) -> Float[np.ndarray, "a q"]:
        gap = beta @ gaps.T
        gap = np.where(gap > 0, gap, np.nan)  # cuts out of order: outside of where the function is
        residual = beside[rows] * (y[rows] - expit(beta @ each.T))
        return residual @ each - between[rows] * np.exp(-gap) / np.expm1(-gap) @ gaps - penalty * beta

    def hessian(beta: Float[np.ndarray, "a q"], rows: Rows) -> Float[np.ndarray, "a q q"]:
        odds, gap = expit(beta @ each.T), beta @ gaps.T
        sides = beside[rows] * odds * (1 - odds)
        widths = between[rows] * np.exp(-gap) / np.expm1(-gap) ** 2
        parts = [(each.T * side) @ each + (gaps.T * width) @ gaps for side, width in zip(sides, widths, strict=True)]
        return np.stack(parts) + np.diag(penalty)

    start = np.column_stack([np.zeros((len(grade), columns)), -logit(above.mean(axis=1))])
    beta = _maximum(each, start, gradient, hessian)
    cut = np.pad(beta[:, None, columns:], ((0, 0), (0, 0), (1, 1)), constant_values=(-np.inf, np.inf))
    predictor = (beta[:, :columns] @ other.T)[:, :, None]
    lower, upper = cut[:, :, :-1], cut[:, :, 1:]
    return expit(upper - predictor) * expit(predictor - lower) * -np.expm1(lower - upper)


def linear(
    train: Float[np.ndarray, "n k"], value: Float[np.ndarray, "b n"], other: Float[np.ndarray, "t k"]
) -> Float[np.ndarray, "b t"]:
    """Values of the other rows by a ridge regression fitted to each vector of values; NaN where they are all the same.

    Equal to scikit-learn's `Ridge(alpha=1 / PRIOR_VARIANCE)` of values of mean 0 and SD 1, brought back to their unit: an
    unpenalised intercept, and a penalty of 1/2 on the squares of the coefficients beside half the sum of squared residuals. Such
    a fit is linear in the values, so that their unit is of no account.
    """
    centre = train.mean(axis=0)
    left, size, directions = np.linalg.svd(train - centre, full_matrices=False)
    weights = ((other - centre) @ directions.T * (size / (size**2 + 1 / PRIOR_VARIANCE))) @ left.T  # (t, n)
    mean = value.mean(axis=1, keepdims=True)
    found = mean + (value - mean) @ weights.T
    found[(value == value[:, :1]).all(axis=1)] = np.nan
    return found


def _by_present(
    label: Int[np.ndarray, "b n"],
    classes: int,
    others: int,
    fitted: Callable[[Int[np.ndarray, "a n"], int], Float[np.ndarray, "a t p"]],
) -> Float[np.ndarray, "b t c"]:
    """Probabilities that `fitted` gives to label vectors with the same p of the classes, counted 0 to p − 1; others have 0."""
    present = (label[:, :, None] == np.arange(classes)).any(axis=1)
    several = present.sum(axis=1) > 1
    found = np.zeros((len(label), others, classes))
    found[~several] = np.nan
    for kinds in np.unique(present[several], axis=0):
        alike = np.flatnonzero((present == kinds).all(axis=1))
        place = np.cumsum(kinds) - 1
        found[np.ix_(alike, np.arange(others), np.flatnonzero(kinds))] = fitted(place[label[alike]], int(kinds.sum()))
    return found


def _maximum(
    x: Float[np.ndarray, "m q"],
    start: Float[np.ndarray, "b q"],
    gradient: Callable[[Float[np.ndarray, "a q"], Rows], Float[np.ndarray, "a q"]],
    hessian: Callable[[Float[np.ndarray, "a q"], Rows], Float[np.ndarray, "a q q"]],
) -> Float[np.ndarray, "b q"]:
    """The maximum of as many concave functions of the linear predictors x β, by Newton's method from `start`.

    A Hessian (here the negative one) serves as long as steps shrink quickly, since a gradient costs a fraction of it. A step that
    ends where the function falls again about as steeply as it rose is halved, as is one that ends where it has no gradient: NaN.
    """
    beta, step = start.copy(), np.zeros_like(start)
    rise = np.zeros(len(start))  # of the function along the step, where the step began
    inverse = np.zeros((*start.shape, start.shape[1]))
    before = np.zeros(len(start))  # the length of the last step; 0 asks for a new Hessian
    active = np.arange(len(start))
    for _ in range(MAX_STEPS):
        if not len(active):
            return beta
        slope = gradient(beta[active], active)
        too_far = ~((slope * step[active]).sum(axis=1) >= -rise[active] / 2)  # also where NaN
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
