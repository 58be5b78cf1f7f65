"""What pretraining on more patients is worth: scores of several runs in; AUC, SD over runs, intervals and paired tests out.

A point is one network, after one label of so many patients, fine-tuned or probed in several runs on the same target patients.

Letters: n patients, r runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mri_vit.metrics.comparison import holm
from mri_vit.metrics.within_fold import WithinFold, inflation, within_fold_auc
from reproductions.features.probe_results import Versus
from reproductions.repeated_runs import paired, spread

KEYS = ["how", "network", "label", "patients"]  # of the scores: what makes a point


@dataclass(frozen=True)
class Point:
    """A network after `patients` who have the `label` ("" from scratch): the AUC of each run, their mean, SD and 95 % interval.

    `gain` is less the same network from scratch, of the most patients with the label; `rival` is less the study's own network
    after the same, of the fewest and of the most. Elsewhere they are None, so that no test pays for what nobody asked.
    """

    how: str
    network: str
    label: str
    patients: int
    runs: tuple[float, ...]
    mean: float
    sd: float
    low: float
    high: float
    gain: Versus | None = None
    rival: Versus | None = None


def measure(scores: pd.DataFrame, own: str) -> list[Point]:
    """Every point, in the order of how, network, label and patients; the study's `own` network first.

    Parameters
    ----------
    scores : as `encoders.scored` gives them, of one or more starts; the order of rows has no meaning.

    Raises
    ------
    ValueError when two points are of other patients or folds, or a patient has no score in one of the runs.
    """
    groups: dict[Any, pd.DataFrame] = dict(iter(scores.groupby(KEYS)))
    people = _people(scores)
    found = {key: _runs(key, rows, people) for key, rows in groups.items()}
    inflated = inflation(int(people.fold.nunique()))
    sizes = {label: sorted(rows.patients.unique()) for label, rows in scores.groupby("label") if label}
    ordered = sorted(found, key=lambda key: (key[0], key[1] != own, *key[1:]))
    points = []
    for how, name, label, patients in ordered:
        runs = found[how, name, label, patients]
        scratch, theirs = found.get((how, name, "", 0)), found.get((how, own, label, patients))
        points.append(
            replace(
                pointed((how, name, label, int(patients)), runs, people),
                gain=paired(runs, scratch, inflated) if label and patients == sizes[label][-1] and scratch else None,
                rival=paired(runs, theirs, inflated)
                if name != own and label and patients in (sizes[label][0], sizes[label][-1]) and theirs
                else None,
            )
        )
    return adjusted(points)


def pointed(key: tuple[str, str, str, int], runs: Sequence[WithinFold], people: pd.DataFrame) -> Point:
    """The point of these runs on the same patients."""
    positives = int((people.truth == 1).sum())
    found = spread(runs, positives, len(people) - positives)
    return Point(*key, tuple(run.value for run in runs), found.mean, found.sd, found.low, found.high)


def adjusted(points: Sequence[Point]) -> list[Point]:
    """The same points with Holm's correction filled in: a family is all gains, or all comparisons of networks, of one `how`."""
    found = list(points)
    for how in dict.fromkeys(point.how for point in points):
        for which in ("gain", "rival"):
            asked = [(i, test) for i, one in enumerate(found) if one.how == how and (test := getattr(one, which))]
            for (i, test), p in zip(asked, holm(np.array([test.p for _, test in asked])), strict=True):
                found[i] = replace(found[i], **{which: replace(test, p_adjusted=float(p))})
    return found


def wide(points: Sequence[Point]) -> pd.DataFrame:
    """A row per point: its runs, and its tests beside it under names that begin with gain and rival."""
    rows = []
    for point in points:
        row: dict[str, Any] = {key: getattr(point, key) for key in (*KEYS, "mean", "sd", "low", "high")}
        row |= {f"run_{number}": value for number, value in enumerate(point.runs, 1)}
        for which in ("gain", "rival"):
            row |= {f"{which}_{key}": value for key, value in vars(getattr(point, which) or _NONE).items()}
        rows.append(row)
    return pd.DataFrame(rows)


_NONE = Versus(math.nan, math.nan, math.nan, math.nan, math.nan)


def _people(scores: pd.DataFrame) -> pd.DataFrame:
    """A row for each patient, sorted by name: truth and fold."""
    people = pd.DataFrame(scores[["patient", "fold", "truth"]]).drop_duplicates().sort_values("patient")
    if people.patient.duplicated().any():
        twice = people.patient[people.patient.duplicated()].iloc[0]
        raise ValueError(f"patient {twice} has two folds or two labels; points are of the same patients and folds")
    return people.set_index("patient").astype({"truth": float})


def _runs(key: Any, rows: pd.DataFrame, people: pd.DataFrame) -> list[WithinFold]:
    """A point's AUC in each run, the runs in their order, with the patients' influences in the order of `people`."""
    by_run: Mapping[Any, pd.Series] = {
        run: here.set_index("patient").score.reindex(people.index) for run, here in rows.groupby("run")
    }
    for run, score in by_run.items():
        if score.isna().any():
            raise ValueError(f"{' '.join(map(str, key))}, run {run}: no score of patient {score.index[score.isna()][0]}")
    truth, fold = people.truth.to_numpy() == 1, people.fold.to_numpy()
    return [within_fold_auc(truth, by_run[run].to_numpy(dtype=float), fold) for run in sorted(by_run)]
