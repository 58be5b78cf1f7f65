"""Merged: what was found goes in, one row per visit with a value or a gap in each column comes out, and why each gap is one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mri_vit.data import cohort
from mri_vit.data import spellings as identifiers
from mri_vit.errors import UsageError
from mri_vit.importers.found import NO_RULE, Found, LeftOut, Reading, Visit
from mri_vit.importers.rules import NO_AGE
from mri_vit.importers.units import mixed
from mri_vit.settings.endpoint import DEFAULT_ENDPOINTS

PAIRS = [(e.time, e.event) for e in DEFAULT_ENDPOINTS if e.time and e.event]  # a time and its event are known both, or neither

# An id that ends like this may be a visit of the patient whose id stands before it.
VISIT = re.compile(r"(?i)(.+)[_-](?:v\d+|visit\d+|ses\d+|tp\d+|fu\d*|pre|post|baseline|follow-?up|(?:19|20)\d\d)")

JOIN = "--join-similar-ids"  # the option by which ids that differ only in form are joined
MOST_NAMED = 3  # ids that a sentence names

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
    """One row per visit; where readings disagree the cell stays empty.

    Where there are scans, rows are their visits, and patients of tables without scans are left out. Of tables alone, rows are
    the visits that these name.

    Raises
    ------
    UsageError
        A visit or id is there twice, or no patient of the tables has scans, so that all labels would be lost.
    """
    visits = found.visits or _visits_of(found.readings)
    _check_names(visits)
    _refuse_strangers(found)
    there = {(v.patient, v.session): v for v in visits}
    sessions: dict[str, list[str]] = {}
    for patient, session in there:
        sessions.setdefault(patient, []).append(session)
    spread = [
        _of_visit(reading, session, sessions[reading.patient])
        for reading in found.readings
        for session in sessions.get(reading.patient, ())
        if reading.session in ("", session)
    ]
    lost = _without_scans(found, sessions)
    cells: dict[tuple[str, str], dict[str, list[Reading]]] = {visit: {} for visit in there}
    for reading in spread:
        cells[reading.patient, reading.session].setdefault(reading.column, []).append(reading)
    conflicts = [r for row in cells.values() for its in row.values() if _disagree(its) for r in its]
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
        (*found.notes, *_suspicious(values.values()), *_like_visits(sessions), *_of_ids(found), *_ages(kept)),
    )


def with_ids_of_scans(found: Found) -> Found:
    """The same with the scans' ids and sessions in the readings, where these differ only in form and no other could be meant."""
    scanned = _scanned(found)
    tabled = dict.fromkeys(r.patient for r in found.readings)
    patients = identifiers.unambiguous(tabled, identifiers.counterparts(tabled, scanned))
    readings = [
        replace(r, patient=patients[r.patient], rule=f"{r.rule}; the table's id is {r.patient}") if r.patient in patients else r
        for r in found.readings
    ]
    visits: dict[str, dict[str, None]] = {}
    for reading in readings:
        visits.setdefault(reading.patient, {})[reading.session] = None
    sessions = {
        (patient, session): other
        for patient, its in visits.items()
        for session, other in identifiers.unambiguous(
            its, identifiers.counterparts(its, [v.session for v in found.visits if v.patient == patient])
        ).items()
    }
    of_scans = (replace(r, session=sessions.get((r.patient, r.session), r.session)) for r in readings)
    counts = ((patients, "ids"), (sessions, "visits"))
    notes = [f"{what} of the table joined to those of the scans in another form: {len(their)}" for their, what in counts if their]
    return replace(found, readings=tuple(of_scans), notes=(*found.notes, *notes))


def _scanned(found: Found) -> dict[str, None]:
    """The patients of whom scans are there, also such as are left out."""
    return dict.fromkeys([*(v.patient for v in found.visits), *(left.patient for left in found.left_out)])


def _refuse_strangers(found: Found) -> None:
    """Raise UsageError where there are tables and scans, and no patient of the ones is among the others."""
    tabled, scanned = dict.fromkeys(r.patient for r in found.readings), _scanned(found)
    if not found.visits or not tabled or not tabled.keys().isdisjoint(scanned):
        return
    tables = ", ".join(dict.fromkeys(r.file.name for r in found.readings))
    lost = f"{tables}: of {len(tabled)} patients none is among the {len(scanned)} with scans, and every label would be lost"
    similar = "; ".join(_other_forms(found)) or f"{next(iter(tabled))} is in the table, {next(iter(scanned))} among the scans"
    raise UsageError(f"{lost}; {similar}; expected the ids of the scans (to import the scans alone, move the table away)")


def _other_forms(found: Found) -> Iterator[str]:
    """Ids of tables that are not among the scans, where an id there differs only in form."""
    tabled, scanned = dict.fromkeys(r.patient for r in found.readings), _scanned(found)
    if found.visits and (pairs := identifiers.counterparts(tabled, scanned)):
        yield other_forms(tabled, pairs)


def other_forms(tabled: Collection[str], pairs: Mapping[str, Sequence[str]]) -> str:
    """How many ids of a table are among the scans in another form, with an example and the option that joins them."""
    joined = len(identifiers.unambiguous(tabled, pairs))
    name, (other, *_) = next(iter(pairs.items()))
    example = f"{name} is in the table, {other} among the scans: {identifiers.hint(name, other)}"
    return f"{example} ({len(pairs)} of {len(tabled)} ids of the table; {JOIN} joins the {joined} that are unambiguous)"


def _of_ids(found: Found) -> Iterator[str]:
    """Warnings on ids: labels that are lost by an id's form, scans without labels, and ids of one table that are nearly one."""
    yield from _other_forms(found)
    tabled = dict.fromkeys(r.patient for r in found.readings)
    bare = [p for p in dict.fromkeys(v.patient for v in found.visits) if p not in tabled]
    if tabled and bare:
        yield f"patients with scans who are in no table: {len(bare)}, such as {', '.join(bare[:MOST_NAMED])}"
    for names in identifiers.alike(tabled):
        yield f"the ids {', '.join(names)} differ only in form: one patient?"


def _without_scans(found: Found, sessions: Mapping[str, list[str]]) -> list[LeftOut]:
    """The patients, and the visits of others, of whom a table knows something and no scan is there."""
    known = {left.patient for left in found.left_out}
    similar = identifiers.counterparts(dict.fromkeys(r.patient for r in found.readings), _scanned(found))
    lost: dict[tuple[str, str], LeftOut] = {}
    for r in found.readings:
        if r.patient in known and r.patient not in sessions:
            continue
        if r.patient not in sessions:
            other = "; among these is an id that differs only in form" * (r.patient in similar)
            lost[r.patient, ""] = LeftOut(r.patient, r.file, f"in the table, but without scans{other}")
        elif r.session and r.session not in sessions[r.patient] and r.value and r.column not in EVENTS:
            other = identifiers.elsewhere(r.session, sessions[r.patient])
            lost[r.patient, r.session] = LeftOut(
                r.patient, r.file, f"visit {r.session} is in the table, but without scans{other}"
            )
    return list(lost.values())


def _visits_of(readings: Iterable[Reading]) -> tuple[Visit, ...]:
    """The visits that tables speak of; a patient without any has one. Raises UsageError for an id that no folder can have."""
    sessions: dict[str, dict[str, None]] = {}
    for reading in readings:
        if not cohort.is_patient_id(reading.patient):
            expected = "letters, digits, '.', '_' or '-'"
            raise UsageError(f"{reading.file}, row {reading.row}: patient id {reading.patient!r}; expected {expected}")
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


def _of_visit(reading: Reading, session: str, sessions: list[str]) -> Reading:
    """The reading as one of this visit. A time that is of the patient counts from one visit, and which one is not known."""
    of_patient = not reading.session and len(sessions) > 1 and any(reading.column in pair for pair in PAIRS)
    if of_patient and reading.value:
        reading = replace(reading, value="", rule=f"{reading.rule}; not used: from which visit it counts is not said")
    return replace(reading, session=session)


def _finest(its: Iterable[Reading]) -> Reading | None:
    """The known reading that says it most exactly."""
    return min((r for r in its if r.value), key=lambda r: r.give, default=None)


def _disagree(its: Sequence[Reading]) -> bool:
    """Whether known readings differ by more than a coarser one leaves open: 18.4 months and 561 days are one."""
    best = _finest(its)
    return best is not None and any(
        r.value != best.value and not (r.give > best.give and abs(float(r.value) - float(best.value)) < r.give)
        for r in its
        if r.value
    )


def _settled(reading: Reading, its: Sequence[Reading]) -> Reading:
    """The reading with the value that its cell gets: none where others disagree, the finest of those that agree."""
    if _disagree(its):
        return replace(reading, value="", rule=f"{reading.rule}; not used: readings disagree")
    best = _finest(its)
    if best is None or not reading.value or reading.value == best.value:
        return reading
    return replace(reading, value=best.value, rule=f"{reading.rule}; a finer reading has {best.value}")


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


def _agreed(its: Sequence[Reading]) -> str:
    """The value that all known readings have, as the finest says it; empty where there is none."""
    best = _finest(its)
    return "" if best is None or _disagree(its) else best.value


def _suspicious(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """A warning for each time whose values look as if units were mixed."""
    table = list(rows)
    found = ((time, mixed([float(row[time]) for row in table if row.get(time)])) for time, _ in PAIRS)
    return [f"{time}: {warning}" for time, warning in found if warning]


def _ages(readings: Iterable[Reading]) -> list[str]:
    """A warning where ages of 0 were taken for missing ones."""
    rows = [str(r.row) for r in readings if r.rule == NO_AGE]
    more = f" and {len(rows) - MOST_NAMED} more" * (len(rows) > MOST_NAMED)
    return [f"age: 0 in {len(rows)} cells counts as unknown (rows {', '.join(rows[:MOST_NAMED])}{more})"] if rows else []


def _like_visits(patients: Iterable[str]) -> list[str]:
    """A warning where ids of patients look like visits of fewer, who would be in several folds."""
    by_stem: dict[str, list[str]] = {}
    for patient in patients:
        if found := VISIT.fullmatch(patient):
            by_stem.setdefault(found[1], []).append(patient)
    alike = [ids for ids in by_stem.values() if len(ids) > 1]
    if not alike:
        return []
    more = f", and so do {len(alike) - 1} more" if len(alike) > 1 else ""
    return [f"{' and '.join(alike[0][:2])} look like visits of one patient{more}: give them a `session`"]


def no_rule(imported: Imported) -> list[Reading]:
    """The readings that no written rule covers."""
    return [reading for reading in imported.readings if reading.rule.startswith(NO_RULE)]
