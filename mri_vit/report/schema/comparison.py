"""Parts that binary and survival results share: permutation tests, comparisons of two models, folds, verdicts, published work."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema.part import Number, Part

Kind = Literal["better", "chance", "worse", "undefined"]  # of the verdict on a model, against chance

# Descriptions of fields that stand in several models.
REMARK = "warning in words where all scores are equal, or where the pooled figure and that within folds are far apart; else null"
FOLD_MEAN = "mean over all folds of all repeats; null where no repeat has more than one fold"
FOLD_VARIANCE = "sample variance over all folds of all repeats; null where no repeat has more than one fold"
UNDEFINED_FOLDS = "folds whose figure is undefined"
TIED_FOLDS = "folds in which all scores are equal"
VERSUS_CLINICAL = "comparison of a candidate with the clinical-only control; else null"
VERSUS_OWN = "comparison of a comparator with the study's own model; else null"
VERDICT = "the verdict in words"
VERDICT_KIND = "the verdict in one word: against chance, by the rules in `rules`"


class Permutation(Part):
    """One-sided permutation tests of a model's AUC or C against chance."""

    p: Number = Field(description="p of so high a value, not adjusted")
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method")
    permutations: int = Field(description="random permutations of the labels")
    p_below: Number = Field(description="p of so low a value, not adjusted")
    p_below_adjusted: Number = Field(description="`p_below`, adjusted by Holm's method")


class ResampledTest(Part):
    """The corrected resampled t-test of Nadeau and Bengio over the folds of several repeats."""

    t: Number = Field(description="t statistic")
    p: Number = Field(description="one-sided p that the model is no better than the other, not adjusted")
    splits: int = Field(description="folds in which the difference is defined")


class Comparison(Part):
    """A paired test of two models on the patients that both predicted: DeLong's for an AUC, a bootstrap of patients for C."""

    difference: Number = Field(description="the model's AUC or C less the other's")
    low: Number = Field(description="lower end of the 95 % confidence interval of the difference")
    high: Number = Field(description="upper end of the 95 % confidence interval of the difference")
    z: Number = Field(description="difference over its standard error")
    p: Number = Field(description="two-sided p, not adjusted")
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method over all comparisons of its family")
    n: int = Field(description="patients that both models predicted")
    nadeau_bengio: ResampledTest | None = Field(description="the same comparison fold by fold; null with one repeat")


class Repeat(Part):
    """One repeat's folds put together."""

    repeat: int = Field(description="counted from 0")
    fold_mean: Number = Field(description="mean over the repeat's folds")
    fold_variance: Number = Field(description="sample variance over the repeat's folds")


class Published(Part):
    """A figure that published work reached on the same question."""

    figure: str = Field(description="the measure and its value, such as AUC 0.6309")
    what: str = Field(description="which model, cohort and validation it is of")
    n: str = Field(description="patients, or studies, that it was measured on, in words")
    validation: Literal["internal", "external", "pooled"] = Field(
        description="on its own cohort's folds or test part, on another cohort, or over several studies"
    )
    source: str = Field(description="where it can be looked up")


class Comparators(Part):
    """How an endpoint's comparators did beside the study's own model."""

    better: tuple[str, ...] = Field(description="comparators that are better by more than chance, the best first")
    worse: tuple[str, ...] = Field(description="comparators that are worse by more than chance, the worst first")
    sentence: str = Field(description="the same in words, with figures")
