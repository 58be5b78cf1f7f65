"""The stage that looks at a prepared cohort: prepared patients in; findings, and who is excluded for them, out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from einops import reduce
from jaxtyping import Float
from rich.console import Console

from mri_vit.data import frozen, sheet, tokens
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.prepare import stage as preparing
from mri_vit.prepare.prepared import PREPARE_AGAIN, load_record
from mri_vit.prepare.quality import agreement, copies
from mri_vit.prepare.stage import Excluded
from mri_vit.qc import cohort, decisions, limits
from mri_vit.qc.decisions import Decision
from mri_vit.qc.limits import Finding
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written
from mri_vit.run.screen import WARNING, say
from mri_vit.settings.schema import Study

EXCLUDED, FLAGGED, KEPT = "excluded", "flagged", "kept"
DROPPED, LOOKED = "dropped by a reviewer", "qc: "  # how reasons for exclusion begin
SHOWN = 5  # names in a line of the terminal
ALIKE_MM = 4.0  # voxels on which near-duplicates are compared: those of the coarsest grid in use, so that one limit holds for all


@dataclass(frozen=True)
class Looked:
    """A cohort that was looked at: records, findings, distances from the others, a reviewer's decisions, and who is excluded."""

    records: dict[str, dict[str, Any]]
    findings: dict[str, list[Finding]]
    far: dict[str, dict[str, dict[str, float]]]  # `cohort.deviations`
    decisions: dict[str, Decision]
    excluded: Excluded


def prepare_and_look(study: Study, patients: Sequence[Patient], folder: Path, console: Console) -> Looked:
    """Prepare every patient and look at each. A reviewer's decisions are read before the hours that preparing takes."""
    decided = decisions.of_study(study, {patient.id for patient in patients}, partial(say, console, style=WARNING))
    return look(study, patients, preparing.prepare(study, patients, folder, console), decided, folder, console)


def look(
    study: Study,
    patients: Sequence[Patient],
    unprepared: Excluded,
    decided: dict[str, Decision],
    folder: Path,
    console: Console,
) -> Looked:
    """Hold every prepared patient against the study's limits; write qc.csv, and excluded.csv with those whom they exclude.

    `unprepared` are the patients who could not be prepared, `decided` what `decisions.of_study` found. Raises UsageError, and
    writes nothing, where the run has folds already and others would be excluded now.
    """
    there = preparing.without(patients, unprepared)
    records: dict[str, dict[str, Any]] = {}
    found: dict[str, list[Finding]] = {}
    for patient in there:
        records[patient.id], found[patient.id] = _alone(study, patient)
    far = cohort.deviations(records)
    for one in (*cohort.unlike(far, study.qc), *_duplicates(study, there)):
        found[one.patient].append(one)
    excluded = [*unprepared, *_excluded(found, decided, study)]
    order = {patient.id: place for place, patient in enumerate(patients)}
    excluded.sort(key=lambda row: order[row["patient"]])
    _refuse_others(study, excluded, folder)
    write_bytes(_table(found, decided, study), folder / files.FINDINGS)
    write_bytes(decisions.dumps(decided.values()), folder / files.DECISIONS)
    write_bytes(preparing.table(excluded), folder / files.EXCLUDED)
    _tell(found, decided, study, console)
    return Looked(records, found, far, decided, excluded)


def _alone(study: Study, patient: Patient) -> tuple[dict[str, Any], list[Finding]]:
    """A prepared patient's record, and what is outside the limits in it; IntegrityError where it is damaged."""
    folder = study.prepared / patient.id
    record = load_record(folder)
    with as_written(folder / files.PATIENT, PREPARE_AGAIN):
        return record, limits.of_patient(patient.id, record, study.qc)


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
    for i, j in cohort.nearest(means.reshape(len(patients), study.grid.places * len(study.channels))):
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
    first, second = (copies.of_grid(volume, shared, study.channels, study.grid, ALIKE_MM) for volume in both)
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
