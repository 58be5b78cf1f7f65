"""The bricks of `metrics.json`: a part that refuses unknown keys, a number that may be undefined, and values with intervals.

Undefined is NaN here and null in the file; a part that does not apply is None here and null there.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema


class Part(BaseModel):
    """A part of `metrics.json`: its keys in the order of its fields, none besides them, and none that changes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        json_schema_serialization_defaults_required=True,  # every key is in the file
    )


def _from_file(value: Any) -> Any:
    return math.nan if value is None else value


def _to_file(value: float) -> float | None:
    return None if math.isnan(value) else value


Number = Annotated[
    float,
    BeforeValidator(_from_file),
    PlainSerializer(_to_file, when_used="json"),
    WithJsonSchema({"type": ["number", "null"]}),
]


class Value(Part):
    """A point estimate alone."""

    value: Number = Field(description="point estimate")


class Interval(Part):
    """A 95 % confidence interval alone."""

    low: Number = Field(description="lower end of the 95 % confidence interval")
    high: Number = Field(description="upper end of the 95 % confidence interval")


class Estimate(Part):
    """A point estimate with its 95 % confidence interval."""

    value: Number = Field(description="point estimate")
    low: Number = Field(description="lower end of the 95 % confidence interval")
    high: Number = Field(description="upper end of the 95 % confidence interval")


class Mean(Estimate):
    """A mean or a ratio of means with its 95 % confidence interval."""

    n: int = Field(description="how many patients, or networks, the mean is of")


class CalibrationGroup(Part):
    """Patients of similar predictions: what was predicted and what was observed."""

    predicted: Number = Field(description="mean predicted probability")
    observed: Number = Field(description="observed share")
    low: Number = Field(description="lower end of the 95 % confidence interval of `observed`")
    high: Number = Field(description="upper end of the 95 % confidence interval of `observed`")
    n: int = Field(description="patients")


class Band(Part):
    """The ends of a pointwise 95 % band."""

    low: tuple[Number, ...] = Field(description="lower end at each point")
    high: tuple[Number, ...] = Field(description="upper end at each point")
