"""Who the patients are: the cohort table's columns in; Table 1, the flow of patients, and estimates for each subgroup out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from mri_vit.data.cohort import MASKS, Patient
from mri_vit.data.columns import MISSING, numbers
from mri_vit.data.covariates import clinical_columns
from mri_vit.kinds.kind import labels
from mri_vit.metrics.comparison import difference_of_means, difference_of_shares
from mri_vit.metrics.survival import at_risk, median_follow_up
from mri_vit.metrics.within_fold import interval_inflation
from mri_vit.prepare.patient import kind_of_reason
from mri_vit.report.numbers import measures
from mri_vit.report.numbers.chance import inflation
from mri_vit.report.numbers.judged import averaged, first_repeat
from mri_vit.report.reading.run import Run, subject
from mri_vit.report.schema.endpoints import FollowUp
from mri_vit.report.schema.measured import TABLE_DAYS, SubgroupFigures
from mri_vit.report.schema.metrics import Cohort
from mri_vit.report.schema.parts import NOT_TRAINED_ON, Design
from mri_vit.report.schema.patients import Cell, ColumnKind, Row, Split, Table1
from mri_vit.settings.recipe import is_compared
from mri_vit.settings.schema import Endpoint

MAX_ROWS = 30  # a page's length; a table of radiomic features has hundreds of columns
OTHER_LEVELS = "other levels"
MAX_LEVELS = 8  # a forest plot of more lines per column is not read
MIN_DISTINCT_VALUES = 6  # a column of fewer different numbers is a code or a grade, and its values are its levels
AGE, OLD_YEARS = "age", 65.0  # the age from which trials count patients with glioblastoma as elderly: Perry et al. 2017,
# doi:10.1056/NEJMoa1611977
NO_CHANCES: Mapping[str, pd.DataFrame] = MappingProxyType({})
Counts = Int[np.ndarray, " k"]  # of k levels


@dataclass(frozen=True)
class _Group:
    """A column's patients as rows of the cohort table, and the patients that they are compared with."""

    split: Split
    rows: pd.DataFrame
    others: pd.DataFrame | None


def table1(run: Run) -> Table1:
    """Who the patients are. Predicted patients are described; of an evaluation also the cohort that the models come from."""
    groups, before = _groups(run), run.development
    columns, left_out = _columns(run)
    rows = [_row(run.cohort, name, groups, before) for name in columns]
    for endpoint in run.study.endpoints:
        if set(endpoint.columns) <= set(run.cohort.columns):
            rows += _labels(endpoint, groups, before)
    splits = [group.split for group in groups]
    if before:
        n = before.splits[0].n
        splits.append(Split(name="development", kind="development", n=n, by_chance=_by_chance(n, splits[0].n)))
    return Table1(splits=tuple(splits), rows=tuple(rows), left_out=left_out)


def of_two_groups(run: Run, first: pd.Series, other: pd.Series) -> list[Row]:
    """What Table 1 describes, of two groups of patients (flags by row of the cohort table): the second has the difference."""
    table = run.cohort
    rows, others = table.loc[first], table.loc[other]
    groups = [_Group(Split(name="first", kind="all", n=len(rows), by_chance=math.nan), rows, None)]
    groups.append(_group("other", "excluded", others, rows))
    found = [_row(table, name, groups, None) for name in _columns(run)[0]]
    for endpoint in run.study.endpoints:
        if set(endpoint.columns) <= set(table.columns):
            found += [row for row in _labels(endpoint, groups, None) if row.kind != "follow-up"]
    return found


def of_numbers(name: str, values: pd.Series, first: pd.Series, other: pd.Series) -> Row:
    """The same of a number that the cohort table does not hold; NaN where it is not known."""
    groups = [_Group(Split(name="first", kind="all", n=int(first.sum()), by_chance=math.nan), values.loc[first].to_frame(), None)]
    groups.append(_group("other", "excluded", values.loc[other].to_frame(), values.loc[first].to_frame()))
    return _of_numbers(name, values, groups, None)


def knows(table: pd.DataFrame, endpoint: Endpoint) -> pd.Series:
    """Whether each row of a cohort table has the endpoint's label; False of a table without its columns."""
    known = _known(table, endpoint).index if set(endpoint.columns) <= set(table.columns) else table.index[:0]
    return pd.Series(table.index.isin(known), table.index)


def flow(run: Run) -> Cohort:
    """The flow of patients. A patient is excluded when every visit was; then each of the reasons is counted."""
    people, predicted = set(run.cohort.patient), set(run.predictions.patient)
    named = [subject(name, people) for name in run.excluded.patient]
    faults = run.excluded.assign(patient=named, reason=[kind_of_reason(reason) for reason in run.excluded.reason])
    faults = faults.loc[~faults.patient.isin(predicted)].drop_duplicates(["patient", "reason"])
    excluded = set(faults.patient)
    return Cohort(
        patients=len(people | excluded),
        excluded=len(excluded),
        excluded_reasons={str(reason): int(count) for reason, count in faults.reason.value_counts(sort=False).items()},
        predicted=len(predicted),
        unpredicted=len(people - excluded - predicted),
        known={endpoint.name: _labelled(run.cohort, endpoint) for endpoint in run.study.endpoints},
    )


def _labelled(cohort: pd.DataFrame, endpoint: Endpoint) -> int:
    if not set(endpoint.columns) <= set(cohort.columns):
        return 0
    return int(np.all([cohort[column].str.strip() != "" for column in endpoint.columns], axis=0).sum())


def _groups(run: Run) -> list[_Group]:
    """Who is predicted; of a cross-validation each fold of the first repeat; who is in the table without a prediction."""
    table = run.cohort
    first = run.predictions.loc[run.predictions.repeat == run.predictions.repeat.min()]
    fold_of = first.drop_duplicates("patient").set_index("patient").fold
    here, out = (table.loc[inside] for inside in (table.patient.isin(fold_of.index), ~table.patient.isin(fold_of.index)))
    found = [_Group(Split(name="all", kind="all", n=len(here), by_chance=math.nan), here, None)]
    folds = here.patient.map(fold_of)
    if run.design == "cross-validation" and folds.nunique() > 1:
        column = run.study.train.leave_out
        for fold in sorted(folds.unique()):
            inside, outside = here.loc[folds == fold], here.loc[folds != fold]
            name = str(inside[column].iloc[0]) if column else f"fold {fold + 1}"
            found.append(_group(name, "left out" if column else "fold", inside, outside))
    return [*found, _group("not predicted", "excluded", out, here)] if len(out) else found


def _group(name: str, kind: Literal["fold", "left out", "excluded"], rows: pd.DataFrame, others: pd.DataFrame) -> _Group:
    return _Group(Split(name=name, kind=kind, n=len(rows), by_chance=_by_chance(len(rows), len(others))), rows, others)


def _by_chance(n: int, others: int) -> float:
    """Standard deviation of a standardised difference between random groups: Hedges & Olkin 1985, chapter 5, no effect."""
    return math.sqrt(1 / n + 1 / others) if n and others else math.nan


def _columns(run: Run) -> tuple[list[str], int]:
    """The columns described, and how many more there are: subgroups', that whose values are left out, what "clinical" may use."""
    table, study = run.cohort, run.study
    apart = {"patient", "session", *study.channels, *MASKS, *(column for e in study.endpoints for column in e.columns)}
    if study.controls.columns is not None:
        usable = [name for name in study.controls.columns if name in table]
    else:
        clinical = table.drop(columns=[name for name in table if name in apart]).to_dict("records")
        people = [Patient(str(at), {}, {}, {str(key): str(cell) for key, cell in row.items()}) for at, row in enumerate(clinical)]
        usable = clinical_columns(people, study) if people else []
    named = [name for name in (*study.report.subgroups, study.train.leave_out) if name and name in table]
    columns = list(dict.fromkeys([*named, *usable]))
    return columns[:MAX_ROWS], len(columns[MAX_ROWS:])


def _row(table: pd.DataFrame, column: str, groups: Sequence[_Group], before: Table1 | None) -> Row:
    """A number where every filled cell of the table is one and more than a few differ, as of subgroups; else words.

    In an evaluation a column that the run's own cohort has is of the run's kind, however few differ here.
    """
    values = numbers(column, table[column].str.strip().tolist())
    few = values is None or pd.Series(values).nunique() < MIN_DISTINCT_VALUES
    if values is not None and (_found(before, column, "number") or not (few or _found(before, column, "words"))):
        return _of_numbers(column, pd.Series(values, table.index), groups, before)
    return _of_words(table, column, groups, before)


def _filled(table: pd.DataFrame, column: str) -> pd.Series:
    """A column's text cells, None where missing."""
    cells = pd.Series(table[column]).str.strip()
    return cells.mask(cells.str.lower().isin({*MISSING, ""}), None)


def _of_numbers(column: str, values: pd.Series, groups: Sequence[_Group], before: Table1 | None) -> Row:
    """The row of a column of numbers, by the cohort table's index; NaN where missing or unknown."""
    cells = []
    for group in groups:
        others = None if group.others is None else values.loc[group.others.index].dropna()
        cells.append(_number(values.loc[group.rows.index].dropna(), len(group.rows), others))
    if before:
        there, here = _there(before, column, "number"), cells[0]
        cells.append(_differing(there, difference_of_means(there.mean, there.deviation, here.mean, here.deviation)))
    return Row(column=column, kind="number", levels=(), lumped=0, cells=tuple(cells))


def _number(values: pd.Series, n: int, others: pd.Series | None) -> Cell:
    low, median, high = (float(values.quantile(share)) for share in (0.25, 0.5, 0.75))
    mean, deviation, difference = float(values.mean()), float(values.std()), math.nan
    if others is not None:
        difference = difference_of_means(mean, deviation, float(others.mean()), float(others.std()))
    return _cell(n, len(values), median=median, low=low, high=high, mean=mean, deviation=deviation, difference=difference)


def _differing(there: Cell, difference: float) -> Cell:
    """The cell of another cohort's table with its difference from this cohort."""
    return Cell.model_validate(dict(there) | {"difference": difference})


def _of_words(table: pd.DataFrame, column: str, groups: Sequence[_Group], before: Table1 | None) -> Row:
    """Levels by their patients, the most frequent first; rare ones together, so that there are no more than eight."""
    row = _found(before, column, "words")
    past = Counter(dict(zip(row.levels, row.cells[0].counts, strict=True))) if row else Counter()
    total = Counter(_filled(table, column).dropna()) + past
    rare = row.lumped if row else 0
    names = sorted((level for level in total if not (rare and level == OTHER_LEVELS)), key=lambda level: (-total[level], level))
    kept = names if len(names) <= MAX_LEVELS and not rare else names[: MAX_LEVELS - 1]
    lumped = len(names) - len(kept) + rare
    cells = []
    for group in groups:
        own = _counted(_filled(group.rows, column), kept, lumped)
        other = None if group.others is None else _counted(_filled(group.others, column), kept, lumped)
        cells.append(_counts(own, len(group.rows), other))
    if before and (number := _found(before, column, "number")):  # words here, so only how many are known can be set beside
        cells.append(_cell(before.splits[0].n, number.cells[0].known))
    elif before:
        here = np.array(cells[0].counts, dtype=int)
        cells.append(_counts(_by_level(past, kept, lumped), before.splits[0].n, here))
    levels = (*kept, *((OTHER_LEVELS,) if lumped else ()))
    return Row(column=column, kind="words", levels=levels, lumped=lumped, cells=tuple(cells))


def _counted(cells: pd.Series, kept: Sequence[str], lumped: int) -> Counts:
    return _by_level(Counter(cells.dropna()), kept, lumped)


def _by_level(count: Mapping[str, int], kept: Sequence[str], lumped: int) -> Counts:
    named = [count.get(level, 0) for level in kept]
    return np.array([*named, sum(count.values()) - sum(named)] if lumped else named, dtype=int)


def _counts(own: Counts, n: int, other: Counts | None) -> Cell:
    difference = math.nan if other is None else difference_of_shares(own, other)
    return _cell(n, int(own.sum()), counts=tuple(own.tolist()), difference=difference)


def _labels(endpoint: Endpoint, groups: Sequence[_Group], before: Table1 | None) -> list[Row]:
    """How many labels are known and positive, and of survival how long patients were followed."""
    of_kind, groups_known = measures.of(endpoint), [_known(group.rows, endpoint) for group in groups]
    levels = of_kind.levels(endpoint)
    if not levels:
        index = pd.concat([group.rows for group in groups]).index.unique()
        values = pd.Series(pd.concat([known.iloc[:, 0] for known in groups_known]))
        return [_of_numbers(endpoint.name, values.loc[~values.index.duplicated()].reindex(index), groups, before)]
    others = [_known(group.others, endpoint) if group.others is not None else None for group in groups]
    cells = []
    for group, known, other in zip(groups, groups_known, others, strict=True):
        own = of_kind.level_counts(endpoint, known.to_numpy())
        apart = math.nan
        if other is not None:
            apart = _levels_apart(own, len(known), of_kind.level_counts(endpoint, other.to_numpy()), len(other))
        cells.append(_cell(len(group.rows), len(known), counts=own, difference=apart))
    if before:
        there = _there(before, endpoint.name, "label", len(levels))
        apart = _levels_apart(there.counts, there.known, cells[0].counts, len(groups_known[0]))
        cells.append(_differing(there, apart))
    rows = [Row(column=endpoint.name, kind="label", levels=levels, lumped=0, cells=tuple(cells))]
    if labels(endpoint).of_visit:
        rows.append(_follow_up(endpoint, groups, groups_known, before))
    return rows


def _follow_up(endpoint: Endpoint, groups: Sequence[_Group], labels: Sequence[pd.DataFrame], before: Table1 | None) -> Row:
    cells = []
    for group, known in zip(groups, labels, strict=True):
        found = follow_up_of(known[endpoint.columns[0]].to_numpy(float), _flag(known))
        cells.append(_cell(len(group.rows), len(known), median=found.median_days, low=found.low, high=found.high))
    if before:
        cells.append(_there(before, endpoint.name, "follow-up"))
    return Row(column=endpoint.name, kind="follow-up", levels=(), lumped=0, cells=tuple(cells))


def _known(rows: pd.DataFrame, endpoint: Endpoint) -> pd.DataFrame:
    """The label columns of those whose label is known, as numbers."""
    columns = {name: [_label(endpoint, name, cell) for cell in _filled(rows, name)] for name in endpoint.columns}
    return pd.DataFrame(columns, index=rows.index, dtype=float).dropna()


def _label(endpoint: Endpoint, column: str, cell: str | None) -> float:
    """NaN of a cell that is empty or cannot be read."""
    try:
        return labels(endpoint).read(endpoint, column, cell) if cell else math.nan
    except ValueError:
        return math.nan


def _flag(known: pd.DataFrame) -> np.ndarray:
    """Whose follow-up an event ended, of either kind."""
    return known.iloc[:, -1].to_numpy() >= 1


def _levels_apart(own: Sequence[int], known: int, other: Sequence[int], other_known: int) -> float:
    """The difference of two groups by how many are of each level, and of none where either group has such patients."""
    rest = known - sum(own), other_known - sum(other)
    some = any(rest) or len(own) == 1
    return difference_of_shares(
        *(np.array([*counts, left] if some else counts) for counts, left in zip((own, other), rest, strict=True))
    )


def _found(table: Table1 | None, column: str, kind: ColumnKind) -> Row | None:
    return next((row for row in table.rows if (row.column, row.kind) == (column, kind)), None) if table else None


def _there(before: Table1, column: str, kind: ColumnKind, levels: int = 1) -> Cell:
    """All patients of the cohort that the models come from; a characteristic that it lacks is known for none."""
    row = _found(before, column, kind)
    return row.cells[0] if row else _cell(before.splits[0].n, 0, counts=(0,) * levels if kind == "label" else ())


def _cell(n: int, known: int, counts: tuple[int, ...] = (), **figures: float) -> Cell:
    names = ("median", "low", "high", "mean", "deviation", "difference")
    return Cell(known=known, missing=n - known, counts=counts, **{name: figures.get(name, math.nan) for name in names})


# Subgroups.


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


def follow_up_of(time_days: Float[np.ndarray, " n"], event: Bool[np.ndarray, " n"]) -> FollowUp:
    """Median follow-up with its interval, and how many are still followed at the horizons."""
    found = median_follow_up(time_days, event)
    left = at_risk(time_days, np.array(TABLE_DAYS, dtype=float))
    return FollowUp(
        n=len(event),
        events=int(event.sum()),
        median_days=found.value,
        low=found.low,
        high=found.high,
        days=TABLE_DAYS,
        at_risk=tuple(left.tolist()),
    )
