"""Join: cohort tables go in, one table comes out in which every person stands once, with a table of who was joined and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from mri_vit.data import cohort, sheet, spellings
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.importers import joined, likeness, persons, written
from mri_vit.importers.joined import Conflict, Row
from mri_vit.importers.likeness import Alike
from mri_vit.importers.persons import Link, Source, Subject
from mri_vit.importers.recommended import MARKERS, write_study
from mri_vit.importers.rules import SAME_AS
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import WARNING, progress, say
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.schema import CHANNELS

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
        written.check(path, folder)
    written.refuse_foreign(folder, (PEOPLE, ALIKE))
    labels = _labels(sources, endpoints)
    hashes, unread = _hashes(sources, console)
    links = [*persons.declared(sources), *persons.by_voxels(sources, hashes)]
    person = persons.joined(sources, links)
    rows, conflicts = joined.merge(sources, person, hashes, labels)
    pairs, apart = _alike(sources, person, set(unread), console)
    warnings = [*_warnings(pairs, apart, folder)]
    warnings += [f"endpoint {one.name}: no table has {' and '.join(one.columns)}" for one in endpoints if one not in labels]
    warnings += [f"{path}: {reason}; nobody was joined by it" for path, reason in unread.items()]
    _write(rows, sources, labels, _people(sources, person, rows, links), conflicts, pairs, _names(sources, person), folder)
    _say_unknown(persons.unknown(sources, links), {source.name: source.subjects for source in sources}, console)
    _say(rows, sources, conflicts, warnings, folder, console)
    write_study(MERGE, folder, console, labels)
    return bool(warnings or any(not conflict.rule for conflict in conflicts))


def _source(path: Path) -> Source:
    """A cohort, named by its column `cohort`, or by its folder where that does not give one name."""
    table = path / files.COHORT if path.is_dir() else path
    patients = cohort.read(table, (), needed=())
    said = {patient.clinical.get("cohort", "") for patient in patients}
    named = said.pop() if len(said) == 1 else ""
    name = named or table.resolve().parent.name
    if not cohort.is_patient_id(name):
        expected = "letters, digits, '.', '_' or '-'; give the table a column `cohort`, or the folder another name"
        raise UsageError(f"{table}: the cohort's name is {name!r}; expected {expected}")
    return Source(name, table, patients, bool(named))


def _labels(sources: Sequence[Source], endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """The endpoints of the study, then the usual ones, of which a table has all columns."""
    tables = [set(source.patients[0].clinical) for source in sources]
    of_columns = {endpoint.columns: endpoint for endpoint in (*MARKERS, *endpoints)}  # a study's own come last, and stay
    return [endpoint for endpoint in of_columns.values() if any(table.issuperset(endpoint.columns) for table in tables)]


def _hashes(sources: Sequence[Source], console: Console) -> tuple[dict[Path, str], dict[Path, str]]:
    """The voxels' hash of every scan, and the reason for each that cannot be read."""
    paths = list(dict.fromkeys(path for source in sources for patient in source.patients for path in persons.scans(patient)))
    found: dict[Path, str] = {}
    unread: dict[Path, str] = {}
    with progress(console) as bars:
        task = bars.add_task("scans", total=len(paths), note="")
        for path in paths:
            try:
                found[path] = persons.voxel_hash(path)
            except UnusablePatient as fault:
                unread[path] = fault.reason
            bars.advance(task)
    return found, unread


def _alike(
    sources: Sequence[Source], person: dict[Subject, int], unread: set[Path], console: Console
) -> tuple[list[Alike], list[Subject]]:
    """Pairs of persons who look alike, by the channel that most patients have; and patients with scans, but none to compare."""
    visits: dict[Subject, list[dict[str, Path | None]]] = defaultdict(list)
    for source in sources:
        for patient in source.patients:
            readable = {channel: path for channel, path in patient.scans.items() if path not in unread}
            visits[Subject(source.name, patient.subject)].append(readable)
    of_channel = {channel: likeness.of_channel(visits, channel) for channel in TELLING}
    channel = max(TELLING, key=lambda name: len(of_channel[name]))
    if len(of_channel[channel]) > 1:
        say(console, f"comparing {channel} of {len(of_channel[channel])} patients")
    pairs, headless = likeness.alike(of_channel[channel], person)
    scanned = {subject for scans in of_channel.values() for subject in scans}
    return pairs, [*headless, *(subject for subject in scanned if subject not in of_channel[channel])]


def _names(sources: Sequence[Source], person: dict[Subject, int]) -> dict[Subject, str]:
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
    sources: Sequence[Source], person: dict[Subject, int], rows: Sequence[Row], links: Iterable[Link]
) -> list[tuple[str, str, str, str]]:
    """Every patient of every cohort: the id in the merged table, cohort, id there, and how they are known to be one person."""
    name = {person[_of(row)]: row.patient for row in rows}
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
        similar = spellings.counterparts([link.other.patient for link in of_these], subjects[there])
        example = next((link for link in of_these if link.other.patient in similar), of_these[0])
        like = f", and {similar[example.other.patient][0]} is: zeros, case or signs lost?" if similar else ""
        said = f"{example.one.patient} is {example.other.patient}{like}"
        say(console, f"{why}: {len(of_these)} are said to be in {there} and are not there, for instance {said}")


def _warnings(pairs: Iterable[Alike], apart: Sequence[Subject], folder: Path) -> Iterator[str]:
    for pair in pairs:
        both = f"{pair.one.patient} of {pair.one.cohort} and {pair.other.patient} of {pair.other.cohort}"
        yield f"{both} look like one person (correlation {pair.correlation:.2f}); see {folder / ALIKE}"
    if apart:
        first = f"{apart[0].patient} of {apart[0].cohort}"
        yield f"{len(apart)} patients were compared with nobody, for want of the sequence, or of a head in it: {first}, …"


def _write(
    rows: Sequence[Row],
    sources: Sequence[Source],
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
    written.refuse_unreadable(table, home)
    written.write_record(table, MERGE, ", ".join(str(source.table) for source in sources), home)
    write_bytes(sheet.to_csv(("patient", "cohort", "patient_there", "joined_by"), people), home / PEOPLE)
    said = (
        (c.patient, c.endpoint, one.cohort, one.patient, " ".join(label), c.rule, " ".join(c.value))
        for c in conflicts
        for one, label in c.said
    )
    header = ("patient", "endpoint", "cohort", "patient_there", "says", "rule", "value")
    write_bytes(sheet.to_csv(header, said), home / written.CONFLICTS)
    origins = (
        (row.patient, row.session, column, cell.value, one.cohort, one.patient)
        for row in rows
        for column, cell in row.cells.items()
        for one in cell.said_by
    )
    header = ("patient", "session", "column", "value", "cohort", "patient_there")
    write_bytes(sheet.to_csv(header, origins), home / written.PROVENANCE)
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
            *(written.way_to(row.visit.scans[channel], home) for channel in CHANNELS),
            *(written.way_to(getattr(row.visit, name), home) for name in masks),
            *_origin(first[row.patient]),
            row.source.name,
            names[_of(row)],
            *(_cell(row, column, home) for column in (*others, *of_labels)),
        ]
        for row in rows
    ]
    header = ("patient", *sessions, *CHANNELS, *masks, *joined.ORIGIN, SAME_AS, *others, *of_labels)
    return sheet.to_csv(header, lines)


def _cell(row: Row, column: str, home: Path) -> str:
    value = row.cells[column].value if column in row.cells else ""
    return written.way_to(Path(value), home) if joined.is_scan(value) else value


def _origin(row: Row) -> tuple[str, str]:
    """Cohort and site of a visit: what its table says, else the cohort's name."""
    cohort_of = row.visit.clinical.get("cohort", "") or row.source.name
    return cohort_of, row.visit.clinical.get("site", "") or cohort_of


def _say(
    rows: Sequence[Row],
    sources: Sequence[Source],
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
        told = f"{len(conflicts)} cells disagree, {settled} settled by a rule"
        say(console, f"{told}: {folder / written.CONFLICTS}", WARNING)
    for warning in warnings:
        say(console, warning, WARNING)
    say(console, f"cohort table {folder / files.COHORT}; who was joined and why is in {PEOPLE}")


def _of(row: Row) -> Subject:
    return Subject(row.source.name, row.visit.subject)
