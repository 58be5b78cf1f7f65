"""How well attention segments a tumour: maps over places and the tumour's places in; Jaccard indices, chance and tests out.

In the form of Figure 4 of Caron et al. 2021 (arXiv:2104.14294): the CLS token's attention in the last block, of which the fewest
places are kept that hold 60 % of it; a head at a time.

Letters: p places that hold brain, h heads, s starts (random weights to begin with), n patients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.stats import hypergeom

from mri_vit.explain.faithfulness import order
from mri_vit.metrics.comparison import holm
from reproductions.run_statistics import over_starts

MASS = 0.6  # of attention that is kept; Caron et al. 2021, Figure 4
HELD = 0.5  # a place is tumour where more than half of its brain is
RULES = ("mass", "size")  # how many places are kept: as hold `MASS`, or as many as are tumour
CHANCE, MOST = "chance", "most"  # beside a head's index: that of random places, and the largest that so many places can have
COLUMNS = ["encoder", "start", "patient", "head", "rule", "places", "tumour", "kept", "jaccard", CHANCE, MOST]  # then the scans'


@dataclass(frozen=True, eq=False)
class Subject:
    """A patient who is judged: which of the brain's places are tumour, and how bright each is in some sequences."""

    id: str
    tumour: Bool[np.ndarray, " p"]
    brightness: Mapping[str, Float[np.ndarray, " p"]]


@dataclass(frozen=True)
class Mean:
    """A mean over patients and starts with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """What one encoder reaches by one rule.

    `chosen`: with the head that was best on the other half of the patients. `same`: with the one that is best on the very
    patients it is judged on; `own`: with each patient's own best. Both are optimistic. `others`: of random places, of the
    brightest and of the largest index possible, each of as many places as the chosen head keeps; `share` of the brain's places
    these are.
    """

    encoder: str
    rule: str
    starts: int
    chosen: Mean
    same: Mean
    own: Mean
    share: float
    others: Mapping[str, Mean]


@dataclass(frozen=True)
class Test:
    """One's index less the other's, of the same patients; `p_adjusted` is Holm's over all tests of the rule."""

    __test__ = False  # no test for pytest to collect

    one: str
    other: str
    rule: str
    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float


# --- a map and a tumour --------------------------------------------------------------------------------------------------------


def heaviest(attention: Float[np.ndarray, " p"], mass: float, generator: np.random.Generator) -> Bool[np.ndarray, " p"]:
    """The fewest places that hold at least that share of a map's sum; of equal ones, which is by chance.

    Source: Caron et al. 2021, visualize_attention.py, which leaves out the lightest while they hold no more than the rest.
    Raises ValueError for a map without a positive sum.
    """
    total = attention.sum(dtype=np.float64)
    if not total > 0:
        raise ValueError(f"found a map with a sum of {total}; expected attention")
    ranked = order(attention, generator)
    held = attention[ranked].cumsum(dtype=np.float64) / total
    count = int(np.searchsorted(held, mass - 1e-9)) + 1  # 1e-9: a sum of shares that is 0.6 but for rounding is 0.6
    return of(ranked[:count], len(attention))


def largest(values: Float[np.ndarray, " p"], count: int, generator: np.random.Generator) -> Bool[np.ndarray, " p"]:
    """So many places with the largest values; of equal ones, which is by chance."""
    return of(order(values, generator)[:count], len(values))


def of(positions: Int[np.ndarray, " k"], among: int) -> Bool[np.ndarray, " p"]:
    """A set of places, given by its indices, as flags."""
    flags = np.zeros(among, bool)
    flags[positions] = True
    return flags


def jaccard(one: Bool[np.ndarray, " p"], other: Bool[np.ndarray, " p"]) -> float:
    """Places in both sets over places in either (Jaccard 1912); NaN of two empty sets."""
    either = int((one | other).sum())
    return int((one & other).sum()) / either if either else math.nan


def by_chance(positions: int, tumour: int, kept: int) -> float:
    """The expected Jaccard index of a random set of so many `kept` of the brain's `places`, of which so many are `tumour`.

    Formula: the sum over m of P(m) m / (kept + tumour - m), m places in both being hypergeometric.
    """
    m = np.arange(max(0, kept + tumour - positions), min(kept, tumour) + 1)
    return float((hypergeom.pmf(m, positions, tumour, kept) * m / (kept + tumour - m)).sum())


def judged(
    encoder: str, start: int, attention: Sequence[Float[np.ndarray, "h _"]], subjects: Sequence[Subject], seed: int
) -> pd.DataFrame:
    """A row per patient, head and rule: the index of what is kept, and of random and of the brightest places, equally many."""
    rows = []
    for subject, heads in zip(subjects, attention, strict=True):
        generator = np.random.default_rng([seed, start])
        positions, tumour = len(subject.tumour), int(subject.tumour.sum())
        for head, values in enumerate(heads):
            for rule in RULES:
                kept = heaviest(values, MASS, generator) if rule == "mass" else largest(values, tumour, generator)
                count = int(kept.sum())
                least, most = sorted((count, tumour))
                bright = [jaccard(largest(level, count, generator), subject.tumour) for level in subject.brightness.values()]
                found = (jaccard(kept, subject.tumour), by_chance(positions, tumour, count), least / most)
                rows.append((encoder, start, subject.id, head, rule, positions, tumour, count, *found, *bright))
    return pd.DataFrame(rows, columns=pd.Index([*COLUMNS, *(subjects[0].brightness if subjects else ())]))


# --- heads ---------------------------------------------------------------------------------------------------------------------


def halves(count: int, seed: int) -> Bool[np.ndarray, " n"]:
    """Which of so many patients are in the second of two halves, at random."""
    return np.random.default_rng(seed).permutation(np.arange(count) % 2 == 1)


def chosen_heads(index: Float[np.ndarray, "h n"], second: Bool[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """For each patient the head with the highest mean index over the other half."""
    return np.where(second, index[:, ~second].mean(axis=1).argmax(), index[:, second].mean(axis=1).argmax())


# --- all patients --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Values:
    """One encoder's figures by one rule, each of every start and patient: with the chosen head unless said otherwise."""

    heads: Int[np.ndarray, "s n"]
    chosen: Float[np.ndarray, "s n"]
    same: Float[np.ndarray, "s n"]
    own: Float[np.ndarray, "s n"]
    share: Float[np.ndarray, "s n"]
    others: Mapping[str, Float[np.ndarray, "s n"]]


def values(table: pd.DataFrame, encoder: str, rule: str, seed: int) -> Values:
    """The figures of one encoder in the table of `judged`, patients in the order of their names."""
    here = table[(table.encoder == encoder) & (table.rule == rule)]
    scans = [name for name in table.columns if name not in COLUMNS]
    wanted = ["jaccard", "kept", "places", CHANCE, MOST, *scans]
    cubes = {
        name: np.stack([one.pivot(index="head", columns="patient", values=name).to_numpy() for _, one in here.groupby("start")])
        for name in wanted
    }  # each [s, h, n]
    index = cubes["jaccard"]
    second, every = halves(index.shape[2], seed), np.arange(index.shape[2])
    heads = [chosen_heads(one, second) for one in index]

    def with_chosen(cube: Float[np.ndarray, "s h n"]) -> Float[np.ndarray, "s n"]:
        return np.stack([one[head, every] for one, head in zip(cube, heads, strict=True)])

    return Values(
        heads=np.stack(heads),
        chosen=with_chosen(index),
        same=np.stack([one[one.mean(axis=1).argmax()] for one in index]),
        own=index.max(axis=1),
        share=with_chosen(cubes["kept"] / cubes["places"]),
        others={name: with_chosen(cubes[name]) for name in (CHANCE, *scans, MOST)},
    )


def mean(each: Float[np.ndarray, "s n"]) -> Mean:
    """The mean with its interval over patients and starts, by `over_starts`, cut to what an index can be."""
    value, reach, _ = _over_both(each)
    return Mean(value, max(0.0, value - reach), min(1.0, value + reach))


def lines(table: pd.DataFrame, seed: int) -> list[Line]:
    """What each encoder reaches by each rule, in the table's order."""
    found = []
    for rule in RULES:
        for encoder in table.encoder.unique():
            here = values(table, encoder, rule, seed)
            others = {name: mean(each) for name, each in here.others.items()}
            chosen, same, own = (mean(each) for each in (here.chosen, here.same, here.own))
            found.append(Line(encoder, rule, len(here.chosen), chosen, same, own, float(here.share.mean()), others))
    return found


def paired(table: pd.DataFrame, seed: int) -> list[Test]:
    """Every two encoders, and each encoder against random and against the brightest places, equally many.

    Definition: the mean over patients and starts of the difference on the same patient; of two encoders start by start. Interval
    and p hold patients and starts, as of `over_starts`, its standard error over patients being that of the mean over starts.
    Holm's correction is over all tests of a rule, so that the paper's rule does not pay for the other.
    """
    found: list[Test] = []
    names = list(table.encoder.unique())
    for rule in RULES:
        here = {name: values(table, name, rule, seed) for name in names}
        pairs = [(one, other, here[one].chosen - here[other].chosen) for other, one in combinations(names, 2)]
        pairs += [
            (name, against, here[name].chosen - each)
            for name in names
            for against, each in here[name].others.items()
            if against != MOST
        ]
        raw = []
        for one, other, difference in pairs:
            value, reach, p = _over_both(difference)
            low, high = (math.nan, math.nan) if math.isnan(p) else (value - reach, value + reach)
            raw.append(Test(one, other, rule, value, low, high, p, math.nan))
        adjusted = holm(np.array([test.p for test in raw]))
        found += [replace(test, p_adjusted=float(p)) for test, p in zip(raw, adjusted, strict=True)]
    return found


def _over_both(each: Float[np.ndarray, "s n"]) -> tuple[float, float, float]:
    """Mean, reach of its interval, and the p of its being 0."""
    of_patients = each.mean(axis=0)
    error = float(of_patients.std(ddof=1)) / math.sqrt(len(of_patients)) if len(of_patients) > 1 else math.nan
    reach, p = over_starts(each.mean(axis=1), error)
    return float(each.mean()), reach, p
