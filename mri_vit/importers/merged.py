"""Merged: what was found goes in, one row per visit with a value or a gap in each column comes out, and why each gap is one."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mri_vit.errors import UsageError
from mri_vit.importers.found import NO_RULE, Found, LeftOut, Reading, Visit
from mri_vit.importers.units import mixed
from mri_vit.settings.schema import DEFAULT_ENDPOINTS

PAIRS = [(e.time, e.event) for e in DEFAULT_ENDPOINTS if e.time and e.event]  # a time and its event are known both, or neither

EVENTS = {event for _, event in PAIRS}  # whether a patient lives is known of every visit, also of one that never was


@dataclass(frozen=True)
class Imported:
    """A cohort as it is written: visits, cells by (patient, session), the readings that they come from, and what disagrees."""

    visits: tuple[Visit, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Mapping[str, str]]
    readings: tuple[Reading, ...]  # of the visits above, each with its session, and the value that its cell has
    conflicts: tuple[Reading, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]


def merge(found: Found) -> Imported:
    """One row per visit; where readings disagree the cell stays empty. Raises UsageError for a visit or id that is there twice.

    Where there are scans, rows are their visits, and patients of tables without scans are left out. Of tables alone, rows are
    the visits that these name.
    """
    visits = found.visits or _visits_of(found.readings)
    _check_names(visits)
    there = {(v.patient, v.session): v for v in visits}
    sessions: dict[str, list[str]] = {}
    for patient, session in there:
        sessions.setdefault(patient, []).append(session)
    spread = [
        replace(reading, session=session)
        for reading in found.readings
        for session in sessions.get(reading.patient, ())
        if reading.session in ("", session)
    ]
    lost = _without_scans(found, sessions)
    cells: dict[tuple[str, str], dict[str, list[Reading]]] = {visit: {} for visit in there}
    for reading in spread:
        cells[reading.patient, reading.session].setdefault(reading.column, []).append(reading)
    conflicts = [r for row in cells.values() for its in row.values() if len({r.value for r in its if r.value}) > 1 for r in its]
    kept = [_settled(r, its) for row in cells.values() for column, its in row.items() for r in _paired(column, its, row)]
    values: dict[tuple[str, str], dict[str, str]] = {visit: {} for visit in there}
    for reading in kept:
        row = values[reading.patient, reading.session]
        row[reading.column] = row.get(reading.column) or reading.value
    columns = tuple(dict.fromkeys(reading.column for reading in found.readings))
    return Imported(
        tuple(there.values()),
        columns,
        values,
        tuple(kept),
        tuple(conflicts),
        (*found.left_out, *lost),
        (*found.notes, *_suspicious(values.values())),
    )


def _without_scans(found: Found, sessions: Mapping[str, list[str]]) -> list[LeftOut]:
    """The patients, and the visits of others, of whom a table knows something and no scan is there."""
    known = {left.patient for left in found.left_out}
    lost: dict[tuple[str, str], LeftOut] = {}
    for r in found.readings:
        if r.patient in known:
            continue
        if r.patient not in sessions:
            lost[r.patient, ""] = LeftOut(r.patient, r.file, "in the table, but without scans")
        elif r.session and r.session not in sessions[r.patient] and r.value and r.column not in EVENTS:
            lost[r.patient, r.session] = LeftOut(r.patient, r.file, f"visit {r.session} is in the table, but without scans")
    return list(lost.values())


def _visits_of(readings: Iterable[Reading]) -> tuple[Visit, ...]:
    """The visits that tables speak of; a patient without any has one."""
    sessions: dict[str, dict[str, None]] = {}
    for reading in readings:
        sessions.setdefault(reading.patient, {})[reading.session] = None
    return tuple(Visit(p, s, {}) for p, its in sessions.items() for s in its if s or set(its) == {""})


def _check_names(visits: Iterable[Visit]) -> None:
    """Raise UsageError where a visit is there twice, or a patient in two spellings: on some disks these are one folder."""
    seen: set[tuple[str, str]] = set()
    spellings: dict[str, str] = {}
    for visit in visits:
        known = spellings.setdefault(unicodedata.normalize("NFKC", visit.patient).casefold(), visit.patient)
        if known != visit.patient:
            raise UsageError(f"patient {visit.patient!r} is {known!r} in another spelling; expected ids that differ by more")
        if (visit.patient, visit.session) in seen:
            named = f"patient {visit.patient}" + (f", session {visit.session}" if visit.session else "")
            raise UsageError(f"{named}: two sets of scans; expected one row or folder for each visit")
        seen.add((visit.patient, visit.session))


def _settled(reading: Reading, its: list[Reading]) -> Reading:
    """The reading with the value that its cell gets: none where others disagree."""
    if len({r.value for r in its if r.value}) > 1:
        return replace(reading, value="", rule=f"{reading.rule}; not used: readings disagree")
    return reading


def _paired(column: str, its: list[Reading], row: Mapping[str, list[Reading]]) -> list[Reading]:
    """The readings of a cell, emptied where the other half of a time and its event is not known, or a death is on day 0."""
    for time, event in PAIRS:
        if column not in (time, event):
            continue
        other = event if column == time else time
        if not _agreed(row.get(other, [])):
            return [replace(r, value="", rule=f"{r.rule}; not used: no {other}") if r.value else r for r in its]
        if float(_agreed(row[time]) or 1) == 0 and _agreed(row[event]) == "1":
            return [replace(r, value="", rule=f"{r.rule}; not used: a death on day 0") if r.value else r for r in its]
    return its


def _agreed(its: Iterable[Reading]) -> str:
    """The value that all known readings have; empty where there is none."""
    values = {r.value for r in its if r.value}
    return values.pop() if len(values) == 1 else ""


def _suspicious(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """A warning for each time whose values look as if units were mixed."""
    table = list(rows)
    found = ((time, mixed([float(row[time]) for row in table if row.get(time)])) for time, _ in PAIRS)
    return [f"{time}: {warning}" for time, warning in found if warning]


def no_rule(imported: Imported) -> list[Reading]:
    """The readings that no written rule covers."""
    return [reading for reading in imported.readings if reading.rule.startswith(NO_RULE)]
