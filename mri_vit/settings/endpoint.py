"""An endpoint: what is predicted, and the columns of the cohort table that it reads."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from mri_vit.settings.recipe import Section

ENDPOINT_NAME = r"[a-z][a-z0-9_]{0,31}"  # a column, a file name, and a section of the report at once
TITLES = {  # full names of the defaults below; any other endpoint goes by its own
    "mgmt": "MGMT promoter methylation",
    "tertp": "TERT promoter mutation",
    "pten": "PTEN alteration",
    "os": "Overall survival",
}


class Endpoint(Section):
    """What is predicted: a binary marker in the column `name`, or a survival time and its event flag."""

    name: str = Field(pattern=f"^{ENDPOINT_NAME}$", description="Name, and for a binary marker its column of the cohort table.")
    kind: Literal["binary", "survival"] = Field(description="Binary marker, or survival time.")
    time: str | None = Field(default=None, description="Column of the days from imaging to death or the last follow-up.")
    event: str | None = Field(default=None, description="Column of the event flag: 1 is death, 0 is censored.")
    prefer: str | None = Field(default=None, description="Cohort whose label holds where merged cohorts disagree; unset is none.")

    @model_validator(mode="after")
    def _columns_fit_the_kind(self) -> Endpoint:
        if {self.time is not None, self.event is not None} != {self.kind == "survival"}:
            raise ValueError('"time" and "event" name the columns of a survival endpoint, and only of one')
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The label columns of the cohort table that this endpoint reads."""
        return (self.time, self.event) if self.time and self.event else (self.name,)

    @property
    def title(self) -> str:
        """Its full name."""
        return TITLES.get(self.name, self.name)


DEFAULT_ENDPOINTS = (
    Endpoint(name="mgmt", kind="binary"),
    Endpoint(name="pten", kind="binary"),
    Endpoint(name="tertp", kind="binary"),
    Endpoint(name="os", kind="survival", time="os_days", event="os_event"),
)
