"""How good frozen features are: out-of-fold scores of probes in; AUC, interval and a paired test against random weights out.

A line is one encoder, read in one way and judged by one probe at one share of the labels. Where an encoder began several
times, or a small share was drawn several times, its AUC is the mean over these; all of them are called draws here.

Letters: n patients, s score vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy.stats import norm

from mri_vit.metrics.comparison import holm
from mri_vit.metrics.delong import Z_95, Comparison, delong_covariance
from mri_vit.metrics.discrimination import auc

KEYS = ["encoder", "scans", "features", "probe", "share"]  # of the scores: what makes a line
NOISE = 1e-12  # of a variance of AUCs: below it there is rounding alone; one of 10,000 patients who changes rank makes 1e-9


@dataclass(frozen=True)
class Versus:
    """The difference to random weights, by DeLong's paired test; `p_adjusted` is Holm's within the probe and share."""

    difference: float
    low: float
    high: float
    p: float
    p_adjusted: float


@dataclass(frozen=True)
class Line:
    """`scans` were learned from; `labelled` patients trained the probe of a fold, on average; `folds` are their mean AUCs."""

    encoder: str
    scans: int
    reading: str
    probe: str
    share: float
    labelled: float
    draws: int
    auc: float
    low: float
    high: float
    folds: tuple[float, ...]
    test: Versus | None


def measure(scores: pd.DataFrame, labels: pd.Series, random: str) -> list[Line]:
    """Every line, in the order of `scores`; those of the encoder `random` are what pretrained ones are held against.

    Parameters
    ----------
    scores : as `pretrain.frozen.scored` gives them, of one or more encoders.
    labels : 0 or 1 by patient.
    random : the encoder, of no scans, whose readings are compared with those of the same name.

    Returns
    -------
    Lines; `test` is None but for encoders that learned from scans, and of these for the one that learned from the most. So the
    points of a few-shot curve are not tested, and no other test pays for them.
    """
    patients = sorted(scores.patient.unique())
    truth = labels.loc[patients].to_numpy() == 1
    groups: dict[Any, pd.DataFrame] = dict(iter(scores.groupby(KEYS, sort=False)))
    by_draw = {key: _by_draw(rows, patients) for key, rows in groups.items()}
    most = scores.groupby("encoder").scans.max()
    lines = []
    for key, rows in groups.items():
        encoder, scans, reading, probe, share = key
        ours, theirs = by_draw[key], by_draw.get((random, 0, reading, probe, share))
        value, low, high = mean_auc(truth, ours)
        lines.append(
            Line(
                encoder=encoder,
                scans=int(scans),
                reading=reading,
                probe=probe,
                share=float(share),
                labelled=float(rows.labelled.mean()),
                draws=len(ours),
                auc=value,
                low=low,
                high=high,
                folds=_folds(rows, labels),
                test=_tested(truth, ours, theirs) if scans == most[encoder] > 0 and theirs is not None else None,
            )
        )
    return adjusted(lines)


def _tested(truth: Bool[np.ndarray, " n"], ours: Float[np.ndarray, "s n"], theirs: Float[np.ndarray, "r n"]) -> Versus:
    found = mean_difference(truth, ours, theirs)
    return Versus(found.difference, found.low, found.high, found.p, math.nan)


def mean_auc(truth: Bool[np.ndarray, " n"], scores: Float[np.ndarray, "s n"]) -> tuple[float, float, float]:
    """The mean AUC of s scores of the same patients, and the ends of its 95 % interval within [0, 1].

    Formula: as of `mean_difference` without theirs; of one score it is DeLong's interval.
    """
    value, variance = _contrast(truth, scores, np.full(len(scores), 1 / len(scores)))
    reach = Z_95 * math.sqrt(max(variance, 0.0))  # NaN stays NaN
    return value, max(0.0, value - reach), min(1.0, value + reach)


def mean_difference(
    truth: Bool[np.ndarray, " n"], ours: Float[np.ndarray, "s n"], theirs: Float[np.ndarray, "r n"]
) -> Comparison:
    """The difference of two mean AUCs of the same patients, and the test that it is zero.

    Formula: with w = 1/s for each of ours and -1/r for each of theirs, difference = w·AUC and variance = w C wᵀ, C the AUCs'
    covariance matrix by DeLong; of one score each it is DeLong's paired test. Without variance: see `Comparison`.
    Assumption: scores are given. What another draw of labels or initial weights would do is averaged over, not tested.
    Source: DeLong et al. 1988, doi:10.2307/2531595, whose test is of any linear contrast of AUCs.
    """
    weights = np.concatenate([np.full(len(ours), 1 / len(ours)), np.full(len(theirs), -1 / len(theirs))])
    value, variance = _contrast(truth, np.concatenate([ours, theirs]), weights)
    if variance > NOISE:
        error = math.sqrt(variance)
        return Comparison(
            value, value - Z_95 * error, value + Z_95 * error, value / error, float(2 * norm.sf(abs(value / error)))
        )
    if variance <= NOISE and abs(value) < NOISE:
        return Comparison(0.0, 0.0, 0.0, 0.0, 1.0)
    return Comparison(value, math.nan, math.nan, math.nan, math.nan)


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
    """A row per line, its test beside it."""
    rows = []
    for line in lines:
        row = asdict(line)
        row |= {"folds": " ".join(f"{value:.4f}" for value in line.folds)} | (row.pop("test") or {})
        rows.append(row)
    return pd.DataFrame(rows)


def _by_draw(rows: pd.DataFrame, patients: Sequence[str]) -> Float[np.ndarray, "s n"]:
    """The scores of each draw, in the order of `patients`."""
    return rows.pivot(index="draw", columns="patient", values="score")[list(patients)].to_numpy()


def _folds(rows: pd.DataFrame, labels: pd.Series) -> tuple[float, ...]:
    """Each fold's AUC, its mean over the draws."""
    judged = rows.assign(truth=labels.loc[rows.patient].to_numpy() == 1)
    return tuple(
        float(np.mean([auc(draw.truth.to_numpy(), draw.score.to_numpy()) for _, draw in fold.groupby("draw")]))
        for _, fold in judged.groupby("fold")
    )
