"""Cohort table: what a source holds goes in; one row per visit comes out, a value or a gap in each column, and why it is a gap.

Times that are said to be days are checked for months among them.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.data import cohort, columns
from mri_vit.errors import UsageError
from mri_vit.importers.layout import NO_AGE, NO_RULE, LeftOut, Reading, SourceContents, Visit
from mri_vit.settings.schema import DEFAULT_ENDPOINTS

MONTH_DAYS = 365.25 / 12
MIN_TIMES = 30  # times that a distribution can be told from
SHORTEST_MEDIAN = (
    60.0  # days; the medians in the tables of UCSF-PDGM and UPENN-GBM are 421 and 376, a month's 30th of both under 15
)
LIKELIER, LIKELIER_FEW = 4.0, 5.0  # gain in log-likelihood, with a fifth or more in months and with fewer, see `months_among`
FEW_IN_MONTHS = 0.2  # share in months; fewer look like early deaths
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of times in months that are tried
MIN_SHARE = 0.1  # fewer were not tried on real tables
MOST_TIMES = 400  # quantiles that are compared: no distribution fits the many times of a large cohort to the last detail
FRACTION_APART = 5.0  # times that fractions lie below whole numbers: days that were converted from months lie among the others
FEWEST_FRACTIONS = 3  # one or two may be slips


def months_among(days: Float[np.ndarray, "n"]) -> Bool[np.ndarray, "n"] | None:
    """Which of these times above 0 are rather months; None where nothing speaks for it.

    Definition: fractions among whole numbers, at a fifth of their median or less. Else log times of one distribution (Weibull,
    log-normal or log-logistic) are compared with the same of which a share is divided by the days of a month, both at their
    greatest likelihood on one grid: a gain in log-likelihood of `LIKELIER` decides, with a tenth or more in months.

    By the distribution alone, times in whole months, every third (every tenth) row in months, 100 draws of 96 times: 97 % (13 %)
    found in UCSF-PDGM, 95 % (8 %) in UPENN-GBM, 90 % (18 %) of an exponential, 66 % (8 %) of a Weibull distribution of shape 0.8;
    of 300 times 100 % (20 to 90 %). Of the same draws in days none is flagged. Of 96 Weibull times with 5 % (10 %) early deaths,
    uniform over the first month, 9 % (47 %) are: these look the same. Weeks are less apart from days than survival is wide.
    """
    fraction = days % 1 != 0
    several = FEWEST_FRACTIONS <= fraction.sum() <= len(days) - FEWEST_FRACTIONS
    if several and np.median(days[fraction]) * FRACTION_APART <= np.median(days[~fraction]):
        return fraction
    if len(days) < MIN_TIMES or days.min() == days.max():
        return None
    count = min(len(days), MOST_TIMES)
    logs = np.quantile(np.log(days), (np.arange(count) + 0.5) / count)
    place = np.linspace(np.quantile(logs, 0.2), logs.max() + 0.3, 24).reshape(-1, 1, 1)
    width = np.exp(np.linspace(math.log(0.12), math.log(2.5), 16)).reshape(1, -1, 1)  # of log times: 0.7 to 1.2 in the two tables
    alone, best, months = -math.inf, -math.inf, None
    for density in (_weibull, _normal, _logistic):
        as_days = density((logs - place) / width) / width + 1e-12  # (places, widths, times)
        as_months = density((logs - place + math.log(MONTH_DAYS)) / width) / width + 1e-12
        alone = max(alone, float(np.log(as_days).sum(-1).max()))
        for share in SHARES:
            likelihood = np.log((1 - share) * as_days + share * as_months).sum(-1)
            if likelihood.max() > best:
                best = float(likelihood.max())
                i, j = np.unravel_index(int(likelihood.argmax()), likelihood.shape)
                months = share, density, float(place[i, 0, 0]), float(width[0, j, 0])
    if months is None:
        return None
    share, density, middle, scale = months
    if share < MIN_SHARE or best - alone < (LIKELIER_FEW if share < FEW_IN_MONTHS else LIKELIER):
        return None
    scaled = (np.log(days) - middle) / scale
    below = share * density(scaled + math.log(MONTH_DAYS) / scale) > (1 - share) * density(scaled)
    return below if 0 < below.sum() < len(below) else None


def unit_warning(days: Sequence[float]) -> str:
    """What is suspicious in times that should be days, as a sentence; empty where nothing is."""
    known = np.asarray([time for time in days if time > 0], dtype=float)
    if len(known) and (months := months_among(known)) is not None:
        return f"{months.sum()} of the {len(known)} survival times look like months among days; check their unit"
    if len(known) >= MIN_TIMES and (median := float(np.median(known))) < SHORTEST_MEDIAN:
        return f"half of the {len(known)} survival times are under {median:.0f} days; are they months or weeks?"
    return ""


Density = Callable[[np.ndarray], np.ndarray]  # of a standardised log time


def _weibull(z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return np.exp(np.clip(z - np.exp(np.clip(z, -700, 6)), -700, 0))


def _normal(z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _logistic(z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    tail = np.exp(-np.abs(z))
    return tail / (1 + tail) ** 2


PAIRS = [(e.time, e.event) for e in DEFAULT_ENDPOINTS if e.time and e.event]  # a time and its event are known both, or neither

# An id that ends like this may be a visit of the patient whose id stands before it.
VISIT_SUFFIX = re.compile(r"(?i)(.+)[_-](?:v\d+|visit\d+|ses\d+|tp\d+|fu\d*|pre|post|baseline|follow-?up|(?:19|20)\d\d)")

JOIN_OPTION = "--join-similar-ids"  # the option by which ids that differ only in form are joined
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


def merge(contents: SourceContents) -> Imported:
    """One row per visit; where readings disagree the cell stays empty.

    Where there are scans, rows are their visits, and patients of tables without scans are left out. Of tables alone, rows are
    the visits that these name.

    Raises
    ------
    UsageError
        A visit or id is there twice, or no patient of the tables has scans, so that all labels would be lost.
    """
    visits = contents.visits or _visits_of(contents.readings)
    _check_names(visits)
    _refuse_strangers(contents)
    there = {(v.patient, v.session): v for v in visits}
    sessions: dict[str, list[str]] = {}
    for patient, session in there:
        sessions.setdefault(patient, []).append(session)
    spread = [
        _of_visit(reading, session, sessions[reading.patient])
        for reading in contents.readings
        for session in sessions.get(reading.patient, ())
        if reading.session in ("", session)
    ]
    lost = _without_scans(contents, sessions)
    cells: dict[tuple[str, str], dict[str, list[Reading]]] = {visit: {} for visit in there}
    for reading in spread:
        cells[reading.patient, reading.session].setdefault(reading.column, []).append(reading)
    conflicts = [r for row in cells.values() for its in row.values() if _disagree(its) for r in its]
    kept = [_settled(r, its) for row in cells.values() for column, its in row.items() for r in _paired(column, its, row)]
    values: dict[tuple[str, str], dict[str, str]] = {visit: {} for visit in there}
    for reading in kept:
        row = values[reading.patient, reading.session]
        row[reading.column] = row.get(reading.column) or reading.value
    columns = tuple(dict.fromkeys(reading.column for reading in contents.readings))
    return Imported(
        tuple(there.values()),
        columns,
        values,
        tuple(kept),
        tuple(conflicts),
        (*contents.left_out, *lost),
        (
            *contents.notes,
            *_unit_warnings(values.values()),
            *_visit_warnings(sessions),
            *_id_warnings(contents),
            *_age_warnings(kept),
        ),
    )


def with_ids_of_scans(contents: SourceContents) -> SourceContents:
    """The same with the scans' ids and sessions in the readings, where these differ only in form and no other could be meant."""
    scanned = _scanned(contents)
    tabled = dict.fromkeys(r.patient for r in contents.readings)
    patients = columns.unambiguous(tabled, columns.counterparts(tabled, scanned))
    readings = [
        replace(r, patient=patients[r.patient], rule=f"{r.rule}; the table's id is {r.patient}") if r.patient in patients else r
        for r in contents.readings
    ]
    visits: dict[str, dict[str, None]] = {}
    for reading in readings:
        visits.setdefault(reading.patient, {})[reading.session] = None
    sessions = {
        (patient, session): other
        for patient, its in visits.items()
        for session, other in columns.unambiguous(
            its, columns.counterparts(its, [v.session for v in contents.visits if v.patient == patient])
        ).items()
    }
    of_scans = (replace(r, session=sessions.get((r.patient, r.session), r.session)) for r in readings)
    counts = ((patients, "ids"), (sessions, "visits"))
    notes = [f"{what} of the table joined to those of the scans in another form: {len(their)}" for their, what in counts if their]
    return replace(contents, readings=tuple(of_scans), notes=(*contents.notes, *notes))


def _scanned(contents: SourceContents) -> dict[str, None]:
    """The patients of whom scans are there, also such as are left out."""
    return dict.fromkeys([*(v.patient for v in contents.visits), *(left.patient for left in contents.left_out)])


def _refuse_strangers(contents: SourceContents) -> None:
    """Raise UsageError where there are tables and scans, and no patient of the ones is among the others."""
    tabled, scanned = dict.fromkeys(r.patient for r in contents.readings), _scanned(contents)
    if not contents.visits or not tabled or not tabled.keys().isdisjoint(scanned):
        return
    tables = ", ".join(dict.fromkeys(r.file.name for r in contents.readings))
    lost = f"{tables}: of {len(tabled)} patients none is among the {len(scanned)} with scans, and every label would be lost"
    similar = "; ".join(_other_forms(contents)) or f"{next(iter(tabled))} is in the table, {next(iter(scanned))} among the scans"
    raise UsageError(f"{lost}; {similar}; expected the ids of the scans (to import the scans alone, move the table away)")


def _other_forms(contents: SourceContents) -> Iterator[str]:
    """Ids of tables that are not among the scans, where an id there differs only in form."""
    tabled, scanned = dict.fromkeys(r.patient for r in contents.readings), _scanned(contents)
    if contents.visits and (pairs := columns.counterparts(tabled, scanned)):
        yield other_forms(tabled, pairs)


def other_forms(tabled: Collection[str], pairs: Mapping[str, Sequence[str]]) -> str:
    """How many ids of a table are among the scans in another form, with an example and the option that joins them."""
    joined = len(columns.unambiguous(tabled, pairs))
    name, (other, *_) = next(iter(pairs.items()))
    example = f"{name} is in the table, {other} among the scans: {columns.hint(name, other)}"
    return f"{example} ({len(pairs)} of {len(tabled)} ids of the table; {JOIN_OPTION} joins the {joined} that are unambiguous)"


def _id_warnings(contents: SourceContents) -> Iterator[str]:
    """Warnings on ids: labels that are lost by an id's form, scans without labels, and ids of one table that are nearly one."""
    yield from _other_forms(contents)
    tabled = dict.fromkeys(r.patient for r in contents.readings)
    bare = [p for p in dict.fromkeys(v.patient for v in contents.visits) if p not in tabled]
    if tabled and bare:
        yield f"patients with scans who are in no table: {len(bare)}, such as {', '.join(bare[:MOST_NAMED])}"
    for names in columns.alike(tabled):
        yield f"the ids {', '.join(names)} differ only in form: one patient?"


def _without_scans(contents: SourceContents, sessions: Mapping[str, list[str]]) -> list[LeftOut]:
    """The patients, and the visits of others, of whom a table knows something and no scan is there."""
    known = {left.patient for left in contents.left_out}
    similar = columns.counterparts(dict.fromkeys(r.patient for r in contents.readings), _scanned(contents))
    lost: dict[tuple[str, str], LeftOut] = {}
    for r in contents.readings:
        if r.patient in known and r.patient not in sessions:
            continue
        if r.patient not in sessions:
            other = "; among these is an id that differs only in form" * (r.patient in similar)
            lost[r.patient, ""] = LeftOut(r.patient, r.file, f"in the table, but without scans{other}")
        elif r.session and r.session not in sessions[r.patient] and r.value and r.column not in EVENTS:
            other = columns.elsewhere(r.session, sessions[r.patient])
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


def _unit_warnings(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """A warning for each time whose values look as if units were mixed."""
    table = list(rows)
    warnings = ((time, unit_warning([float(row[time]) for row in table if row.get(time)])) for time, _ in PAIRS)
    return [f"{time}: {warning}" for time, warning in warnings if warning]


def _age_warnings(readings: Iterable[Reading]) -> list[str]:
    """A warning where ages of 0 were taken for missing ones."""
    rows = [str(r.row) for r in readings if r.rule == NO_AGE]
    more = f" and {len(rows) - MOST_NAMED} more" * (len(rows) > MOST_NAMED)
    return [f"age: 0 in {len(rows)} cells counts as unknown (rows {', '.join(rows[:MOST_NAMED])}{more})"] if rows else []


def _visit_warnings(patients: Iterable[str]) -> list[str]:
    """A warning where ids of patients look like visits of fewer, who would be in several folds."""
    by_stem: dict[str, list[str]] = {}
    for patient in patients:
        if match := VISIT_SUFFIX.fullmatch(patient):
            by_stem.setdefault(match[1], []).append(patient)
    alike = [ids for ids in by_stem.values() if len(ids) > 1]
    if not alike:
        return []
    more = f", and so do {len(alike) - 1} more" if len(alike) > 1 else ""
    return [f"{' and '.join(alike[0][:2])} look like visits of one patient{more}: give them a `session`"]


def no_rule(imported: Imported) -> list[Reading]:
    """The readings that no written rule covers."""
    return [reading for reading in imported.readings if reading.rule.startswith(NO_RULE)]
