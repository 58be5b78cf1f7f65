"""Whom a model gets wrong: of each patient, the pairs with others that it ranks the wrong way.

n is the number of patients; a fold's test patients are a group, scored by one model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata

from mri_vit.metrics.checked import Flags, Groups, Numbers, grouped, labelled, outcome
from mri_vit.metrics.within_fold import compared_rows


class PairErrors(NamedTuple):
    """By patient: pairs with another of the same group, and those that are ranked the wrong way, ties counting one half."""

    wrong: Float[np.ndarray, " n"]
    pairs: Int[np.ndarray, " n"]


def label_errors(truth: Flags, score: Numbers, group: Groups) -> PairErrors:
    """Of each patient, the pairs with those of the other class in the same group, and those that the score ranks wrongly.

    Definition: a pair is wrong when the positive has the lower score, half wrong when the scores are equal. wrong / pairs of a
    patient is 1 less the patient's placement value; the sum of wrong over the sum of pairs is 1 less the AUC within groups.
    Assumption: scores are comparable inside a group; they need not be probabilities, and nothing is assumed between groups.
    Source: the structural components of DeLong et al. 1988, doi:10.2307/2531595; placement values: Hanley & Hajian-Tilaki 1997,
    doi:10.1016/S1076-6332(97)80161-4.

    Raises
    ------
    ValueError for a label other than 0 and 1, a score that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    >>> label_errors(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]), np.zeros(4)).wrong.tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    truth, score = labelled(truth, score)
    group = grouped(group, len(truth))
    wrong, pairs = np.zeros(len(truth)), np.zeros(len(truth), dtype=int)
    for name in np.unique(group):
        here = group == name
        positives, negatives = here & truth, here & ~truth
        among_all = np.zeros(len(truth))
        among_all[here] = rankdata(score[here])
        below = among_all[positives] - rankdata(score[positives])  # negatives of lower score, ties one half
        wrong[positives] = negatives.sum() - below
        wrong[negatives] = among_all[negatives] - rankdata(score[negatives])
        pairs[positives], pairs[negatives] = negatives.sum(), positives.sum()
    return PairErrors(wrong, pairs)


def survival_errors(time_days: Numbers, event: Flags, risk: Numbers, group: Groups) -> PairErrors:
    """Of each patient, the comparable pairs in the same group, and those in which who died earlier had the lower risk.

    Definition: two patients are comparable when one is known to have outlived the other (see `pairs.death_counts`); equal risks
    are half wrong. The sum of wrong over the sum of pairs is 1 less Harrell's C within groups. Who was censored before the first
    death is in no pair.
    Assumption: risks are comparable inside a group. Time is O(n²) of a group.
    Source: Harrell et al. 1996, doi:10.1002/(SICI)1097-0258(19960229)15:4<361::AID-SIM168>3.0.CO;2-4.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    >>> days, died, risk = np.array([100.0, 200.0, 300.0]), np.array([1, 1, 0]), np.array([0.2, 0.9, 0.5])
    >>> survival_errors(days, died, risk, np.zeros(3)).wrong.tolist()
    [2.0, 1.0, 1.0]
    """
    time_days, event, risk = outcome(time_days, event, risk)
    group = grouped(group, len(risk))
    wrong, pairs = np.zeros(len(risk)), np.zeros(len(risk), dtype=int)
    for name in np.unique(group):
        here = np.flatnonzero(group == name)
        for rows, known, riskier in compared_rows(time_days[here], event[here], risk[here]):  # 1: the row died first
            comparable: Bool[np.ndarray, "k n"] = known != 0
            wrong[here[rows]] = ((1 - known * riskier) / 2 * comparable).sum(axis=1)
            pairs[here[rows]] = comparable.sum(axis=1)
    return PairErrors(wrong, pairs)
