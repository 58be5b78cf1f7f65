"""Folds: the training, validation and test patients; by patient, balanced by endpoint, written and hashed before training."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from mri_vit.data.cohort import Patient, first_visits, strata
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.kinds.kind import labels
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written
from mri_vit.settings.schema import Endpoint, Train

Split = list[list[str]]  # the ids of each test fold's visits
MIN_FOLDS = 2  # of a cross-validation
# of which the evenest is taken: of 96 patients in three folds, classes of five labels then differ by one or two
FOLD_DRAWS = 1000
# of validation patients; if they are half of all, each leaves the one patient of a class to training half the time
VALIDATION_DRAWS = 100


def make(patients: Sequence[Patient], endpoints: tuple[Endpoint, ...], train: Train, seed: int) -> list[Split]:
    """`train.repeats` splits of the patients into test folds; a patient's visits stay together.

    Folds are balanced over each endpoint by itself; with `train.leave_out` each value of that column is a fold instead.

    Raises UsageError when an endpoint's rarer class cannot be in every fold, or a patient has no value or two to leave out.
    """
    check(patients, endpoints, train)
    if train.leave_out:
        return [_one_out(patients, train.leave_out)]
    first = first_visits(patients)  # they speak for the patient
    splits = []
    for repeat in range(train.repeats):
        fold = _evenest(first, endpoints, train.folds, np.random.default_rng([seed, repeat]))
        of = dict(zip((p.subject for p in first), fold.tolist(), strict=True))
        splits.append([[p.id for p in patients if of[p.subject] == k] for k in range(train.folds)])
    return splits


def check(patients: Sequence[Patient], endpoints: tuple[Endpoint, ...], train: Train) -> None:
    """See that folds can be made, without making any. Raises UsageError as `make` does."""
    first = first_visits(patients)  # they speak for the patient
    _require_labels(first, endpoints)
    if train.leave_out:
        _require_something_to_learn(patients, endpoints, _one_out(patients, train.leave_out), train.leave_out)
        return
    faults = []
    for endpoint in endpoints:
        count = known_strata(first, endpoint)
        if count and (least := labels(endpoint).rarest(count)) < train.folds:
            counts = labels(endpoint).counted(endpoint, count)
            faults.append(f"{endpoint.name}: {train.folds} folds, but {counts}; {_remedy(endpoint, count, least)}")
    if faults:
        raise UsageError("\n".join(faults))


def _remedy(endpoint: Endpoint, count: Counter[str], least: int) -> str:
    """What helps where the rarer class has too few patients for the folds."""
    if least >= MIN_FOLDS:
        return f"use at most {least} folds"
    lacking = labels(endpoint).lacking(endpoint, count)
    return f"no number of folds helps, as each tests some and learns from others: add {lacking}, or leave the endpoint out"


def known_strata(patients: Sequence[Patient], endpoint: Endpoint) -> Counter[str]:
    """How many of these patients, of those whose label is known, are of each class over which folds are balanced."""
    return Counter(stratum for stratum in strata(patients, endpoint) if stratum != "?")


def validation_split(
    patients: Sequence[Patient], endpoints: tuple[Endpoint, ...], fraction: float, seed: int
) -> tuple[list[Patient], list[Patient]]:
    """Divide the patients outside a test fold into (train, val), balanced likewise; a patient's visits stay together.

    Of many draws the first is taken that leaves both classes, or an event, of every endpoint that has them to the training
    patients; the first of all where none does.
    """
    from sklearn.model_selection import StratifiedShuffleSplit

    first = first_visits(patients)
    n = max(1, round(len(first) * fraction))
    joint = _joint_strata(first, endpoints, least=2)
    many_enough = len(set(joint)) <= min(n, len(first) - n)
    splitter = StratifiedShuffleSplit(VALIDATION_DRAWS, test_size=n, random_state=seed)
    draws = splitter.split(joint, joint if many_enough else ["all"] * len(joint))
    taken, learnable = next(draws), _learnable(first, endpoints)
    better = (draw for draw in chain([taken], draws) if _learnable([first[i] for i in draw[0]], endpoints) == learnable)
    val = {first[i].subject for i in next(better, taken)[1]}
    return [p for p in patients if p.subject not in val], [p for p in patients if p.subject in val]


def save(splits: list[Split], seed: int, path: Path) -> str:
    """Write `folds.json`, and its SHA-256 to `folds.sha256`, and return that."""
    content = json.dumps({"schema": 1, "seed": seed, "repeats": [{"folds": split} for split in splits]}, indent=1).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    write_bytes(sha256.encode(), path.with_suffix(".sha256"))
    write_bytes(content, path)
    return sha256


def load(path: Path, patients: Sequence[Patient]) -> list[Split]:
    """Read `folds.json` of these patients.

    Raises IntegrityError when it is not as it was written, UsageError when a patient sits in two folds of one repeat or the
    folds are of other patients.
    """
    try:
        content, written = path.read_bytes(), path.with_suffix(".sha256").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise IntegrityError(
            f"{path}: the folds or their hash beside them cannot be read: {error}; choose another output"
        ) from None
    if hashlib.sha256(content).hexdigest() != written:
        raise IntegrityError(f"{path} was changed after the folds were made; choose another output or delete it")
    with as_written(path):
        splits = [repeat["folds"] for repeat in json.loads(content)["repeats"]]
    for split in splits:
        refuse_split_patients(split, patients, path)
    return splits


def refuse_split_patients(split: Split, patients: Sequence[Patient], path: Path) -> None:
    """Raise UsageError unless the folds hold each of these visits once, all visits of a patient in one fold."""
    subject = {p.id: p.subject for p in patients}
    ids = [i for fold in split for i in fold]
    differing = set(ids) ^ set(subject)
    if differing:
        raise UsageError(f"{path} was made without or with {', '.join(sorted(differing))}; choose another output or delete it")
    home: dict[str, int] = {}
    for fold, members in enumerate(split):
        for visit in members:
            if home.setdefault(subject[visit], fold) != fold or ids.count(visit) > 1:
                raise UsageError(f"{path}: patient {subject[visit]} sits in two folds: visits of one patient stay together")


def _require_labels(patients: Sequence[Patient], endpoints: tuple[Endpoint, ...]) -> None:
    if not any(p.knows(endpoint) for p in patients for endpoint in endpoints):
        raise UsageError(
            f"no label of {', '.join(e.name for e in endpoints)} is known for any patient: there is nothing to learn"
        )


def _evenest(
    patients: Sequence[Patient], endpoints: tuple[Endpoint, ...], folds: int, random: np.random.Generator
) -> Int[np.ndarray, "n"]:
    """Each patient's fold, in the one of many random deals whose folds have the most even counts of each endpoint's classes.

    The labels enter by these counts alone. So labels are exchangeable within a fold, and what two labels have in common by
    chance in the other folds says nothing of this one. A deal over all endpoints' classes at once would give every fold the same
    of it, and a model that has learned one label would score above chance for the other.
    """
    each, needs = [], []
    for endpoint in endpoints:
        own, count = np.array(strata(patients, endpoint)), known_strata(patients, endpoint)
        each += [own == stratum for stratum in sorted(count)]
        needs += [stratum in labels(endpoint).needed(count) for stratum in sorted(count)]
    classes, needed = np.stack(each), np.array(needs)  # in every fold
    ideal = classes.sum(axis=1, keepdims=True) / folds
    for deal in (_dealt, _dealt_rare_first):
        best, least = None, math.inf
        for _ in range(FOLD_DRAWS):
            fold = deal(classes[needed], folds, random)
            counts = np.stack([np.bincount(fold[here], minlength=folds) for here in classes])
            uneven = float(((counts - ideal) ** 2 / ideal).sum())
            if uneven < least and (counts[needed] > 0).all():
                best, least = fold, uneven
        if best is not None:
            return best
    raise UsageError(f"no {folds} folds with both classes of every endpoint in each were found; use fewer folds")


def _dealt(classes: Bool[np.ndarray, "c n"], folds: int, random: np.random.Generator) -> Int[np.ndarray, "n"]:
    """Patients assigned at random to folds of one size, or of two that differ by one."""
    return random.permutation(np.arange(classes.shape[1]) % folds)


def _dealt_rare_first(classes: Bool[np.ndarray, "c n"], folds: int, random: np.random.Generator) -> Int[np.ndarray, "n"]:
    """The same, but that of each class one patient is put into every fold that has none yet, the rarest class first.

    For classes of about as many patients as there are folds, which no random deal is likely to spread.
    """
    fold = np.full(classes.shape[1], -1)
    for here in classes[np.argsort(classes.sum(axis=1), kind="stable")]:
        lacking = random.permutation(np.setdiff1d(np.arange(folds), fold[here]))
        free = random.permutation(np.flatnonzero(here & (fold < 0)))[: len(lacking)]
        fold[free] = lacking[: len(free)]
    sizes = np.bincount(fold[fold >= 0], minlength=folds)
    room = np.repeat(np.arange(folds), np.maximum(np.bincount(np.arange(len(fold)) % folds, minlength=folds) - sizes, 0))
    rest = np.flatnonzero(fold < 0)
    fold[rest] = random.permutation(room)[: len(rest)]
    return fold


def _one_out(patients: Sequence[Patient], column: str) -> Split:
    """A fold for each value of the column."""
    value: dict[str, str] = {}
    for p in patients:
        if not p.clinical.get(column):
            raise UsageError(f"train.leave_out: patient {p.id} has no {column!r} (columns: {', '.join(p.clinical)})")
        if value.setdefault(p.subject, p.clinical[column]) != p.clinical[column]:
            raise UsageError(f"train.leave_out: patient {p.subject} has two values of {column}; a patient stays in one fold")
    values = sorted(set(value.values()))
    if len(values) < 2:
        raise UsageError(f"train.leave_out: {column} has the one value {values[0]!r}; at least two are needed")
    return [[p.id for p in patients if value[p.subject] == one] for one in values]


def _require_something_to_learn(patients: Sequence[Patient], endpoints: tuple[Endpoint, ...], split: Split, column: str) -> None:
    """Without a site there must still be an endpoint with both classes, or with an event."""
    for ids in map(set, split):
        if not _learnable([p for p in patients if p.id not in ids], endpoints):
            left = next(p.clinical[column] for p in patients if p.id in ids)
            raise UsageError(
                f"train.leave_out: without {column} {left!r} no endpoint has both classes, or an event; nothing to learn"
            )


def _learnable(patients: Sequence[Patient], endpoints: tuple[Endpoint, ...]) -> set[str]:
    """The endpoints of which these patients have several classes or values, or an event."""
    return {e.name for e in endpoints if labels(e).is_learnable(set(known_strata(patients, e)))}


def _joint_strata(patients: Sequence[Patient], endpoints: tuple[Endpoint, ...], least: int) -> list[str]:
    """A class per patient over all endpoints; rare ones (fewer than `least`) forget their last endpoints until common enough."""
    full = list(zip(*(strata(patients, endpoint) for endpoint in endpoints), strict=True))
    joint = ["".join(classes) for classes in full]
    for kept in range(len(endpoints) - 1, -1, -1):
        count = Counter(joint)
        joint = [one if count[one] >= least else "".join(classes[:kept]) for one, classes in zip(joint, full, strict=True)]
    count = Counter(joint)
    commonest = count.most_common(1)[0][0]
    return [one if count[one] >= least else commonest for one in joint]
