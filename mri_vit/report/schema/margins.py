"""Non-inferiority and equivalence in `metrics.json`: what the paired differences show about the margin of the study file."""

from __future__ import annotations

from pydantic import Field

from mri_vit.metrics.equivalence import Claim
from mri_vit.report.schema.parts import Number, Part


class MarginTest(Part):
    """A model against another, on the patients that both predicted."""

    other: str = Field(description="a control, or of a comparator the study's own model")
    difference: Number = Field(description="the model's AUC or C less the other's, as in the paired comparison")
    low: Number = Field(description="lower end of its 95 % confidence interval, which decides")
    high: Number = Field(description="upper end of it")
    p_lower: Number = Field(description="one-sided p that the model is inferior by the margin or more, not adjusted")
    p_upper: Number = Field(description="one-sided p that it is superior by the margin or more, not adjusted")
    claim: Claim = Field(description="open: neither non-inferiority nor inferiority by more than the margin is shown")
    sentence: str = Field(description="the same in words")


class EveryControl(Part):
    """A model against all controls: not inferior where it is not inferior to each."""

    compared: tuple[str, ...] = Field(description="controls that it could be compared with")
    left_out: tuple[str, ...] = Field(description="controls that could not be judged or compared")
    least: str = Field(description="the control with the largest p")
    p: Number = Field(description="one-sided p of non-inferiority to `least`, not adjusted")
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method over endpoints and compared models")
    not_inferior: bool = Field(description="whether `p_adjusted` is at most 0.025 and no control was left out")
    sentence: str = Field(description="the same in words")


class Margins(Part):
    """One model on one endpoint against the margin."""

    tests: tuple[MarginTest, ...]
    every_control: EveryControl | None = Field(description="null with fewer than two controls")
