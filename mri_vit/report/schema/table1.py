"""Table 1 in `metrics.json`: who the patients are, over the whole cohort and in each of its parts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.report.schema.part import Number, Part

Kind = Literal["number", "words", "label", "follow-up"]


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
    kind: Kind
    levels: tuple[str, ...] = Field(description="of words, the most frequent first; of a label what is counted")
    lumped: int = Field(description="rare levels that stand together as the last of `levels`")
    cells: tuple[Cell, ...] = Field(description="of each of the table's splits")


class Table1(Part):
    """The characteristics of the patients."""

    splits: tuple[Split, ...] = Field(description="columns: first all patients who are described, then parts of them")
    rows: tuple[Row, ...]
    left_out: int = Field(description="further clinical columns of the cohort table that are not described")
