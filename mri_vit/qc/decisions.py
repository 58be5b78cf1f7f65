"""Decisions: a reviewer's table of patients to keep or to drop goes in; the rows, checked, come out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from mri_vit.data import sheet, spellings
from mri_vit.errors import UsageError
from mri_vit.run import files
from mri_vit.settings.schema import Study

COLUMNS = ("patient", "decision", "who", "why")
KEEP, DROP = "keep", "drop"


@dataclass(frozen=True)
class Decision:
    """What a reviewer decided of a patient: keep or drop, who it was and why."""

    patient: str
    keep: bool
    who: str
    why: str


def of_study(study: Study, patients: Collection[str], tell: Callable[[str], None]) -> dict[str, Decision]:
    """The decisions that a study respects: of the table that `qc.decisions` names, or else of the one beside the cohort's.

    The latter may be of another cohort too, whose table lies in the same folder; `tell` is called with how many it passed over.
    Raises UsageError as `read` does.
    """
    if study.qc.decisions:
        return read(study.qc.decisions, patients)
    beside = study.cohort.parent / files.DECISIONS
    if not beside.exists():
        return {}
    every = read(beside)
    if others := sorted(every.keys() - set(patients)):
        first = next(iter(spellings.counterparts(others, patients)), others[0])
        example = f"{first}{spellings.elsewhere(first, patients)}"
        tell(f"{beside.name}: {len(others)} decisions are of patients who are not in this cohort table, such as {example}")
    return {name: one for name, one in every.items() if name in patients}


def read(path: Path, patients: Collection[str] | None = None) -> dict[str, Decision]:
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


def dumps(decided: Iterable[Decision]) -> bytes:
    """The table again, as a run keeps it."""
    return sheet.to_csv(COLUMNS, ([one.patient, KEEP if one.keep else DROP, one.who, one.why] for one in decided))
