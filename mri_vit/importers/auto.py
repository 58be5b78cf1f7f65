"""Auto: a folder or table goes in, its layout and what was seen come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mri_vit.errors import UsageError
from mri_vit.importers import table
from mri_vit.importers.found import Found, LeftOut, Visit
from mri_vit.importers.layout import Layout, files_below, place, renamed, what_it_is

SHOWN = 5  # patients whom a message names


def recognise(source: Path, layouts: Mapping[str, Layout]) -> tuple[Layout, str]:
    """The layout of a source, and what was seen of it. Raises UsageError where it is none of them, or several.

    Scans decide before tables, and a layout that names more before `plain`, the last one.
    """
    scans, tables, images = files_below(source)
    names = [place(path, source) for path in (*scans, *map(renamed, images))]
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
    if chosen not in seen and source == next(iter(tables), None):
        return layouts[chosen], "no table of a layout"  # the plain one says what it lacks
    if chosen not in seen:
        others = f"; found {images[0].relative_to(source)}: {what_it_is(images[0])}" if images else ""
        raise UsageError(
            f"{source}: {len(scans)} NIfTI files and {len(tables)} tables, in none of the layouts {', '.join(layouts)}{others}"
        )
    return layouts[chosen], _said(seen, [chosen])


def _said(seen: Mapping[str, tuple[int, int]], names: list[str]) -> str:
    return " and ".join(f"{name} ({seen[name][0]} NIfTI files, {seen[name][1]} tables)" for name in names)


def with_strays(found: Found, layout: Layout) -> Found:
    """What was found, with the visits that are not of the layout: the cohort is that of a folder then, and of no collection."""
    if not found.strays:
        return found
    said = f"{_counted(found.strays)} are not of the layout {layout.name}, and are read by the plain one"
    return replace(found, visits=(*found.visits, *found.strays), notes=(*found.notes, said))


def without_strays(found: Found, layout: Layout) -> Found:
    """What was found, with a reason for each visit that is not of the layout, and is not read."""
    reason = f"not of the layout {layout.name}; `mri-vit import auto` reads both"
    left = [LeftOut(visit.patient, next(iter(visit.scans.values())), reason) for visit in found.strays]
    return replace(found, strays=(), left_out=(*found.left_out, *left))


def _counted(visits: Sequence[Visit]) -> str:
    names = list(dict.fromkeys(visit.patient for visit in visits))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} patients ({', '.join(names[:SHOWN])}{more})"
