"""Patients whose label is known beside those whose label is not, in `metrics.json`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema.parts import Number, Part
from mri_vit.report.schema.patients import Cell


class Characteristic(Part):
    """One characteristic of the patients with and without a label."""

    name: str = Field(description="column of the cohort table, an endpoint, `tumour volume, ml`, or `score` of the model")
    kind: Literal["number", "words", "label"]
    levels: tuple[str, ...] = Field(description="of words, the most frequent first; of a label what is counted")
    tested: Cell = Field(description="of the patients whose label is known")
    untested: Cell = Field(description="of the others; its `difference` is that from the tested")
    by_chance: Number = Field(description="standard deviation of the difference, were the groups drawn at random")
    p: Number = Field(description="two-sided, not adjusted: of a number by ranks, else from random tables with the same sums")
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method over the endpoint's characteristics")
    differs: bool = Field(description="a standardised difference above 0.25 and an adjusted p of at most 0.05")


class Unlabelled(Part):
    """Whether the patients who were judged on an endpoint stand for those whose label is not known."""

    model: str = Field(description="whose scores are compared: that of the endpoint's card")
    tested: int = Field(description="patients with a known label and a prediction")
    untested: int = Field(description="patients of the cohort table without a label")
    predicted: int = Field(description="of these, with a prediction")
    characteristics: tuple[Characteristic, ...]
    left_out: dict[str, str] = Field(description="characteristics that are not compared, each with the reason")
    sentences: tuple[str, ...] = Field(description="the answer in words")
