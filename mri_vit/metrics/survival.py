"""How well risks order survival: time, event and risk of n patients in, concordance, curves and tests out.

Times are in days; event is True for a death and False for a patient censored at that time.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from lifelines import KaplanMeierFitter
from lifelines.statistics import logrank_test


def concordance_pairs(
    time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], risk: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "d n"], Bool[np.ndarray, "d n"]]:
    """Every comparable pair, and how concordant it is; rows are the d deaths, columns all patients.

    Definition: a death and another patient are comparable when the other is known to have lived longer: a later time, or
    censored at the same time. Two deaths at the same time are not comparable. A comparable pair is concordant (1) when the
    earlier death has the higher risk, tied (½) at equal risk, discordant (0) otherwise.
    Source: Harrell et al. 1996, doi:10.1002/(SICI)1097-0258(19960229)15:4<361::AID-SIM168>3.0.CO;2-4.

    Returns
    -------
    concordance : float [d, n], 1, ½ or 0, and 0 where the pair is not comparable.
    comparable : bool [d, n].
    """
    if np.isnan(risk).any():
        raise ValueError(f"{int(np.isnan(risk).sum())} of {len(risk)} risks are NaN; an order needs every risk")
    died_days, died_risk = time_days[event, None], risk[event, None]
    comparable = (died_days < time_days) | ((died_days == time_days) & ~event)
    concordance = comparable * ((died_risk > risk) + 0.5 * (died_risk == risk))
    return concordance, comparable


def harrell_c(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], risk: Float[np.ndarray, " n"]) -> float:
    """Harrell's concordance index.

    Definition: the share of comparable pairs in which the patient who died earlier had the higher risk, ties of risk
    counting one half (see `concordance_pairs`).
    Assumption: censoring does not depend on risk; with heavy censoring C depends on the censoring (Uno et al. 2011).
    Source: Harrell et al. 1996. Equal to `lifelines.utils.concordance_index(time, -risk, event)` (held to it by a test);
    counted here because the interval and the within-fold form need the pairs, which lifelines does not hand out.

    Returns
    -------
    float in [0, 1]; NaN without a comparable pair.
    """
    concordance, comparable = concordance_pairs(time_days, event, risk)
    pairs = int(comparable.sum())
    return float(concordance.sum()) / pairs if pairs else math.nan


def harrell_c_within(
    time_days: Float[np.ndarray, " n"],
    event: Bool[np.ndarray, " n"],
    risk: Float[np.ndarray, " n"],
    group: Shaped[np.ndarray, " n"],
) -> float:
    """Harrell's C over the pairs whose two patients are in the same group (the same test fold).

    Formula: comparable and concordant pairs are counted inside each group, and the counts are added.
    Assumption: risks are comparable inside a group; nothing is assumed between groups. Two models trained on different
    folds share no scale (a Cox risk has no zero), so this is the safer figure; the pooled one uses more pairs.
    Source: the stratified concordance of R's survival::concordance.

    Returns
    -------
    float in [0, 1]; NaN without a comparable pair inside any group.
    """
    pairs, concordant = 0, 0.0
    for name in np.unique(group):
        here = group == name
        concordance, comparable = concordance_pairs(time_days[here], event[here], risk[here])
        pairs += int(comparable.sum())
        concordant += float(concordance.sum())
    return concordant / pairs if pairs else math.nan


def harrell_interval(
    time_days: Float[np.ndarray, " n"],
    event: Bool[np.ndarray, " n"],
    risk: Float[np.ndarray, " n"],
    generator: np.random.Generator,
    resamples: int = 1000,  # Efron & Tibshirani 1993, section 13.3: about a thousand for a percentile interval
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Confidence interval of Harrell's C by a patient-level percentile bootstrap.

    Definition: patients are drawn with replacement, C is computed on each draw, and the interval runs between its
    quantiles. A draw is a vector w of how often each patient came up, and its C is w'Qw / w'Pw with Q the concordance and
    P the comparability of each pair, so all draws are two matrix products.
    Assumption: patients are independent; the models are taken as given (training is not repeated). Draws without a
    comparable pair are left out.
    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.

    Returns
    -------
    (low, high); both NaN when C itself is undefined.
    """
    concordance, comparable = concordance_pairs(time_days, event, risk)
    if not comparable.any():
        return math.nan, math.nan
    n = len(risk)
    drawn = generator.multinomial(n, np.full(n, 1 / n), size=resamples).astype(float)  # (resamples, n)
    deaths = drawn[:, event]  # (resamples, d)
    pairs = ((deaths @ comparable) * drawn).sum(axis=1)
    concordant = ((deaths @ concordance) * drawn).sum(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(concordant[pairs > 0] / pairs[pairs > 0], [tail, 1 - tail])
    return float(low), float(high)


def high_risk(risk: Float[np.ndarray, " n"], group: Shaped[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """True for patients whose risk is above the median of their own group (the same test fold).

    Assumption: each group has its own scale. The median is taken over the patients that are split, so the split describes
    the order of the risks; it is not a cut-off fixed beforehand.
    """
    above = np.zeros(len(risk), dtype=bool)
    for name in np.unique(group):
        here = group == name
        above[here] = risk[here] > np.median(risk[here])
    return above


def kaplan_meier(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], label: str) -> KaplanMeierFitter:
    """The Kaplan-Meier survival curve of at least one patient, with its 95 % band (Greenwood, log-log scale), by lifelines.

    Formula: S(t) = product over death times s <= t of (1 - deaths at s / at risk at s).
    Assumption: censoring is unrelated to survival.
    Source: Kaplan & Meier 1958, doi:10.1080/01621459.1958.10501452.
    """
    return KaplanMeierFitter(label=label).fit(time_days, event)


def at_risk(time_days: Float[np.ndarray, " n"], at_days: Float[np.ndarray, " t"]) -> Int[np.ndarray, " t"]:
    """Patients still followed after each of `at_days`: those whose time is longer (lifelines' convention for plots)."""
    return (time_days[:, None] > at_days).sum(axis=0)


def logrank_p(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"], high: Bool[np.ndarray, " n"]) -> float:
    """Two-sided p of the log-rank test between the groups `high` and not `high`, by lifelines.

    Definition: compares the deaths seen in a group with those expected if both groups shared one hazard; chi-squared with
    one degree of freedom.
    Assumption: groups were formed without looking at survival; most powerful when the hazards are proportional.
    Source: Mantel 1966; Peto & Peto 1972, doi:10.2307/2344317.

    Returns
    -------
    float; NaN when a group is empty, nobody died, or no death left anyone at risk in both groups.
    """
    if high.all() or not high.any() or not event.any():
        return math.nan
    died_days = time_days[event]
    # Without a death while both groups are at risk the statistic is 0 / 0.
    if died_days.min() > min(time_days[high].max(), time_days[~high].max()):
        return math.nan
    return float(logrank_test(time_days[high], time_days[~high], event[high], event[~high]).p_value)
