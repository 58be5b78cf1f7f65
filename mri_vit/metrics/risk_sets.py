"""Risk sets: who was at risk at each death, and what a Cox regression's gradient and Hessian take of them (Efron's ties).

Letters: b vectors of outcomes, of which a are looked at, n patients, d deaths, r columns.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

Rows = Int[np.ndarray, " a"]  # which of the vectors of outcomes


class RiskSets:
    """Patients in the order of their time, the longest first, for each of b vectors of outcomes; so a risk set is a beginning.

    `first` and `last` are where the patients with the same time begin and end; `fraction` is l / d for the l-th (from 0) of d
    deaths at one time: Efron's share of the tied deaths that have left the risk set by then.
    """

    def __init__(self, time: Float[np.ndarray, "b n"] | Int[np.ndarray, "b n"], event: Bool[np.ndarray, "b n"]) -> None:
        self.order = np.argsort(-time, axis=1, kind="stable")
        line = np.take_along_axis(time, self.order, axis=1)
        self.dead = np.take_along_axis(event, self.order, axis=1)
        index = np.broadcast_to(np.arange(line.shape[1]), line.shape)
        new = np.ones(line.shape, dtype=bool)
        new[:, 1:] = line[:, 1:] != line[:, :-1]
        self.first = np.maximum.accumulate(np.where(new, index, 0), axis=1)
        ends = np.ones(line.shape, dtype=bool)
        ends[:, :-1] = new[:, 1:]
        self.last = np.minimum.accumulate(np.where(ends, index, line.shape[1])[:, ::-1], axis=1)[:, ::-1]
        before = _sums_before(self.dead.astype(float))
        here = np.take_along_axis(before, self.last + 1, axis=1) - np.take_along_axis(before, self.first, axis=1)
        position = before[:, :-1] - np.take_along_axis(before, self.first, axis=1)
        self.fraction = np.where(self.dead, position / np.maximum(here, 1), 0.0)

    def deaths(
        self, risk: Float[np.ndarray, "a n"], rows: Rows
    ) -> tuple[Float[np.ndarray, "a n"], Float[np.ndarray, "a n"], Float[np.ndarray, "a n"]]:
        """Of some vectors, at these log hazards: hazards in line; expected deaths of each patient, as given; and in line the
        reciprocal of the hazard at risk at each death, 0 for the censored.
        """
        first, last, dead, fraction = self.first[rows], self.last[rows], self.dead[rows], self.fraction[rows]

        def together(values: Float[np.ndarray, "a n"]) -> Float[np.ndarray, "a n"]:
            before = _sums_before(values)
            return np.take_along_axis(before, last + 1, axis=1) - np.take_along_axis(before, first, axis=1)

        risk = risk - risk.max(axis=1, keepdims=True)  # a common factor cancels; the exponential stays finite
        theta = np.take_along_axis(np.exp(risk), self.order[rows], axis=1)
        at_risk = np.take_along_axis(np.cumsum(theta, axis=1), last, axis=1)
        tied = fraction.any()
        if tied:
            at_risk -= fraction * together(theta * dead)
        share = dead / at_risk
        hazard = np.take_along_axis(np.cumsum(share[:, ::-1], axis=1)[:, ::-1], first, axis=1)  # of deaths up to the own time
        if tied:
            hazard -= dead * together(fraction * share)
        expected = np.empty_like(theta)
        np.put_along_axis(expected, self.order[rows], theta * hazard, axis=1)
        return theta, expected, share

    def at_risk(self, values: Float[np.ndarray, "n r"]) -> Float[np.ndarray, "d r"]:
        """Of the first vector of outcomes: at each death the sums of columns over those at risk, less Efron's share of those tied
        with it; patients and deaths are in line.
        """
        first, last, fraction = (of[0][self.dead[0]] for of in (self.first, self.last, self.fraction))
        of_all, of_dead = (_sums_before(columns.T).T for columns in (values, values * self.dead[0][:, None]))
        return of_all[last + 1] - fraction[:, None] * (of_dead[last + 1] - of_dead[first])

    def mean_at_risk(
        self, x: Float[np.ndarray, "n r"], row: int, theta: Float[np.ndarray, " n"], share: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, "d r"]:
        """The hazard-weighted mean of the columns among those at risk at each death of one vector of outcomes."""
        dead, last, fraction = self.dead[row], self.last[row], self.fraction[row]
        weighted = theta[:, None] * x[self.order[row]]
        total = np.cumsum(weighted, axis=0)[last[dead]]
        if fraction.any():
            before = np.zeros((len(x) + 1, x.shape[1]))
            np.cumsum(weighted * dead[:, None], axis=0, out=before[1:])
            total -= fraction[dead, None] * (before[last[dead] + 1] - before[self.first[row][dead]])
        return share[dead, None] * total


def _sums_before(values: Float[np.ndarray, "a n"]) -> Float[np.ndarray, "a m"]:
    """The sum of what stands before each place, and of all at the end: m = n + 1."""
    sums = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums
