"""What classes and grades have in common: their names in a table, and how patients are spread over folds by them.

A label is the place of its class among the endpoint's, counted from 0.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from mri_vit.data import sheet
from mri_vit.data.columns import MISSING, MISSING_CODES
from mri_vit.errors import UsageError
from mri_vit.kinds.kind import LabelRows, Labels, Side
from mri_vit.settings.schema import MIN_CLASSES, Endpoint, folded

MAX_CLASSES = 12  # of a column that names its own; more different words are names or notes, and numbers are measurements
RARE_SHARE = 0.05  # of the patients: a class so rare whose name is nearly another's may be a slip of the pen
ALIKE = 0.6  # of two names, by difflib: gbm and gmb have 0.67, astro and astr0 0.8, astro and oligo 0.2
SUM_TOL = 1e-3  # of the probabilities of a patient's classes from 1: a table of three decimals is that far off


class ClassLabels(Labels):
    """Labels that are one of several names."""

    label_columns = ("label",)

    def read(self, endpoint: Endpoint, column: str, cell: str) -> float:
        names = endpoint.classes or ()
        found = [index for index, name in enumerate(names) if folded(name) == folded(cell)]
        if not found:
            near = difflib.get_close_matches(folded(cell), [folded(name) for name in names], n=1)
            meant = next((f"; is it {name!r}?" for name in names if near and folded(name) == near[0]), "")
            number = '; numbers are kind = "continuous"' if _is_number(cell) and not any(map(_is_number, names)) else ""
            raise ValueError(f"expected one of {', '.join(names)}, or empty when missing{meant or number}")
        return float(found[0])

    def truth(self, endpoint: Endpoint, labels: Sequence[float], of_class: str) -> tuple[float, float, float]:
        """Whether the patient is of the row's class."""
        own = math.nan if math.isnan(labels[0]) else float((endpoint.classes or ())[int(labels[0])] == of_class)
        return own, math.nan, math.nan

    def known_rows(self, endpoint: Endpoint, rows: pd.DataFrame) -> pd.DataFrame:
        """As the base; `label` is the place of the class, p0, p1, … are the probabilities of the classes, and `score` is
        `one_number`.
        """
        names, patient = list(endpoint.classes or ()), ["repeat", "fold", "patient"]
        rows = rows.astype({"score": float, "truth": float})
        known = rows.loc[rows.truth == 1]
        label = known.assign(label=known["class"].map(names.index)).groupby(patient, sort=True).label.first()
        about = rows.groupby(patient, sort=True)[["model", "endpoint"]].first()
        people = about.join(self.scores_by(endpoint, rows, patient)).join(label, how="inner")
        return people.astype({"label": int}).assign(threshold=math.nan).reset_index()

    def one_number(self, scores: Float[np.ndarray, "*b k"]) -> Float[np.ndarray, "*b"]:
        """The highest probability: unlike an expected place it does not change with the order of the classes."""
        return np.asarray(scores.max(axis=-1))

    def scores_by(self, endpoint: Endpoint, rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
        names = list(endpoint.classes or ())
        wide = rows.groupby([*keys, "class"], sort=True).score.mean().unstack("class").reindex(columns=names).fillna(0.0)
        wide = wide.set_axis([f"p{index}" for index, _ in enumerate(names)], axis=1)
        return wide.assign(score=self.one_number(wide.to_numpy()))

    def sides(self, endpoint: Endpoint, labels: LabelRows) -> tuple[Side, Side]:
        """The commonest class and all others; of grades, which override it, the highest and the lowest."""
        count = np.bincount(labels[:, 0].astype(int), minlength=len(endpoint.classes or ()))
        most = int(count.argmax())
        own, others = np.flatnonzero(labels[:, 0] == most).tolist(), np.flatnonzero(labels[:, 0] != most).tolist()
        name = (endpoint.classes or ())[most]
        return ("own", f"{endpoint.name} = {name}", own), ("others", f"{endpoint.name} not {name}", others)

    def strata(self, endpoint: Endpoint, labels: LabelRows) -> list[str]:
        return [f"{value:.0f}" for value in labels[:, 0]]

    def counted(self, endpoint: Endpoint, count: Counter[str]) -> str:
        each = [f"{count[str(index)]} of {name}" for index, name in enumerate(endpoint.classes or ())]
        return f"patients: {', '.join(each)}"

    def lacking(self, endpoint: Endpoint, count: Counter[str]) -> str:
        return f"patients of {(endpoint.classes or ())[int(self.rarest_stratum(count))]}, join it with another class"

    unlearnable = "the validation patients are of one class"

    def is_learnable(self, strata: set[str]) -> bool:
        return len(strata) > 1

    def remarks(
        self, endpoint: Endpoint, labels: LabelRows, groups: Mapping[str, Sequence[str]]
    ) -> Iterator[tuple[str, list[int]]]:
        """Classes that no patient has, and rare ones whose name is nearly another's."""
        names, count = endpoint.classes or (), Counter(labels[:, 0].astype(int).tolist())
        for index, name in enumerate(names):
            rows = np.flatnonzero(labels[:, 0] == index).tolist()
            if not rows:
                yield f"{endpoint.name}: no patient is of {name}, so it can never be predicted", []
            for other, other_name in enumerate(names):
                rare = 0 < len(rows) <= RARE_SHARE * len(labels) and count[other] > len(rows)
                if rare and difflib.SequenceMatcher(None, folded(name), folded(other_name)).ratio() >= ALIKE:
                    slip = f"{len(rows)} against {count[other]} patients; is it a slip of the pen?"
                    yield f"{endpoint.name}: the class {name} is spelled nearly as {other_name}, {slip}", rows


def shares(people: pd.DataFrame) -> Float[np.ndarray, "n k"]:
    """The probabilities of the classes, of rows as `ClassLabels.known_rows` has them."""
    return people.filter(regex=r"^p\d+$").to_numpy(dtype=float)


def from_table(endpoint: Endpoint, table: Path) -> Endpoint:
    """The endpoint with the classes that its column has, by name; each as it is written most often.

    Raises UsageError where these are too few or too many to be classes.
    """
    found = sheet.examine(table)
    if endpoint.name not in found.header:
        return endpoint  # which reading the cohort names, with the nearest column
    cells = [cell for _, row in found.rows if (cell := row[endpoint.name]).lower() not in MISSING]
    _refuse_no_names(cells, f"{table}, column {endpoint.name}")
    spelled: dict[str, Counter[str]] = {}
    for cell in cells:
        spelled.setdefault(folded(cell), Counter())[cell] += 1
    names = sorted(min(counter, key=lambda name: (-counter[name], name)) for counter in spelled.values())
    if not MIN_CLASSES <= len(names) <= MAX_CLASSES:
        shown = ", ".join(names[:MAX_CLASSES]) + ", …" * (len(names) > MAX_CLASSES)
        cure = 'numbers are kind = "continuous"' if all(map(_is_number, names)) else "name those that you mean in classes = […]"
        cure = 'two are kind = "binary", with 0 and 1' if len(names) == 2 else cure
        raise UsageError(
            f"{table}, column {endpoint.name}: {len(names)} different values ({shown}); expected {MIN_CLASSES} to {MAX_CLASSES} "
            f"classes: {cure}"
        )
    return endpoint.model_copy(update={"classes": tuple(names)})


def _refuse_no_names(cells: Sequence[str], where: str) -> None:
    """Raise UsageError for cells that are no names of classes: signs, numbers beside names, codes for missing values."""
    numbers = {cell for cell in cells if _is_number(cell)}
    odd = [cell for cell in cells if not folded(cell) or (cell in numbers and len(numbers) < len(set(cells)))]
    if odd:
        raise UsageError(f"{where}: {odd[0]!r} is no name of a class; leave the cell empty, or name it in classes = […]")
    by_value: dict[float, str] = {}
    for cell in sorted(numbers):
        value = float(cell.replace(",", "."))
        if value in MISSING_CODES:
            raise UsageError(f"{where}: {cell!r} stands for a missing value; leave the cell empty, or name it in classes = […]")
        if by_value.setdefault(value, cell) != cell:
            raise UsageError(f"{where}: {by_value[value]!r} and {cell!r} are one number; spell each class alike")


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True
