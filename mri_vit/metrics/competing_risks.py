"""Competing risks: how many have an event by a day where another event may come first, and how far groups differ in that.

n is the number of patients, t of days asked for, s of a curve's steps, g of groups, b of draws. Times are in days; `event` is
True for the event that is asked about, `other` for the competing one; who has neither was censored at that time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Real
from scipy.special import chdtrc

from mri_vit.metrics.checked import Days, Drawn, Events, Flags, Groups, Numbers, competed, followed, grouped, numbers
from mri_vit.metrics.comparison import Z_95


@dataclass(frozen=True)
class Incidence:
    """A curve's days, from 0; the share who had the event by then, its variance and the ends of its 95 % interval."""

    days: Float[np.ndarray, " s"]
    share: Float[np.ndarray, " s"]
    variance: Float[np.ndarray, " s"]
    low: Float[np.ndarray, " s"]
    high: Float[np.ndarray, " s"]


def cumulative_incidence(time_days: Numbers, event: Flags, other: Flags) -> Incidence:
    """The Aalen-Johansen estimate of the share who had the event by each day with an event of either kind.

    Definition: 1 less Kaplan and Meier's curve, with the competing event censored, is larger: how many would have the event if
    the other could not happen.
    Formula: F(t) = sum over days s <= t of S(s-) d(s) / Y(s), d the events among Y at risk and S the Kaplan-Meier curve of both
    events together. Variance: Aalen's, less for ties, as R's cmprsk has it, to which a test holds it. The interval has the ends
    F^exp(± 1.96 σ / (F log F)).
    Assumption: censoring is unrelated to both events.
    Source: Aalen & Johansen 1978, Scand J Stat 5:141; Aalen 1978, Ann Stat 6:534; Choudhury 2002, doi:10.1002/sim.1091.
    Returns: Incidence; the ends are NaN where the share is 0 or 1, which is no certainty.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0])
    >>> cumulative_incidence(time_days, np.array([1, 0, 0, 1]), np.array([0, 1, 0, 0])).share
    array([0.  , 0.25, 0.25, 0.75])
    """
    days, at_risk, died, either, before = _life_table(*competed(time_days, event, other))
    share, after = np.cumsum(before * died / at_risk), before * (1 - either / at_risk)
    inverse = np.divide(1, after, out=np.zeros_like(after), where=after > 0)
    own, others = (
        before**2 * count / at_risk**2 * _untied(count, at_risk) for count in (died, np.where(after > 0, either - died, 0))
    )
    a, b = 1 + inverse * share, inverse * share
    of_share, of_both, of_free = a**2 * own + b**2 * others, inverse * (a * own + b * others), inverse**2 * (own + others)
    variance = np.cumsum(of_share) + share**2 * np.cumsum(of_free) - 2 * share * np.cumsum(of_both)
    inside = (share > 0) & (share < 1 - 1e-12)  # rounding of a sum of steps
    log = np.log(np.where(inside, share, 0.5))
    reach = np.exp(Z_95 * np.sqrt(variance.clip(0)) / np.where(inside, -share * log, 1.0))
    low, high = (np.where(inside, np.exp(log * power), math.nan) for power in (reach, 1 / reach))
    curves = zip((0, 0, 0, math.nan, math.nan), (days, share, variance, low, high), strict=True)
    return Incidence(*(np.r_[first, values] for first, values in curves))


def incidence_at(time_days: Numbers, event: Flags, other: Flags, at_day: float) -> tuple[float, float, float]:
    """`cumulative_incidence` at a day with its interval; NaN where the last patient was censored before it."""
    time_days, event, other = competed(time_days, event, other)
    if not _is_known(time_days, event | other, at_day):
        return math.nan, math.nan, math.nan
    curve = cumulative_incidence(time_days, event, other)
    place = int(np.searchsorted(curve.days, at_day, side="right")) - 1
    return float(curve.share[place]), float(curve.low[place]), float(curve.high[place])


def _is_known(time_days: Days, either: Events, at_day: float) -> bool:
    return len(time_days) > 0 and bool(at_day <= time_days.max() or either[time_days == time_days.max()].all())


def _life_table(
    time_days: Days, event: Events, other: Events
) -> tuple[Float[np.ndarray, " s"], Int[np.ndarray, " s"], Int[np.ndarray, " s"], Int[np.ndarray, " s"], Float[np.ndarray, " s"]]:
    """The days with an event of either kind: patients at risk, with the event, with either, and the share free of both before."""
    either = event | other
    days = np.unique(time_days[either])
    at_risk = len(time_days) - np.searchsorted(np.sort(time_days), days, side="left")
    died, ended = (np.bincount(np.searchsorted(days, time_days[flag]), minlength=len(days)) for flag in (event, either))
    return days, at_risk, died, ended, np.r_[1.0, np.cumprod(1 - ended / at_risk)][: len(days)]


def drawn_incidence(
    time_days: Numbers, event: Flags, other: Flags, drawn: Drawn, at_days: Real[np.ndarray, " t"]
) -> Float[np.ndarray, "b t"]:
    """`cumulative_incidence` at each of `at_days`, for each of b draws; `drawn` says how often each patient came up."""
    time_days, event, other = competed(time_days, event, other)
    days = np.unique(time_days[event | other])
    order = np.argsort(time_days, kind="stable")
    first, last = (np.searchsorted(time_days[order], days, side=side) for side in ("left", "right"))
    until = np.zeros((3, len(drawn), len(order) + 1))  # the draws before each patient of the row, and in all
    np.cumsum(
        [drawn[:, order] * flag[order] for flag in (np.ones(len(order)), event, event | other)], axis=2, out=until[:, :, 1:]
    )
    at_risk = until[0, :, -1:] - until[0][:, first]
    died, ended = ((count[:, last] - count[:, first]) / np.where(at_risk > 0, at_risk, 1.0) for count in until[1:])
    none = np.zeros((len(drawn), 1))
    before = np.cumprod(np.concatenate([none + 1, 1 - ended], axis=1), axis=1)[:, :-1]
    share = np.cumsum(np.concatenate([none, before * died], axis=1), axis=1)
    return share[:, np.searchsorted(days, numbers(at_days, "days"), side="right")]


def pseudo_incidence(time_days: Numbers, event: Flags, other: Flags, at_day: float) -> Float[np.ndarray, " n"]:
    """What each patient adds to `cumulative_incidence` at a day, for the outcome in a regression, as `survival.pseudo_survival`.

    Formula: F + n dF/dw_i, the infinitesimal jackknife: with a_i(s) = (1[T_i = s, event] - 1[T_i >= s] d / Y) / Y and e_i(s) the
    same of either event, F + n sum over s <= t of S(s-) a_i(s) - (F(t) - F(s)) e_i(s) / (1 - D / Y), D of either.
    Source: Andersen & Pohar Perme 2010, doi:10.1177/0962280209105020; R's survival::pseudo, to which a test holds it.
    Returns: float [n], their mean F; all NaN where the last patient was censored before the day.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0])
    >>> pseudo_incidence(time_days, np.array([1, 0, 0, 1]), np.array([0, 1, 0, 0]), 250.0)
    array([1., 0., 0., 0.])
    """
    time_days, event, other = competed(time_days, event, other)
    if not _is_known(time_days, event | other, at_day):
        return np.full(len(time_days), math.nan)
    table = _life_table(time_days, event, other)
    days, at_risk, died, ended, before = (column[: np.searchsorted(table[0], at_day, side="right")] for column in table)
    share = np.cumsum(before * died / at_risk)
    whole = float(share[-1]) if len(share) else 0.0
    left = at_risk - ended
    later = np.divide(whole - share, left, out=np.zeros_like(share), where=left > 0)  # where none is left, nothing follows
    by_then = np.searchsorted(days, np.minimum(time_days, at_day), side="right")  # days with events that a patient was at risk on
    expected = np.r_[0.0, np.cumsum(before * died / at_risk**2 - later * ended / at_risk)][by_then]
    now, then = (np.r_[0.0, values][by_then] for values in (before / at_risk, later))
    seen = (time_days <= at_day) * (event * now - (event | other) * then)
    return whole + len(time_days) * (seen - expected)


def free_of_event(
    hazard: Float[np.ndarray, "n s"], other: Float[np.ndarray, " s"] | Float[np.ndarray, "n s"]
) -> Float[np.ndarray, "n s"]:
    """1 less the cumulative incidence from the cumulative hazards of both events at the ends of s intervals.

    Formula: 1 - sum_k S_(k-1) (1 - exp(-a_k - b_k)) a_k / (a_k + b_k), a_k and b_k what the hazards rise by in interval k and S
    the share free of both events: exact where both hazards are constant within an interval, and exp(-hazard) where `other` is 0.
    Source: Prentice et al. 1978, doi:10.2307/2530374, equation 5.

    >>> free_of_event(np.log([[2.0, 4.0]]), np.log([2.0, 4.0])).round(3)
    array([[0.625, 0.531]])
    """
    own, both = np.diff(hazard, prepend=0.0), np.diff(hazard + other, prepend=0.0)
    before = np.exp(-np.cumsum(both, axis=1) + both)
    share = np.divide(own, both, out=np.zeros_like(both), where=both > 0)
    return 1 - np.cumsum(before * -np.expm1(-both) * share, axis=1)


def cumulative_hazard(time_days: Numbers, event: Flags, at_days: Real[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
    """The Nelson-Aalen estimate at each of `at_days`: the sum over days of the events among those at risk.

    Source: Aalen 1978, Ann Stat 6:701. Assumption: censoring, by a competing event too, is unrelated to what follows it.

    >>> cumulative_hazard(np.array([100.0, 200.0, 300.0]), np.array([1, 0, 1]), np.array([150.0, 300.0])).round(3)
    array([0.333, 1.333])
    """
    time_days, event = followed(time_days, event)
    days, counts = np.unique(time_days[event], return_counts=True)
    at_risk = len(time_days) - np.searchsorted(np.sort(time_days), days, side="left")
    return np.r_[0.0, np.cumsum(counts / at_risk)][np.searchsorted(days, numbers(at_days, "days"), side="right")]


def grays_test(time_days: Numbers, event: Flags, other: Flags, group: Groups) -> tuple[float, float]:
    """Gray's test of two or more groups: whether the cumulative incidence of the event is the same in all.

    Definition: the log-rank test compares the hazards of those still free of both events; this one the hazards of the
    subdistribution, in which who had the other event remains, so it follows the curves of `cumulative_incidence`.
    Formula: z' V⁻ z, z_g the sum over days of d_g - d R_g / R, d the events, R_g = Y_g (1 - F_g(s-)) / S_g(s-), Y_g at risk; V by
    Gray's section 3 with cmprsk's correction for ties, to which a test holds it.
    Assumption: groups were formed without looking at the outcome, which out-of-fold risks are not: see
    `survival.refitted_logrank`; one censoring curve for each group.
    Source: Gray 1988, doi:10.1214/aos/1176350951; R's cmprsk::cuminc with rho 0.
    Returns: (chi², p), degrees of freedom the groups less one; NaN without an event or with one group.

    >>> time_days = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    >>> event, other = np.array([1, 1, 0, 1, 0]), np.array([0, 0, 1, 0, 0])
    >>> chi2, p = grays_test(time_days, event, other, np.array(["high", "high", "low", "low", "low"]))
    >>> print(f"{chi2:.2f}, p {p:.2f}")
    4.05, p 0.04
    """
    time_days, event, other = competed(time_days, event, other)
    names, of = np.unique(grouped(group, len(time_days)), return_inverse=True)
    if len(names) < 2 or not event.any():
        return math.nan, math.nan
    days = np.unique(time_days[event | other])
    counts = np.zeros((2, len(days), len(names)))
    for kind, flag in enumerate((event, other)):
        np.add.at(counts[kind], (np.searchsorted(days, time_days[flag]), of[flag]), 1)
    at_risk = np.stack([(of == g).sum() - np.searchsorted(np.sort(time_days[of == g]), days) for g in range(len(names))], axis=1)
    z, variance = _grays_sums(at_risk, *counts)
    z, variance = z[:-1], variance[:-1, :-1]
    freedom = int(np.linalg.matrix_rank(variance, hermitian=True))
    chi2 = float(z @ np.linalg.pinv(variance, hermitian=True) @ z)
    return (chi2, float(chdtrc(freedom, chi2))) if freedom else (math.nan, math.nan)


def _grays_sums(
    at_risk: Int[np.ndarray, "s g"], event: Float[np.ndarray, "s g"], other: Float[np.ndarray, "s g"]
) -> tuple[Float[np.ndarray, " g"], Float[np.ndarray, "g g"]]:
    """Gray's z and V from the counts of each day; `free` and `share` are each group's curves before it, `whole` that of all."""
    g = at_risk.shape[1]
    free, share, whole = np.ones(g), np.zeros(g), 0.0
    z, variance, c, squares, cross = np.zeros(g), np.zeros((g, g)), np.zeros((g, g)), np.zeros(g), np.zeros((g, g))

    def add(factor: Float[np.ndarray, " g"], column: Float[np.ndarray, "g g"], spread: Float[np.ndarray, " g"]) -> None:
        nonlocal squares, cross, variance
        squares = squares + factor**2 * spread
        cross = cross + column * factor * spread
        variance = variance + column * spread @ column.T

    for y, mine, theirs in zip(at_risk, event, other, strict=True):
        here = y > 0
        inverse = np.divide(1, free, out=np.zeros(g), where=here)
        some = np.where(here, y, 1)
        weight = y * inverse
        total, died = weight.sum(), mine.sum()
        free_after = free * (1 - np.where(here, mine + theirs, 0) / some)
        share_after = share + free * mine / some
        a = np.diag(weight) - np.outer(weight, weight) / total
        c += a * died / (total * (1 - whole))
        whole_after = whole + died / total
        left = np.divide(1 - whole_after, free_after, out=np.zeros(g), where=free_after > 0)
        if died:
            z += mine - died * weight * (1 - share) / (weight @ (1 - share))
            spread = np.where(here, free * died / (total * some), 0) * _untied(np.full(g, died), total * free)
            add(1 - left, a - (1 - left) * c, spread)
        add(left, -left * c, np.where(free_after > 0, free**2 * theirs / some**2, 0) * _untied(theirs, some))
        free, share, whole = free_after, share_after, whole_after
    return z, variance + (c * squares) @ c.T + c @ cross.T + cross @ c.T


def _untied(count: Real[np.ndarray, "..."], at_risk: Real[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The share of a variance that is left where several have the event on one day."""
    return np.where(count > 1, 1 - (count - 1) / np.maximum(at_risk - 1, 1), 1.0)
