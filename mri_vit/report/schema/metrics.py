"""The whole of `metrics.json`: every number of the report and every sentence that judges one.

`Metrics.model_validate_json(text)` reads the file; `dumps` writes it.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mri_vit.report.schema.binary import BinaryEndpoint, BinaryResult
from mri_vit.report.schema.maps import ComparatorMaps, GroupMaps, MapEvaluation, MapSettings, PatientMaps, SequenceShares
from mri_vit.report.schema.parts import Part
from mri_vit.report.schema.patients import Failures, Patient, Table1
from mri_vit.report.schema.run import (
    CalibrationDrift,
    Cohort,
    Contender,
    Design,
    Environment,
    InternalEstimate,
    NewHospital,
    Nothing,
    Planted,
    Settings,
    SiteProbe,
    Step,
)
from mri_vit.report.schema.survival import SurvivalEndpoint, SurvivalResult


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


SCHEMA: Final = 3  # since 0.5.0 `judged`, `chance_test`, `versus_controls` for `permutation`, `versus_clinical`

Result = BinaryResult | SurvivalResult
Endpoint = Annotated[BinaryEndpoint | SurvivalEndpoint, Field(discriminator="kind")]


class Metrics(Part):
    """Every number of a report. Undefined is null; intervals are 95 %; folds and repeats are counted from 0."""

    layout: Literal[3] = Field(alias="schema", description="version of this layout")
    study: str = Field(description="name of the study")
    seed: int = Field(description="from which every resampling starts")
    design: Design = Field(description="out-of-fold predictions, a run's models on another cohort, or a table from elsewhere")
    cohort: Cohort
    table1: Table1
    folds: int = Field(description="folds, or sites that were left out in turn")
    repeats: int = Field(description="repeats of the cross-validation, each with folds of its own")
    leave_out: str | None = Field(description="column whose values are the folds; null for random folds")
    folds_sha256: str | None = Field(description="hash of folds.json; null where the run has none")
    models: tuple[str, ...] = Field(description="candidates, the study's own first and then the best first, and controls")
    contenders: tuple[Contender, ...] = Field(description="the candidates in the same order")
    shown: tuple[str, ...] = Field(description="candidates whose curves are drawn")
    transductive: str | None = Field(description="how pretraining saw scans of patients judged here, in words; else null")
    rules: tuple[str, ...] = Field(description="the rules of the verdicts, in words")
    endpoints: dict[str, Endpoint]
    cards: dict[str, Card] = Field(description="by endpoint that a candidate was judged on: the report's first screen")
    patients: tuple[Patient, ...] = Field(
        description="who was predicted, with the scores of the model of each endpoint's card, in the order of the cohort table"
    )
    failures: dict[str, Failures] = Field(
        description="the worst of `patients`, by endpoint; an endpoint without a ranked patient has none"
    )
    planted: dict[str, Planted] = Field(description="by endpoint, of a made-up cohort; empty of any other")
    site_probe: SiteProbe | None = Field(description="null without a probe of two sites")
    internal: dict[str, dict[str, InternalEstimate]] | None = Field(
        description="by endpoint and model, of the evaluated run; null where none is evaluated"
    )
    drift: dict[str, dict[str, tuple[CalibrationDrift, ...]]] = Field(
        default={}, description="by endpoint and model, of an evaluation on another cohort; empty of any other"
    )
    new_hospital: dict[str, dict[str, NewHospital]] = Field(default={}, description="by endpoint and model; likewise")
    maps: tuple[PatientMaps, ...]
    map_settings: MapSettings | None = Field(description="null without maps")
    stale: dict[Literal["maps", "scores", "mean maps"], int] = Field(description="how many of an earlier kind are left out")
    map_scores: MapEvaluation | None = Field(description="null where no patient was scored")
    map_scans: SequenceShares | None = Field(description="null where nothing is shared among sequences")
    map_groups: tuple[GroupMaps, ...]
    comparator_maps: dict[str, ComparatorMaps] = Field(
        default={}, exclude_if=lambda found: not found, description="by comparator whose maps were made; no key without any"
    )
    settings: Nothing | Settings = Field(description="empty for a table from elsewhere")
    environment: Nothing | Environment = Field(description="empty for a table from elsewhere")
    notes: dict[str, str] = Field(description="what was not done, and why; and columns of the controls")
    preparation: tuple[Step, ...]
    files: tuple[str, ...] = Field(description="figures, tables and pages beside this file, to be deleted with it")


def dumps(metrics: Metrics) -> str:
    """The text of the file: keys in the order of the fields, null for what is undefined."""
    return json.dumps(metrics.model_dump(mode="json"), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    schema = Metrics.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "metrics.json of mri-vit"}
