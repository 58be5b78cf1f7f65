"""Cohorts merged: visits and who is one person in; one table out, in which every person stands once, and what disagreed.

A person's visits of all cohorts have one patient id. Visits whose scans are the same voxels throughout stand once, and a visit of
labels alone gives what it knows to one with scans. A marker is the person's: where all who know it agree, all visits have it.
Survival counts from a visit and stays with it. Where sources disagree the cell is empty, unless a rule names the cohort that is
right. All else, such as age, stays with its visit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mri_vit.data.cohort import Patient
from mri_vit.data.spellings import MISSING
from mri_vit.errors import UsageError
from mri_vit.importers.persons import Source, Subject, scans
from mri_vit.importers.rules import SAME_AS
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.source import NIFTI

Hashes = Mapping[Path, str]  # of voxels, by file
Label = tuple[str, ...]  # the cells of an endpoint: one, or days and event

ORIGIN = ("cohort", "site", "scan_cohort")  # columns of the merged table: the first two are of the person, the last of the visit
OWN, NOWHERE = ("each visit its own",), ("",)  # in place of a value


@dataclass(frozen=True)
class Cell:
    """A filled cell of the merged table, and who says so."""

    value: str
    said_by: tuple[Subject, ...]


@dataclass(frozen=True)
class Row:
    """A visit in the merged table."""

    patient: str
    session: str
    source: Source
    visit: Patient
    cells: Mapping[str, Cell]  # by column, without those that are empty


@dataclass(frozen=True)
class Conflict:
    """What is said of one person and endpoint, or column, where it disagrees."""

    patient: str
    endpoint: str
    said: tuple[tuple[Subject, Label], ...]
    rule: str  # that settled it; empty where none did
    value: Label  # that stands in the table


@dataclass(frozen=True)
class _Visit:
    source: Source
    patient: Patient

    @property
    def subject(self) -> Subject:
        return Subject(self.source.name, self.patient.subject)

    def label(self, columns: Iterable[str]) -> Label:
        """The cells as numbers are written once (1, 365), empty where missing."""
        cells = [self.patient.clinical.get(column, "") for column in columns]
        return tuple("" if cell.lower() in MISSING else f"{float(cell):.10g}" if _is_number(cell) else cell for cell in cells)

    def text(self, column: str) -> str:
        """The cell as it is, empty where missing; one that names a scan as a whole path."""
        cell = self.patient.clinical.get(column, "")
        if is_scan(cell):
            return str((self.source.table.parent / cell).resolve())
        return "" if cell.lower() in MISSING else cell


def merge(
    sources: Sequence[Source], person: Mapping[Subject, int], hashes: Hashes, endpoints: Sequence[Endpoint]
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
    people: dict[int, list[_Visit]] = defaultdict(list)
    for source in sources:
        for patient in source.patients:
            people[person[Subject(source.name, patient.subject)]].append(_Visit(source, patient))
    names = _names(people)
    rows, conflicts = [], []
    for number, visits in sorted(people.items()):
        groups, loose = _groups(visits, hashes)
        cells: list[dict[str, Cell]] = [{} for _ in groups]
        for endpoint in endpoints:
            conflicts += _label(names[number], endpoint, visits, groups, cells)
            conflicts += _left(names[number], endpoint, loose)
        for group, filled in zip(groups, cells, strict=True):
            conflicts += _others(names[number], group, {c for e in endpoints for c in e.columns}, filled)
        sessions = _sessions([group[0] for group in groups])
        for session, group, filled in zip(sessions, groups, cells, strict=True):
            rows.append(Row(names[number], session, group[0].source, group[0].patient, filled))
    return rows, conflicts


def _groups(visits: Sequence[_Visit], hashes: Hashes) -> tuple[list[list[_Visit]], list[_Visit]]:
    """A person's visits, those of the same voxels throughout together, of which the first stays; and those that are of none.

    A visit without any scan goes with the one that has some if a table has no other visit of its patient. Else what it says of a
    visit is of none.
    """
    if not any(scans(visit.patient) for visit in visits):
        return [[visit] for visit in visits], []
    groups: dict[object, list[_Visit]] = {}
    loose = []
    for index, visit in enumerate(visits):
        content = tuple(hashes.get(path, "") for path in scans(visit.patient))
        if content:
            groups.setdefault(content if all(content) else index, []).append(visit)
        else:
            loose.append(visit)
    found, alone = list(groups.values()), Counter(visit.subject for visit in visits)
    if len(found) > 1:
        return found, loose
    fitting = [visit for visit in loose if alone[visit.subject] == 1]
    return [[*found[0], *fitting]], [visit for visit in loose if visit not in fitting]


def _label(
    patient: str, endpoint: Endpoint, visits: Sequence[_Visit], groups: Sequence[Sequence[_Visit]], cells: list[dict[str, Cell]]
) -> list[Conflict]:
    """Fill an endpoint's cells of all groups in place; what disagrees."""
    said = _said(visits, endpoint.columns)
    own = Counter(subject for subject, _ in dict.fromkeys(said))
    differs = endpoint.kind == "binary" and any(count > 1 for count in own.values())
    conflicts = []
    if differs and len(own) > 1:
        conflicts.append(Conflict(patient, endpoint.name, tuple(dict.fromkeys(said)), "", OWN))
    for group, filled in zip(groups, cells, strict=True):
        here = _said(group, endpoint.columns) if differs or endpoint.kind == "survival" else said
        value, rule = _settled(endpoint, here)
        if len({label for _, label in here}) > 1:
            conflicts.append(Conflict(patient, endpoint.name, tuple(dict.fromkeys(here)), rule, value))
        by = tuple(dict.fromkeys(subject for subject, label in here if label == value))
        filled.update({c: Cell(v, by) for c, v in zip(endpoint.columns, value, strict=True) if v})
    return list(dict.fromkeys(conflicts))


def _settled(endpoint: Endpoint, said: Sequence[tuple[Subject, Label]]) -> tuple[Label, str]:
    """The label that all who know one agree on, or that the preferred cohort has, and by what rule; else an empty one."""
    labels = {label for _, label in said}
    if len(labels) == 1:
        return labels.pop(), ""
    preferred = {label for subject, label in said if subject.cohort == endpoint.prefer}
    if len(preferred) == 1:
        return preferred.pop(), f"{endpoint.name} is that of {endpoint.prefer}"
    return ("",) * len(endpoint.columns), ""


def _left(patient: str, endpoint: Endpoint, loose: Iterable[_Visit]) -> list[Conflict]:
    """Survival of visits without scans that is of no visit in the table."""
    said = tuple(_said(loose, endpoint.columns)) if endpoint.kind == "survival" else ()
    return [Conflict(patient, endpoint.name, said, "of visits without scans, and left out", NOWHERE)] if said else []


def _said(visits: Iterable[_Visit], columns: Sequence[str]) -> list[tuple[Subject, Label]]:
    """The labels that visits have; half of a time and its event is none."""
    return [(visit.subject, label) for visit in visits if all(label := visit.label(columns))]


def _others(patient: str, group: Sequence[_Visit], labels: set[str], filled: dict[str, Cell]) -> list[Conflict]:
    """Fill the cells of all other columns in place: the visit's own, else that of another with the same scans."""
    names = dict.fromkeys(name for visit in group for name in visit.patient.clinical)
    conflicts = []
    for name in (name for name in names if name not in {*labels, *ORIGIN, SAME_AS}):
        said = [(visit.subject, (cell,)) for visit in group if (cell := visit.text(name))]
        if not said:
            continue
        (subject, (value,)) = said[0]
        filled[name] = Cell(value, (subject,))
        if len({label for _, label in said}) > 1:
            rule = f"{name} is that of the scan's cohort"
            conflicts.append(Conflict(patient, name, tuple(dict.fromkeys(said)), rule, (value,)))
    return conflicts


def is_scan(cell: str) -> bool:
    """Whether a cell names a NIfTI file."""
    return cell.lower().endswith(NIFTI)


def _sessions(visits: Sequence[_Visit]) -> list[str]:
    """A name for each of a person's visits: its own, else its cohort's where there are several; none twice in any case."""
    if len(visits) == 1:
        return [visits[0].patient.session]
    taken: set[str] = set()
    wished = (
        [v.patient.session, f"{v.source.name}-{v.patient.session}"] if v.patient.session else [v.source.name] for v in visits
    )
    return [_free(names, taken) for names in wished]


def _names(people: Mapping[int, Sequence[_Visit]]) -> dict[int, str]:
    """A patient id for each person: that of the first cohort, with the cohort's name before it where others have it too."""
    first = {number: visits[0].subject for number, visits in people.items()}
    count = Counter(subject.patient.casefold() for subject in first.values())
    taken = {subject.patient.casefold() for subject in first.values() if count[subject.patient.casefold()] == 1}
    return {
        number: one.patient if count[one.patient.casefold()] == 1 else _free([f"{one.cohort}-{one.patient}"], taken)
        for number, one in first.items()
    }


def _free(wished: Sequence[str], taken: set[str]) -> str:
    """The first of the names that nobody has in any case, else the last with a number; it is taken then."""
    numbered = (f"{wished[-1]}-{n}" for n in range(2, len(taken) + 3))
    name = next(name for name in (*wished, *numbered) if name.casefold() not in taken)
    taken.add(name.casefold())
    return name


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
