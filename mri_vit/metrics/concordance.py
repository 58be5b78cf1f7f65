"""How well risks order survival: time, event and risk of n patients in; Harrell's and Uno's C and their intervals out.

Times are in days; event is True for a death and False for a patient censored at that time. n is the number of patients, d of
deaths, b of resamples (sets of weights, or orders of ranks). Pairs are counted without listing them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from mri_vit.metrics.checked import Days, Drawn, Events, Flags, Groups, Numbers, Scores, grouped, outcome
from mri_vit.metrics.intervals import RESAMPLES, interval
from mri_vit.metrics.survival import censoring_survival, drawn_censoring_survival


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


def uno_c(time_days: Numbers, event: Flags, risk: Numbers, tau: float | None = None) -> float:
    """Uno's concordance index: Harrell's C with each pair weighted for the pairs that censoring took away.

    Definition: the share of comparable pairs up to tau that are concordant, each pair weighted by 1 / G(t)², t the day of its
    death and G the chance not to have been censored by then; ties of risk count one half.
    Formula: sum_i w_i (concordant_i + ½ tied_i) / sum_i w_i comparable_i over deaths i with T_i < tau, w_i = G(T_i)^-2.
    Assumption: censoring is unrelated to survival and to risk; tau lies within the follow-up.
    Source: Uno et al. 2011, doi:10.1002/sim.4154. G(t) as in scikit-survival; the other reading is G(t-).
    `tau`: days; only deaths before it count. None: all deaths at which G > 0, as a weight is infinite elsewhere.
    Returns: float in [0, 1]; NaN without a comparable pair.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> risk = np.array([0.9, 0.4, 0.6, 0.5, 0.1])
    >>> round(uno_c(time_days, event, risk), 3)
    0.784
    """
    time_days, event, risk = outcome(time_days, event, risk)
    comparable, lower, equal = death_counts(time_days, event, risk)
    weight = uno_weight(censoring_survival(time_days, event, time_days[event]), time_days[event], tau)
    pairs = float((weight * comparable).sum())
    return float((weight * (lower + equal / 2)).sum()) / pairs if pairs else math.nan


def uno_weight(
    uncensored: Float[np.ndarray, "*b d"], died_days: Float[np.ndarray, " d"], tau: float | None
) -> Float[np.ndarray, "*b d"]:
    """1 / G² of each death before tau, 0 for the others and where G = 0."""
    counted = (uncensored > 0) & (died_days < (math.inf if tau is None else tau))
    return counted / np.where(counted, uncensored, 1.0) ** 2


def harrell_interval(
    time_days: Numbers, event: Flags, risk: Numbers, generator: np.random.Generator, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Confidence interval of Harrell's C by a patient-level percentile bootstrap.

    Definition: patients are drawn with replacement, C is computed on each draw, and the interval runs between its
    quantiles. A draw is a vector w of how often each patient came up, and its C is w'Qw / w'Pw with Q the concordance and
    P the comparability of each pair; neither is ever listed (see `concordant_ranges`).
    Assumption: patients are independent; the models are taken as given (training is not repeated). Draws without a
    comparable pair are left out. Time is O(n log n) for each draw.
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.
    Returns: (low, high); both NaN when C itself is undefined.

    Five patients say nothing:

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event = np.array([1, 1, 0, 1, 0])
    >>> risk = np.array([0.9, 0.4, 0.6, 0.5, 0.1])
    >>> low, high = harrell_interval(time_days, event, risk, np.random.default_rng(0))
    >>> print(f"{low:.2f} to {high:.2f}")
    0.00 to 1.00
    """
    time_days, event, risk = outcome(time_days, event, risk)
    if math.isnan(harrell_c(time_days, event, risk)):
        return math.nan, math.nan
    pairs, even = Pairs.of(time_days, event, risk), np.ones((1, event.sum()))
    low, high = interval(lambda drawn: drawn_c(pairs, drawn, even), np.zeros(len(risk)), generator, resamples)
    return float(low), float(high)


def uno_interval(
    time_days: Numbers,
    event: Flags,
    risk: Numbers,
    generator: np.random.Generator,
    tau: float | None = None,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """Confidence interval of Uno's C (with G(t)) by a patient-level percentile bootstrap.

    Definition: as `harrell_interval`, with the censoring curve estimated anew on each draw.
    Assumption: as for Uno's C and for `harrell_interval`.
    Source: Efron & Tibshirani 1993, chapter 13; Uno et al. 2011, doi:10.1002/sim.4154.
    Returns: (low, high); both NaN when C itself is undefined.
    """
    time_days, event, risk = outcome(time_days, event, risk)
    if math.isnan(uno_c(time_days, event, risk, tau)):
        return math.nan, math.nan

    pairs = Pairs.of(time_days, event, risk)

    def weighted_c(drawn: Drawn) -> Float[np.ndarray, " b"]:
        weight = uno_weight(drawn_censoring_survival(time_days, event, drawn, time_days[event]), time_days[event], tau)
        return drawn_c(pairs, drawn, weight)

    low, high = interval(weighted_c, np.zeros(len(risk)), generator, resamples)
    return float(low), float(high)


@dataclass(frozen=True)
class Pairs:
    """Where the pairs of each death are found, whatever the draw."""

    event: Events
    comparable: list[Ranges]
    concordant: list[Ranges]

    @classmethod
    def of(cls, time_days: Days, event: Events, risk: Scores) -> Pairs:
        return cls(event, comparable_ranges(time_days, event), concordant_ranges(time_days, event, risk))


def drawn_c(pairs: Pairs, drawn: Drawn, weight: Float[np.ndarray, "#b d"]) -> Float[np.ndarray, " b"]:
    """C of each draw, deaths weighted; NaN for a draw without a comparable pair."""
    died = drawn[:, pairs.event] * weight  # (b, d)
    comparable, concordant = (pair_weight(ranges, drawn, died) for ranges in (pairs.comparable, pairs.concordant))
    return concordant / np.where(comparable > 0, comparable, math.nan)


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
    place = 2 * dense_ranks(time_days) + ~event  # a censored patient stands after deaths of its day
    order = np.argsort(place, kind="stable")
    return order, np.searchsorted(place[order], place[event], side="right")


def count_from(
    rank: Int[np.ndarray, "*b n"], start: Int[np.ndarray, " d"], asked: Int[np.ndarray, "*b d"]
) -> tuple[Int[np.ndarray, "*b d"], Int[np.ndarray, "*b d"]]:
    """How many of rank[start:] are lower than, and how many equal to, the rank asked for; of each of b orders of the ranks.

    From the highest bit down, the row is parted into those with a 0 and those with a 1, keeping their order; a question's
    range goes with the half that its own bit names, and a range that goes with the ones leaves its zeros behind as lower.
    """
    first, last = np.broadcast_to(start, asked.shape), np.full(asked.shape, rank.shape[-1])
    lower = np.zeros(asked.shape, dtype=int)
    zeros = np.zeros((*rank.shape[:-1], rank.shape[-1] + 1), dtype=int)  # before each place, and in all
    for bit in reversed(range(int(rank.max(initial=0)).bit_length())):
        one = (rank >> bit) & 1 == 1
        np.cumsum(~one, axis=-1, out=zeros[..., 1:])
        up = (asked >> bit) & 1 == 1
        below, within = (np.take_along_axis(zeros, ends, axis=-1) for ends in (first, last))
        lower += np.where(up, within - below, 0)
        first = np.where(up, zeros[..., -1:] + first - below, below)
        last = np.where(up, zeros[..., -1:] + last - within, within)
        rank = np.take_along_axis(rank, np.argsort(one, axis=-1, kind="stable"), axis=-1)
    return lower, last - first


@dataclass(frozen=True)
class Ranges:
    """For some of the deaths, a range of a row of patients whose weights are to be summed, and the share that they count."""

    row: Int[np.ndarray, " m"]
    deaths: Int[np.ndarray, " a"]
    first: Int[np.ndarray, " a"]
    last: Int[np.ndarray, " a"]  # one beyond the last
    share: float


def pair_weight(
    ranges: Sequence[Ranges], weight: Float[np.ndarray, "b n"], died: Float[np.ndarray, "b d"]
) -> Float[np.ndarray, " b"]:
    """The sum over pairs of both weights, for b sets: the death's by `died`, the other's by `weight`.

    Exact where weights are whole numbers.
    """
    found = np.zeros(len(weight))
    for asked in ranges:
        sums = np.zeros((len(weight), len(asked.row) + 1))
        np.cumsum(weight.take(asked.row, axis=1), axis=1, out=sums[:, 1:])
        others = sums.take(asked.last, axis=1) - sums.take(asked.first, axis=1)
        found += asked.share * np.einsum("ba,ba->b", died.take(asked.deaths, axis=1), others)
    return found


def comparable_ranges(time_days: Days, event: Events) -> list[Ranges]:
    """Of each death the patients that it is comparable with, as `death_counts` counts them."""
    order, start = in_line(time_days, event)
    return [Ranges(order, np.arange(len(start)), start, np.full(len(start), len(order)), 1.0)]


def concordant_ranges(time_days: Days, event: Events, risk: Scores) -> list[Ranges]:
    """Likewise those of lower risk, and by one half those of equal risk: O(n log n) for each set of weights.

    The ranges are those that `count_from` walks through, which are the same whatever the weights.
    """
    order, start = in_line(time_days, event)
    rank = dense_ranks(risk)
    return list(_levels(order, rank[order], start, rank[event]))


def _levels(
    patient: Int[np.ndarray, " n"], rank: Int[np.ndarray, " n"], start: Int[np.ndarray, " d"], asked: Int[np.ndarray, " d"]
) -> Iterator[Ranges]:
    first, last = start, np.full(len(asked), len(rank))
    for bit in reversed(range(int(rank.max(initial=0)).bit_length())):
        one = (rank >> bit) & 1 == 1
        zeros = np.r_[0, np.cumsum(~one)]  # before each place, and in all
        up = (asked >> bit) & 1 == 1
        below, within = zeros[first], zeros[last]
        yield Ranges(patient[~one], np.flatnonzero(up), below[up], within[up], 1.0)
        first = np.where(up, zeros[-1] + first - below, below)
        last = np.where(up, zeros[-1] + last - within, within)
        parted = np.argsort(one, kind="stable")
        patient, rank = patient[parted], rank[parted]
    yield Ranges(patient, np.arange(len(asked)), first, last, 0.5)
