"""The patients whom the study's own model gets most wrong, by endpoint, and what they have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema.part import Number, Part

Trait = Literal["finding", "site", "brain_ml", "tumour_share"]


class Association(Part):
    """Whether the worst patients differ from the others in one respect."""

    trait: Trait = Field(description="a finding of quality control, the site, or a volume, as in `patients`")
    level: str = Field(description="of a site: the most frequent one among the worst; else empty")
    worst: int = Field(description="worst patients in whom it is known")
    others: int = Field(description="other patients in whom it is known")
    of_worst: Number = Field(description="their share with a finding, or from `level`; of a volume the median")
    of_others: Number = Field(description="the same of the others")
    p: Number = Field(
        description="two-sided p, not adjusted: Fisher's exact test of findings, a permutation test of chi-squared of sites, "
        "Mann and Whitney's test of volumes"
    )
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method over all respects and endpoints")
    apart: bool = Field(description="whether the worst and the others are told apart")


class Failures(Part):
    """The worst patients of an endpoint."""

    model: str = Field(description="whose errors these are")
    patients: tuple[str, ...] = Field(description="names in `patients`, the worst first")
    ranked: int = Field(description="patients who are in pairs enough to be ranked")
    fewest_pairs: int = Field(description="pairs from which a patient is ranked")
    associations: tuple[Association, ...]
    sentence: str = Field(description="what the worst have in common, in words")
