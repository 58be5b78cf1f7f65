"""Competing risks in `metrics.json`: how many had the event, and how many another that comes first. Times are in days."""

from __future__ import annotations

from pydantic import Field

from mri_vit.report.schema.parts import Estimate, Number, Part

EVENT, NEITHER = "the event", "neither event"  # what became of a patient, beside the competing event's own name


class IncidenceAt(Part):
    """Shares of patients by one time (Aalen-Johansen); the ends of an interval are null where no patient had the event."""

    days: int = Field(description="days from imaging")
    event: Estimate = Field(description="share who had the event by then")
    other: Estimate = Field(description="share who had the competing event first")


class GraysTest(Part):
    """Gray's test of the cumulative incidence of the event in the two risk groups."""

    chi2: Number = Field(description="test statistic, for groups as given")
    p: Number = Field(description="p of `chi2` / `inflation`², not adjusted")
    given_p: Number = Field(description="p of `chi2`")
    inflation: Number = Field(description="what refitting in each fold does to the statistic's root; 1 without")


class CompetingResult(Part):
    """The risk groups of a model, of the first repeat."""

    grays_test: GraysTest
    groups: dict[str, tuple[IncidenceAt, ...]] = Field(description="by risk group, at 6, 12 and 24 months")


class CompetingRisks(Part):
    """All patients of an endpoint with a competing event."""

    name: str = Field(description="what the competing event is, as the study file has it")
    incidence: tuple[IncidenceAt, ...] = Field(description="at 6, 12 and 24 months; null beyond the follow-up")
    sentences: tuple[str, ...] = Field(description="what it means, in words")
