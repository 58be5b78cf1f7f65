"""Whether a model does as well in every part of the cohort: the cohort table's columns in, an estimate per level out.

Nothing is tested between levels: they were not chosen beforehand, and a difference among many is found by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from mri_vit.data.columns import numbers
from mri_vit.data.spellings import MISSING
from mri_vit.metrics import concordance, discrimination
from mri_vit.metrics.discrimination import auc_interval
from mri_vit.report.numbers.judged import averaged, flags, floats, outcome
from mri_vit.report.schema.binary import BinarySubgroup
from mri_vit.report.schema.survival import SurvivalSubgroup
from mri_vit.settings.recipe import is_candidate

MOST_LEVELS = 8  # a forest plot of more lines per column is not read
FEWEST_DISTINCT = 6  # a column of fewer different numbers is a code or a grade, and its values are its levels
AGE, OLD_YEARS = "age", 65.0  # the age from which trials count patients with glioblastoma as elderly: Perry et al. 2017,
# doi:10.1056/NEJMoa1611977
# Ten of the rarer class per quantity estimated: Peduzzi et al. 1996, doi:10.1016/S0895-4356(96)00236-3. With ten against ten,
# chance alone gives an AUC a standard error of 0.13.
FEWEST_EVENTS = 10


class Named(NamedTuple):
    """Whose estimate it is."""

    column: str
    level: str
    model: str


def of_binary(cohort: pd.DataFrame, columns: tuple[str, ...], tables: Mapping[str, pd.DataFrame]) -> tuple[BinarySubgroup, ...]:
    """An AUC for each column of the cohort table, level and candidate; a column that is missing, or has one level, has none."""
    return tuple(_of_binary(group, here) for group, here in _groups(cohort, columns, tables))


def of_survival(
    cohort: pd.DataFrame, columns: tuple[str, ...], tables: Mapping[str, pd.DataFrame], seed: int
) -> tuple[SurvivalSubgroup, ...]:
    """Likewise Harrell's C."""
    return tuple(_of_survival(group, here, seed) for group, here in _groups(cohort, columns, tables))


def _groups(
    cohort: pd.DataFrame, columns: tuple[str, ...], tables: Mapping[str, pd.DataFrame]
) -> Iterator[tuple[Named, pd.DataFrame]]:
    """Each subgroup with its patients, of whom there is at least one."""
    people = {model: averaged(rows) for model, rows in tables.items() if is_candidate(model)}
    for column in columns:
        if column not in cohort:
            continue
        level_of = pd.Series(levels(pd.Series(cohort[column])).to_numpy(), index=cohort.patient)
        if level_of.nunique() < 2:
            continue
        for level in in_order(level_of):
            for model, table in people.items():
                here = table.loc[table.patient.map(level_of) == level]
                if len(here):
                    yield Named(column, level, model), here


def levels(cells: pd.Series) -> pd.Series:
    """The level of each cell of a text column: a half of the numbers, a frequent word, "other", or "missing".

    Ages are cut at 65 years, other numbers at their median. The eight most frequent words stand for themselves.
    """
    cells = cells.str.strip()
    missing = cells.str.lower().isin({*MISSING, ""})
    values = numbers(str(cells.name), cells.tolist())
    number = pd.Series(values, cells.index, dtype=float)
    if values is not None and number.nunique() >= FEWEST_DISTINCT:
        missing = number.isna()
        cut = OLD_YEARS if cells.name == AGE else float(number.median())
        named = pd.Series(np.where(number < cut, f"under {cut:g}", f"{cut:g} and over"), index=cells.index)
    else:
        words = cells.loc[~missing].value_counts().sort_index(kind="stable").sort_values(ascending=False, kind="stable")
        named = cells.where(cells.isin(words.index[:MOST_LEVELS]), "other")
    return named.mask(missing, "missing")


def in_order(level_of: pd.Series) -> list[str]:
    """Levels as they are listed: by name, the younger or lower half first, "other" and "missing" last."""
    return sorted(
        level_of.unique(), key=lambda level: (level == "missing", level == "other", not level.startswith("under "), level)
    )


def _of_binary(group: Named, here: pd.DataFrame) -> BinarySubgroup:
    truth, score = flags(here.truth), floats(here.score)
    value = discrimination.auc(truth, score)
    low, high = _defined(value, auc_interval(truth, score))
    positive = int(truth.sum())
    return BinarySubgroup(
        **group._asdict(),
        n=len(here),
        positive=positive,
        value=value,
        low=low,
        high=high,
        small=min(positive, len(here) - positive) < FEWEST_EVENTS,
        warning=None,
    )


def _of_survival(group: Named, here: pd.DataFrame, seed: int) -> SurvivalSubgroup:
    seen = outcome(here)
    value = concordance.harrell_c(seen.time_days, seen.event, seen.risk)
    interval = concordance.harrell_interval(seen.time_days, seen.event, seen.risk, np.random.default_rng(seed))
    low, high = _defined(value, interval)
    events = int(seen.event.sum())
    return SurvivalSubgroup(
        **group._asdict(),
        n=len(here),
        events=events,
        value=value,
        low=low,
        high=high,
        small=events < FEWEST_EVENTS,
        warning=None,
    )


def _defined(value: float, interval: tuple[float, float]) -> tuple[float, float]:
    """An undefined value has no interval."""
    return (math.nan, math.nan) if math.isnan(value) else interval
