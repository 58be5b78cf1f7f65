"""A compared model's figures in parts of the cohort: the cohort table's columns and judged rows in; estimates by level out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pandas as pd

from mri_vit.data.columns import MISSING, numbers
from mri_vit.metrics.within_fold import interval_inflation
from mri_vit.report.numbers import measures
from mri_vit.report.numbers.chance import inflation
from mri_vit.report.numbers.characteristics import MAX_LEVELS, MIN_DISTINCT_VALUES
from mri_vit.report.numbers.judged import averaged, first_repeat
from mri_vit.report.schema.measured import SubgroupFigures
from mri_vit.report.schema.parts import NOT_TRAINED_ON, Design
from mri_vit.settings.recipe import is_compared
from mri_vit.settings.schema import Endpoint

AGE, OLD_YEARS = "age", 65.0  # the age from which trials count patients with glioblastoma as elderly: Perry et al. 2017,
# doi:10.1056/NEJMoa1611977
NO_CHANCES: Mapping[str, pd.DataFrame] = MappingProxyType({})


def subgroup_figures(
    endpoint: Endpoint,
    cohort: pd.DataFrame,
    columns: tuple[str, ...],
    tables: Mapping[str, pd.DataFrame],
    design: Design,
    alive: Mapping[str, pd.DataFrame] = NO_CHANCES,
) -> tuple[SubgroupFigures, ...]:
    """The judged figure by column of the cohort table, level and compared model; none for a missing column or one level.

    Beside it, where the level is not small, what the kind measures (`Measures.beside`). Intervals allow for refitting unless no
    model was trained on these patients. `alive` are by model the probabilities of survival, as `judged.chances_alive` has them.
    """
    of_kind, refits = measures.of(endpoint), design not in NOT_TRAINED_ON
    once = {model: first_repeat(rows) for model, rows in tables.items() if is_compared(model)}
    found = []
    for group, here in _subgroups(cohort, columns, tables):
        part = SubgroupFigures(
            *group,
            len(here),
            of_kind.level_counts(endpoint, of_kind.labels.arrays(here)[0]),
            of_kind.rarer(here),
            *of_kind.part_of_cohort(here, refits),
        )
        rows = once[part.model]
        if not part.small:
            inflated = interval_inflation(part.value, inflation(rows, design))
            own = rows.loc[rows.patient.isin(here.patient)]
            beside = of_kind.beside(endpoint, here, own, alive.get(part.model, pd.DataFrame()), inflated)
            part = replace(part, beside=beside)
        found.append(part)
    return tuple(found)


def _subgroups(
    cohort: pd.DataFrame, columns: tuple[str, ...], tables: Mapping[str, pd.DataFrame]
) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Column, level and model with the patients, at least one."""
    people = {model: averaged(rows) for model, rows in tables.items() if is_compared(model)}
    for column in columns:
        if column not in cohort:
            continue
        level_of = pd.Series(levels(pd.Series(cohort[column])).to_numpy(), index=cohort.patient)
        if level_of.nunique() < 2:
            continue
        for level in ordered_levels(level_of):
            for model, table in people.items():
                here = table.loc[table.patient.map(level_of) == level]
                if len(here):
                    yield (column, level, model), here


def levels(cells: pd.Series) -> pd.Series:
    """The level of each cell of a text column: a half of the numbers, a frequent word, "other", or "missing".

    Ages are cut at 65 years, other numbers at their median. The eight most frequent words stand for themselves.
    """
    cells = cells.str.strip()
    missing = cells.str.lower().isin({*MISSING, ""})
    values = numbers(str(cells.name), cells.tolist())
    number = pd.Series(values, cells.index, dtype=float)
    if values is not None and number.nunique() >= MIN_DISTINCT_VALUES:
        missing = number.isna()
        cut = OLD_YEARS if cells.name == AGE else float(number.median())
        named = pd.Series(np.where(number < cut, f"under {cut:g}", f"{cut:g} and over"), index=cells.index)
    else:
        words = cells.loc[~missing].value_counts().sort_index(kind="stable").sort_values(ascending=False, kind="stable")
        named = cells.where(cells.isin(words.index[:MAX_LEVELS]), "other")
    return named.mask(missing, "missing")


def ordered_levels(level_of: pd.Series) -> list[str]:
    """Levels as they are listed: by name, the younger or lower half first, "other" and "missing" last."""
    return sorted(
        level_of.unique(), key=lambda level: (level == "missing", level == "other", not level.startswith("under "), level)
    )
