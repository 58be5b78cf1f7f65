"""A survival endpoint in `metrics.json`: one model's result, subgroups, and the endpoint as a whole. Times are in days."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema import comparison
from mri_vit.report.schema.comparison import (
    BestControl,
    ChanceTest,
    Comparators,
    Comparison,
    Kind,
    Published,
    Repeat,
    Retraining,
    WithinSites,
)
from mri_vit.report.schema.pairs import Pair
from mri_vit.report.schema.part import Band, CalibrationGroup, Estimate, Number, Part, Value
from mri_vit.report.schema.table1 import FollowUp

Days = int | float  # whole days are written without a decimal point
RiskGroup = Literal["low risk", "high risk"]


class UnoC(Estimate):
    """Uno's C, in which censoring does not weigh."""

    tau_days: Number = Field(description="day up to which deaths count")


class AucAt(Part):
    """Cumulative/dynamic AUC at one time."""

    days: Days = Field(description="days from imaging")
    value: Number = Field(description="AUC of those who died by then against those who outlived it")
    low: Number = Field(description="lower end of the 95 % confidence interval, Wilson's with a bootstrap's variance")
    high: Number = Field(description="upper end of the 95 % confidence interval")
    cases: int = Field(description="patients who died by then")
    controls: int = Field(description="patients known to be alive then")


class BrierScore(Part):
    """A Brier score of predicted survival, weighted for censoring, beside that of one curve for everybody."""

    value: Number = Field(description="of the model, 0 at best")
    reference: Number = Field(description="of the Kaplan-Meier curve of the same patients")


class IntegratedBrier(BrierScore):
    """The integrated Brier score with its 95 % confidence interval."""

    low: Number = Field(description="lower end of the 95 % confidence interval of `value`, by a bootstrap of patients")
    high: Number = Field(description="upper end of it")


class _At(Part):
    days: Days = Field(description="days from imaging")


class BrierAt(BrierScore, _At):  # keys in the order of the bases, the last first
    """The Brier score at one time."""


class CalibrationAt(Part):
    """Predicted and observed survival at one time."""

    days: Days = Field(description="days from imaging")
    groups: tuple[CalibrationGroup, ...] = Field(description="groups of about equal size, by predicted survival")


class OverTime(Part):
    """Curves over the horizons of the predicted probabilities."""

    days: tuple[Number, ...] = Field(description="days from imaging")
    auc: tuple[Number, ...] = Field(description="cumulative/dynamic AUC")
    brier: tuple[Number, ...] = Field(description="Brier score of the model")
    reference: tuple[Number, ...] = Field(description="Brier score of the Kaplan-Meier curve of the same patients")


class Logrank(Part):
    """The log-rank test of the two risk groups."""

    chi2: Number = Field(description="test statistic")
    p: Number = Field(description="p, not adjusted")


class HazardRatio(Estimate):
    """A hazard ratio by Cox regression with its 95 % interval; null where no finite one exists."""

    proportional_p: Number = Field(description="two-sided p that the ratio is the same at all times, not adjusted")


class Hazard(Part):
    """What the risk says of the hazard of death."""

    per_sd: HazardRatio = Field(description="of patients whose risk is a standard deviation higher")
    high_vs_low: HazardRatio = Field(description="of the group of high risk against that of low risk")


class RestrictedMean(Part):
    """Mean survival of the risk groups up to a day, in days: the areas under their Kaplan-Meier curves."""

    tau_days: Number = Field(description="up to which day: 730, or the shorter of the groups' follow-ups")
    low_risk: Number = Field(description="of the group of low risk")
    high_risk: Number = Field(description="of the group of high risk")
    difference: Estimate = Field(description="high less low risk, with Greenwood's variance")


class DecisionAt(Part):
    """The decision curve of death by one time, in patients with predicted probabilities of survival."""

    days: Days = Field(description="days from imaging")
    net_benefit: tuple[Number, ...] = Field(description="at the endpoint's `thresholds` of the chance to die, per patient")
    net_benefit_band: Band = Field(description="pointwise 95 % band of `net_benefit`")
    net_benefit_of_all: tuple[Number, ...] = Field(description="of treating all of these patients")


class Group(Part):
    """The patients of low or of high risk, of the first repeat."""

    n: int = Field(description="patients")
    events: int = Field(description="deaths")
    median_days: Number = Field(description="median survival; null where more than half outlive the follow-up")
    at_risk: tuple[int, ...] = Field(description="patients at risk at `at_risk_days`")


class SurvivalFold(Part):
    """One fold's test patients."""

    repeat: int = Field(description="counted from 0")
    fold: int = Field(description="counted from 0")
    n: int = Field(description="patients")
    events: int = Field(description="deaths")
    tied: bool = Field(description="whether all scores are equal")
    harrell_c: Number = Field(description="Harrell's C")


class SurvivalResult(Part):
    """One model's result on a survival endpoint, a patient's risks averaged over repeats."""

    n: int = Field(description="patients")
    events: int = Field(description="deaths")
    judged: Estimate = Field(description=comparison.JUDGED)
    harrell_c: Estimate = Field(description="Harrell's C of all patients' risks together, interval by a bootstrap of patients")
    harrell_c_half_width: Number = Field(description="half of the interval's width")
    harrell_c_within_folds: Value | None = Field(description="C of pairs within a fold; null without several folds")
    remark: str | None = Field(description=comparison.REMARK)
    uno_c: UnoC
    chance_test: ChanceTest
    retraining: Retraining | None = Field(description=comparison.RETRAINING)
    within_sites: WithinSites | None = Field(description=comparison.WITHIN_SITES)
    too_good: str | None = Field(description=comparison.TOO_GOOD)
    auc_at: tuple[AucAt, ...] = Field(description="at 6, 12 and 24 months, or the predicted horizons next to them")
    mean_auc: Number = Field(description="mean of the AUC over these times, weighted by deaths")
    brier_at: tuple[BrierAt, ...] = Field(description="at the horizons next to 6, 12 and 24 months; none without probabilities")
    integrated_brier: IntegratedBrier | None = Field(description="over all horizons; null without probabilities")
    calibration_at: tuple[CalibrationAt, ...] = Field(description="at the same horizons; none without probabilities")
    curve: OverTime | None = Field(description="null without probabilities")
    decision_at: tuple[DecisionAt, ...] = Field(
        description="at the horizons next to 12 and 24 months; none without probabilities"
    )
    logrank: Logrank
    hazard: Hazard
    restricted_mean: RestrictedMean
    cutoffs: str = Field(description="where the cut-offs of the risk groups come from, in words")
    at_risk_days: tuple[int, ...] = Field(description="days at which the patients at risk are counted")
    groups: dict[RiskGroup, Group]
    folds: tuple[SurvivalFold, ...]
    fold_mean: Number = Field(description=comparison.FOLD_MEAN)
    fold_variance: Number = Field(description=comparison.FOLD_VARIANCE)
    undefined_folds: int = Field(description=comparison.UNDEFINED_FOLDS)
    tied_folds: int = Field(description=comparison.TIED_FOLDS)
    repeats: tuple[Repeat, ...]
    versus_controls: dict[str, Comparison] = Field(description=comparison.VERSUS_CONTROLS)
    versus_best: BestControl | None = Field(description=comparison.VERSUS_BEST)
    versus_own: Comparison | None = Field(description=comparison.VERSUS_OWN)
    verdict: str = Field(description=comparison.VERDICT)
    verdict_kind: Kind = Field(description=comparison.VERDICT_KIND)

    @property
    def estimate(self) -> Estimate:
        """The figure that is judged: Harrell's C of pairs within a fold."""
        return self.judged


class CovariateRatio(HazardRatio):
    """A column's hazard ratio in a regression on several."""

    p: Number = Field(description="Wald's, of this column alone, not adjusted; a risk's allows for refitting")


class LikelihoodRatio(Part):
    """The likelihood-ratio test of columns that are added to a Cox regression."""

    chi2: Number = Field(description="twice the gain in log partial likelihood, mean over repeats")
    df: int = Field(description="degrees of freedom")
    given_p: Number = Field(description="p with risks taken as given")
    inflation: Number = Field(description="what divides the root of `chi2` for `p`, as networks learn from each other's patients")
    p: Number = Field(description="p that allows for refitting, not adjusted")


class CoxComparison(Part):
    """Cox regressions on covariates, on the risk and on both, of the same patients; each network has a baseline hazard."""

    n: int = Field(description="patients with a risk, a known outcome and every covariate")
    deaths: int = Field(description="of these")
    coefficients: int = Field(description="of the regression on both")
    explained: Number = Field(description="share of the risk's variance within folds that the covariates explain")
    without: dict[str, CovariateRatio] = Field(description="hazard ratios of the covariates alone, by column")
    alone: dict[str, CovariateRatio] = Field(description="of the risk alone")
    both: dict[str, CovariateRatio] = Field(description="of covariates and risk together")
    test: LikelihoodRatio = Field(description="of the risk, given the covariates")
    reverse: LikelihoodRatio = Field(description="of the covariates, given the risk")
    c_without: Estimate = Field(description="Harrell's C of pairs within a fold, of the covariates, out of fold")
    c_alone: Estimate = Field(description="of the risk")
    c_both: Estimate = Field(description="of both")
    gain: Estimate = Field(description="C of both less that of the covariates")
    gain_reverse: Estimate = Field(description="C of both less that of the risk")


class RiskTest(Part):
    """The risk, given the covariates: its part of a `CoxComparison`."""

    hazard_ratio: CovariateRatio
    test: LikelihoodRatio


class AddedValue(Part):
    """Whether a model's risk adds to age, other clinical columns and molecular markers."""

    model: str = Field(description="whose risk: the study's own model, else the first that is shown")
    covariates: tuple[str, ...] = Field(description="columns of the cohort table that are adjusted for")
    known: int = Field(description="patients with a risk and a known outcome")
    missing: dict[str, int] = Field(description="how many of these lack a covariate; they are left out")
    left_out: dict[str, str] = Field(description="covariates that are not adjusted for, each with the reason")
    analysis: CoxComparison | str = Field(description="or why there is none, in words")
    adjusted_p: dict[Literal["risk", "covariates"], Number] = Field(description="of `test` and `reverse`, Holm's; else empty")
    beside: dict[str, RiskTest | str] = Field(
        description="where the risk adds, the same with the risk of a control from scans among the covariates, by control"
    )
    permuted: RiskTest | str | None = Field(description="the same on permuted labels; null where none was run")
    verdict_kind: Kind = Field(description="better: it adds; worse: a higher risk lives longer; undefined: no analysis")
    sentences: tuple[str, ...] = Field(description="the answer in words")


class SurvivalSubgroup(Part):
    """One candidate's C in one part of the cohort."""

    column: str = Field(description="column of the cohort table")
    level: str = Field(description="of that column")
    model: str
    n: int = Field(description="patients")
    events: int = Field(description="deaths")
    value: Number = Field(description="Harrell's C")
    low: Number = Field(description="lower end of its 95 % confidence interval")
    high: Number = Field(description="upper end of its 95 % confidence interval")
    small: bool = Field(description="whether the subgroup is too small to judge")
    warning: str | None = Field(description="the same in words, or null")


class SurvivalEndpoint(Part):
    """A survival endpoint: whose survival is known, what others reached, and every model's result."""

    kind: Literal["survival"]
    known: int = Field(description="patients with a known survival and a prediction")
    events: int = Field(description="of these, deaths")
    follow_up: FollowUp = Field(description="of the same patients")
    published: tuple[Published, ...]
    models: dict[str, SurvivalResult] = Field(description="results by model")
    rivals: Comparators | None = Field(description="the comparators against the study's own model; null without any")
    subgroups: tuple[SurvivalSubgroup, ...]
    pairs: tuple[Pair, ...] = Field(description="all models but the shuffled control, each two of them")
    thresholds: tuple[Number, ...] = Field(description="chances to die at which net benefit is given")
    added_value: AddedValue | None = Field(default=None, description="null without a model, and in reports before 0.6")
