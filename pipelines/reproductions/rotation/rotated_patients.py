"""One patient, rotated: a network and a patient go in; where the head lay, what it scored, and where its maps lay come out.

Letters: n points.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from threadpoolctl import threadpool_limits

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.data.store import token_file
from mri_vit.data.tokens import Tokens
from mri_vit.data.volume import Volume, read, read_mask
from mri_vit.errors import IntegrityError, UnusablePatient
from mri_vit.explain.methods.target import predicted
from mri_vit.model import network
from mri_vit.model.network import Network
from mri_vit.prepare.patient import prepare_patient
from mri_vit.prepare.prepared import load_record
from mri_vit.prepare.quality import turn
from mri_vit.qc import check
from mri_vit.run import files, integrity
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written, read_json, read_json_or_empty
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Explain
from reproductions.rotation import rotated
from reproductions.rotation.reading import (
    ANOTHER,
    COMPARED_MM,
    METHODS,
    SCANNED,
    Map,
    Score,
    Seen,
    Subject,
    given_of,
    reading,
    said,
)

DEGREES = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0)  # a chin on the chest nods by 30
CONTENT, HEADER, CONTENT_BACK = "content", "header", "content there and back"  # whole road: scans are prepared anew
GRID, GRID_BACK = "grid", "grid there and back"  # the network alone


@dataclass(frozen=True)
class Plan:
    """What a patient goes through: content and grid are turned about every axis, the controls about `control` alone."""

    degrees: tuple[float, ...]
    axes: tuple[str, ...]
    control: str


@dataclass(frozen=True)
class Lie:
    """Where a head lay on the grid against where it lay before; NaN where it could not be prepared, and `failed` says why."""

    road: str
    axis: str
    degrees: float
    error_degrees: float  # the rotation that is left, of the reference scan
    error_mm: float  # how far the brain's points lie from where they lay, their mean
    worst_scan_degrees: float  # the rotation that is left, of the scan that has most
    lost: float  # share of the brain that left a scan's field of view, of the scan that lost most
    flags: str  # what the run's own limits find, beyond what they find of the patient as scanned
    failed: str


def subject(patient: Patient, net: Network, study: Study) -> Subject:
    """A patient who is prepared."""
    study = study.model_copy(update={"explain": Explain(methods=METHODS)})
    folder = study.prepared / patient.id
    record = load_record(folder)
    to_grid = {name: np.array(matrix, float) for name, matrix in record["to_grid"].items()}
    seen = Seen(tokens.load(token_file(study.prepared, patient), study.channels), to_grid[study.prepare.reference])
    scan = read(patient.scans[study.prepare.reference] or Path())
    tumour = read_mask(patient.tumour_mask) if patient.tumour_mask else None
    return Subject(patient, net, study, seen, to_grid, scan, _flags(patient, record, study), tumour)


def rows(of: Subject, other: Tokens | None, plan: Plan, scratch: Path) -> Iterator[Lie | Score | Map]:
    """All of a patient.

    Parameters
    ----------
    of
        The patient.
    other
        Another patient as prepared, read by the same network, where there is one.
    plan
        Angles and axes.
    scratch
        For scans that are turned and prepared; they are deleted when they have been read.
    """
    first = reading(of, of.seen, None)
    questions = predicted(of.net, *given_of(of, of.seen).batch)
    yield from said(SCANNED, "", 0.0, first, first)

    def held(road: str, axis: str, degrees: float, seen: Seen, to_grid: dict[str, np.ndarray] | None = None) -> Iterator:
        yield _lie(of, road, axis, degrees, seen, to_grid or {})
        yield from said(road, axis, degrees, first, reading(of, seen, questions))

    # the network alone: the prepared volume is turned, and nothing aligned
    on_grid = rotated.centre_mm(of.seen.prepared)
    for axis, degrees in ((axis, degrees) for axis in plan.axes for degrees in (0.0, *plan.degrees)):
        matrix = rotated.about(axis, degrees, on_grid)
        there = rotated.tokens_turned(of.seen.prepared, matrix)
        yield from held(GRID, axis, degrees, Seen(there, matrix @ of.seen.to_grid))
        if degrees:
            back = rotated.tokens_turned(there, np.linalg.inv(matrix))
            yield from held(GRID_BACK, axis, degrees, Seen(back, of.seen.to_grid))

    # the whole road: scans or headers are turned, and prepared anew
    centre = rotated.carried(np.linalg.inv(of.seen.to_grid), on_grid[None])[0]
    turned = [(CONTENT, plan.control, 0.0)]
    turned += [(CONTENT, axis, degrees) for axis in plan.axes for degrees in plan.degrees]
    turned += [(road, plan.control, degrees) for road in (HEADER, CONTENT_BACK) for degrees in plan.degrees]
    for road, axis, degrees in turned:
        matrix = rotated.about(axis, degrees, centre)
        lost = 0.0 if road == HEADER else _lost(of, matrix)
        try:
            seen, to_grid, flags = _prepared_anew(of, road, matrix, scratch)
        except UnusablePatient as fault:
            yield Lie(road, axis, degrees, math.nan, math.nan, math.nan, lost, "", fault.reason)
            continue
        for row in held(road, axis, degrees, seen, to_grid):
            yield replace(row, lost=lost, flags=", ".join(sorted(flags - of.flags))) if isinstance(row, Lie) else row

    if other is not None:  # another patient's scans in the place of this one's
        yield from said(ANOTHER, "", math.nan, first, reading(of, Seen(other, of.seen.to_grid), questions))


def _prepared_anew(
    of: Subject, road: str, matrix: Float[np.ndarray, "4 4"], scratch: Path
) -> tuple[Seen, dict[str, np.ndarray], frozenset[str]]:
    """The turned patient as prepared, the 4×4 of each scan as it lay before, and what the run's limits find.

    Raises UnusablePatient as preparing does.
    """
    turned = {CONTENT: rotated.content_turned, HEADER: rotated.header_turned, CONTENT_BACK: rotated.there_and_back}[road]
    with TemporaryDirectory(dir=scratch) as folder:
        patient = turned(of.patient, matrix, Path(folder) / "scans")
        study = of.study.model_copy(update={"prepared": Path(folder) / "prepared"})
        record = load_record(prepare_patient(patient, study.prepared, study.channels, study.grid, study.prepare))
        prepared = tokens.load(token_file(study.prepared, patient), study.channels)
    moved = np.eye(4) if road == CONTENT_BACK else matrix
    to_grid = {name: np.array(found, float) @ moved for name, found in record["to_grid"].items()}
    return Seen(prepared, to_grid[study.prepare.reference]), to_grid, _flags(patient, record, study)


def _flags(patient: Patient, record: dict, study: Study) -> frozenset[str]:
    """What the study's limits find of a prepared patient."""
    return frozenset(finding.reason for finding in check.findings_of(patient.id, record, study.qc))


# --- where the head lay ----------------------------------------------------------------------------------------------------


def _lie(of: Subject, road: str, axis: str, degrees: float, seen: Seen, to_grid: dict[str, np.ndarray]) -> Lie:
    left = seen.to_grid @ np.linalg.inv(of.seen.to_grid)
    points = _brain_mm(of.seen.prepared)
    away = np.linalg.norm(rotated.carried(left, points) - points, axis=1)
    each = [turn(matrix @ np.linalg.inv(of.to_grid[name])) for name, matrix in to_grid.items()]
    return Lie(road, axis, degrees, turn(left), float(away.mean()), max(each, default=turn(left)), 0.0, "", "")


def _lost(of: Subject, matrix: Float[np.ndarray, "4 4"]) -> float:
    """The share of the brain that a rotation carries out of a scan's field of view, beyond what was not in it before."""
    points, most = _brain_mm(of.seen.prepared), 0.0
    for name, to_grid in of.to_grid.items():
        scan = read(of.patient.scans[name] or Path())
        own = rotated.carried(np.linalg.inv(to_grid), points)
        before, after = (_holds(scan, there) for there in (own, rotated.carried(matrix, own)))
        most = max(most, float((before & ~after).mean()))
    return most


def _holds(scan: Volume, points_mm: Float[np.ndarray, "n 3"]) -> Bool[np.ndarray, "n"]:
    """Which points lie within a scan's outer voxel faces."""
    index = rotated.carried(np.linalg.inv(scan.affine), points_mm)
    return np.all((index >= -0.5) & (index <= np.array(scan.shape) - 0.5), axis=1)


def _brain_mm(prepared: Tokens) -> Float[np.ndarray, "n 3"]:
    """Points of the brain, the grid's RAS+ mm; every `COMPARED_MM`."""
    step = max(1, round(COMPARED_MM / prepared.grid.spacing_mm))
    inside = (tokens.to_volume(prepared) != 0).any(axis=0)[::step, ::step, ::step]
    return rotated.carried(np.array(prepared.grid.affine), step * np.argwhere(inside).astype(float))


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
    another = job.another and integrity.sha256(token_file(job.study.prepared, job.another))
    tumour = job.patient.tumour_mask and integrity.sha256(job.patient.tumour_mask)
    return {
        "schema": SCHEMA,
        "plan": json.loads(json.dumps(asdict(job.plan))),
        "weights": integrity.sha256(job.weights),
        "tokens": integrity.sha256(token_file(job.study.prepared, job.patient)),
        "another": another,
        "tumour": tumour,
        "limits": job.study.qc.model_dump(mode="json", exclude={"decisions"}),
    }


def is_done(job: Job) -> bool:
    """Whether the patient's file is there and was made from the same."""
    return job.file.exists() and read_json_or_empty(job.file).get("made_from") == made_from(job)


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
        of = subject(job.patient, net, job.study)
        other = tokens.load(token_file(job.study.prepared, job.another), job.study.channels) if job.another else None
        found = list(rows(of, other, job.plan, Path(scratch)))
    content = {
        "made_from": made_from(job),
        "seconds": round(time.perf_counter() - began, 1),
        **{name: [_plain(row) for row in found if type(row) is kind] for name, kind in KINDS.items()},
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
