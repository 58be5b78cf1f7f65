"""Stage: a layout or DICOM goes in, a cohort's folder comes out, and a table on the screen says what is in it."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mri_vit.data import spellings
from mri_vit.errors import UsageError
from mri_vit.importers import auto, dicom, layout, written
from mri_vit.importers.dicom import identity
from mri_vit.importers.found import Found, Reading
from mri_vit.importers.layouts import LAYOUTS, plain
from mri_vit.importers.merged import Imported, merge, no_rule, other_forms, with_ids_of_scans
from mri_vit.importers.recommended import write_study
from mri_vit.importers.rules import SAME_AS
from mri_vit.run import atomic, files
from mri_vit.run.screen import WARNING, say
from mri_vit.run.screen import plain as as_text
from mri_vit.settings.schema import CHANNELS

AUTO, DICOM = "auto", "dicom"
LABELS = "labels"  # in place of the path of a hospital's table, which may name a patient
VISIT_NUMBER = re.compile(r"|\d\d")  # as the import of DICOM numbers visits; a date has more digits


def import_layout(name: str, source: Path, folder: Path, console: Console, join_similar_ids: bool = False) -> bool:
    """Import a source in a layout into a cohort's folder; whether something needs a look: left out, in conflict, or without rule.

    With `join_similar_ids` a table's ids that differ from the scans' only in form are these, where no other could be meant.
    Raises UsageError for an unknown layout or an unusable source, before anything is written.
    """
    if name not in (AUTO, *LAYOUTS):
        near = difflib.get_close_matches(name, (AUTO, *LAYOUTS), n=1, cutoff=0.0)[0]
        raise UsageError(f"no layout {name!r}; the nearest one is {near!r} (there are {AUTO}, {', '.join(LAYOUTS)})")
    written.check(source, folder)
    if name == AUTO:
        chosen, seen = auto.recognise(source, LAYOUTS)
        say(console, f"{source} is {seen}")
    else:
        chosen = LAYOUTS[name]
    found = layout.read(chosen, source, plain.LAYOUT if chosen.name != plain.LAYOUT.name else None)
    found = auto.with_strays(found, chosen) if name == AUTO else auto.without_strays(found, chosen)
    imported = merge(with_ids_of_scans(found) if join_similar_ids else found)
    written.write(imported, chosen.name, str(source), folder, chosen.name if chosen.collection and not found.strays else "")
    show(imported, folder, console)
    if imported.visits:
        write_study(chosen.name, folder, console)
    return bool(imported.left_out or imported.conflicts or no_rule(imported))


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
    labels : a plain table of what is known of the patients, under the PatientID of the headers; ids in it are hashed as well.
    join_similar_ids : whether its ids that differ from those of the headers only in form are these, where unambiguous.

    Raises
    ------
    UsageError for a source, a table or a folder that cannot be used; IntegrityError for one that leads elsewhere.
    """
    importer = dicom.reader()
    atomic.refuse_link(folder)
    written.refuse_foreign(folder, importer.WRITTEN)
    hasher = identity.hasher(key or identity.default_key(folder), folder) if labels else None
    known = _labels_of(labels) if labels else []
    with importer.files_of(source, folder) as files_there:
        found = importer.read(
            files_there,
            folder,
            key,
            choices,
            also,
            say=lambda line: say(console, line, WARNING),
            begin=lambda: written.write_record(b"", DICOM, DICOM, folder.resolve()),
        )
    if hasher:
        there = {one.patient for one in (*found.visits, *found.left_out)}
        known = _under_hashes(known, hasher, there, join_similar_ids, console)
    once = {visit.patient for visit in found.visits if not visit.session}  # whose only visit a table may call the first
    known = [replace(one, session="") if one.patient in once and one.session == "01" else one for one in known]
    imported = merge(Found(found.visits, tuple(known) if found.visits else (), found.left_out))
    written.write(imported, DICOM, DICOM, folder)  # the source's path may name a patient
    show(imported, folder, console)
    if imported.visits:
        write_study(DICOM, folder, console)
    return bool(imported.left_out or imported.conflicts or no_rule(imported))


def _labels_of(labels: Path) -> list[Reading]:
    """What a table says. Raises UsageError where a visit is not called by its number: a date must not get into an output."""
    readings = layout.read(plain.LAYOUT, labels).readings
    for reading in readings:
        if not VISIT_NUMBER.fullmatch(reading.session):
            expected = "the number of a visit by its date, such as 01, or nothing where a patient has one"
            raise UsageError(f"{labels}, row {reading.row}: visit {reading.session!r}; expected {expected}")
    return [reading for reading in readings if reading.column != SAME_AS]


def _under_hashes(
    readings: Sequence[Reading], hasher: identity.Hasher, scanned: Collection[str], join_similar_ids: bool, console: Console
) -> list[Reading]:
    """The readings with hashes for their ids. Cells that no rule covers may hold anything, and are left out.

    An id that is not among those of the scans, which are hashes, is tried in other spellings.
    """
    names = dict.fromkeys(reading.patient for reading in readings)
    hashed = {name: hasher.patient(name) for name in names}
    tried = {
        name: [other for other in spellings.spellings(name) if hasher.patient(other) in scanned]
        for name, own in hashed.items()
        if own not in scanned
    }
    if pairs := {name: others for name, others in tried.items() if others}:
        say(console, other_forms(names, pairs), WARNING)
        if join_similar_ids:
            hashed |= {name: hasher.patient(other) for name, other in spellings.unambiguous(names, pairs).items()}
    for alike in spellings.alike(names):
        say(console, f"the ids {', '.join(alike)} differ only in form: one patient?", WARNING)
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


def show(imported: Imported, folder: Path, console: Console) -> None:
    """Print what a cohort holds, label by label, and where to look for the rest."""
    visits = imported.visits
    scans = ", ".join(f"{channel} {sum(channel in v.scans for v in visits)}" for channel in CHANNELS)
    say(console, f"{len({v.patient for v in visits})} patients, {len(visits)} visits; scans: {scans}")
    if imported.columns:
        console.print(_labels(imported))
    for reason, count in Counter(left.reason for left in imported.left_out).most_common(5):
        say(console, f"left out: {count} × {reason}", WARNING)
    cells: dict[tuple[str, str], list[Reading]] = {}
    for reading in no_rule(imported):
        cells.setdefault((reading.column, reading.raw), []).append(reading)
    for (column, raw), (first, *others) in sorted(cells.items(), key=lambda item: -len(item[1]))[:5]:
        where = f"{first.file}, row {first.row}, column {first.source_column}" + f", and {len(others)} more cells" * bool(others)
        say(console, f"no rule for {raw!r} ({where}); {column} is missing there", WARNING)
    for note in imported.notes:
        say(console, note, WARNING)
    say(console, f"cohort table {folder / files.COHORT}; every cell's origin is in {written.PROVENANCE}")


def _labels(imported: Imported) -> Table:
    """For each column how many visits have a value, how many have none, and of how many of these no rule or a conflict is why."""
    visits = list(imported.cells.values())
    unruled, conflicts = (
        Counter(name for _, _, name in {(r.patient, r.session, r.column) for r in readings})
        for readings in (no_rule(imported), imported.conflicts)
    )
    table = Table("column", *(name for name in ("known", "missing", "no rule", "conflict")), box=None)
    for column in imported.columns:
        known = sum(bool(row.get(column)) for row in visits)
        counts = (known, len(visits) - known, unruled[column], conflicts[column])
        table.add_row(as_text(column), *map(str, counts))
    return table
