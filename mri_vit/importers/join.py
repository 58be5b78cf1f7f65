"""Join: cohort tables go in, one table comes out in which every person stands once, with a table of who was joined and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from mri_vit.data import cohort
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.importers import joined, likeness, persons, written
from mri_vit.importers.joined import Conflict, Row
from mri_vit.importers.likeness import Alike
from mri_vit.importers.persons import Link, Source, Subject
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import WARNING, progress, say
from mri_vit.settings.schema import CHANNELS, DEFAULT_ENDPOINTS, Endpoint

MERGE = "merge"  # in the place of a layout
PEOPLE, ALIKE = "people.csv", "alike.csv"
TELLING = ("flair", "t1ce", "t2", "t1")  # channels by which copies are looked for: the first that most patients have
MASKS = ("brain_mask", "tumour_mask")


def join(tables: Sequence[Path], folder: Path, endpoints: Sequence[Endpoint] | None, console: Console) -> bool:
    """Merge cohorts into a folder; whether something needs a look: a conflict without a rule, or patients who look alike.

    Parameters
    ----------
    tables : cohort tables, or folders with a `cohort.csv`; the first that knows a person names them.
    endpoints : whose columns are labels; None for the usual ones.

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
    written.refuse_foreign(folder / files.COHORT)
    hashes, unread = _hashes(sources, console)
    links = [*persons.declared(sources), *persons.by_voxels(sources, hashes)]
    person = persons.joined(sources, links)
    rows, conflicts = joined.merge(sources, person, hashes, endpoints or DEFAULT_ENDPOINTS)
    pairs = _alike(sources, person, set(unread), console)
    _write(rows, sources, _people(sources, person, rows, links), conflicts, pairs, folder)
    _say(rows, sources, conflicts, pairs, unread, folder, console)
    return bool(pairs or unread or any(not conflict.rule for conflict in conflicts))


def _source(path: Path) -> Source:
    """A cohort, named by its column `cohort`, or by its folder where that does not give one name."""
    table = path / files.COHORT if path.is_dir() else path
    patients = cohort.read(table, (), needed=())
    said = {patient.clinical.get("cohort", "") for patient in patients}
    name = said.pop() if len(said) == 1 else ""
    return Source(name or table.resolve().parent.name, table, patients)


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


def _alike(sources: Sequence[Source], person: dict[Subject, int], unread: set[Path], console: Console) -> list[Alike]:
    """Pairs of persons who look alike, by the channel that most patients have."""
    visits: dict[Subject, list[dict[str, Path | None]]] = defaultdict(list)
    for source in sources:
        for patient in source.patients:
            readable = {channel: path for channel, path in patient.scans.items() if path not in unread}
            visits[Subject(source.name, patient.subject)].append(readable)
    of_channel = {channel: likeness.of_channel(visits, channel) for channel in TELLING}
    channel = max(TELLING, key=lambda name: len(of_channel[name]))
    if len(of_channel[channel]) > 1:
        say(console, f"comparing {channel} of {len(of_channel[channel])} patients")
    return likeness.alike(of_channel[channel], person)


def _people(
    sources: Sequence[Source], person: dict[Subject, int], rows: Sequence[Row], links: Iterable[Link]
) -> list[tuple[str, str, str, str]]:
    """Every patient of every cohort: the id in the merged table, cohort, id there, and how they are known to be one person."""
    name = {person[_of(row)]: row.patient for row in rows}
    why: dict[Subject, list[str]] = defaultdict(list)
    for link in links:
        for subject in (link.one, link.other):
            why[subject].append(link.why)
    subjects = [Subject(source.name, subject) for source in sources for subject in source.subjects]
    return [(name[person[one]], one.cohort, one.patient, "; ".join(dict.fromkeys(why[one]))) for one in subjects]


def _write(
    rows: Sequence[Row],
    sources: Sequence[Source],
    people: Iterable[Sequence[str]],
    conflicts: Iterable[Conflict],
    pairs: Iterable[Alike],
    folder: Path,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    home = folder.resolve()
    write_bytes(written.to_csv(("patient", "cohort", "patient_there", "joined_by"), people), home / PEOPLE)
    said = (
        (c.patient, c.endpoint, name, " ".join(label), c.rule, " ".join(c.value))
        for c in conflicts
        for name, label in c.said.items()
    )
    header = ("patient", "endpoint", "cohort", "says", "rule", "value")
    write_bytes(written.to_csv(header, said), home / written.CONFLICTS)
    alike = ((p.one.cohort, p.one.patient, p.other.cohort, p.other.patient, f"{p.correlation:.3f}") for p in pairs)
    header = ("cohort", "patient", "other_cohort", "other_patient", "correlation")
    write_bytes(written.to_csv(header, alike), home / ALIKE)
    written.write_table(_table(rows, home), MERGE, ", ".join(str(source.table) for source in sources), home)


def _table(rows: Sequence[Row], home: Path) -> bytes:
    """A row per visit. `cohort` and `site` are the person's, those of the first visit, so that a study can leave one out."""
    masks = [name for name in MASKS if any(getattr(row.visit, name) for row in rows)]
    sessions = ["session"] if any(row.session for row in rows) else []
    labels = list(dict.fromkeys(column for row in rows for column in row.labels))
    others = joined.columns(rows)
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
            *(row.visit.clinical.get(column, "") for column in others),
            *(row.labels[column] for column in labels),
        ]
        for row in rows
    ]
    return written.to_csv(("patient", *sessions, *CHANNELS, *masks, *joined.ORIGIN, *others, *labels), lines)


def _origin(row: Row) -> tuple[str, str]:
    """Cohort and site of a visit: what its table says, else the cohort's name."""
    cohort_of = row.visit.clinical.get("cohort", "") or row.source.name
    return cohort_of, row.visit.clinical.get("site", "") or cohort_of


def _say(
    rows: Sequence[Row],
    sources: Sequence[Source],
    conflicts: Sequence[Conflict],
    pairs: Sequence[Alike],
    unread: dict[Path, str],
    folder: Path,
    console: Console,
) -> None:
    subjects = sum(len(source.subjects) for source in sources)
    people = len({row.patient for row in rows})
    say(console, f"{people} persons of {subjects} patients in {len(sources)} cohorts, {len(rows)} visits")
    settled = sum(bool(conflict.rule) for conflict in conflicts)
    if conflicts:
        told = f"{len(conflicts)} labels disagree, {settled} settled by the study's rule; the others are left empty"
        say(console, f"{told}: {folder / written.CONFLICTS}", WARNING)
    for pair in pairs:
        both = f"{pair.one.patient} of {pair.one.cohort} and {pair.other.patient} of {pair.other.cohort}"
        say(console, f"{both} look like one person (correlation {pair.correlation:.2f}); see {folder / ALIKE}", WARNING)
    for path, reason in unread.items():
        say(console, f"{path}: {reason}; nobody was joined by it", WARNING)
    say(console, f"cohort table {folder / files.COHORT}; who was joined and why is in {PEOPLE}")


def _of(row: Row) -> Subject:
    return Subject(row.source.name, row.visit.subject)
