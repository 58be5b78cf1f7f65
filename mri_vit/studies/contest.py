"""A contest over several cohorts: everybody's AUC of each cause, and whether the own model is better than each other.

A cohort (a data seed) gives each model one out-of-fold AUC of a cause, of pairs within a fold. Cohorts are independent; two
models are compared on the same patients within each. To be better than every other is one claim, whose p is the largest of theirs
(Berger 1982, doi:10.1080/00401706.1982.10487790): it needs no correction for how many others there are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from mri_vit.metrics.comparison import over_runs
from mri_vit.metrics.within_fold import inflation, within_fold_auc
from mri_vit.report.words.notation import between, p_value, with_sign
from mri_vit.studies.learning_curve import against, cohorts

PREDICTED = [
    "seed",
    "labelled",
    "model",
    "endpoint",
    "patient",
    "fold",
    "truth",
    "score",
]  # of the table that all is computed from


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


def measure(predicted: pd.DataFrame, own: str) -> list[Line]:
    """A line for every cause and model, in the order of the table. Formulas: `within_fold_auc`, `over_runs`, `against`."""
    lines = []
    for cause in predicted.endpoint.unique():
        here = pd.DataFrame(predicted[predicted.endpoint == cause])
        leads = against(here, own, "fold").set_index("model")
        for model in here.model.unique():
            each, error = of_model(here, model)
            mean = sum(each) / len(each)
            reach, _ = over_runs(pd.Series(each).to_numpy(), error)
            line = Line(model, cause, tuple(each), mean, max(0.0, mean - reach), min(1.0, mean + reach))
            if model != own:
                lead, low, high, p = (float(leads.loc[model, key]) for key in ("difference", "low", "high", "p"))
                line = replace(line, lead=-lead, low=-high, high=-low, p=p)
            lines.append(line)
    return lines


def of_model(here: pd.DataFrame, model: str) -> tuple[list[float], float]:
    """The AUC in each cohort, and the standard error of their mean, of a model that is refitted in each fold."""
    values, variance = [], 0.0
    for _, scores, truth, fold in cohorts(pd.DataFrame(here[here.model == model]), "fold"):
        found = within_fold_auc(truth, scores[model].to_numpy(), fold)
        values.append(found.value)
        variance += inflation(len(set(fold))) ** 2 * float((found.influence**2).sum())
    return values, math.sqrt(variance) / len(values)


def best(lines: Sequence[Line], cause: str, own: str, no_bar: Collection[str]) -> tuple[bool, float]:
    """Whether the own model leads all others but those that are no bar, and the p of that claim: the largest of all."""
    others = [line for line in lines if line.cause == cause and line.model != own and line.model not in no_bar]
    leads = all(line.lead is not None and line.lead > 0 for line in others)
    return leads, max((line.p for line in others), default=math.nan)


def table(lines: Sequence[Line], names: dict[str, str], causes: Sequence[str], leads: bool = True) -> str:
    """Markdown: a row for each model, a column for each of these causes that ran; with `leads` the own model's, and its p."""
    shown = [cause for cause in causes if cause in {line.cause for line in lines}]
    rows = [f"| model | {' | '.join(shown)} |", "|---" * (1 + len(shown)) + "|"]
    for model, name in names.items():
        found = {line.cause: line for line in lines if line.model == model}
        if found:
            rows.append(f"| {name} | {' | '.join(cell(found[cause], leads) for cause in shown)} |")
    return "\n".join(rows)


def cell(line: Line, leads: bool) -> str:
    """0.512 [0.431, 0.593], and in a line of its own +0.412, p < 0.001."""
    auc = between(line.mean, line.mean_low, line.mean_high)
    return auc if line.lead is None or not leads else f"{auc}<br>{with_sign(line.lead)}, {p_value(line.p)}"
