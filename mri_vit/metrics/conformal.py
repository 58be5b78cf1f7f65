"""Sets with a guarantee: how typical each class is for a patient in; the classes that cannot be left out, 90 times in 100, out.

A score says how typical a class is: the higher, the more; its probability, or any number that rises with it. n is the number of
patients, m of new ones, k of classes, f of the models of several folds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from mri_vit.metrics.checked import Groups, Numbers, classes, grouped, numbers, refuse_unequal

ALPHA = 0.1  # sets hold the right class nine times in ten: with fewer patients than 10 of a class 95 % would leave nothing out
MIN_SITES = 4  # of three, the two others have a scatter of one degree of freedom
UNKNOWN = -1  # the label of a patient without one, who is compared with others but not they with this one


def class_p(
    score: Real[np.ndarray, "n k"], label: Int[np.ndarray, " n"], group: Groups | None = None
) -> Float[np.ndarray, "n k"]:
    """The conformal p of each class for each patient, from the out-of-fold scores of the others: how usual so low a score is.

    Definition: the share of patients of a class, this one among them, whose own class is no more typical for them than the class
    is for this patient. A class belongs to the set where p > `ALPHA`.
    Formula: p_iy = (1 + #{j of class y, not of i's group: s_jy <= s_iy}) / (1 + #{j of class y, not of i's group}); `group` None:
    each patient is a group alone.
    Assumption: patients of a class are exchangeable, and folds were drawn without regard to all but the class. Then scores out of
    fold are exchangeable too, whatever the learner and however unlike the folds' scales, and the right class is in the set with a
    probability of at least 1 - `ALPHA`, in each class. So it holds over the folds that may be drawn. It does not hold where other
    groups alone are compared with and these have models of their own (sites that are left out in turn): there it says what
    happens in a new site.
    Source: Vovk 2015, doi:10.1007/s10472-013-9368-4 (cross-conformal); Vovk 2012, arXiv:1209.2673 (by class).
    `label`: from 0 on, `UNKNOWN` of a patient that no other is compared with.
    Returns: float [n, k], above 0 to 1.

    >>> score, label = np.array([[0.1, 0.9], [0.4, 0.6], [0.7, 0.3]]), np.array([1, 1, 0])
    >>> class_p(score, label)[:, 1].round(2)
    array([1.  , 0.5 , 0.33])
    """
    score = numbers(score, "scores", axes=2)
    classes(label[label != UNKNOWN], "labels", score.shape[1])
    refuse_unequal(scores=len(score), labels=len(label))
    group = None if group is None else grouped(group, len(score))
    found = np.empty_like(score)
    for y in range(score.shape[1]):
        own, value = label == y, score[:, y]
        below, of = _below(value[own], value), np.full(len(value), int(own.sum()))
        if group is None:
            below, of = below - own, of - own
        else:
            for name in np.unique(group):
                here = group == name
                below[here] -= _below(value[own & here], value[here])
                of[here] -= int((own & here).sum())
        found[:, y] = (1 + below) / (1 + of)
    return found


def contiguous(members: Bool[np.ndarray, "n k"]) -> Bool[np.ndarray, "n k"]:
    """Sets of grades with every grade between the lowest and the highest, so that they hold no less.

    >>> contiguous(np.array([[True, False, True, False]])).tolist()
    [[True, True, True, False]]
    """
    up, down = np.logical_or.accumulate(members, axis=1), np.logical_or.accumulate(members[:, ::-1], axis=1)[:, ::-1]
    return up & down


def p_without_skill(score: Real[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """The `class_p` that the same scores would have if they knew nothing: every class is compared with all patients.

    Definition: where scores have nothing to do with the classes, the scores of a class's patients are a sample of all scores. So
    each class is left out of a tenth of the sets: of two classes a fifth of the patients get one answer, which is as good as a
    guess.
    Formula: p_iy = #{j: s_jy <= s_iy} / n.
    Assumption: the scores of the k classes keep their law.
    Source: as `class_p`, whose limit it is for many patients.
    Returns: float [n, k].

    >>> score = np.arange(100) / 100
    >>> (p_without_skill(np.column_stack([1 - score, score])) > ALPHA).sum(axis=0).tolist()
    [90, 90]
    """
    score = numbers(score, "scores", axes=2)
    return np.column_stack([_below(value, value) for value in score.T]) / max(len(score), 1)


def needed(alpha: float = ALPHA) -> int:
    """Patients of a class from which it can be left out of a set of its own patients: of fewer, the least p is above `alpha`.

    >>> needed()
    10
    """
    return math.ceil(round(1 / alpha, 9))


def reach(residual: Numbers, group: Groups | None = None) -> Float[np.ndarray, " n"]:
    """Half the width of each patient's interval for a number, from the out-of-fold errors of the others.

    Definition: the interval, prediction ± reach, holds every number whose distance from the prediction has a `class_p` above
    `ALPHA` among the other patients' absolute errors.
    Formula: the floor(`ALPHA` (n + 1))-th largest of the n absolute errors of patients of other groups.
    Assumption: as `class_p`; one width for all, whatever the number.
    Source: Vovk 2015, doi:10.1007/s10472-013-9368-4; Barber et al. 2021, doi:10.1214/20-AOS1965.
    `residual`: [n], NaN where the number is not known.
    Returns: float [n]; infinite with fewer than nine others.

    >>> reach(np.arange(1.0, 21.0))[[0, -1]]
    array([19., 18.])
    """
    residual = np.abs(np.asarray(residual, dtype=float))
    known = ~np.isnan(residual)
    alone = np.arange(len(residual)) if group is None else grouped(group, len(residual))
    if group is None:  # only who is among the largest changes the place
        order = np.sort(residual[known])[::-1]
        full, less = (_place(order, int(known.sum()) - one) for one in (0, 1))
        place = int(ALPHA * known.sum() + 1e-9)  # floor(alpha (n - 1 + 1)), of a known patient's others
        after = order[place] if 0 < place < len(order) else math.inf
        among = known & (residual >= less) & np.isfinite(less)
        return np.where(known, np.where(among, after, less), full)
    found = np.empty(len(residual))
    for name in np.unique(alone):
        others = np.sort(residual[known & (alone != name)])[::-1]
        found[alone == name] = _place(others, len(others))
    return found


def cross_conformal_p(
    score: Real[np.ndarray, "f m k"], calibration: Sequence[Sequence[Float[np.ndarray, " _"]]]
) -> Float[np.ndarray, "m k"]:
    """The conformal p of each class for new patients that every fold's model scored, compared within each fold.

    Definition: as `class_p`; a new patient's score by a fold's model is compared with the scores that the model gave to the
    patients of its own test fold, so that scales of folds need not agree.
    Formula: p_y = (1 + sum over f of #{c of class y in fold f: s_cy <= s_fy}) / (1 + number of class y).
    Assumption: the new patients are exchangeable with those of each class. At most 2 a + 2 (1 - a) (F - 1) / (n + F) of
    the sets lack the right class, a `ALPHA`, F the folds of one repeat, n the patients of the class: 27 % with 100 in five folds.
    In simulations about a or fewer do, also over the folds of several repeats.
    Source: Vovk 2015, doi:10.1007/s10472-013-9368-4; Vovk & Wang 2020, doi:10.1093/biomet/asaa027, for the factor of 2.
    `calibration`: by fold and class, the out-of-fold scores of the class for patients of it.
    Returns: float [m, k].

    >>> of_folds = [[np.array([0.5, 0.9])], [np.array([0.1, 0.2])]]
    >>> cross_conformal_p(np.array([[[0.6]], [[0.05]]]), of_folds)
    array([[0.4]])
    """
    score = numbers(score, "scores", axes=3)
    below, of = np.zeros(score.shape[1:]), np.zeros(score.shape[2])
    for values, by_class in zip(score, calibration, strict=True):
        for y, own in enumerate(by_class):
            below[:, y] += _below(np.asarray(own, dtype=float), values[:, y])
            of[y] += len(own)
    return (1 + below) / (1 + of)


def cv_plus(predicted: Real[np.ndarray, " f"], residual: Sequence[Float[np.ndarray, " _"]]) -> tuple[float, float]:
    """The interval for a new patient's number, that every fold's model predicted: CV+.

    Formula: from the floor(alpha (n + 1))-th smallest of p_f - r_c to the same place from above of p_f + r_c, over all folds f
    and patients c of their test folds, n in all; p_f the fold's prediction, r_c the absolute residual.
    Assumption: as `cross_conformal_p`, with the same bound.
    Source: Barber et al. 2021, doi:10.1214/20-AOS1965.
    Returns: (low, high); infinite with fewer than nine patients.

    >>> cv_plus(np.array([10.0, 12.0]), [np.arange(1.0, 11.0), np.arange(1.0, 11.0)])
    (1.0, 21.0)
    """
    predicted = numbers(predicted, "predictions")
    low = np.concatenate([value - np.abs(own) for value, own in zip(predicted, residual, strict=True)])
    high = np.concatenate([value + np.abs(own) for value, own in zip(predicted, residual, strict=True)])
    return -_place(np.sort(-low)[::-1], len(low)), _place(np.sort(high)[::-1], len(high))


def excess_p(missed: Bool[np.ndarray, " n"], label: Int[np.ndarray, " n"], member: Bool[np.ndarray, " n"]) -> float:
    """One-sided p of so many sets of a part of the patients that miss the right class, against the other patients.

    Definition: the chance that as many of the missed patients, or more, are of this part when each class's are drawn at random.
    Formula: the tail of the sum over classes of hypergeometric numbers.
    Assumption: patients of a class are exchangeable and folds were drawn without regard to the part; then it is exact for any
    learner, refitting included.
    Source: Fisher 1935, doi:10.2307/2342435.
    Returns: float, 0 to 1.

    >>> missed, member = np.array([1, 1, 0, 0, 0, 0], bool), np.array([1, 1, 1, 0, 0, 0], bool)
    >>> excess_p(missed, np.zeros(6, int), member).__round__(3)
    0.2
    """
    from scipy.stats import hypergeom  # here, because it takes a second to import

    refuse_unequal(sets=len(missed), labels=len(label), members=len(member))
    law = np.ones(1)
    for y in np.unique(label):
        own = label == y
        drawn = int((own & member).sum())
        law = np.convolve(law, hypergeom.pmf(np.arange(drawn + 1), int(own.sum()), int((own & missed).sum()), drawn))
    return float(min(1.0, law[int((missed & member).sum()) :].sum()))


def outlier_p(covered: Int[np.ndarray, " s"], total: Int[np.ndarray, " s"]) -> Float[np.ndarray, " s"]:
    """One-sided p of so low a coverage of each of s sites that were left out in turn, against the scatter of the other sites'.

    Definition: the patients of such a site share a model, so that coverages scatter more than shares do; how much more, the other
    sites show, of which none is taken to scatter less than a share.
    Formula: z_i = 2 sqrt(n_i + 1/2) (asin sqrt((k_i + 3/8) / (n_i + 3/4)) - asin sqrt(c)), c the coverage of the other sites
    together; p_s by Student's t of s - 2 degrees of freedom of (z_s - mean of the others) / (max(1, SD) sqrt(1 + 1 / (s - 1))).
    Assumption: without a shift coverages of sites are exchangeable, and their arcsines about normal.
    Source: Anscombe 1948, doi:10.1093/biomet/35.3-4.246, for the arcsine.
    Returns: float [s]; NaN with fewer than four sites, whose scatter is not known.

    >>> outlier_p(np.array([20, 45, 46, 44, 45]), np.full(5, 50)).round(3)[:2]
    array([0.003, 0.656])
    """
    from scipy.stats import t as student  # here, because it takes a second to import

    refuse_unequal(counts=len(covered), totals=len(total))
    found = np.full(len(covered), math.nan)
    if len(covered) < MIN_SITES:
        return found
    for site in range(len(covered)):
        others = np.arange(len(covered)) != site
        share = covered[others].sum() / total[others].sum()
        angle = np.arcsin(np.sqrt((covered + 0.375) / (total + 0.75))) - math.asin(math.sqrt(share))
        z = 2 * np.sqrt(total + 0.5) * angle
        scatter = max(1.0, float(z[others].std(ddof=1))) * math.sqrt(1 + 1 / others.sum())
        found[site] = student.cdf((z[site] - z[others].mean()) / scatter, others.sum() - 1)
    return found


def expected_range(patients: int) -> tuple[float, float]:
    """In which range the true coverage of a class lies, given the patients of it that sets were made from: 95 % of such cohorts.

    Definition: the guarantee holds on average over cohorts; of one cohort of n patients of a class the share of new patients
    whose set holds the class scatters.
    Formula: quantiles of the beta distribution of n + 1 - l and l, l = floor(alpha (n + 1)).
    Assumption: as `class_p`, with one model; cross-validated models are taken to scatter as much.
    Source: Vovk 2012, arXiv:1209.2673, proposition 2.
    Returns: (low, high); 1 twice where the class can never be left out.

    >>> low, high = expected_range(40)
    >>> print(f"{low:.2f} to {high:.2f}")
    0.80 to 0.97
    """
    from scipy.special import betaincinv

    place = int(ALPHA * (patients + 1) + 1e-9)
    if not place:
        return 1.0, 1.0
    low, high = betaincinv(patients + 1 - place, place, [0.025, 0.975]).tolist()
    return low, high


def _below(own: Float[np.ndarray, " c"], value: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """How many of a class's own scores are no higher than each value."""
    return np.searchsorted(np.sort(own), value, side="right")


def _place(largest_first: Float[np.ndarray, " n"], n: int) -> float:
    """The floor(alpha (n + 1))-th largest of n numbers; infinite where that is none. 1e-9: a tenth of 10 is 1 in floats too."""
    place = int(ALPHA * (n + 1) + 1e-9)
    return float(largest_first[place - 1]) if place else math.inf
