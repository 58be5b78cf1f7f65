"""What a run answers to the items of a checklist about its patients: the content of `metrics.json` goes in, Markdown comes out.

As in `answers`, nothing ("") is said where the metrics do not show the thing.
"""

from __future__ import annotations

from mri_vit.report.schema.metrics import Metrics
from mri_vit.report.schema.survival import SurvivalEndpoint
from mri_vit.report.words.notation import is_defined, number
from mri_vit.report.words.table1 import lines
from mri_vit.report.words.wording import counted, escape, listed

PARTS = {"fold": "each fold", "left out": "each value left out", "excluded": "those not predicted", "development": "both cohorts"}


def follow_up(metrics: Metrics) -> str:
    """Median follow-up of each survival endpoint."""
    said = []
    for name, endpoint in metrics.endpoints.items():
        if isinstance(endpoint, SurvivalEndpoint) and endpoint.follow_up.n:
            found = endpoint.follow_up
            median = f"{number(found.median_days, 0)} days" if is_defined(found.median_days) else "not reached"
            said.append(f"Median follow-up of {escape(name)} (reverse Kaplan-Meier): {median}.")
    return " ".join(said)


def characteristics(metrics: Metrics) -> str:
    """The first column of Table 1, and of whom else it is made."""
    table = metrics.table1
    clinical = table.model_copy(update={"rows": tuple(row for row in table.rows if row.kind in ("number", "words"))})
    if not clinical.rows:
        return ""
    said = []
    for line in lines(clinical):
        if line.below and line.head != "missing":
            said[-1] += f" {escape(line.head)} {line.cells[0]},"
        elif line.below:
            said[-1] += f" missing in {line.cells[0]}"
        else:
            said.append(f"{escape(line.head)} {line.cells[0]}".strip())
    kinds = list(dict.fromkeys(PARTS[split.kind] for split in table.splits if split.kind in PARTS))
    parts = f" Likewise for {listed(kinds)} in tables/table1.csv." if kinds else ""
    return f"Of {counted(table.splits[0].n, 'patient')}: {'; '.join(one.rstrip(',') for one in said)}.{parts}"


def compared(metrics: Metrics) -> str:
    """How far the evaluated cohort and that of development are apart."""
    kinds = [split.kind for split in metrics.table1.splits]
    if "development" not in kinds:
        return ""
    place = kinds.index("development")
    told = [(row, row.cells[place].difference) for row in metrics.table1.rows]
    said = [f"{escape(row.column)} {number(apart, 2)}" for row, apart in told if is_defined(apart)]
    return f"Standardised differences from the cohort of development: {'; '.join(said)} (tables/table1.csv)." if said else ""


def failures(metrics: Metrics) -> str:
    """What the worst patients have in common."""
    return " ".join(f"{escape(name)}: {escape(found.sentence)}" for name, found in metrics.failures.items() if found.sentence)


def stored(metrics: Metrics) -> str:
    """Where every patient's result is."""
    if not metrics.patients:
        return ""
    who = counted(len(metrics.patients), "patient")
    return f"Score, label and error of each of {who} are stored in tables/patients.csv, and every figure in metrics.json."
