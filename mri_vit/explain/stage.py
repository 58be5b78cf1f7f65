"""The maps of a run: each test patient's, from the model that was not trained on them, and how far the maps can be believed.

A patient is a job of its own: what is done is skipped, so that a stopped run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from threadpoolctl import threadpool_limits

from mri_vit.crossval.folds import Split
from mri_vit.data.cohort import Patient
from mri_vit.explain import records
from mri_vit.explain.checks import patient_scores, reference_networks
from mri_vit.explain.checks.reference_networks import ReferenceNetworks
from mri_vit.explain.images import frames, group
from mri_vit.explain.images import patient as patient_maps
from mri_vit.explain.methods.patient_maps import of_patient
from mri_vit.explain.records import Fitted, plain
from mri_vit.model import network
from mri_vit.model.network import Network
from mri_vit.prepare import unchanged
from mri_vit.run import executor, files, intact
from mri_vit.run.atomic import write_bytes
from mri_vit.run.record import as_written, read_json
from mri_vit.run.screen import progress
from mri_vit.settings.models import SHUFFLED, VIT
from mri_vit.settings.schema import Study

ANEW = "delete it, and the same command makes it anew"


@dataclass(frozen=True)
class Job:
    """What is still to do for a patient: whether maps are to be written, whether they are to be evaluated."""

    patient: Patient
    fold: int
    folds: int  # of the split
    drawn: bool
    scored: bool


def run(study: Study, patients: Sequence[Patient], split: Split, folder: Path, console: Console) -> None:
    """Do what is still to do of a run's maps and scores, patient after patient, then the cohort's mean maps.

    Raises
    ------
    IntegrityError
        Weights or prepared patients are not those that were written.
    UsageError
        A prepared patient, a scan or a tumour mask that is needed is not there.
    """
    todo = jobs(study, patients, split, folder)
    intact.refuse_changed(folder, console, intact.MAP_EVALUATION)
    unchanged.refuse_changed_patients(study, [job.patient for job in todo.values()], folder)
    unchanged.refuse_missing_scans(files_read(todo, study))
    with progress(console) as bar:
        task = bar.add_task("explain", total=len(todo), note="")
        for _ in make(todo, study, folder):
            bar.update(task, advance=1)
    if todo or not finished(folder):
        finish(study, patients, folder)


def jobs(study: Study, patients: Sequence[Patient], split: Split, run: Path) -> dict[str, Job]:
    """By patient; fold after fold, so that a worker rarely changes its networks."""
    fold_of = {name: fold for fold, names in enumerate(split) for name in names}
    drawn, scored = ({p.id for p in patients[:limit]} for limit in (study.explain.patients, study.explain.scored))
    settings = study.explain.of_maps
    found = {}
    for patient in sorted(patients, key=lambda p: fold_of[p.id]):
        maps, scores = run / files.MAPS / patient.id / files.MAP, run / files.SCORES / f"{patient.id}.json"
        draw = patient.id in drawn and not (_made(maps, records.MAP_SCHEMA, settings) and _has_pictures(maps))
        score = patient.id in scored and not _made(scores, records.SCORE_SCHEMA, settings)
        if draw or score:
            found[patient.id] = Job(patient, fold_of[patient.id], len(split), draw, score)
    return found


def _made(file: Path, schema: int, settings: dict[str, Any]) -> bool:
    """Whether the file is there, in today's layout, and was made with these settings."""
    if not file.exists():
        return False
    content = read_json(file, remedy=ANEW)
    return (content.get("schema"), content.get("settings")) == (schema, settings)


def _has_pictures(file: Path) -> bool:
    """Whether every picture is there; the report would miss one that was deleted."""
    entries = read_json(file, ("maps",), ANEW)["maps"]
    with as_written(file, ANEW):
        return all((file.parent / one["overlay"]).exists() for one in entries)


def files_read(todo: Mapping[str, Job], study: Study) -> Iterator[tuple[Patient, Path]]:
    """Every scan and tumour mask that the jobs will read."""
    for job in todo.values():
        scans = frames.files_read(job.patient, study) if job.drawn else []
        yield from ((job.patient, file) for file in (*scans, job.patient.tumour_mask) if file)


def of_one(patient: Patient, study: Study, run: Path, split: Split, folder: Path) -> None:
    """Write the maps of one prepared patient into `folder`, from the run's network that had not seen them.

    Of a patient whom the run does not know that is every network; the first fold's is taken, and `map.json` says so.
    """
    fold = next((index for index, ids in enumerate(split) if patient.id in ids), 0)
    patient_maps.explain(patient, _network(files.fold_folder(run, 0, fold)), study, folder, Fitted(VIT, 0, fold))


def make(todo: Mapping[str, Job], study: Study, run: Path) -> Iterator[str]:
    """Do the jobs and yield each patient that is done."""
    _references.cache_clear()
    _network.cache_clear()  # somebody may have trained anew in the same process
    together = study.prepare.workers if not torch.cuda.is_available() else 1  # processes would share the GPU's memory
    if together == 1:
        yield from (_one(job, study, run) for job in todo.values())
    elif todo:
        yield from (name for name, _ in executor.each(_one, {name: (job, study, run) for name, job in todo.items()}, together))


def _one(job: Job, study: Study, run: Path) -> str:
    threads = 1 if study.prepare.workers > 1 else study.train.threads
    torch.set_num_threads(threads)
    with threadpool_limits(threads, user_api="blas"):  # NumPy's as well: they would spin on the other workers' cores
        return _maps_and_scores(job, study, run)


def _maps_and_scores(job: Job, study: Study, run: Path) -> str:
    net = _network(files.fold_folder(run, 0, job.fold))
    made = of_patient(job.patient, net, study)  # once, for pictures and scores
    if job.drawn:
        patient_maps.write_maps(made, study, run / files.MAPS / job.patient.id, Fitted(VIT, 0, job.fold))
    if job.scored:
        found = patient_scores.scores(made, _references(run, job.folds, job.fold, study.seed), study)
        (run / files.SCORES).mkdir(exist_ok=True)
        content = json.dumps(plain(found), indent=1, allow_nan=False)
        write_bytes(content.encode(), run / files.SCORES / f"{job.patient.id}.json")
    return job.patient.id


@lru_cache(maxsize=1)  # they hold several networks
def _references(run: Path, folds: int, fold: int, seed: int) -> ReferenceNetworks:
    """What a fold's maps are compared with; without the control on permuted labels where there is none."""
    folder = files.fold_folder(run / files.CONTROLS / SHUFFLED, 0, fold)
    shuffled = _network(folder) if (folder / files.WEIGHTS).exists() else None
    networks = [_network(files.fold_folder(run, 0, index)) for index in range(folds)]
    return reference_networks.of_fold(networks, fold, shuffled, seed)


@cache
def _network(folder: Path) -> Network:
    """The same object for every patient of a process; of several seeds the first, for maps are of one network."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return network.load(folder / files.WEIGHTS).to(device).eval()


def finished(run: Path) -> bool:
    """Whether the mean maps are newer than every map that they are made of."""
    means = run / files.MEAN_MAPS / files.GROUP
    return means.exists() and all(
        file.stat().st_mtime <= means.stat().st_mtime for file in (run / files.MAPS).glob(f"*/{files.MAP}")
    )


def finish(study: Study, patients: Sequence[Patient], run: Path) -> None:
    """The cohort's mean maps by label group, from the patients' own, and what a reader of BIDS derivatives expects."""
    maps = run / files.MAPS
    maps.mkdir(exist_ok=True)
    described = {
        "Name": f"Maps of the study {study.name}",
        "BIDSVersion": "1.10.0",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "mri_vit", "Version": version("mri-vit")}],
    }
    write_bytes(json.dumps(described, indent=1).encode(), maps / "dataset_description.json")
    group.write(maps, patients, study.endpoints, study.grid, run / files.MEAN_MAPS, study.explain.of_maps)
