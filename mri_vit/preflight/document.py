"""Document: all that a check of a study found, as `mri-vit check --json` prints it. `json_schema` describes it.

Findings have a severity: "refused" stops the study (exit code 2), "excluded" leaves patients out (3), "noticed" does neither.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from mri_vit.report.schema.parts import Number, Part

SCHEMA: Final = 1
Severity = Literal["refused", "excluded", "noticed"]
About = Literal["table", "labels", "folds", "networks", "scans", "duplicates", "plausibility", "resources"]


class Finding(Part):
    """One thing that is wrong, and everybody whom it concerns."""

    severity: Severity = Field(description="refused stops the study, excluded leaves the patients out, noticed is for a person")
    about: About
    said: str = Field(description="what was found and what is expected, as a sentence")
    rows: tuple[int, ...] = Field(default=(), description="lines of the cohort table, the header's being 1")
    patients: tuple[str, ...] = Field(default=(), description="ids, of several visits with their session")
    files: tuple[str, ...] = Field(
        default=(), description="relative to the cohort table; whole paths of files that are not there"
    )


class Column(Part):
    """A clinical column of the cohort table, and what becomes of it."""

    name: str
    kind: Literal["number", "category"] | None = Field(description="as which the control clinical-only reads it; null where not")
    why_not: str = Field(description="why it is not read; empty where it is")


class Fold(Part):
    """An endpoint in one test fold, of all visits that are not excluded."""

    repeat: int = Field(description="counted from 0")
    fold: int = Field(description="counted from 0")
    known: int = Field(description="visits whose label is known")
    positive: int = Field(description="of these with 1: of a survival endpoint an event")
    negative: int = Field(description="of these with 0: of a survival endpoint censored")


class Labels(Part):
    """What is known of one endpoint."""

    endpoint: str
    kind: Literal["binary", "survival"]
    known: int = Field(description="visits whose label is known")
    missing: int = Field(description="visits whose label is not known")
    positive: int = Field(description="visits with 1: of a survival endpoint an event")
    negative: int = Field(description="visits with 0: of a survival endpoint censored")
    rarest: int = Field(description="the smaller of the two; of a survival endpoint the events")
    folds: tuple[Fold, ...] = Field(description="the study's own test folds; none where they cannot be made")


class Hours(Part):
    """What one stage takes on one CPU core of this machine."""

    stage: str
    hours: float = Field(description="core-hours; what is prepared already is not counted")


class Needs(Part):
    """Estimates: right within a factor of two or three, for a CPU; a GPU is not estimated."""

    stages: tuple[Hours, ...]
    hours: float = Field(
        description="wall-clock hours with the study's prepare.workers, train.workers and train.threads, on cores of their own"
    )
    speed: float = Field(description="of this machine's core, as a share of the one that was measured")
    prepared_bytes: int = Field(description="that prepared patients will take on disk, beside those that are prepared")
    prepared_free_bytes: int = Field(description="that are free where prepared patients go")
    output_bytes: int = Field(description="that the run will take on disk")
    output_free_bytes: int = Field(description="that are free where the run goes")
    memory_bytes: int = Field(description="that the stage which needs most of it takes at a time")
    memory_of: str = Field(description="that stage")
    memory_free_bytes: int = Field(description="that a process can have now; 0 where the system does not say")


class Check(Part):
    """Everything that a check found; `exit_code` is the command's own."""

    layout: Literal[1] = Field(alias="schema", description="version of this layout")
    study: str = Field(description="name of the study")
    cohort: str = Field(description="file name of the cohort table")
    exit_code: Literal[0, 2, 3]
    visits: int = Field(description="rows of the table that could be read; each visit of a patient is one")
    patients: int = Field(description="of whom the visits are")
    excluded: tuple[str, ...] = Field(description="visits that would be left out")
    scans: int = Field(description="files that the table names")
    scan_bytes: int = Field(description="that these take on disk")
    covariates: tuple[str, ...] | None = Field(description="columns of the control clinical-only; null without that control")
    columns: tuple[Column, ...] = Field(description="every clinical column, as `covariates` has it or with the reason why not")
    labels: tuple[Labels, ...]
    findings: tuple[Finding, ...] = Field(description="the gravest first")
    needs: Needs | None = Field(description="null where a fault of networks or folds leaves nothing to estimate")
    seconds: Number = Field(description="that the check took")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    schema = Check.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "mri-vit check --json"}
