"""Layout reader: a publisher's folder or table goes in; its layout, visits, scans and labels come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mri_vit.data import cohort, columns, sheet
from mri_vit.data.columns import key, nearest, suggestion
from mri_vit.errors import UsageError
from mri_vit.importers.layout import (
    ANY_ID,
    BY_CUT_OFF,
    NO_RULE,
    NUMBER,
    TEXT_ENDING,
    UNDECIDED,
    CellValue,
    Layout,
    LeftOut,
    Reading,
    Row,
    SourceContents,
    Table,
    Visit,
    as_nifti_name,
    files_below,
    missing,
    number,
    place_in_source,
    table_columns,
    table_rows,
    what_it_is,
)
from mri_vit.run.screen import counted
from mri_vit.settings import source as source_file
from mri_vit.settings.schema import CHANNELS

DERIVED = ("derivatives", "sourcedata")  # of BIDS: results computed from the scans, and the data behind them
NOT_UTF8 = "the name of this file or of its folder is not UTF-8; rename it"
MASK_ALONE = "a mask, but no scan"
PATIENT_GROUPS = ("patient", "folder", "masked")  # groups of a pattern that name the patient, one for each alternative


def read_source(layout: Layout, source: Path, own: Layout | None = None) -> SourceContents:
    """The contents of a folder, or of one table, in this layout. Raises UsageError where there are none.

    Where a table names the scans' files, these are the scans; else they are known by their names. `own` is a layout by which the
    other tables and scans are read: tables of labels join this layout's patients, scans are `SourceContents.strays`.
    """
    scans, tables, images = files_below(source)
    paths = [path for path in tables if path == source or not _is_prose(path, (layout, own or layout))]
    listed: list[Visit] = []
    readings: list[Reading] = []
    notes: list[str] = []
    other_tables = []
    for path in paths:
        table = _table_of(layout, path)
        if not table:
            other_tables.append(path)
            continue
        beside = _columns_beside(table, own) if own else replace(table, columns=())
        notes += _not_read(replace(table, columns=(*table.columns, *beside.columns)), path)
        by_own: list[Reading] = []
        for row in table_rows(path):
            patient, session = _visit_of(layout, table, row)
            readings += _readings(layout, table, row, patient, session)
            by_own += _readings(own or layout, beside, row, patient, session)
            if files := _listed_files(table, row):
                listed.append(_visit(patient, session, files))
        readings += _without_codes(by_own)
    readings = readings if layout.collection else _without_codes(readings)
    visits, left_out, unread = (listed, [], []) if listed else visits_among(layout, source, scans)
    left_out += _in_other_formats(layout, source, images, visits)
    strays: list[Visit] = []
    if own:
        strays, lost, unread = _strays(own, source, unread, images, visits)
        left_out += lost
    explained = {left.file for left in left_out}
    not_nifti = [path for path in images if path not in explained]
    if not listed:
        folders = _unread_folders(source, [*unread, *not_nifti], [*visits, *strays], left_out)
        left_out += [left for left in folders if left.patient or visits or readings]  # of files alone, the source is refused
    if not_nifti:
        name = not_nifti[0].relative_to(source).as_posix()
        notes.append(f"{len(not_nifti)} scans in other formats were not read, such as {name} ({what_it_is(not_nifti[0])})")
    if source in other_tables:
        raise _unlike(layout, source)
    for path in other_tables:
        joined, lost, remarks = _own_table(layout, own, path, _ids(layout, [*visits, *strays] or readings))
        readings, left_out, notes = [*readings, *joined], [*left_out, *lost], [*notes, *remarks]
    if not visits and not readings and not left_out:
        if source in paths:
            raise _unlike(layout, source)
        names = [path.relative_to(source).as_posix() for path in unread]
        content = f"{not_nifti[0]}: {what_it_is(not_nifti[0])}" if not_nifti else _content(source, names, paths)
        raise UsageError(f"{source}: nothing in the layout {layout.name}, such as {layout.example}; found {content}")
    if unread:
        notes.insert(0, f"{len(unread)} other NIfTI files were not read, such as {unread[0].relative_to(source).as_posix()}")
    patients = {entry.patient for entry in (*visits, *readings)}
    left_out += [LeftOut(name, None, reason) for name, reason in layout.bad.items() if name in patients]
    return SourceContents(
        tuple(v for v in visits if v.patient not in layout.bad),
        tuple(r for r in readings if r.patient not in layout.bad),
        tuple(left_out),
        tuple(notes),
        tuple(strays),
    )


def _table_of(layout: Layout, path: Path) -> Table | None:
    names = table_columns(path)
    return next((table for table in layout.tables if table.fits(names)), None)


def _is_prose(path: Path, layouts: Sequence[Layout]) -> bool:
    """Whether a .txt is a README and no table: its first line has no two columns of which one is read."""
    if path.suffix.lower() != TEXT_ENDING:
        return False
    names = table_columns(path)
    tables = [table for layout in layouts for table in layout.tables]
    read = {name for table in tables for column in table.columns for name in (column.name, *column.sources)}
    read |= {name for table in tables for name in table.scans}
    return len(names) < 2 or names.isdisjoint(map(key, read))


def _columns_beside(table: Table, own: Layout) -> Table:
    """A table of the layout with columns beside the layout's own, such as the age beside MGMT_value: those that `own` reads."""
    names = {column.name for column in table.columns}
    sources = {key(source) for column in table.columns for source in column.sources}
    more = (column for other in own.tables for column in other.columns if column.name not in names)
    free = (replace(column, sources=tuple(name for name in column.sources if key(name) not in sources)) for column in more)
    return replace(table, columns=tuple(free))


def _ids(layout: Layout, entries: Sequence[Visit | Reading]) -> Callable[[str], tuple[str, str] | None]:
    """A function that gives patient and session of an id as a user's own table may write it; None for an unknown id.

    The id may be the patient's, the patient's with the session behind it, or one as the layout's own tables write it.
    """
    known: dict[str, tuple[str, str]] = {entry.patient: (entry.patient, "") for entry in entries}
    for entry in entries:
        for sign in "_-" if entry.session else "":
            known.setdefault(f"{entry.patient}{sign}{entry.session}", (entry.patient, entry.session))

    def visit_of(raw: str) -> tuple[str, str] | None:
        if raw in known:
            return known[raw]
        for match in filter(None, (table.ids.fullmatch(raw) for table in layout.tables)):
            patient, session = layout.called(match["patient"], match.groupdict().get("session") or "")
            if patient in known:
                return patient, session
        return None

    return visit_of


def _own_table(
    layout: Layout, own: Layout | None, path: Path, visit_of: Callable[[str], tuple[str, str] | None]
) -> tuple[list[Reading], list[LeftOut], list[str]]:
    """Readings of a table that is none of the layout's, by the rules of `own`; the table, if it cannot be read; and notes."""
    try:
        spelled = sheet.columns(path)
    except UsageError as fault:
        return [], [LeftOut("", path, f"not read: {str(fault).removeprefix(f'{path}: ')}")], []
    table = _table_of(own, path) if own else None
    columns = [column for other in (own or layout).tables for column in other.columns]
    sources = {key(name) for column in columns for name in column.sources}
    labels = [name for name in spelled if key(name) in sources or any(c.like and c.like.fullmatch(name) for c in columns)]
    if not (own and table):
        if labels and (own or not layout.collection):
            return [], [LeftOut("", path, f"not read: {', '.join(labels)}, but no patient_id, subject, id or the like")], []
        return [], [], [f"{path.name} was not read: no table of the layout {layout.name}"]
    notes = list(_not_read(table, path))
    if not labels:
        return [], [], notes
    readings: list[Reading] = []
    for row in table_rows(path):
        patient, session = visit_of(row.cell(row.first(table.id) or table.id[0])) or ("", "")
        if not session:
            in_row = _visit_of(own, table, row)
            patient, session = patient or in_row[0], in_row[1]
        readings += _readings(own, table, row, patient, session)
    notes.append(f"{path.name}: no table of the layout {layout.name}; read by the rules of {own.name}")
    return _without_codes(readings), [], notes


def _unread_folders(source: Path, unread: Sequence[Path], visits: Sequence[Visit], left_out: Sequence[LeftOut]) -> list[LeftOut]:
    """The folders with unread scans that lie with no patient's: they may be patients, or hold them; the outermost such.

    The source itself is one of them. A file whose name is not UTF-8 is left out by itself wherever it lies.
    """
    accounted = [(visit.patient, path) for visit in visits for path in _files(visit).values()]
    accounted += [(left.patient, left.file) for left in left_out if left.patient and left.file]
    patients: dict[Path, set[str]] = {}  # by the folder of their files
    expected = {*DERIVED}  # names of folders that are one patient's, or hold no scans of others
    for patient, path in accounted:
        patients.setdefault(path.parent, set()).add(patient)
        names = [name for name in place_in_source(path, source).split("/")[:-1] if key(patient) in key(name)]
        expected.update(names[-1:])
    above = {source, *(folder for _, path in accounted for folder in path.parents)}
    folders: dict[Path, list[Path]] = {}
    left = []
    for path in unread:
        here, inside = patients.get(path.parent, set()), path.relative_to(source)
        if not cohort.is_utf8(inside):
            left.append(LeftOut(path.parent.name if path.parent != source else "", path, NOT_UTF8))
            continue
        alone = len(here) == 1 and path.parent != source  # one patient's files lie here
        if alone or not expected.isdisjoint(inside.parts) or path.name.startswith(tuple(here)):
            continue
        up = [folder for folder in path.parents if folder.is_relative_to(source)]
        apart = [folder for folder in up if folder not in above]  # without a patient's file in it or below
        folders.setdefault((apart or up[:1])[-1], []).append(path)
    for folder, files in folders.items():
        reason = f"{len(files)} files, such as {files[0].name}, belong to no patient by name or folder and were not read"
        remedy = "rename them" if folder == source else "if the folder holds patients, import the folder itself"
        left.append(LeftOut("" if folder == source else folder.relative_to(source).as_posix(), files[0], f"{reason}; {remedy}"))
    return left


def _strays(
    own: Layout, source: Path, unread: list[Path], images: Sequence[Path], visits: Sequence[Visit]
) -> tuple[list[Visit], list[LeftOut], list[Path]]:
    """The visits by `own` among unread files, of patients who have none yet; who is left out; and what stays unread."""
    by_own, left_out, rest = visits_among(own, source, unread)
    taken = {visit.patient for visit in visits}
    strays = [visit for visit in by_own if visit.patient not in taken]
    left_out += _in_other_formats(own, source, images, [*visits, *strays])
    known = {path for visit in visits for path in _files(visit).values()}
    again = [path for visit in by_own if visit.patient in taken for path in _files(visit).values() if path not in known]
    return strays, [left for left in left_out if left.patient not in taken], [*rest, *again]


def _in_other_formats(layout: Layout, source: Path, images: Sequence[Path], visits: Sequence[Visit]) -> list[LeftOut]:
    """The scans in other formats than NIfTI, under the layout's names, of sequences that no NIfTI file holds."""
    as_nifti = {as_nifti_name(path): path for path in images}
    held = {(visit.patient, visit.session, channel) for visit in visits for channel in _files(visit)}
    masked = {patient for patient, _, channel in held if channel not in CHANNELS}
    others, masks, _ = visits_among(layout, source, list(as_nifti))
    scans = [
        (visit.patient, path, channel)
        for visit in others
        for channel, path in _files(visit).items()
        if (visit.patient, visit.session, channel) not in held
    ]
    scans += [(m.patient, m.file, "mask") for m in masks if m.file and m.reason == MASK_ALONE and m.patient not in masked]
    return [LeftOut(who, as_nifti[path], f"{what}: {source_file.other_format(as_nifti[path])}") for who, path, what in scans]


def _files(visit: Visit) -> dict[str, Path]:
    masks = {"brain_mask": visit.brain_mask, "tumour_mask": visit.tumour_mask}
    return {**visit.scans, **{name: path for name, path in masks.items() if path}}


def _not_read(table: Table, path: Path) -> Iterator[str]:
    """Notes on how a table was read where that is uncertain; and the columns without a rule, with what each may mean."""
    sources = (source for column in table.columns for source in column.sources)
    known = set(map(key, (*table.id, *table.session, *table.scans, *sources)))
    like = [column.like for column in table.columns if column.like]
    content = sheet.examine(path)
    yield from (f"{path.name}: {note}" for note in content.notes)
    others = [name for name in content.header if key(name) not in known and not any(p.fullmatch(name) for p in like)]
    if others:
        meant = [f"{name} ({near}?)" if (near := suggestion(name)) else name for name in others]
        yield f"{path.name}: columns that were not read: {', '.join(meant)}"


def visits_among(layout: Layout, source: Path, scans: list[Path]) -> tuple[list[Visit], list[LeftOut], list[Path]]:
    """The visits among these files, those that are left out, and files whose names are not the layout's."""
    sequences = layout.read_sequences(source) if layout.read_sequences and scans else layout.sequences
    by_visit: dict[tuple[str, str], dict[str, list[Path]]] = {}
    unread = []
    for path in scans:
        match = layout.scans.search(place_in_source(path, source)) if layout.scans else None
        words = {name: word or "" for name, word in match.groupdict().items()} if match else {}
        patient = next((words[name] for name in PATIENT_GROUPS if words.get(name)), "")
        column = (layout.sequence(words) if layout.sequence else sequences.get(key(words["sequence"]))) if patient else None
        if not column:
            unread.append(path)
            continue
        visit = layout.called(patient, words.get("session", ""))
        by_visit.setdefault(visit, {}).setdefault(column, []).append(path)
    visits, left_out = [], []
    for (patient, session), files in by_visit.items():
        reason = "its name does not show whether it is T1 or T1ce; expected one label for the agent: ce-none or ce-gadolinium"
        left_out += [LeftOut(patient, path, f"{path.name}: {reason}") for path in files.pop(UNDECIDED, [])]
        if not files:
            continue
        first = next(iter(files.values()))[0]
        several = {column: paths for column, paths in files.items() if len(paths) > 1}
        if strange := [path for paths in files.values() for path in paths if not cohort.is_utf8(path.relative_to(source))]:
            left_out.append(LeftOut(patient, strange[0], NOT_UTF8))
        elif not cohort.is_patient_id(patient) or not cohort.is_session(session):
            left_out.append(LeftOut(patient, first, "expected an id of letters, digits, '.', '_' or '-'"))
        elif not any(channel in files for channel in CHANNELS):
            left_out.append(LeftOut(patient, first, MASK_ALONE))
        elif several:
            named = "; ".join(f"{column} ({', '.join(path.name for path in paths)})" for column, paths in several.items())
            left_out.append(LeftOut(patient, next(iter(several.values()))[0], f"several files for {named}; expected one"))
        else:
            visits.append(_visit(patient, session, {column: paths[0] for column, paths in files.items()}))
    return visits, left_out, unread


def _visit(patient: str, session: str, files: Mapping[str, Path]) -> Visit:
    scans = {channel: files[channel] for channel in CHANNELS if channel in files}
    return Visit(patient, session, scans, files.get("brain_mask"), files.get("tumour_mask"))


def _listed_files(table: Table, row: Row) -> dict[str, Path]:
    """The scans that a row names by their paths. Raises UsageError where it names two for one sequence."""
    files: dict[str, Path] = {}
    for name, column in table.scans.items():
        if missing(row.cell(name)):
            continue
        path = cohort.located(row.file.parent, row.cell(name))
        if files.setdefault(column, path) != path:
            raise row.fault(row.names[key(name)], f"a second file for {column}; expected one")
    return files


def _visit_of(layout: Layout, table: Table, row: Row) -> tuple[str, str]:
    """Patient and session of a row. Raises UsageError naming file, row and column."""
    column = row.first(table.id) or table.id[0]
    raw = row.cell(column)
    if key(column) in row.dates:
        raise row.fault(column, f"patient id {raw!r} {cohort.MADE_A_DATE}")
    if match := table.ids.fullmatch(raw):
        visit = match.groupdict().get("session") or row.cell(row.first(table.session) or "")
        patient, session = layout.called(match["patient"], visit)
        if not cohort.is_session(session):
            raise row.fault(row.first(table.session) or "", f"visit {session!r}; expected letters, digits, '.', '_' or '-'")
        if cohort.is_patient_id(patient) or columns.WHOLE_NUMBER.fullmatch(patient):  # 1E+05, which may be a scan's 100000
            return patient, session
    expected = "letters, digits, '.', '_' or '-'" if table.ids is ANY_ID else f"one as in {layout.example}"
    raise row.fault(column, f"patient id {raw!r}; expected {expected}{cohort.shortened(raw)}")


def _readings(layout: Layout, table: Table, row: Row, patient: str, session: str) -> Iterator[Reading]:
    """The readings of a row. If a collection has several columns for one of ours, the first that is filled counts, by its layout;
    in any other table each does, and they may disagree.
    """
    for column in table.columns:
        names = [name for name in column.sources if key(name) in row.cells]
        names += [name for name in row.names.values() if column.like and column.like.fullmatch(name) and name not in names]
        filled = [name for name in names if not missing(row.cell(name))]
        for name in filled if filled and not layout.collection else [*filled, *names][:1]:
            spelled = row.names[key(name)]
            visit = session if column.session is None else column.session
            value = column.of_row(row) if column.of_row else column.rule(row.cell(name), spelled)
            if value.value and column.unless and (why := column.unless(row)):
                value = CellValue("", f"{value.rule}; missing: {why}")
            if column.since and value.value:
                value = _from_visit(value, column.since(row, visit))
            origin = (row.file, row.line, spelled, row.cell(name))
            yield Reading(patient, visit, column.name, value.value, *origin, value.rule, value.tolerance)


def _without_codes(readings: list[Reading]) -> list[Reading]:
    """The readings without the numbers of a column of yes and no that may mean something else.

    That is a column that has others than 0 and 1: of 1 and 2, 1 may be no. And one of shares under a cut-off of which none is
    above 1: these are fractions, or the assay's verdict already.
    """
    numbers: dict[tuple[Path, str], list[Reading]] = {}
    for reading in readings:
        if NUMBER.fullmatch(reading.raw):
            numbers.setdefault((reading.file, reading.source_column), []).append(reading)
    coded = set()
    for column, cells in numbers.items():
        shares = all(r.rule.endswith(BY_CUT_OFF) and float(r.raw) <= 1 for r in cells)
        if shares or {"", "0", "1"} >= {r.value for r in cells} > {""}:
            coded.add(column)
    unclear = f"{NO_RULE}: the meaning of the column's numbers is not clear"
    return [
        replace(r, value="", rule=unclear) if (r.file, r.source_column) in coded and NUMBER.fullmatch(r.raw) else r
        for r in readings
    ]


def _from_visit(value: CellValue, days: str) -> CellValue:
    """A time from a visit on, of one that counts from `days` before it."""
    if not NUMBER.fullmatch(days):
        return CellValue("", f"{value.rule}; missing, because the day of the visit is not known")
    left = float(value.value) - float(days)
    if left < 0:
        return CellValue("", NO_RULE)  # dead or lost before the visit
    less = f", less the {float(days):g} days to the visit" if float(days) else ""
    return CellValue(number(str(left), "").value, value.rule + less, value.tolerance)


def _unlike(layout: Layout, path: Path) -> UsageError:
    """Why a table is none of the layout's: the first column that it lacks, and the nearest one that it has."""
    names = sheet.columns(path)
    if not layout.tables:
        return UsageError(f"{path}: the layout {layout.name} has no table; expected a folder with files such as {layout.example}")
    table = layout.tables[0]
    keys = set(map(key, names))
    lacking = [table.id[0]] if keys.isdisjoint(map(key, table.id)) else []
    lacking += [mark for mark in table.marks if key(mark) not in keys]
    if not lacking:
        return UsageError(f"{path}: no column has a rule (found {', '.join(names)})")
    near = nearest(lacking[0], names)
    return UsageError(f"{path}: no column {lacking[0]!r}; the nearest one is {near!r} (found {', '.join(names)})")


def _content(source: Path, unread: list[str], paths: list[Path]) -> str:
    """What lies in a source that holds nothing of a layout."""
    if source_file.holds_dicom(source):
        return "DICOM files, which `mri-vit import dicom` reads"
    names = [*unread[:3], *list(dict.fromkeys(path.name for path in paths))[:3]]
    if not names:
        return "no NIfTI file and no table"
    return f"{counted(len(unread), 'NIfTI file')} and {counted(len(paths), 'table')}, such as {', '.join(names)}"


def recognise_layout(source: Path, layouts: Mapping[str, Layout]) -> tuple[Layout, str]:
    """The layout of a source, and how many files fit it. Raises UsageError where none fits, or several.

    Scans decide before tables, and a layout that names more before `plain`, the last one.
    """
    scans, tables, images = files_below(source)
    names = [place_in_source(path, source) for path in (*scans, *map(as_nifti_name, images))]
    headers = [table_columns(path) for path in tables]
    fitting: dict[str, tuple[int, int]] = {}  # NIfTI files and tables
    for name, layout in layouts.items():
        of_scans = sum(bool(layout.scans and layout.scans.search(path)) for path in names)
        of_tables = sum(any(table.fits(header) for table in layout.tables) for header in headers)
        if layout.distinctive and not of_tables and not any(layout.distinctive.search(path) for path in names):
            continue
        if of_scans or (of_tables and layout.owns_tables):
            fitting[name] = of_scans, of_tables
    counts = {
        name: f"{name} ({counted(of_scans, 'NIfTI file')}, {counted(of_tables, 'table')})"
        for name, (of_scans, of_tables) in fitting.items()
    }
    *named, last = layouts
    candidates = [name for name in named if fitting.get(name, (0, 0))[0]]
    if not candidates and not fitting.get(last, (0, 0))[0]:
        candidates = [name for name in named if name in fitting]
    if len(candidates) > 1:
        several = " and ".join(counts[name] for name in candidates)
        raise UsageError(f"{source}: {several}; name the layout, or the folder of one")
    chosen = candidates[0] if candidates else last
    if chosen in fitting:
        return layouts[chosen], counts[chosen]
    if source == next(iter(tables), None):
        return layouts[chosen], "no table of a layout"  # the plain one says what it lacks
    others = f"; found {images[0].relative_to(source)}: {what_it_is(images[0])}" if images else ""
    there = f"{counted(len(scans), 'NIfTI file')} and {counted(len(tables), 'table')}"
    raise UsageError(f"{source}: {there}, in none of the layouts {', '.join(layouts)}{others}")
