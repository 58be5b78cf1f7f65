"""What the choice of scans does in Table 4 of Saeed et al. 2023: T1ce, FLAIR, T2 or all four, published and in a run of ours.

A difference between two choices is the mean over the networks that have been trained on both, each held against itself.

Letters: m networks, f folds, n patients.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import t as student

from mri_vit.metrics import comparison, discrimination
from mri_vit.report.numbers.judged import averaged, flags, known_rows
from mri_vit.report.reading.run import Run
from mri_vit.report.verdicts import ALPHA
from mri_vit.report.words.notation import adjusted_p, change
from mri_vit.settings.schema import Endpoint
from mri_vit.style import BLUE, GREY, INK, RC, WIDTH
from reproductions.run_statistics import delong_covariance
from reproductions.saeed2023_table4.table_rows import ENDPOINT, PUBLISHED_PATIENTS, SCANS, Row, published

LABELS = {"t1ce": "T1ce", "flair": "FLAIR", "t2": "T2", "all": "all four"}  # on the axis
PALE = 0.55  # of the single networks' lines, which are many


@dataclass(frozen=True)
class Choice:
    """The networks trained on one choice of scans: the AUC of each, and their mean with its 95 % interval."""

    scans: str  # a key of SCANS
    auc: Mapping[str, float]  # by the network's name
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Pair:
    """Two choices of scans over the networks that have both: first less second, and its two-sided p."""

    scans: str
    other: str
    networks: int
    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float  # by Holm's method, over all pairs of one side


@dataclass(frozen=True)
class Side:
    """One side of the table, published or ours: choices, and every pair of them that have networks in common."""

    choices: tuple[Choice, ...]
    pairs: tuple[Pair, ...]


def of_published(rows: Sequence[Row] | None = None) -> Side:
    """The published side.

    Definition: each fold's mean over networks, then over folds.
    Assumption: fold k is of the same patients in every row. Intervals and p are those of the corrected resampled t-test
    (`comparison.nadeau_bengio`), since the folds share training patients.
    """
    by_scans = {scans: {row.model: np.array(row.folds) for row in rows or published() if row.scans == scans} for scans in SCANS}
    choices = [
        Choice(scans, {name: float(folds.mean()) for name, folds in found.items()}, *_over_folds(_mean(found.values()))[:3])
        for scans, found in by_scans.items()
        if found
    ]
    pairs = []
    for one, other in combinations(by_scans, 2):
        both = [name for name in by_scans[one] if name in by_scans[other]]
        if both:
            difference = _mean(by_scans[one][name] - by_scans[other][name] for name in both)
            pairs.append(Pair(one, other, len(both), *_over_folds(difference), math.nan))
    return Side(tuple(choices), tuple(_adjusted(pairs)))


def of_run(run: Run) -> Side:
    """Our side: of the published rows that a run has predictions of, on the patients whom all of these predicted.

    Definition: the mean over networks of their pooled out-of-fold AUCs.
    Formula: variance w'Σw, Σ DeLong's covariance of the AUCs, w the networks' weights in the mean or the difference.
    Source: DeLong et al. 1988, doi:10.2307/2531595, who test any linear contrast so.
    """
    tables = {row: known_rows(run.predictions, Endpoint(name=ENDPOINT, kind="binary"), row.comparator) for row in published()}
    columns = {row: averaged(table).set_index("patient") for row, table in tables.items() if len(table)}
    if not columns:
        return Side((), ())
    scores = pd.concat({row: table.score for row, table in columns.items()}, axis=1).dropna()
    truth = flags(next(iter(columns.values())).truth.loc[scores.index])
    values = scores.to_numpy(dtype=float).T  # [m n]
    rows, auc = list(columns), np.array([discrimination.auc(truth, one) for one in values])
    covariance = delong_covariance(truth, values)

    def contrast(weights: Float[np.ndarray, " m"]) -> comparison.Comparison:
        return comparison.by_normal_law(float(weights @ auc), max(0.0, float(weights @ covariance @ weights)))

    choices, pairs = [], []
    for scans in SCANS:
        here = np.array([row.scans == scans for row in rows])
        if here.any():
            found = contrast(here / here.sum())
            names = {row.model: float(one) for row, one in zip(rows, auc, strict=True) if row.scans == scans}
            choices.append(Choice(scans, names, found.difference, found.low, found.high))
    for one, other in combinations(SCANS, 2):
        both = {row.model for row in rows if row.scans == one} & {row.model for row in rows if row.scans == other}
        if both:
            sign = [(row.model in both) * ((row.scans == one) - (row.scans == other)) / len(both) for row in rows]
            found = contrast(np.array(sign, dtype=float))
            pairs.append(Pair(one, other, len(both), found.difference, found.low, found.high, found.p, math.nan))
    return Side(tuple(choices), tuple(_adjusted(pairs)))


def sentence(title: str, side: Side) -> str:
    """Which choices of scans differ by more than chance."""
    if not side.pairs:
        return f"{title}: no network was trained on two choices of scans."
    sure = [pair for pair in side.pairs if pair.p_adjusted <= ALPHA]
    count = f"{len(sure) or 'none'} of {len(side.pairs)} pairs of choices {'differs' if len(sure) < 2 else 'differ'}"
    said = f"{title}, by scans: {count} by more than chance (Holm's correction)"
    if not sure:
        known = [pair for pair in side.pairs if not math.isnan(pair.p)]
        least = min(known, key=lambda pair: pair.p, default=None)
        return f"{said}; the smallest is {_words(least)}." if least else f"{said}; none could be tested."
    return f"{said}: {'; '.join(map(_words, sorted(sure, key=lambda pair: pair.p_adjusted)))}."


def _words(pair: Pair) -> str:
    figures = f"{change(pair.difference, pair.low, pair.high)}, {adjusted_p(pair.p_adjusted)}"
    return f"{LABELS[pair.scans]} less {LABELS[pair.other]} ({figures})"


def wide(sides: Mapping[str, Side]) -> pd.DataFrame:
    """Every choice's mean and every pair's difference as a row."""
    rows = []
    for title, side in sides.items():
        rows += [
            {"side": title, "scans": one.scans, "networks": len(one.auc), "auc": one.mean, "low": one.low, "high": one.high}
            for one in side.choices
        ]
        rows += [{"side": title} | asdict(pair) for pair in side.pairs]
    return pd.DataFrame(rows)


def figure(sides: Mapping[str, Side]) -> Figure:
    """AUC over the choice of scans, a panel for each side that has any: a line for each network, and their mean."""
    shown = {title: side for title, side in sides.items() if side.choices}
    with mpl.rc_context(RC):
        drawn = Figure(figsize=(WIDTH * (0.4 + 0.6 * len(shown)), 3.4), layout="constrained")
        panels = drawn.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for axes, (title, side) in zip(panels, shown.items(), strict=True):
            _draw(axes, title, side)
        panels[0].set_ylabel("AUC")
        panels[0].annotate("chance", (0.01, 0.5), xycoords=("axes fraction", "data"), va="bottom", color=GREY, fontsize=8)
        drawn.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return drawn


def _draw(axes: Axes, title: str, side: Side) -> None:
    at = {choice.scans: index for index, choice in enumerate(side.choices)}
    names = dict.fromkeys(name for choice in side.choices for name in choice.auc)
    for number, name in enumerate(names):
        points = [(at[choice.scans], choice.auc[name]) for choice in side.choices if name in choice.auc]
        label = "a network" if number == 0 else "_nolegend_"
        axes.plot(*zip(*points, strict=True), color=GREY, lw=0.8, marker=".", ms=4, alpha=PALE, label=label)
    mean = np.array([choice.mean for choice in side.choices])
    reach = np.array([[choice.mean - choice.low, choice.high - choice.mean] for choice in side.choices]).T
    axes.errorbar(list(at.values()), mean, reach, fmt="o", ms=6, color=BLUE, capsize=3, lw=1.6, label="mean [95 %]", zorder=3)
    axes.axhline(0.5, color=INK, lw=0.8, ls=":")
    axes.set_xticks(list(at.values()), [LABELS[scans] for scans in at])
    axes.set_xlim(-0.5, len(at) - 0.5)
    axes.set_title(title, fontsize=9, loc="left")


def _mean(values: Iterable[Float[np.ndarray, " f"]]) -> Float[np.ndarray, " f"]:
    return np.mean(list(values), axis=0)


def _over_folds(values: Float[np.ndarray, " f"]) -> tuple[float, float, float, float]:
    """Mean, 95 % interval and the p of the mean's being 0, by the corrected resampled t-test."""
    n_test = round(PUBLISHED_PATIENTS / len(values))
    n_train = PUBLISHED_PATIENTS - n_test
    _, p = comparison.nadeau_bengio(values, n_train, n_test)
    mean, error = float(values.mean()), math.sqrt((1 / len(values) + n_test / n_train) * float(values.var(ddof=1)))
    reach = float(student.isf(0.025, len(values) - 1)) * error
    return mean, mean - reach, mean + reach, 2 * min(p, 1 - p)


def _adjusted(pairs: Sequence[Pair]) -> list[Pair]:
    adjusted = comparison.holm(np.array([pair.p for pair in pairs], dtype=float))
    return [replace(pair, p_adjusted=float(p)) for pair, p in zip(pairs, adjusted, strict=True)]
