"""What variants reach and what that takes: every run's scores in; means over runs, paired tests and training compute out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd
import torch

from mri_vit.metrics.comparison import holm
from mri_vit.metrics.within_fold import WithinFold, inflation, within_fold_auc
from mri_vit.model.cost import flops
from mri_vit.model.network import Encode, Network
from mri_vit.settings.schema import Study
from reproductions.features.numbers import Versus
from reproductions.runs import paired, spread

SCORES = ["model", "endpoint", "seed", "patient", "fold", "truth", "score"]  # of the table that AUCs are computed from
# A forward pass, and a backward pass of twice its operations: Kaplan et al. 2020, arXiv:2001.08361, 2.1
PASSES = 3


@dataclass(frozen=True)
class Line:
    """A contender's AUC of an endpoint, of n patients: of each run the pairs within a fold, their mean and standard deviation.

    The 95 % interval of the mean, [low, high], holds patients and runs. `test` is None where there was none.
    """

    model: str
    endpoint: str
    n: int
    runs: tuple[float, ...]
    mean: float
    sd: float
    low: float
    high: float
    test: Versus | None = None


@dataclass(frozen=True)
class Cost:
    """What one run of a contender costs: mean over folds.

    `parameters` are learned; `flops` are of the prediction of a patient with every token, `training_flops` of the whole training
    of a fold, as of `training_flops`; `seconds` it took.
    """

    model: str
    parameters: float
    flops: float
    training_flops: float
    seconds: float


def measure(scores: pd.DataFrame, own: str, tested: Collection[str]) -> list[Line]:
    """Every contender's AUC of each endpoint, in the order of `scores`; those `tested` are held against the `own` one.

    Parameters
    ----------
    scores : out-of-fold, a row per contender, endpoint, run (`seed`) and patient, with the columns `SCORES`; every contender
        has the same patients, runs and folds. Patients without a truth are left out.
    own, tested : contenders.

    Returns
    -------
    Lines, as of `runs.spread` and `runs.paired`; p is corrected by Holm's method over all lines that are tested.

    Raises
    ------
    ValueError when a contender lacks a patient or run of another's.
    """
    lines = []
    for endpoint, here in scores.dropna(subset=["truth"]).groupby("endpoint", sort=False):
        labels = here.drop_duplicates("patient").set_index("patient").truth.sort_index()
        positives, by_model = int((labels == 1).sum()), {}
        inflated = inflation(here.fold.nunique())  # of one repeat; of several it would be less
        for model, rows in here.groupby("model", sort=False):
            by_model[str(model)] = _runs(f"{model}: {endpoint}", rows, labels, here.seed.nunique())
        for model, runs in by_model.items():
            found = spread(runs, positives, len(labels) - positives)
            test = paired(runs, by_model[own], inflated) if model in tested else None
            values = tuple(run.value for run in runs)
            lines.append(Line(model, str(endpoint), len(labels), values, found.mean, found.sd, found.low, found.high, test))
    return _adjusted(lines)


def _runs(what: str, rows: pd.DataFrame, labels: pd.Series, count: int) -> list[WithinFold]:
    """A contender's AUC in each run, in their order, with the patients' influences in the order of the labels."""
    score, fold = (
        rows.pivot(index="seed", columns="patient", values=key).reindex(columns=labels.index) for key in ("score", "fold")
    )
    if score.isna().to_numpy().any() or len(score) != count:
        raise ValueError(f"{what} lacks a score of some patient in some run")
    truth = labels.to_numpy() == 1
    return [within_fold_auc(truth, *pair) for pair in zip(score.to_numpy(float), fold.to_numpy(int), strict=True)]


def _adjusted(lines: Sequence[Line]) -> list[Line]:
    """The same lines with Holm's correction over all their tests."""
    p = holm(np.array([line.test.p if line.test else math.nan for line in lines]))
    return [
        replace(line, test=replace(line.test, p_adjusted=float(adjusted))) if line.test else line
        for line, adjusted in zip(lines, p, strict=True)
    ]


def training_flops(study: Study, encode: Encode, visits: int) -> float:
    """Floating-point operations of a training in which patients are visited so many times in all.

    Definition: passes × operations of a forward pass over one patient as a step reads it × visits. A step reads
    `train.token_budget` tokens of a patient, so this is no multiple of what a prediction costs, which reads all; a convolutional
    network reads its whole box in both. The heads, the optimiser and evaluations are left out.
    Assumption: a backward pass has twice the operations of a forward pass, see `PASSES`; with no budget a token for every place.
    Source: Dosovitskiy et al. 2021, Figure 5, plots accuracy over the operations of pretraining; operations as of `model.cost`.
    """
    tokens = min(study.train.token_budget or study.grid.places, study.grid.places)
    net = Network(study.model, study.grid, [], study.channels, encode)
    patches = torch.empty(1, tokens, len(study.channels) * study.grid.patch**3, device="meta")
    return float(PASSES * flops(net, patches, torch.zeros(1, tokens, dtype=torch.long, device="meta")) * visits)


def wide(lines: Sequence[Line]) -> pd.DataFrame:
    """A row per line: each run's AUC, and the test beside it under names that begin with versus_own."""
    rows = []
    for line in lines:
        row = asdict(line)
        test, runs = row.pop("test") or {}, row.pop("runs")
        row |= {f"run_{number}": value for number, value in enumerate(runs, 1)}
        rows.append(row | {f"versus_own_{key}": value for key, value in test.items()})
    return pd.DataFrame(rows)
