"""Whether a model works alike in the levels of a subgroup's column, in `metrics.json`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema.parts import Number, Part

Measured = Literal["figure", "observed_to_expected", "sensitivity", "specificity", "mean_error"]


class InteractionTest(Part):
    """Whether one figure differs between the levels of one column by more than chance."""

    column: str = Field(description="column of the cohort table")
    measure: Measured = Field(description="the AUC or C, or what subgroups have in `beside`")
    levels: tuple[str, ...] = Field(description="that were compared: large enough, and the figure is known of them")
    chi2: Number = Field(description="Cochran's Q, or of rates Pearson's chi²")
    df: int = Field(description="degrees of freedom")
    p: Number = Field(description="not adjusted; of rates from random tables with the same sums")
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method over measures, columns and endpoints")


class Interactions(Part):
    """Tests of one model between the levels of each column of an endpoint's subgroups."""

    model: str = Field(description="of the endpoint's card")
    tests: tuple[InteractionTest, ...]
    not_tested: dict[str, str] = Field(description="columns, or a measure by a column, and why levels are not compared")
    sentences: tuple[str, ...] = Field(description="the answer in words")
