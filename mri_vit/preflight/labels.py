"""Labels: counts by endpoint and by test fold, and which folds cannot be evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mri_vit.crossval.folds import Split
from mri_vit.data.cohort import Patient
from mri_vit.preflight.document import Finding, Fold, Labels
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.schema import Train


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


def findings(patients: Sequence[Patient], labels: Sequence[Labels], splits: Sequence[Split], train: Train) -> Iterator[Finding]:
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
