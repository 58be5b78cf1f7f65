"""Document: all that a comparison of two runs found, as `comparison.json` has it. `json_schema` describes it.

The runs are called A and B. A difference is A less B: above 0, A is better.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from pydantic import Field, JsonValue

from mri_vit.report.schema.metrics import Design
from mri_vit.report.schema.parts import Estimate, Number, Part

SCHEMA: Final = 1
Kind = Literal["a", "b", "alike", "same", "undefined"]
Role = Literal["own", "comparator", "control"]


class Side(Part):
    """One of the two runs. Paths are left out: they are of a machine and not of a run."""

    name: str = Field(description="what the page calls it: the study's name, or the folder's where both studies have one name")
    study: str = Field(description="name of the study")
    folder: str = Field(description="name of the folder, without the folders above it")
    design: Design = Field(description="out-of-fold predictions, or a run's models on another cohort")
    patients: int = Field(description="patients with a prediction")
    folds: int = Field(description="folds; of an evaluation 1, for its patients taught no model")
    repeats: int = Field(description="repeats of the cross-validation")
    folds_sha256: str | None = Field(description="hash of folds.json; null for an evaluation")
    device: str = Field(description="of all folds of all networks, with its name")
    started: str = Field(description="date and time, ISO 8601")


class Setting(Part):
    """A key of the study file, or of the software, that differs."""

    key: str = Field(description="dotted, as on the command line: train.epochs")
    a: JsonValue = Field(description="of A, with the default filled in; null where it is unset or does not apply")
    b: JsonValue = Field(description="of B, likewise")
    decides: bool = Field(description="whether a prediction can depend on it")


class Patients(Part):
    """Who was predicted by which run."""

    both: int = Field(description="patients predicted in both runs")
    a_alone: tuple[str, ...] = Field(description="patients predicted in A alone")
    b_alone: tuple[str, ...] = Field(description="patients predicted in B alone")
    other_scans: tuple[str, ...] | None = Field(
        description="visits in both whose files of a sequence differ between the runs; null where a run has not written them down"
    )


class Folds(Part):
    """Whether the common patients were divided alike."""

    same: bool = Field(description="whether every common patient is in the same fold of each repeat")
    inflation: Number = Field(description="largest factor of a standard error on this page, for what folds learn from each other")
    sentence: str = Field(description="what that means for the tests, in words")


class Compared(Part):
    """A model of both runs on the patients whom both predicted and whose label is known: the figure that a report judges."""

    role: Role = Field(description="the study's own model, a comparator, or a control")
    n: int = Field(description="patients compared")
    marked: int = Field(description="of them positive; of a survival endpoint with an event")
    a: Estimate = Field(description="AUC or C of pairs within a fold of A, on the patients compared")
    b: Estimate = Field(description="likewise of B")
    difference: Number = Field(description="A less B")
    low: Number = Field(description="lower end of the 95 % confidence interval of the difference")
    high: Number = Field(description="upper end of the 95 % confidence interval of the difference")
    z: Number = Field(description="difference over its standard error")
    p: Number = Field(description="two-sided p that there is no difference, not adjusted; 1 for equal predictions")
    p_adjusted: Number = Field(
        description="`p`, adjusted by Holm's method over all tests of this file; null where nothing was tested"
    )
    same_predictions: bool = Field(description="whether all scores are equal, so that there is nothing to test")
    agreement: Number = Field(description="correlation of the patients' ranks within their folds, mean over repeats")
    kind: Kind = Field(
        description="which run is better; alike: they cannot be told apart; same: equal predictions; undefined: too few"
    )
    verdict: str = Field(description="the same in words")


class EndpointCompared(Part):
    """One endpoint."""

    kind: Literal["binary", "survival"]
    measure: Literal["auc", "harrell_c"]
    models: dict[str, Compared] = Field(description="the study's own model first, then comparators and controls")


class Cost(Part):
    """What a model costs in one run."""

    parameters: int | None = Field(description="weights of a fold's network, median over folds; null where it is not known")
    gflops: Number = Field(description="operations for one patient's prediction, in billions, median over folds")
    patient_seconds: Number = Field(description="seconds for one patient's prediction, median over folds")
    training_seconds: Number = Field(description="seconds of training, sum over folds and repeats")


class Costs(Part):
    """What a model costs in both runs."""

    a: Cost
    b: Cost


class Alone(Part):
    """Names that one run has and the other does not: nothing to compare."""

    a: tuple[str, ...] = Field(description="of A alone")
    b: tuple[str, ...] = Field(description="of B alone")


class Comparison(Part):
    """Two runs side by side. Undefined is null; intervals are 95 %; nothing is fitted anew."""

    layout: Literal[1] = Field(alias="schema", description="version of this layout")
    a: Side
    b: Side
    settings: tuple[Setting, ...] = Field(description="settings that differ, those first on which a prediction can depend")
    versions: tuple[Setting, ...] = Field(description="software and machine that differ")
    patients: Patients
    folds: Folds
    endpoints: dict[str, EndpointCompared] = Field(description="that both runs have, and a common patient with a known label")
    endpoints_alone: Alone
    models_alone: Alone
    costs: dict[str, Costs] = Field(description="by model, where both runs have written a cost down")
    tests: int = Field(description="comparisons whose p were adjusted together")
    rules: tuple[str, ...] = Field(description="what the tests assume and what they do not say, in words")


def dumps(comparison: Comparison) -> str:
    """The text of the file: keys in the order of the fields, null for what is undefined."""
    return json.dumps(comparison.model_dump(mode="json"), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    schema = Comparison.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "comparison.json of mri-vit"}
