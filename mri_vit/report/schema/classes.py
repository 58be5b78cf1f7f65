"""Endpoints of classes and of grades in `metrics.json`. A grade's number is its place in the study file, counted from 0."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from mri_vit.report.schema.binary import Calibration
from mri_vit.report.schema.parts import EndpointPart, Estimate, Figures, Fold, Number, Part, Sentences, Subgroup, Tests, Value


class Counted(Part):
    """Patients by class, in what is of an endpoint of classes or grades."""

    counts: dict[str, int] = Field(description="patients by class, in the order of the study file")

    @property
    def tally(self) -> str:
        return ", ".join(f"{name}: {count}" for name, count in self.counts.items())


class Loss(Estimate):
    """A loss of predicted probabilities, beside that of the same probabilities for every patient."""

    reference: Number = Field(description="of the shares of the classes among the same patients")
    scaled: Estimate = Field(description="1 − `value` / `reference`: 1 at best, 0 without a model")


class Confusion(Part):
    """Classes that patients have and those that they are called: the most probable, of grades that next to the expected one."""

    counts: tuple[tuple[int, ...], ...] = Field(description="patients, a row per class that they have")
    recall: dict[str, Estimate] = Field(
        description="share of a class's patients who are called it, its interval wider if refitted"
    )
    precision: dict[str, Estimate] = Field(description="share of those called a class who are of it, likewise")
    accuracy: Estimate = Field(description="share of patients who are called their class, likewise")
    balanced_accuracy: Number = Field(description="mean recall; by chance 1 over the number of classes")


class OneClass(Part):
    """One class against all others, by its probability."""

    n: int = Field(description="patients of the class")
    auc: Estimate = Field(description="AUC of all patients together; Wilson's interval, wider if refitted")
    calibration: Calibration | None = Field(description="of its probability; null where scores are no probabilities")


class ClassFold(Counted, Fold):
    """One fold's test patients."""

    figure: Number = Field(description="the figure that is judged, in this fold")


class ClassFigures(Counted, Figures):
    """What is measured of one model on classes, with or without an order."""

    all_pairs: Estimate = Field(description="the judged figure of all patients' scores together, wider if refitted")
    within_folds: Value | None = Field(description="the same of pairs within a fold; null without several folds")
    log_loss: Loss | None = Field(description="logarithmic score; null where scores are no probabilities")
    brier: Loss | None = Field(description="Brier score, summed over classes; likewise")
    confusion: Confusion
    classes: dict[str, OneClass]
    folds: tuple[ClassFold, ...]


# Classes without an order.


class Classes(Counted):
    """Patients by class."""

    symbol: ClassVar[str] = "M"
    kind_of: ClassVar[str] = "multiclass"


class PairOfClasses(Part):
    """Two classes, which either's probability tells apart."""

    one: str
    other: str
    value: Number = Field(description="AUC within folds, mean of that by either's probability")


class MulticlassFigures(Classes, ClassFigures):
    """One model's figures on classes; the judged one is Hand and Till's M of pairs within a fold."""

    pdi: Estimate = Field(
        description="polytomous discrimination index: how often the right one among a patient of each class is found"
    )
    pdi_chance: Number = Field(description="of random scores: 1 over the number of classes")
    pairs: tuple[PairOfClasses, ...]

    @property
    def rarer(self) -> int:
        present = [count for count in self.counts.values() if count]
        return min(present) if len(present) > 1 else 0


class MulticlassNumbers(Tests, MulticlassFigures):
    """One model's figures and tests on classes."""


class MulticlassResult(Sentences, MulticlassNumbers):
    """One model's result on classes."""

    not_probability: str | None = Field(description="why scores are no probabilities, in words; null where they are")


class MulticlassSubgroup(Classes, Subgroup):
    """A compared model's M in one part of the cohort."""


class MulticlassEndpoint(Classes, EndpointPart):
    """An endpoint of classes: who is labelled, what others reached, and every model's result."""

    kind: Literal["multiclass"]
    models: dict[str, MulticlassResult] = Field(description="results by model")
    subgroups: tuple[MulticlassSubgroup, ...]


# Grades.


class Grades(Counted):
    """Patients by grade."""

    symbol: ClassVar[str] = "C"
    kind_of: ClassVar[str] = "ordinal"


class OrdinalFigures(Grades, ClassFigures):
    """One model's figures on grades; the judged one is the generalised C of pairs within a fold, of unequal grade."""

    somers_d: Estimate = Field(description="Somers' D of the score given the grade: 2 C − 1, of pairs within a fold")
    weighted_kappa: Estimate = Field(description="Cohen's kappa with quadratic weights, 0 by chance")

    @property
    def rarer(self) -> int:
        return self.n - max(self.counts.values(), default=0)


class OrdinalNumbers(Tests, OrdinalFigures):
    """One model's figures and tests on grades."""


class OrdinalResult(Sentences, OrdinalNumbers):
    """One model's result on grades."""

    not_probability: str | None = Field(description="why scores are no probabilities, in words; null where they are")


class OrdinalSubgroup(Grades, Subgroup):
    """A compared model's C in one part of the cohort."""


class OrdinalEndpoint(Grades, EndpointPart):
    """An endpoint of grades: who is labelled, what others reached, and every model's result."""

    kind: Literal["ordinal"]
    models: dict[str, OrdinalResult] = Field(description="results by model")
    subgroups: tuple[OrdinalSubgroup, ...]
