"""The cohort: a table of patients with scans and labels that may be missing, and the folds they are divided into."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
import math
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from mri_vit.config import CHANNELS, Endpoint
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.volume import write_bytes

PATIENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # safe as a folder name everywhere
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
    """One patient: scans (None where the table's cell is empty), labels (NaN where missing) and other columns as text."""

    id: str
    scans: dict[str, Path | None]
    labels: dict[str, float]  # by label column: 0 or 1, days, or NaN
    clinical: dict[str, str]
    brain_mask: Path | None = None
    tumour_mask: Path | None = None

    def knows(self, endpoint: Endpoint) -> bool:
        """Whether every label column of the endpoint is filled."""
        return not any(math.isnan(self.labels[column]) for column in endpoint.columns)

    def stratum(self, endpoint: Endpoint) -> str:
        """The class that folds are balanced over: "0", "1" or "?" where the label is missing."""
        return f"{self.labels[endpoint.columns[-1]]:.0f}" if self.knows(endpoint) else "?"


def read(path: Path, endpoints: tuple[Endpoint, ...]) -> list[Patient]:
    """Read a cohort table (CSV, TSV or `;`); scan paths are relative to it. Raises UsageError naming rows and columns."""
    header, rows = _rows(path)
    labels = [column for endpoint in endpoints for column in endpoint.columns]
    for column in ("patient", *CHANNELS, *labels):
        if column not in header:
            near = difflib.get_close_matches(column, header, n=1, cutoff=0.0)
            raise UsageError(f"{path}: no column {column!r}; the nearest one is {near[0]!r} (found {', '.join(header)})")
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
        files = {name: (path.parent / row[name]).resolve() if row.get(name) else None for name in FILES}
        patients.append(
            Patient(
                row["patient"],
                {channel: files[channel] for channel in CHANNELS},
                values,
                {c: row[c] for c in header if c not in {"patient", *FILES, *labels}},
                files["brain_mask"],
                files["tumour_mask"],
            )
        )
    if faults:
        raise UsageError("\n".join(faults))
    return patients


def _rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Column names, and each row with its line number; every cell is text."""
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such cohort table") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: neither UTF-8 nor UTF-16 ({error}); save it as UTF-8") from None
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
    header = [name.strip() for name in next(reader, [])]
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise UsageError(f"{path}: column {twice[0]!r} stands more than once")
    rows = []
    for cells in reader:
        if not any(cells):
            continue
        if len(cells) != len(header):
            raise UsageError(f"{path}, line {reader.line_num}: {len(cells)} cells; expected {len(header)}")
        row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        for column, cell in row.items():
            if cell.startswith(("=", "@")):
                raise UsageError(f"{path}, row {reader.line_num}, column {column}: {cell!r} looks like a spreadsheet formula")
        rows.append((reader.line_num, row))
    if not rows:
        raise UsageError(f"{path}: no patient in the table")
    return header, rows


def _check_ids(path: Path, rows: list[tuple[int, dict[str, str]]]) -> None:
    seen: dict[str, tuple[int, str, str]] = {}
    for line, row in rows:
        name = row["patient"]
        if not PATIENT_ID.fullmatch(name) or RESERVED.fullmatch(name) or name.endswith("."):
            raise UsageError(
                f"{path}, row {line}: patient id {name!r}; expected 1 to 64 letters, digits, '.', '_' or '-', "
                "starting with a letter or digit, and no device name"
            )
        key = unicodedata.normalize("NFKC", name).casefold()
        if key in seen:
            other, other_name, session = seen[key]
            if row.get("session", "") != session and name == other_name:
                raise UsageError(f"{path}: patient {name!r} has sessions in rows {other} and {line}; keep the one row to be used")
            raise UsageError(f"{path}: patient id {name!r} in row {line} repeats {other_name!r} in row {other}")
        seen[key] = (line, name, row.get("session", ""))


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
    writer.writerow(["patient", *CHANNELS, *extra, *patients[0].clinical, *patients[0].labels])
    for p in patients:
        files = [p.scans[c] or "" for c in CHANNELS] + [getattr(p, name) or "" for name in extra]
        labels = ["" if math.isnan(value) else repr(value).removesuffix(".0") for value in p.labels.values()]
        writer.writerow([p.id, *files, *p.clinical.values(), *labels])
    return out.getvalue().encode()


def make_folds(
    patients: list[Patient], endpoints: tuple[Endpoint, ...], folds: int, repeats: int, seed: int
) -> list[list[list[str]]]:
    """`repeats` divisions of the patients into `folds`, balanced over the endpoints: ids by repeat and fold.

    Raises UsageError when an endpoint's rarer class cannot be in every fold.
    """
    known = 0
    for endpoint in endpoints:
        count = Counter(p.stratum(endpoint) for p in patients)
        known += count["0"] + count["1"]
        least = count["1"] if endpoint.kind == "survival" else min(count["0"], count["1"])
        if count["0"] + count["1"] and least < folds:
            raise UsageError(
                f"{endpoint.name}: {folds} folds, but {count['1']} patients with 1 and {count['0']} with 0; use fewer folds"
            )
    if not known:
        raise UsageError(
            f"no label of {', '.join(e.name for e in endpoints)} is known for any patient: there is nothing to learn"
        )
    ids = np.array([p.id for p in patients])
    return [
        [
            ids[test].tolist()
            for _, test in StratifiedKFold(folds, shuffle=True, random_state=seed + repeat).split(
                ids, _strata(patients, endpoints, folds)
            )
        ]
        for repeat in range(repeats)
    ]


def tuning_split(
    patients: list[Patient], endpoints: tuple[Endpoint, ...], fraction: float, seed: int
) -> tuple[list[Patient], list[Patient]]:
    """Divide the patients outside a test fold into (train, tune), balanced likewise."""
    n = max(1, round(len(patients) * fraction))
    strata = _strata(patients, endpoints, least=2)
    many_enough = len(set(strata)) <= min(n, len(patients) - n)
    splitter = StratifiedShuffleSplit(1, test_size=n, random_state=seed)
    train, tune = next(splitter.split(strata, strata if many_enough else ["all"] * len(strata)))
    return [patients[i] for i in sorted(train)], [patients[i] for i in sorted(tune)]


def _strata(patients: list[Patient], endpoints: tuple[Endpoint, ...], least: int) -> list[str]:
    """A class per patient over all endpoints; rare ones (fewer than `least`) forget their last endpoints until common enough."""
    full = [[p.stratum(endpoint) for endpoint in endpoints] for p in patients]
    strata = ["".join(classes) for classes in full]
    for kept in range(len(endpoints) - 1, -1, -1):
        count = Counter(strata)
        strata = [s if count[s] >= least else "".join(classes[:kept]) for s, classes in zip(strata, full, strict=True)]
    count = Counter(strata)
    commonest = count.most_common(1)[0][0]
    return [s if count[s] >= least else commonest for s in strata]


def save_folds(folds: list[list[list[str]]], seed: int, path: Path) -> str:
    """Write `folds.json`, and its SHA-256 to `folds.sha256`, and return that."""
    content = json.dumps({"schema": 1, "seed": seed, "repeats": [{"folds": repeat} for repeat in folds]}, indent=1).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    write_bytes(sha256.encode(), path.with_suffix(".sha256"))
    write_bytes(content, path)
    return sha256


def load_folds(path: Path) -> list[list[list[str]]]:
    """Read `folds.json`. Raises IntegrityError when it is not as it was written, or a patient sits in two folds of one repeat."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != path.with_suffix(".sha256").read_text():
        raise IntegrityError(f"{path} was changed after the folds were made; choose another output or delete it")
    folds = [repeat["folds"] for repeat in json.loads(content)["repeats"]]
    for repeat in folds:
        ids = [patient for fold in repeat for patient in fold]
        if len(set(ids)) != len(ids):
            raise IntegrityError(f"{path}: a patient sits in two folds")
    return folds
