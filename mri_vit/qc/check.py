"""The check of a prepared cohort: prepared patients in; findings, and who is excluded for them, out.

A reviewer's table of patients to keep or to drop wins over the limits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from einops import reduce
from jaxtyping import Float
from rich.console import Console

from mri_vit.data import frozen, sheet, spellings, tokens
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.prepare import agreement
from mri_vit.prepare import cohort as preparing
from mri_vit.prepare.cohort import Excluded
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.qc.findings import Finding, deviations, findings_of, nearest, unlike
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written
from mri_vit.run.screen import WARNING, say
from mri_vit.settings.schema import Study

EXCLUDED, FLAGGED, KEPT = "excluded", "flagged", "kept"
DROPPED, LOOKED = "dropped by a reviewer", "qc: "  # how reasons for exclusion begin
SHOWN = 5  # names in a line of the terminal
ALIKE_MM = 4.0  # voxels on which near-duplicates are compared: those of the coarsest grid in use, so that one limit holds for all
COLUMNS = ("patient", "decision", "who", "why")
KEEP, DROP = "keep", "drop"


@dataclass(frozen=True)
class Looked:
    """A cohort that was looked at: records, findings, distances from the others, a reviewer's decisions, and who is excluded."""

    records: dict[str, dict[str, Any]]
    findings: dict[str, list[Finding]]
    far: dict[str, dict[str, dict[str, float]]]  # `findings.deviations`
    decisions: dict[str, Decision]
    excluded: Excluded


def look(
    study: Study,
    patients: Sequence[Patient],
    unprepared: Excluded,
    decided: dict[str, Decision],
    folder: Path,
    console: Console,
) -> Looked:
    """Hold every prepared patient against the study's limits; write qc.csv, and excluded.csv with those whom they exclude.

    `unprepared` are the patients who could not be prepared, `decided` what `decisions_of` found. Raises UsageError, and
    writes nothing, where the run has folds already and others would be excluded now.
    """
    there = preparing.without(patients, unprepared)
    records: dict[str, dict[str, Any]] = {}
    found: dict[str, list[Finding]] = {}
    for patient in there:
        records[patient.id], found[patient.id] = _alone(study, patient)
    far = deviations(records)
    for one in (*unlike(far, study.qc), *_duplicates(study, there)):
        found[one.patient].append(one)
    excluded = [*unprepared, *_excluded(found, decided, study)]
    order = {patient.id: place for place, patient in enumerate(patients)}
    excluded.sort(key=lambda row: order[row["patient"]])
    _refuse_others(study, excluded, folder)
    write_bytes(_table(found, decided, study), folder / files.FINDINGS)
    write_bytes(dump_decisions(decided.values()), folder / files.DECISIONS)
    write_bytes(preparing.table(excluded), folder / files.EXCLUDED)
    _tell(found, decided, study, console)
    return Looked(records, found, far, decided, excluded)


def _alone(study: Study, patient: Patient) -> tuple[dict[str, Any], list[Finding]]:
    """A prepared patient's record, and what is outside the limits in it; IntegrityError where it is damaged."""
    folder = study.prepared / patient.id
    record = load_record(folder)
    with as_written(folder / files.PATIENT, PREPARE_AGAIN):
        return record, findings_of(patient.id, record, study.qc)


def became(one: Finding, decided: Mapping[str, Decision], study: Study) -> str:
    """What becomes of a finding's patient: kept by a reviewer, excluded or flagged."""
    if (decision := decided.get(one.patient)) and decision.keep:
        return KEPT
    return EXCLUDED if one.reason in study.qc.exclude else FLAGGED


def _refuse_others(study: Study, excluded: Excluded, folder: Path) -> None:
    """Raise UsageError where folds were made without exactly these patients."""
    if not (folder / files.FOLDS).exists():
        return
    before, now = frozen.excluded(folder), {row["patient"] for row in excluded}
    changes = (("excluded", now - before), ("kept", before - now))
    if said := [f"{', '.join(sorted(names)[:SHOWN])} would be {what}" for what, names in changes if names]:
        raise UsageError(
            f"{folder}: this run's folds are made and its patients settled; now {'; '.join(said)}: choose another output"
        )


def _duplicates(study: Study, patients: Sequence[Patient]) -> list[Finding]:
    """Both patients of every pair that looks like one, but for the visits of one patient."""
    means = np.array([_means(study, patient) for patient in patients])
    found = []
    for i, j in nearest(means.reshape(len(patients), study.grid.places * len(study.channels))):
        one, other = patients[i], patients[j]
        if one.subject == other.subject:
            continue
        alike = _likeness(study, one, other)
        if alike >= study.qc.duplicate:
            words = f"looks like {{}}: their {study.prepare.reference} agree by {alike:.2f}, as only one person's do"
            found += [Finding(a.id, "near-duplicate", "", alike, words.format(b.id)) for a, b in ((one, other), (other, one))]
    return found


def _likeness(study: Study, one: Patient, other: Patient) -> float:
    """Likeness of two patients' reference scans as they lie on the grid; see `agreement`."""
    reference = study.prepare.reference
    both = [tokens.to_volume(tokens.load(study.prepared / patient.id / files.TOKENS)) for patient in (one, other)]
    shared = np.logical_and(*((volume != 0).any(axis=0) for volume in both))
    if not shared.any():
        return 0.0
    first, second = (agreement.of_grid(volume, shared, study.channels, study.grid, ALIKE_MM) for volume in both)
    return agreement.similarity(first.scans[reference], second.scans[reference], first.brain, agreement.window(first))


def _means(study: Study, patient: Patient) -> Float[np.ndarray, "places c"]:
    """Each scan's mean at each place; NaN where there is no brain, or no scan."""
    stored = tokens.load(study.prepared / patient.id / files.TOKENS)
    means = np.full((stored.grid.places, len(study.channels)), np.nan, np.float32)
    means[stored.place] = reduce(stored.patches.astype(np.float32), "f (c v) -> f c", "mean", c=len(study.channels))
    means[:, ~means[stored.place].any(axis=0)] = np.nan
    return means


def _excluded(found: Mapping[str, Sequence[Finding]], decided: Mapping[str, Decision], study: Study) -> Excluded:
    rows = []
    for name, findings in found.items():
        decision = decided.get(name)
        if decision and not decision.keep:
            rows.append({"patient": name, "file": "", "reason": f"{DROPPED} ({decision.who}: {decision.why})"})
        elif out := [one for one in findings if became(one, decided, study) == EXCLUDED]:
            kinds = ", ".join(dict.fromkeys(f"{one.scan} {one.reason}".strip() for one in out))
            rows.append({"patient": name, "file": "", "reason": f"{LOOKED}{kinds} ({'; '.join(one.words for one in out)})"})
    return rows


def kind(reason: str) -> str:
    """A reason for exclusion without what is of one patient alone, so that those of many can be counted."""
    return reason.partition(" (")[0] if reason.startswith((DROPPED, LOOKED)) else reason


def _table(found: Mapping[str, Sequence[Finding]], decided: Mapping[str, Decision], study: Study) -> bytes:
    rows = (
        [one.patient, one.reason, one.scan, f"{one.figure:.4g}", became(one, decided, study), one.words]
        for findings in found.values()
        for one in findings
    )
    return sheet.to_csv(["patient", "reason", "scan", "figure", "became", "words"], rows)


def _tell(found: Mapping[str, Sequence[Finding]], decided: Mapping[str, Decision], study: Study, console: Console) -> None:
    whose: dict[tuple[str, str], list[str]] = defaultdict(list)
    for findings in found.values():
        for (what, reason), name in {(became(one, decided, study), one.reason): one.patient for one in findings}.items():
            whose[what, reason].append(name)
    for (what, reason), names in sorted(whose.items()):
        some = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        say(console, f"qc {what} {len(names)}, {reason}: {some}", WARNING)
    if dropped := Counter(one.keep for one in decided.values()):
        say(console, f"a reviewer's decisions were respected: {dropped[True]} to keep, {dropped[False]} to drop")


@dataclass(frozen=True)
class Decision:
    """What a reviewer decided of a patient: keep or drop, who it was and why."""

    patient: str
    keep: bool
    who: str
    why: str


def decisions_of(study: Study, patients: Collection[str], tell: Callable[[str], None]) -> dict[str, Decision]:
    """The decisions that a study respects: of the table that `qc.decisions` names, or else of the one beside the cohort's.

    The latter may be of another cohort too, whose table lies in the same folder; `tell` is called with how many it passed over.
    Raises UsageError as `read_decisions` does.
    """
    if study.qc.decisions:
        return read_decisions(study.qc.decisions, patients)
    beside = study.cohort.parent / files.DECISIONS
    if not beside.exists():
        return {}
    every = read_decisions(beside)
    if others := sorted(every.keys() - set(patients)):
        first = next(iter(spellings.counterparts(others, patients)), others[0])
        example = f"{first}{spellings.elsewhere(first, patients)}"
        tell(f"{beside.name}: {len(others)} decisions are of patients who are not in this cohort table, such as {example}")
    return {name: one for name, one in every.items() if name in patients}


def read_decisions(path: Path, patients: Collection[str] | None = None) -> dict[str, Decision]:
    """The decisions by patient, all of whom must be among `patients` where these are given.

    Raises
    ------
    UsageError
        A column or a cell is missing, a decision is neither keep nor drop, or a patient is unknown or has two.
    """
    header, rows = sheet.read(path)
    if lacking := [name for name in COLUMNS if name not in header]:
        raise UsageError(f"{path}: no column {lacking[0]!r}; expected {', '.join(COLUMNS)} (found {', '.join(header)})")
    found: dict[str, Decision] = {}
    for line, row in rows:
        where = f"{path}, row {line}"
        if empty := [name for name in COLUMNS if not row[name]]:
            raise UsageError(f"{where}: {empty[0]} is empty; a decision has {', '.join(COLUMNS)}")
        patient, decision = row["patient"], row["decision"].lower()
        if decision not in (KEEP, DROP):
            raise UsageError(f"{where}: decision {row['decision']!r}; expected keep or drop")
        if patients is not None and patient not in patients:
            like = spellings.elsewhere(patient, patients)
            raise UsageError(f"{where}: patient {patient!r} is not in the cohort table{like}")
        if patient in found:
            raise UsageError(f"{where}: patient {patient!r} has a decision already")
        found[patient] = Decision(patient, decision == KEEP, row["who"], row["why"])
    return found


def dump_decisions(decided: Iterable[Decision]) -> bytes:
    """The table again, as a run keeps it."""
    return sheet.to_csv(COLUMNS, ([one.patient, KEEP if one.keep else DROP, one.who, one.why] for one in decided))
