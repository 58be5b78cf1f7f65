"""All models against all in `metrics.json`: what two models differ by on the patients that both predicted."""

from __future__ import annotations

from pydantic import Field

from mri_vit.report.schema.part import Number, Part


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
        description="of the Brier score, of survival the integrated one, by a bootstrap of patients; null without probabilities"
    )
