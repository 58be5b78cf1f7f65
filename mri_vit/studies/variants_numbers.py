"""What variants reach and what that takes: every run's scores in; means over runs, paired tests and training compute out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float

from mri_vit.metrics.comparison import holm, over_starts
from mri_vit.metrics.delong import delong_covariance
from mri_vit.metrics.discrimination import auc
from mri_vit.model.cost import flops
from mri_vit.model.network import Encode, Network
from mri_vit.settings.schema import Study
from mri_vit.studies.features.numbers import Versus, versus

SCORES = ["model", "endpoint", "seed", "patient", "truth", "score"]  # of the table that AUCs are computed from
# A forward pass, and a backward pass of twice its operations: Kaplan et al. 2020, arXiv:2001.08361, 2.1
PASSES = 3


@dataclass(frozen=True)
class Line:
    """A contender's AUC of an endpoint, of n patients: of each run, their mean and sample standard deviation.

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
        has the same patients and runs. Patients without a truth are left out.
    own, tested : contenders.

    Returns
    -------
    Lines. Differences and their tests are those of `features_numbers.versus`, a start being a run; p is corrected by Holm's
    method over all lines that are tested.

    Raises
    ------
    ValueError when a contender lacks a patient or run of another's.
    """
    lines = []
    for endpoint, here in scores.dropna(subset=["truth"]).groupby("endpoint", sort=False):
        labels = here.drop_duplicates("patient").set_index("patient").truth.sort_index()
        truth, by_model = labels.to_numpy() == 1, {}
        for model, rows in here.groupby("model", sort=False):
            wide = rows.pivot(index="seed", columns="patient", values="score").reindex(columns=labels.index)
            if wide.isna().to_numpy().any() or len(wide) != here.seed.nunique():
                raise ValueError(f"{model}: {endpoint} lacks a score of some patient in some run")
            by_model[str(model)] = {int(seed): row[None] for seed, row in zip(wide.index, wide.to_numpy(), strict=True)}
        for model, runs in by_model.items():
            test = versus(truth, runs, by_model[own]) if model in tested else None
            lines.append(replace(_line(model, str(endpoint), truth, np.concatenate(list(runs.values()))), test=test))
    return _adjusted(lines)


def _line(model: str, endpoint: str, truth: Bool[np.ndarray, " n"], scores: Float[np.ndarray, "s n"]) -> Line:
    """A contender's line from its runs' scores."""
    runs = np.array([auc(truth, score) for score in scores])
    share = np.full(len(scores), 1 / len(scores))
    error = math.sqrt(max(0.0, float(share @ delong_covariance(truth, scores) @ share)))
    mean, (reach, _) = float(runs.mean()), over_starts(runs, error)
    sd = float(runs.std(ddof=1)) if len(runs) > 1 else math.nan
    return Line(model, endpoint, len(truth), tuple(runs.tolist()), mean, sd, max(0.0, mean - reach), min(1.0, mean + reach))


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
