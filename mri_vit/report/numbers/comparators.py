"""The contenders: the study's own model and its comparators, what each is and costs, and which of them the figures show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mri_vit.report.numbers.judged import in_order
from mri_vit.report.reading.run import OWN, Run
from mri_vit.report.words import recipes
from mri_vit.settings.models import FUSED, is_candidate
from mri_vit.settings.schema import Study

MOST_SHOWN = 6  # lines that can be told apart in one figure; more hide each other (see `panels.CANDIDATES`)

Results = Mapping[str, Mapping[str, Mapping[str, Any]]]  # by endpoint and model


def ranked(run: Run, results: Results) -> list[str]:
    """The candidates: the study's own model first, then by the mean of their AUC and C over the endpoints, the best first."""
    models = [model for model in in_order(run.predictions.model.unique().tolist()) if is_candidate(model)]
    return sorted(models, key=lambda model: (model != OWN, -np.nan_to_num(mean_score(results, model), nan=-math.inf)))


def shown(order: list[str]) -> list[str]:
    """The candidates whose curves are drawn and who have a column in wide tables: all where they are few, else the first."""
    return order[:MOST_SHOWN]


def mean_score(results: Results, model: str) -> float:
    """The mean of a model's AUC and C over the endpoints where it has one; both have 0.5 for chance and 1 at best."""
    found = [
        models[model]["auc" if "auc" in models[model] else "harrell_c"]["value"] for models in results.values() if model in models
    ]
    known = [value for value in found if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def measure(run: Run, results: Results, order: list[str]) -> list[dict[str, Any]]:
    """For each candidate: model; architecture, source, beginning and differs in words ("" if unknown); pretrain; costs; score.

    Of a fold's costs the median over folds: parameters, billions of floating-point operations and seconds for a patient's
    prediction. Training seconds are the sum over all folds and repeats. None where any fold has not written it down.
    """
    recipe = (
        {OWN: run.study, **{comparator.name: run.study.of(comparator) for comparator in run.study.comparators}}
        if run.design != "table"
        else {}
    )
    fused = {FUSED: recipes.FUSION} if run.study.fused else {}
    differs = {comparator.name: recipes.differing(run.study, comparator) for comparator in run.study.comparators}
    return [
        {
            "model": model,
            "architecture": recipes.architecture(recipe[model]) if model in recipe else fused.get(model, ""),
            "source": recipes.source(recipe[model].model.architecture) if model in recipe else "",
            "beginning": recipes.beginning(recipe[model]) if model in recipe else "",
            "pretrain": _pretrain(recipe[model]) if model in recipe else {},
            "differs": differs.get(model, ""),
            **_costs(run, model),
            "mean_score": mean_score(results, model),
        }
        for model in order
    ]


def _pretrain(study: Study) -> dict[str, Any]:
    """The settings of pretraining; nothing where there was none."""
    return {} if study.pretrain.method == "none" else study.pretrain.model_dump(mode="json")


def _costs(run: Run, model: str) -> dict[str, float | int | None]:
    folds = run.predictions.loc[run.predictions.model == model, ["repeat", "fold"]].drop_duplicates()
    table: pd.DataFrame = run.costs.loc[run.costs.model == model]
    whole = {
        name: len(table) == len(folds) and bool(table[name].notna().all())
        for name in ("parameters", "flops", "patient_seconds", "training_seconds")
    }
    return {
        "parameters": round(float(table.parameters.median())) if whole["parameters"] else None,
        "gflops": float(table.flops.median()) / 1e9 if whole["flops"] else None,
        "patient_seconds": float(table.patient_seconds.median()) if whole["patient_seconds"] else None,
        "training_seconds": float(table.training_seconds.sum()) if whole["training_seconds"] else None,
    }
