"""Written: an imported cohort goes in; its table, and those of origins, conflicts and exclusions come out, each whole."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from mri_vit.data import cohort
from mri_vit.data.sheet import to_csv
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.importers.found import Reading
from mri_vit.importers.merged import Imported
from mri_vit.run import files, integrity, ownership
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.schema import CHANNELS

PROVENANCE, CONFLICTS = "provenance.csv", "conflicts.csv"
IMPORT = "import.json"  # by its hash of the table, a table of ours is known
ORIGIN_COLUMNS = ("patient", "session", "column", "value", "file", "row", "source_column", "raw", "rule")


def write(imported: Imported, layout: str, source: str, folder: Path, name: str = "") -> None:
    """Write an imported cohort into a folder, which is made; `name` is its name for other cohorts, where it has one.

    Raises UsageError where the folder holds another cohort table.
    """
    refuse_foreign(folder)
    home = folder.resolve()
    table = _cohort(imported, name, home)
    folder.mkdir(parents=True, exist_ok=True)
    refuse_unreadable(table, home)
    write_record(table, layout, source, home, imported.notes)
    for file, readings in ((PROVENANCE, imported.readings), (CONFLICTS, imported.conflicts)):
        write_bytes(to_csv(ORIGIN_COLUMNS, (_origin(reading, by_session(imported)) for reading in readings)), home / file)
    excluded = ((x.patient, str(x.file or ""), x.reason) for x in imported.left_out)
    write_bytes(to_csv(("patient", "file", "reason"), excluded), home / files.EXCLUDED)
    write_bytes(table, home / files.COHORT)


def write_record(table: bytes, made_by: str, source: str, home: Path, notes: Sequence[str] = ()) -> None:
    """Write the record by which a folder and its cohort table are known as ours; before anything else, the table last.

    It has the hash of the table that stands there as well, which stays ours if the writing is cut off.
    """
    there = home / files.COHORT
    hashes = [sha256(content).hexdigest() for content in (table, *([there.read_bytes()] if there.exists() else []))]
    record = {"layout": made_by, "source": source, "cohort": hashes, "notes": list(notes)}
    write_bytes(f"{json.dumps(record, indent=1)}\n".encode(), home / IMPORT)


def refuse_unreadable(table: bytes, home: Path) -> None:
    """Raise UsageError where our own reader would refuse a table, as of a patient A_01 beside a visit 01 of A."""
    with tempfile.NamedTemporaryFile(dir=home, prefix=".cohort-", suffix=".csv") as file:
        file.write(table)
        file.flush()
        if table.count(b"\n") > 1:  # a table of nobody says so itself
            cohort.read(Path(file.name), (), needed=())


def check(source: Path, folder: Path) -> None:
    """Raise where a cohort cannot be written into a folder; nothing is made."""
    if folder.is_symlink():
        raise IntegrityError(f"{folder}: a link to {os.readlink(folder)}; expected a folder of its own")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: a file; expected a folder for the cohort")
    inputs = source.resolve() if source.is_dir() else source.resolve().parent
    if folder.resolve() == inputs or (source.is_dir() and inputs in folder.resolve().parents):
        raise UsageError(f"{folder}: in the source, which stays as it is; name a folder outside of {inputs}")


def refuse_foreign(folder: Path, also: Iterable[str] = ()) -> None:
    """Raise UsageError where a file, or a folder of the names in `also`, would be written over that we did not write.

    That is a cohort table that was changed since, and any of our names in a folder without a record of ours.
    """
    record = integrity.read_json_or_empty(folder / IMPORT)
    found = sorted({files.COHORT, PROVENANCE, CONFLICTS, files.EXCLUDED, *also} & set(ownership.entries(folder)))
    if found and "layout" not in record:
        raise UsageError(f"{folder / found[0]}: mri-vit did not write it; name another folder, or move it away")
    there = folder / files.COHORT
    if there.exists() and sha256(there.read_bytes()).hexdigest() not in record.get("cohort", ()):
        raise UsageError(f"{there}: not as mri-vit wrote it; name another folder, or move it away")


def _cohort(imported: Imported, named: str, home: Path) -> bytes:
    """The table; the column `session` is there where visits differ by it, and masks and further sequences where there are any."""
    more = dict.fromkeys(name for visit in imported.visits for name in visit.scans if name not in CHANNELS)
    channels = (*CHANNELS, *more)
    masks = [name for name in ("brain_mask", "tumour_mask") if any(getattr(v, name) for v in imported.visits)]
    sessions = ["session"] if by_session(imported) else []
    origin = ["cohort"] if named else []
    rows = []
    for visit in imported.visits:
        paths = [visit.scans.get(channel) for channel in channels] + [getattr(visit, name) for name in masks]
        cells = imported.cells[visit.patient, visit.session]
        rows.append(
            [
                visit.patient,
                *([visit.session] if sessions else []),
                *(way_to(path, home) for path in paths),
                *([named] if named else []),
                *(cells.get(column, "") for column in imported.columns),
            ]
        )
    return to_csv(("patient", *sessions, *channels, *masks, *origin, *imported.columns), rows)


def way_to(path: Path | None, home: Path) -> str:
    """The file from the table's folder, as `mri_vit.data.cohort` reads it; whole where there is no way between them."""
    if path is None:
        return ""
    whole = path.parent.resolve() / path.name  # the file's own name, which a link's target may not end in .nii
    try:
        return cohort.way(os.path.relpath(whole, home))
    except ValueError:  # another drive
        return str(whole)


def by_session(imported: Imported) -> bool:
    """Whether visits differ by their session, so that the table needs a column for it."""
    return len({visit.session for visit in imported.visits}) > 1


def _origin(reading: Reading, sessions: bool) -> Sequence[str]:
    return (
        *(
            reading.patient,
            reading.session if sessions else "",
            reading.column,
            reading.value,
            str(reading.file),
            str(reading.row),
        ),
        *(reading.source_column, reading.raw, reading.rule),
    )
