"""The patients in `metrics.json`: of each who was predicted, the scores of the study's own model and how wrong they are."""

from __future__ import annotations

from pydantic import Field

from mri_vit.report.schema.part import Number, Part


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
