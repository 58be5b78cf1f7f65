"""Auto: a folder or table goes in, its layout and what was seen come out; and of an imported cohort a first study file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mri_vit.errors import UsageError
from mri_vit.importers import table
from mri_vit.importers.layout import Layout, files_below
from mri_vit.importers.merged import Imported
from mri_vit.settings.endpoint import DEFAULT_ENDPOINTS
from mri_vit.settings.sequences import CHANNELS, REFERENCE

BINARY = ("mgmt", "pten", "tertp", "idh", "idh1")
OS = next(endpoint for endpoint in DEFAULT_ENDPOINTS if endpoint.kind == "survival")
STUDY = """\
# A first study of the cohort in this folder, which `mri-vit import auto` wrote from the layout {layout}.
# Look at provenance.csv for the origin of every label, at conflicts.csv and excluded.csv for what was not used, then:
#   mri-vit check study.toml      reads this file and the table, starts nothing
#   mri-vit run study.toml        prepares, trains, explains and reports
# All other keys have defaults; `mri-vit run --help` lists them. We recommend configs/gbm.toml, with tumour masks gbm_masks.toml.

name = "{layout}"
cohort = "cohort.csv"  # paths are relative to this file
prepared = "prepared"
output = "run"
seed = 0
{channels}
[prepare]
{reference}brain = "auto"  # stripped scans are noticed; others need the extra "brain", or masks in the table
workers = 1
# needs = ["t1ce", "flair"]  # sequences without which a patient is excluded; all where it is not set

[train]
folds = 5  # all visits of a patient stay in one fold
"""
NONE = """
# No label has two classes here. Add a column to the table and three lines for each:
# [[endpoints]]
# name = "mgmt"
# kind = "binary"
"""


def recognise(source: Path, layouts: Mapping[str, Layout]) -> tuple[Layout, str]:
    """The layout of a source, and what was seen of it. Raises UsageError where it is none of them, or several.

    Scans decide before tables, and a layout that names more before `plain`, the last one.
    """
    scans, tables = files_below(source)
    names = [path.relative_to(source).as_posix() for path in scans]
    headers = [table.header(path) for path in tables]
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
        raise UsageError(f"{source}: {_said(seen, candidates)}; name the layout, or the folder of one")
    chosen = candidates[0] if candidates else last
    if chosen not in seen:
        raise UsageError(
            f"{source}: {len(scans)} NIfTI files and {len(tables)} tables, in none of the layouts {', '.join(layouts)}"
        )
    return layouts[chosen], _said(seen, [chosen])


def _said(seen: Mapping[str, tuple[int, int]], names: list[str]) -> str:
    return " and ".join(f"{name} ({seen[name][0]} NIfTI files, {seen[name][1]} tables)" for name in names)


def study_file(layout: str, imported: Imported) -> str:
    """A commented study file for an imported cohort, with the endpoints of which the table has labels."""
    rows = list(imported.cells.values())
    binary = [name for name in BINARY if len({row.get(name) for row in rows} - {"", None}) == 2]
    endpoints = [f'\n[[endpoints]]\nname = "{name}"\nkind = "binary"\n' for name in binary]
    if OS.time and any(row.get(OS.time) for row in rows):
        endpoints.append(f'\n[[endpoints]]\nname = "{OS.name}"\nkind = "survival"\ntime = "{OS.time}"\nevent = "{OS.event}"\n')
    there = [name for name in CHANNELS if any(name in visit.scans for visit in imported.visits)]
    fewer = f"channels = {json.dumps(there)}  # of t1, t1ce, t2 and flair those that any patient has\n" if there else ""
    other = f'reference = "{there[0]}"  # to which the others are aligned; it is T1ce where there is one\n' if there else ""
    keys = {
        "channels": fewer if len(there) < len(CHANNELS) else "",
        "reference": other if REFERENCE not in there else "",
    }
    return STUDY.format(layout=layout, **keys) + ("".join(endpoints) or NONE)
