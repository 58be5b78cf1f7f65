"""A binary endpoint in `metrics.json`: one model's result, subgroups, and the endpoint as a whole."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema import parts
from mri_vit.report.schema.parts import (
    Band,
    BestControl,
    CalibrationGroup,
    ChanceTest,
    Comparators,
    Comparison,
    Estimate,
    Interval,
    Kind,
    Number,
    Pair,
    Part,
    Published,
    Repeat,
    Retraining,
    Value,
    WithinSites,
)


class AveragePrecision(Estimate):
    """Average precision, with that of a model that knows nothing."""

    chance: Number = Field(description="average precision of random scores: the prevalence")


class Brier(Estimate):
    """The Brier score, interval by a bootstrap of patients, and its parts: reliability − resolution + uncertainty + within."""

    reliability: Number = Field(description="miscalibration, 0 at best")
    resolution: Number = Field(description="how far observed shares differ between bins")
    uncertainty: Number = Field(description="variance of the label")
    within: Number = Field(description="what bins of unequal scores add")


class _Line(Part):
    """How well predicted probabilities agree with observed shares."""

    slope: Number = Field(description="of the logistic calibration line, 1 at best")
    intercept: Number = Field(description="of the logistic calibration line, in log odds, 0 at best")
    in_the_large: Number = Field(description="mean observed against mean predicted, in log odds, 0 at best")
    ece: Number = Field(description="expected calibration error, 0 at best")
    bins: tuple[CalibrationGroup, ...] = Field(description="groups of about equal size, by predicted probability")


class Calibration(_Line):
    """How well predicted probabilities agree with observed shares; intervals by a bootstrap of patients."""

    slope_interval: Interval = Field(description="of `slope`; null ends where too many resamples have no finite line")
    intercept_interval: Interval = Field(description="of `intercept`; likewise")
    observed_to_expected: Estimate = Field(description="O:E ratio: positives seen for each expected, 1 at best")
    ici: Estimate = Field(description="integrated calibration index: mean distance from a smooth calibration curve, 0 at best")


class _Label(Part):
    label: str = Field(description="what the recalibration was fitted on, in words")
    brier: Number = Field(description="Brier score after recalibration")


class Recalibrated(_Line, _Label):  # keys in the order of the bases, the last first
    """Brier score and calibration after logistic recalibration on the same patients: a description and not a test."""


class Threshold(Part):
    """The score from which a fold's patients are called positive."""

    repeat: int = Field(description="counted from 0")
    fold: int = Field(description="counted from 0")
    threshold: Number = Field(description="score, chosen on the fold's tuning patients")


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


class BinaryFold(Part):
    """One fold's test patients."""

    repeat: int = Field(description="counted from 0")
    fold: int = Field(description="counted from 0")
    n: int = Field(description="patients")
    positive: int = Field(description="patients with the marker")
    tied: bool = Field(description="whether all scores are equal")
    auc: Number = Field(description="area under the ROC curve")
    chance_error: Number = Field(description="standard error of the AUC of random scores")


class BinaryResult(Part):
    """One model's result on a binary endpoint, a patient's scores averaged over visits and repeats."""

    n: int = Field(description="patients")
    positive: int = Field(description="patients with the marker")
    prevalence: Number = Field(description="share of patients with the marker")
    judged: Estimate = Field(description=parts.JUDGED)
    auc: Estimate = Field(description="area under the ROC curve of all patients' scores together, DeLong's interval")
    auc_wilson: Interval = Field(description="interval of `auc` for these scores that also covers near 1, by Wilson's formula")
    auc_bootstrap: Interval = Field(description="interval of the AUC by a bootstrap of patients")
    auc_within_folds: Value | None = Field(description="AUC of pairs within a fold; null without several folds")
    remark: str | None = Field(description=parts.REMARK)
    chance_error: Number = Field(description="standard error of the AUC of random scores")
    chance_test: ChanceTest
    retraining: Retraining | None = Field(description=parts.RETRAINING)
    within_sites: WithinSites | None = Field(description=parts.WITHIN_SITES)
    too_good: str | None = Field(description=parts.TOO_GOOD)
    average_precision: AveragePrecision
    brier: Brier | None = Field(description="null where scores are no probabilities")
    calibration: Calibration | None = Field(description="null where scores are no probabilities")
    net_benefit: tuple[Number, ...] | None = Field(
        description="net benefit at the endpoint's `thresholds`, per patient; null where scores are no probabilities"
    )
    net_benefit_band: Band | None = Field(description="pointwise 95 % band of `net_benefit`; null where that is")
    not_probability: str | None = Field(description="why scores are no probabilities, in words; null where they are")
    operating_point: OperatingPoint | None = Field(description="null without thresholds")
    roc: Roc
    precision_recall: PrecisionRecall
    folds: tuple[BinaryFold, ...]
    fold_mean: Number = Field(description=parts.FOLD_MEAN)
    fold_variance: Number = Field(description=parts.FOLD_VARIANCE)
    undefined_folds: int = Field(description=parts.UNDEFINED_FOLDS)
    tied_folds: int = Field(description=parts.TIED_FOLDS)
    repeats: tuple[Repeat, ...]
    recalibrated: Recalibrated | None = Field(description="of an external evaluation only")
    versus_controls: dict[str, Comparison] = Field(description=parts.VERSUS_CONTROLS)
    versus_best: BestControl | None = Field(description=parts.VERSUS_BEST)
    versus_own: Comparison | None = Field(description=parts.VERSUS_OWN)
    verdict: str = Field(description=parts.VERDICT)
    verdict_kind: Kind = Field(description=parts.VERDICT_KIND)

    @property
    def estimate(self) -> Estimate:
        """The figure that is judged: the AUC of pairs within a fold."""
        return self.judged


class BinarySubgroup(Part):
    """One candidate's AUC in one part of the cohort."""

    column: str = Field(description="column of the cohort table")
    level: str = Field(description="of that column")
    model: str
    n: int = Field(description="patients")
    positive: int = Field(description="patients with the marker")
    value: Number = Field(description="AUC")
    low: Number = Field(description="lower end of its 95 % confidence interval")
    high: Number = Field(description="upper end of its 95 % confidence interval")
    small: bool = Field(description="whether the subgroup is too small to judge")
    warning: str | None = Field(description="the same in words, or null")


class BinaryEndpoint(Part):
    """A binary endpoint: who is labelled, what others reached, and every model's result."""

    kind: Literal["binary"]
    known: int = Field(description="patients with a known label and a prediction")
    positive: int = Field(description="of these, patients with the marker")
    published: tuple[Published, ...]
    models: dict[str, BinaryResult] = Field(description="results by model")
    rivals: Comparators | None = Field(description="the comparators against the study's own model; null without any")
    subgroups: tuple[BinarySubgroup, ...]
    pairs: tuple[Pair, ...] = Field(description="all models but the shuffled control, each two of them")
    thresholds: tuple[Number, ...] = Field(description="probabilities at which net benefit is given")
    net_benefit_of_all: tuple[Number, ...] = Field(description="net benefit of calling everybody positive, per patient")
