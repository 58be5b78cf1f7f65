"""Patients with and without a label: a run and its judged rows in; the characteristics of both groups out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from mri_vit.data.cohort import visit_id
from mri_vit.data.columns import numbers
from mri_vit.metrics.comparison import holm
from mri_vit.metrics.interaction import ranks_differ, rates_differ
from mri_vit.report.numbers import characteristics
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.measured import ALPHA
from mri_vit.report.schema.patients import Cell, Row
from mri_vit.settings.schema import Endpoint

# Of standard deviations: beyond it a regression no longer adjusts for a difference but extrapolates: Rubin 2001,
# doi:10.1023/A:1020363010465; Stuart 2010, doi:10.1214/09-STS313.
MAX_DIFFERENCE = 0.25
MIN_GROUP = 10  # patients of either group: with fewer, chance alone makes a difference of 0.32 or more
SCORE, TUMOUR = "score", "tumour volume, ml"


@dataclass(frozen=True)
class CharacteristicFigures:
    """One characteristic of both groups."""

    row: Row
    by_chance: float
    p: float
    p_adjusted: float = math.nan

    @property
    def tested(self) -> Cell:
        return self.row.cells[0]

    @property
    def untested(self) -> Cell:
        return self.row.cells[1]

    @property
    def is_large(self) -> bool:
        """A difference that is undefined is of groups that do not overlap, or of one that has the value alone."""
        return not self.untested.difference <= MAX_DIFFERENCE

    @property
    def differs(self) -> bool:
        return self.is_large and self.p_adjusted <= ALPHA


@dataclass(frozen=True)
class UnlabelledFigures:
    """An endpoint's patients with and without a label."""

    model: str
    tested: int
    untested: int
    predicted: int
    characteristics: tuple[CharacteristicFigures, ...]
    left_out: Mapping[str, str]


def measure(run: Run, endpoint: Endpoint, model: str, rows: pd.DataFrame) -> UnlabelledFigures | None:
    """None where every patient of the table has a label. `rows` are those on which the model is judged."""
    people = run.cohort
    tested = people.patient.isin(rows.patient)
    untested = ~tested & ~characteristics.knows(people, endpoint)
    if not untested.any():
        return None
    scores = _scores(run, endpoint, model)
    predicted = int(people.patient[untested].isin(run.predictions.patient).sum())
    found: list[CharacteristicFigures] = []
    left_out: dict[str, str] = {}
    enough = min(tested.sum(), untested.sum()) >= MIN_GROUP
    for row, values in _rows(run, endpoint, scores, tested, untested) if enough else ():
        known = [cell.known for cell in row.cells]
        if min(known) < MIN_GROUP:
            left_out[row.column] = f"known for {known[0]} with and {known[1]} without a label"
            continue
        by_chance = math.sqrt(1 / known[0] + 1 / known[1])
        found.append(CharacteristicFigures(row, by_chance, _p(row, values, tested, untested, run.study.seed)))
    adjusted = holm(np.array([one.p for one in found], dtype=float)).tolist()
    return UnlabelledFigures(
        model=model,
        tested=int(tested.sum()),
        untested=int(untested.sum()),
        predicted=predicted,
        characteristics=tuple(replace(one, p_adjusted=p) for one, p in zip(found, adjusted, strict=True)),
        left_out=left_out,
    )


def _rows(
    run: Run, endpoint: Endpoint, scores: pd.Series, tested: pd.Series, untested: pd.Series
) -> Iterator[tuple[Row, pd.Series | None]]:
    """Each characteristic, with the values of a number by row of the cohort table."""
    people = run.cohort
    for row in characteristics.of_two_groups(run, tested, untested):
        if row.column != endpoint.name:
            cells = people[row.column].str.strip().tolist() if row.kind == "number" and row.column in people else None
            values = cells and numbers(row.column, cells)
            yield row, None if values is None else pd.Series(values, people.index, dtype=float)
    for name, values in ((TUMOUR, _tumours(run)), (SCORE, scores)):
        if values.notna().any():
            yield characteristics.of_numbers(name, values, tested, untested), values


def _tumours(run: Run) -> pd.Series:
    """The tumour's volume in each patient's first visit with a mask, by row of the cohort table."""
    visits: dict[str, float] = {}
    for name, tumour in run.located.items():
        if tumour.tumour_ml is not None:
            visits[name] = tumour.tumour_ml
    sessions = run.cohort["session"] if "session" in run.cohort else [""] * len(run.cohort)
    ids = [visit_id(*pair) for pair in zip(run.cohort.patient, sessions, strict=True)]
    return pd.Series([visits.get(visit, math.nan) for visit in ids], run.cohort.index, dtype=float)


def _scores(run: Run, endpoint: Endpoint, model: str) -> pd.Series:
    """A model's mean score by row of the cohort table; NaN without one, and of classes, which have a score each."""
    rows = run.predictions.loc[(run.predictions.endpoint == endpoint.name) & (run.predictions.model == model)]
    if endpoint.classes:
        return pd.Series(math.nan, run.cohort.index)
    means = rows.astype({"score": float}).groupby("patient").score.mean()
    return run.cohort.patient.map(means).astype(float)


def _p(row: Row, values: pd.Series | None, tested: pd.Series, untested: pd.Series, seed: int) -> float:
    if values is not None:
        here = ((tested | untested) & values.notna()).to_numpy()
        return ranks_differ(values.to_numpy(float)[here], untested.to_numpy()[here]).p
    counts = np.array([cell.counts for cell in row.cells], dtype=int).T  # (levels, 2)
    rest = np.array([cell.known for cell in row.cells]) - counts.sum(axis=0)  # of a marker the negative, of survival the censored
    if row.kind == "label" and (rest.any() or len(counts) == 1):
        counts = np.vstack([counts, rest])
    return rates_differ(counts, np.random.default_rng(seed)).p if len(counts) else math.nan
