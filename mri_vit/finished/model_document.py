"""`model.json`: what an exported model knows beside its weights; distributions, verdicts and hashes, no row of a patient."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mri_vit.finished.known_patients import KnownPatients, Member
from mri_vit.finished.out_of_fold import OutOfFold
from mri_vit.finished.prediction_document import RunFacts
from mri_vit.report.schema.parts import Part
from mri_vit.report.schema.patients import MapVerdict


class HashedPatients(Part):
    """The run's patients, by hashes alone."""

    salt: str
    scans: dict[str, Member] = Field(description="by salted SHA-256 of the hash of a scan's voxels")
    subjects: dict[str, int] = Field(description="by salted scrypt of an id, the networks that saw the patient in training")
    exposed: tuple[str, ...] = Field(description="likewise the others that the starting weights were exposed to")
    networks: int

    def opened(self) -> KnownPatients:
        return KnownPatients(self.scans, self.subjects, self.exposed, self.networks, self.salt)


class ModelDocument(Part):
    """The file."""

    layout: Literal["mri-vit model 1"] = Field(
        default="mri-vit model 1", alias="schema", description="as `exported_model.SCHEMA`"
    )
    notice: str = Field(description="the statement that this is for research")
    version: str = Field(description="of mri-vit that exported it")
    facts: RunFacts
    networks: tuple[tuple[int, int], ...] = Field(description="repeat and fold of each network, counted from 0")
    endpoints: dict[str, OutOfFold]
    maps: dict[str, tuple[MapVerdict, ...]] = Field(description="by method the run's verdicts on its maps")
    known: HashedPatients
    no_reference: str | None = Field(description="why patients cannot be compared with the run's; null where they can")
