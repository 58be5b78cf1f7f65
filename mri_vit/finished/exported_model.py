"""Exported model: the folder that leaves a run, as it is read. Quick to import, as `trained_run` is.

`export.model` writes it; nothing in it is an id, a label or a path of a patient.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mri_vit.errors import IntegrityError, UsageError
from mri_vit.run import files
from mri_vit.run.integrity import as_written, read_json, verify_hashes
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

if TYPE_CHECKING:
    from mri_vit.finished.trained_model import TrainedModel
    from mri_vit.finished.trained_run import Place

FILE = "model.json"
REFERENCE = "reference.safetensors"
SCHEMA = "mri-vit model 1"
EXPORT_AGAIN = "export the model again"


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """The folder of a model; `open_model` gives one."""

    folder: Path
    study: Study
    facts: dict[str, Any]
    warm: bool = False  # whether networks that were used stay in memory

    @property
    def networks(self) -> dict[Place, Path]:
        """The folder of each fold's networks."""
        places = [(int(repeat), int(fold)) for repeat, fold in self.facts["networks"]]
        return {place: files.fold_folder(self.folder, *place) for place in places}

    @property
    def synthetic(self) -> str:
        """How many of the run's patients are synthetic, as a clause; "" where all are real."""
        return self.facts["facts"]["synthetic"] or ""

    def refuse_changed(self, console: Console) -> None:
        """Raise IntegrityError where a file of the model was changed after it was written."""
        if not verify_hashes(self.folder, EXPORT_AGAIN):
            raise IntegrityError(f"{self.folder}: no {files.HASHES}, by which its files would be known; {EXPORT_AGAIN}")

    @cached_property
    def model(self) -> TrainedModel:
        """All that a prediction rests on."""
        from mri_vit.finished import reference
        from mri_vit.finished.model_document import ModelDocument
        from mri_vit.finished.trained_model import TrainedModel

        with as_written(self.folder / FILE, EXPORT_AGAIN):
            document = ModelDocument.model_validate(self.facts)
        return TrainedModel(
            study=self.study,
            networks=self.networks,
            facts=document.facts,
            endpoints=document.endpoints,
            maps=document.maps,
            known=document.known.opened(),
            reference=lambda step: document.no_reference or reference.read(self.folder / REFERENCE),
            kept={} if self.warm else None,
        )


def is_model(folder: Path) -> bool:
    """Whether a folder holds an exported model."""
    return (folder / FILE).is_file()


def open_model(folder: Path, warm: bool = False) -> ExportedModel:
    """The model in a folder. Raises UsageError for one of another version, IntegrityError where it is damaged."""
    facts = read_json(folder / FILE, ("schema",), EXPORT_AGAIN)
    if facts["schema"] != SCHEMA:
        raise UsageError(f"{folder / FILE}: found {facts['schema']!r}; this version reads {SCHEMA!r}: {EXPORT_AGAIN}")
    return ExportedModel(folder, study_file.load(folder / files.STUDY), facts, warm)
