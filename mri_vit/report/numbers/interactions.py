"""Does a model work alike in every subgroup? Rows of each endpoint's judged model in; tests between a column's levels out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mri_vit.metrics.comparison import holm
from mri_vit.report.numbers import measures
from mri_vit.report.numbers.judged import averaged, chances_alive, first_repeat, rarer
from mri_vit.report.numbers.subgroups import levels, ordered_levels
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.measured import MIN_EVENTS
from mri_vit.settings.schema import Endpoint

MISSING_LEVEL = "missing"  # who lacks the column is no group of patients


@dataclass(frozen=True)
class TestFigures:
    """One figure of those levels of a column of which it is known."""

    column: str
    measure: str
    levels: tuple[str, ...]
    chi2: float
    df: int
    p: float
    p_adjusted: float = math.nan


@dataclass(frozen=True)
class InteractionFigures:
    """The tests of one endpoint's model, and what is not tested, with the reason."""

    model: str
    tests: tuple[TestFigures, ...]
    large: Mapping[str, tuple[str, ...]]  # by column, the levels that are large enough for tests
    not_tested: Mapping[tuple[str, str], str]  # by column and measure, "" of all measures


def measure(
    run: Run, tables: Mapping[str, Mapping[str, pd.DataFrame]], whose: Mapping[str, str]
) -> dict[str, InteractionFigures]:
    """By endpoint, of the model that `whose` names; p are adjusted over all endpoints, columns and measures together.

    `tables` are by endpoint and model, of labels that are the patients' own.
    """
    found = {}
    for endpoint in run.study.endpoints:
        rows = tables.get(endpoint.name, {}).get(whose.get(endpoint.name, ""))
        if rows is not None and len(rows):
            figures = _of_endpoint(run, endpoint, rows, whose[endpoint.name])
            if figures.tests or figures.not_tested:
                found[endpoint.name] = figures
    adjusted = iter(holm(np.array([test.p for one in found.values() for test in one.tests], dtype=float)).tolist())
    return {
        name: replace(one, tests=tuple(replace(test, p_adjusted=next(adjusted)) for test in one.tests))
        for name, one in found.items()
    }


def _of_endpoint(run: Run, endpoint: Endpoint, rows: pd.DataFrame, model: str) -> InteractionFigures:
    people, once = averaged(rows), first_repeat(rows)
    alive = chances_alive(run.survival, endpoint, rows) if len(run.survival) else pd.DataFrame()
    tests, enough, not_tested = [], {}, {}
    for column in run.study.report.subgroups:
        if column not in run.cohort:
            continue
        level_of = pd.Series(levels(pd.Series(run.cohort[column])).to_numpy(), index=run.cohort.patient)
        of_people = people.patient.map(level_of)
        if of_people.nunique() < 2:
            continue
        counted = {name: rarer(endpoint, people.loc[of_people == name]) for name in ordered_levels(of_people.dropna())}
        large = [name for name, count in counted.items() if name != MISSING_LEVEL and count >= MIN_EVENTS]
        if len(large) < 2:
            few = f"at least {MIN_EVENTS} {measures.of(endpoint).rare(endpoint)}"
            not_tested[column, ""] = f"{'only one' if large else 'none'} of its groups has {few}"
            continue
        enough[column] = tuple(large)
        here = people.loc[of_people.isin(large)]
        own, level = once.loc[once.patient.isin(here.patient)], of_people.loc[here.index].to_numpy(dtype=str)
        for name, one in measures.of(endpoint).differences(endpoint, here, own, alive, level, run.study.seed).items():
            known = {np.unique(level)[group] for group in one.groups}
            if not math.isnan(one.p):
                tests.append(TestFigures(column, name, tuple(g for g in large if g in known), one.chi2, one.df, one.p))
            elif len(known) < 2:
                not_tested[column, name] = f"it is known of {'only one' if known else 'none'} of the groups"
            else:
                not_tested[column, name] = "it is the same in all of the groups"
    return InteractionFigures(model, tuple(tests), enough, not_tested)
