"""Layout: how one publisher names files and columns, written down; a folder or table goes in, what it holds comes out."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mri_vit.data import cohort, identifiers, sheet
from mri_vit.data.aliases import key, nearest, suggestion
from mri_vit.errors import UsageError
from mri_vit.importers import rules, table
from mri_vit.importers.found import NO_RULE, Found, LeftOut, Reading, Visit
from mri_vit.importers.rules import Given, Rule
from mri_vit.importers.table import Row
from mri_vit.settings import source as source_file
from mri_vit.settings.schema import CHANNELS

NIFTI = (".nii", ".nii.gz")
UNDECIDED = "t1 or t1ce"  # what `Layout.sequence` returns where a name contradicts itself
ANY_ID = re.compile(r"(?P<patient>.+)")
WHO = ("patient", "folder", "masked")  # groups of a pattern that name the patient; a pattern of alternatives has one for each
BRATS = {  # the words for sequences of the BraTS challenges, until 2021 and since 2023, and of most collections
    **{"t1": "t1", "t1n": "t1", "t1ce": "t1ce", "t1c": "t1ce", "t1gd": "t1ce"},
    **{"t2": "t2", "t2w": "t2", "flair": "flair", "t2f": "flair", "seg": "tumour_mask"},
}


@dataclass(frozen=True)
class Column:
    """A column of the cohort table and where it comes from."""

    name: str
    sources: tuple[str, ...]  # columns of the source; the first that is filled counts
    rule: Rule
    session: str | None = None  # the visit that a time counts from, where rows are of patients
    since: Callable[[Row, str], str] | None = None  # days from where a time counts to the visit, to be subtracted; "" is unknown
    like: re.Pattern[str] | None = None  # names of further columns of the source, as they are spelled
    unless: Callable[[Row], str] | None = None  # why the cell of a row says nothing, "" where it does


@dataclass(frozen=True)
class Table:
    """A table of the source; it is known by having an id and all columns of `marks`."""

    id: tuple[str, ...]
    marks: tuple[str, ...]
    columns: tuple[Column, ...]
    ids: re.Pattern[str] = ANY_ID  # with a group `patient`, and `session` where an id has one
    session: tuple[str, ...] = ()  # a column of visits, where there is one
    scans: Mapping[str, str] = field(default_factory=dict)  # our column by theirs, of columns that hold paths

    def fits(self, header: set[str]) -> bool:
        """Whether a header is this table's."""
        return any(key(name) in header for name in self.id) and all(key(mark) in header for mark in self.marks)


@dataclass(frozen=True)
class Layout:
    """What a publisher's folder looks like. `scans` matches paths within it: groups patient, session, sequence.

    The words of `sequences` are without case and signs.
    """

    name: str
    example: str
    scans: re.Pattern[str] | None = None
    sequences: Mapping[str, str] = field(default_factory=lambda: BRATS)  # t1, t1ce, …, or a mask, by their word
    sequence: Callable[[Mapping[str, str]], str] | None = None  # instead, from the groups of `scans`; "" is not read
    told: Callable[[Path], Mapping[str, str]] | None = None  # likewise, where a file of the folder says it
    tables: tuple[Table, ...] = ()
    called: Callable[[str, str], tuple[str, str]] = lambda patient, session: (patient, session)  # as ids and visits are written
    owns_tables: bool = True  # not where its table is another layout's, and read where it lies beside its scans
    collection: bool = True  # whether it is one collection, whose cohort table carries its name, or a way to lay files out
    telling: re.Pattern[str] | None = None  # names of scans that no other layout has, where `scans` fits those of many
    bad: Mapping[str, str] = field(default_factory=dict)  # patients who are left out, and why


def read(layout: Layout, source: Path) -> Found:
    """All that a folder, or one table, holds in this layout. Raises UsageError where that is nothing.

    Where a table names the scans' files, these are the scans; else they are known by their names.
    """
    scans, paths = files_below(source)
    listed: list[Visit] = []
    readings: list[Reading] = []
    notes: list[str] = []
    for path in paths:
        kinds = [kind for kind in layout.tables if kind.fits(table.header(path))][:1]
        if not kinds:
            notes.append(f"{path.name} was not read: no table of the layout {layout.name}")
        for kind in kinds:
            notes += _not_read(kind, path)
            for row in table.read(path):
                patient, session = _whose(layout, kind, row)
                readings += _readings(layout, kind, row, patient, session)
                listed += _listed(kind, row, patient, session)
    readings = readings if layout.collection else _without_codes(readings)
    visits, left_out, unread = (listed, [], []) if listed else visits_among(layout, source, scans)
    if not visits and not readings and not left_out:
        if source in paths:
            raise _unlike(layout, source)
        raise UsageError(f"{source}: nothing in the layout {layout.name}, such as {layout.example}{_there(unread, paths)}")
    if unread:
        notes.insert(0, f"{len(unread)} other NIfTI files were not read, such as {unread[0]}")
    there = {found.patient for found in (*visits, *readings)}
    left_out += [LeftOut(name, None, reason) for name, reason in layout.bad.items() if name in there]
    return Found(
        tuple(v for v in visits if v.patient not in layout.bad),
        tuple(r for r in readings if r.patient not in layout.bad),
        tuple(left_out),
        tuple(notes),
    )


def _not_read(kind: Table, path: Path) -> Iterator[str]:
    """The columns of a table that no rule is about, with what each may mean."""
    known = {
        key(name) for name in (*kind.id, *kind.session, *kind.scans, *(s for column in kind.columns for s in column.sources))
    }
    like = [column.like for column in kind.columns if column.like]
    others = [name for name in sheet.columns(path) if key(name) not in known]
    if names := [name for name in others if not any(pattern.fullmatch(name) for pattern in like)]:
        meant = [f"{name} ({ours}?)" if (ours := suggestion(name)) else name for name in names]
        yield f"{path.name}: columns that were not read: {', '.join(meant)}"


def files_below(source: Path) -> tuple[list[Path], list[Path]]:
    """The NIfTI files and the tables in a folder, in the order of their names; hidden folders are not entered."""
    if not source.is_dir():
        if wrong := source_file.fault(source):
            raise UsageError(f"{source_file.shown(source)}: {wrong}")
        return [], [source]
    scans, tables = [], []
    for home, folders, names in os.walk(source, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            if name.lower().endswith(NIFTI):
                scans.append(Path(home, name))
            elif name.lower().endswith(table.ENDINGS) and Path(home, name).is_file():  # a pipe would wait for ever
                tables.append(Path(home, name))
    return scans, tables


def _raise(error: OSError) -> None:
    raise error  # a folder without the right to read it is no empty one


def visits_among(layout: Layout, source: Path, scans: list[Path]) -> tuple[list[Visit], list[LeftOut], list[str]]:
    """The visits whose scans are there, those that are left out, and files whose names are not the layout's."""
    sequences = layout.told(source) if layout.told and scans else layout.sequences
    found: dict[tuple[str, str], dict[str, list[Path]]] = {}
    unread = []
    for path in scans:
        name = path.relative_to(source).as_posix()
        match = layout.scans.search(name) if layout.scans else None
        words = {name: word or "" for name, word in match.groupdict().items()} if match else {}
        patient = next((words[name] for name in WHO if words.get(name)), "")
        column = (layout.sequence(words) if layout.sequence else sequences.get(key(words["sequence"]))) if patient else None
        if not column:
            unread.append(name)
            continue
        visit = layout.called(patient, words.get("session", ""))
        found.setdefault(visit, {}).setdefault(column, []).append(path)
    visits, left_out = [], []
    for (patient, session), files in found.items():
        reason = (
            "its name does not say whether it is T1 or T1ce; expected one label for the agent, such as ce-none or ce-gadolinium"
        )
        left_out += [LeftOut(patient, path, f"{path.name}: {reason}") for path in files.pop(UNDECIDED, [])]
        if not files:
            continue
        twice = [f"{column} ({', '.join(path.name for path in paths)})" for column, paths in files.items() if len(paths) > 1]
        if not cohort.is_patient_id(patient) or not cohort.is_session(session):
            left_out.append(LeftOut(patient, next(iter(files.values()))[0], "expected an id of letters, digits, '.', '_' or '-'"))
        elif not any(channel in files for channel in CHANNELS):
            left_out.append(LeftOut(patient, next(iter(files.values()))[0], "a mask, but no scan"))
        elif twice:
            reason = f"several files for {'; '.join(twice)}; expected one"
            left_out.append(LeftOut(patient, next(paths[0] for paths in files.values() if len(paths) > 1), reason))
        else:
            visits.append(_visit(patient, session, {column: paths[0] for column, paths in files.items()}))
    return visits, left_out, unread


def _visit(patient: str, session: str, files: Mapping[str, Path]) -> Visit:
    scans = {channel: files[channel] for channel in CHANNELS if channel in files}
    return Visit(patient, session, scans, files.get("brain_mask"), files.get("tumour_mask"))


def _listed(kind: Table, row: Row, patient: str, session: str) -> Iterator[Visit]:
    """The visit whose scans a row names by their paths. Raises UsageError where it names two for one sequence."""
    files: dict[str, Path] = {}
    for name, column in kind.scans.items():
        if rules.missing(row.cell(name)):
            continue
        path = row.file.parent / row.cell(name)
        if files.setdefault(column, path) != path:
            spelled = row.names[key(name)]
            raise UsageError(f"{row.file}, row {row.line}, column {spelled}: a second file for {column}; expected one")
    if files:
        yield _visit(patient, session, files)


def _whose(layout: Layout, kind: Table, row: Row) -> tuple[str, str]:
    """Patient and session of a row. Raises UsageError naming file, row and column."""
    column = row.first(kind.id) or kind.id[0]
    raw = row.cell(column)
    match = kind.ids.fullmatch(raw)
    if match:
        patient, session = layout.called(
            match["patient"], match.groupdict().get("session") or row.cell(row.first(kind.session) or "")
        )
        if not cohort.is_session(session):
            column = row.first(kind.session)
            raise UsageError(
                f"{row.file}, row {row.line}, column {column}: visit {session!r}; expected letters, digits, '.', '_' or '-'"
            )
        if cohort.is_patient_id(patient) or identifiers.NOTATION.fullmatch(patient):  # 1E+05, which may be a scan's 100000
            return patient, session
    expected = "letters, digits, '.', '_' or '-'" if kind.ids is ANY_ID else f"one as in {layout.example}"
    raise UsageError(f"{row.file}, row {row.line}, column {column}: patient id {raw!r}; expected {expected}")


def _readings(layout: Layout, kind: Table, row: Row, patient: str, session: str) -> Iterator[Reading]:
    """What a row says. Of several columns that a collection has for one of ours the first that is filled counts, by its layout;
    in any other table each does, and they may disagree.
    """
    for column in kind.columns:
        there = [name for name in column.sources if key(name) in row.cells]
        there += [name for name in row.names.values() if column.like and column.like.fullmatch(name) and name not in there]
        filled = [name for name in there if not rules.missing(row.cell(name))]
        for name in filled if filled and not layout.collection else [*filled, *there][:1]:
            spelled = row.names[key(name)]
            visit = session if column.session is None else column.session
            given = column.rule(row.cell(name), spelled)
            if given.value and column.unless and (why := column.unless(row)):
                given = Given("", f"{given.rule}; missing: {why}")
            if column.since and given.value:
                given = _from_visit(given, column.since(row, visit))
            source = (row.file, row.line, spelled, row.cell(name))
            yield Reading(patient, visit, column.name, given.value, *source, given.rule, given.give)


def _without_codes(readings: list[Reading]) -> list[Reading]:
    """The readings without the numbers of a column of yes and no that may mean something else.

    That is a column that has others than 0 and 1: of 1 and 2, 1 may be no. And one of shares under a cut-off of which none is
    above 1: these are fractions, or the assay's verdict already.
    """
    numbers: dict[tuple[Path, str], list[Reading]] = {}
    for reading in readings:
        if rules.NUMBER.fullmatch(reading.raw):
            numbers.setdefault((reading.file, reading.source_column), []).append(reading)
    coded = {place for place, its in numbers.items() if {"", "0", "1"} >= {r.value for r in its} > {""}}
    coded |= {
        place for place, its in numbers.items() if all(r.rule.endswith(rules.BY_CUT_OFF) and float(r.raw) <= 1 for r in its)
    }
    return [
        replace(r, value="", rule=f"{NO_RULE}: what the column's numbers mean is not clear")
        if (r.file, r.source_column) in coded and rules.NUMBER.fullmatch(r.raw)
        else r
        for r in readings
    ]


def _from_visit(given: Given, days: str) -> Given:
    """A time from a visit on, of one that counts from `days` before it."""
    if not rules.NUMBER.fullmatch(days):
        return Given("", f"{given.rule}; missing, as the day of the visit is not known")
    left = float(given.value) - float(days)
    if left < 0:
        return Given("", NO_RULE)  # dead or lost before the visit
    less = f", less the {float(days):g} days to the visit" if float(days) else ""
    return Given(rules.number(str(left), "").value, given.rule + less, given.give)


def _unlike(layout: Layout, path: Path) -> UsageError:
    """Why a table is none of the layout's: the first column that it lacks, and the nearest one that it has."""
    names = sheet.columns(path)
    if not layout.tables:
        return UsageError(f"{path}: the layout {layout.name} has no table; expected a folder with files such as {layout.example}")
    kind = layout.tables[0]
    lacking = [kind.id[0]] if not any(key(name) in map(key, names) for name in kind.id) else []
    lacking += [mark for mark in kind.marks if key(mark) not in map(key, names)]
    if not lacking:
        return UsageError(f"{path}: no column that a rule is about (found {', '.join(names)})")
    near = nearest(lacking[0], names)
    return UsageError(f"{path}: no column {lacking[0]!r}; the nearest one is {near!r} (found {', '.join(names)})")


def _there(unread: list[str], paths: list[Path]) -> str:
    """What lies in a source that holds nothing of a layout."""
    tables = Counter(path.name for path in paths)
    there = [*unread[:3], *list(tables)[:3]]
    return (
        f"; found {len(unread)} NIfTI files and {len(paths)} tables, such as {', '.join(there)}"
        if there
        else "; found no NIfTI file and no table"
    )
