"""Import: a layout or DICOM goes in; a cohort's folder with its tables and its recommended study comes out."""

from __future__ import annotations

import difflib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mri_vit.data import cohort, columns, sheet
from mri_vit.data.cohort import Patient
from mri_vit.data.sheet import to_csv
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.importers import dicom, who
from mri_vit.importers.cohort_table import Imported, merge, no_rule, other_forms, similar_ids, with_ids_of_scans
from mri_vit.importers.collections import LAYOUTS, PLAIN
from mri_vit.importers.dicom.identity import Hasher, default_key, load_hasher
from mri_vit.importers.layout import SAME_AS, Layout, LeftOut, Reading, SourceContents
from mri_vit.importers.layout_reader import read_source, recognise_layout
from mri_vit.kinds import kind
from mri_vit.run import atomic, files, integrity
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import WARNING, counted, say
from mri_vit.run.screen import plain as as_text
from mri_vit.settings.recipe import CHANNELS, FLAIR, REFERENCE, Train
from mri_vit.settings.schema import DEFAULT_ENDPOINTS, MIN_CLASSES, Endpoint

PROVENANCE, CONFLICTS = "provenance.csv", "conflicts.csv"
IMPORT = "import.json"  # its hash of the table shows that mri-vit wrote the table
MASKS = ("brain_mask", "tumour_mask")
ORIGIN_COLUMNS = ("patient", "session", "column", "value", "file", "row", "source_column", "raw", "rule")


def write_cohort(imported: Imported, layout: str, source: str, folder: Path, name: str = "") -> None:
    """Write an imported cohort into a folder, which is made; `name` is its name for other cohorts, where it has one.

    A column `session` is written where visits differ by it, masks and further sequences where a visit has any.
    Raises UsageError where the folder holds another cohort table.
    """
    refuse_foreign(folder)
    home = folder.resolve()
    visits = imported.visits
    channels = (*CHANNELS, *dict.fromkeys(name for visit in visits for name in visit.scans if name not in CHANNELS))
    masks = [mask for mask in MASKS if any(getattr(visit, mask) for visit in visits)]
    by_session = len({visit.session for visit in visits}) > 1
    rows = []
    for visit in visits:
        paths = [*(visit.scans.get(channel) for channel in channels), *(getattr(visit, mask) for mask in masks)]
        cells = imported.cells[visit.patient, visit.session]
        rows.append(
            [
                *([visit.patient, visit.session] if by_session else [visit.patient]),
                *(relative_path(path, home) for path in paths),
                *([name] if name else []),
                *(cells.get(column, "") for column in imported.columns),
            ]
        )
    fixed = ["patient", *["session"] * by_session, *channels, *masks, *["cohort"] * bool(name)]
    table = to_csv((*fixed, *imported.columns), rows)
    folder.mkdir(parents=True, exist_ok=True)
    refuse_unreadable(table, home)
    write_record(table, layout, source, home, imported.notes)
    for file, readings in ((PROVENANCE, imported.readings), (CONFLICTS, imported.conflicts)):
        origins = (
            (r.patient, r.session * by_session, r.column, r.value, str(r.file), str(r.row), r.source_column, r.raw, r.rule)
            for r in readings
        )
        write_bytes(to_csv(ORIGIN_COLUMNS, origins), home / file)
    excluded = ((left.patient, str(left.file or ""), left.reason) for left in imported.left_out)
    write_bytes(to_csv(("patient", "file", "reason"), excluded), home / files.EXCLUDED)
    write_bytes(table, home / files.COHORT)


def write_record(table: bytes, made_by: str, source: str, home: Path, notes: Sequence[str] = ()) -> None:
    """Write the record that marks a folder and its cohort table as ours; before anything else, the table last.

    It has the hash of the table that is there already as well, which stays ours if the writing is cut off.
    """
    old = home / files.COHORT
    hashes = [sha256(content).hexdigest() for content in (table, *([old.read_bytes()] if old.exists() else []))]
    record = {"layout": made_by, "source": source, "cohort": hashes, "notes": list(notes)}
    write_bytes(f"{json.dumps(record, indent=1)}\n".encode(), home / IMPORT)


def refuse_unreadable(table: bytes, home: Path) -> None:
    """Raise UsageError where our own reader would refuse a table, as of a patient A_01 beside a visit 01 of A."""
    with tempfile.NamedTemporaryFile(dir=home, prefix=".cohort-", suffix=".csv") as file:
        file.write(table)
        file.flush()
        if table.count(b"\n") > 1:  # there is a row to read
            cohort.read(Path(file.name), (), needed=())


def check_destination(source: Path, folder: Path) -> None:
    """Raise where a cohort cannot be written into a folder; nothing is made."""
    if folder.is_symlink():
        raise IntegrityError(f"{folder}: a link to {os.readlink(folder)}; expected a folder of its own")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: a file; expected a folder for the cohort")
    inputs = source.resolve() if source.is_dir() else source.resolve().parent
    if folder.resolve() == inputs or (source.is_dir() and inputs in folder.resolve().parents):
        raise UsageError(f"{folder}: inside the source, which is not changed; name a folder outside of {inputs}")


def refuse_foreign(folder: Path, also: Iterable[str] = ()) -> None:
    """Raise UsageError where a file, or a folder of the names in `also`, would be written over that we did not write.

    That is a cohort table that was changed since, and any of our names in a folder without a record of ours.
    """
    record = integrity.read_json_or_empty(folder / IMPORT)
    present = sorted({files.COHORT, PROVENANCE, CONFLICTS, files.EXCLUDED, *also} & set(atomic.entries(folder)))
    if present and "layout" not in record:
        raise UsageError(f"{folder / present[0]}: mri-vit did not write it; name another folder, or move it away")
    table = folder / files.COHORT
    if table.exists() and sha256(table.read_bytes()).hexdigest() not in record.get("cohort", ()):
        raise UsageError(f"{table}: not as mri-vit wrote it; name another folder, or move it away")


def relative_path(path: Path | None, home: Path) -> str:
    """The file from the table's folder, as `mri_vit.data.cohort` reads it; absolute where there is no relative path."""
    if path is None:
        return ""
    absolute = path.parent.resolve() / path.name  # the file's own name, which a link's target may not end in .nii
    return cohort.way(files.path_from(home, absolute))


MARKERS = (*DEFAULT_ENDPOINTS, *(Endpoint(name=name, kind="binary") for name in ("idh", "idh1")))  # usual labels, studied or not
POSSIBLE = (  # that a user may want to study, and that no study gets by itself: every endpoint costs power
    Endpoint(name="who_type", kind="multiclass", classes=who.TYPES),
    Endpoint(name="grade", kind="ordinal", classes=who.GRADES),
)
HOMES = {"prepared": "prepared", "output": "run"}  # folders of the study
MIN_PER_CLASS = 2  # patients of a class: one to train on and one to test on, the fewest that folds need
STUDY_HEAD = """\
# The study that we recommend for the cohort in this folder, written by `mri-vit import`.
# See provenance.csv for the origin of every label, conflicts.csv and excluded.csv for what was not used, then:
#   mri-vit check study.toml      reads this file and the table, starts nothing
#   mri-vit run study.toml        prepares, trains, explains and reports
# `mri-vit settings study.toml` shows all other keys. Scans with a skull need the extra "brain", or brain masks in the table.

"""
NO_LABEL = """
# No label can be studied yet: `mri-vit check` names what is missing. Add it to the table, or name other labels here.
"""
MORE = """
# more endpoints that this table could support; each costs the others power, so name in advance the ones that you study
"""
PLACEHOLDER = (Endpoint(name="mgmt", kind="binary"),)  # where the table has no label: check names this one column only


def write_study(name: str, folder: Path, console: Console, known: Sequence[Endpoint] = MARKERS) -> None:
    """Write the study file beside a cohort's table where there is none: one that a user may have changed stays."""
    path = folder / files.STUDY
    if path.exists():
        say(console, f"{path} exists and is kept")
    else:
        write_bytes(study_file(name, folder / files.COHORT, known).encode(), path)
        say(console, f"study file {path}")


def study_file(name: str, table: Path, known: Sequence[Endpoint] = MARKERS) -> str:
    """The recommended study of a cohort table that lies beside the study file, with the endpoints that can be studied.

    Where none can, it has those of which the table has columns, so that `check` names what each lacks. `known` are the endpoints
    that are considered. Raises UsageError where the table cannot be read.
    """
    header = sheet.columns(table)
    reasons: dict[str, str] = {}
    labelled = []
    for endpoint in (one for one in known if set(one.columns) <= set(header)):
        try:
            labelled.append(kind.labels(endpoint).completed(endpoint, table))
        except UsageError as fault:  # classes that were left to the table are too few or too many
            reasons[endpoint.name] = str(fault).removeprefix(f"{table}, ")
    patients = cohort.read(table, tuple(labelled), needed=())
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"name": name, "cohort": table.name, **HOMES}.items()]
    present = [channel for channel in CHANNELS if any(patient.scans[channel] for patient in patients)]
    if present and len(present) < len(CHANNELS):
        lines.append(f"channels = {json.dumps(present)}  # those of t1, t1ce, t2 and flair that any patient has")
    if FLAIR not in present and not any(patient.tumour_mask for patient in patients):
        lines.append('recipe = "no-masks"  # tumours are found in FLAIR, and the table has no masks of them')
    if present and REFERENCE not in present:
        words = "to which the others are aligned; it is T1ce where there is one"
        lines += ["", "[prepare]", f'reference = "{present[0]}"  # {words}']
    first = cohort.first_visits(patients)
    reasons |= {endpoint.name: _unfit(endpoint, first) for endpoint in labelled}
    studied = [endpoint for endpoint in labelled if not reasons[endpoint.name]]
    rarest = {endpoint.name: _rarest(endpoint, first) for endpoint in studied}
    usual = Train().folds
    if rarest and min(rarest.values()) < usual:
        scarce = min(rarest, key=rarest.__getitem__)
        words = f"not {usual}: so many patients are in the rarer class of {scarce}, or died"
        lines += ["", "[train]", f"folds = {rarest[scarce]}  # {words}"]
    text = STUDY_HEAD + "".join(f"{line}\n" for line in lines)
    text += "".join(f"\n# Not studied: {name}; {reason}.\n" for name, reason in reasons.items() if reason)
    text += NO_LABEL * (not studied)
    for endpoint in studied or labelled or PLACEHOLDER:
        text += "\n" + _section(endpoint)
    more = [endpoint for endpoint in POSSIBLE if endpoint.name not in reasons and _has_classes(endpoint, table, header)]
    return text + MORE * bool(more) + "#\n".join(re.sub("(?m)^", "# ", _section(one).rstrip()) + "\n" for one in more)


def _section(endpoint: Endpoint) -> str:
    """An endpoint as a study file has it."""
    fields = endpoint.model_dump(exclude_none=True).items()
    return "[[endpoints]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields)


def _has_classes(endpoint: Endpoint, table: Path, header: Collection[str]) -> bool:
    """Whether a table has an endpoint's column, with no other words than its classes, and enough patients of enough of them."""
    if not set(endpoint.columns) <= set(header):
        return False
    try:
        patients = cohort.first_visits(cohort.read(table, (endpoint,), needed=()))
    except UsageError:
        return False  # a table of the user's own, with classes of other names
    count = Counter(stratum for stratum in cohort.strata(patients, endpoint) if stratum != "?")
    return len(count) >= MIN_CLASSES and min(count.values()) >= MIN_PER_CLASS


def _unfit(endpoint: Endpoint, patients: Sequence[Patient]) -> str:
    """Why an endpoint cannot be studied; "" where it can. Only the first visit of each patient counts, as in the folds."""
    count = Counter(stratum for stratum in cohort.strata(patients, endpoint) if stratum != "?")
    if not count:
        return "no label is known"
    if kind.labels(endpoint).rarest(count) >= MIN_PER_CLASS and kind.labels(endpoint).is_learnable(set(count)):
        return ""
    counts = kind.labels(endpoint).counted(endpoint, count)
    return f"{counts}; training needs {MIN_PER_CLASS} {kind.labels(endpoint).rarer}"


def _rarest(endpoint: Endpoint, patients: Sequence[Patient]) -> int:
    """How many patients the rarer class has, or how many died: there are no more folds, as each has one of them."""
    return kind.labels(endpoint).rarest(Counter(one for one in cohort.strata(patients, endpoint) if one != "?"))


AUTO, DICOM = "auto", "dicom"
LABELS = "labels"  # in place of the path of a hospital's table, which may name a patient
VISIT_NUMBER = re.compile(r"|\d\d")  # as the import of DICOM numbers visits; a date has more digits
MOST_PRINTED = 5  # reasons, cells without a rule or patients that are listed


def import_layout(name: str, source: Path, folder: Path, console: Console, join_similar_ids: bool = False) -> bool:
    """Import a source in a layout into a cohort's folder; whether something needs a look: left out, in conflict, or without rule.

    With `join_similar_ids` ids of a table that differ from the scans' only in form are joined to them, where unambiguous.
    Raises UsageError for an unknown layout or an unusable source, before anything is written.
    """
    if name not in (AUTO, *LAYOUTS):
        near = difflib.get_close_matches(name, (AUTO, *LAYOUTS), n=1, cutoff=0.0)[0]
        raise UsageError(f"no layout {name!r}; the nearest one is {near!r} (there are {AUTO}, {', '.join(LAYOUTS)})")
    check_destination(source, folder)
    if name == AUTO:
        chosen, counts = recognise_layout(source, LAYOUTS)
        say(console, f"{source} is {counts}")
    else:
        chosen = LAYOUTS[name]
    contents = read_source(chosen, source, PLAIN if chosen.name != PLAIN.name else None)
    contents = _with_strays(contents, chosen) if name == AUTO else _without_strays(contents, chosen)
    imported = merge(with_ids_of_scans(contents) if join_similar_ids else contents)
    write_cohort(imported, chosen.name, str(source), folder, chosen.name if chosen.collection and not contents.strays else "")
    return _finish(imported, chosen.name, folder, console)


def _with_strays(contents: SourceContents, layout: Layout) -> SourceContents:
    """The contents with the visits of other layouts: the cohort is then named by its folder, and by no collection."""
    names = list(dict.fromkeys(visit.patient for visit in contents.strays))
    if not names:
        return contents
    more = f" and {len(names) - MOST_PRINTED} more" if len(names) > MOST_PRINTED else ""
    patients = f"{counted(len(names), 'patient')} ({', '.join(names[:MOST_PRINTED])}{more})"
    are = "is" if len(names) == 1 else "are"
    note = f"{patients} {are} not of the layout {layout.name}, and {are} read by the plain one"
    return replace(contents, visits=(*contents.visits, *contents.strays), notes=(*contents.notes, note))


def _without_strays(contents: SourceContents, layout: Layout) -> SourceContents:
    """The contents with a reason for each visit that is not of the layout, and is not read."""
    reason = f"not of the layout {layout.name}; `mri-vit import auto` reads both"
    left = [LeftOut(visit.patient, next(iter(visit.scans.values())), reason) for visit in contents.strays]
    return replace(contents, strays=(), left_out=(*contents.left_out, *left))


def import_dicom(
    source: Path | str,
    folder: Path,
    console: Console,
    key: Path | None = None,
    choices: Path | None = None,
    also: Sequence[str] = (),
    labels: Path | None = None,
    join_similar_ids: bool = False,
) -> bool:
    """Import DICOM, in a folder or from the address of a server, into a cohort's folder; whether something needs a look.

    Parameters
    ----------
    key, choices, also : as those of `dicom.importer.read`.
    labels : a plain table of the patients' labels, under the PatientID of the headers; ids in it are hashed as well.
    join_similar_ids : whether its ids that differ from those of the headers only in form are joined, where unambiguous.

    Raises
    ------
    UsageError for a source, a table or a folder that cannot be used; IntegrityError for one that leads elsewhere.
    """
    importer = dicom.reader()
    atomic.refuse_link(folder)
    refuse_foreign(folder, importer.WRITTEN)
    hasher = load_hasher(key or default_key(folder), folder) if labels else None
    known = _labels_of(labels) if labels else []
    with importer.files_of(source, folder) as files_there:
        contents = importer.read(
            files_there,
            folder,
            key,
            choices,
            also,
            say=lambda line: say(console, line, WARNING),
            begin=lambda: write_record(b"", DICOM, DICOM, folder.resolve()),
        )
    if hasher:
        scanned = {entry.patient for entry in (*contents.visits, *contents.left_out)}
        known = _under_hashes(known, hasher, scanned, join_similar_ids, console)
    once = {visit.patient for visit in contents.visits if not visit.session}  # whose only visit a table may call the first
    known = [replace(r, session="") if r.patient in once and r.session == "01" else r for r in known]
    imported = merge(SourceContents(contents.visits, tuple(known) if contents.visits else (), contents.left_out))
    write_cohort(imported, DICOM, DICOM, folder)  # the source's path may name a patient
    return _finish(imported, DICOM, folder, console)


def _labels_of(labels: Path) -> list[Reading]:
    """The readings of a table. Raises UsageError where a visit is not a number: a date must not get into an output."""
    readings = read_source(PLAIN, labels).readings
    for reading in readings:
        if not VISIT_NUMBER.fullmatch(reading.session):
            expected = "the number of a visit by its date, such as 01, or nothing where a patient has one"
            raise UsageError(f"{labels}, row {reading.row}: visit {reading.session!r}; expected {expected}")
    return [reading for reading in readings if reading.column != SAME_AS]


def _under_hashes(
    readings: Sequence[Reading], hasher: Hasher, scanned: Collection[str], join_similar_ids: bool, console: Console
) -> list[Reading]:
    """The readings with hashes for their ids, without the raw cells that no rule covers, which may hold anything.

    An id that is not among those of the scans, which are hashes, is tried in other spellings.
    """
    names = dict.fromkeys(reading.patient for reading in readings)
    hashed = {name: hasher.patient(name) for name in names}
    tried = {
        name: [other for other in columns.id_spellings(name) if hasher.patient(other) in scanned]
        for name, own in hashed.items()
        if own not in scanned
    }
    if pairs := {name: others for name, others in tried.items() if others}:
        say(console, other_forms(names, pairs), WARNING)
        if join_similar_ids:
            hashed |= {name: hasher.patient(other) for name, other in columns.unambiguous(names, pairs).items()}
    for warning in similar_ids(names):
        say(console, warning, WARNING)
    return [
        replace(
            reading,
            patient=hashed[reading.patient],
            file=Path(LABELS),
            source_column=reading.column,
            raw=reading.raw if reading.value else "",
        )
        for reading in readings
    ]


def _finish(imported: Imported, name: str, folder: Path, console: Console) -> bool:
    """Print what a cohort holds, label by label, and write its study; whether something needs a look."""
    visits = imported.visits
    scans = ", ".join(f"{channel} {sum(channel in v.scans for v in visits)}" for channel in CHANNELS)
    say(console, f"{counted(len({v.patient for v in visits}), 'patient')}, {counted(len(visits), 'visit')}; scans: {scans}")
    if imported.columns:
        console.print(_label_counts(imported))
    reasons = Counter(left.reason for left in imported.left_out)
    for reason, count in reasons.most_common(MOST_PRINTED):
        say(console, f"left out: {count} × {reason}", WARNING)
    if len(reasons) > MOST_PRINTED:
        say(console, f"left out: {counted(len(reasons) - MOST_PRINTED, 'more reason')}, in {files.EXCLUDED}", WARNING)
    unruled = no_rule(imported)
    cells: dict[tuple[str, str], list[Reading]] = {}
    for reading in unruled:
        cells.setdefault((reading.column, reading.raw), []).append(reading)
    for (column, raw), (first, *others) in sorted(cells.items(), key=lambda item: -len(item[1]))[:MOST_PRINTED]:
        more = f", and {counted(len(others), 'more cell')}" if others else ""
        where = f"{first.file}, row {first.row}, column {first.source_column}{more}"
        say(console, f"no rule for {raw!r} ({where}); {column} is missing there", WARNING)
    for note in imported.notes:
        say(console, note, WARNING)
    say(console, f"cohort table {folder / files.COHORT}; every cell's origin is in {PROVENANCE}")
    if visits:
        write_study(name, folder, console)
    return bool(imported.left_out or imported.conflicts or unruled)


def _label_counts(imported: Imported) -> Table:
    """For each column how many visits have a value, how many have none, and how many of these because of a rule or a conflict."""
    visits = list(imported.cells.values())
    unruled, conflicts = (
        Counter(name for _, _, name in {(r.patient, r.session, r.column) for r in readings})
        for readings in (no_rule(imported), imported.conflicts)
    )
    table = Table("column", "known", "missing", "no rule", "conflict", box=None)
    for column in imported.columns:
        known = sum(bool(row.get(column)) for row in visits)
        counts = (known, len(visits) - known, unruled[column], conflicts[column])
        table.add_row(as_text(column), *map(str, counts))
    return table
