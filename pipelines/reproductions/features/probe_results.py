"""How good frozen features are: out-of-fold scores of probes in; AUC, interval and a paired test against random weights out.

A line is one encoder, read in one way and judged by one probe at one share of the labels. An encoder begins several times
(starts), and a small share of the labels is drawn several times for each (draws); its AUC is the mean over these. AUCs have
intervals over patients; tests hold patients and starts.

Letters: n patients, s score vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.metrics.comparison import holm
from mri_vit.metrics.discrimination import auc, wilson_of_auc
from reproductions.run_statistics import delong_covariance, over_starts

KEYS = ["encoder", "scans", "features", "probe", "share"]  # of the scores: what makes a line

Starts = dict[int, Float[np.ndarray, "_ n"]]  # a line's scores by start, a row for each draw of the labels


@dataclass(frozen=True)
class Versus:
    """A difference of two mean AUCs, its 95 % interval, and the p that it is zero; `p_adjusted` is Holm's within its family."""

    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float


@dataclass(frozen=True)
class Line:
    """`scans` were learned from; `labelled` patients trained the probe of a fold, on average; `folds` are their mean AUCs.

    `starts` and `draws` say of how many the AUC is the mean: random weights to begin with, and draws of the labels for each.
    """

    encoder: str
    scans: int
    reading: str
    probe: str
    share: float
    labelled: float
    starts: int
    draws: int
    auc: float
    low: float
    high: float
    folds: tuple[float, ...]
    test: Versus | None


def measure(scores: pd.DataFrame, labels: pd.Series, beginnings: Mapping[str, str]) -> list[Line]:
    """Every line, in the order of `scores`; a pretrained encoder is held against the random weights that it began with.

    Parameters
    ----------
    scores : as `encoders.scored` gives them, of one or more encoders.
    labels : 0 or 1 by patient.
    beginnings : by pretrained encoder the one, of no scans, whose readings are compared with its own of the same name, as
        `encoders.beginnings` gives them; one that is not named is not tested.

    Returns
    -------
    Lines; `test` is None but for encoders that learned from scans, and of these for the one that learned from the most. So the
    points of a few-shot curve are not tested, and no other test pays for them.
    """
    patients = sorted(scores.patient.unique())
    truth = labels.loc[patients].to_numpy() == 1
    groups: dict[Any, pd.DataFrame] = dict(iter(scores.groupby(KEYS, sort=False)))
    by_start = {key: _by_start(rows, patients) for key, rows in groups.items()}
    most = scores.groupby("encoder").scans.max()
    lines = []
    for key, rows in groups.items():
        encoder, scans, reading, probe, share = key
        ours, theirs = by_start[key], by_start.get((beginnings.get(encoder), 0, reading, probe, share))
        value, low, high = mean_auc(truth, np.concatenate(list(ours.values())))
        lines.append(
            Line(
                encoder=encoder,
                scans=int(scans),
                reading=reading,
                probe=probe,
                share=float(share),
                labelled=float(rows.labelled.mean()),
                starts=len(ours),
                draws=len(ours[0]),
                auc=value,
                low=low,
                high=high,
                folds=_folds(rows, labels),
                test=versus(truth, ours, theirs) if scans == most[encoder] > 0 and theirs is not None else None,
            )
        )
    return adjusted(lines)


def mean_auc(truth: Bool[np.ndarray, " n"], scores: Float[np.ndarray, "s n"]) -> tuple[float, float, float]:
    """The mean AUC of s scores of the same patients, and the ends of its 95 % interval, which has a width at 1 too.

    Formula: `wilson_of_auc` of the mean and its variance by DeLong; of one score that is `auc_interval`.
    """
    value, variance = _contrast(truth, scores, np.full(len(scores), 1 / len(scores)))
    return value, *wilson_of_auc(value, variance, int(truth.sum()), int((~truth).sum()))


def of_brightest(statistics: pd.DataFrame, truth: pd.Series, channels: Sequence[str]) -> dict[str, tuple[float, float, float]]:
    """By sequence the AUC of the brain's brightest voxel with its 95 % interval, which take no network.

    `statistics` are of `intensity_table`, `truth` the labels by patient; patients without the sequence are left out.
    """
    labels, found = np.array([truth[name] == 1 for name in statistics.index]), {}
    for channel in channels:
        highest = statistics[f"{channel}_max"].to_numpy(float)
        known = ~np.isnan(highest)
        found[channel] = mean_auc(labels[known], highest[None, known])
    return found


def versus(truth: Bool[np.ndarray, " n"], ours: Starts, theirs: Starts) -> Versus:
    """The difference of two mean AUCs of the same patients and starts, and the test that it is zero.

    Formula: with w = 1/s for each of ours and -1/r for each of theirs, difference = w·AUC, and its variance over patients is
    w C wᵀ, C the AUCs' covariance matrix by DeLong; of one score each that is DeLong's paired test. Over starts it is the mean of
    one difference for each. Interval and p hold both, as of `over_starts`; NaN where nothing varies but the means differ.
    Assumption: what another draw of labels would do is averaged over, not tested.
    Source: DeLong et al. 1988, doi:10.2307/2531595, whose test is of any linear contrast of AUCs.
    """
    mine, others = (np.concatenate([scores[start] for start in ours]) for scores in (ours, theirs))
    scores = np.concatenate([mine, others])
    weights = np.concatenate([np.full(len(mine), 1 / len(mine)), np.full(len(others), -1 / len(others))])
    value, variance = _contrast(truth, scores, weights)
    each = np.array([mean_auc(truth, ours[start])[0] - mean_auc(truth, theirs[start])[0] for start in ours])
    reach, p = over_starts(each, math.sqrt(max(variance, 0.0)))
    low, high = (math.nan, math.nan) if math.isnan(p) else (value - reach, value + reach)
    return Versus(value, low, high, p, math.nan)


def _contrast(
    truth: Bool[np.ndarray, " n"], scores: Float[np.ndarray, "s n"], weights: Float[np.ndarray, " s"]
) -> tuple[float, float]:
    """A weighted sum of AUCs and its variance."""
    value = float(weights @ [auc(truth, score) for score in scores])
    return value, float(weights @ delong_covariance(truth, scores) @ weights)


def adjusted(lines: Sequence[Line]) -> list[Line]:
    """The same lines with Holm's correction filled in: over the tests of one probe at one share of the labels.

    So the question that is asked beforehand, the linear probe at all labels, does not pay for the others.
    """
    found = list(lines)
    for family in {(line.probe, line.share) for line in lines}:
        tested = [(i, line.test) for i, line in enumerate(lines) if line.test and (line.probe, line.share) == family]
        for (i, test), p in zip(tested, holm(np.array([test.p for _, test in tested])), strict=True):
            found[i] = replace(lines[i], test=replace(test, p_adjusted=float(p)))
    return found


def wide(lines: Sequence[Line]) -> pd.DataFrame:
    """A row per line, its test beside it under names that begin with versus_random."""
    rows = []
    for line in lines:
        row = asdict(line)
        test = {f"versus_random_{key}": value for key, value in (row.pop("test") or {}).items()}
        row |= {"folds": " ".join(f"{value:.4f}" for value in line.folds)} | test
        rows.append(row)
    return pd.DataFrame(rows)


def _by_start(rows: pd.DataFrame, patients: Sequence[str]) -> Starts:
    """The scores of each draw, in the order of `patients`."""
    parted: dict[Any, pd.DataFrame] = dict(iter(rows.groupby("start")))
    return {
        start: here.pivot(index="draw", columns="patient", values="score")[list(patients)].to_numpy()
        for start, here in parted.items()
    }


def _folds(rows: pd.DataFrame, labels: pd.Series) -> tuple[float, ...]:
    """Each fold's AUC, its mean over the draws."""
    judged = rows.assign(truth=labels.loc[rows.patient].to_numpy() == 1)
    return tuple(
        float(np.mean([auc(draw.truth.to_numpy(), draw.score.to_numpy()) for _, draw in fold.groupby(["start", "draw"])]))
        for _, fold in judged.groupby("fold")
    )
