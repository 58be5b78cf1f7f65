"""A benchmark over several cohorts: each model's AUC of each simulated effect, and whether the own model is better than each.

A cohort (a data seed) gives each model one out-of-fold AUC of a cause, of pairs within a fold. Cohorts are independent; two
models are compared on the same patients within each. To be better than every other is one claim, whose p is the largest of theirs
(Berger 1982, doi:10.1080/00401706.1982.10487790): it needs no correction for how many others there are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mri_vit.metrics.within_fold import inflation, within_fold_auc
from reproductions.run_statistics import over_runs


@dataclass(frozen=True)
class Line:
    """A model on a cause: its AUC in each cohort, their mean with its 95 % interval, and the own model's lead over it.

    `lead` is the mean difference, `low` and `high` its interval, p two-sided; None for the own model, NaN where not to be tested.
    """

    model: str
    cause: str
    each: tuple[float, ...]
    mean: float
    mean_low: float
    mean_high: float
    lead: float | None = None
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan


def of_cohort(predicted: pd.DataFrame, own: str) -> pd.DataFrame:
    """One cohort's figures: (cause, model, auc, error, lead, lead_error), a row for every cause and model in the table's order.

    `predicted` has endpoint, model, patient, fold, truth and score; patients are those whom every model scored. Both errors are
    standard errors over other patients, inflated for what folds learn from each other; the own model has no lead.
    Formulas: `within_fold_auc`, `within_fold.compared`.
    """
    rows = []
    for cause, here in predicted.groupby("endpoint", sort=False):
        scores = here.pivot(index="patient", columns="model", values="score").dropna()
        people = here.drop_duplicates("patient").set_index("patient").loc[scores.index]
        truth, fold = people.truth.to_numpy() == 1, people.fold.to_numpy()
        inflated = inflation(people.fold.nunique())
        found = {model: within_fold_auc(truth, scores[model].to_numpy(), fold) for model in here.model.unique()}
        for model, one in found.items():
            row = {"cause": cause, "model": model, "auc": one.value, "error": inflated * math.sqrt(one.variance)}
            if model != own:
                apart = found[own].influence - one.influence
                row |= {"lead": found[own].value - one.value, "lead_error": inflated * math.hypot(*apart)}
            rows.append(row)
    return pd.DataFrame(rows)


def over_cohorts(rows: pd.DataFrame) -> list[Line]:
    """A line for every cause and model of `of_cohort`'s rows of several cohorts, in their order. Formula: `over_runs`."""
    lines = []
    for _, here in rows.groupby(["cause", "model"], sort=False):
        mean, reach, _ = _mean(here.auc, here.error)
        line = Line(here.model.iloc[0], here.cause.iloc[0], tuple(here.auc), mean, max(0.0, mean - reach), min(1.0, mean + reach))
        if here.lead.notna().all():
            lead, reach, p = _mean(here.lead, here.lead_error)
            reach = math.nan if math.isnan(p) else reach  # without any spread there is no test
            line = replace(line, lead=lead, low=lead - reach, high=lead + reach, p=p)
        lines.append(line)
    return lines


def _mean(values: pd.Series, errors: pd.Series) -> tuple[float, float, float]:
    """The mean over cohorts, how far its 95 % interval reaches, and the p of its being 0."""
    return float(values.mean()), *over_runs(values.to_numpy(), math.hypot(*errors) / len(errors))


def best(lines: Sequence[Line], cause: str, own: str, no_bar: Collection[str]) -> tuple[bool, float]:
    """Whether the own model leads all others but those that are no bar, and the p of that claim: the largest of all.

    It is 1 where it does not lead, as a two-sided p of being worse says nothing for it, and NaN where one cannot be tested or
    there is nobody else.
    """
    others = [line for line in lines if line.cause == cause and line.model != own and line.model not in no_bar]
    leads = all(line.lead is not None and line.lead > 0 for line in others)
    return leads, float(np.max([line.p for line in others] or [math.nan])) if leads else 1.0
