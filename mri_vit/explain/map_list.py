"""Map list: which patients' maps and scores a run still lacks, and of which network. Quick to import: `status` shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mri_vit.crossval.comparators import comparator_folder
from mri_vit.crossval.folds import Split
from mri_vit.data.cohort import Patient
from mri_vit.explain.methods.catalogue import explained
from mri_vit.explain.outputs import records
from mri_vit.run import files
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study

MAKE_AGAIN = "delete it, and the same command makes it anew"


@dataclass(frozen=True)
class Job:
    """What is still to do for a patient by a model: whether maps are to be written, whether they are to be evaluated."""

    patient: Patient
    networks: Path  # the folder of the model's folds: in an evaluation it is in another run than that which holds the maps
    fold: int
    folds: int  # of the split
    drawn: bool
    scored: bool
    model: str = VIT


def jobs(study: Study, patients: Sequence[Patient], split: Split, run: Path) -> dict[str, Job]:
    """By patient, of a comparator by its name and patient; fold after fold, so that a worker rarely changes its networks."""
    fold_of = {name: fold for fold, names in enumerate(split) for name in names}
    todo = {}
    for model, of in explained(study).items():
        home = comparator_folder(run, model)
        own = jobs_of(of, patients, fold_of, len(split), home, home, model)
        todo |= {job_name(model, patient): job for patient, job in own.items()}
    return todo


def job_name(model: str, patient: str) -> str:
    """What a job is called where progress is shown."""
    return patient if model == VIT else f"{model} {patient}"


def jobs_of(
    study: Study, patients: Sequence[Patient], fold_of: Mapping[str, int], folds: int, networks: Path, run: Path, model: str
) -> dict[str, Job]:
    drawn, scored = ({p.id for p in patients[:limit]} for limit in (study.explain.patients, study.explain.scored))
    settings = study.explain.of_maps
    todo = {}
    for patient in sorted(patients, key=lambda p: fold_of[p.id]):
        maps, scores = run / files.MAPS / patient.id / files.MAP, run / files.SCORES / f"{patient.id}.json"
        draw = patient.id in drawn and not (_made(maps, records.MAP_SCHEMA, settings) and _has_pictures(maps))
        score = patient.id in scored and not _made(scores, records.SCORE_SCHEMA, settings)
        if draw or score:
            todo[patient.id] = Job(patient, networks, fold_of[patient.id], folds, draw, score, model)
    return todo


def _made(file: Path, schema: int, settings: dict[str, Any]) -> bool:
    """Whether the file is there, in today's layout, and was made with these settings."""
    if not file.exists():
        return False
    content = read_json(file, remedy=MAKE_AGAIN)
    return (content.get("schema"), content.get("settings")) == (schema, settings)


def _has_pictures(file: Path) -> bool:
    """Whether every picture is there; the report would miss one that was deleted."""
    entries = read_json(file, ("maps",), MAKE_AGAIN)["maps"]
    with as_written(file, MAKE_AGAIN):
        return all((file.parent / entry["overlay"]).exists() for entry in entries)
