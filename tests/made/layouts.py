"""Folders as publishers lay them out, of empty files: no reader of layouts opens a scan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mri_vit.importers import cohort_table, layout_reader
from mri_vit.importers.cohort_table import Imported
from mri_vit.importers.collections import LAYOUTS


def folder(home: Path, *scans: str, tables: Mapping[str, str] = {}) -> Path:
    """A folder with empty scans and with tables of this text."""
    for name in scans:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    for name, text in tables.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    return home


def imported(name: str, source: Path) -> Imported:
    return cohort_table.merge(layout_reader.read_source(LAYOUTS[name], source))


def scans_of(found: Imported) -> dict[tuple[str, str], set[str]]:
    """The sequences and masks of each visit."""
    return {
        (v.patient, v.session): {*v.scans, *(name for name in ("brain_mask", "tumour_mask") if getattr(v, name))}
        for v in found.visits
    }
