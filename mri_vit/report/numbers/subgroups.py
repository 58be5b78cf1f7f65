"""Whether a model does as well in every part of the cohort: the cohort table's columns in, an estimate per level out.

Nothing is tested between levels: they were not chosen beforehand, and a difference among many is found by chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mri_vit.data.cohort import MISSING
from mri_vit.metrics import concordance, concordance_interval, delong, discrimination
from mri_vit.report.numbers.judged import averaged, flags, floats
from mri_vit.report.numbers.survival import outcome
from mri_vit.settings.models import is_candidate
from mri_vit.settings.schema import Endpoint

MOST_LEVELS = 8  # a forest plot of more lines per column is not read
FEWEST_DISTINCT = 6  # a column of fewer different numbers is a code or a grade, and its values are its levels
AGE, OLD_YEARS = "age", 65.0  # the age from which trials count patients with glioblastoma as elderly: Perry et al. 2017,
# doi:10.1056/NEJMoa1611977
# Ten of the rarer class per quantity estimated: Peduzzi et al. 1996, doi:10.1016/S0895-4356(96)00236-3. With ten against ten,
# chance alone gives an AUC a standard error of 0.13.
FEWEST_EVENTS = 10


def measure(
    cohort: pd.DataFrame, columns: tuple[str, ...], endpoint: Endpoint, tables: Mapping[str, pd.DataFrame], seed: int
) -> list:
    """A row for each column of the cohort table, level and candidate; a column that is not there, or has one level, has none."""
    people = {model: averaged(rows) for model, rows in tables.items() if is_candidate(model)}
    found = []
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
                    found.append({"column": column, "level": level, "model": model, **_estimate(endpoint, here, seed)})
    return found


def levels(cells: pd.Series) -> pd.Series:
    """The level of each cell of a text column: a half of the numbers, a frequent word, "other", or "missing".

    Ages are cut at 65 years, other numbers at their median. The eight most frequent words stand for themselves.
    """
    cells = cells.str.strip()
    missing = cells.str.lower().isin({*MISSING, ""})
    number = pd.Series(pd.to_numeric(cells.mask(missing), errors="coerce"), dtype=float)
    if number.notna().sum() == (~missing).sum() and number.nunique() >= FEWEST_DISTINCT:
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


def _estimate(endpoint: Endpoint, here: pd.DataFrame, seed: int) -> dict[str, Any]:
    if endpoint.kind == "binary":
        truth, score = flags(here.truth), floats(here.score)
        marked, value = {"positive": int(truth.sum())}, discrimination.auc(truth, score)
        low, high = delong.delong_interval(truth, score)
        rarer, name = min(int(truth.sum()), int((~truth).sum())), "of the rarer class"
    else:
        seen = outcome(here)
        marked, value = {"events": int(seen.event.sum())}, concordance.harrell_c(seen.time_days, seen.event, seen.risk)
        low, high = concordance_interval.harrell_interval(seen.time_days, seen.event, seen.risk, np.random.default_rng(seed))
        rarer, name = int(seen.event.sum()), "deaths"
    small = rarer < FEWEST_EVENTS
    warning = f"too small to judge: {rarer} {name}, fewer than {FEWEST_EVENTS}" if small else None
    if math.isnan(value):
        low = high = math.nan
    return {"n": len(here), **marked, "value": value, "low": low, "high": high, "small": small, "warning": warning}
