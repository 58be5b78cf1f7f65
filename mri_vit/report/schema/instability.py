"""How stable predictions are when the model is trained again, and which sets of classes hold the right one nine times in ten."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema.parts import Number, Part

Scale = Literal["probability", "score", "number", "survival", "rank"]


class Instability(Part):
    """How far a model's predictions move between trainings (Riley & Collins 2023)."""

    source: Literal["repeats", "seeds"] = Field(description="what the trainings differ in: folds and seeds, or seeds alone")
    trainings: int = Field(description="trainings that predicted every patient")
    n: int = Field(description="patients")
    scale: Scale = Field(
        description="of the predictions: of survival the probability to be alive at `days`, or the rank within the fold"
    )
    days: Number = Field(description="of survival; else null")
    unit: str = Field(description="of a number; else empty")
    mape: Number = Field(description="mean over patients of the mean absolute difference of two trainings' predictions")
    median: Number = Field(description="median over patients")
    ninth_decile: Number = Field(description="one patient in ten has more")
    at_random: Number = Field(description="the same of two patients' predictions by one training")
    rank_agreement: Number = Field(description="Spearman's correlation of two trainings over the patients")
    disagreement: Number = Field(description="how often two trainings call a patient differently; null of a number")
    disagreement_at_random: Number = Field(description="how often one training calls two patients differently; likewise")
    divided: int | None = Field(description="patients that not all trainings call alike; null of a number")
    relative_error: Number = Field(description="of one patient's mean absolute difference: its standard deviation over its mean")
    sentences: tuple[str, ...] = Field(description="the same in words")


class ClassCoverage(Part):
    """How often the sets hold a class for the patients of it."""

    name: str
    n: int = Field(description="patients of the class")
    covered: int = Field(description="whose set holds it")
    low: Number = Field(description="lower end of the 95 % interval of their share")
    high: Number = Field(description="upper end of it")


class SiteCoverage(Part):
    """How often the sets hold the right class in one site."""

    site: str = Field(description="as the cohort table names it")
    n: int = Field(description="patients")
    covered: int = Field(description="whose set holds the right class, or interval the number")
    low: Number = Field(description="lower end of the 95 % interval of their share")
    high: Number = Field(description="upper end of it")
    p: Number = Field(description="one-sided p of so low a share beside the other sites, by class; null where none is tested")
    p_adjusted: Number = Field(description="`p`, adjusted by Holm's method over the sites")
    below: bool = Field(description="whether that shows a coverage below the other sites'")


class PredictionSets(Part):
    """Sets of classes, or intervals of a number, that hold the right one with a stated probability."""

    level: Number = Field(description="the probability with which the right class is in the set, in each class")
    column: str = Field(description="column of the cohort table that names sites")
    calibrated_on: Literal["other patients", "other sites"] = Field(description="who a patient is compared with")
    n: int = Field(description="patients with a known label")
    answered: int = Field(description="whose set is one class; of a number 0")
    none: int = Field(description="whose set is empty; of a number 0")
    right: int = Field(description="of those answered, whose class that is")
    answered_without_skill: Number = Field(description="share with one class if the same scores knew nothing; null of a number")
    right_without_skill: Number = Field(description="of these the share that is right by luck; null of a number")
    reach: Number = Field(description="of a number: the interval is the prediction, this much less and more; else null")
    reach_without_skill: Number = Field(description="the same of the training patients' mean as the prediction; else null")
    times: bool = Field(description="whether `reach` is a factor, of a number whose logarithm is learned")
    new_low: Number = Field(
        description="in 95 % of cohorts of this size the share of new patients, of the rarest class, whose set holds the right "
        "one is at least this; null where sites are compared"
    )
    new_high: Number = Field(description="and at most this")
    classes: tuple[ClassCoverage, ...] = Field(description="where sites are compared, for else it is so by construction")
    sites: tuple[SiteCoverage, ...] = Field(description="with ten patients or more; none without two sites")
    small_sites: int = Field(description="sites with fewer")
    sentences: tuple[str, ...] = Field(description="the same in words")


class Retrained(Part):
    """A patient's predictions by several trainings."""

    trainings: int = Field(description="how many")
    low: Number = Field(description="the lowest prediction, on the scale of the endpoint's `instability`")
    high: Number = Field(description="the highest")
    called: str = Field(description="as most trainings call the patient; empty of a number")
    alike: int = Field(description="how many trainings call the patient so")


class Answer(Part):
    """A patient's set of classes, or interval of a number."""

    classes: tuple[str, ...] = Field(description="which cannot be left out; none of a number, or where nothing fits")
    low: Number = Field(description="of a number, else null")
    high: Number = Field(description="likewise")
