"""Cohort table: the contents of a source go in; one row per visit comes out, a value or a gap in each column, and why a gap.

Times that should be days are checked for months among them.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from mri_vit.data import cohort, columns
from mri_vit.errors import UsageError
from mri_vit.importers.layout import NO_AGE, NO_RULE, LeftOut, Reading, SourceContents, Visit
from mri_vit.settings.schema import DEFAULT_ENDPOINTS

MONTH_DAYS = 365.25 / 12
MIN_TIMES = 30  # times from which a distribution can be recognised
SHORTEST_MEDIAN = 60.0  # days; the medians in the tables of UCSF-PDGM and UPENN-GBM are 421 and 376, a 30th of both under 15
LIKELIER, LIKELIER_FEW = 4.0, 5.0  # gain in log-likelihood, with a fifth or more in months and with fewer, see `months_among`
FEW_IN_MONTHS = 0.2  # share in months; fewer look like early deaths
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of times in months that are tried
MIN_SHARE = 0.1  # fewer were not tried on real tables
MOST_TIMES = 400  # quantiles that are compared: no distribution fits the many times of a large cohort to the last detail
FRACTION_APART = 5.0  # times that fractions lie below whole numbers: days that were converted from months lie among the others
FEWEST_FRACTIONS = 3  # one or two may be slips


def months_among(days: Float[np.ndarray, "n"]) -> Bool[np.ndarray, "n"] | None:
    """Which of these times above 0 are rather months; None where there is no evidence of it.

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
    """A sentence where times that should be days look like another unit; else empty."""
    known = np.asarray([time for time in days if time > 0], dtype=float)
    if len(known) and (months := months_among(known)) is not None:
        return f"{months.sum()} of the {len(known)} survival times look like months among days; check their unit"
    if len(known) >= MIN_TIMES and (median := float(np.median(known))) < SHORTEST_MEDIAN:
        return f"half of the {len(known)} survival times are under {median:.0f} days; are they months or weeks?"
    return ""


def _weibull(z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return np.exp(np.clip(z - np.exp(np.clip(z, -700, 6)), -700, 0))


def _normal(z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _logistic(z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    tail = np.exp(-np.abs(z))
    return tail / (1 + tail) ** 2


PAIRS = [(e.time, e.event) for e in DEFAULT_ENDPOINTS if e.time and e.event]  # a time and its event are known both, or neither
EVENTS = {event for _, event in PAIRS}  # the vital status is known for every visit, also one without scans
# An id that ends like this may be a visit of the patient whose id stands before it.
VISIT_SUFFIX = re.compile(r"(?i)(.+)[_-](?:v\d+|visit\d+|ses\d+|tp\d+|fu\d*|pre|post|baseline|follow-?up|(?:19|20)\d\d)")
JOIN_OPTION = "--join-similar-ids"  # the option by which ids that differ only in form are joined
MOST_NAMED = 3  # ids that a sentence names


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

    Where there are scans, rows are their visits, and patients of tables without scans are left out. Without scans, rows are the
    visits that the tables name.

    Raises
    ------
    UsageError
        A visit or id is there twice, or no patient of the tables has scans, so that all labels would be lost.
    """
    visits = contents.visits or _visits_of(contents.readings)
    _check_names(visits)
    _check_overlap(contents)
    by_name = {(v.patient, v.session): v for v in visits}
    sessions: dict[str, list[str]] = {}
    for patient, session in by_name:
        sessions.setdefault(patient, []).append(session)
    cells: dict[tuple[str, str], dict[str, list[Reading]]] = {visit: {} for visit in by_name}
    for reading in contents.readings:
        for session in sessions.get(reading.patient, ()):
            if reading.session in ("", session):
                of_visit = _of_visit(reading, session, sessions[reading.patient])
                cells[reading.patient, session].setdefault(reading.column, []).append(of_visit)
    conflicts = [r for row in cells.values() for readings in row.values() if _disagree(readings) for r in readings]
    kept = [
        _settled(r, readings)
        for row in cells.values()
        for column, readings in row.items()
        for r in _paired(column, readings, row)
    ]
    values: dict[tuple[str, str], dict[str, str]] = {visit: {} for visit in by_name}
    for reading in kept:
        row = values[reading.patient, reading.session]
        row[reading.column] = row.get(reading.column) or reading.value
    return Imported(
        tuple(by_name.values()),
        tuple(dict.fromkeys(reading.column for reading in contents.readings)),
        values,
        tuple(kept),
        tuple(conflicts),
        (*contents.left_out, *_without_scans(contents, sessions)),
        (*contents.notes, *_warnings(contents, sessions, values.values(), kept)),
    )


def with_ids_of_scans(contents: SourceContents) -> SourceContents:
    """The same with the scans' ids and sessions in the readings, where these differ only in form and no other could be meant."""
    scanned, tabled = _scanned(contents), _tabled(contents)
    patients = columns.unambiguous(tabled, columns.counterparts(tabled, scanned))
    readings = [
        replace(r, patient=patients[r.patient], rule=f"{r.rule}; the table's id is {r.patient}") if r.patient in patients else r
        for r in contents.readings
    ]
    visits: dict[str, dict[str, None]] = {}
    for reading in readings:
        visits.setdefault(reading.patient, {})[reading.session] = None
    sessions = {}
    for patient, names in visits.items():
        pairs = columns.counterparts(names, [v.session for v in contents.visits if v.patient == patient])
        sessions |= {(patient, name): other for name, other in columns.unambiguous(names, pairs).items()}
    renamed = (replace(r, session=sessions.get((r.patient, r.session), r.session)) for r in readings)
    counts = ((patients, "ids"), (sessions, "visits"))
    notes = [f"{what} of the table joined to those of the scans in another form: {len(pairs)}" for pairs, what in counts if pairs]
    return replace(contents, readings=tuple(renamed), notes=(*contents.notes, *notes))


def _scanned(contents: SourceContents) -> dict[str, None]:
    """The patients with scans, also those who are left out."""
    return dict.fromkeys([*(v.patient for v in contents.visits), *(left.patient for left in contents.left_out)])


def _tabled(contents: SourceContents) -> dict[str, None]:
    return dict.fromkeys(r.patient for r in contents.readings)


def _check_overlap(contents: SourceContents) -> None:
    """Raise UsageError where there are tables and scans, and no patient is in both."""
    tabled, scanned = _tabled(contents), _scanned(contents)
    if not contents.visits or not tabled or not tabled.keys().isdisjoint(scanned):
        return
    tables = ", ".join(dict.fromkeys(r.file.name for r in contents.readings))
    lost = f"{tables}: of {len(tabled)} patients none is among the {len(scanned)} with scans, and every label would be lost"
    pairs = columns.counterparts(tabled, scanned)
    example = f"{next(iter(tabled))} is in the table, {next(iter(scanned))} among the scans"
    similar = other_forms(tabled, pairs) if pairs else example
    raise UsageError(f"{lost}; {similar}; expected the ids of the scans (to import the scans alone, move the table away)")


def other_forms(tabled: Collection[str], pairs: Mapping[str, Sequence[str]]) -> str:
    """How many ids of a table are among the scans in another form, with an example and the option that joins them."""
    joined = len(columns.unambiguous(tabled, pairs))
    name, (other, *_) = next(iter(pairs.items()))
    example = f"{name} is in the table, {other} among the scans: {columns.hint(name, other)}"
    return f"{example} ({len(pairs)} of {len(tabled)} ids of the table; {JOIN_OPTION} joins the {joined} that are unambiguous)"


def similar_ids(ids: Iterable[str]) -> Iterator[str]:
    """A warning for each group of a table's ids that differ only in form."""
    yield from (f"the ids {', '.join(names)} differ only in form: one patient?" for names in columns.alike(ids))


def _warnings(
    contents: SourceContents,
    sessions: Mapping[str, Sequence[str]],
    rows: Collection[Mapping[str, str]],
    readings: Iterable[Reading],
) -> Iterator[str]:
    """Times in mixed units, ids that look like visits, labels and scans that do not meet, and ages of 0."""
    for time, _ in PAIRS:
        if warning := unit_warning([float(row[time]) for row in rows if row.get(time)]):
            yield f"{time}: {warning}"
    by_stem: dict[str, list[str]] = {}
    for patient in sessions:
        if match := VISIT_SUFFIX.fullmatch(patient):
            by_stem.setdefault(match[1], []).append(patient)
    if visits := [ids for ids in by_stem.values() if len(ids) > 1]:  # these would be in several folds
        more = f", and so do {len(visits) - 1} more" if len(visits) > 1 else ""
        yield f"{' and '.join(visits[0][:2])} look like visits of one patient{more}: give them a `session`"
    tabled = _tabled(contents)
    if contents.visits and (pairs := columns.counterparts(tabled, _scanned(contents))):
        yield other_forms(tabled, pairs)
    unlabelled = [patient for patient in dict.fromkeys(v.patient for v in contents.visits) if patient not in tabled]
    if tabled and unlabelled:
        yield f"patients with scans who are in no table: {len(unlabelled)}, such as {', '.join(unlabelled[:MOST_NAMED])}"
    yield from similar_ids(tabled)
    if zeros := [str(r.row) for r in readings if r.rule == NO_AGE]:
        more = f" and {len(zeros) - MOST_NAMED} more" * (len(zeros) > MOST_NAMED)
        yield f"age: 0 in {len(zeros)} cells counts as unknown (rows {', '.join(zeros[:MOST_NAMED])}{more})"


def _without_scans(contents: SourceContents, sessions: Mapping[str, list[str]]) -> list[LeftOut]:
    """The patients, and the visits of others, that are in a table and have no scan."""
    known = {left.patient for left in contents.left_out}
    similar = columns.counterparts(_tabled(contents), _scanned(contents))
    lost: dict[tuple[str, str], LeftOut] = {}
    for r in contents.readings:
        if r.patient not in sessions:
            if r.patient not in known:
                other = "; among these is an id that differs only in form" * (r.patient in similar)
                lost[r.patient, ""] = LeftOut(r.patient, r.file, f"in the table, but without scans{other}")
        elif r.session and r.session not in sessions[r.patient] and r.value and r.column not in EVENTS:
            reason = f"visit {r.session} is in the table, but without scans{columns.elsewhere(r.session, sessions[r.patient])}"
            lost[r.patient, r.session] = LeftOut(r.patient, r.file, reason)
    return list(lost.values())


def _visits_of(readings: Iterable[Reading]) -> tuple[Visit, ...]:
    """The visits that tables name; a patient without any has one. Raises UsageError for an id that no folder can have."""
    sessions: dict[str, dict[str, None]] = {}
    for reading in readings:
        if not cohort.is_patient_id(reading.patient):
            expected = "letters, digits, '.', '_' or '-'"
            raise UsageError(f"{reading.file}, row {reading.row}: patient id {reading.patient!r}; expected {expected}")
        sessions.setdefault(reading.patient, {})[reading.session] = None
    return tuple(Visit(p, s, {}) for p, names in sessions.items() for s in names if s or set(names) == {""})


def _check_names(visits: Iterable[Visit]) -> None:
    """Raise UsageError where a visit is there twice, or a patient in two spellings: on some disks these are one folder."""
    names: set[tuple[str, str]] = set()
    spelled: dict[str, str] = {}
    for visit in visits:
        known = spelled.setdefault(unicodedata.normalize("NFKC", visit.patient).casefold(), visit.patient)
        if known != visit.patient:
            raise UsageError(f"patient {visit.patient!r} is {known!r} in another spelling; expected ids that differ by more")
        if (visit.patient, visit.session) in names:
            named = f"patient {visit.patient}" + (f", session {visit.session}" if visit.session else "")
            raise UsageError(f"{named}: two sets of scans; expected one row or folder for each visit")
        names.add((visit.patient, visit.session))


def _of_visit(reading: Reading, session: str, sessions: list[str]) -> Reading:
    """The reading as one of this visit. A time of the patient counts from one visit, and which one is not known."""
    of_patient = not reading.session and len(sessions) > 1 and any(reading.column in pair for pair in PAIRS)
    if of_patient and reading.value:
        return _unused(replace(reading, session=session), "the visit from which it counts is unknown")
    return replace(reading, session=session)


def _unused(reading: Reading, why: str) -> Reading:
    return replace(reading, value="", rule=f"{reading.rule}; not used: {why}") if reading.value else reading


def _finest(readings: Iterable[Reading]) -> Reading | None:
    """The most exact of the known readings."""
    return min((r for r in readings if r.value), key=lambda r: r.tolerance, default=None)


def _disagree(readings: Sequence[Reading]) -> bool:
    """Whether known readings differ by more than the tolerance of a coarser one: 18.4 months and 561 days are equal."""
    best = _finest(readings)
    return best is not None and any(
        r.value != best.value and not (r.tolerance > best.tolerance and abs(float(r.value) - float(best.value)) < r.tolerance)
        for r in readings
        if r.value
    )


def _settled(reading: Reading, readings: Sequence[Reading]) -> Reading:
    """The reading with the value that its cell gets: none where others disagree, the finest of those that agree."""
    if _disagree(readings):
        return replace(reading, value="", rule=f"{reading.rule}; not used: readings disagree")
    best = _finest(readings)
    if best is None or not reading.value or reading.value == best.value:
        return reading
    return replace(reading, value=best.value, rule=f"{reading.rule}; a finer reading has {best.value}")


def _paired(column: str, readings: list[Reading], row: Mapping[str, list[Reading]]) -> list[Reading]:
    """The readings of a cell, emptied where the other half of a time and its event is unknown, or a death is on day 0."""
    for time, event in PAIRS:
        if column not in (time, event):
            continue
        other = event if column == time else time
        if not _agreed(row.get(other, [])):
            return [_unused(r, f"no {other}") for r in readings]
        if float(_agreed(row[time]) or 1) == 0 and _agreed(row[event]) == "1":
            return [_unused(r, "a death on day 0") for r in readings]
    return readings


def _agreed(readings: Sequence[Reading]) -> str:
    """The value on which all known readings agree, as the finest has it; empty where there is none."""
    best = _finest(readings)
    return "" if best is None or _disagree(readings) else best.value


def no_rule(imported: Imported) -> list[Reading]:
    """The readings that no written rule covers."""
    return [reading for reading in imported.readings if reading.rule.startswith(NO_RULE)]
