"""All models of an endpoint against all: their rows in, the differences of each two on the patients that both predicted out.

Each model is measured once on the patients that it shares with others, and once on each resample of these, so that 1300 pairs
of 52 models cost little more than 52 models. The differences of AUC and C are those of `compare.versus`.

n is the number of patients, m the number of models, b the number of resamples, t the number of days.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.metrics import bootstrap, comparison, ipcw, within_fold
from mri_vit.metrics.comparison import Comparison
from mri_vit.metrics.within_fold import WithinFold
from mri_vit.report.numbers import chance, compare
from mri_vit.report.numbers.binary import outside
from mri_vit.report.numbers.compare import ROW
from mri_vit.report.numbers.judged import averaged, flags, floats
from mri_vit.report.schema.pairs import Difference, Pair
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.recipe import PERMUTED

Tables = Mapping[str, pd.DataFrame]
Drawn = Float[np.ndarray, "b n"]


@dataclass(frozen=True)
class Measured:
    """A figure of m models on the same patients, and on each of b resamples of these."""

    column: Mapping[str, int]  # of each model
    value: Float[np.ndarray, " m"]
    draws: Float[np.ndarray, "b m"]

    def difference(self, model: str, other: str, inflated: float) -> Comparison:
        a, b = self.column[model], self.column[other]
        return comparison.paired_comparison(float(self.value[a] - self.value[b]), self.draws[:, a] - self.draws[:, b], inflated)


@dataclass(frozen=True)
class Shared:
    """Models on the patients and repeats that they share: one row per patient, each model's mean score, and its AUC or C."""

    people: pd.DataFrame
    scores: Mapping[str, Float[np.ndarray, " n"]]
    within_folds: Mapping[str, list[WithinFold]]  # of each repeat
    measured: dict[str, Measured] = field(default_factory=dict)  # by figure, once it was asked for


def of_endpoint(endpoint: Endpoint, tables: Tables, alive: Tables, inflated: float, seed: int) -> tuple[Pair, ...]:
    """Every two models, in the order of `tables`; models on permuted labels are left out.

    Parameters
    ----------
    tables : by model, rows as `judged.known_rows` gives them.
    alive : by model, of a survival endpoint, predicted probabilities as `judged.chances_alive` gives them.
    inflated : as `chance.inflation` gives it; it multiplies every standard error.
    seed : of the study.
    """
    own = {model: rows.set_index(ROW).index.sort_values() for model, rows in tables.items() if model not in PERMUTED}
    kinds = list({tuple(rows): rows for rows in own.values()}.values())  # nearly always one: all models predict all patients
    kind = {model: next(k for k, rows in enumerate(kinds) if rows.equals(own[model])) for model in own}
    found: list[Pair] = []
    shared: dict[tuple[int, int], Shared] = {}
    for model, other in itertools.combinations(own, 2):
        key = min(kind[model], kind[other]), max(kind[model], kind[other])
        if key not in shared:
            shared[key] = _shared(endpoint, {name: tables[name] for name in own if kind[name] in key})
        both = shared[key]
        if not len(both.people):
            continue
        errors = _brier(both, model, other, seed) if endpoint.kind == "binary" else _integrated(both, alive, model, other, seed)
        found.append(
            Pair(
                model=model,
                other=other,
                n=len(both.people),
                score=_part(within_fold.within_fold_comparison(both.within_folds[model], both.within_folds[other], inflated)),
                brier=errors and _part(errors.difference(model, other, inflated)),
            )
        )
    return tuple(found)


def _shared(endpoint: Endpoint, tables: Tables) -> Shared:
    of_rows = dict(zip(tables, compare.shared(list(tables.values())), strict=True))
    people = {model: averaged(rows) for model, rows in of_rows.items()}
    return Shared(
        people=next(iter(people.values())),
        scores={model: floats(one.score) for model, one in people.items()},
        within_folds={model: chance.within_folds(endpoint, rows) for model, rows in of_rows.items()},
    )


def _brier(both: Shared, model: str, other: str, seed: int) -> Measured | None:
    """Of the Brier score; None unless both models' scores are probabilities."""
    if outside(both.scores[model]) or outside(both.scores[other]):
        return None
    if "brier" not in both.measured:
        truth = flags(both.people.truth)
        errors = {name: (score - truth) ** 2 for name, score in both.scores.items()}
        both.measured["brier"] = _measure(
            {name: lambda drawn, error=error: drawn @ error / len(error) for name, error in errors.items()},
            np.array([error.mean() for error in errors.values()]),
            len(truth),
            seed,
        )
    return both.measured["brier"]


def _integrated(both: Shared, alive: Tables, model: str, other: str, seed: int) -> Measured | None:
    """Of the integrated Brier score, of patients with probabilities by both models at the same horizons; None without any."""
    ours, theirs = alive[model], alive[other]
    if not len(ours) or not len(theirs) or not ours.columns.equals(theirs.columns):
        return None
    known = both.people.patient[both.people.patient.isin(ours.index) & both.people.patient.isin(theirs.index)]
    if not len(known):
        return None
    figure = f"{tuple(known)} {tuple(ours.columns)}"
    if figure not in both.measured:
        people = both.people.set_index("patient").loc[known]
        time_days, event = _followed(people)
        days = ours.columns.to_numpy(dtype=float)
        chances = {
            name: table.loc[known].to_numpy(dtype=float)
            for name, table in alive.items()
            if name in both.scores and table.columns.equals(ours.columns) and known.isin(table.index).all()
        }
        both.measured[figure] = _measure(
            {
                name: lambda drawn, chance=chance: ipcw.integral(ipcw.drawn_brier(time_days, event, chance, days, drawn), days)
                for name, chance in chances.items()
            },
            np.array([ipcw.integrated_brier(time_days, event, chance, days) for chance in chances.values()]),
            len(known),
            seed,
        )
    return both.measured[figure]


def _measure(
    of_models: Mapping[str, Callable[[Drawn], Float[np.ndarray, " b"]]], value: Float[np.ndarray, " m"], patients: int, seed: int
) -> Measured:
    """Each model's figure on the same resamples."""
    draws = bootstrap.distribution(
        lambda drawn: np.stack([of_model(drawn) for of_model in of_models.values()], axis=1),
        np.zeros(patients),
        np.random.default_rng(seed),
        comparison.PAIRED_RESAMPLES,
    )
    return Measured({model: column for column, model in enumerate(of_models)}, value, draws)


def _followed(people: pd.DataFrame) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    return floats(people.time_days), flags(people.event)


def _part(found: Comparison) -> Difference:
    return Difference(difference=found.difference, low=found.low, high=found.high, p=found.p)
