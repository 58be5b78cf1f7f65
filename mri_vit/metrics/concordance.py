"""How well risks order survival: time, event and risk of n patients in, Harrell's and Uno's C, intervals and tests out.

Times are in days; event is True for a death and False for a patient censored at that time. n is the number of patients,
d of whom died; b is the number of bootstrap draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata

from mri_vit.metrics.bootstrap import CONFIDENCE, RESAMPLES, distribution, interval, percentile_interval
from mri_vit.metrics.censoring import censoring_survival, drawn_censoring_survival
from mri_vit.metrics.checked import Flags, Groups, Numbers, grouped, outcome
from mri_vit.metrics.delong import Comparison
from mri_vit.metrics.pairs import count_from, death_counts, in_line

Days = Float[np.ndarray, " n"]
Event = Bool[np.ndarray, " n"]
Risk = Float[np.ndarray, " n"]

BLOCK = 2_000_000  # pairs looked at together: 16 MB for each matrix


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
    weight = _uno_weight(censoring(time_days, event, time_days[event]), time_days[event], tau)
    pairs = float((weight * comparable).sum())
    return float((weight * (lower + equal / 2)).sum()) / pairs if pairs else math.nan


def harrell_interval(
    time_days: Numbers,
    event: Flags,
    risk: Numbers,
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> tuple[float, float]:
    """Confidence interval of Harrell's C by a patient-level percentile bootstrap.

    Definition: patients are drawn with replacement, C is computed on each draw, and the interval runs between its
    quantiles. A draw is a vector w of how often each patient came up, and its C is w'Qw / w'Pw with Q the concordance and
    P the comparability of each pair, so all draws are two matrix products.
    Assumption: patients are independent; the models are taken as given (training is not repeated). Draws without a
    comparable pair are left out. Time is O(n²) for each draw.
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.

    Returns
    -------
    (low, high); both NaN when C itself is undefined.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.

    Examples
    --------
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
    even = np.ones((1, event.sum()))
    low, high = interval(
        lambda drawn: _drawn_c(time_days, event, risk, drawn, even), np.zeros(len(risk)), generator, resamples, confidence
    )
    return float(low), float(high)


def uno_interval(
    time_days: Numbers,
    event: Flags,
    risk: Numbers,
    generator: np.random.Generator,
    tau: float | None = None,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> tuple[float, float]:
    """Confidence interval of Uno's C (with G(t)) by a patient-level percentile bootstrap.

    Definition: as `harrell_interval`, with the censoring curve estimated anew on each draw.
    Assumption: as for Uno's C and for `harrell_interval`.
    Source: Efron & Tibshirani 1993, chapter 13; Uno et al. 2011, doi:10.1002/sim.4154.

    Returns
    -------
    (low, high); both NaN when C itself is undefined.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.
    """
    time_days, event, risk = outcome(time_days, event, risk)
    if math.isnan(uno_c(time_days, event, risk, tau)):
        return math.nan, math.nan

    def drawn_c(drawn: Float[np.ndarray, "b n"]) -> Float[np.ndarray, " b"]:
        weight = _uno_weight(drawn_censoring_survival(time_days, event, drawn)[:, event], time_days[event], tau)
        return _drawn_c(time_days, event, risk, drawn, weight)

    low, high = interval(drawn_c, np.zeros(len(risk)), generator, resamples, confidence)
    return float(low), float(high)


def concordance_p(
    time_days: Numbers,
    event: Flags,
    risk: Numbers,
    group: Groups,
    generator: np.random.Generator,
    permutations: int = 999,  # (m + 1) a round number, so that p has three exact digits
) -> float:
    """One-sided permutation p of Harrell's C: how often permuted risks do as well, or better.

    Definition: risks are exchanged among the patients of a group (the same test fold; one value for all exchanges them
    freely), and C over all pairs is computed again each time.
    Formula: (b + 1) / (m + 1) with b of m random orders reaching at least the observed C.
    Assumption: under the null hypothesis risks are exchangeable within a group.
    Source: Phipson & Smyth 2010, doi:10.2202/1544-6115.1585.

    Returns
    -------
    float in (0, 1]; NaN without a comparable pair.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.
    """
    time_days, event, risk = outcome(time_days, event, risk)
    group = grouped(group, len(risk))
    concordant, discordant, tied = concordance_counts(time_days, event, risk)
    if not concordant + discordant + tied:
        return math.nan
    members = [np.flatnonzero(group == name) for name in np.unique(group)]
    rank = rankdata(risk, method="dense").astype(int)
    order, start = in_line(time_days, event)  # the comparable pairs stay the same; only risks change hands
    reached, shuffled = 0, rank.copy()
    for _ in range(permutations):
        for rows in members:
            shuffled[rows] = rank[generator.permutation(rows)]
        lower, equal = count_from(shuffled[order], start, shuffled[event])
        reached += 2 * int(lower.sum()) + int(equal.sum()) >= 2 * concordant + tied  # whole numbers, so no rounding decides
    return (reached + 1) / (permutations + 1)


def concordance_difference(
    time_days: Numbers,
    event: Flags,
    risk_a: Numbers,
    risk_b: Numbers,
    generator: np.random.Generator,
    resamples: int = 2000,  # twice an interval's, because p is read at its tail
) -> Comparison:
    """Difference of Harrell's C of two models on the same patients, by a paired bootstrap of patients.

    Definition: each draw of patients is scored by both models; the interval (95 %) runs between the quantiles of the
    differences a - b. p is twice the smaller share of draws on either side of zero, (b + 1) / (m + 1), at most 1; z is the
    difference over the standard deviation of the draws.
    Assumption: as for `harrell_interval`. p is approximate and not below 2 / (m + 1).
    Source: Efron & Tibshirani 1993, chapters 13 and 16; Davison & Hinkley 1997, section 4.2.

    Returns
    -------
    Comparison; the difference NaN without a comparable pair, and then all else too. Where no draw differs from zero
    (risks of equal order) z = 0 and p = 1; where all draws differ by one same amount z is NaN.

    Raises
    ------
    ValueError for an event other than 0 and 1, a time or a risk that is NaN or infinite, or arrays of unequal length.
    """
    time_days, event, risk_a = outcome(time_days, event, risk_a)
    time_days, event, risk_b = outcome(time_days, event, risk_b)
    difference = harrell_c(time_days, event, risk_a) - harrell_c(time_days, event, risk_b)
    if math.isnan(difference):
        return Comparison(difference, math.nan, math.nan, math.nan, math.nan)
    even = np.ones((1, event.sum()))

    def drawn_difference(drawn: Float[np.ndarray, "b n"]) -> Float[np.ndarray, " b"]:
        return _drawn_c(time_days, event, risk_a, drawn, even) - _drawn_c(time_days, event, risk_b, drawn, even)

    differences = distribution(drawn_difference, np.zeros(len(risk_a)), generator, resamples)
    low, high = (float(bound) for bound in percentile_interval(differences))
    differences = differences[~np.isnan(differences)]
    tail = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(differences) + 1))
    spread = float(differences.std(ddof=1)) if np.ptp(differences) > 0 else 0.0
    if spread == 0:
        return Comparison(difference, low, high, 0.0 if difference == 0 else math.nan, p)
    return Comparison(difference, low, high, difference / spread, p)


def _uno_weight(
    uncensored: Float[np.ndarray, "*b d"], died_days: Float[np.ndarray, " d"], tau: float | None
) -> Float[np.ndarray, "*b d"]:
    """1 / G² of each death before tau, 0 for the others and where G = 0."""
    counted = (uncensored > 0) & (died_days < (math.inf if tau is None else tau))
    return counted / np.where(counted, uncensored, 1.0) ** 2


def _drawn_c(
    time_days: Days, event: Event, risk: Risk, drawn: Float[np.ndarray, "b n"], weight: Float[np.ndarray, "#b d"]
) -> Float[np.ndarray, " b"]:
    """C of each draw, deaths weighted; NaN for a draw without a comparable pair. Deaths are taken in blocks, for memory."""
    deaths = np.flatnonzero(event)
    died = drawn[:, event] * weight  # (b, d)
    pairs, concordant = np.zeros(len(drawn)), np.zeros(len(drawn))
    step = max(1, BLOCK // len(risk))
    for begin in range(0, len(deaths), step):
        here = deaths[begin : begin + step]
        died_days, died_risk = time_days[here, None], risk[here, None]
        comparable = ((died_days < time_days) | ((died_days == time_days) & ~event)).astype(float)
        concordance = comparable * ((died_risk > risk) + 0.5 * (died_risk == risk))
        of_block = died[:, begin : begin + step]
        pairs += np.einsum("bn,bn->b", of_block @ comparable, drawn)
        concordant += np.einsum("bn,bn->b", of_block @ concordance, drawn)
    return concordant / np.where(pairs > 0, pairs, math.nan)
