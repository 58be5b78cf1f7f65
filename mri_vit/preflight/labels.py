"""Labels: counts by endpoint and test fold, folds that cannot be evaluated, and values that can be read and are yet unlikely.

Unlikely are days mixed with months, and columns that give a label away.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from mri_vit.crossval.folds import Split
from mri_vit.data.cohort import Patient
from mri_vit.data.columns import MISSING
from mri_vit.importers.cohort_table import MONTH_DAYS, SHORTEST_MEDIAN, months_among
from mri_vit.preflight.document import Finding, Fold, Labels
from mri_vit.settings.schema import Endpoint, Train

FEWEST = 10  # patients of whom a column's agreement with a label says something
APART = 15.0  # times that one site's median lies below the others': half of 30.4


def count(patients: Sequence[Patient], endpoints: Sequence[Endpoint], splits: Sequence[Split]) -> tuple[Labels, ...]:
    """What is known of each endpoint, in all and in each test fold."""
    of = {p.id: p for p in patients}
    found = []
    for endpoint in endpoints:
        known, positive, negative = _counts(patients, endpoint)
        folds = [
            Fold(repeat=repeat, fold=fold, **dict(zip(("known", "positive", "negative"), counts, strict=True)))
            for repeat, split in enumerate(splits)
            for fold, ids in enumerate(split)
            for counts in [_counts([of[i] for i in ids], endpoint)]
        ]
        found.append(
            Labels(
                endpoint=endpoint.name,
                kind=endpoint.kind,
                known=known,
                missing=len(patients) - known,
                positive=positive,
                negative=negative,
                rarest=positive if endpoint.kind == "survival" else min(positive, negative),
                folds=tuple(folds),
            )
        )
    return tuple(found)


def _counts(patients: Sequence[Patient], endpoint: Endpoint) -> tuple[int, int, int]:
    """Known, with 1 and with 0."""
    strata = [p.stratum(endpoint) for p in patients]
    return len(strata) - strata.count("?"), strata.count("1"), strata.count("0")


def fold_findings(
    patients: Sequence[Patient], labels: Sequence[Labels], splits: Sequence[Split], train: Train
) -> Iterator[Finding]:
    """Endpoints that nobody has, patients who have none, and test folds in which something cannot be measured."""
    for one in labels:
        if not one.known:
            yield Finding(severity="noticed", about="labels", said=f"{one.endpoint} is known of nobody: it gets no head")
            continue
        nobody = [fold for fold in one.folds if not fold.known]
        events = [fold for fold in one.folds if fold.known and not fold.positive]
        single = [fold for fold in one.folds if fold.known and not (fold.positive and fold.negative)]
        for folds, lack, then in (
            (nobody, "no known label", "nobody is evaluated there"),
            (events if one.kind == "survival" else [], "no event", "C is undefined there"),
            (single if one.kind == "binary" else [], "one class alone", "its AUC is undefined and left out of the mean"),
        ):
            if folds:
                where = ", ".join(_named(fold, splits, patients, train) for fold in folds[:8]) + ", …" * (len(folds) > 8)
                said = f"{one.endpoint}: {len(folds)} of {len(one.folds)} test folds have {lack}; {then} ({where})"
                yield Finding(severity="noticed", about="folds", said=said)
    without = [p.id for p in patients if all(value != value for value in p.labels.values())]
    if without and len(without) < len(patients):
        yield Finding(severity="noticed", about="labels", said="no label is known; predicted only", patients=tuple(without))


def _named(fold: Fold, splits: Sequence[Split], patients: Sequence[Patient], train: Train) -> str:
    """A test fold as a person knows it: by what is left out, or by its number, from 1."""
    if train.leave_out:
        first = splits[fold.repeat][fold.fold][0]
        return next(p.clinical[train.leave_out] for p in patients if p.id == first)
    return f"fold {fold.fold + 1}" + f" of repeat {fold.repeat + 1}" * (train.repeats > 1)


def plausibility_findings(
    patients: Sequence[Patient], endpoints: Sequence[Endpoint], columns: Sequence[str]
) -> Iterator[Finding]:
    """All that is unlikely; `columns` are those that a model may read as covariates."""
    for endpoint in endpoints:
        known = [p for p in patients if p.knows(endpoint)]
        if endpoint.kind == "survival":
            yield from _times(known, endpoint)
        classes = {p.stratum(endpoint) for p in known}
        if len(classes) == 1 and len(known) > 1:
            yield _noticed(f"{endpoint.columns[-1]} is {classes.pop()} for each of the {len(known)} patients who have it")
    yield from _tell_tales(patients, endpoints, columns)


def _noticed(said: str, patients: Sequence[Patient] = ()) -> Finding:
    return Finding(severity="noticed", about="plausibility", said=said, patients=tuple(p.id for p in patients))


def _times(known: Sequence[Patient], endpoint: Endpoint) -> Iterator[Finding]:
    """Times that are no days, or not all of them."""
    column = endpoint.columns[0]
    days = np.array([p.labels[column] for p in known])
    known, days = [p for p, one in zip(known, days, strict=True) if one > 0], days[days > 0]
    if not len(days):
        return
    below = months_among(days)
    if below is not None:
        high, low = days[~below], days[below]
        some = f"{len(low)} of {len(days)} times lie around {np.median(low):.3g} ({low.min():g} to {low.max():g})"
        others = f"the others around {np.median(high):.0f} ({high.min():g} to {high.max():g})"
        mixed = f"as where months, {MONTH_DAYS:.1f} times less, are mixed with days; expected days"
        yield _noticed(f"{column}: {some}, {others}, {mixed}", [p for p, one in zip(known, below, strict=True) if one])
        return
    if len(days) >= FEWEST and (middle := float(np.median(days))) < SHORTEST_MEDIAN:
        yield _noticed(f"{column}: half of {len(days)} times are below {middle:g}; expected days: are these months?")
        return
    for name in ("site", "cohort"):
        of: dict[str, list[float]] = defaultdict(list)
        for p, one in zip(known, days, strict=True):
            of[p.clinical.get(name, "")].append(one)
        for value, times in of.items():
            rest = [one for other, others in of.items() if other != value for one in others]
            if value and min(len(times), len(rest)) >= FEWEST and np.median(times) * APART < np.median(rest):
                middles = f"{np.median(times):g} against {np.median(rest):g} elsewhere"
                yield _noticed(f"{column}: the median of {name} {value} is {middles}; expected days: are these months?")


def _tell_tales(patients: Sequence[Patient], endpoints: Sequence[Endpoint], columns: Sequence[str]) -> Iterator[Finding]:
    """Columns that say of every patient what the label is, and two endpoints that are one."""
    for endpoint in endpoints:
        column = endpoint.columns[0]
        known = [p for p in patients if p.knows(endpoint)]
        labels = {p.id: str(p.labels[column]) for p in known}
        if len(known) < FEWEST or len(set(labels.values())) < 2:
            continue
        for name in columns:
            both = [p for p in known if p.clinical[name].strip().lower() not in MISSING]
            if len(both) >= FEWEST and _tells([p.clinical[name] for p in both], [labels[p.id] for p in both]):
                yield _noticed(
                    f"column {name} tells {column} of each of the {len(both)} patients who have both: is it a copy of it?"
                )
    for i, one in enumerate(endpoints):
        for other in endpoints[i + 1 :]:
            both = [p for p in patients if p.knows(one) and p.knows(other)]
            pairs = [(p.labels[one.columns[0]], p.labels[other.columns[0]]) for p in both]
            if len(both) >= FEWEST and all(a == b for a, b in pairs) and len(set(pairs)) > 1:
                yield _noticed(f"{one.name} and {other.name} are equal for each of the {len(both)} patients who have both")


def _tells(cells: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether a column's few values determine the label, or its numbers rise with the label's many.

    With few values each stands for several patients, so that none of them is a name.
    """
    values, classes = len(set(cells)), len(set(labels))
    if len(set(labels)) < 2 or values < 2:
        return False
    if classes == 2:
        return values * 5 <= len(cells) and len(set(zip(cells, labels, strict=True))) == values
    return 2 * values > classes and follows(labels, cells)


def follows(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether a column's values never fall, or never rise, where another's rise; both vary."""
    a, b = _orderly(one), _orderly(other)
    if len(set(a)) < 2 or len(set(b)) < 2:
        return False
    by_other = sorted(zip(b, a, strict=True))  # equal ones of `one` stay in this order when they are sorted by it
    rising, falling = (sorted(by_other, key=lambda pair: pair[1], reverse=reverse) for reverse in (False, True))
    return [pair[0] for pair in by_other] in ([pair[0] for pair in rising], [pair[0] for pair in falling])


def _orderly(cells: Sequence[str]) -> list[float] | list[str]:
    """Numbers where every cell is one, else text."""
    numbers = [number(cell) for cell in cells]
    return list(cells) if any(math.isnan(one) for one in numbers) else numbers


def number(cell: str) -> float:
    """The number in a cell; NaN where there is none."""
    try:
        found = float(cell)
    except ValueError:
        return math.nan
    return found if math.isfinite(found) else math.nan
