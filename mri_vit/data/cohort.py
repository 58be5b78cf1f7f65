"""The cohort: a table of patients with scans, and labels that may be missing."""

from __future__ import annotations

import csv
import io
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mri_vit.data import aliases
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.settings import source
from mri_vit.settings.schema import CHANNELS, Endpoint

PATIENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # safe as a folder name everywhere
SESSION = re.compile(r"|(?=.*[A-Za-z0-9])[A-Za-z0-9._-]{1,63}")  # likewise, behind the patient's id; "" for an only visit
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")  # device names, on which Windows folders fail
MISSING = {
    "",
    "na",
    "n/a",
    "nan",
    "none",
    "not available",
    "not applicable",
    "not reported",
    "unknown",
    "--",
}  # as public tables write it
FILES = (*CHANNELS, "brain_mask", "tumour_mask")


@dataclass(frozen=True)
class Patient:
    """One patient's visit: scans (None where the table's cell is empty), labels (NaN where missing), other columns as text.

    Patients with several visits have a row for each, distinguished by `session`; all visits of a `subject` stay together.
    """

    id: str  # of the visit, and its folder's name: see `visit_id`
    scans: dict[str, Path | None]
    labels: dict[str, float]  # by label column: 0 or 1, days, or NaN
    clinical: dict[str, str]
    brain_mask: Path | None = None
    tumour_mask: Path | None = None
    session: str = ""

    @property
    def subject(self) -> str:
        """The patient whose visit it is."""
        return self.id.removesuffix(f"_{self.session}") if self.session else self.id

    def knows(self, endpoint: Endpoint) -> bool:
        """Whether every label column of the endpoint is filled."""
        return not any(math.isnan(self.labels[column]) for column in endpoint.columns)

    def stratum(self, endpoint: Endpoint) -> str:
        """The class that folds are balanced over: "0", "1" or "?" where the label is missing."""
        return f"{self.labels[endpoint.columns[-1]]:.0f}" if self.knows(endpoint) else "?"


def visit_id(subject: str, session: str) -> str:
    """`patient_session`, or the patient's id alone where there is one visit."""
    return f"{subject}_{session}" if session else subject


def is_patient_id(name: str) -> bool:
    """Whether a name can be a patient's: it is safe as a folder's name everywhere."""
    return bool(PATIENT_ID.fullmatch(name)) and not RESERVED.fullmatch(name) and not name.endswith(".")


def is_session(name: str) -> bool:
    """Whether a name can be a visit's; the only visit of a patient has an empty one."""
    return bool(SESSION.fullmatch(name)) and not name.endswith(".")


def columns(path: Path) -> list[str]:
    """The names of a cohort table's columns."""
    return table(path)[0]


def read(path: Path, endpoints: tuple[Endpoint, ...], needed: Sequence[str] = CHANNELS) -> list[Patient]:
    """Read a cohort table (CSV, TSV or `;`); scan paths are relative to it. Raises UsageError naming rows and columns.

    `needed` are columns that must be there beside `patient` and the endpoints' (none, where only labels are of interest).
    """
    header, rows = table(path)
    _refuse_formulas(path, rows)
    labels = [column for endpoint in endpoints for column in endpoint.columns]
    for column in ("patient", *needed, *labels):
        if column not in header:
            near = aliases.nearest(column, header)
            raise UsageError(f"{path}: no column {column!r}; the nearest one is {near!r} (found {', '.join(header)})")
    _check_ids(path, rows)
    faults: list[str] = []
    patients = []
    for line, row in rows:
        values = {
            column: _label(row[column], column, endpoint, f"{path}, row {line}", faults)
            for endpoint in endpoints
            for column in endpoint.columns
        }
        faults += _survival_faults(values, endpoints, f"{path}, row {line}")
        files = {name: _located(path.parent / row[name]) if row.get(name) else None for name in FILES}
        patients.append(
            Patient(
                visit_id(row["patient"], row.get("session", "")),
                {channel: files[channel] for channel in CHANNELS},
                values,
                {c: row[c] for c in header if c not in {"patient", "session", *FILES, *labels}},
                files["brain_mask"],
                files["tumour_mask"],
                row.get("session", ""),
            )
        )
    if faults:
        raise UsageError("\n".join(faults))
    return patients


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


def table(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """A table's column names, and each row with its line number; every cell is text. Raises UsageError naming file and line.

    It may be CSV, TSV or with semicolons, in UTF-8 or UTF-16, with any line ends.
    """
    if wrong := source.fault(path):
        raise UsageError(f"table {source.shown(path)}: {wrong}")
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except OSError as error:
        raise UsageError(f"table {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: neither UTF-8 nor UTF-16 ({error}); save it as UTF-8") from None
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
    lines = _cells(reader, path)
    header = [name.strip() for name in next(lines, [])]
    if not any(header):
        raise UsageError(f"{path}: an empty table; expected a first line with the columns' names")
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise UsageError(f"{path}: column {twice[0]!r} stands more than once")
    rows = []
    for cells in lines:
        if not any(cells):
            continue
        if len(cells) != len(header):
            raise UsageError(f"{path}, line {reader.line_num}: {len(cells)} cells; expected {len(header)}")
        rows.append((reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=True))))
    if not rows:
        raise UsageError(f"{path}: no patient in the table")
    return header, rows


def _refuse_formulas(path: Path, rows: list[tuple[int, dict[str, str]]]) -> None:
    for line, row in rows:
        for column, cell in row.items():
            if cell.startswith(("=", "@")):
                raise UsageError(f"{path}, row {line}, column {column}: {cell!r} looks like a spreadsheet formula")


def _cells(reader: Any, path: Path) -> Iterator[list[str]]:
    """The table's lines. Raises UsageError naming one that the csv module cannot part into cells."""
    try:
        yield from reader
    except csv.Error as error:  # a cell of more than 131,072 characters: most often a quotation mark that is never closed
        raise UsageError(
            f"{path}, line {reader.line_num + 1}: not CSV: {error}; look for a quotation mark without its pair"
        ) from None


def _located(path: Path) -> Path:
    """The file that a cell names, behind all links; as it stands where these lead nowhere, which its reader then reports."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # a link that leads back to itself, a name too long, a NUL character
        return Path(os.path.abspath(path))


def _check_ids(path: Path, rows: list[tuple[int, dict[str, str]]]) -> None:
    seen: dict[str, tuple[int, str]] = {}  # visits
    spellings: dict[str, tuple[int, str]] = {}  # patients
    for line, row in rows:
        name = row["patient"]
        if not is_patient_id(name):
            raise UsageError(
                f"{path}, row {line}: patient id {name!r}; expected 1 to 64 letters, digits, '.', '_' or '-', "
                "starting with a letter or digit, and no device name"
            )
        session = row.get("session", "")
        if not is_session(session):
            raise UsageError(f"{path}, row {line}: session {session!r}; expected letters, digits, '.', '_' or '-'")
        visit = visit_id(name, session)
        key = unicodedata.normalize("NFKC", visit).casefold()
        if key in seen:
            other, other_visit = seen[key]
            raise UsageError(f"{path}: patient id {visit!r} in row {line} repeats {other_visit!r} in row {other}")
        seen[key] = (line, visit)
        spelled = spellings.setdefault(unicodedata.normalize("NFKC", name).casefold(), (line, name))
        if spelled[1] != name:
            raise UsageError(
                f"{path}: patient id {name!r} in row {line} repeats {spelled[1]!r} in row {spelled[0]} in another spelling"
            )


def _label(cell: str, column: str, endpoint: Endpoint, where: str, faults: list[str]) -> float:
    if cell.lower() in MISSING:
        return math.nan
    if column == endpoint.time:
        try:
            days = float(cell)
        except ValueError:
            days = math.nan
        if not (math.isfinite(days) and days >= 0):
            faults.append(f"{where}, column {column}: {cell!r}; expected days from imaging, 0 or more, or empty")
        return days
    if cell not in ("0", "1", "0.0", "1.0"):
        faults.append(f"{where}, column {column}: {cell!r}; expected 0, 1, or empty when missing")
        return math.nan
    return float(cell)


def _survival_faults(labels: dict[str, float], endpoints: tuple[Endpoint, ...], where: str) -> list[str]:
    faults = []
    for endpoint in (e for e in endpoints if e.kind == "survival"):
        time, event = (labels[column] for column in endpoint.columns)
        if math.isnan(time) != math.isnan(event):
            faults.append(f"{where}: {endpoint.time} and {endpoint.event} must both be filled or both be empty")
        elif time == 0 and event == 1:
            faults.append(f"{where}, column {endpoint.time}: an event on day 0; expected a time after imaging")
    return faults


def dumps(patients: list[Patient]) -> bytes:
    """The table that a run is made from: the same patients with absolute paths, in the form that `read` takes."""
    extra = [name for name in ("brain_mask", "tumour_mask") if any(getattr(p, name) for p in patients)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    sessions = ["session"] if any(p.session for p in patients) else []
    writer.writerow(["patient", *sessions, *CHANNELS, *extra, *patients[0].clinical, *patients[0].labels])
    for p in patients:
        files = [p.scans[c] or "" for c in CHANNELS] + [getattr(p, name) or "" for name in extra]
        labels = ["" if math.isnan(value) else repr(value).removesuffix(".0") for value in p.labels.values()]
        writer.writerow([p.subject, *([p.session] if sessions else []), *files, *p.clinical.values(), *labels])
    return out.getvalue().encode()
