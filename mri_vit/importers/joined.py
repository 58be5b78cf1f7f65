"""Cohorts merged: visits and who is one person in; one table out, in which every person stands once, and what disagreed.

A person's visits of all cohorts have one patient id. Visits whose scans are the same voxels throughout stand once. Labels that
cohorts agree on are those of all the person's visits; where they disagree, the cell is empty, unless a rule names the cohort
that is right. What is of a visit, such as age, stays with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mri_vit.data.cohort import MISSING, Patient
from mri_vit.errors import UsageError
from mri_vit.importers.persons import Source, Subject, scans
from mri_vit.importers.rules import SAME_AS
from mri_vit.settings.schema import Endpoint

Hashes = Mapping[Path, str]  # of voxels, by file
Label = tuple[str, ...]  # the cells of an endpoint: one, or days and event

ORIGIN = ("cohort", "site", "scan_cohort")  # columns of the merged table: the first two are of the person, the last of the visit


@dataclass(frozen=True)
class Row:
    """A visit in the merged table."""

    patient: str
    session: str
    source: Source
    visit: Patient
    labels: Mapping[str, str]  # by column


@dataclass(frozen=True)
class Conflict:
    """What cohorts say of one person and endpoint where they disagree."""

    patient: str
    endpoint: str
    said: Mapping[str, Label]  # by cohort
    rule: str  # that settled it; empty where none did
    value: Label  # that stands in the table


def merge(
    sources: Sequence[Source],
    person: Mapping[Subject, int],
    hashes: Hashes,
    endpoints: Sequence[Endpoint],
) -> tuple[list[Row], list[Conflict]]:
    """The merged rows, persons in the order of the sources, and the conflicts.

    Parameters
    ----------
    person : as `persons.joined` gives it.
    hashes : as `persons.voxel_hash` gives them; scans without one are nobody else's.
    endpoints : whose columns are labels, and which name the cohort that is right where cohorts disagree (`prefer`).

    Raises
    ------
    UsageError where an endpoint prefers a cohort that is not there.
    """
    _refuse_strange_rules(endpoints, sources)
    visits: dict[int, list[tuple[Source, Patient]]] = defaultdict(list)
    for source in sources:
        for patient in source.patients:
            visits[person[Subject(source.name, patient.subject)]].append((source, patient))
    names = _names(visits)
    rows, conflicts = [], []
    for number, own in sorted(visits.items()):
        labels = [dict(pair for e in endpoints for pair in zip(e.columns, _label(visit, e), strict=True)) for _, visit in own]
        for endpoint in endpoints:
            conflict = _settle(names[number], endpoint, own, labels)
            conflicts += [conflict] if conflict else []
        kept = _kept(own, hashes)
        sessions = _sessions([own[index] for index in kept])
        rows += [Row(names[number], session, *own[index], labels[index]) for index, session in zip(kept, sessions, strict=True)]
    return rows, conflicts


def _settle(
    patient: str,
    endpoint: Endpoint,
    own: Sequence[tuple[Source, Patient]],
    labels: Sequence[dict[str, str]],
) -> Conflict | None:
    """Fill one person's labels of an endpoint in place where cohorts agree; the conflict where they do not."""
    said: dict[str, set[Label]] = defaultdict(set)
    for source, visit in own:
        if any(label := _label(visit, endpoint)):
            said[source.name].add(label)
    if any(len(values) > 1 for values in said.values()) or not said:
        return None  # a label of the visit and not of the person, or none
    single = {cohort: next(iter(values)) for cohort, values in said.items()}
    if endpoint.kind == "survival" and max(Counter(source.name for source, _ in own).values()) > 1:
        return None  # time counts from a visit, and which visits are the same day is not known
    preferred = endpoint.prefer or ""
    agreed = len(set(single.values())) == 1
    empty = ("",) * len(endpoint.columns)
    value = next(iter(single.values())) if agreed else single.get(preferred, empty)
    for cells in labels:
        cells.update(zip(endpoint.columns, value, strict=True))
    rule = f"{endpoint.name} is that of {preferred}" if preferred in single else ""
    return None if agreed else Conflict(patient, endpoint.name, single, rule, value)


def _label(visit: Patient, endpoint: Endpoint) -> Label:
    """The cells of a visit's label as numbers are written once (1, 365), empty where missing."""
    cells = (visit.clinical.get(column, "") for column in endpoint.columns)
    return tuple("" if cell.lower() in MISSING else f"{float(cell):g}" if _is_number(cell) else cell for cell in cells)


def _kept(own: Sequence[tuple[Source, Patient]], hashes: Hashes) -> list[int]:
    """Which visits stay: of those whose scans all have the same voxels the first; without scans, none where another has some."""
    kept, seen = [], set()
    some = any(scans(visit) for _, visit in own)
    for index, (_, visit) in enumerate(own):
        content = tuple(hashes.get(path, "") for path in visit.scans.values() if path)
        if (some and not content) or (content and all(content) and content in seen):
            continue
        seen.add(content)
        kept.append(index)
    return kept


def _sessions(visits: Sequence[tuple[Source, Patient]]) -> list[str]:
    """A name for each of a person's visits: its own, else its cohort's where there are several, both where that is taken."""
    if len(visits) == 1:
        return [visits[0][1].session]
    plain = [visit.session or source.name for source, visit in visits]
    twice = {name for name, count in Counter(plain).items() if count > 1}
    return [
        f"{source.name}-{visit.session}" if name in twice and visit.session else name
        for name, (source, visit) in zip(plain, visits, strict=True)
    ]


def _names(visits: Mapping[int, Sequence[tuple[Source, Patient]]]) -> dict[int, str]:
    """A patient id for each person: that of the first cohort, with the cohort's name where others have it too."""
    plain = {number: own[0][1].subject for number, own in visits.items()}
    taken = Counter(name.casefold() for name in plain.values())
    return {
        number: name if taken[name.casefold()] == 1 else f"{visits[number][0][0].name}-{name}" for number, name in plain.items()
    }


def _refuse_strange_rules(endpoints: Sequence[Endpoint], sources: Sequence[Source]) -> None:
    names = [source.name for source in sources]
    for endpoint in endpoints:
        if endpoint.prefer and endpoint.prefer not in names:
            raise UsageError(
                f"endpoint {endpoint.name} prefers {endpoint.prefer!r}, which is not merged (found {', '.join(names)})"
            )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def columns(rows: Sequence[Row]) -> list[str]:
    """Names of the merged table's columns beside labels and files, in the order in which cohorts have them."""
    of_labels = {column for row in rows for column in row.labels}
    others = dict.fromkeys(name for row in rows for name in row.visit.clinical)
    return [name for name in others if name not in {*of_labels, *ORIGIN, SAME_AS}]
