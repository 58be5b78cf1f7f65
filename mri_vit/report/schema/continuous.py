"""Endpoints that are numbers in `metrics.json`; values and errors are in the unit of the study file."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from mri_vit.report.schema.parts import EndpointPart, Estimate, Figures, Fold, Number, Part, Sentences, Subgroup, Tests, Value


class Measured(Part):
    """What is of an endpoint that is a number."""

    symbol: ClassVar[str] = "C"
    kind_of: ClassVar[str] = "continuous"

    @property
    def tally(self) -> str:
        return ""


class Line(Part):
    """How predicted numbers, or their logarithms, agree with those observed."""

    slope: Estimate = Field(description="of the observed on the predicted, 1 at best")
    intercept: Estimate = Field(description="likewise, 0 at best")
    in_the_large: Estimate = Field(description="mean observed less mean predicted, 0 at best")


class Agreement(Part):
    """Bland and Altman's limits of agreement, of the predicted less the observed."""

    bias: Estimate = Field(description="mean difference")
    sd: Estimate = Field(description="standard deviation of the differences")
    lower: Estimate = Field(description="bias − 1.96 standard deviations")
    upper: Estimate = Field(description="bias + 1.96 standard deviations")


class ContinuousFold(Measured, Fold):
    """One fold's test patients."""

    figure: Number = Field(description="C in this fold")


class ContinuousFigures(Measured, Figures):
    """One model's figures on a number; the judged one is the C of pairs within a fold, of unequal value."""

    commonest: int = Field(description="patients of the commonest value")
    median: Number = Field(description="of the observed")
    all_pairs: Estimate = Field(description="C of all patients' scores together, wider if refitted")
    within_folds: Value | None = Field(description="C of pairs within a fold; null without several folds")
    spearman: Estimate = Field(description="rank correlation within folds")
    pearson: Estimate = Field(description="correlation within folds")
    r_squared: Estimate = Field(
        description="1 − squared errors over those of the training fold's mean: below 0 where that mean predicts better"
    )
    mae: Estimate = Field(description="mean absolute error")
    rmse: Estimate = Field(description="root of the mean squared error")
    mean_mae: Estimate = Field(description="mean absolute error of the training fold's mean")
    log: bool = Field(description="whether `pearson`, `line` and `agreement` are of natural logarithms, which are learned")
    line: Line
    agreement: Agreement
    folds: tuple[ContinuousFold, ...]

    @property
    def rarer(self) -> int:
        return self.n - self.commonest


class ContinuousNumbers(Tests, ContinuousFigures):
    """One model's figures and tests on a number."""


class ContinuousResult(Sentences, ContinuousNumbers):
    """One model's result on a number."""


class ContinuousSubgroup(Measured, Subgroup):
    """A compared model's C in one part of the cohort."""


class ContinuousEndpoint(Measured, EndpointPart):
    """An endpoint that is a number: who is labelled, what others reached, and every model's result."""

    kind: Literal["continuous"]
    unit: str = Field(description='as the study file has it; "" without one')
    models: dict[str, ContinuousResult] = Field(description="results by model")
    subgroups: tuple[ContinuousSubgroup, ...]
