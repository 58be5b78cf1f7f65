"""How well risks order survival: time, event and risk of n patients in; Harrell's and Uno's C and their intervals out.

Times are in days; event is True for a death and False for a patient censored at that time. n is the number of patients, d of
deaths, b of resamples (sets of weights, or orders of ranks). Pairs are counted without listing them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num

from mri_vit.metrics.checked import Days, Events, Flags, Groups, Numbers, Scores, competed, grouped, outcome
from mri_vit.metrics.discrimination import ranks, wilson_of_c
from mri_vit.metrics.survival import censoring_survival


def concordance_counts(time_days: Numbers, event: Flags, risk: Numbers) -> tuple[int, int, int]:
    """Concordant and discordant pairs and pairs tied in risk, among the comparable ones (see `death_counts`)."""
    time_days, event, risk = outcome(time_days, event, risk)
    comparable, lower, equal = (int(counts.sum()) for counts in death_counts(time_days, event, risk))
    return lower, comparable - lower - equal, equal


def harrell_c(time_days: Numbers, event: Flags, risk: Numbers) -> float:
    """Harrell's concordance index, O(n log n).

    Definition: the share of comparable pairs in which the patient who died earlier had the higher risk, ties of risk
    counting one half (see `death_counts`).
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
    Returns: float in [0, 1]; NaN without a comparable pair inside any group.
    """
    time_days, event, risk = outcome(time_days, event, risk)
    group = grouped(group, len(risk))
    counts = np.zeros(3)
    for name in np.unique(group):
        here = group == name
        counts += concordance_counts(time_days[here], event[here], risk[here])
    concordant, _, tied = counts
    return float((concordant + tied / 2) / counts.sum()) if counts.sum() else math.nan


def uno_c(time_days: Numbers, event: Flags, risk: Numbers, tau: float | None = None, other: Flags | None = None) -> float:
    """Uno's concordance index: Harrell's C with each pair weighted for the pairs that censoring took away.

    Definition: the share of comparable pairs up to tau that are concordant, each pair weighted by 1 / G(t)², t the day of its
    death and G the chance not to have been censored by then; ties of risk count one half.
    Formula: sum_i w_i (concordant_i + ½ tied_i) / sum_i w_i comparable_i over deaths i with T_i < tau, w_i = G(T_i)^-2.
    Assumption: censoring is unrelated to survival and to risk; tau lies within the follow-up.
    Source: Uno et al. 2011, doi:10.1002/sim.4154. G(t) as in scikit-survival; the other reading is G(t-).
    `tau`: days; only deaths before it count. None: all deaths at which G > 0, as a weight is infinite elsewhere.
    `other`: where another event may come first, who had it: Wolbers's C, in which they are taken never to have the event that is
    predicted: a pair with one who had the other event earlier weighs 1 / (G(T_i-) G(T_j-)), all others 1 / G(T_i-)².
    Source: Wolbers et al. 2014, doi:10.1093/biostatistics/kxt059; without censoring 2009, doi:10.1097/EDE.0b013e3181a39056.
    Returns: float in [0, 1]; NaN without a comparable pair.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> risk = np.array([0.9, 0.4, 0.6, 0.5, 0.1])
    >>> round(uno_c(time_days, event, risk), 3)
    0.784
    """
    time_days, event, risk = outcome(time_days, event, risk)
    if other is not None:
        return _wolbers_pairs(time_days, event, risk, tau, other).value
    comparable, lower, equal = death_counts(time_days, event, risk)
    weight = uno_weight(censoring_survival(time_days, event, time_days[event]), time_days[event], tau)
    pairs = float((weight * comparable).sum())
    return float((weight * (lower + equal / 2)).sum()) / pairs if pairs else math.nan


def uno_weight(
    uncensored: Float[np.ndarray, " d"], died_days: Float[np.ndarray, " d"], tau: float | None
) -> Float[np.ndarray, " d"]:
    """1 / G² of each death before tau, 0 for the others and where G = 0."""
    counted = (uncensored > 0) & (died_days < (math.inf if tau is None else tau))
    return counted / np.where(counted, uncensored, 1.0) ** 2


def uno_interval(
    time_days: Numbers,
    event: Flags,
    risk: Numbers,
    tau: float | None = None,
    refits: bool = False,
    other: Flags | None = None,
) -> tuple[float, float]:
    """95 % interval of Uno's C, by `discrimination.wilson_of_c`.

    Formula: the variance is that of the infinitesimal jackknife, the weights taken as given: a patient's influence is (sum_j w_ij
    q_ij - C sum_j w_ij p_ij) / sum w p, as in `within_fold.within_fold_c`. No more patients count than without a signal
    (`PatientPairs.null_variance`): where one death has nearly all the weight, C is hardly known, which the jackknife misses.
    Assumption: as for Uno's C; patients are independent.
    Source: Efron 1982, The Jackknife, chapter 6; R's survival::concordance has the same but for sqrt(n / (n - 1)) and G(t-).
    `refits`: whether models were trained on the patients' other folds.
    Returns: (low, high); both NaN when C itself is undefined.
    """
    time_days, event, risk = outcome(time_days, event, risk)
    if other is None:
        weight = uno_weight(censoring_survival(time_days, event, time_days[event]), time_days[event], tau)
        found = patient_pairs(time_days, event, risk, weight)
    else:
        found = _wolbers_pairs(time_days, event, risk, tau, other)
    pairs = float(found.later.sum())
    if not pairs:
        return math.nan, math.nan
    return wilson_of_c(found.value, found.variance, found.null_variance(risk) / (2 * pairs) ** 2, refits)


def _wolbers_pairs(time_days: Days, event: Events, risk: Scores, tau: float | None, other: Flags) -> PatientPairs:
    """The pairs of Uno's C, and those of a patient with the event and one who had the other event earlier."""
    other = competed(time_days, event, other)[2]
    uncensored = censoring_survival(time_days, event | other, np.nextafter(time_days, -np.inf))
    weight = uno_weight(uncensored[event], time_days[event], tau)
    found = patient_pairs(time_days, event, risk, weight)
    died, u = time_days[event], np.sqrt(weight)
    last_first = np.flatnonzero(other)[np.argsort(-time_days[other], kind="stable")]
    v = 1 / uncensored[last_first]  # above 0, for who is not censored was followed so long
    start = len(last_first) - np.searchsorted(
        np.sort(time_days[other]), died, side="left"
    )  # the earlier ones stand from there on
    rank = dense_ranks(risk)
    lower, equal = count_from(rank[last_first], start, rank[event], v)
    met, met_squares = (_sums(of, start, np.full(len(start), len(v))) for of in (v, v**2))
    first_first = np.argsort(died, kind="stable")
    after, reverse = np.searchsorted(died[first_first], time_days[last_first], side="right"), dense_ranks(-risk)
    higher, tied = count_from(reverse[event][first_first], after, reverse[last_first], u[first_first])
    later, earlier, concordant = found.later.copy(), found.earlier.copy(), found.concordant.copy()
    later[event] += u * met
    earlier[last_first] += v * _sums(u[first_first], after, np.full(len(after), len(u)))
    concordant[event] += u * (lower + equal / 2)
    concordant[last_first] += v * (higher + tied / 2)
    return PatientPairs(later, earlier, concordant, found.squares + float((weight * met_squares).sum()))


@dataclass(frozen=True)
class PatientPairs:
    """Of each patient, the weight of those known to have outlived them, of the deaths that they outlived, and of the concordant
    pairs among these, ties one half.
    """

    later: Float[np.ndarray, " n"]
    earlier: Float[np.ndarray, " n"]
    concordant: Float[np.ndarray, " n"]
    squares: float  # of the weights, over pairs

    @property
    def comparable(self) -> Float[np.ndarray, " n"]:
        return self.later + self.earlier

    @property
    def value(self) -> float:
        """C; NaN without a pair."""
        pairs = float(self.comparable.sum())
        return float(self.concordant.sum()) / pairs if pairs else math.nan

    @property
    def influence(self) -> Float[np.ndarray, " n"]:
        """By the infinitesimal jackknife, times sqrt(n / (n - 1)); squares add up to the variance."""
        n, pairs = len(self.comparable), float(self.comparable.sum()) / 2
        return (self.concordant - self.value * self.comparable) / pairs * math.sqrt(n / (n - 1))

    @property
    def variance(self) -> float:
        return float((self.influence**2).sum())

    def null_variance(self, risk: Scores) -> float:
        """Variance of the concordant less the discordant pairs' weight when risks are exchanged, exact with ties of any kind.

        Formula: with a_ij the weight of the pair in which j outlived i, less that of the reverse, and b_ij the sign of i's risk
        less j's, S = ½ sum_ij a_ij b_ij, and var(sum ab) = 4 (A1 - A2) (B1 - B2) / (n (n-1) (n-2)) + 2 A2 B2 / (n (n-1)), A1 =
        sum_i (sum_j a_ij)², A2 = sum_ij a_ij², B1 and B2 likewise.
        Source: Daniels 1944, doi:10.1093/biomet/33.2.129 (generalised correlation); Kendall, Rank Correlation Methods, chapter 5.
        """
        n = len(risk)
        if n < 2:
            return 0.0
        a_rows, a_all = float(((self.later - self.earlier) ** 2).sum()), 2 * self.squares
        b_rows = float(((2 * ranks(risk) - n - 1) ** 2).sum())  # risks below a patient's less those above
        b_all = n**2 - float((np.unique(risk, return_counts=True)[1] ** 2).sum())
        together = 2 * a_all * b_all / (n * (n - 1))
        apart = 4 * (a_rows - a_all) * (b_rows - b_all) / (n * (n - 1) * (n - 2)) if n > 2 else 0.0
        return (together + apart) / 4


def patient_pairs(time_days: Days, event: Events, risk: Scores, weight: Float[np.ndarray, " d"] | None = None) -> PatientPairs:
    """The pairs of each patient, both as the one who died and as the other, in O(n log n).

    `weight`: of each death, in the order given; None is 1.
    """
    weight = np.ones(int(event.sum())) if weight is None else weight
    comparable, lower, equal = death_counts(time_days, event, risk)
    outlived_by, concordant = np.zeros((2, len(risk)))
    outlived_by[event], concordant[event] = weight * comparable, weight * (lower + equal / 2)
    place, rank = _place(time_days, event), dense_ranks(-risk)  # of the deaths before a patient, those of higher risk
    latest_first = np.argsort(-place[event], kind="stable")
    later = len(latest_first) - np.searchsorted(np.sort(place[event]), place, side="left")
    higher, tied = count_from(rank[event][latest_first], later, rank, weight[latest_first])
    earlier = np.r_[0.0, np.cumsum(weight[latest_first[::-1]])][len(latest_first) - later]
    squares = float((weight**2 * comparable).sum())
    return PatientPairs(outlived_by, earlier, concordant + higher + tied / 2, squares)


def death_counts(
    time_days: Days, event: Events, risk: Scores
) -> tuple[Int[np.ndarray, " d"], Int[np.ndarray, " d"], Int[np.ndarray, " d"]]:
    """For each death, in the order given: patients it is comparable with, those of lower risk, those of equal risk.

    Definition: a death and another patient are comparable when the other is known to have lived longer: a later time, or
    censored at the same time. Two deaths at the same time are not comparable. The pair is concordant when the other's risk
    is lower, tied when it is equal.
    Formula: patients stand in the order of their time, deaths before censored; each death's comparable patients are then
    the end of that row, in which lower risks are counted bit by bit of the rank (a wavelet matrix), O(n log n).
    Source: Harrell et al. 1996, doi:10.1002/(SICI)1097-0258(19960229)15:4<361::AID-SIM168>3.0.CO;2-4; the counting: "The
    wavelet matrix", Information Systems 47:15, 2015, doi:10.1016/j.is.2014.06.002.
    """
    rank = dense_ranks(risk)
    order, start = in_line(time_days, event)
    lower, equal = count_from(rank[order], start, rank[event])
    return len(risk) - start, lower, equal


def dense_ranks(values: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Ranks from 1; tied values share a rank, and no rank is skipped."""
    return np.unique(values, return_inverse=True)[1] + 1


def in_line(time_days: Days, event: Events) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " d"]]:
    """The patients in the order of their time, deaths before censored; and where in it each death's comparable patients begin."""
    place = _place(time_days, event)
    order = np.argsort(place, kind="stable")
    return order, np.searchsorted(place[order], place[event], side="right")


def comparable_pairs(time_days: Days, event: Events, group: Groups) -> dict[Any, float]:
    """How many pairs within each group can be compared."""
    found = {}
    for name in np.unique(group).tolist():
        here = group == name
        _, start = in_line(time_days[here], event[here])
        found[name] = float((int(here.sum()) - start).sum())
    return found


def concordances(time_days: Days, event: Events, risk: Float[np.ndarray, "b n"]) -> Float[np.ndarray, " b"]:
    """Harrell's C of each of b sets of risks; NaN where a risk is, or without a comparable pair."""
    from scipy.stats import rankdata  # here, because it takes a second to import, and `check` reads this file

    order, start = in_line(time_days, event)
    rank = rankdata(np.nan_to_num(risk), method="dense", axis=1).astype(int)
    lower, equal = count_from(rank[:, order], start, rank[:, event])
    pairs = (risk.shape[1] - start).sum()
    c = (lower.sum(axis=1) + equal.sum(axis=1) / 2) / pairs if pairs else np.full(len(risk), math.nan)
    return np.where(np.isnan(risk).any(axis=1), math.nan, c)


def _place(time_days: Days, event: Events) -> Int[np.ndarray, " n"]:
    return 2 * dense_ranks(time_days) + ~event  # a censored patient stands after deaths of its day


def count_from(
    rank: Int[np.ndarray, "*b n"],
    start: Int[np.ndarray, " d"],
    asked: Int[np.ndarray, "*b d"],
    weight: Float[np.ndarray, " n"] | None = None,
) -> tuple[Num[np.ndarray, "*b d"], Num[np.ndarray, "*b d"]]:
    """How many of rank[start:] are lower than, and how many equal to, the rank asked for; of each of b orders of the ranks.

    From the highest bit down, the row is parted into those with a 0 and those with a 1, keeping their order; a question's
    range goes with the half that its own bit names, and a range that goes with the ones leaves its zeros behind as lower.
    `weight`: what each counts, of one order; None is 1.
    """
    first, last = np.broadcast_to(start, asked.shape), np.full(asked.shape, rank.shape[-1])
    lower = np.zeros(asked.shape, dtype=int if weight is None else float)
    zeros = np.zeros((*rank.shape[:-1], rank.shape[-1] + 1), dtype=int)  # before each place, and in all
    highest = int(max(rank.max(initial=0), asked.max(initial=0)))
    for bit in reversed(range(highest.bit_length())):
        one = (rank >> bit) & 1 == 1
        np.cumsum(~one, axis=-1, out=zeros[..., 1:])
        up = (asked >> bit) & 1 == 1
        below, within = (np.take_along_axis(zeros, ends, axis=-1) for ends in (first, last))
        left = within - below if weight is None else _sums(np.where(one, 0.0, weight), first, last)
        lower += np.where(up, left, 0)
        first = np.where(up, zeros[..., -1:] + first - below, below)
        last = np.where(up, zeros[..., -1:] + last - within, within)
        parted = np.argsort(one, axis=-1, kind="stable")
        rank = np.take_along_axis(rank, parted, axis=-1)
        weight = None if weight is None else weight[parted]
    return lower, last - first if weight is None else _sums(weight, first, last)


def _sums(weight: Float[np.ndarray, " n"], first: Int[np.ndarray, " d"], last: Int[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """The sums of weight[first:last]."""
    sums = np.r_[0.0, np.cumsum(weight)]
    return sums[last] - sums[first]
