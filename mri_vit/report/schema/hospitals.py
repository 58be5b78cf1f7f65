"""Hospitals in `metrics.json`: a model's figures by hospital, what a further one may expect, and an interval for clustering."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from mri_vit.report.schema.parts import Estimate, Interval, Number, Part, SiteFigure

# Why no patient of a hospital trained the models that scored it: by the folds, another cohort, or as the table was declared.
Unseen = Literal["left out", "external", "held-out"]
# Of the patients in one hospital: beyond it the others say little of how far that one is from them.
MAX_SHARE = 0.5


class HospitalFigures(SiteFigure):
    """One hospital's judged figure and calibration, each with its 95 % confidence interval."""

    slope: Estimate | None = Field(description="calibration slope, 1 at best; null where undefined, and of kinds without one")
    observed_to_expected: Estimate | None = Field(description="O:E, 1 at best, of survival of deaths within a year; likewise")


class Pooled(Estimate):
    """The mean over hospitals with its 95 % confidence interval (random effects, REML, Hartung and Knapp)."""

    sites: int = Field(description="hospitals that were pooled")
    tau: Number = Field(description="standard deviation of the hospitals' true values; of O:E, of its logarithm")
    prediction: Interval = Field(description="95 % prediction interval of a further hospital's true value")


class ClusteredInterval(Interval):
    """The 95 % interval of the judged figure that allows for clustering: a jackknife of hospitals."""

    sites: int = Field(description="hospitals")
    n: int = Field(description="patients whose hospital is known")
    value: Number = Field(description="the judged figure of these patients")
    usual: Interval = Field(description="interval of the same patients as if they were independent")
    ratio: Number = Field(description="width over that of `usual`")


@dataclass(frozen=True)
class HospitalNumbers:
    """A `Hospitals` without words."""

    column: str
    known: int
    unseen: Unseen | None
    sites: tuple[HospitalFigures, ...] = ()
    left_out: tuple[str, ...] = ()
    pooled: Pooled | None = None
    above: dict[str, float] = field(default_factory=dict)
    slope: Pooled | None = None
    observed_to_expected: Pooled | None = None
    clustered: ClusteredInterval | None = None
    largest: float = 0.0


class Hospitals(Part):
    """One model on one endpoint by hospital."""

    column: str = Field(description="column of the cohort table that names them")
    known: int = Field(description="hospitals with a judged patient")
    unseen: Unseen | None = Field(
        description="why no model was trained on patients of the hospital that it was tested on; null where models were"
    )
    sites: tuple[HospitalFigures, ...] = Field(description="unseen hospitals with patients enough, the largest first")
    left_out: tuple[str, ...] = Field(description="hospitals with too few patients for a figure of their own")
    pooled: Pooled | None = Field(description="of the judged figure; null with too few `sites`")
    above: dict[str, Number] = Field(description="share of further hospitals expected above an AUC or C of so much; likewise")
    slope: Pooled | None = Field(description="of the calibration slope; likewise")
    observed_to_expected: Pooled | None = Field(description="of O:E, pooled as a logarithm; likewise")
    clustered: ClusteredInterval | None = Field(description="null with too few hospitals, or one that has most patients")
    largest: Number = Field(description="share of the patients who are of the largest hospital")
    sentences: tuple[str, ...] = Field(description="the same in words, the finding first")
