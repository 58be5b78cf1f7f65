"""An endpoint's card in `metrics.json`: what the first screen of the report says of it."""

from __future__ import annotations

from pydantic import Field

from mri_vit.report.schema.part import Part


class Tick(Part):
    """A question about a result with its answer."""

    holds: bool | None = Field(description="null where the question does not arise")
    words: str = Field(description="the answer in words")


class Card(Part):
    """The verdict on an endpoint in a few words; figures and p stand in `endpoints`."""

    model: str = Field(description="whose result it is: the study's own model, or the first of the candidates")
    verdict: str = Field(description="the verdict in at most six words")
    beats_controls: Tick = Field(description="does it beat every control?")
    holds_in_sites: Tick = Field(description="is it there in every site?")
