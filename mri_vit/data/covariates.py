"""Covariates: the clinical columns of a cohort table, as a table of numbers and categories with a row per visit."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from mri_vit.data.cohort import Patient
from mri_vit.data.columns import MAX_NUMBER, Contents, contents, filled, is_age, numbers
from mri_vit.errors import UsageError
from mri_vit.kinds.kind import labels
from mri_vit.settings.schema import DEFAULT_ENDPOINTS, Endpoint, Study

MOST_NAMED = 5  # patients in a sentence
ORIGIN = {  # where a patient is from, not how they are
    "site": "it says where a patient is from",
    "cohort": "it says where a patient is from",
    "scan_cohort": "it says where scans are from",
    "same_as": "it names the same patient in another cohort",
}
# no covariate, studied or not; the WHO's type follows from IDH and 1p/19q
LABEL_COLUMNS = {column for endpoint in DEFAULT_ENDPOINTS for column in endpoint.columns} | {"who_type"}
# What a pathologist reads a type or a grade from, or writes beside it: no covariate of either unless it is asked for by name.
# UCSF-PDGM, UPENN-GBM, TCGA, MU-Glioma-Post and RHUH-GBM have such columns.
DIAGNOSIS = re.compile(r"(?i)idh|atrx|1p|19q|codel|grade|diagnos|histolog|histopath|subtype|who|project|tert|egfr|cdkn|h3")
DIAGNOSED = ("who_type", "grade")  # endpoints that are a diagnosis
# Words by which tables name what happened after imaging; such a column is no covariate unless it is asked for by name.
OUTCOME = re.compile(
    r"(?i)(^|[_ .-])(os|pfs|rfs|ttp|surviv\w*|death|dead|died|deceased|vital|alive|event|censor\w*"
    r"|progress\w*|recurr\w*|relapse\w*|follow\w*|date|outcome)($|[_ .-])"
)

# Extent of resection is known after the scans and before survival: Extent_of_Resection (BraTS 2020), GTR_over90percent
# (UPENN-GBM), EOR (UCSF-PDGM).
SURGERY = re.compile(r"(?i)(^|[_ .-])(resect\w*|eor|gtr)($|[_ .-])")

METHYLATION = re.compile(r"(?i)methyl")  # of MGMT's promoter, in a table of glioblastoma
Withheld = Mapping[str, Mapping[str, str]]  # by endpoint the columns that its regression does not read, each with the reason
MIN_STEM_LETTERS = 4  # letters from which a beginning is no accident: tert is TERTp's, os is not every osteo's


@dataclass(frozen=True)
class ClinicalColumn:
    """What becomes of a clinical column: what it holds, and by its name why "clinical" does not read it, "" where it may."""

    name: str
    contents: Contents
    apart: str = ""

    @property
    def read(self) -> bool:
        """Whether "clinical" reads it."""
        return not self.apart and self.contents.kind is not None

    @property
    def why_not(self) -> str:
        """Why "clinical" does not read it; "" where it does."""
        return self.apart or self.contents.why

    @property
    def label(self) -> str:
        """The column as a sentence names it."""
        return f"column {self.name}" if self.name else "the column without a name"

    @property
    def remark(self) -> str:
        """What a person should look at in its cells; of columns that are not covariates by their name only in ages."""
        return f"{self.label}: {self.contents.remark}" if self.contents.remark and (not self.apart or is_age(self.name)) else ""


def examined(patients: Sequence[Patient], study: Study) -> list[ClinicalColumn]:
    """What becomes of each clinical column of a table, in its order.

    What a column holds is inferred from the cells of all patients, test patients included; no label is looked at.
    Raises UsageError where a number is not finite.
    """
    subjects = [p.subject for p in patients]
    columns = []
    for name in patients[0].clinical if patients else ():
        cells = [p.clinical[name] for p in patients]
        _refuse_endless(name, numbers(name, cells), patients)
        columns.append(ClinicalColumn(name, contents(name, cells, subjects), _apart(name, study)))
    return columns


def clinical_columns(patients: Sequence[Patient], study: Study) -> list[str]:
    """The columns that "clinical" may use: those named in `controls.columns`, else all that hold numbers or categories.

    Labels, columns that by their name are labels or outcomes, the site and the column whose values are left out are not among
    these. A binary endpoint's label is a column as any other where it is named, of survival endpoints alone: see `withheld`.

    Raises UsageError when a named column is not in the table, has cells that are no numbers among numbers, or no endpoint may
    read it.
    """
    asked, columns = study.controls.columns, examined(patients, study)
    if asked is None:
        return [column.name for column in columns if column.read]
    markers = [endpoint.name for endpoint in study.endpoints if not labels(endpoint).of_visit]
    _refuse_unreadable(asked, [*patients[0].clinical, *(name for name in markers if name in patients[0].labels)], study)
    for column in columns:
        if column.name in asked and column.contents.kind is None and column.contents.remark:
            where = patients[column.contents.rows[0]].id
            raise UsageError(f"controls.columns: patient {where}, {column.remark}")
    return list(asked)


def remarks(patients: Sequence[Patient], study: Study) -> list[str]:
    """What a person should look at in the clinical columns, as sentences that name column and patients."""
    sentences = []
    for column in (column for column in examined(patients, study) if column.remark):
        ids = [patients[row].id for row in column.contents.rows]
        more = f" and {len(ids) - MOST_NAMED} more" * (len(ids) > MOST_NAMED)
        sentences.append(f"{column.remark} ({', '.join(ids[:MOST_NAMED])}{more})")
    return sentences


def _apart(name: str, study: Study) -> str:
    """Why "clinical" does not read a column of this name, whatever it holds; "" where it may."""
    if study.controls.columns is not None:
        return "" if name in study.controls.columns else "controls.columns does not name it"
    if name in ORIGIN:
        return ORIGIN[name]
    if name == study.train.leave_out:
        return "its values are left out in turn"
    if OUTCOME.search(name):
        return "it is named like an outcome"
    return "it is named after a label" if _names_label(name, study.endpoints) else ""


def withheld(columns: Sequence[str], study: Study) -> Withheld:
    """Which of the clinical columns each endpoint's regression does not read, and why; only endpoints that have such columns.

    No endpoint reads what is its own label by name, and no survival endpoint what is an outcome by name. Labels of others and
    the extent of resection are known after the surgery that follows the scans, as the molecular labels are: survival alone,
    which is counted beyond it, may be held against them.
    """
    found = {e.name: {name: why for name in columns if (why := _why_not(name, e, study))} for e in study.endpoints}
    return {name: reasons for name, reasons in found.items() if reasons}


def read_by(endpoint: Endpoint, covariates: pd.DataFrame, apart: Mapping[str, Collection[str]]) -> pd.DataFrame:
    """The covariates without those that are kept apart from an endpoint."""
    return covariates.drop(columns=[name for name in apart.get(endpoint.name, ()) if name in covariates])


def withheld_in_words(apart: Withheld) -> str:
    """Which endpoint does not read which column, in words; "" where each reads all: mgmt not for mgmt (it is named after …)."""
    endpoints: dict[tuple[str, str], list[str]] = {}
    for endpoint, reasons in apart.items():
        for column, why in reasons.items():
            endpoints.setdefault((column, why), []).append(endpoint)
    return "; ".join(f"{column} not for {', '.join(names)} ({why})" for (column, why), names in endpoints.items())


def _why_not(column: str, endpoint: Endpoint, study: Study) -> str:
    """Why an endpoint's regression may not read a column; "" where it may."""
    if _named_after(column, {name.lower() for name in (endpoint.name, *endpoint.columns)}):
        return "it is named after the label itself"
    if endpoint.name in DIAGNOSED and study.controls.columns is None and DIAGNOSIS.search(column):
        return "a diagnosis is made with it"
    if labels(endpoint).of_visit:
        later = {n.lower() for e in study.endpoints if labels(e).of_visit for n in (e.name, *e.columns)}
        return "it is named like an outcome" if OUTCOME.search(column) or _named_after(column, later) else ""
    if SURGERY.search(column):
        return "the extent of resection is for survival alone"
    return "a label of another endpoint is for survival alone" if _names_label(column, study.endpoints) else ""


def _refuse_unreadable(asked: Sequence[str], there: Sequence[str], study: Study) -> None:
    """Raise UsageError that names a column which is not there, or which no endpoint may read."""
    outcomes = {column: e.name for e in study.endpoints if labels(e).of_visit for column in e.columns}
    for name in asked:
        if name in outcomes:
            raise UsageError(f"controls.columns: {name!r} is the outcome of {outcomes[name]}, after the scans; leave it out")
        if name not in there:
            raise UsageError(f"controls.columns: no column {name!r} in the cohort table (found {', '.join(there)})")
        apart = withheld([name], study)
        if len(apart) == len(study.endpoints):
            raise UsageError(
                f"controls.columns: no endpoint can be held against {name!r}: {withheld_in_words(apart)}; leave it out"
            )


def _names_label(column: str, endpoints: tuple[Endpoint, ...]) -> bool:
    """Whether a column is a label or named after one, such as `MGMT index`, `tert_promoter` or `Methylated`."""
    return _named_after(column, {n.lower() for e in endpoints for n in (e.name, *e.columns)} | LABEL_COLUMNS)


def _named_after(column: str, labels: Collection[str]) -> bool:
    """Whether a column is one of these labels, all in small letters, or named after one."""
    words = [column.lower(), *re.split(r"[^a-z0-9]+", column.lower()), *re.split(r"[^a-z]+", column.lower())]  # IDH1 is of IDH
    alike = (
        min(len(word), len(label)) >= MIN_STEM_LETTERS and (word.startswith(label) or label.startswith(word))
        for word in words
        for label in labels
    )
    methylation = "mgmt" in labels and METHYLATION.search(column) is not None
    return methylation or not set(labels).isdisjoint(words) or any(alike)


def clinical_table(patients: Sequence[Patient], columns: Sequence[str]) -> pd.DataFrame:
    """A row per visit id; a column is a number where every filled cell is one, else text; missing or unknown is NaN or None.

    A column is one of `clinical`, or a label's, which is one where it is an endpoint of the study.
    """
    index = pd.Index([p.id for p in patients])
    columns_read: dict[str, pd.Series] = {}
    for name in columns:
        cells = [_cell(p, name) for p in patients]
        values = numbers(name, cells)
        _refuse_endless(name, values, patients)
        words = [cell if filled(cell) else None for cell in cells]
        columns_read[name] = pd.Series(words, index, object) if values is None else pd.Series(values, index, float)
    return pd.DataFrame(columns_read, index=index, columns=pd.Index(columns))


def _refuse_endless(name: str, values: Sequence[float] | None, patients: Sequence[Patient]) -> None:
    """Raise UsageError that names the patient whose number is too large to compute with."""
    for patient, value in zip(patients, values or [0.0] * len(patients), strict=True):
        if abs(value) > MAX_NUMBER:
            raise UsageError(f"patient {patient.id}, column {name}: {_cell(patient, name)!r}; expected a number, or nothing")


def _cell(patient: Patient, column: str) -> str:
    """What the table has in a column, "" where a label is missing."""
    if column in patient.clinical:
        return patient.clinical[column]
    if column in patient.classes:
        return patient.classes[column]
    return "" if math.isnan(patient.labels[column]) else f"{patient.labels[column]:g}"
