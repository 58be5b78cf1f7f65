"""What a kind of endpoint puts in words, and the parts of `metrics.json` that hold these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pandas as pd

from mri_vit.kinds.kind import Labels, part
from mri_vit.report.numbers.measures import Measures
from mri_vit.report.reading.run import Run
from mri_vit.report.schema.kinds import AnyEndpoint, Numbers, Result
from mri_vit.report.schema.measured import MIN_EVENTS, Caveats, SubgroupFigures
from mri_vit.report.schema.parts import Design, Estimate
from mri_vit.report.verdicts import MIN_RARER_GROUP, Unjudged
from mri_vit.report.words.notation import capitalize_first, counted
from mri_vit.settings.recipe import PERMUTED, Model, Train
from mri_vit.settings.schema import Endpoint

Tables = Mapping[str, pd.DataFrame]  # by model
Fields = dict[str, Any]  # of a part, by name
Row = tuple[str, list[str]]  # a measure's name, and a cell for each model

EXPLAINED_CLASS = (  # of a binary endpoint
    "the class that is more likely after class weighting (the boundary is at log odds of 0; the report's threshold may differ)"
)
WEIGHED = "divided by that of a constant prediction, so that it weighs as much as a binary endpoint's"  # of a head's loss


class Words(ABC):
    """What a kind puts in words."""

    kind: ClassVar[str]
    meaning: ClassVar[str]  # of the judged figure, as part of a sentence
    same: ClassVar[str]  # what a model's predictions have to be better than: the same probability
    predicted: ClassVar[str] = "Probabilities"  # what these are
    known: ClassVar[str] = "label"  # what patients of an endpoint have
    undefined: ClassVar[str]  # what a fold held whose figure is undefined
    folds_caption: ClassVar[str]  # of the table of figures per fold
    head: ClassVar[str]  # what a network's head puts out and how it is trained, as a paper's Methods say it
    regression: ClassVar[str]  # which the controls are
    explained: ClassVar[tuple[str, str]]  # whose maps explain what, as parts of a sentence
    output: ClassVar[str]  # what a model puts out, as a checklist asks it
    refuses: ClassVar[str] = ""  # what there is not, where scores are no probabilities
    below: ClassVar[str] = ""  # behind a gain that is below 0 and not shown to be
    paired_test: ClassVar[str] = "jackknife"  # of two models' judged figures
    loss: ClassVar[str] = "Brier score"  # by which two models are compared beside it
    has_chance_row: ClassVar[bool] = False  # whether each fold's table has the standard error of random scores
    one_class: ClassVar[str] = "all patients have the same label"

    @property
    def labels(self) -> Labels:
        return part(self.kind, "labels")

    @property
    def measures(self) -> Measures:
        return part(self.kind, "measures")

    @property
    def unjudged(self) -> Mapping[Unjudged, str]:
        """Why a result is not judged."""
        return {
            "few": f"fewer than {MIN_RARER_GROUP} {self.labels.rarer}",
            "one class": self.one_class,
            "no pair": "no fold has two patients to compare",
            "no interval": "the interval is undefined",
        }

    @property
    def unjudged_short(self) -> Mapping[Unjudged, str]:
        """The same on a card."""
        return {
            "few": "Too few patients to judge",
            "one class": "One class only: not judged",
            "no pair": "No pair to compare: not judged",
            "no interval": "Interval undefined: not judged",
        }

    @abstractmethod
    def endpoint(self, run: Run, endpoint: Endpoint, rows: Tables, shown: Sequence[str], shared: Fields) -> AnyEndpoint:
        """The endpoint as a whole: `shared` fields and the kind's own; `rows` by model, and which models are shown."""

    @abstractmethod
    def result(self, numbers: Numbers, sentences: Fields, limits: Caveats, design: Design) -> Result:
        """A model's result: its figures and tests, with `sentences` and the kind's own."""

    @abstractmethod
    def subgroup(self, endpoint: Endpoint, group: SubgroupFigures, fields: Fields) -> Any:
        """A part of the cohort."""

    def scaled(self, result: Any) -> Estimate | None:
        """The gain of a model's predictions over `same`, 1 at best and 0 without; None where it is undefined."""
        return None

    def gain(self) -> str:
        """What that is called."""
        return "scaled Brier score"

    def head_of(self, model: Model) -> str:
        """The sentence on heads for a network."""
        return self.head

    def imbalance(self, train: Train) -> str:
        """What was done against classes of unequal size; "" where nothing was."""
        return ""

    @property
    def marked_as(self) -> str:
        """What is counted of the patients beside their number."""
        return self.labels.marked_as

    def tallied(self, tally: str) -> str:
        """Behind the number of patients, what they are."""
        return f": {tally}"

    def too_few(self, count: int) -> str:
        """So many patients of what must not be rare."""
        return f"{counted(count, 'patient')} {self.labels.rarer.removeprefix('patients ')}"

    def too_small(self, group: SubgroupFigures) -> str | None:
        """Why a subgroup is too small to judge."""
        return f"too small to judge: {self.too_few(group.rarer)}; at least {MIN_EVENTS} are needed" if group.small else None

    @abstractmethod
    def figures(self, result: Any) -> tuple[list[str], list[str]]:
        """Figures of a line for a paper, those before and behind the test against chance."""

    def rates(self, result: Any) -> list[str]:
        """Sensitivity and the like at a threshold; none of a kind without one."""
        return []

    @abstractmethod
    def measure_rows(self, results: Sequence[Any]) -> list[Row]:
        """Each measure's name and a cell per result; a measure that no result has is left out."""


def labelled(rows: Tables, columns: Sequence[str]) -> pd.DataFrame:
    """A row for each patient with a label that is the patient's own; of the columns alone where there is none."""
    honest = [table for model, table in rows.items() if model not in PERMUTED]
    return pd.concat(honest).drop_duplicates("patient") if honest else pd.DataFrame({name: [] for name in columns})


def meanings(endpoints: Iterable[Any]) -> str:
    """What the judged figures of these endpoints are, in a sentence."""
    parts = dict.fromkeys(of(endpoint.kind).meaning for endpoint in endpoints)
    return capitalize_first("; ".join(parts)) + "."


def of(kind: str) -> Words:
    """The part of a kind that is in words."""
    return part(kind, "words")


def of_result(result: Numbers | Result) -> Words:
    """Likewise of the kind that a result is of."""
    return of(result.kind_of)
