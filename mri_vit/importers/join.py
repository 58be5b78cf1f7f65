"""Join: cohort tables go in; one table in which every person has one patient id comes out, and a table of who was joined and why.

Visits whose scans all have the same voxels become one, and a visit of labels alone adds what it knows to one with scans. A marker
belongs to the person: where all who know it agree, all visits get it. Survival counts from a visit and stays with it. Where
sources disagree the cell is empty, unless a rule names the cohort that is right. Everything else, such as age, stays with its
visit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from mri_vit.data import cohort, columns, sheet
from mri_vit.data.cohort import Patient
from mri_vit.data.columns import MISSING
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.importers import import_cohort, persons
from mri_vit.importers.import_cohort import CONFLICTS, MARKERS, MASKS, POSSIBLE, PROVENANCE, relative_path
from mri_vit.importers.layout import SAME_AS
from mri_vit.importers.persons import Alike, Link, SourceCohort, Subject, scan_paths
from mri_vit.kinds.kind import labels as labels_kind
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import WARNING, counted, progress, say
from mri_vit.settings.schema import CHANNELS, Endpoint, folded
from mri_vit.settings.source import NIFTI

Hashes = Mapping[Path, str]  # of voxels, by file
Label = tuple[str, ...]  # the cells of an endpoint: one, or days and event
Statement = tuple[Subject, Label]  # what a patient's row in one cohort says

ORIGIN = ("cohort", "site", "scan_cohort")  # columns of the merged table: the first two are of the person, the last of the visit
OWN, NOWHERE = ("each visit its own",), ("",)  # in place of a value
MERGE = "merge"  # in place of a layout
PEOPLE, ALIKE = "people.csv", "alike.csv"
COMPARED = ("flair", "t1ce", "t2", "t1")  # channels by which copies are searched for: the first that most patients have


@dataclass(frozen=True)
class Cell:
    """A filled cell of the merged table, and the patients it comes from."""

    value: str
    sources: tuple[Subject, ...]


@dataclass(frozen=True)
class Row:
    """A visit in the merged table."""

    patient: str
    session: str
    visit: SourceVisit
    cells: Mapping[str, Cell]  # by column, without those that are empty


@dataclass(frozen=True)
class Conflict:
    """The statements about one person and endpoint, or column, that disagree."""

    patient: str
    endpoint: str
    statements: tuple[Statement, ...]
    rule: str  # that settled it; empty where none did
    value: Label  # that the table holds


@dataclass(frozen=True)
class SourceVisit:
    """A visit in the table of one cohort."""

    source: SourceCohort
    patient: Patient

    @property
    def subject(self) -> Subject:
        return Subject(self.source.name, self.patient.subject)

    def text(self, column: str) -> str:
        """The cell as it is, empty where missing; one that names a scan as an absolute path."""
        cell = self.patient.clinical.get(column, "")
        if cell.lower().endswith(NIFTI):
            return str((self.source.table.parent / cell).resolve())
        return "" if cell.lower() in MISSING else cell

    def label(self, endpoint: Endpoint) -> Label:
        """The endpoint's cells, numbers and classes in one spelling (1, 365, gbm), empty where missing."""
        return tuple(_one_spelling(self.text(column), endpoint.classes or ()) for column in endpoint.columns)


def _one_spelling(cell: str, classes: Iterable[str]) -> str:
    for name in classes:
        if folded(name) == folded(cell):
            return name
    try:
        return f"{float(cell):.10g}"
    except ValueError:
        return cell


def merge_cohorts(
    sources: Sequence[SourceCohort], person: Mapping[Subject, int], hashes: Hashes, endpoints: Sequence[Endpoint]
) -> tuple[list[Row], list[Conflict]]:
    """The merged rows, persons in the order of the sources, and the conflicts.

    Parameters
    ----------
    person : as `person_numbers` gives it.
    hashes : as `voxel_hash` gives them; a scan without one is shared by no two patients.
    endpoints : whose columns are labels, and which name the cohort that is right where cohorts disagree (`prefer`).

    Raises
    ------
    UsageError where an endpoint prefers a cohort that is not there.
    """
    names = [source.name for source in sources]
    for endpoint in endpoints:
        if endpoint.prefer and endpoint.prefer not in names:
            merged = f"which is not merged (found {', '.join(names)})"
            raise UsageError(f"endpoint {endpoint.name} prefers {endpoint.prefer!r}, {merged}")
    people: dict[int, list[SourceVisit]] = defaultdict(list)
    for source in sources:
        for patient in source.patients:
            visit = SourceVisit(source, patient)
            people[person[visit.subject]].append(visit)
    ids = _patient_ids(people)
    labels = {column for endpoint in endpoints for column in endpoint.columns}
    rows, conflicts = [], []
    for number, visits in sorted(people.items()):
        groups, loose = _groups(visits, hashes)
        cells: list[dict[str, Cell]] = [{} for _ in groups]
        for endpoint in endpoints:
            conflicts += _fill_label(ids[number], endpoint, visits, groups, cells)
            if labels_kind(endpoint).of_visit and (lost := _known_labels(loose, endpoint)):
                rule = "of visits without scans, and left out"
                conflicts.append(Conflict(ids[number], endpoint.name, tuple(lost), rule, NOWHERE))
        for group, filled in zip(groups, cells, strict=True):
            conflicts += _fill_others(ids[number], group, labels, filled)
        first = [group[0] for group in groups]
        for session, visit, filled in zip(_sessions(first), first, cells, strict=True):
            rows.append(Row(ids[number], session, visit, filled))
    return rows, conflicts


def _groups(visits: Sequence[SourceVisit], hashes: Hashes) -> tuple[list[list[SourceVisit]], list[SourceVisit]]:
    """A person's visits, those with all voxels equal together, of which the first stays; and the visits that fit none.

    A visit without any scan joins the one that has some if a table has no other visit of its patient. Otherwise it fits none.
    """
    if not any(scan_paths(visit.patient) for visit in visits):
        return [[visit] for visit in visits], []
    by_content: dict[object, list[SourceVisit]] = {}
    loose = []
    for index, visit in enumerate(visits):
        content = tuple(hashes.get(path, "") for path in scan_paths(visit.patient))
        if content:
            by_content.setdefault(content if all(content) else index, []).append(visit)
        else:
            loose.append(visit)
    groups, of_subject = list(by_content.values()), Counter(visit.subject for visit in visits)
    if len(groups) > 1:
        return groups, loose
    fitting = [visit for visit in loose if of_subject[visit.subject] == 1]
    return [[*groups[0], *fitting]], [visit for visit in loose if visit not in fitting]


def _fill_label(
    patient: str,
    endpoint: Endpoint,
    visits: Sequence[SourceVisit],
    groups: Sequence[Sequence[SourceVisit]],
    cells: list[dict[str, Cell]],
) -> list[Conflict]:
    """Fill an endpoint's cells of all groups in place; what disagrees."""
    of_person = _known_labels(visits, endpoint)
    labels_of = Counter(subject for subject, _ in of_person)
    of_visit = labels_kind(endpoint).of_visit
    by_visit = not of_visit and any(count > 1 for count in labels_of.values())
    conflicts = []
    if by_visit and len(labels_of) > 1:
        conflicts.append(Conflict(patient, endpoint.name, tuple(of_person), "", OWN))
    for group, filled in zip(groups, cells, strict=True):
        statements = _known_labels(group, endpoint) if by_visit or of_visit else of_person
        labels = {label for _, label in statements}
        preferred = {label for subject, label in statements if subject.cohort == endpoint.prefer}
        rule, value = "", ("",) * len(endpoint.columns)
        if len(labels) == 1:
            (value,) = labels
        elif len(preferred) == 1:
            rule, (value,) = f"{endpoint.name} is that of {endpoint.prefer}", preferred
        if len(labels) > 1:
            conflicts.append(Conflict(patient, endpoint.name, tuple(statements), rule, value))
        by = tuple(subject for subject, label in statements if label == value)
        filled.update({column: Cell(cell, by) for column, cell in zip(endpoint.columns, value, strict=True) if cell})
    return list(dict.fromkeys(conflicts))


def _known_labels(visits: Iterable[SourceVisit], endpoint: Endpoint) -> list[Statement]:
    """The different labels that visits have; half of a time and its event is none."""
    return list(dict.fromkeys((visit.subject, label) for visit in visits if all(label := visit.label(endpoint))))


def _fill_others(patient: str, group: Sequence[SourceVisit], labels: set[str], filled: dict[str, Cell]) -> Iterator[Conflict]:
    """Fill the cells of all other columns in place: the visit's own, else that of another with the same scans."""
    for name in dict.fromkeys(name for visit in group for name in visit.patient.clinical):
        statements = [(visit.subject, (cell,)) for visit in group if (cell := visit.text(name))]
        if not statements or name in {*labels, *ORIGIN, SAME_AS}:
            continue
        (subject, (value,)) = statements[0]
        filled[name] = Cell(value, (subject,))
        if len({label for _, label in statements}) > 1:
            rule = f"{name} is that of the scan's cohort"
            yield Conflict(patient, name, tuple(dict.fromkeys(statements)), rule, (value,))


def _sessions(visits: Sequence[SourceVisit]) -> list[str]:
    """A name for each of a person's visits: its own, else its cohort's where there are several; each once in any case."""
    if len(visits) == 1:
        return [visits[0].patient.session]
    taken: set[str] = set()
    return [
        _free([v.patient.session, f"{v.source.name}-{v.patient.session}"] if v.patient.session else [v.source.name], taken)
        for v in visits
    ]


def _patient_ids(people: Mapping[int, Sequence[SourceVisit]]) -> dict[int, str]:
    """A patient id for each person: that of the first cohort, with the cohort's name before it where others have it too."""
    first = {number: visits[0].subject for number, visits in people.items()}
    count = Counter(subject.patient.casefold() for subject in first.values())
    taken = {name for name, times in count.items() if times == 1}
    return {
        number: subject.patient
        if count[subject.patient.casefold()] == 1
        else _free([f"{subject.cohort}-{subject.patient}"], taken)
        for number, subject in first.items()
    }


def _free(wished: Sequence[str], taken: set[str]) -> str:
    """The first of the names that is free in any case, else the last with a number; it is taken then."""
    numbered = (f"{wished[-1]}-{n}" for n in range(2, len(taken) + 3))
    name = next(name for name in (*wished, *numbered) if name.casefold() not in taken)
    taken.add(name.casefold())
    return name


def join(tables: Sequence[Path], folder: Path, endpoints: Sequence[Endpoint], console: Console) -> bool:
    """Merge cohorts into a folder; whether something needs a look: an open conflict, patients who look alike or are not found.

    Parameters
    ----------
    tables : cohort tables, or folders with a `cohort.csv`; a person's id is that of the first that has the person.
    endpoints : whose columns are labels, beside the usual ones and WHO type and grade.

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
        import_cohort.check_destination(path, folder)
    import_cohort.refuse_foreign(folder, (PEOPLE, ALIKE))
    headers = [set(source.patients[0].clinical) for source in sources]
    by_columns = {endpoint.columns: endpoint for endpoint in (*MARKERS, *POSSIBLE, *endpoints)}  # a study's own come last
    labels = [endpoint for columns, endpoint in by_columns.items() if any(header.issuperset(columns) for header in headers)]
    hashes, unread = _hashes(sources, console)
    links = [*persons.declared_links(sources), *persons.links_by_voxels(sources, hashes)]
    person = persons.person_numbers(sources, links)
    rows, conflicts = merge_cohorts(sources, person, hashes, [_with_classes(one, sources) for one in labels])
    pairs, not_compared = _alike(sources, person, unread, console)
    folder.mkdir(parents=True, exist_ok=True)
    home = folder.resolve()
    table = _table(rows, labels, _same_as(sources, person), home)
    import_cohort.refuse_unreadable(table, home)
    import_cohort.write_record(table, MERGE, ", ".join(str(source.table) for source in sources), home)
    _write_origins(rows, _people(sources, person, rows, links), conflicts, pairs, home)
    write_bytes(table, home / files.COHORT)
    warnings = [
        f"{pair.one} and {pair.other} look like one person (correlation {pair.correlation:.2f}); see {folder / ALIKE}"
        for pair in pairs
    ]
    if not_compared:
        why = "they lack the sequence, or it shows no head"
        warnings.append(
            f"not compared with others, because {why}: {counted(len(not_compared), 'patient')}, such as {not_compared[0]}"
        )
    warnings += [f"endpoint {one.name}: no table has {' and '.join(one.columns)}" for one in endpoints if one not in labels]
    warnings += [f"{path}: {reason}; not used to join patients" for path, reason in unread.items()]
    _print_unknown(sources, links, console)
    patients = sum(len(source.subjects) for source in sources)
    say(
        console,
        f"{counted(len({row.patient for row in rows}), 'person')} of {counted(patients, 'patient')} in "
        f"{counted(len(sources), 'cohort')}, {counted(len(rows), 'visit')}",
    )
    if conflicts:
        settled = sum(bool(conflict.rule) for conflict in conflicts)
        say(console, f"{counted(len(conflicts), 'cell')} in conflict, {settled} settled by a rule: {folder / CONFLICTS}", WARNING)
    for warning in warnings:
        say(console, warning, WARNING)
    say(console, f"cohort table {folder / files.COHORT}; who was joined and why is in {PEOPLE}")
    import_cohort.write_study(MERGE, folder, console, [one for one in labels if one in endpoints or one not in POSSIBLE])
    return bool(warnings or any(not conflict.rule for conflict in conflicts))


def _with_classes(endpoint: Endpoint, sources: Iterable[SourceCohort]) -> Endpoint:
    """The endpoint with the classes of all cohorts, each as it is first spelled, where it leaves them to the table."""
    if not endpoint.lacks_classes:
        return endpoint
    cells = [patient.clinical.get(endpoint.name, "") for source in sources for patient in source.patients]
    spelled = {folded(cell): cell for cell in reversed(cells) if cell.lower() not in MISSING}
    return endpoint.model_copy(update={"classes": tuple(spelled.values())})


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


def _hashes(sources: Sequence[SourceCohort], console: Console) -> tuple[dict[Path, str], dict[Path, str]]:
    """The voxels' hash of every scan, and the reason for each that cannot be read."""
    paths = list(dict.fromkeys(path for source in sources for patient in source.patients for path in scan_paths(patient)))
    hashes: dict[Path, str] = {}
    unread: dict[Path, str] = {}
    with progress(console) as bars:
        task = bars.add_task("scans", total=len(paths), note="")
        for path in paths:
            try:
                hashes[path] = persons.voxel_hash(path)
            except UnusablePatient as fault:
                unread[path] = fault.reason
            bars.advance(task)
    return hashes, unread


def _alike(
    sources: Sequence[SourceCohort], person: dict[Subject, int], unread: Mapping[Path, str], console: Console
) -> tuple[list[Alike], list[Subject]]:
    """Pairs of persons who look alike, by the channel that most patients have; and patients with scans, but none to compare."""
    scans: dict[Subject, list[tuple[str, Path]]] = defaultdict(list)
    for source in sources:
        for patient in source.patients:
            scans[Subject(source.name, patient.subject)] += [(name, path) for name, path in patient.scans.items() if path]
    first: dict[str, dict[Subject, Path]] = {channel: {} for channel in COMPARED}
    for subject, files_of in scans.items():
        for name, path in files_of:
            if name in COMPARED and path not in unread:
                first[name].setdefault(subject, path)
    channel = max(COMPARED, key=lambda name: len(first[name]))
    if len(first[channel]) > 1:
        say(console, f"comparing {channel} of {len(first[channel])} patients")
    pairs, headless = persons.alike_pairs(first[channel], person)
    others = {subject: None for scans in first.values() for subject in scans if subject not in first[channel]}
    return pairs, [*headless, *others]


def _same_as(sources: Sequence[SourceCohort], person: dict[Subject, int]) -> dict[Subject, str]:
    """The column `same_as` of each patient: all known names of the person, also those of cohorts that are not here.

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
    ids = {person[row.visit.subject]: row.patient for row in rows}
    subjects = [Subject(source.name, subject) for source in sources for subject in source.subjects]
    several = Counter(person[subject] for subject in subjects)
    why: dict[int, list[str]] = defaultdict(list)
    for link in links:
        why[person[link.one]].append(link.why)
    joined_by = {number: "; ".join(dict.fromkeys(why[number])) if several[number] > 1 else "" for number in several}
    return [(ids[person[one]], one.cohort, one.patient, joined_by[person[one]]) for one in subjects]


def _print_unknown(sources: Sequence[SourceCohort], links: Sequence[Link], console: Console) -> None:
    """Collections share a part of their patients, so that nothing needs a look; but a slip in an id would be among these."""
    unknown = persons.unknown_links(sources, links)
    subjects = {source.name: source.subjects for source in sources}
    for why, there in dict.fromkeys((link.why, link.other.cohort) for link in unknown):
        missing = [link for link in unknown if (link.why, link.other.cohort) == (why, there)]
        similar = columns.counterparts([link.other.patient for link in missing], subjects[there])
        example = next((link for link in missing if link.other.patient in similar), missing[0])
        like = f", and {similar[example.other.patient][0]} is: zeros, case or signs lost?" if similar else ""
        detail = f"{example.one.patient} is {example.other.patient}{like}"
        say(console, f"{why}: {len(missing)} patients are declared to be in {there} and are not there, for instance {detail}")


def _write_origins(
    rows: Sequence[Row], people: Iterable[Sequence[str]], conflicts: Iterable[Conflict], pairs: Iterable[Alike], home: Path
) -> None:
    """Write who was joined, what disagrees, where each cell comes from, and who looks alike."""
    statements = (
        (c.patient, c.endpoint, subject.cohort, subject.patient, " ".join(label), c.rule, " ".join(c.value))
        for c in conflicts
        for subject, label in c.statements
    )
    origins = (
        (row.patient, row.session, column, cell.value, subject.cohort, subject.patient)
        for row in rows
        for column, cell in row.cells.items()
        for subject in cell.sources
    )
    alike = ((p.one.cohort, p.one.patient, p.other.cohort, p.other.patient, f"{p.correlation:.3f}") for p in pairs)
    for name, header, lines in (
        (PEOPLE, "patient cohort patient_there joined_by", people),
        (CONFLICTS, "patient endpoint cohort patient_there says rule value", statements),
        (PROVENANCE, "patient session column value cohort patient_there", origins),
        (ALIKE, "cohort patient other_cohort other_patient correlation", alike),
    ):
        write_bytes(sheet.to_csv(header.split(), lines), home / name)


def _table(rows: Sequence[Row], labels: Sequence[Endpoint], same_as: dict[Subject, str], home: Path) -> bytes:
    """A row per visit. `cohort` and `site` are the person's, those of the first visit, so that a study can leave one out."""
    masks = [name for name in MASKS if any(getattr(row.visit.patient, name) for row in rows)]
    sessions = ["session"] if any(row.session for row in rows) else []
    of_labels = list(dict.fromkeys(column for endpoint in labels for column in endpoint.columns))
    others = [name for name in dict.fromkeys(name for row in rows for name in row.cells) if name not in of_labels]
    path = partial(relative_path, home=home)
    origin: dict[str, tuple[str, str]] = {}
    lines = []
    for row in rows:
        patient, clinical = row.visit.patient, row.visit.patient.clinical
        cohort_name = clinical.get("cohort", "") or row.visit.source.name
        origin.setdefault(row.patient, (cohort_name, clinical.get("site", "") or cohort_name))
        cells = [row.cells[column].value if column in row.cells else "" for column in (*others, *of_labels)]
        lines.append(
            [
                row.patient,
                *([row.session] if sessions else []),
                *(path(patient.scans[channel]) for channel in CHANNELS),
                *(path(getattr(patient, name)) for name in masks),
                *(*origin[row.patient], row.visit.source.name, same_as[row.visit.subject]),
                *(path(Path(cell)) if cell.lower().endswith(NIFTI) else cell for cell in cells),
            ]
        )
    return sheet.to_csv(("patient", *sessions, *CHANNELS, *masks, *ORIGIN, SAME_AS, *others, *of_labels), lines)
