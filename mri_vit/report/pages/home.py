"""The report's folder: whether it may be written, and which files of an earlier report, by its `metrics.json`, are to go."""

from __future__ import annotations

import re
from pathlib import Path

from mri_vit.run import files
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.run.ownership import refuse_foreign, refuse_links

RECORD = files.METRICS
MARKS = {"schema", "study", "design", "endpoints"}  # keys that every version's record has
FOLDERS = ("figures", "tables", "patients", "viewer")
# A file of an earlier report, as it names them: in one of these folders, in no other, and not hidden.
OWN_FILE = re.compile(
    r"((figures|tables)/[A-Za-z0-9_][A-Za-z0-9._-]*\.(svg|png|csv)|patients/[A-Za-z0-9_][A-Za-z0-9._-]*\.(html|js|webp))"
)


def refuse(home: Path) -> None:
    """Raise UsageError when `home` holds something else than a report of ours, IntegrityError when it leads elsewhere."""
    refuse_links(home, FOLDERS)
    refuse_foreign(home, set(read_json_or_empty(home / RECORD)) >= MARKS, "report")


def listed(home: Path) -> set[str]:
    """Files that the earlier report of this folder says it wrote; none where its record cannot be read. Anybody may edit it.

    Versions before 0.5 did not list the patients' pages, but the patients who have maps.
    """
    found = read_json_or_empty(home / RECORD)
    files, maps = (value if isinstance(value, list) else [] for value in (found.get("files"), found.get("maps")))
    pages = [f"patients/{one['patient']}.html" for one in maps if isinstance(one, dict) and "patient" in one]
    return {name for name in (*files, *pages) if isinstance(name, str) and OWN_FILE.fullmatch(name)}


def delete(home: Path, names: set[str]) -> None:
    """Delete these files of an earlier report, but through no link that leads out of the folder."""
    for name in names:
        path = home / name
        if path.is_file() and path.parent.resolve() == home.resolve() / path.parent.name:
            path.unlink()
