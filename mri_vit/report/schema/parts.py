"""The bricks of `metrics.json`: figures with intervals, tests, comparisons, and what a run and all endpoints share.

A part refuses unknown keys. Undefined is NaN here and null in the file; a part that does not apply is None here and null there.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer, WithJsonSchema

from mri_vit.kinds.kind import Measure
from mri_vit.settings.recipe import VIT

OWN = VIT  # the study's own model; the other compared models are its comparators
SCALED = "1 at best, 0 without a model; null before 0.6"  # of a Brier score


class Part(BaseModel):
    """A part of `metrics.json`: its keys in the order of its fields, none besides them, and none that changes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,  # every key is in the file
    )


def _from_file(value: Any) -> Any:
    return math.nan if value is None else value


def _to_file(value: float) -> float | None:
    return None if math.isnan(value) else value


Number = Annotated[
    float,
    BeforeValidator(_from_file),
    PlainSerializer(_to_file, when_used="json"),
    WithJsonSchema({"type": ["number", "null"]}),
]


class Value(Part):
    """A point estimate alone."""

    value: Number = Field(description="point estimate")


class Interval(Part):
    """A 95 % confidence interval alone."""

    low: Number = Field(description="lower end of the 95 % confidence interval")
    high: Number = Field(description="upper end of the 95 % confidence interval")


class Estimate(Part):
    """A point estimate with its 95 % confidence interval."""

    value: Number = Field(description="point estimate")
    low: Number = Field(description="lower end of the 95 % confidence interval")
    high: Number = Field(description="upper end of the 95 % confidence interval")


class Mean(Estimate):
    """A mean or a ratio of means with its 95 % confidence interval."""

    n: int = Field(description="how many patients, or networks, the mean is of")


class CalibrationGroup(Part):
    """Patients of similar predictions: what was predicted and what was observed."""

    predicted: Number = Field(description="mean predicted probability")
    observed: Number = Field(description="observed share")
    low: Number = Field(description="lower end of the 95 % confidence interval of `observed`")
    high: Number = Field(description="upper end of the 95 % confidence interval of `observed`")
    n: int = Field(description="patients")


class Band(Part):
    """The ends of a pointwise 95 % band."""

    low: tuple[Number, ...] = Field(description="lower end at each point")
    high: tuple[Number, ...] = Field(description="upper end at each point")


Design = Literal["cross-validation", "external", "table", "held-out"]  # the last two: a table of predictions from elsewhere
NOT_TRAINED_ON: frozenset[Design] = frozenset({"external", "held-out"})  # no model was trained on whose patients
TABLES: frozenset[Design] = frozenset({"table", "held-out"})
Kind = Literal["better", "chance", "worse", "undefined"]  # of the verdict on a model, against chance
ChanceMethod = Literal["refitted", "within folds", "scores as given"]


class ChanceTest(Part):
    """One-sided tests of a model's AUC or C of pairs within a fold against chance."""

    method: ChanceMethod = Field(
        description="refits on permuted labels; or the error of given scores, inflated for what folds learn from each other; or "
        "that error alone, for patients that no model was trained on"
    )
    value: Number = Field(description="AUC or C of pairs within a fold, mean over repeats; of the first repeat where refitted")
    error: Number = Field(description="standard error of `value` without a signal, for scores as given")
    inflation: Number = Field(description="what multiplies `error` in the test")
    draws: int | None = Field(description="permutations of the labels that were refitted; null without any")
    p: Number = Field(description="one-sided p of so high a value, not adjusted")
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method")
    p_below: Number = Field(description="one-sided p of so low a value, not adjusted, without refits on permuted labels")
    p_below_adjusted: Number = Field(description="`p_below`, adjusted by Holm's method")
    least: Number = Field(
        default=math.nan,
        description="least `value` with a `p` of at most 0.05 in these patients and folds where no two scores are equal, without "
        "refits on permuted labels; above 1 where there is none; null in reports before 0.6",
    )
    least_adjusted: Number = Field(
        default=math.nan, description="likewise for all results that are corrected together; null in reports before 0.6"
    )
    found_80: Number = Field(
        default=math.nan,
        description="AUC or C that is called better with 80 % power, after Holm's method; null where none is, or before 0.6",
    )
    found_90: Number = Field(default=math.nan, description="likewise with 90 % power")


class Retraining(Part):
    """Where the AUC or C of another training of the same study would lie: a 95 % prediction interval."""

    source: Literal["repeats", "seeds"] = Field(description="what the trainings differ in: folds and seeds, or seeds alone")
    trainings: int = Field(description="trainings that the interval is made from")
    deviation: Number = Field(description="their sample standard deviation")
    low: Number = Field(description="lower end")
    high: Number = Field(description="upper end")


class WithinSites(Part):
    """A model among patients of one site, where knowing the site does not help; what follows `confounded` is new in 0.6."""

    sites: int = Field(description="sites with a pair to compare")
    value: Number = Field(description="AUC or C of pairs within a fold and a site")
    error: Number = Field(description="its standard error without a signal, for scores as given")
    p: Number = Field(description="one-sided p of so high a value, not adjusted, with the inflation of the test against chance")
    least: Number = Field(description="least figure of a site")
    most: Number = Field(description="largest figure of a site")
    i_squared: Number = Field(description="share of the variance of sites' figures that is beyond chance (I²)")
    confounded: bool = Field(description="better than chance over all patients, and within sites shown to be less and not better")
    difference: Estimate | None = Field(default=None, description="figure of all pairs within a fold, less `value`; paired")
    difference_p: Number = Field(default=math.nan, description="two-sided p that it is zero, not adjusted")
    compared_sites: int = Field(default=0, description="sites with five of the rarer class (or deaths), which the rest is of")
    tau: Number = Field(default=math.nan, description="standard deviation of these sites' true figures (REML)")
    between: Interval | None = Field(
        default=None, description="95 % prediction interval of a site's true figure; null with fewer than five"
    )
    worse: tuple[str, ...] = Field(default=(), description="sites shown to be worse than the others (adjusted p at most 0.05)")


class ResampledTest(Part):
    """The corrected resampled t-test of Nadeau and Bengio over the folds of several repeats."""

    t: Number = Field(description="t statistic")
    p: Number = Field(description="one-sided p that the model is no better than the other, not adjusted")
    splits: int = Field(description="folds in which the difference is defined")


class Comparison(Part):
    """A paired test of two models on the patients that both predicted: DeLong's within folds for an AUC, the jackknife for C."""

    difference: Number = Field(description="the model's AUC or C of pairs within a fold less the other's, mean over repeats")
    low: Number = Field(description="lower end of the 95 % confidence interval of the difference")
    high: Number = Field(description="upper end of the 95 % confidence interval of the difference")
    z: Number = Field(description="difference over its standard error, which allows for refitting where scores are out of fold")
    p: Number = Field(description="two-sided p, not adjusted")
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method over all comparisons of its family")
    n: int = Field(description="patients that both models predicted")
    nadeau_bengio: ResampledTest | None = Field(description="the same comparison fold by fold; null with one repeat")


class BestControl(Part):
    """A compared model against the strongest control, and whether it beats them all."""

    strongest: str = Field(description="the control with the highest AUC or C")
    least: str = Field(description="the control against which the compared model does least well by the paired test")
    p: Number = Field(description="two-sided p against `least`, not adjusted: the largest of all controls'")
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method over endpoints and compared models")
    beaten: bool = Field(description="whether every control is beaten")


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


class Difference(Part):
    """A model's figure less another's, with its test."""

    difference: Number = Field(description="the model's less the other's")
    low: Number = Field(description="lower end of the 95 % confidence interval of the difference")
    high: Number = Field(description="upper end of the 95 % confidence interval of the difference")
    p: Number = Field(description="two-sided p, not adjusted")


class Pair(Part):
    """Two models of an endpoint."""

    model: str
    other: str
    n: int = Field(description="patients that both models predicted")
    score: Difference = Field(description="of the AUC, by DeLong's paired test within folds, or of C, by the jackknife")
    brier: Difference | None = Field(
        description="of the Brier score, of survival the integrated one, of numbers the mean absolute error, by a bootstrap of "
        "patients; null without probabilities"
    )


# What is read with a run.


class Nothing(Part):
    """An empty object, where a part does not apply."""


class Environment(Part):
    """What the run was made with."""

    versions: dict[str, str] = Field(description="of Python and packages")
    git_commit: str | None = Field(description="of the checkout; null outside of one")
    device: str = Field(description="of all folds of all networks, with its name")
    threads: int = Field(description="CPU threads")
    seed: int = Field(description="of the study")
    started: str = Field(description="date and time, ISO 8601")


class Step(Part):
    """One step of preparation, with the figures of the first prepared patient."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    step: str
    methods: str = Field(description="the sentence for a paper's Methods")

    @property
    def source(self) -> str | None:
        """Where the brain mask came from, of the step that finds it."""
        source = (self.model_extra or {}).get("source")
        return source if isinstance(source, str) else None

    @property
    def brain_ml(self) -> float | None:
        """The volume of the brain, of the step that finds it."""
        volume = (self.model_extra or {}).get("brain_ml")
        return float(volume) if isinstance(volume, int | float) else None


class Tumour(Part):
    """A patient's tumour: the source of its mask, and where there is one, how large it is and where it lies."""

    source: Literal["given", "found", "command", "none"] = Field(
        default="none",
        description="the table's, found automatically, made by the study's own program, or none was looked for",
    )
    tumour_ml: Number | None = Field(default=None, description="volume; null where there is no mask")
    side: Literal["left", "right", "both"] | None = Field(default=None, description="nine tenths of it lie there")
    lobes: dict[str, Number] = Field(default={}, description="share by lobe, the largest first")
    ventricles_mm: Number | None = Field(default=None, description="to the ventricles of the template laid over the brain")
    centre_mm: tuple[Number, Number, Number] | None = Field(default=None, description="its middle in the MNI152 brain")
    confidence: Number | None = Field(default=None, description="of a mask that was found: the Dice to expect, 0 to 1")


class InternalEstimate(Part):
    """The evaluated run's own out-of-fold estimate."""

    measure: Measure
    value: Number = Field(description="point estimate")
    low: Number = Field(description="lower end of the 95 % confidence interval; null where the run's result is not judged")
    high: Number = Field(description="upper end of the 95 % confidence interval; likewise")
    n: int = Field(description="patients")


class Drift(Part):
    """One measure in the run and here; intervals by bootstraps of either cohort's patients, independent of each other."""

    internal: Estimate = Field(description="of the run's out-of-fold scores")
    external: Estimate = Field(description="of this cohort's")
    difference: Estimate = Field(description="external less internal")


class SiteFigure(Estimate):
    """The figure of one site of this cohort, with its 95 % confidence interval."""

    site: str = Field(description="as the cohort table names it")
    n: int = Field(description="patients")


# What results of binary and survival endpoints share.


class Figures(Part):
    """What is measured of one model by itself, a patient's scores averaged over repeats (and visits of a binary endpoint)."""

    n: int = Field(description="patients")
    judged: Estimate = Field(
        description="the figure that is judged and shown first: of pairs within a fold, mean over repeats; its interval allows "
        "for refitting"
    )
    retraining: Retraining | None = Field(
        description="where another training of the same study would lie, of seeds that of a single network; null where "
        "trained once"
    )
    within_sites: WithinSites | None = Field(description="of pairs within a fold and a site; null without two sites")
    fold_mean: Number = Field(description="mean over all folds of all repeats; null where no repeat has more than one fold")
    fold_variance: Number = Field(
        description="sample variance over all folds of all repeats; null where no repeat has more than one fold"
    )
    undefined_folds: int = Field(description="folds whose figure is undefined")
    tied_folds: int = Field(description="folds in which all scores are equal")
    repeats: tuple[Repeat, ...]


class Tests(Part):
    """Tests of one model, adjusted for those of other models and endpoints."""

    chance_test: ChanceTest
    versus_controls: dict[str, Comparison] = Field(
        description="comparisons of a compared model with each control on the same patients"
    )
    versus_best: BestControl | None = Field(
        description="whether a compared model beats every control; null for controls, and where none was run"
    )
    versus_own: Comparison | None = Field(description="comparison of a comparator with the study's own model; else null")


class Sentences(Part):
    """How one model is judged, in words."""

    remark: str | None = Field(
        description="warning in words where all scores are equal, or where the pooled figure and that within folds are far "
        "apart; else null"
    )
    too_good: str | None = Field(description="why a result is better than can be believed unchecked, in words; else null")
    verdict: str = Field(description="the verdict in words")
    probabilities: str | None = Field(
        default=None, description="whether probabilities beat those of no model, in words; null without any, and before 0.6"
    )
    verdict_kind: Kind = Field(description="the verdict in one word: against chance, by the rules in `rules`")


class SmoothCurve(Part):
    """A smooth calibration curve with its pointwise 95 % band."""

    predicted: tuple[Number, ...]
    observed: tuple[Number, ...]
    low: tuple[Number, ...] = Field(description="lower end of the band; null where all outcomes are equal")
    high: tuple[Number, ...] = Field(description="upper end of the band; likewise")


class Fold(Part):
    """One fold's test patients."""

    repeat: int = Field(description="counted from 0")
    fold: int = Field(description="counted from 0")
    n: int = Field(description="patients")
    tied: bool = Field(description="whether all scores are equal")


class Subgroup(Part):
    """A compared model's AUC or C in one part of the cohort."""

    column: str = Field(description="column of the cohort table")
    level: str = Field(description="of that column")
    model: str
    n: int = Field(description="patients")
    value: Number = Field(description="AUC or Harrell's C")
    low: Number = Field(description="lower end of its 95 % confidence interval")
    high: Number = Field(description="upper end of its 95 % confidence interval")
    small: bool = Field(description="whether the subgroup is too small to judge")
    warning: str | None = Field(description="the same in words, or null")
    beside: dict[str, Estimate] = Field(
        default={},
        exclude_if=lambda found: not found,
        description="`observed_to_expected` (of deaths by a year), `slope` of calibration, `sensitivity` and `specificity` at "
        "the folds' thresholds, or `mean_error`; no key where the part is small, or before 0.7",
    )


class EndpointPart(Part):
    """An endpoint as a whole."""

    warnings: tuple[str, ...] = Field(
        default=(), description="signs that rows are not what they seem, in words: scores in the order of a table, copies, …"
    )
    known: int = Field(description="patients with a known label and a prediction")
    published: tuple[Published, ...]
    comparators: Comparators | None = Field(description="the comparators against the study's own model; null without any")
    pairs: tuple[Pair, ...] = Field(description="all models but the shuffled control, each two of them")
    thresholds: tuple[Number, ...] = Field(description="probabilities of the label, or to die, at which net benefit is given")
