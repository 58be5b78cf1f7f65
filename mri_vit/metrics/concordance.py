"""How well risks order survival: time, event and risk of n patients in, Harrell's and Uno's C out.

Times are in days; event is True for a death and False for a patient censored at that time. n is the number of patients,
d of whom died; b is the number of sets of weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.metrics.censoring import censoring_survival
from mri_vit.metrics.checked import Flags, Groups, Numbers, grouped, outcome
from mri_vit.metrics.pairs import death_counts

Days = Float[np.ndarray, " n"]
Event = Bool[np.ndarray, " n"]
Risk = Float[np.ndarray, " n"]


def concordance_counts(time_days: Numbers, event: Flags, risk: Numbers) -> tuple[int, int, int]:
    """Concordant and discordant pairs and pairs tied in risk, among the comparable ones (see `pairs.death_counts`).

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.
    """
    time_days, event, risk = outcome(time_days, event, risk)
    comparable, lower, equal = (int(counts.sum()) for counts in death_counts(time_days, event, risk))
    return lower, comparable - lower - equal, equal


def harrell_c(time_days: Numbers, event: Flags, risk: Numbers) -> float:
    """Harrell's concordance index, O(n log n).

    Definition: the share of comparable pairs in which the patient who died earlier had the higher risk, ties of risk
    counting one half (see `pairs.death_counts`).
    Formula: (concordant + ½ tied) / comparable.
    Assumption: censoring does not depend on risk; with heavy censoring C depends on the censoring (Uno et al. 2011).
    Source: Harrell et al. 1996, doi:10.1002/(SICI)1097-0258(19960229)15:4<361::AID-SIM168>3.0.CO;2-4. Equal to
    `lifelines.utils.concordance_index(time, -risk, event)` (held to it by a test); counted here because the tests and
    Uno's form need counts that lifelines does not hand out.

    Parameters
    ----------
    time_days : float [n], from the scan to death or to the last follow-up.
    event : [n], True or 1 for a death, of any type of number; False or 0 for a patient censored at that time.
    risk : float [n], higher means an earlier death.

    Returns
    -------
    float in [0, 1]; NaN without a comparable pair.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    The patient who died first has the highest risk; the second to die has a lower one than two who lived longer.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> risk = np.array([0.9, 0.4, 0.6, 0.5, 0.1])
    >>> harrell_c(time_days, event, risk)
    0.75
    """
    concordant, discordant, tied = concordance_counts(time_days, event, risk)
    pairs = concordant + discordant + tied
    return (concordant + tied / 2) / pairs if pairs else math.nan


def harrell_c_within(time_days: Numbers, event: Flags, risk: Numbers, group: Groups) -> float:
    """Harrell's C over the pairs whose two patients are in the same group (the same test fold).

    Formula: comparable, concordant and tied pairs are counted inside each group, and the counts are added.
    Assumption: risks are comparable inside a group; nothing is assumed between groups. Two models trained on different
    folds share no scale (a Cox risk has no zero), so this is the safer figure; the pooled one uses more pairs.
    Source: the stratified concordance of R's survival::concordance.

    Returns
    -------
    float in [0, 1]; NaN without a comparable pair inside any group.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.
    """
    time_days, event, risk = outcome(time_days, event, risk)
    group = grouped(group, len(risk))
    counts = np.zeros(3)
    for name in np.unique(group):
        here = group == name
        counts += concordance_counts(time_days[here], event[here], risk[here])
    concordant, _, tied = counts
    return float((concordant + tied / 2) / counts.sum()) if counts.sum() else math.nan


def uno_c(
    time_days: Numbers,
    event: Flags,
    risk: Numbers,
    tau: float | None = None,
    censoring: Callable[[Days, Event, Days], Float[np.ndarray, " n"]] = censoring_survival,
) -> float:
    """Uno's concordance index: Harrell's C with each pair weighted for the pairs that censoring took away.

    Definition: the share of comparable pairs up to tau that are concordant, each pair weighted by 1 / G(t)², t the day of its
    death and G the chance not to have been censored by then; ties of risk count one half.
    Formula: sum_i w_i (concordant_i + ½ tied_i) / sum_i w_i comparable_i over deaths i with T_i < tau, w_i = G(T_i)^-2.
    Assumption: censoring is unrelated to survival and to risk; tau lies within the follow-up.
    Source: Uno et al. 2011, doi:10.1002/sim.4154. G(t) as in scikit-survival; the other reading is G(t-).

    Parameters
    ----------
    tau : days; only deaths before it count. None: all deaths at which G > 0, as a weight is infinite elsewhere.
    censoring : gives G from (time_days, event, at_days): `censoring.censoring_survival` is G(t), the default here and in the
        report, `censoring.censoring_survival_before` is G(t-).

    Returns
    -------
    float in [0, 1]; NaN without a comparable pair.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> risk = np.array([0.9, 0.4, 0.6, 0.5, 0.1])
    >>> round(uno_c(time_days, event, risk), 3)
    0.784
    """
    time_days, event, risk = outcome(time_days, event, risk)
    comparable, lower, equal = death_counts(time_days, event, risk)
    weight = uno_weight(censoring(time_days, event, time_days[event]), time_days[event], tau)
    pairs = float((weight * comparable).sum())
    return float((weight * (lower + equal / 2)).sum()) / pairs if pairs else math.nan


def uno_weight(
    uncensored: Float[np.ndarray, "*b d"], died_days: Float[np.ndarray, " d"], tau: float | None
) -> Float[np.ndarray, "*b d"]:
    """1 / G² of each death before tau, 0 for the others and where G = 0."""
    counted = (uncensored > 0) & (died_days < (math.inf if tau is None else tau))
    return counted / np.where(counted, uncensored, 1.0) ** 2
