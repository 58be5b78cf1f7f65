"""The rows of all patients who were rotated: a patient is a job and leaves a file, so that a stopped run goes on."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from mri_vit.data import tokens
from mri_vit.data.batches import token_file
from mri_vit.data.cohort import Patient
from mri_vit.errors import IntegrityError
from mri_vit.model import network
from mri_vit.run import files, hashes
from mri_vit.run.atomic import write_bytes
from mri_vit.run.ownership import record
from mri_vit.run.record import as_written, read_json
from mri_vit.settings.schema import Study
from reproductions.rotation import patient as rotation_patient
from reproductions.rotation.patient import Lie, Plan
from reproductions.rotation.reading import Map, Score

SCHEMA = 1  # of a patient's file; a higher number makes it anew
KINDS = {"lies": Lie, "scores": Score, "maps": Map}


@dataclass(frozen=True)
class Job:
    """A patient who is prepared, the weights of a network that was not trained on them, and what to do."""

    patient: Patient
    another: Patient | None  # of the same fold
    fold: int
    weights: Path
    study: Study
    plan: Plan
    file: Path  # for the rows


@dataclass(frozen=True, eq=False)
class Tables:
    """The rows of all patients, with `patient` and `fold`, as `Lie`, `Score` and `Map` have them; seconds are each patient's."""

    lies: pd.DataFrame
    scores: pd.DataFrame
    maps: pd.DataFrame
    seconds: float


def jobs(
    patients: Sequence[Patient], fold_of: dict[str, int], study: Study, run: Path, plans: Sequence[Plan], home: Path
) -> dict[str, Job]:
    """A job for each patient; whoever is in no fold is a stranger to every network and gets the first fold's.

    `plans` are dealt in turn, so that the controls' axis goes from patient to patient.
    """
    folds = [fold_of.get(patient.id, 0) for patient in patients]
    found = {}
    for index, (patient, fold) in enumerate(zip(patients, folds, strict=True)):
        mates = [other for other, home_of in zip(patients, folds, strict=True) if home_of == fold and other is not patient]
        after = [other for other in mates if patients.index(other) > index] or mates
        weights = files.fold_folder(run, 0, fold) / files.WEIGHTS
        plan = plans[index % len(plans)]
        found[patient.id] = Job(patient, after[0] if after else None, fold, weights, study, plan, home / f"{patient.id}.json")
    return found


def made_from(job: Job) -> dict[str, Any]:
    """What a patient's rows depend on, as it stands in the file."""
    another = job.another and hashes.sha256(token_file(job.study, job.another))
    tumour = job.patient.tumour_mask and hashes.sha256(job.patient.tumour_mask)
    return {
        "schema": SCHEMA,
        "plan": json.loads(json.dumps(asdict(job.plan))),
        "weights": hashes.sha256(job.weights),
        "tokens": hashes.sha256(token_file(job.study, job.patient)),
        "another": another,
        "tumour": tumour,
        "limits": job.study.qc.model_dump(mode="json", exclude={"decisions"}),
    }


def is_done(job: Job) -> bool:
    """Whether the patient's file is there and was made from the same."""
    return job.file.exists() and record(job.file).get("made_from") == made_from(job)


def make(job: Job) -> None:
    """In a worker: all rows of one patient, into the job's file.

    Raises IntegrityError where the network was trained on the patient.
    """
    began = time.perf_counter()
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = network.load(job.weights).to(device).eval()
    if job.patient.subject in net.label_exposed:
        raise IntegrityError(f"{job.weights}: was trained on patient {job.patient.id}, whom it is to predict")
    with threadpool_limits(1), TemporaryDirectory(prefix=".turned-", dir=job.file.parent) as scratch:
        of = rotation_patient.subject(job.patient, net, job.study)
        other = tokens.load(token_file(job.study, job.another), job.study.channels) if job.another else None
        rows = list(rotation_patient.rows(of, other, job.plan, Path(scratch)))
    content = {
        "made_from": made_from(job),
        "seconds": round(time.perf_counter() - began, 1),
        **{name: [_plain(row) for row in rows if type(row) is kind] for name, kind in KINDS.items()},
    }
    write_bytes(json.dumps(content, allow_nan=False).encode(), job.file)


def tables(done: dict[str, Job]) -> Tables:
    """The rows of all patients, in the jobs' order."""
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in KINDS}
    seconds = 0.0
    for patient, job in done.items():
        content = read_json(job.file, ("seconds", *KINDS), "delete it, and the same command makes it anew")
        with as_written(job.file):
            seconds += float(content["seconds"])
            for name, kind in KINDS.items():
                columns = [field.name for field in fields(kind)]
                table = pd.DataFrame(content[name], columns=pd.Index(columns))
                numbers = {field.name: float for field in fields(kind) if field.type == "float"}
                found[name].append(table.astype(numbers).assign(patient=patient, fold=job.fold))
    lies, scores, maps = (pd.concat(found[name], ignore_index=True) for name in KINDS)
    return Tables(lies, scores, maps, seconds)


def _plain(row: Lie | Score | Map) -> dict[str, Any]:
    """A row as JSON has it, which knows no NaN."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in asdict(row).items()}
