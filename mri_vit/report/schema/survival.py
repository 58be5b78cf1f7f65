"""A survival endpoint in `metrics.json`: a model's result, its subgroups, and the endpoint as a whole. Times are in days."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field

from mri_vit.report.schema.competing import CompetingResult, CompetingRisks
from mri_vit.report.schema.parts import (
    SCALED,
    Band,
    CalibrationGroup,
    EndpointPart,
    Estimate,
    Figures,
    Fold,
    Kind,
    Number,
    Part,
    Sentences,
    SmoothCurve,
    Subgroup,
    Tests,
    Value,
)

Days = int | float  # whole days are written without a decimal point
RiskGroup = Literal["low risk", "high risk"]


class Deaths(Part):
    """Patients who died, in what is of a survival endpoint."""

    symbol: ClassVar[str] = "C"
    kind_of: ClassVar[str] = "survival"

    events: int = Field(description="deaths; with a competing event those with the event that is predicted")
    others: int | None = Field(
        default=None,
        exclude_if=lambda count: count is None,
        description="patients with a competing event; left out where none is declared",
    )

    @property
    def tally(self) -> str:
        return (
            f"{self.events} died"
            if self.others is None
            else f"{self.events} with the event, {self.others} with the competing one"
        )


class FollowUp(Part):
    """How long patients with a known survival were followed. Times are in days."""

    n: int = Field(description="patients with a known survival")
    events: int = Field(description="of these, deaths, or with an event of either kind: what ends follow-up")
    median_days: Number = Field(
        description="median follow-up by the reverse Kaplan-Meier estimator; null where it is not reached"
    )
    low: Number = Field(description="lower end of its 95 % confidence interval")
    high: Number = Field(description="upper end of its 95 % confidence interval")
    days: tuple[int, ...] = Field(description="days at which the patients at risk are counted")
    at_risk: tuple[int, ...] = Field(description="patients who are followed for longer than each of `days`")


class UnoC(Estimate):
    """Uno's C, in which censoring does not weigh; with a competing event Wolbers's, in which who has that never has the other."""

    tau_days: Number = Field(description="day up to which deaths count")


class AucAt(Part):
    """Cumulative/dynamic AUC at one time."""

    days: Days = Field(description="days from imaging")
    value: Number = Field(description="AUC of those who died by then against those who outlived it, or had a competing event")
    low: Number = Field(description="lower end of the 95 % confidence interval, Wilson's with a bootstrap's variance")
    high: Number = Field(description="upper end of the 95 % confidence interval")
    cases: int = Field(description="patients who died by then")
    controls: int = Field(description="patients known to be alive then, or with a competing event by then")


class BrierScore(Part):
    """A Brier score of predicted survival, weighted for censoring, beside that of one curve for all patients."""

    value: Number = Field(description="of the model, 0 at best")
    reference: Number = Field(description="of the Kaplan-Meier curve of the same patients")


class IntegratedBrier(BrierScore):
    """The integrated Brier score with its 95 % confidence interval."""

    low: Number = Field(description="lower end of the 95 % confidence interval of `value`, by a bootstrap of patients")
    high: Number = Field(description="upper end of it")
    scaled: Estimate | None = Field(default=None, description=f"1 − `value` / `reference`; {SCALED}")


class _At(Part):
    days: Days = Field(description="days from imaging")


class BrierAt(BrierScore, _At):  # keys in the order of the bases, the last first
    """The Brier score at one time."""


class CalibrationAt(Part):
    """Predicted and observed survival at one time; all but `groups` are null in reports before 0.6."""

    days: Days = Field(description="days from imaging")
    groups: tuple[CalibrationGroup, ...] = Field(description="groups of about equal size, by predicted survival")
    slope: Estimate | None = Field(default=None, description="of log(−log S) in a Cox regression, 1 at best")
    observed_to_expected: Estimate | None = Field(default=None, description="O:E ratio of deaths by then, 1 at best")
    ici: Estimate | None = Field(default=None, description="mean distance from a smooth curve of pseudo-values, 0 at best")
    e50: Estimate | None = Field(default=None, description="median distance")
    e90: Estimate | None = Field(default=None, description="90th percentile of the distance")
    curve: SmoothCurve | None = Field(default=None, description="observed against predicted survival")


class OverTime(Part):
    """Curves over the horizons of the predicted probabilities."""

    days: tuple[Number, ...] = Field(description="days from imaging")
    auc: tuple[Number, ...] = Field(description="cumulative/dynamic AUC")
    brier: tuple[Number, ...] = Field(description="Brier score of the model")
    reference: tuple[Number, ...] = Field(description="Brier score of the Kaplan-Meier curve of the same patients")


class Logrank(Part):
    """The log-rank test of the two risk groups; `given_p` and `inflation` are new in 0.6, before which p was `given_p`."""

    chi2: Number = Field(description="test statistic, for groups as given")
    p: Number = Field(description="p of `chi2` / `inflation`², not adjusted")
    given_p: Number = Field(default=math.nan, description="p of `chi2`")
    inflation: Number = Field(default=1.0, description="what refitting in each fold does to the statistic's root; 1 without")


class HazardRatio(Estimate):
    """A hazard ratio by Cox regression with its 95 % interval, wider where risks are out of fold; null where none is finite."""

    proportional_p: Number = Field(description="two-sided p that the ratio is the same at all times, not adjusted")


class Hazard(Part):
    """What the risk says of the hazard of death."""

    per_sd: HazardRatio = Field(description="of patients whose risk is a standard deviation higher")
    high_vs_low: HazardRatio = Field(description="of the group of high risk against that of low risk")


class RestrictedMean(Part):
    """Mean survival of the risk groups up to a day, in days: the areas under their Kaplan-Meier curves; null with a competing
    event.
    """

    tau_days: Number = Field(description="up to which day: 730, or the shorter of the groups' follow-ups")
    low_risk: Number = Field(description="of the group of low risk")
    high_risk: Number = Field(description="of the group of high risk")
    difference: Estimate = Field(description="high less low risk; Greenwood's variance, larger out of fold")


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
    median_days: Number = Field(
        description="median survival; null where more than half outlive the follow-up, and with a competing event"
    )
    at_risk: tuple[int, ...] = Field(description="patients at risk at `at_risk_days`")


class SurvivalFold(Deaths, Fold):
    """One fold's test patients."""

    harrell_c: Number = Field(description="Harrell's C")

    @property
    def figure(self) -> float:
        return self.harrell_c


class SurvivalFigures(Deaths, Figures):
    """One model's figures on a survival endpoint."""

    harrell_c: Estimate = Field(description="Harrell's C of all patients' risks together, interval by the jackknife")
    harrell_c_half_width: Number = Field(description="half of the interval's width")
    harrell_c_within_folds: Value | None = Field(description="C of pairs within a fold; null without several folds")
    uno_c: UnoC
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
    at_risk_days: tuple[int, ...] = Field(description="days at which the patients at risk are counted")
    groups: dict[RiskGroup, Group]
    folds: tuple[SurvivalFold, ...]
    competing: CompetingResult | None = Field(
        default=None, exclude_if=lambda found: found is None, description="left out where no competing event is declared"
    )

    @property
    def rarer(self) -> int:
        return self.events


class SurvivalNumbers(Tests, SurvivalFigures):
    """One model's figures and tests on a survival endpoint."""


class SurvivalResult(Sentences, SurvivalNumbers):
    """One model's result on a survival endpoint."""

    cutoffs: str = Field(description="where the cut-offs of the risk groups come from, in words")


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

    n: int = Field(description="patients with a risk and a known outcome; covariates that some lack are imputed")
    deaths: int = Field(description="of these")
    coefficients: int = Field(description="of the regression on both")
    explained: Number = Field(description="share of the risk's variance within folds that the covariates explain")
    without: dict[str, CovariateRatio] = Field(description="hazard ratios of the covariates alone, by column")
    alone: dict[str, CovariateRatio] = Field(description="of the risk alone")
    both: dict[str, CovariateRatio] = Field(description="of covariates and risk together")
    test: LikelihoodRatio = Field(description="of the risk, given the covariates")
    reverse: LikelihoodRatio = Field(description="of the covariates, given the risk")
    c_without: Estimate = Field(
        description="Harrell's C of pairs within a fold, of the covariates, out of fold, in the patients who have every covariate"
    )
    c_alone: Estimate = Field(description="of the risk")
    c_both: Estimate = Field(description="of both")
    gain: Estimate = Field(description="C of both less that of the covariates")
    gain_reverse: Estimate = Field(description="C of both less that of the risk")


class RiskTest(Part):
    """The risk, given the covariates: its part of a `CoxComparison`."""

    hazard_ratio: CovariateRatio
    test: LikelihoodRatio


class CompleteCases(Part):
    """The risk, given the covariates, of the patients who have every covariate."""

    n: int = Field(description="patients")
    deaths: int = Field(description="of these")
    test: RiskTest | str = Field(description="or why there is none, in words")


class AddedValue(Part):
    """Whether a model's risk adds to age, other clinical columns and molecular markers."""

    model: str = Field(description="whose risk: the study's own model, else the first that is shown")
    covariates: tuple[str, ...] = Field(description="columns of the cohort table that are adjusted for")
    known: int = Field(description="patients with a risk and a known outcome")
    missing: dict[str, int] = Field(description="how many of these lack a covariate")
    imputations: int = Field(
        default=0,
        exclude_if=lambda tables: not tables,
        description="tables in which these are imputed, whose results are pooled; no key where none lacks one, and before 0.7, "
        "when patients who lack a covariate were left out",
    )
    complete_cases: CompleteCases | None = Field(
        default=None, exclude_if=lambda found: found is None, description="the same without imputation; no key without any"
    )
    left_out: dict[str, str] = Field(description="covariates that are not adjusted for, each with the reason")
    analysis: CoxComparison | str = Field(description="or why there is none, in words")
    adjusted_p: dict[Literal["risk", "covariates"], Number] = Field(description="of `test` and `reverse`, Holm's; else empty")
    beside: dict[str, RiskTest | str] = Field(
        description="where the risk adds, the same with the risk of a control from scans among the covariates, by control"
    )
    permuted: RiskTest | str | None = Field(description="the same on permuted labels; null where none was run")
    verdict_kind: Kind = Field(description="better: it adds; worse: a higher risk lives longer; undefined: no analysis")
    sentences: tuple[str, ...] = Field(description="the answer in words")


class SurvivalSubgroup(Deaths, Subgroup):
    """A compared model's C in one part of the cohort."""


class SurvivalEndpoint(Deaths, EndpointPart):
    """A survival endpoint: whose survival is known, what others reached, and every model's result."""

    kind: Literal["survival"]
    follow_up: FollowUp = Field(description="of the same patients")
    models: dict[str, SurvivalResult] = Field(description="results by model")
    subgroups: tuple[SurvivalSubgroup, ...]
    added_value: AddedValue | None = Field(default=None, description="null without a model, and in reports before 0.6")
    competing: CompetingRisks | None = Field(
        default=None, exclude_if=lambda found: found is None, description="left out where no competing event is declared"
    )
