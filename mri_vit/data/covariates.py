"""Covariates: the clinical columns of a cohort table, as a table of numbers and categories with a row per visit."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from mri_vit.data.cohort import MISSING, Patient
from mri_vit.errors import UsageError
from mri_vit.settings.schema import DEFAULT_ENDPOINTS, Study

LARGEST = 1e100  # its square, which a variance takes, is still a number
MOST_LEVELS = 10  # a column of more different words is a name or a note, not a category
ORIGIN = (
    "site",
    "cohort",
    "scan_cohort",
    "same_as",
)  # where a patient is from, not how they are
LABEL_COLUMNS = {column for endpoint in DEFAULT_ENDPOINTS for column in endpoint.columns}  # no covariate, studied or not
# Words by which tables name what happened after imaging; such a column is no covariate unless it is asked for by name.
OUTCOME = re.compile(
    r"(?i)(^|[_ .-])(os|pfs|rfs|ttp|surviv\w*|death|dead|died|deceased|vital|alive|event|censor\w*"
    r"|progress\w*|recurr\w*|relapse\w*|follow\w*|date|outcome)($|[_ .-])"
)

METHYLATION = re.compile(r"(?i)methyl")  # of MGMT's promoter, in a table of glioblastoma
LONG = 4  # letters from which a beginning is no accident: tert is TERTp's, os is not every osteo's


def clinical_columns(patients: Sequence[Patient], study: Study) -> list[str]:
    """The columns that "clinical" may use: those named in `controls.columns`, else all that hold numbers or categories.

    Labels, columns that by their name are labels or outcomes, the site and the column whose values are left out are not among
    these.
    What a column holds is inferred from the cells of all patients, test patients included; no label is looked at.

    Raises UsageError when a named column is not in the table.
    """
    there, asked = list(patients[0].clinical), study.controls.columns
    unknown = [name for name in asked or () if name not in there]
    if unknown:
        raise UsageError(f"controls.columns: no column {unknown[0]!r} in the cohort table (found {', '.join(there)})")
    if asked is not None:
        return list(asked)
    apart = {*ORIGIN, study.train.leave_out}
    taken = [name for name in there if name not in apart and not OUTCOME.search(name) and not _names_label(name, study)]
    return [str(name) for name, column in clinical_table(patients, taken).items() if _useful(column)]


def _names_label(column: str, study: Study) -> bool:
    """Whether a column is a label or named after one, such as `MGMT index`, `tert_promoter` or `Methylated`."""
    labels = {name.lower() for e in study.endpoints for name in (e.name, *e.columns)} | LABEL_COLUMNS
    words = [column.lower(), *re.split(r"[^a-z0-9]+", column.lower()), *re.split(r"[^a-z]+", column.lower())]  # IDH1 is of IDH
    alike = (
        min(len(word), len(label)) >= LONG and (word.startswith(label) or label.startswith(word))
        for word in words
        for label in labels
    )
    return METHYLATION.search(column) is not None or not labels.isdisjoint(words) or any(alike)


def clinical_table(patients: Sequence[Patient], columns: Sequence[str]) -> pd.DataFrame:
    """A row per visit id; a column is a number where every filled cell is one, else text; missing is NaN or None."""
    cells = {name: [p.clinical[name] for p in patients] for name in columns}
    table = pd.DataFrame(cells, index=pd.Index([p.id for p in patients]), columns=pd.Index(columns), dtype=object)
    table = table.mask(table.apply(lambda column: column.str.lower().isin(MISSING)), None)
    for name in columns:
        number = pd.Series(pd.to_numeric(table[name], errors="coerce"), dtype=float)
        endless = (number.abs() > LARGEST).to_numpy()
        if endless.any():
            p = patients[int(endless.argmax())]
            raise UsageError(f"patient {p.id}, column {name}: {p.clinical[name]!r}; expected a number, or nothing")
        if number.count() == table[name].count():
            table[name] = number
    return table


def _useful(column: pd.Series) -> bool:
    """Whether a column varies and is a number or a category, and names no files."""
    levels = column.nunique()
    if column.dtype == float:
        return levels > 1
    return 1 < levels <= MOST_LEVELS and not column.str.endswith((".nii", ".nii.gz")).any()
