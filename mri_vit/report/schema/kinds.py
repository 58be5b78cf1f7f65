"""An endpoint of any kind in `metrics.json`, and a model's figures, tests and sentences on it: a line for each kind."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mri_vit.report.schema.binary import BinaryEndpoint, BinaryFigures, BinaryNumbers, BinaryResult, BinarySubgroup
from mri_vit.report.schema.classes import (
    MulticlassEndpoint,
    MulticlassFigures,
    MulticlassNumbers,
    MulticlassResult,
    MulticlassSubgroup,
    OrdinalEndpoint,
    OrdinalFigures,
    OrdinalNumbers,
    OrdinalResult,
    OrdinalSubgroup,
)
from mri_vit.report.schema.continuous import (
    ContinuousEndpoint,
    ContinuousFigures,
    ContinuousNumbers,
    ContinuousResult,
    ContinuousSubgroup,
)
from mri_vit.report.schema.survival import SurvivalEndpoint, SurvivalFigures, SurvivalNumbers, SurvivalResult, SurvivalSubgroup

AnyFigures = BinaryFigures | SurvivalFigures | MulticlassFigures | OrdinalFigures | ContinuousFigures
Numbers = BinaryNumbers | SurvivalNumbers | MulticlassNumbers | OrdinalNumbers | ContinuousNumbers
Result = BinaryResult | SurvivalResult | MulticlassResult | OrdinalResult | ContinuousResult
AnySubgroup = BinarySubgroup | SurvivalSubgroup | MulticlassSubgroup | OrdinalSubgroup | ContinuousSubgroup
AnyEndpoint = BinaryEndpoint | SurvivalEndpoint | MulticlassEndpoint | OrdinalEndpoint | ContinuousEndpoint
Endpoint = Annotated[AnyEndpoint, Field(discriminator="kind")]
NUMBERS: dict[type[AnyFigures], type[Numbers]] = {  # a model's figures with their tests
    BinaryFigures: BinaryNumbers,
    SurvivalFigures: SurvivalNumbers,
    MulticlassFigures: MulticlassNumbers,
    OrdinalFigures: OrdinalNumbers,
    ContinuousFigures: ContinuousNumbers,
}
