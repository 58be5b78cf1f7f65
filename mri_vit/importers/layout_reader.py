"""Layout reader: a folder or a table of a publisher goes in; its layout, visits, scans and labels come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mri_vit.data import cohort, columns, sheet
from mri_vit.data.columns import key, nearest, our_column, suggestion
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
from mri_vit.settings import source as source_file
from mri_vit.settings.schema import CHANNELS

MADE_OF_OTHERS = ("derivatives", "sourcedata")  # of BIDS: what was made of the scans, and what they were made of
NOT_UTF8 = "the name of this file or of its folder is not UTF-8; rename it"
MASK_ALONE = "a mask, but no scan"
WHO = ("patient", "folder", "masked")  # groups of a pattern that name the patient; a pattern of alternatives has one for each


def read_source(layout: Layout, source: Path, own: Layout | None = None) -> SourceContents:
    """All that a folder, or one table, holds in this layout. Raises UsageError where that is nothing.

    Where a table names the scans' files, these are the scans; else they are known by their names. `own` is a layout by which the
    tables and scans are read that are none of this one's: tables of labels join its patients, scans are `Found.strays`.
    """
    scans, tables, images = files_below(source)
    paths = [path for path in tables if path == source or not _is_prose(path, (layout, own or layout))]
    listed: list[Visit] = []
    readings: list[Reading] = []
    notes: list[str] = []
    others = []
    for path in paths:
        kind = _fitting(layout, path)
        if not kind:
            others.append(path)
            continue
        beside = _columns_beside(kind, own) if own else replace(kind, columns=())
        notes += _not_read(replace(kind, columns=(*kind.columns, *beside.columns)), path)
        by_own: list[Reading] = []
        for row in table_rows(path):
            patient, session = _whose(layout, kind, row)
            readings += _readings(layout, kind, row, patient, session)
            by_own += _readings(own or layout, beside, row, patient, session)
            listed += _listed(kind, row, patient, session)
        readings += _without_codes(by_own)
    readings = readings if layout.collection else _without_codes(readings)
    visits, left_out, unread = (listed, [], []) if listed else visits_among(layout, source, scans)
    left_out += _in_other_formats(layout, source, images, visits)
    strays: list[Visit] = []
    if own:
        strays, lost, unread = _strays(own, source, unread, images, visits)
        left_out += lost
    others_there = _not_nifti(source, images, left_out)
    if not listed:
        apart = _unread_files(source, [*unread, *others_there], [*visits, *strays], left_out)
        left_out += [one for one in apart if one.patient or visits or readings]  # of files alone, the source is refused
    if others_there:
        name = others_there[0].relative_to(source).as_posix()
        notes.append(f"{len(others_there)} scans that are no NIfTI were not read, such as {name} ({what_it_is(others_there[0])})")
    if source in others:
        sheet.columns(source)
        raise _unlike(layout, source)
    for path in others:
        known = _ids(layout, [*visits, *strays] or readings)
        joined, lost, remarks = _own_table(layout, own, path, known)
        readings, left_out, notes = [*readings, *joined], [*left_out, *lost], [*notes, *remarks]
    if not visits and not readings and not left_out:
        if source in paths:
            raise _unlike(layout, source)
        names = [path.relative_to(source).as_posix() for path in unread]
        there = f"; found {others_there[0]}: {what_it_is(others_there[0])}" if others_there else _there(source, names, paths)
        raise UsageError(f"{source}: nothing in the layout {layout.name}, such as {layout.example}{there}")
    if unread:
        notes.insert(0, f"{len(unread)} other NIfTI files were not read, such as {unread[0].relative_to(source).as_posix()}")
    there = {found.patient for found in (*visits, *readings)}
    left_out += [LeftOut(name, None, reason) for name, reason in layout.bad.items() if name in there]
    return SourceContents(
        tuple(v for v in visits if v.patient not in layout.bad),
        tuple(r for r in readings if r.patient not in layout.bad),
        tuple(left_out),
        tuple(notes),
        tuple(strays),
    )


def _fitting(layout: Layout, path: Path) -> Table | None:
    names = table_columns(path)
    return next((kind for kind in layout.tables if kind.fits(names)), None)


def _is_prose(path: Path, layouts: Sequence[Layout]) -> bool:
    """Whether a .txt is a README and no table: its first line has no two columns of which one is read."""
    if path.suffix.lower() != TEXT_ENDING:
        return False
    names = table_columns(path)
    columns = [column for layout in layouts for kind in layout.tables for column in kind.columns]
    read = {key(name) for column in columns for name in (column.name, *column.sources)}
    read |= {key(name) for layout in layouts for kind in layout.tables for name in kind.scans}
    return len(names) < 2 or names.isdisjoint(read)


def _columns_beside(kind: Table, own: Layout) -> Table:
    """A table of the layout with columns beside the layout's own, such as the age beside MGMT_value: those that `own` reads."""
    mine = {column.name for column in kind.columns}
    more = tuple(column for table in own.tables for column in table.columns if column.name not in mine)
    sources = {key(source) for column in kind.columns for source in column.sources}
    free = tuple(replace(one, sources=tuple(name for name in one.sources if key(name) not in sources)) for one in more)
    return replace(kind, columns=free)


def _not_nifti(source: Path, images: Sequence[Path], left_out: Sequence[LeftOut]) -> list[Path]:
    """The scans in other formats of which no reason has been given yet."""
    known = {one.file for one in left_out}
    return [path for path in images if path not in known]


def _ids(layout: Layout, there: Sequence[Visit | Reading]) -> Callable[[str], tuple[str, str] | None]:
    """What gives patient and session of an id as a table of one's own may write it; None where nobody has it.

    That is the patient's id, the id with the session behind it, or one as the layout's own tables write it.
    """
    known: dict[str, tuple[str, str]] = {}
    for one in there:
        known[one.patient] = one.patient, ""
    for one in there:
        for sign in "_-" if one.session else "":
            known.setdefault(f"{one.patient}{sign}{one.session}", (one.patient, one.session))

    def whose(raw: str) -> tuple[str, str] | None:
        if raw in known:
            return known[raw]
        for match in filter(None, (kind.ids.fullmatch(raw) for kind in layout.tables)):
            patient, session = layout.called(match["patient"], match.groupdict().get("session") or "")
            if patient in known:
                return patient, session
        return None

    return whose


def _own_table(
    layout: Layout, own: Layout | None, path: Path, whose: Callable[[str], tuple[str, str] | None]
) -> tuple[list[Reading], list[LeftOut], list[str]]:
    """What a table says that is none of the layout's, by the rules of `own`; the table, if it cannot be read; and notes."""
    try:
        spelled = sheet.columns(path)
    except UsageError as fault:
        return [], [LeftOut("", path, f"not read: {str(fault).removeprefix(f'{path}: ')}")], []
    kind = _fitting(own, path) if own else None
    columns = [column for one in (own or layout).tables for column in one.columns]
    names = {column.name for column in columns}
    labels = [name for name in spelled if our_column(name) in names or any(c.like and c.like.fullmatch(name) for c in columns)]
    if not (own and kind):
        if labels and (own or not layout.collection):
            return [], [LeftOut("", path, f"not read: {', '.join(labels)}, but no patient_id, subject, id or the like")], []
        return [], [], [f"{path.name} was not read: no table of the layout {layout.name}"]
    notes = list(_not_read(kind, path))
    if not labels:
        return [], [], notes
    readings: list[Reading] = []
    for row in table_rows(path):
        known = whose(row.cell(row.first(kind.id) or kind.id[0]))
        patient, session = known or ("", "")
        if not session:
            its = _whose(own, kind, row)
            patient, session = patient or its[0], its[1]
        readings += _readings(own, kind, row, patient, session)
    notes.append(f"{path.name}: no table of the layout {layout.name}; read by the rules of {own.name}")
    return _without_codes(readings), [], notes


def _unread_files(source: Path, unread: Sequence[Path], visits: Sequence[Visit], left_out: Sequence[LeftOut]) -> list[LeftOut]:
    """The folders with scans that are not read and lie with no patient's: they may be patients, or hold them; the outermost such.

    The source itself is one of them. A file whose name is not UTF-8 is left out by itself wherever it lies.
    """
    accounted = [(visit.patient, path) for visit in visits for path in _files(visit).values()]
    accounted += [(one.patient, one.file) for one in left_out if one.patient and one.file]
    patients: dict[Path, set[str]] = {}  # by the folder of their files
    own = {*MADE_OF_OTHERS}  # names of folders that are one patient's, or hold no scans of others
    for patient, path in accounted:
        patients.setdefault(path.parent, set()).add(patient)
        names = [name for name in place_in_source(path, source).split("/")[:-1] if key(patient) in key(name)]
        own.update(names[-1:])
    above = {source, *(folder for _, path in accounted for folder in path.parents)}
    folders: dict[Path, list[Path]] = {}
    left = []
    for path in unread:
        its, inside = patients.get(path.parent, set()), path.relative_to(source)
        if not cohort.is_utf8(inside):
            left.append(LeftOut(path.parent.name if path.parent != source else "", path, NOT_UTF8))
            continue
        alone = len(its) == 1 and path.parent != source  # one patient's files lie here
        if alone or not own.isdisjoint(inside.parts) or path.name.startswith(tuple(its)):
            continue
        up = [folder for folder in path.parents if folder.is_relative_to(source)]
        apart = [folder for folder in up if folder not in above]  # without a patient's file in it or below
        folders.setdefault((apart or up[:1])[-1], []).append(path)
    for folder, files in folders.items():
        reason = (
            f"{len(files)} files, such as {files[0].name}, have no place and no name that are read, and lie with no patient's"
        )
        cure = "rename them" if folder == source else "if the folder holds patients, import the folder itself"
        left.append(LeftOut("" if folder == source else folder.relative_to(source).as_posix(), files[0], f"{reason}; {cure}"))
    return left


def _strays(
    own: Layout, source: Path, unread: list[Path], images: Sequence[Path], visits: Sequence[Visit]
) -> tuple[list[Visit], list[LeftOut], list[Path]]:
    """The visits that `own` finds among unread files, of patients who have none yet; who is left out; and what stays unread."""
    visits_found, left_out, rest = visits_among(own, source, unread)
    taken = {visit.patient for visit in visits}
    strays = [visit for visit in visits_found if visit.patient not in taken]
    left_out += _in_other_formats(own, source, images, [*visits, *strays])
    known = {path for visit in visits for path in _files(visit).values()}
    again = [path for visit in visits_found if visit.patient in taken for path in _files(visit).values() if path not in known]
    return strays, [one for one in left_out if one.patient not in taken], [*rest, *again]


def _in_other_formats(layout: Layout, source: Path, images: Sequence[Path], visits: Sequence[Visit]) -> list[LeftOut]:
    """The scans that are no NIfTI, under the layout's names, of sequences that no NIfTI file holds."""
    as_nifti = {as_nifti_name(path): path for path in images}
    there = {(visit.patient, visit.session, channel) for visit in visits for channel in _files(visit)}
    masked = {patient for patient, _, channel in there if channel not in CHANNELS}
    visits_found, alone, _ = visits_among(layout, source, list(as_nifti))
    scans = [
        LeftOut(visit.patient, as_nifti[path], f"{channel}: {source_file.other_format(as_nifti[path])}")
        for visit in visits_found
        for channel, path in _files(visit).items()
        if (visit.patient, visit.session, channel) not in there
    ]
    masks = [  # beside scans in NIfTI
        LeftOut(one.patient, as_nifti[one.file], f"mask: {source_file.other_format(as_nifti[one.file])}")
        for one in alone
        if one.file and one.reason == MASK_ALONE and one.patient not in masked
    ]
    return scans + masks


def _files(visit: Visit) -> dict[str, Path]:
    masks = {"brain_mask": visit.brain_mask, "tumour_mask": visit.tumour_mask}
    return {**visit.scans, **{name: path for name, path in masks.items() if path}}


def _not_read(kind: Table, path: Path) -> Iterator[str]:
    """How a table was read where that could be otherwise; and the columns that no rule is about, with what each may mean."""
    known = {
        key(name) for name in (*kind.id, *kind.session, *kind.scans, *(s for column in kind.columns for s in column.sources))
    }
    like = [column.like for column in kind.columns if column.like]
    read = sheet.examine(path)
    yield from (f"{path.name}: {note}" for note in read.notes)
    others = [name for name in read.header if key(name) not in known]
    if names := [name for name in others if not any(pattern.fullmatch(name) for pattern in like)]:
        meant = [f"{name} ({near}?)" if (near := suggestion(name)) else name for name in names]
        yield f"{path.name}: columns that were not read: {', '.join(meant)}"


def visits_among(layout: Layout, source: Path, scans: list[Path]) -> tuple[list[Visit], list[LeftOut], list[Path]]:
    """The visits whose scans are there, those that are left out, and files whose names are not the layout's."""
    sequences = layout.read_sequences(source) if layout.read_sequences and scans else layout.sequences
    by_visit: dict[tuple[str, str], dict[str, list[Path]]] = {}
    unread = []
    for path in scans:
        match = layout.scans.search(place_in_source(path, source)) if layout.scans else None
        words = {name: word or "" for name, word in match.groupdict().items()} if match else {}
        patient = next((words[name] for name in WHO if words.get(name)), "")
        column = (layout.sequence(words) if layout.sequence else sequences.get(key(words["sequence"]))) if patient else None
        if not column:
            unread.append(path)
            continue
        visit = layout.called(patient, words.get("session", ""))
        by_visit.setdefault(visit, {}).setdefault(column, []).append(path)
    visits, left_out = [], []
    for (patient, session), files in by_visit.items():
        reason = (
            "its name does not say whether it is T1 or T1ce; expected one label for the agent, such as ce-none or ce-gadolinium"
        )
        left_out += [LeftOut(patient, path, f"{path.name}: {reason}") for path in files.pop(UNDECIDED, [])]
        if not files:
            continue
        first = next(iter(files.values()))[0]
        twice = [f"{column} ({', '.join(path.name for path in paths)})" for column, paths in files.items() if len(paths) > 1]
        if strange := [path for paths in files.values() for path in paths if not cohort.is_utf8(path.relative_to(source))]:
            left_out.append(LeftOut(patient, strange[0], NOT_UTF8))
        elif not cohort.is_patient_id(patient) or not cohort.is_session(session):
            left_out.append(LeftOut(patient, first, "expected an id of letters, digits, '.', '_' or '-'"))
        elif not any(channel in files for channel in CHANNELS):
            left_out.append(LeftOut(patient, first, MASK_ALONE))
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
        if missing(row.cell(name)):
            continue
        path = cohort.located(row.file.parent, row.cell(name))
        if files.setdefault(column, path) != path:
            spelled = row.names[key(name)]
            raise UsageError(f"{row.file}, row {row.line}, column {spelled}: a second file for {column}; expected one")
    if files:
        yield _visit(patient, session, files)


def _whose(layout: Layout, kind: Table, row: Row) -> tuple[str, str]:
    """Patient and session of a row. Raises UsageError naming file, row and column."""
    column = row.first(kind.id) or kind.id[0]
    raw = row.cell(column)
    if key(column) in row.dates:
        raise UsageError(f"{row.file}, row {row.line}, column {column}: patient id {raw!r} {cohort.MADE_A_DATE}")
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
        if cohort.is_patient_id(patient) or columns.NOTATION.fullmatch(patient):  # 1E+05, which may be a scan's 100000
            return patient, session
    expected = "letters, digits, '.', '_' or '-'" if kind.ids is ANY_ID else f"one as in {layout.example}"
    raise UsageError(
        f"{row.file}, row {row.line}, column {column}: patient id {raw!r}; expected {expected}{cohort.shortened(raw)}"
    )


def _readings(layout: Layout, kind: Table, row: Row, patient: str, session: str) -> Iterator[Reading]:
    """What a row says. Of several columns that a collection has for one of ours the first that is filled counts, by its layout;
    in any other table each does, and they may disagree.
    """
    for column in kind.columns:
        there = [name for name in column.sources if key(name) in row.cells]
        there += [name for name in row.names.values() if column.like and column.like.fullmatch(name) and name not in there]
        filled = [name for name in there if not missing(row.cell(name))]
        for name in filled if filled and not layout.collection else [*filled, *there][:1]:
            spelled = row.names[key(name)]
            visit = session if column.session is None else column.session
            given = column.rule(row.cell(name), spelled)
            if given.value and column.unless and (why := column.unless(row)):
                given = CellValue("", f"{given.rule}; missing: {why}")
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
        if NUMBER.fullmatch(reading.raw):
            numbers.setdefault((reading.file, reading.source_column), []).append(reading)
    coded = {place for place, its in numbers.items() if {"", "0", "1"} >= {r.value for r in its} > {""}}
    coded |= {place for place, its in numbers.items() if all(r.rule.endswith(BY_CUT_OFF) and float(r.raw) <= 1 for r in its)}
    return [
        replace(r, value="", rule=f"{NO_RULE}: what the column's numbers mean is not clear")
        if (r.file, r.source_column) in coded and NUMBER.fullmatch(r.raw)
        else r
        for r in readings
    ]


def _from_visit(given: CellValue, days: str) -> CellValue:
    """A time from a visit on, of one that counts from `days` before it."""
    if not NUMBER.fullmatch(days):
        return CellValue("", f"{given.rule}; missing, as the day of the visit is not known")
    left = float(given.value) - float(days)
    if left < 0:
        return CellValue("", NO_RULE)  # dead or lost before the visit
    less = f", less the {float(days):g} days to the visit" if float(days) else ""
    return CellValue(number(str(left), "").value, given.rule + less, given.give)


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


def _there(source: Path, unread: list[str], paths: list[Path]) -> str:
    """What lies in a source that holds nothing of a layout."""
    if source_file.holds_dicom(source):
        return "; found DICOM files, which `mri-vit import dicom` reads"
    tables = Counter(path.name for path in paths)
    there = [*unread[:3], *list(tables)[:3]]
    return (
        f"; found {len(unread)} NIfTI files and {len(paths)} tables, such as {', '.join(there)}"
        if there
        else "; found no NIfTI file and no table"
    )


PATIENTS_SHOWN = 5  # patients whom a message names


def recognise_layout(source: Path, layouts: Mapping[str, Layout]) -> tuple[Layout, str]:
    """The layout of a source, and what was seen of it. Raises UsageError where it is none of them, or several.

    Scans decide before tables, and a layout that names more before `plain`, the last one.
    """
    scans, tables, images = files_below(source)
    names = [place_in_source(path, source) for path in (*scans, *map(as_nifti_name, images))]
    headers = [table_columns(path) for path in tables]
    seen: dict[str, tuple[int, int]] = {}
    for name, layout in layouts.items():
        fitting = sum(bool(layout.scans and layout.scans.search(path)) for path in names)
        read = sum(any(kind.fits(header) for kind in layout.tables) for header in headers)
        if layout.telling and not read and not any(layout.telling.search(path) for path in names):
            continue
        if fitting or (read and layout.owns_tables):
            seen[name] = fitting, read
    *named, last = layouts
    with_scans = [name for name in named if seen.get(name, (0, 0))[0]]
    candidates = with_scans or ([name for name in named if name in seen] if not seen.get(last, (0, 0))[0] else [])
    if len(candidates) > 1:
        raise UsageError(f"{source}: {_counts_of(seen, candidates)}; name the layout, or the folder of one")
    chosen = candidates[0] if candidates else last
    if chosen not in seen and source == next(iter(tables), None):
        return layouts[chosen], "no table of a layout"  # the plain one says what it lacks
    if chosen not in seen:
        others = f"; found {images[0].relative_to(source)}: {what_it_is(images[0])}" if images else ""
        raise UsageError(
            f"{source}: {len(scans)} NIfTI files and {len(tables)} tables, in none of the layouts {', '.join(layouts)}{others}"
        )
    return layouts[chosen], _counts_of(seen, [chosen])


def _counts_of(seen: Mapping[str, tuple[int, int]], names: list[str]) -> str:
    return " and ".join(f"{name} ({seen[name][0]} NIfTI files, {seen[name][1]} tables)" for name in names)


def with_strays(contents: SourceContents, layout: Layout) -> SourceContents:
    """What was found, with the visits that are not of the layout: the cohort is that of a folder then, and of no collection."""
    if not contents.strays:
        return contents
    note = f"{_counted(contents.strays)} are not of the layout {layout.name}, and are read by the plain one"
    return replace(contents, visits=(*contents.visits, *contents.strays), notes=(*contents.notes, note))


def without_strays(contents: SourceContents, layout: Layout) -> SourceContents:
    """What was found, with a reason for each visit that is not of the layout, and is not read."""
    reason = f"not of the layout {layout.name}; `mri-vit import auto` reads both"
    left = [LeftOut(visit.patient, next(iter(visit.scans.values())), reason) for visit in contents.strays]
    return replace(contents, strays=(), left_out=(*contents.left_out, *left))


def _counted(visits: Sequence[Visit]) -> str:
    names = list(dict.fromkeys(visit.patient for visit in visits))
    more = f" and {len(names) - PATIENTS_SHOWN} more" if len(names) > PATIENTS_SHOWN else ""
    return f"{len(names)} patients ({', '.join(names[:PATIENTS_SHOWN])}{more})"
