"""Pairs of patients of whom it is known who lived longer, counted without listing them.

Times are in days; event is True for a death and False for a patient censored at that time. n is the number of patients,
d of whom died; b is the number of orders of their ranks, or of sets of weights.
Arrays are those that `checked.at_risk` gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata


def death_counts(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], risk: Float[np.ndarray, " n"]
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
    rank = rankdata(risk, method="dense").astype(int)
    order, start = in_line(time_days, event)
    lower, equal = count_from(rank[order], start, rank[event])
    return len(risk) - start, lower, equal


def in_line(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " d"]]:
    """The patients in the order of their time, deaths before censored; and where in it each death's comparable patients begin."""
    place = 2 * rankdata(time_days, method="dense").astype(int) + ~event  # a censored patient stands after deaths of its day
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


def comparable_ranges(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"]) -> list[Ranges]:
    """Of each death the patients that it is comparable with, as `death_counts` counts them."""
    order, start = in_line(time_days, event)
    return [Ranges(order, np.arange(len(start)), start, np.full(len(start), len(order)), 1.0)]


def concordant_ranges(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], risk: Float[np.ndarray, " n"]
) -> list[Ranges]:
    """Likewise those of lower risk, and by one half those of equal risk: O(n log n) for each set of weights.

    The ranges are those that `count_from` walks through, which are the same whatever the weights.
    """
    order, start = in_line(time_days, event)
    rank = rankdata(risk, method="dense").astype(int)
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
