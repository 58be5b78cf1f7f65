"""Two models on the same patients: the compared models against controls and against the study's own, and every pair.

For the pairs see `paired`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mri_vit.metrics import comparison, within_fold
from mri_vit.metrics.comparison import Comparison
from mri_vit.report.numbers import chance, measures
from mri_vit.report.numbers.judged import averaged, by_fold, floats
from mri_vit.report.numbers.paired import Shared, Tables
from mri_vit.report.schema.measured import Measurement
from mri_vit.report.schema.parts import Difference, Pair, ResampledTest
from mri_vit.settings.recipe import PERMUTED
from mri_vit.settings.schema import Endpoint

ROW = ["repeat", "patient"]  # what a row of a model's table is of


@dataclass(frozen=True)
class UnadjustedComparison:
    """A paired `Comparison` that is not yet adjusted for others."""

    difference: float
    low: float
    high: float
    z: float
    p: float
    n: int
    nadeau_bengio: ResampledTest | None


@dataclass(frozen=True)
class UnadjustedBest:
    """A compared model against the strongest control (`BestControl`), not yet adjusted for other models."""

    strongest: str
    least: str
    p: float


def versus(endpoint: Endpoint, rows: pd.DataFrame, other: pd.DataFrame, inflated: float) -> UnadjustedComparison | None:
    """The difference between a model and another on the patients that both predicted, and the test that it is zero.

    What differs is the figure that is judged, of pairs within a fold, and the test is `within_fold.compared`. Over several
    repeats also the corrected resampled t-test of the differences per fold (one-sided: is the model better?).

    Parameters
    ----------
    rows, other : as `judged.known_rows` gives them.
    inflated : as `chance.inflation` gives it.

    Returns
    -------
    None without a shared patient.
    """
    ours, theirs = shared([rows, other])
    if not len(ours):
        return None
    found = within_fold.refitted_comparison(chance.within_folds(endpoint, ours), chance.within_folds(endpoint, theirs), inflated)
    return UnadjustedComparison(
        difference=found.difference,
        low=found.low,
        high=found.high,
        z=found.z,
        p=found.p,
        n=ours.patient.nunique(),
        nadeau_bengio=_over_repeats(ours, theirs, measures.of(endpoint).estimate),
    )


def shared(tables: Sequence[pd.DataFrame]) -> list[pd.DataFrame]:
    """Each table's rows of the patients and repeats that all have, in one order."""
    indexed = [table.set_index(ROW) for table in tables]
    rows = functools.reduce(lambda a, b: a.intersection(b), [table.index for table in indexed]).sort_values()
    return [table.loc[rows].reset_index() for table in indexed]


def best_control(tests: Mapping[str, UnadjustedComparison], models: Mapping[str, Measurement]) -> UnadjustedBest | None:
    """The strongest control that a compared model was compared with, and the p that it beats them all; None without one.

    To be better than the best of them is to be better than each, so the largest p is the p of that claim and needs no
    correction for their number (the intersection-union test: Berger 1982, doi:10.1080/00401706.1982.10487790). A difference
    that is not above 0, or that cannot be tested, counts as p = 1.
    """
    if not tests:
        return None
    p = {name: test.p if test.difference > 0 and not math.isnan(test.p) else 1.0 for name, test in tests.items()}
    least = max(p, key=lambda name: (p[name], -tests[name].difference))
    strongest = max(tests, key=lambda name: np.nan_to_num(models[name].figures.judged.value, nan=-math.inf))
    return UnadjustedBest(strongest, least, p[least])


def _over_repeats(ours: pd.DataFrame, theirs: pd.DataFrame, estimate: Callable[[pd.DataFrame], float]) -> ResampledTest | None:
    """Nadeau and Bengio's test over the folds of all repeats; None with one repeat, or with fewer than two defined folds.

    Both tables have the same patients in the same order, and what is compared is in the folds of ours.
    """
    if ours.repeat.nunique() < 2:
        return None
    folds = [here for _, _, here in by_fold(ours)]
    differences = np.array([estimate(here) - estimate(theirs.loc[here.index]) for here in folds])
    n, n_test = ours.patient.nunique(), round(len(ours) / len(folds))
    if n <= n_test:  # repeats without folds leave no training patients
        return None
    t, p = comparison.nadeau_bengio(differences, n - n_test, n_test)
    return ResampledTest(t=t, p=p, splits=int((~np.isnan(differences)).sum()))


def pairs_of_endpoint(
    endpoint: Endpoint, tables: Tables, alive: Tables, inflated: float, of_one_repeat: float, seed: int
) -> tuple[Pair, ...]:
    """Every two models, in the order of `tables`; models on permuted labels are left out.

    Parameters
    ----------
    tables : by model, rows as `judged.known_rows` gives them.
    alive : by model, of a survival endpoint, predicted probabilities as `judged.chances_alive` gives them.
    inflated : as `chance.inflation` gives it.
    of_one_repeat : the same of one repeat, for Brier scores of mean scores, whose models share their patients.
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
        errors = measures.of(endpoint).paired_loss(both, alive, (model, other), seed)
        found.append(
            Pair(
                model=model,
                other=other,
                n=len(both.people),
                score=_part(within_fold.refitted_comparison(both.within_folds[model], both.within_folds[other], inflated)),
                brier=errors and _part(errors.difference(model, other, of_one_repeat)),
            )
        )
    return tuple(found)


def _shared(endpoint: Endpoint, tables: Tables) -> Shared:
    of_rows = dict(zip(tables, shared(list(tables.values())), strict=True))
    people = {model: averaged(rows) for model, rows in of_rows.items()}
    return Shared(
        people=next(iter(people.values())),
        tables=people,
        scores={model: floats(one.score) for model, one in people.items()},
        within_folds={model: chance.within_folds(endpoint, rows) for model, rows in of_rows.items()},
    )


def _part(found: Comparison) -> Difference:
    return Difference(difference=found.difference, low=found.low, high=found.high, p=found.p)
