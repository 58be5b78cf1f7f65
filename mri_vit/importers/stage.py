"""Stage: a layout's name and a source go in, a cohort's folder comes out, and a table on the screen says what is in it."""

from __future__ import annotations

import difflib
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mri_vit.errors import UsageError
from mri_vit.importers import auto, layout, written
from mri_vit.importers.layouts import LAYOUTS
from mri_vit.importers.merged import Imported, merge, no_rule
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import WARNING, plain, say
from mri_vit.settings.schema import CHANNELS

AUTO = "auto"


def import_layout(name: str, source: Path, folder: Path, console: Console) -> bool:
    """Import a source in a layout into a cohort's folder; whether something needs a look: left out, in conflict, or without rule.

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
    imported = merge(layout.read(chosen, source))
    written.write(imported, chosen.name, source, folder)
    if name == AUTO:
        _write_study(auto.study_file(chosen.name, imported), folder / files.STUDY, console)
    show(imported, folder, console)
    return bool(imported.left_out or imported.conflicts or no_rule(imported))


def _write_study(text: str, path: Path, console: Console) -> None:
    """Write a study file where there is none: what somebody changed in one is theirs."""
    if path.exists():
        say(console, f"{path} is there already and stays")
    else:
        write_bytes(text.encode(), path)
        say(console, f"study file {path}")


def show(imported: Imported, folder: Path, console: Console) -> None:
    """Print what a cohort holds, label by label, and where to look for the rest."""
    visits = imported.visits
    scans = ", ".join(f"{channel} {sum(channel in v.scans for v in visits)}" for channel in CHANNELS)
    say(console, f"{len({v.patient for v in visits})} patients, {len(visits)} visits; scans: {scans}")
    if imported.columns:
        console.print(_labels(imported))
    for reason, count in Counter(left.reason for left in imported.left_out).most_common(5):
        say(console, f"left out: {count} × {reason}", WARNING)
    for reading in no_rule(imported)[:5]:
        where = f"{reading.file}, row {reading.row}, column {reading.source_column}"
        say(console, f"no rule for {reading.raw!r} ({where}); {reading.column} is missing there", WARNING)
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
        table.add_row(plain(column), *map(str, counts))
    return table
