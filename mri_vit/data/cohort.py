"""The cohort: a table of patients with scans, and labels that may be missing."""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from mri_vit.data import sheet
from mri_vit.data.columns import MISSING, nearest
from mri_vit.data.sheet import Fault, Row
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.kinds import kind
from mri_vit.settings.recipe import CHANNELS
from mri_vit.settings.schema import Endpoint, Study

PATIENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # safe as a folder name everywhere
SESSION = re.compile(r"|(?=.*[A-Za-z0-9])[A-Za-z0-9._-]{1,63}")  # likewise, behind the patient's id; "" for an only visit
MADE_A_DATE = "is a date in the workbook; a spreadsheet makes one of 1-2: write ids as text"
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # device names, on which Windows folders fail
MASKS = ("brain_mask", "tumour_mask")


@dataclass(frozen=True)
class Patient:
    """One patient's visit: scans (None where the table's cell is empty), labels (NaN where missing), other columns as text.

    Patients with several visits have a row for each, distinguished by `session`; all visits of a `subject` stay together.
    """

    id: str  # of the visit, and its folder's name: see `visit_id`
    scans: dict[str, Path | None]
    labels: dict[str, float]  # by label column: 0 or 1, days, the place of a class, a number, or NaN
    clinical: dict[str, str]
    brain_mask: Path | None = None
    tumour_mask: Path | None = None
    session: str = ""
    classes: dict[str, str] = field(default_factory=dict)  # by label column of classes or grades, the name of the patient's
    drawn_mask: Path | None = None  # the table's tumour mask, where the study learns from one that was found: see `judging_mask`

    @property
    def judging_mask(self) -> Path | None:
        """The tumour mask that maps are judged by: the table's, whatever the study learns from, or else the study's own."""
        return self.drawn_mask or self.tumour_mask

    @property
    def subject(self) -> str:
        """The patient whose visit it is."""
        return self.id.removesuffix(f"_{self.session}") if self.session else self.id

    def knows(self, endpoint: Endpoint) -> bool:
        """Whether every label column of the endpoint is filled."""
        return not any(math.isnan(self.labels[column]) for column in endpoint.columns)


def strata(patients: Sequence[Patient], endpoint: Endpoint) -> list[str]:
    """Of each patient the class that folds are balanced over, "?" where the label is missing."""
    known = [p for p in patients if p.knows(endpoint)]
    of = dict(zip((p.id for p in known), kind.labels(endpoint).strata(endpoint, label_rows(known, endpoint)), strict=True))
    return [of.get(p.id, "?") for p in patients]


def label_rows(patients: Sequence[Patient], endpoint: Endpoint) -> Float[np.ndarray, "n c"]:
    """The endpoint's label columns, NaN where missing."""
    rows = [[p.labels[column] for column in endpoint.columns] for p in patients]
    return np.array(rows, dtype=float).reshape(len(rows), len(endpoint.columns))


def visit_id(subject: str, session: str) -> str:
    """`patient_session`, or the patient's id alone where there is one visit."""
    return f"{subject}_{session}" if session else subject


def is_patient_id(name: str) -> bool:
    """Whether a name can be a patient's: it is safe as a folder's name everywhere."""
    return bool(PATIENT_ID.fullmatch(name)) and not RESERVED.fullmatch(name) and not name.endswith(".")


def shortened(name: str) -> str:
    """What a spreadsheet did to an id such as 1E+05, as the end of a message; "" of any other."""
    return "; a spreadsheet shortens numbers so: write ids as text" if re.fullmatch(r"[\d.,]+[eE]\+\d+", name) else ""


def is_session(name: str) -> bool:
    """Whether a name can be a visit's; the only visit of a patient has an empty one."""
    return bool(SESSION.fullmatch(name)) and not name.endswith(".")


@dataclass(frozen=True)
class Examined:
    """A cohort table with all its faults: the patients of the rows that can be read, what is wrong, and what columns there are.

    Labels that cannot be read are NaN; `rows` are the table's line of each patient.
    """

    patients: list[Patient]
    rows: list[int]
    faults: list[Fault]
    header: list[str]
    notes: tuple[str, ...] = ()  # how cells were read, where that could be otherwise


def completed(study: Study) -> Study:
    """The study with what it leaves to its cohort table: the classes of an endpoint. Raises UsageError where these are none."""
    endpoints = tuple(kind.labels(endpoint).completed(endpoint, study.cohort) for endpoint in study.endpoints)
    return study if endpoints == study.endpoints else study.model_copy(update={"endpoints": endpoints})


def of_study(study: Study) -> list[Patient]:
    """A study's patients with its scans and labels. Raises UsageError as `read` does."""
    return read(study.cohort, study.endpoints, study.prepare.needs, study.channels)


def read(
    path: Path, endpoints: tuple[Endpoint, ...], needed: Sequence[str] | None = None, channels: Sequence[str] = CHANNELS
) -> list[Patient]:
    """Read a cohort table (CSV, TSV, `;` or Excel); scan paths are relative to it. Raises UsageError naming rows and columns.

    `needed` are columns that must be there beside `patient` and the endpoints' (none, where only labels are of interest; all
    scans, where it is not given); `channels` are the columns of scans.
    """
    found = examine(path, endpoints, needed, channels)
    sheet.refuse(path, found.faults)
    return found.patients


def examine(
    path: Path, endpoints: tuple[Endpoint, ...], needed: Sequence[str] | None = None, channels: Sequence[str] = CHANNELS
) -> Examined:
    """The same with every fault of the table, and nothing raised but where there is no table at all."""
    found = sheet.examine(path)
    needed = channels if needed is None else needed
    labels = [column for endpoint in endpoints for column in endpoint.columns]
    faults = [*found.faults, *_formulas(found.rows)]
    for column in dict.fromkeys(("patient", *needed, *labels)):
        if column not in found.header:
            near = nearest(column, found.header)
            remedy = "; a study without that sequence names its own in `channels`" if column in channels else ""
            faults.append(Fault(f"no column {column!r}; the nearest one is {near!r} (found {', '.join(found.header)}){remedy}"))
    if "patient" not in found.header:
        return Examined([], [], faults, found.header, found.notes)
    wrong = _id_faults(found.rows, {line for line, column in found.dates if column == "patient"})
    faults += wrong
    no_clinical = {"patient", "session", *CHANNELS, *channels, *MASKS, *labels}  # the four are scans, read or not
    nameless = {fault.row for fault in wrong}
    patients, rows, labelled = [], [], []
    for line, row in found.rows:
        values = {
            column: _label(row.get(column, ""), column, endpoint, line, faults)
            for endpoint in endpoints
            for column in endpoint.columns
        }
        faults += _row_faults(row, values, endpoints, line)
        labelled.append((line, values))
        if line in nameless:
            continue
        files = {name: _real(located(path.parent, row[name])) if row.get(name) else None for name in (*channels, *MASKS)}
        rows.append(line)
        patients.append(
            Patient(
                visit_id(row["patient"], row.get("session", "")),
                {channel: files[channel] for channel in channels},
                values,
                {c: row[c] for c in found.header if c not in no_clinical},
                files["brain_mask"],
                files["tumour_mask"],
                row.get("session", ""),
                {e.name: e.classes[int(values[e.name])] for e in endpoints if e.classes and not math.isnan(values[e.name])},
            )
        )
    return Examined(patients, rows, [*faults, *_column_faults(labelled, endpoints)], found.header, found.notes)


def without_labels(patient: Patient) -> Patient:
    """What a predictor may see of a test patient: no label."""
    return replace(patient, labels=dict.fromkeys(patient.labels, math.nan))


def refuse_labels(patients: Sequence[Patient]) -> None:
    """Raise IntegrityError that names the first patient who brings a known label: predictors call this before predicting."""
    for patient in patients:
        seen = [column for column, value in patient.labels.items() if not math.isnan(value)]
        if seen:
            raise IntegrityError(f"patient {patient.id} was handed to a fitted predictor with its label ({', '.join(seen)})")


def first_visits(patients: Sequence[Patient]) -> list[Patient]:
    """The first visit of each patient, in the table's order."""
    return list({p.subject: p for p in reversed(patients)}.values())[::-1]


def _formulas(rows: Sequence[Row]) -> list[Fault]:
    return [
        Fault(f"{cell!r} looks like a spreadsheet formula", line, column)
        for line, row in rows
        for column, cell in row.items()
        if cell.startswith(("=", "@"))
    ]


def way(path: Path | str | None) -> str:
    """A file's path as a cell, which no spreadsheet takes for a formula. Raises UsageError where it is not UTF-8."""
    text = str(path or "")
    if not is_utf8(text):
        raise UsageError(f"{text}: a name in this path is not UTF-8, as a table must be; rename it")
    return f".{os.sep}{text}" if text.startswith(sheet.FORMULA) else text


def is_utf8(path: Path | str) -> bool:
    """Whether a path can stand in a table: Linux allows any bytes in a name."""
    return not any("\ud800" <= letter <= "\udfff" for letter in str(path))


def located(home: Path, cell: str) -> Path:
    """The file that a cell of a table in `home` names: in quotation marks or not, by `~`, or with back-slashes.

    A file of exactly the cell's name goes before any such reading.
    """
    plain = home / cell
    if not (cell[:1] in "\"'~" or "\\" in cell) or os.path.lexists(plain):
        return plain
    text = cell[1:-1] if cell[:1] in "\"'" and cell[-1:] == cell[:1] else cell
    expanded = os.path.expanduser(text)
    named = home / (expanded if os.path.isabs(expanded) else text)  # ~ of no user stays
    turned = Path(str(named).replace("\\", "/"))
    return turned if os.path.lexists(turned) else named


def _real(path: Path) -> Path:
    """A file behind all links; as it stands where these lead nowhere, which its reader then reports."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # a link that leads back to itself, a name too long, a NUL character
        return Path(os.path.abspath(path))


def _id_faults(rows: Sequence[Row], dates: Collection[int]) -> list[Fault]:
    """Of every row whose patient or visit has no usable name, or one of an earlier row; in the rows `dates` the id is a date."""
    faults: list[Fault] = []
    seen: dict[str, tuple[int, str]] = {}  # visits
    spellings: dict[str, tuple[int, str]] = {}  # patients
    for line, row in rows:
        name, session = row["patient"], row.get("session", "")
        if not is_patient_id(name):
            expected = "1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit, and no device name"
            faults.append(Fault(f"patient id {name!r}; expected {expected}{shortened(name)}", line))
            continue
        if line in dates:
            faults.append(Fault(f"patient id {name!r} {MADE_A_DATE}", line))
            continue
        if not is_session(session):
            faults.append(Fault(f"session {session!r}; expected letters, digits, '.', '_' or '-'", line))
            continue
        visit = visit_id(name, session)
        other, other_visit = seen.setdefault(unicodedata.normalize("NFKC", visit).casefold(), (line, visit))
        spelled_in, spelled = spellings.setdefault(unicodedata.normalize("NFKC", name).casefold(), (line, name))
        if other != line:
            faults.append(Fault(f"patient id {visit!r} repeats {other_visit!r} in row {other}", line))
        elif spelled != name:
            faults.append(Fault(f"patient id {name!r} repeats {spelled!r} in row {spelled_in} in another spelling", line))
    return faults


def _label(cell: str, column: str, endpoint: Endpoint, line: int, faults: list[Fault]) -> float:
    if cell.lower() in MISSING:
        return math.nan
    try:
        return kind.labels(endpoint).read(endpoint, column, cell)
    except ValueError as error:
        faults.append(Fault(f"{cell!r}; {error}", line, column))
        return math.nan


def _row_faults(row: dict[str, str], labels: dict[str, float], endpoints: Sequence[Endpoint], line: int) -> Iterator[Fault]:
    for endpoint in (e for e in endpoints if set(e.columns) <= set(row)):
        filled = {column: row[column].lower() not in MISSING for column in endpoint.columns}
        if wrong := kind.labels(endpoint).row_fault(endpoint, labels, filled):
            yield Fault(wrong[0], line, wrong[1])


def _column_faults(labelled: Sequence[tuple[int, dict[str, float]]], endpoints: Sequence[Endpoint]) -> Iterator[Fault]:
    """Labels that cannot be, beside the others of their column."""
    for endpoint in endpoints:
        values = np.array([labels[endpoint.columns[0]] for _, labels in labelled], dtype=float)
        for row, words in kind.labels(endpoint).column_faults(endpoint, values).items():
            yield Fault(words, labelled[row][0], endpoint.columns[0])


def dumps(patients: list[Patient]) -> bytes:
    """The table that a run is made from: the same patients with absolute paths, in the form that `read` takes."""
    extra = [name for name in MASKS if any(getattr(p, name) for p in patients)]
    sessions = ["session"] if any(p.session for p in patients) else []
    rows = []
    for p in patients:
        files = [way(path) for path in (*p.scans.values(), *(getattr(p, name) for name in extra))]
        known = {column: value for column, value in p.labels.items() if not math.isnan(value)}
        cells = {column: repr(value).removesuffix(".0") for column, value in known.items()} | p.classes
        labels = [cells.get(column, "") for column in p.labels]
        rows.append([p.subject, *([p.session] if sessions else []), *files, *p.clinical.values(), *labels])
    first = patients[0]
    return sheet.to_csv(["patient", *sessions, *first.scans, *extra, *first.clinical, *first.labels], rows)
