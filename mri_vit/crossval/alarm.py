"""Alarm: does the model that was trained on permuted labels look as if it had learned something? A table in, endpoints out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from mri_vit.metrics.within_fold import WithinFold, inflation, p_above_chance, within_fold_auc, within_fold_c
from mri_vit.settings.endpoint import Endpoint

# Of a study without a leak: any endpoint of the first permutation, and then the same endpoint of a fresh one, must both look so.
# With E endpoints and a p of √(0.01 / E) each, both do in E · 0.01 / E = 1 % of such studies.
FALSE_ALARMS = 0.01


def suspicious(table: pd.DataFrame, endpoints: Sequence[Endpoint]) -> list[str]:
    """The endpoints that a model of permuted labels predicts within the test folds, p at most √(0.01 / E) for each of E.

    `table` holds one model's predictions (`predictions.COLUMNS`) of one repeat.
    """
    level = suspicion(len(endpoints))
    found = {endpoint.name: _found(table.loc[table.endpoint == endpoint.name], endpoint) for endpoint in endpoints}
    inflated = inflation(max(table.fold.nunique(), 1))
    return [name for name, one in found.items() if p_above_chance(one, inflated) <= level]


def suspicion(endpoints: int) -> float:
    """The p of one permutation up to which an endpoint of so many is suspicious."""
    return math.sqrt(FALSE_ALARMS / max(endpoints, 1))


def _found(rows: pd.DataFrame, endpoint: Endpoint) -> WithinFold:
    """AUC or C within the folds, a row per patient whose label is known: visits count as in the report."""
    if endpoint.kind == "survival":
        rows = rows.dropna(subset=["time_days", "event"]).drop_duplicates("patient")
        days, event, risk = (rows[name].to_numpy(float) for name in ("time_days", "event", "score"))
        return within_fold_c(days, event, risk, rows.fold.to_numpy())
    people = rows.groupby(["fold", "patient"]).agg({"score": "mean", "truth": "first"}).dropna().reset_index()
    return within_fold_auc(people.truth.to_numpy(float), people.score.to_numpy(float), people.fold.to_numpy())
