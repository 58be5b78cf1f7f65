"""All models of an endpoint against all: their rows in, the differences of each two on the patients that both predicted out.

Resamples are drawn once for all models of the same patients, and each model is measured once on each, so that 1300 pairs of 52
models cost no more than 52 models. The draws are those of `compare.versus`, and so are the differences of AUC and C.

n is the number of patients, m the number of models, b the number of resamples, t the number of days.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from mri_vit.metrics import bootstrap, concordance, concordance_interval, delong, ipcw, paired
from mri_vit.metrics.delong import Comparison
from mri_vit.report.numbers.binary import outside
from mri_vit.report.numbers.judged import averaged, flags, floats
from mri_vit.report.schema.pairs import Difference, Pair
from mri_vit.settings.models import PERMUTED
from mri_vit.settings.schema import Endpoint

Tables = Mapping[str, pd.DataFrame]
ROW = ["repeat", "patient"]  # what a row of a table is of
Drawn = Float[np.ndarray, "b n"]


@dataclass(frozen=True)
class Measured:
    """A figure of m models on the same patients, and on each of b resamples of these."""

    column: Mapping[str, int]  # of each model
    value: Float[np.ndarray, " m"]
    draws: Float[np.ndarray, "b m"]

    def difference(self, model: str, other: str) -> Comparison:
        a, b = self.column[model], self.column[other]
        return paired.compared(float(self.value[a] - self.value[b]), self.draws[:, a] - self.draws[:, b])


@dataclass(frozen=True)
class Shared:
    """The models that have rows of the same patients and repeats: one row per patient, and each model's mean score."""

    people: pd.DataFrame
    scores: Mapping[str, Float[np.ndarray, " n"]]
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
            rows = kinds[key[0]].intersection(kinds[key[1]])
            shared[key] = _shared(rows, {name: tables[name] for name in own if kind[name] in key})
        both = shared[key]
        if not len(both.people):
            continue
        test = _auc if endpoint.kind == "binary" else _c
        brier = (
            _brier(both, model, other, seed) if endpoint.kind == "binary" else _survival_brier(both, alive, model, other, seed)
        )
        found.append(
            Pair(
                model=model,
                other=other,
                n=len(both.people),
                score=_part(test(both, model, other, seed), inflated),
                brier=brier and _part(brier, inflated),
            )
        )
    return tuple(found)


def _shared(rows: pd.Index, tables: Tables) -> Shared:
    of_rows = {model: averaged(table.set_index(ROW).loc[rows].reset_index()) for model, table in tables.items()}
    return Shared(next(iter(of_rows.values())), {model: floats(people.score) for model, people in of_rows.items()})


def _auc(both: Shared, model: str, other: str, seed: int) -> Comparison:
    return delong.delong_paired(flags(both.people.truth), both.scores[model], both.scores[other])


def _c(both: Shared, model: str, other: str, seed: int) -> Comparison:
    if "c" not in both.measured:
        time_days, event = _followed(both.people)
        both.measured["c"] = _measure(
            {
                name: lambda drawn, risk=risk: concordance_interval.drawn_c(
                    time_days, event, risk, drawn, np.ones((1, event.sum()))
                )
                for name, risk in both.scores.items()
            },
            np.array([concordance.harrell_c(time_days, event, risk) for risk in both.scores.values()]),
            len(time_days),
            seed,
        )
    return both.measured["c"].difference(model, other)


def _brier(both: Shared, model: str, other: str, seed: int) -> Comparison | None:
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
    return both.measured["brier"].difference(model, other)


def _survival_brier(both: Shared, alive: Tables, model: str, other: str, seed: int) -> Comparison | None:
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
    return both.measured[figure].difference(model, other)


def _measure(
    of_models: Mapping[str, Callable[[Drawn], Float[np.ndarray, " b"]]], value: Float[np.ndarray, " m"], patients: int, seed: int
) -> Measured:
    """Each model's figure on the same resamples."""
    draws = bootstrap.distribution(
        lambda drawn: np.stack([of_model(drawn) for of_model in of_models.values()], axis=1),
        np.zeros(patients),
        np.random.default_rng(seed),
        paired.RESAMPLES,
    )
    return Measured({model: column for column, model in enumerate(of_models)}, value, draws)


def _followed(people: pd.DataFrame) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    return floats(people.time_days), flags(people.event)


def _part(found: Comparison, inflated: float) -> Difference:
    found = paired.widened(found, inflated)
    return Difference(difference=found.difference, low=found.low, high=found.high, p=found.p)
