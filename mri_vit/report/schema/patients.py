"""Patients in `metrics.json`: Table 1, each patient's results, and what the worst predicted have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema.parts import Number, Part

ColumnKind = Literal["number", "words", "label", "follow-up"]
Trait = Literal["finding", "site", "brain_ml", "tumour_share"]


class FollowUp(Part):
    """How long patients with a known survival were followed. Times are in days."""

    n: int = Field(description="patients with a known survival")
    events: int = Field(description="of these, deaths")
    median_days: Number = Field(
        description="median follow-up by the reverse Kaplan-Meier estimator; null where it is not reached"
    )
    low: Number = Field(description="lower end of its 95 % confidence interval")
    high: Number = Field(description="upper end of its 95 % confidence interval")
    days: tuple[int, ...] = Field(description="days at which the patients at risk are counted")
    at_risk: tuple[int, ...] = Field(description="patients who are followed for longer than each of `days`")


class Split(Part):
    """One column of the table: patients who are described together."""

    name: str = Field(description="of the column, such as fold 1, or the value that is left out")
    kind: Literal["all", "fold", "left out", "development", "excluded"]
    n: int = Field(description="patients")
    by_chance: Number = Field(
        description="standard deviation of a standardised difference from the patients compared with, were both dealt at random; "
        "null where nobody is compared"
    )


class Cell(Part):
    """One characteristic of one column's patients."""

    known: int = Field(description="patients in whom it is known")
    missing: int = Field(description="patients in whom it is not")
    median: Number = Field(description="of a number; of a follow-up by the reverse Kaplan-Meier estimator; else null")
    low: Number = Field(description="lower quartile of a number; of a follow-up the lower end of its 95 % interval; else null")
    high: Number = Field(description="upper quartile, or upper end; else null")
    mean: Number = Field(description="of a number; else null")
    deviation: Number = Field(description="sample standard deviation of a number; else null")
    counts: tuple[int, ...] = Field(description="patients of each of the row's levels; none of a number or a follow-up")
    difference: Number = Field(
        description="standardised difference from the patients compared with: of a fold or site the others, of the excluded the "
        "included, of a development cohort the evaluated one"
    )


class Row(Part):
    """One characteristic."""

    column: str = Field(description="column of the cohort table, or name of an endpoint")
    kind: ColumnKind
    levels: tuple[str, ...] = Field(description="of words, the most frequent first; of a label what is counted")
    lumped: int = Field(description="rare levels that stand together as the last of `levels`")
    cells: tuple[Cell, ...] = Field(description="of each of the table's splits")


class Table1(Part):
    """The characteristics of the patients."""

    splits: tuple[Split, ...] = Field(description="columns: first all patients who are described, then parts of them")
    rows: tuple[Row, ...]
    left_out: int = Field(description="further clinical columns of the cohort table that are not described")


class PatientResult(Part):
    """One endpoint of a patient: the label, the score, and how wrong it is."""

    truth: bool | None = Field(description="positive, or of survival died; null where the label is not known")
    time_days: Number = Field(description="of survival: days from imaging to death or the last follow-up; else null")
    score: Number = Field(description="mean over repeats, and of a binary endpoint over visits; null without a prediction")
    rank: Number = Field(
        description="place among the scores of the fold, near 0 the lowest, near 1 the highest; mean over repeats"
    )
    pairs: int = Field(
        description="patients of the same fold to compare with: of the other class, or of whom it is known who "
        "lived longer; sum over repeats"
    )
    wrong: Number = Field(description="of these pairs, those that the scores rank the wrong way, ties counting one half")
    error: Number = Field(description="`wrong` / `pairs`; 0.5 is what a coin gets; null without a pair")


class Patient(Part):
    """A patient with a prediction."""

    patient: str
    sessions: tuple[str, ...] = Field(description="visits that were predicted; one without a name where there is one only")
    site: str = Field(description="as in the column `site` of the cohort table; empty where there is none")
    fold: int = Field(description="of the first repeat, counted from 0; of an external evaluation 0")
    endpoints: dict[str, PatientResult]
    findings: tuple[str, ...] = Field(description="what the study's limits of quality found: the reasons of qc.csv")
    maps: tuple[str, ...] = Field(description="ids of the visits that have maps")
    brain_ml: Number = Field(description="volume of the brain of the first visit, in ml; null where it is not known")
    tumour_share: Number = Field(
        description="share of the tumour in the brain's places, of the first scored visit; null without scores or a tumour mask"
    )


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
