"""Net benefit over the range of thresholds that the study names, in `metrics.json`."""

from __future__ import annotations

from pydantic import Field

from mri_vit.report.schema.parts import Difference, Kind, Number, Part

WITHOUT = ("all", "none", "better of both")  # what a clinic can do without a model


class BenefitOverRange(Part):
    """A model's net benefit less that of acting without it and of each control, over the range. Per patient."""

    model: str
    days: Number = Field(description="day by which patients have the event; null of a binary endpoint")
    n: int = Field(description="patients")
    mean: dict[str, Difference] = Field(
        description="mean over the range of the model's net benefit less that of acting on all patients, on none, on the better "
        "of both at each threshold, and on each control that gives probabilities; not adjusted"
    )
    undefined: dict[str, tuple[Number, ...]] = Field(
        default={},
        exclude_if=lambda found: not found,
        description="by what the net benefit is held against, the thresholds that such a mean leaves out, because the patients "
        "above one were not followed to the day",
    )
    thresholds: tuple[Number, ...] = Field(description="the range in whole per cents, and its ends")
    difference: tuple[Number, ...] = Field(description="at each threshold, the net benefit less the better of both")
    low: tuple[Number, ...] = Field(description="lower end of its simultaneous 95 % band")
    high: tuple[Number, ...] = Field(description="upper end of it")
    verdict_kind: Kind = Field(description="better: worth more than the better of both, by `mean`; undefined: not computed")
    sentences: tuple[str, ...] = Field(description="the same in words, and the thresholds at which the band is above 0")


class Utility(Part):
    """Net benefit over the range of thresholds that `report.thresholds` names."""

    least: Number = Field(description="lower end of the range of threshold probabilities")
    most: Number = Field(description="upper end of it")
    endpoints: dict[str, tuple[BenefitOverRange, ...]] = Field(description="of the models shown")
    left_out: dict[str, str] = Field(description="endpoints without figures, each with the reason")
