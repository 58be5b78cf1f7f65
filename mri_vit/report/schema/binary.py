"""A binary endpoint in `metrics.json`: a model's result, its subgroups, and the endpoint as a whole.

A model's result comes about in three steps: what is measured of the model alone (`…Figures`), with the tests that are adjusted
for several models (`…Numbers`), and with the sentences that judge it (`…Result`).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from mri_vit.report.schema.parts import (
    SCALED,
    Band,
    CalibrationGroup,
    EndpointPart,
    Estimate,
    Figures,
    Fold,
    Interval,
    Number,
    Part,
    Sentences,
    SmoothCurve,
    Subgroup,
    Tests,
    Value,
)


class Positives(Part):
    """Patients with the marker, in what is of a binary endpoint."""

    symbol: ClassVar[str] = "AUC"
    kind_of: ClassVar[str] = "binary"

    positive: int = Field(description="patients with the marker")

    @property
    def tally(self) -> str:
        return f"{self.positive} positive"


class AveragePrecision(Estimate):
    """Average precision, with that of random scores."""

    chance: Number = Field(description="average precision of random scores: the prevalence")


class Brier(Estimate):
    """The Brier score, interval by a bootstrap of patients, and its parts: reliability − resolution + uncertainty + within."""

    reliability: Number = Field(description="miscalibration, 0 at best")
    resolution: Number = Field(description="how far observed shares differ between bins")
    uncertainty: Number = Field(description="variance of the label")
    within: Number = Field(description="what bins of unequal scores add")
    scaled: Estimate | None = Field(default=None, description=f"1 − Brier / uncertainty; {SCALED}")


class _Line(Part):
    """How well predicted probabilities agree with observed shares."""

    slope: Number = Field(description="of the logistic calibration line, 1 at best")
    intercept: Number = Field(description="of the logistic calibration line, in log odds, 0 at best")
    in_the_large: Number = Field(description="mean observed against mean predicted, in log odds, 0 at best")
    ece: Number = Field(description="expected calibration error, 0 at best")
    bins: tuple[CalibrationGroup, ...] = Field(description="groups of about equal size, by predicted probability")


class Calibration(_Line):
    """How well predicted probabilities agree with observed shares; intervals by a bootstrap of patients.

    `e50`, `e90` and `curve` are null in reports before 0.6.
    """

    slope_interval: Interval = Field(description="of `slope`; null ends where too many resamples have no finite line")
    intercept_interval: Interval = Field(description="of `intercept`; null ends as for `slope_interval`")
    observed_to_expected: Estimate = Field(description="O:E ratio: positives seen for each expected, 1 at best")
    ici: Estimate = Field(description="integrated calibration index: mean distance from a smooth calibration curve, 0 at best")
    e50: Estimate | None = Field(default=None, description="median distance")
    e90: Estimate | None = Field(default=None, description="90th percentile of the distance")
    curve: SmoothCurve | None = Field(default=None, description="local regression, as R's loess by default")


class _Label(Part):
    label: str = Field(description="what the recalibration was fitted on, in words")
    brier: Number = Field(description="Brier score after recalibration")


class Recalibrated(_Line, _Label):  # keys in the order of the bases, the last first
    """Brier score and calibration after logistic recalibration on the same patients: a description and not a test."""


class Threshold(Part):
    """The score from which a fold's patients are called positive."""

    repeat: int = Field(description="counted from 0")
    fold: int = Field(description="counted from 0")
    threshold: Number = Field(description="score, chosen on the fold's validation patients")


class OperatingPoint(Part):
    """The four rates at the folds' thresholds, of the first repeat."""

    sensitivity: Estimate
    specificity: Estimate
    ppv: Estimate = Field(description="positive predictive value")
    npv: Estimate = Field(description="negative predictive value")
    thresholds: tuple[Threshold, ...]
    own_optimum: int = Field(description="thresholds at which their own test fold has its largest Youden index")
    n: int = Field(description="patients with a threshold")


class Roc(Part):
    """True positive rates over a grid of false positive rates."""

    false_positives: tuple[Number, ...] = Field(description="the grid: false positive rates")
    mean: tuple[Number, ...] = Field(description="mean over folds")
    deviation: tuple[Number, ...] = Field(description="sample standard deviation over folds")
    pooled: tuple[Number, ...] = Field(description="of all patients together")
    low: tuple[Number, ...] = Field(description="lower end of the pointwise 95 % band of `pooled`")
    high: tuple[Number, ...] = Field(description="upper end of the pointwise 95 % band of `pooled`")


class PrecisionRecall(Part):
    """Every point of the precision-recall curve; none where only one class is present."""

    recall: tuple[Number, ...]
    precision: tuple[Number, ...]


class BinaryFold(Positives, Fold):  # keys in the order of the bases, the last first
    """One fold's test patients."""

    auc: Number = Field(description="area under the ROC curve")
    chance_error: Number = Field(description="standard error of the AUC of random scores")

    @property
    def figure(self) -> float:
        return self.auc


class BinaryFigures(Positives, Figures):
    """One model's figures on a binary endpoint."""

    prevalence: Number = Field(description="share of patients with the marker")
    auc: Estimate = Field(
        description="area under the ROC curve of all patients' scores together, DeLong's interval, wider if refitted"
    )
    auc_wilson: Interval = Field(description="interval of `auc` that also covers near 1, by Wilson's formula")
    auc_bootstrap: Interval | None = Field(default=None, description="of reports before 0.6; null since")
    auc_within_folds: Value | None = Field(description="AUC of pairs within a fold; null without several folds")
    chance_error: Number = Field(description="standard error of the AUC of random scores")
    average_precision: AveragePrecision
    brier: Brier | None = Field(description="null where scores are no probabilities")
    calibration: Calibration | None = Field(description="null where scores are no probabilities")
    net_benefit: tuple[Number, ...] | None = Field(
        description="net benefit at the endpoint's `thresholds`, per patient; null where scores are no probabilities"
    )
    net_benefit_band: Band | None = Field(description="pointwise 95 % band of `net_benefit`; null where that is")
    operating_point: OperatingPoint | None = Field(description="null without thresholds")
    roc: Roc
    precision_recall: PrecisionRecall
    folds: tuple[BinaryFold, ...]
    recalibrated: Recalibrated | None = Field(description="of an external evaluation only")

    @property
    def rarer(self) -> int:
        return min(self.positive, self.n - self.positive)


class BinaryNumbers(Tests, BinaryFigures):
    """One model's figures and tests on a binary endpoint."""


class BinaryResult(Sentences, BinaryNumbers):
    """One model's result on a binary endpoint."""

    not_probability: str | None = Field(description="why scores are no probabilities, in words; null where they are")


class BinarySubgroup(Positives, Subgroup):
    """A compared model's AUC in one part of the cohort."""


class BinaryEndpoint(Positives, EndpointPart):
    """A binary endpoint: who is labelled, what others reached, and every model's result."""

    kind: Literal["binary"]
    models: dict[str, BinaryResult] = Field(description="results by model")
    subgroups: tuple[BinarySubgroup, ...]
    net_benefit_of_all: tuple[Number, ...] = Field(description="net benefit of calling every patient positive, per patient")
