"""The models: the study's own model and its comparators, what each is and costs, and which of them the figures show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.report.numbers.judged import in_order
from mri_vit.report.reading.run import OWN, Run
from mri_vit.report.schema.endpoints import Numbers
from mri_vit.report.schema.metrics import Nothing
from mri_vit.settings.recipe import Pretrain, is_candidate

LAST = 0.2  # of the epochs that were made: a fall in the last fifth asks for more epochs
FALL = 0.01  # of the loss at the start, which knows nothing: less is within what another seed changes
MOST_SHOWN = 6  # lines that can be distinguished in one figure; more hide each other (see `panels.CANDIDATES`)
Results = Mapping[str, Mapping[str, Numbers]]  # by endpoint and model


@dataclass(frozen=True)
class Trainings:
    """Fields of a model about its trainings: of how many the tuning loss is known, and of how many it was flat at the end."""

    trainings: int | None
    flat: int | None


def is_flat(epoch: Float[np.ndarray, " n"], tune: Float[np.ndarray, " n"]) -> bool:
    """Whether the tuning loss was no lower in the last fifth of the epochs than the least before it, but for `FALL`.

    Definition: min over epochs up to 4/5 of the last one of `tune` − min over all of `tune` ≤ 0.01, `tune` in shares of the loss
    at the start. A loss that rises at the end is flat, and so is one that never fell: nothing was learned, and more epochs at
    these rates are not what lacks. False where nothing was evaluated before the last fifth.
    Assumption: the learning rate falls to zero at the planned end, which flattens any loss a little; early stopping ends before.
    """
    before = tune[epoch <= (1 - LAST) * epoch.max()]
    return bool(len(before)) and float(before.min() - tune.min()) <= FALL


def trainings(histories: pd.DataFrame, model: str) -> Trainings:
    """How many of a model's trainings are known and how many were flat; None where none is."""
    own = histories.loc[histories.model == model]
    if not len(own):
        return Trainings(None, None)
    each = [is_flat(rows.epoch.to_numpy(float), rows.tune.to_numpy(float)) for _, rows in own.groupby(["repeat", "fold", "seed"])]
    return Trainings(len(each), sum(each))


def ranked(run: Run, results: Results) -> list[str]:
    """The candidates: the study's own model first, then by the mean of their AUC and C over the endpoints, the best first."""
    models = [model for model in in_order(run.predictions.model.unique().tolist()) if is_candidate(model)]
    return sorted(models, key=lambda model: (model != OWN, -np.nan_to_num(mean_score(results, model), nan=-math.inf)))


def shown(order: list[str]) -> list[str]:
    """The candidates whose curves are drawn and who have a column in wide tables: all where they are few, else the first."""
    return order[:MOST_SHOWN]


def mean_score(results: Results, model: str) -> float:
    """The mean of a model's AUC and C over the endpoints where it has one; both have 0.5 for chance and 1 at best."""
    found = [models[model].judged.value for models in results.values() if model in models]
    known = [value for value in found if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


@dataclass(frozen=True)
class ContenderFigures:
    """What a candidate costs and reaches."""

    model: str
    pretrain: Pretrain | Nothing  # nothing where there was no pretraining
    parameters: int | None
    gflops: float
    patient_seconds: float
    training_seconds: float
    trainings: int | None
    flat: int | None
    mean_score: float


def measure(run: Run, results: Results, order: list[str]) -> tuple[ContenderFigures, ...]:
    """What each candidate costs and reaches.

    Of a fold's costs the median over folds: parameters, billions of floating-point operations and seconds for a patient's
    prediction. Training seconds are the sum over all folds and repeats. Undefined where any fold has not written it down.
    """
    recipe = run.recipes.get
    return tuple(
        ContenderFigures(
            model=model,
            pretrain=study.pretrain if (study := recipe(model)) and study.pretrain.method != "none" else Nothing(),
            **vars(costs(run, model)),
            **vars(trainings(run.histories, model)),
            mean_score=mean_score(results, model),
        )
        for model in order
    )


@dataclass(frozen=True)
class Costs:
    """Fields of a model about its costs."""

    parameters: int | None
    gflops: float
    patient_seconds: float
    training_seconds: float


def costs(run: Run, model: str) -> Costs:
    """Undefined where any of the model's folds has not written it down."""
    folds = run.predictions.loc[run.predictions.model == model, ["repeat", "fold"]].drop_duplicates()
    table: pd.DataFrame = run.costs.loc[run.costs.model == model]
    whole = {
        name: len(table) == len(folds) and bool(table[name].notna().all())
        for name in ("parameters", "flops", "patient_seconds", "training_seconds")
    }
    return Costs(
        parameters=round(float(table.parameters.median())) if whole["parameters"] else None,
        gflops=float(table.flops.median()) / 1e9 if whole["flops"] else math.nan,
        patient_seconds=float(table.patient_seconds.median()) if whole["patient_seconds"] else math.nan,
        training_seconds=float(table.training_seconds.sum()) if whole["training_seconds"] else math.nan,
    )
