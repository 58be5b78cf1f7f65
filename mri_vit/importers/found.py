"""What an importer finds: visits with their scans, and every label with the cell that it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NO_RULE = "no rule"  # of a reading whose value no written rule covers: it stays missing, and is listed


@dataclass(frozen=True)
class Visit:
    """Scans of one patient on one day; `session` is empty where a patient has one."""

    patient: str
    session: str
    scans: Mapping[str, Path]  # by channel: t1, t1ce, t2, flair, and adc, swi or asl where asked for
    brain_mask: Path | None = None
    tumour_mask: Path | None = None


@dataclass(frozen=True)
class Reading:
    """One cell of a source, and what becomes of it in the cohort table.

    `session` is empty where the source speaks of the patient and not of a visit; the reading is then of all their visits.
    """

    patient: str
    session: str
    column: str  # of the cohort table, such as mgmt or age
    value: str  # as the cohort table holds it; empty where it is missing
    file: Path
    row: int  # line of the file, the header being the first
    source_column: str
    raw: str
    rule: str  # in words, such as "positive is 1"; NO_RULE where none covers the raw value
    give: float = 0.0  # of a number: how far a finer reading of the same may lie from it


@dataclass(frozen=True)
class LeftOut:
    """A patient, visit or file that is not in the cohort, and why."""

    patient: str
    file: Path | None
    reason: str


@dataclass(frozen=True)
class Found:
    """All that an importer found; visits and readings need not be of the same patients."""

    visits: tuple[Visit, ...]
    readings: tuple[Reading, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()  # what the reader should know beside, a sentence each
    strays: tuple[Visit, ...] = ()  # visits whose scans are not of the layout, as the plain layout reads them
