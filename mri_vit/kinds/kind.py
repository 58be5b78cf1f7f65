"""Finding the parts of an endpoint's kind; and the first of them, which the cohort table, folds and checks need: its labels.

A part is found by the kind's name and imported when it is first asked for: a table can be read without torch, and rooms below the
report do not import it. n is the number of patients, c of label columns, k of numbers that a prediction has.
"""

from __future__ import annotations

import functools
import importlib
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

from mri_vit.metrics import sample_size
from mri_vit.metrics.decision import Threshold
from mri_vit.metrics.within_fold import WithinFold
from mri_vit.settings.schema import Endpoint

Measure = Literal["auc", "harrell_c", "hand_till_m", "generalised_c"]  # the figure that is judged
LabelRows = Float[np.ndarray, "n c"]
Side = tuple[str, str, list[int]]  # its name in files and in words, and the rows of its patients
Remark = tuple[str, list[int]]  # in words, and the rows that it is of (none: all)


@dataclass(frozen=True)
class Scored:
    """Patients of known label with a model's scores of them."""

    subjects: list[str]
    labels: LabelRows
    scores: Float[np.ndarray, "n k"]


@functools.cache
def part(kind: str, name: str) -> Any:
    """The object PART of the file `name` in a kind's folder."""
    found = importlib.import_module(f"mri_vit.kinds.{kind}.{name}").PART
    if getattr(found, "kind", kind) != kind:  # one that was copied would measure and word this kind as that one
        raise TypeError(f"mri_vit/kinds/{kind}/{name}.py: kind is {found.kind!r}, expected {kind!r}")
    return found


def with_article(symbol: str) -> str:
    """A judged figure's symbol as it is spoken: an AUC, an M, a C."""
    return f"{'an' if symbol[0] in 'AM' else 'a'} {symbol}"


def labels(endpoint: Endpoint) -> Labels:
    """The part of an endpoint's kind that is about labels."""
    return part(endpoint.kind, "labels")


class Labels(ABC):
    """How the labels of a kind are read, counted, spread over folds, and compared in pairs."""

    symbol: ClassVar[str]  # of the figure that is judged, as it is written: AUC
    measure: ClassVar[Measure]  # its key in files: auc
    rarer: ClassVar[str]  # what there must not be too few of: patients of the rarer class
    marked_as: ClassVar[str] = ""  # what is counted of the patients beside their number: positive
    expected: ClassVar[float] = 0.75  # judged figure that is planned for; without published ones midway from chance to perfect
    planned_as: ClassVar[str] = ""  # what an endpoint is called that is planned before there is a table
    of_visit: ClassVar[bool] = False  # whether a label is of the visit that it stands beside, and not of the patient

    def completed(self, endpoint: Endpoint, table: Path) -> Endpoint:
        """The endpoint with what the study file leaves to the cohort table."""
        return endpoint

    @abstractmethod
    def read(self, endpoint: Endpoint, column: str, cell: str) -> float:
        """A filled cell's label. Raises ValueError with what was expected, as the end of a message."""

    @abstractmethod
    def sides(self, endpoint: Endpoint, labels: LabelRows) -> tuple[Side, Side]:
        """Two groups of patients whose mean maps are set against each other."""

    def row_fault(self, endpoint: Endpoint, values: Mapping[str, float], filled: Mapping[str, bool]) -> tuple[str, str] | None:
        """What is wrong with a row whose cells could be read, and the column; None where nothing is. Both by label column."""
        return None

    def column_faults(self, endpoint: Endpoint, values: Float[np.ndarray, " n"]) -> dict[int, str]:
        """What is wrong with a label beside the others of its column, by its place; unknown ones are NaN."""
        return {}

    @abstractmethod
    def strata(self, endpoint: Endpoint, labels: LabelRows) -> list[str]:
        """Of each known label the class over which folds are balanced."""

    @abstractmethod
    def needed(self, count: Counter[str]) -> set[str]:
        """The strata that every test fold must have a patient of; `count` is of all known labels."""

    def rarest(self, count: Counter[str]) -> int:
        """Patients of the rarest stratum that every fold needs: there are no more folds."""
        stratum = self.rarest_stratum(count)
        return count[stratum] if stratum else count.total()

    def rarest_stratum(self, count: Counter[str]) -> str:
        """Which that is; "" where a fold needs none."""
        return min(sorted(self.needed(count), reverse=True), key=lambda stratum: count[stratum], default="")

    @abstractmethod
    def counted(self, endpoint: Endpoint, count: Counter[str]) -> str:
        """How many patients there are of each stratum, in words."""

    @abstractmethod
    def lacking(self, endpoint: Endpoint, count: Counter[str]) -> str:
        """What a table has to have more of, where the rarest stratum is too small for two folds."""

    label_columns: ClassVar[tuple[str, ...]] = ("truth",)  # of `known_rows`
    unlearnable: ClassVar[str]  # why validation patients determine nothing, where `is_learnable` is not

    @abstractmethod
    def is_learnable(self, strata: set[str]) -> bool:
        """Whether labels of these strata give a model something to learn."""

    def fold_gap(self, count: Counter[str]) -> tuple[str, str] | None:
        """What a test fold with these known labels lacks, and what follows; None where it lacks nothing."""
        return None

    def remarks(
        self, endpoint: Endpoint, labels: LabelRows, groups: Mapping[str, Sequence[str]]
    ) -> Iterator[tuple[str, list[int]]]:
        """What is unlikely in known labels.

        `groups` are columns of the table that name where a patient comes from, a value per row.
        """
        yield from ()

    def threshold(self, training: Scored, validation: Scored) -> Threshold | None:
        """A number that a fold's test patients are held against, chosen without them; None where a kind has none."""
        return None

    needs_training_scores: ClassVar[bool] = False  # whether `threshold` reads the training patients' scores

    def is_truth(self, truth: pd.Series) -> pd.Series:
        """Which cells of the column truth can be a label of this kind."""
        return truth.isin([0, 1])

    truths: ClassVar[str] = "0, 1, or empty when missing"  # in words

    def truth(self, endpoint: Endpoint, labels: Sequence[float], of_class: str) -> tuple[float, float, float]:
        """The columns truth, time_days and event of a row of the table of predictions."""
        return labels[0], math.nan, math.nan

    def known_rows(self, endpoint: Endpoint, rows: pd.DataFrame) -> pd.DataFrame:
        """One model's rows of an endpoint in a table of predictions, one for each patient of known label and repeat.

        Of several visits the first known label is the patient's, and the score is the mean over all visits.
        """
        rows = rows.assign(threshold=rows.get("threshold", math.nan))
        rows = rows.astype({"score": float, "truth": float, "threshold": float})
        kept = [column for column in ("model", "endpoint", "truth", "threshold") if column in rows]
        visits = dict.fromkeys(kept, "first")  # that is not missing
        rows = rows.groupby(["repeat", "fold", "patient"], sort=True).agg({"score": "mean", **visits}).reset_index()
        return rows.dropna(subset=["truth"]).reset_index(drop=True)

    def scores_by(self, endpoint: Endpoint, rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
        """The columns of `known_rows` that hold scores, by `keys`: the mean over the visits that keys do not name."""
        return pd.DataFrame({"score": rows.groupby(list(keys), sort=False).score.mean()})

    def one_number(self, scores: Float[np.ndarray, "*b k"]) -> Float[np.ndarray, "*b"]:
        """A prediction as the one number of `known_rows`."""
        return np.asarray(scores[..., 0])

    def arrays(self, people: pd.DataFrame) -> tuple[LabelRows, Float[np.ndarray, "n k"]]:
        """Labels and scores of such rows."""
        return people[list(self.label_columns)].to_numpy(float), people[["score"]].to_numpy(float)

    @abstractmethod
    def within(self, labels: LabelRows, score: Float[np.ndarray, "n k"], group: Shaped[np.ndarray, " n"]) -> WithinFold:
        """The judged figure of pairs within a group, chance 0.5, with its error and influences."""

    @abstractmethod
    def fold_weights(self, labels: LabelRows, group: Shaped[np.ndarray, " n"]) -> dict[Any, float]:
        """What each group's figure weighs in `within`: no exchange of labels within groups changes it."""

    def figures(
        self,
        labels: LabelRows,
        score: Float[np.ndarray, "b n k"],
        of_all: Float[np.ndarray, "m c"],
        group: Shaped[np.ndarray, " m"],
    ) -> Float[np.ndarray, " b"]:
        """The figure of one group for each of several sets of scores; NaN where a score is.

        The mean over groups by `fold_weights` is `within`; `of_all` and `group` are all patients, of which the group is a part.
        """
        whole = np.zeros(len(labels))
        return np.array([math.nan if np.isnan(one).any() else self.within(labels, one, whole).value for one in score])

    def untied(self, labels: LabelRows) -> Float[np.ndarray, "n k"]:
        """Scores of which no two are equal, as long as a prediction of these labels."""
        return np.arange(len(labels), dtype=float)[:, None]

    def count_marked(self, labels: LabelRows) -> int:
        """How many of known labels are `marked_as`; all where a kind marks none."""
        return len(labels)

    @abstractmethod
    def count_rarer(self, labels: LabelRows) -> int:
        """How many patients there are of what must not be rare."""

    def nominal(self, marked: Bool[np.ndarray, " n"]) -> LabelRows:
        """Labels of a cohort of which only the share of the marked is known; not of kinds of which that says too little."""
        raise NotImplementedError

    def minima(
        self, share: float, expected: float, parameters: int, null_variance: float
    ) -> tuple[sample_size.Minimum, sample_size.ExternalMinimum] | None:
        """Patients for a regression of so many parameters and for its validation, for an `expected` figure; None without a rule.

        `share`: of the marked; `null_variance`: n times the squared error of the figure without a signal.
        """
        return None
