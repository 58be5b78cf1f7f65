"""Join: cohort tables go in, one table comes out in which every person stands once, with a table of who was joined and why.

A person's visits of all cohorts have one patient id. Visits whose scans are the same voxels throughout stand once, and a visit of
labels alone gives what it knows to one with scans. A marker is the person's: where all who know it agree, all visits have it.
Survival counts from a visit and stays with it. Where sources disagree the cell is empty, unless a rule names the cohort that is
right. All else, such as age, stays with its visit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from mri_vit.data import cohort, columns, sheet
from mri_vit.data.cohort import Patient
from mri_vit.data.columns import MISSING
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.importers.import_cohort import (
    CONFLICTS,
    MARKERS,
    PROVENANCE,
    check_destination,
    refuse_foreign,
    refuse_unreadable,
    way_to,
    write_record,
    write_study,
)
from mri_vit.importers.layout import SAME_AS
from mri_vit.importers.persons import (
    Alike,
    Link,
    SourceCohort,
    Subject,
    alike_pairs,
    declared_links,
    links_by_voxels,
    person_numbers,
    scan_paths,
    scans_of_channel,
    unknown_links,
    voxel_hash,
)
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import WARNING, progress, say
from mri_vit.settings.schema import CHANNELS, Endpoint
from mri_vit.settings.source import NIFTI

Hashes = Mapping[Path, str]  # of voxels, by file
Label = tuple[str, ...]  # the cells of an endpoint: one, or days and event

ORIGIN = ("cohort", "site", "scan_cohort")  # columns of the merged table: the first two are of the person, the last of the visit
OWN, NOWHERE = ("each visit its own",), ("",)  # in place of a value


@dataclass(frozen=True)
class Cell:
    """A filled cell of the merged table, and who says so."""

    value: str
    sources: tuple[Subject, ...]


@dataclass(frozen=True)
class Row:
    """A visit in the merged table."""

    patient: str
    session: str
    source: SourceCohort
    visit: Patient
    cells: Mapping[str, Cell]  # by column, without those that are empty


@dataclass(frozen=True)
class Conflict:
    """What is said of one person and endpoint, or column, where it disagrees."""

    patient: str
    endpoint: str
    statements: tuple[tuple[Subject, Label], ...]
    rule: str  # that settled it; empty where none did
    value: Label  # that stands in the table


@dataclass(frozen=True)
class _Visit:
    source: SourceCohort
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


def merge_cohorts(
    sources: Sequence[SourceCohort], person: Mapping[Subject, int], hashes: Hashes, endpoints: Sequence[Endpoint]
) -> tuple[list[Row], list[Conflict]]:
    """The merged rows, persons in the order of the sources, and the conflicts.

    Parameters
    ----------
    person : as `person_numbers` gives it.
    hashes : as `voxel_hash` gives them; scans without one are nobody else's.
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
    names = _patient_ids(people)
    rows, conflicts = [], []
    for number, visits in sorted(people.items()):
        groups, loose = _groups(visits, hashes)
        cells: list[dict[str, Cell]] = [{} for _ in groups]
        for endpoint in endpoints:
            conflicts += _fill_label(names[number], endpoint, visits, groups, cells)
            conflicts += _without_visit(names[number], endpoint, loose)
        for group, filled in zip(groups, cells, strict=True):
            conflicts += _fill_others(names[number], group, {c for e in endpoints for c in e.columns}, filled)
        sessions = _sessions([group[0] for group in groups])
        for session, group, filled in zip(sessions, groups, cells, strict=True):
            rows.append(Row(names[number], session, group[0].source, group[0].patient, filled))
    return rows, conflicts


def _groups(visits: Sequence[_Visit], hashes: Hashes) -> tuple[list[list[_Visit]], list[_Visit]]:
    """A person's visits, those of the same voxels throughout together, of which the first stays; and those that are of none.

    A visit without any scan goes with the one that has some if a table has no other visit of its patient. Else what it says of a
    visit is of none.
    """
    if not any(scan_paths(visit.patient) for visit in visits):
        return [[visit] for visit in visits], []
    groups: dict[object, list[_Visit]] = {}
    loose = []
    for index, visit in enumerate(visits):
        content = tuple(hashes.get(path, "") for path in scan_paths(visit.patient))
        if content:
            groups.setdefault(content if all(content) else index, []).append(visit)
        else:
            loose.append(visit)
    groups_with_scans, alone = list(groups.values()), Counter(visit.subject for visit in visits)
    if len(groups_with_scans) > 1:
        return groups_with_scans, loose
    fitting = [visit for visit in loose if alone[visit.subject] == 1]
    return [[*groups_with_scans[0], *fitting]], [visit for visit in loose if visit not in fitting]


def _fill_label(
    patient: str, endpoint: Endpoint, visits: Sequence[_Visit], groups: Sequence[Sequence[_Visit]], cells: list[dict[str, Cell]]
) -> list[Conflict]:
    """Fill an endpoint's cells of all groups in place; what disagrees."""
    statements = _known_labels(visits, endpoint.columns)
    own = Counter(subject for subject, _ in dict.fromkeys(statements))
    differs = endpoint.kind == "binary" and any(count > 1 for count in own.values())
    conflicts = []
    if differs and len(own) > 1:
        conflicts.append(Conflict(patient, endpoint.name, tuple(dict.fromkeys(statements)), "", OWN))
    for group, filled in zip(groups, cells, strict=True):
        here = _known_labels(group, endpoint.columns) if differs or endpoint.kind == "survival" else statements
        value, rule = _settled(endpoint, here)
        if len({label for _, label in here}) > 1:
            conflicts.append(Conflict(patient, endpoint.name, tuple(dict.fromkeys(here)), rule, value))
        by = tuple(dict.fromkeys(subject for subject, label in here if label == value))
        filled.update({c: Cell(v, by) for c, v in zip(endpoint.columns, value, strict=True) if v})
    return list(dict.fromkeys(conflicts))


def _settled(endpoint: Endpoint, statements: Sequence[tuple[Subject, Label]]) -> tuple[Label, str]:
    """The label that all who know one agree on, or that the preferred cohort has, and by what rule; else an empty one."""
    labels = {label for _, label in statements}
    if len(labels) == 1:
        return labels.pop(), ""
    preferred = {label for subject, label in statements if subject.cohort == endpoint.prefer}
    if len(preferred) == 1:
        return preferred.pop(), f"{endpoint.name} is that of {endpoint.prefer}"
    return ("",) * len(endpoint.columns), ""


def _without_visit(patient: str, endpoint: Endpoint, loose: Iterable[_Visit]) -> list[Conflict]:
    """Survival of visits without scans that is of no visit in the table."""
    statements = tuple(_known_labels(loose, endpoint.columns)) if endpoint.kind == "survival" else ()
    return [Conflict(patient, endpoint.name, statements, "of visits without scans, and left out", NOWHERE)] if statements else []


def _known_labels(visits: Iterable[_Visit], columns: Sequence[str]) -> list[tuple[Subject, Label]]:
    """The labels that visits have; half of a time and its event is none."""
    return [(visit.subject, label) for visit in visits if all(label := visit.label(columns))]


def _fill_others(patient: str, group: Sequence[_Visit], labels: set[str], filled: dict[str, Cell]) -> list[Conflict]:
    """Fill the cells of all other columns in place: the visit's own, else that of another with the same scans."""
    names = dict.fromkeys(name for visit in group for name in visit.patient.clinical)
    conflicts = []
    for name in (name for name in names if name not in {*labels, *ORIGIN, SAME_AS}):
        statements = [(visit.subject, (cell,)) for visit in group if (cell := visit.text(name))]
        if not statements:
            continue
        (subject, (value,)) = statements[0]
        filled[name] = Cell(value, (subject,))
        if len({label for _, label in statements}) > 1:
            rule = f"{name} is that of the scan's cohort"
            conflicts.append(Conflict(patient, name, tuple(dict.fromkeys(statements)), rule, (value,)))
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


def _patient_ids(people: Mapping[int, Sequence[_Visit]]) -> dict[int, str]:
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


def _refuse_strange_rules(endpoints: Sequence[Endpoint], sources: Sequence[SourceCohort]) -> None:
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


MERGE = "merge"  # in the place of a layout
PEOPLE, ALIKE = "people.csv", "alike.csv"
TELLING = ("flair", "t1ce", "t2", "t1")  # channels by which copies are looked for: the first that most patients have
MASKS = ("brain_mask", "tumour_mask")


def join(tables: Sequence[Path], folder: Path, endpoints: Sequence[Endpoint], console: Console) -> bool:
    """Merge cohorts into a folder; whether something needs a look: an open conflict, patients who look alike or are not found.

    Parameters
    ----------
    tables : cohort tables, or folders with a `cohort.csv`; the first that knows a person names them.
    endpoints : whose columns are labels, beside the usual ones.

    Raises
    ------
    UsageError for fewer than two tables, for two of one name, and for what `cohort.read` refuses.
    """
    sources = [_source(path) for path in tables]
    names = [source.name for source in sources]
    if len(sources) < 2 or len(set(names)) < len(names):
        named = "a cohort's name is its column `cohort`, or its folder's; import two parts of a collection from one folder"
        raise UsageError(f"expected two or more cohorts of different names, found {', '.join(names)}; {named}")
    for path in tables:
        check_destination(path, folder)
    refuse_foreign(folder, (PEOPLE, ALIKE))
    labels = _labels(sources, endpoints)
    hashes, unread = _hashes(sources, console)
    links = [*declared_links(sources), *links_by_voxels(sources, hashes)]
    person = person_numbers(sources, links)
    rows, conflicts = merge_cohorts(sources, person, hashes, labels)
    pairs, apart = _alike(sources, person, set(unread), console)
    warnings = [*_warnings(pairs, apart, folder)]
    warnings += [f"endpoint {one.name}: no table has {' and '.join(one.columns)}" for one in endpoints if one not in labels]
    warnings += [f"{path}: {reason}; nobody was joined by it" for path, reason in unread.items()]
    _write(rows, sources, labels, _people(sources, person, rows, links), conflicts, pairs, _names(sources, person), folder)
    _say_unknown(unknown_links(sources, links), {source.name: source.subjects for source in sources}, console)
    _show(rows, sources, conflicts, warnings, folder, console)
    write_study(MERGE, folder, console, labels)
    return bool(warnings or any(not conflict.rule for conflict in conflicts))


def _source(path: Path) -> SourceCohort:
    """A cohort, named by its column `cohort`, or by its folder where that does not give one name."""
    table = path / files.COHORT if path.is_dir() else path
    patients = cohort.read(table, (), needed=())
    names = {patient.clinical.get("cohort", "") for patient in patients}
    named = names.pop() if len(names) == 1 else ""
    name = named or table.resolve().parent.name
    if not cohort.is_patient_id(name):
        expected = "letters, digits, '.', '_' or '-'; give the table a column `cohort`, or the folder another name"
        raise UsageError(f"{table}: the cohort's name is {name!r}; expected {expected}")
    return SourceCohort(name, table, patients, bool(named))


def _labels(sources: Sequence[SourceCohort], endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """The endpoints of the study, then the usual ones, of which a table has all columns."""
    tables = [set(source.patients[0].clinical) for source in sources]
    of_columns = {endpoint.columns: endpoint for endpoint in (*MARKERS, *endpoints)}  # a study's own come last, and stay
    return [endpoint for endpoint in of_columns.values() if any(table.issuperset(endpoint.columns) for table in tables)]


def _hashes(sources: Sequence[SourceCohort], console: Console) -> tuple[dict[Path, str], dict[Path, str]]:
    """The voxels' hash of every scan, and the reason for each that cannot be read."""
    paths = list(dict.fromkeys(path for source in sources for patient in source.patients for path in scan_paths(patient)))
    hashes: dict[Path, str] = {}
    unread: dict[Path, str] = {}
    with progress(console) as bars:
        task = bars.add_task("scans", total=len(paths), note="")
        for path in paths:
            try:
                hashes[path] = voxel_hash(path)
            except UnusablePatient as fault:
                unread[path] = fault.reason
            bars.advance(task)
    return hashes, unread


def _alike(
    sources: Sequence[SourceCohort], person: dict[Subject, int], unread: set[Path], console: Console
) -> tuple[list[Alike], list[Subject]]:
    """Pairs of persons who look alike, by the channel that most patients have; and patients with scans, but none to compare."""
    visits: dict[Subject, list[dict[str, Path | None]]] = defaultdict(list)
    for source in sources:
        for patient in source.patients:
            readable = {channel: path for channel, path in patient.scans.items() if path not in unread}
            visits[Subject(source.name, patient.subject)].append(readable)
    of_channel = {channel: scans_of_channel(visits, channel) for channel in TELLING}
    channel = max(TELLING, key=lambda name: len(of_channel[name]))
    if len(of_channel[channel]) > 1:
        say(console, f"comparing {channel} of {len(of_channel[channel])} patients")
    pairs, headless = alike_pairs(of_channel[channel], person)
    scanned = {subject for scans in of_channel.values() for subject in scans}
    return pairs, [*headless, *(subject for subject in scanned if subject not in of_channel[channel])]


def _names(sources: Sequence[SourceCohort], person: dict[Subject, int]) -> dict[Subject, str]:
    """For each patient what `same_as` says of their person: all names that are known, also those of cohorts that are not here.

    Not those in a cohort that only its folder names: in another merge that name may be another cohort's.
    """
    by_folder = {source.name for source in sources if not source.named}
    named: dict[int, list[str]] = defaultdict(list)
    for subject, number in person.items():
        if subject.cohort not in by_folder:
            named[number].append(f"{subject.cohort}:{subject.patient}")
    return {subject: " ".join(named[number]) for subject, number in person.items()}


def _people(
    sources: Sequence[SourceCohort], person: dict[Subject, int], rows: Sequence[Row], links: Iterable[Link]
) -> list[tuple[str, str, str, str]]:
    """Every patient of every cohort: the id in the merged table, cohort, id there, and how they are known to be one person."""
    name = {person[_subject_of(row)]: row.patient for row in rows}
    subjects = [Subject(source.name, subject) for source in sources for subject in source.subjects]
    several = Counter(person[subject] for subject in subjects)
    why: dict[int, list[str]] = defaultdict(list)
    for link in links:
        why[person[link.one]].append(link.why)
    return [
        (name[number], one.cohort, one.patient, "; ".join(dict.fromkeys(why[number])) if several[number] > 1 else "")
        for one, number in ((one, person[one]) for one in subjects)
    ]


def _say_unknown(unknown: Sequence[Link], subjects: Mapping[str, Sequence[str]], console: Console) -> None:
    """Collections share a part of their patients, so that nothing needs a look; but a slip in an id would be among these."""
    for why, there in dict.fromkeys((link.why, link.other.cohort) for link in unknown):
        of_these = [link for link in unknown if (link.why, link.other.cohort) == (why, there)]
        similar = columns.counterparts([link.other.patient for link in of_these], subjects[there])
        example = next((link for link in of_these if link.other.patient in similar), of_these[0])
        like = f", and {similar[example.other.patient][0]} is: zeros, case or signs lost?" if similar else ""
        detail = f"{example.one.patient} is {example.other.patient}{like}"
        say(console, f"{why}: {len(of_these)} are said to be in {there} and are not there, for instance {detail}")


def _warnings(pairs: Iterable[Alike], apart: Sequence[Subject], folder: Path) -> Iterator[str]:
    for pair in pairs:
        both = f"{pair.one.patient} of {pair.one.cohort} and {pair.other.patient} of {pair.other.cohort}"
        yield f"{both} look like one person (correlation {pair.correlation:.2f}); see {folder / ALIKE}"
    if apart:
        first = f"{apart[0].patient} of {apart[0].cohort}"
        yield f"{len(apart)} patients were compared with nobody, for want of the sequence, or of a head in it: {first}, …"


def _write(
    rows: Sequence[Row],
    sources: Sequence[SourceCohort],
    labels: Sequence[Endpoint],
    people: Iterable[Sequence[str]],
    conflicts: Iterable[Conflict],
    pairs: Iterable[Alike],
    names: dict[Subject, str],
    folder: Path,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    home = folder.resolve()
    table = _table(rows, labels, names, home)
    refuse_unreadable(table, home)
    write_record(table, MERGE, ", ".join(str(source.table) for source in sources), home)
    write_bytes(sheet.to_csv(("patient", "cohort", "patient_there", "joined_by"), people), home / PEOPLE)
    statements = (
        (c.patient, c.endpoint, one.cohort, one.patient, " ".join(label), c.rule, " ".join(c.value))
        for c in conflicts
        for one, label in c.statements
    )
    header = ("patient", "endpoint", "cohort", "patient_there", "says", "rule", "value")
    write_bytes(sheet.to_csv(header, statements), home / CONFLICTS)
    origins = (
        (row.patient, row.session, column, cell.value, one.cohort, one.patient)
        for row in rows
        for column, cell in row.cells.items()
        for one in cell.sources
    )
    header = ("patient", "session", "column", "value", "cohort", "patient_there")
    write_bytes(sheet.to_csv(header, origins), home / PROVENANCE)
    alike = ((p.one.cohort, p.one.patient, p.other.cohort, p.other.patient, f"{p.correlation:.3f}") for p in pairs)
    header = ("cohort", "patient", "other_cohort", "other_patient", "correlation")
    write_bytes(sheet.to_csv(header, alike), home / ALIKE)
    write_bytes(table, home / files.COHORT)


def _table(rows: Sequence[Row], labels: Sequence[Endpoint], names: dict[Subject, str], home: Path) -> bytes:
    """A row per visit. `cohort` and `site` are the person's, those of the first visit, so that a study can leave one out."""
    masks = [name for name in MASKS if any(getattr(row.visit, name) for row in rows)]
    sessions = ["session"] if any(row.session for row in rows) else []
    of_labels = list(dict.fromkeys(column for endpoint in labels for column in endpoint.columns))
    others = [name for name in dict.fromkeys(name for row in rows for name in row.cells) if name not in of_labels]
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row.patient, row)
    lines = [
        [
            row.patient,
            *([row.session] if sessions else []),
            *(way_to(row.visit.scans[channel], home) for channel in CHANNELS),
            *(way_to(getattr(row.visit, name), home) for name in masks),
            *_origin(first[row.patient]),
            row.source.name,
            names[_subject_of(row)],
            *(_cell(row, column, home) for column in (*others, *of_labels)),
        ]
        for row in rows
    ]
    header = ("patient", *sessions, *CHANNELS, *masks, *ORIGIN, SAME_AS, *others, *of_labels)
    return sheet.to_csv(header, lines)


def _cell(row: Row, column: str, home: Path) -> str:
    value = row.cells[column].value if column in row.cells else ""
    return way_to(Path(value), home) if is_scan(value) else value


def _origin(row: Row) -> tuple[str, str]:
    """Cohort and site of a visit: what its table says, else the cohort's name."""
    cohort_of = row.visit.clinical.get("cohort", "") or row.source.name
    return cohort_of, row.visit.clinical.get("site", "") or cohort_of


def _show(
    rows: Sequence[Row],
    sources: Sequence[SourceCohort],
    conflicts: Sequence[Conflict],
    warnings: Iterable[str],
    folder: Path,
    console: Console,
) -> None:
    subjects = sum(len(source.subjects) for source in sources)
    people = len({row.patient for row in rows})
    say(console, f"{people} persons of {subjects} patients in {len(sources)} cohorts, {len(rows)} visits")
    if conflicts:
        settled = sum(bool(conflict.rule) for conflict in conflicts)
        detail = f"{len(conflicts)} cells disagree, {settled} settled by a rule"
        say(console, f"{detail}: {folder / CONFLICTS}", WARNING)
    for warning in warnings:
        say(console, warning, WARNING)
    say(console, f"cohort table {folder / files.COHORT}; who was joined and why is in {PEOPLE}")


def _subject_of(row: Row) -> Subject:
    return Subject(row.source.name, row.visit.subject)
