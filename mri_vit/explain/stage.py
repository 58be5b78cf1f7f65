"""The maps of a run: each test patient's, from the model that was not trained on them, and how far the maps can be believed.

So of the study's own model, and of each comparator that `explain.comparators` names, in the comparator's folder.
A patient is a job of its own for each network: what is done is skipped, so that a stopped run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from threadpoolctl import threadpool_limits

from mri_vit.crossval.comparators import comparator_folder
from mri_vit.crossval.folds import Split
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.explain import records
from mri_vit.explain.checks import patient_scores, reference_networks
from mri_vit.explain.checks.reference_networks import ReferenceNetworks
from mri_vit.explain.images import frames, group
from mri_vit.explain.images import patient as patient_maps
from mri_vit.explain.methods.patient_maps import of_patient
from mri_vit.explain.networks import explained
from mri_vit.explain.records import Fitted, plain
from mri_vit.model import network
from mri_vit.model.network import Network
from mri_vit.prepare import unchanged
from mri_vit.run import executors, files, integrity, resource
from mri_vit.run import jobs as ledger
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import as_written, read_json
from mri_vit.run.screen import progress
from mri_vit.settings.recipe import SHUFFLED, VIT
from mri_vit.settings.schema import Study

Written = tuple[Path, int]  # a file and when it was written, in ns
ANEW = "delete it, and the same command makes it anew"


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


def run(study: Study, patients: Sequence[Patient], split: Split, folder: Path, console: Console) -> None:
    """Do what is still to do of a run's maps and scores, patient after patient, then the cohort's mean maps.

    Raises
    ------
    IntegrityError
        Weights or prepared patients are not those that were written.
    UsageError
        A prepared patient, a scan or a tumour mask that is needed is not there, or a comparator's networks are not.
    """
    _refuse_lacking(study, len(split), folder)
    _do(jobs(study, patients, split, folder), study, patients, folder, folder, console)


def run_on_strangers(
    study: Study, patients: Sequence[Patient], networks: Path, folds: int, folder: Path, console: Console
) -> None:
    """Likewise of patients whom no network of the run `networks` has seen, into `folder`. Raises as `run`.

    Any fold's network may be explained; it is the first fold's for all, as of a stranger to `of_one`, so that a cohort's mean
    maps are of one network. Its references are those of the run: the other folds' networks, and the fold's control. Comparators
    have no maps here.
    """
    fold_of = {patient.id: 0 for patient in patients}
    _do(_jobs(study, patients, fold_of, folds, networks, folder, VIT), study, patients, networks, folder, console)


def _do(
    todo: Mapping[str, Job], study: Study, patients: Sequence[Patient], networks: Path, folder: Path, console: Console
) -> None:
    of_comparators = (f"{files.COMPARATORS}/{name}/{files.FOLD_GLOB}" for name in {job.model for job in todo.values()} - {VIT})
    integrity.refuse_changed_run(networks, console, (*integrity.MAP_EVALUATION, *of_comparators))
    unchanged.refuse_changed_patients(study, [job.patient for job in todo.values()], folder)
    unchanged.refuse_missing_scans(files_read(todo, study))
    with progress(console) as bar:
        task = bar.add_task("explain", total=len(todo), note="")
        for _ in make(todo, study, folder):
            bar.update(task, advance=1)
    if todo or not finished(folder):
        finish(study, patients, folder)


def _refuse_lacking(study: Study, folds: int, run: Path) -> None:
    """Raise UsageError where a comparator's weights are gone, as a pipeline may have deleted them."""
    for name in study.explain.comparators:
        for fold in range(folds):
            weights = files.fold_folder(comparator_folder(run, name), 0, fold) / files.WEIGHTS
            if not weights.is_file():
                raise UsageError(f"explain.comparators: no network of {name}, {weights} is not there; leave {name} out of it")


def jobs(study: Study, patients: Sequence[Patient], split: Split, run: Path) -> dict[str, Job]:
    """By patient, of a comparator by its name and patient; fold after fold, so that a worker rarely changes its networks."""
    fold_of = {name: fold for fold, names in enumerate(split) for name in names}
    found = {}
    for model, of in explained(study).items():
        home = comparator_folder(run, model)
        todo = _jobs(of, patients, fold_of, len(split), home, home, model)
        found |= {job_name(model, patient): job for patient, job in todo.items()}
    return found


def job_name(model: str, patient: str) -> str:
    """What a job is called where it is told who is at work."""
    return patient if model == VIT else f"{model} {patient}"


def _jobs(
    study: Study, patients: Sequence[Patient], fold_of: Mapping[str, int], folds: int, networks: Path, run: Path, model: str
) -> dict[str, Job]:
    drawn, scored = ({p.id for p in patients[:limit]} for limit in (study.explain.patients, study.explain.scored))
    settings = study.explain.of_maps
    found = {}
    for patient in sorted(patients, key=lambda p: fold_of[p.id]):
        maps, scores = run / files.MAPS / patient.id / files.MAP, run / files.SCORES / f"{patient.id}.json"
        draw = patient.id in drawn and not (_made(maps, records.MAP_SCHEMA, settings) and _has_pictures(maps))
        score = patient.id in scored and not _made(scores, records.SCORE_SCHEMA, settings)
        if draw or score:
            found[patient.id] = Job(patient, networks, fold_of[patient.id], folds, draw, score, model)
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
    together = min(study.prepare.workers, torch.cuda.device_count() or study.prepare.workers)  # one for each GPU
    at = executors.workplace(study, run, "explain", together, study.executor.bundle)
    jobs = {name: (job, study, run) for name, job in todo.items()}
    if at.here and together == 1:
        for name, arguments in jobs.items():
            with ledger.working_on(at.home, name):
                done = _one(*arguments)
            yield done
        ledger.close_ledger(run / files.JOBS / "explain")
    else:
        yield from (name for name, _ in executors.each(_one, jobs, at))


def _one(job: Job, study: Study, run: Path) -> str:
    threads = 1 if study.prepare.workers > 1 and study.executor.kind == "local" else study.train.threads
    torch.set_num_threads(threads)
    resource.keep_freed_memory()
    with threadpool_limits(threads, user_api="blas"):  # NumPy's as well: they would spin on the other workers' cores
        return _maps_and_scores(job, explained(study)[job.model], comparator_folder(run, job.model))


def _maps_and_scores(job: Job, study: Study, home: Path) -> str:
    """Into the folder of the job's model, by the study that it is explained by."""
    asked = tuple(endpoint.name for endpoint in study.endpoints)
    net = network.with_heads(_network(files.fold_folder(job.networks, 0, job.fold)), asked)  # an evaluation may ask for fewer
    made = of_patient(job.patient, net, study)  # once, for pictures and scores
    if job.drawn:
        patient_maps.write_maps(made, study, home / files.MAPS / job.patient.id, Fitted(job.model, 0, job.fold))
    if job.scored:
        references = _references(_weights(job.networks, job.folds, job.fold), job.fold, study.seed, asked)
        found = patient_scores.scores(made, references, study)
        (home / files.SCORES).mkdir(exist_ok=True)
        content = json.dumps(plain(found), indent=1, allow_nan=False)
        write_bytes(content.encode(), home / files.SCORES / f"{job.patient.id}.json")
    return job.patient.id


def _weights(run: Path, folds: int, fold: int) -> tuple[Written, ...]:
    """The weights of every fold, and of the fold's control on permuted labels where there is one: no comparator has."""
    folders = [
        *(files.fold_folder(run, 0, index) for index in range(folds)),
        files.fold_folder(run / files.CONTROLS / SHUFFLED, 0, fold),
    ]
    return tuple(_written(folder) for folder in folders if (folder / files.WEIGHTS).exists())


def _written(folder: Path) -> Written:
    """A fold's weights, of several seeds the first's: maps are of one network."""
    file = folder / files.WEIGHTS
    return file, file.stat().st_mtime_ns if file.exists() else 0


@lru_cache(maxsize=1)  # they hold several networks
def _references(weights: tuple[Written, ...], fold: int, seed: int, asked: tuple[str, ...]) -> ReferenceNetworks:
    """What a fold's maps are compared with; without the control on permuted labels where there is none."""
    networks = {file: network.with_heads(_loaded((file, when)), asked) for file, when in weights}
    shuffled = [net for file, net in networks.items() if SHUFFLED in file.parts[-3:]]
    return reference_networks.of_fold(
        [net for net in networks.values() if net not in shuffled], fold, shuffled[0] if shuffled else None, seed
    )


def _network(folder: Path) -> Network:
    """The same object for every patient of a process, until somebody trains anew."""
    return _loaded(_written(folder))


@lru_cache(maxsize=16)  # a model's folds and its control: of many comparators not all at once
def _loaded(weights: Written) -> Network:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return network.load(weights[0]).to(device).eval()


def finished(run: Path) -> bool:
    """Whether the mean maps are newer than every map that they are made of."""
    means = run / files.MEAN_MAPS / files.GROUP
    return means.exists() and all(
        file.stat().st_mtime <= means.stat().st_mtime for file in (run / files.MAPS).glob(f"*/{files.MAP}")
    )


def finish(study: Study, patients: Sequence[Patient], run: Path) -> None:
    """The cohort's mean maps of the own model by label group, and what a reader of BIDS derivatives expects."""
    for model in explained(study):
        _describe(study, model, comparator_folder(run, model) / files.MAPS)
    group.write(run / files.MAPS, patients, study.endpoints, study.grid, run / files.MEAN_MAPS, study.explain.of_maps)


def _describe(study: Study, model: str, maps: Path) -> None:
    maps.mkdir(exist_ok=True)
    described = {
        "Name": f"Maps of the study {study.name}" + ("" if model == VIT else f" by its comparator {model}"),
        "BIDSVersion": "1.10.0",
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "mri_vit", "Version": version("mri-vit")}],
    }
    write_bytes(json.dumps(described, indent=1).encode(), maps / "dataset_description.json")
