"""What an evaluation on another cohort adds to `metrics.json`: how calibration drifts, and what a new hospital may expect."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema.part import Estimate, Number, Part


class Drift(Part):
    """One measure in the run and here; intervals by bootstraps of either cohort's patients, independent of each other."""

    internal: Estimate = Field(description="of the run's out-of-fold scores")
    external: Estimate = Field(description="of this cohort's")
    difference: Estimate = Field(description="external less internal")


class CalibrationDrift(Part):
    """How one model's probabilities agree with what is observed, in the run and here."""

    days: Number = Field(description="by which day patients die, of a survival endpoint; null of a binary one")
    n_internal: int = Field(description="patients of the run")
    n_external: int = Field(description="patients here")
    slope: Drift | None = Field(description="calibration slope, 1 at best; null for survival")
    intercept: Drift | None = Field(description="calibration intercept that belongs to the slope, 0 at best; null for survival")
    observed_to_expected: Drift = Field(description="O:E ratio, 1 at best")
    excess: Drift = Field(description="mean probability less the observed share: above 0, probabilities run too high")
    sentence: str = Field(description="the same in words")


class SiteFigure(Estimate):
    """The figure of one site of this cohort, with its 95 % confidence interval."""

    site: str = Field(description="as the cohort table names it")
    n: int = Field(description="patients")


class NewHospital(Part):
    """In which range one model's AUC or C is to be expected in a hospital that is in neither cohort."""

    measure: Literal["auc", "harrell_c"]
    method: Literal["sites", "assumed"] = Field(description="from this cohort's sites, or by an assumed heterogeneity")
    value: Number = Field(description="mean over the sites, or this cohort's own")
    low: Number = Field(description="lower end of the 95 % prediction interval")
    high: Number = Field(description="upper end of it")
    tau: Number = Field(description="between-site standard deviation: of the logit, estimated; of the AUC or C, assumed")
    sites: tuple[SiteFigure, ...] = Field(description="sites with patients enough, whichever the method")
    left_out: int = Field(description="sites with too few patients")
    sentence: str = Field(description="the same in words")
