"""Every model on every endpoint: measured by itself, compared with the others, and adjusted for the number of results; then the
models themselves: what each costs, and which of them the figures show.

Repeats and folds are counted from 0, as in `predictions.csv`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.metrics import comparison
from mri_vit.report.numbers import chance, comparisons, measures
from mri_vit.report.numbers.comparisons import UnadjustedBest, UnadjustedComparison
from mri_vit.report.numbers.judged import first_repeat, in_order, known_rows
from mri_vit.report.numbers.measures import Background
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.kinds import NUMBERS, Numbers
from mri_vit.report.schema.measured import ALPHA, Measurement, ModelCosts
from mri_vit.report.schema.parts import OWN, BestControl, ChanceTest, Comparison, Nothing
from mri_vit.settings.recipe import NOT_COMPARED, SITE, is_bar, is_compared
from mri_vit.settings.schema import Endpoint

BARS = tuple(name for name in NOT_COMPARED if is_bar(name))  # the controls that a compared model must beat
SITE_COLUMN = "site"  # of the cohort table

Tables = Mapping[str, pd.DataFrame]  # by model, the rows that are judged
FINAL_SHARE = 0.2  # of the epochs that were made: a fall in the last fifth asks for more epochs
MIN_LOSS_FALL = 0.01  # of the loss at the start, which knows nothing: less is within what another seed changes
MAX_SHOWN_MODELS = 6  # lines that can be distinguished in one figure; more hide each other (see `panels.CANDIDATES`)
Results = Mapping[str, Mapping[str, Numbers]]  # by endpoint and model
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Compared:
    """A compared model's paired tests; those of any other model are empty."""

    controls: Mapping[str, UnadjustedComparison] = field(default_factory=dict)
    best: UnadjustedBest | None = None
    own: UnadjustedComparison | None = None


def judged_rows(run: Run, endpoint: Endpoint) -> Tables:
    """By model, the rows of patients whose label is known; a model without any is left out."""
    predicted = run.predictions.loc[run.predictions.endpoint == endpoint.name]
    tables = {model: known_rows(run.predictions, endpoint, model) for model in in_order(predicted.model.unique().tolist())}
    return {model: rows for model, rows in tables.items() if len(rows)}


def family_sizes(endpoints: Sequence[Endpoint], tables: Mapping[str, Tables]) -> Counter[str]:
    """By family, the results whose p are corrected together: those with two patients of a fold to compare."""
    return Counter(
        family(model)
        for endpoint in endpoints
        for model, rows in tables[endpoint.name].items()
        if not math.isnan(chance.within_folds(endpoint, first_repeat(rows))[0].value)
    )


def measure(run: Run, endpoint: Endpoint, tables: Tables, sizes: Mapping[str, int]) -> dict[str, Measurement]:
    """Each model by itself; `sizes` as `family_sizes` has them."""
    measured = {}
    for model, rows in tables.items():
        background = _background(run, endpoint, model, max(1, sizes.get(family(model), 1)))
        measured[model] = measures.of(endpoint).measure(run, endpoint, rows, background)
    return measured


def _background(run: Run, endpoint: Endpoint, model: str, results: int) -> Background:
    nulls = run.nulls.loc[(run.nulls.endpoint == endpoint.name) & (run.nulls.model == model)]
    seeds = run.seeds.loc[(run.seeds.endpoint == endpoint.name) & (run.seeds.model == model)]
    of_site = site_of(run) if model != SITE else {}  # among patients of one site, the site says nothing by its definition
    return Background(run.design, nulls, seeds, of_site, results)


def site_of(run: Run) -> dict[str, str]:
    """By patient; empty without sites."""
    return dict(zip(run.cohort.patient, run.cohort[SITE_COLUMN], strict=True)) if SITE_COLUMN in run.cohort else {}


def family(model: str) -> str:
    """Which results are adjusted together with a model's; each permuted model and the upper reference is a family of its own."""
    return "compared" if is_compared(model) else "control" if is_bar(model) else model


def compare(run: Run, endpoint: Endpoint, tables: Tables, measured: Mapping[str, Measurement]) -> dict[str, Compared]:
    """The compared models against every control, and comparators against the study's own model."""
    compared = dict.fromkeys(tables, Compared())
    for model, rows in tables.items():
        if is_compared(model):
            inflated = chance.inflation(rows, run.design)
            tests = {name: comparisons.versus(endpoint, rows, tables[name], inflated) for name in BARS if name in tables}
            controls = {name: test for name, test in tests.items() if test}
            own = comparisons.versus(endpoint, rows, tables[OWN], inflated) if OWN in tables and model != OWN else None
            compared[model] = Compared(controls, comparisons.best_control(controls, measured), own)
    return compared


def adjusted(
    measured: Mapping[str, Mapping[str, Measurement]], compared: Mapping[str, Mapping[str, Compared]]
) -> dict[str, dict[str, Numbers]]:
    """By endpoint and model, the figures with all tests after Holm's correction.

    Families: the p against chance of every endpoint and compared model; those of the controls, so that one more control takes no
    finding away; those of each model on permuted labels, and of the upper reference; the compared models' p against the
    best control; the comparisons with each control; those of comparators with the own model. A p below chance is corrected like
    one above.
    """
    alone = {(name, model): one for name, models in measured.items() for model, one in models.items()}
    beside = {(name, model): one for name, models in compared.items() for model, one in models.items()}
    above, below = {}, {}
    for group in {family(model) for _, model in alone}:
        tests = {key: one.chance_test for key, one in alone.items() if family(key[1]) == group}
        above |= _holm({key: test.p for key, test in tests.items()})
        below |= _holm({key: test.p_below for key, test in tests.items()})
    best = _holm({key: one.best.p for key, one in beside.items() if one.best})
    own = _holm({key: one.own.p for key, one in beside.items() if one.own})
    controls = {
        control: _holm({key: one.controls[control].p for key, one in beside.items() if control in one.controls})
        for control in {control for one in beside.values() for control in one.controls}
    }
    numbers: dict[str, dict[str, Numbers]] = {name: {} for name in measured}
    for key, one in alone.items():
        tests = beside[key]
        numbers[key[0]][key[1]] = NUMBERS[type(one.figures)](
            **dict(one.figures),
            chance_test=ChanceTest(**vars(one.chance_test), p_adjusted=above[key], p_below_adjusted=below[key]),
            versus_controls={
                control: Comparison(**vars(test), p_adjusted=controls[control][key]) for control, test in tests.controls.items()
            },
            versus_best=tests.best and BestControl(**vars(tests.best), p_adjusted=best[key], beaten=best[key] <= ALPHA),
            versus_own=tests.own and Comparison(**vars(tests.own), p_adjusted=own[key]),
        )
    return numbers


def _holm(p: Mapping[K, float]) -> dict[K, float]:
    return dict(zip(p, comparison.holm(np.array(list(p.values()), dtype=float)).tolist(), strict=True))


# What models cost and reach.


@dataclass(frozen=True)
class Trainings:
    """Fields of a model about its trainings: of how many the validation loss is known, and of how many it was flat at the end."""

    trainings: int | None
    flat: int | None


def is_flat(epoch: Float[np.ndarray, " n"], val: Float[np.ndarray, " n"]) -> bool:
    """Whether the validation loss was no lower in the last fifth of the epochs than the least before it, but for `MIN_LOSS_FALL`.

    Definition: min over epochs up to 4/5 of the last one of `val` − min over all of `val` ≤ 0.01, `val` in shares of the loss
    at the start. A loss that rises at the end is flat, and so is one that never fell: nothing was learned, and more epochs at
    these rates are not what lacks. False where nothing was evaluated before the last fifth.
    Assumption: the learning rate falls to zero at the planned end, which flattens any loss a little; early stopping ends before.
    """
    before = val[epoch <= (1 - FINAL_SHARE) * epoch.max()]
    return bool(len(before)) and float(before.min() - val.min()) <= MIN_LOSS_FALL


def trainings(histories: pd.DataFrame, model: str) -> Trainings:
    """How many of a model's trainings are known and how many were flat; None where none is."""
    own = histories.loc[histories.model == model]
    if not len(own):
        return Trainings(None, None)
    each = [is_flat(rows.epoch.to_numpy(float), rows.tune.to_numpy(float)) for _, rows in own.groupby(["repeat", "fold", "seed"])]
    return Trainings(len(each), sum(each))


def ranked(run: Run, results: Results) -> list[str]:
    """The compared models: the study's own first, then by the mean of their AUC and C over the endpoints, the best first."""
    models = [model for model in in_order(run.predictions.model.unique().tolist()) if is_compared(model)]
    return sorted(models, key=lambda model: (model != OWN, -np.nan_to_num(mean_score(results, model), nan=-math.inf)))


def shown(order: list[str]) -> list[str]:
    """The compared models whose curves are drawn and who have a column in wide tables: all where they are few, else the first."""
    return order[:MAX_SHOWN_MODELS]


def mean_score(results: Results, model: str) -> float:
    """The mean of a model's AUC and C over the endpoints where it has one; both have 0.5 for chance and 1 at best."""
    found = [models[model].judged.value for models in results.values() if model in models]
    known = [value for value in found if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def model_costs(run: Run, results: Results, order: list[str]) -> tuple[ModelCosts, ...]:
    """What each compared model costs and reaches.

    Of a fold's costs the median over folds: parameters, billions of floating-point operations and seconds for a patient's
    prediction. Training seconds are the sum over all folds and repeats. Undefined where any fold has not written it down.
    """
    recipe = run.recipes.get
    return tuple(
        ModelCosts(
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
