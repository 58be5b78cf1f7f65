"""The maps of a run: each test patient's, by the model that was not trained on the patient, and how far they can be believed.

They are made of the study's own model, and of each comparator that `explain.comparators` names, in the comparator's folder.
A patient is one job for each network: what is done is skipped, so that a stopped run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from threadpoolctl import threadpool_limits

from mri_vit.crossval.comparators import comparator_folder
from mri_vit.crossval.folds import Split
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.explain import map_scores
from mri_vit.explain.faithfulness import ReferenceNetworks, reference_networks
from mri_vit.explain.map_list import Job, jobs, jobs_of
from mri_vit.explain.methods.catalogue import explained
from mri_vit.explain.methods.patient_maps import of_patient
from mri_vit.explain.outputs import group_maps, map_files
from mri_vit.explain.outputs.records import NetworkId
from mri_vit.model import network
from mri_vit.model.network import Network
from mri_vit.prepare import prepared
from mri_vit.run import executors, files, integrity, resource
from mri_vit.run.atomic import write_bytes
from mri_vit.run.jobs import close_ledger, working_on
from mri_vit.run.screen import progress
from mri_vit.settings.recipe import SHUFFLED, VIT
from mri_vit.settings.schema import Study

Weights = tuple[Path, int]  # a file of weights and when it was written, in ns


def run(study: Study, patients: Sequence[Patient], split: Split, folder: Path, console: Console) -> None:
    """Do what is still to do of a run's maps and scores, patient after patient, then the cohort's mean maps.

    Raises
    ------
    IntegrityError
        Weights or prepared patients are not those that were written.
    UsageError
        A prepared patient, a scan or a tumour mask that is needed is not there, or a comparator's networks are not.
    """
    for name in study.explain.comparators:
        for fold in range(len(split)):
            weights = files.fold_folder(comparator_folder(folder, name), 0, fold) / files.WEIGHTS
            if not weights.is_file():
                raise UsageError(f"explain.comparators: {weights} of {name} is not there; leave {name} out of it")
    _do(jobs(study, patients, split, folder), study, patients, folder, folder, console)


def run_on_unseen(study: Study, patients: Sequence[Patient], networks: Path, folds: int, folder: Path, console: Console) -> None:
    """The same for patients that no network of the run `networks` was trained on, into `folder`. Raises as `run`.

    Any fold's network may be explained. The first fold's is taken for all, as `of_one` does, so that a cohort's mean maps are of
    one network. Its references are those of the run: the other folds' networks, and the fold's control. Comparators have no maps
    here.
    """
    fold_of = {patient.id: 0 for patient in patients}
    _do(jobs_of(study, patients, fold_of, folds, networks, folder, VIT), study, patients, networks, folder, console)


def _do(
    todo: Mapping[str, Job], study: Study, patients: Sequence[Patient], networks: Path, folder: Path, console: Console
) -> None:
    of_comparators = (f"{files.COMPARATORS}/{name}/{files.FOLD_GLOB}" for name in {job.model for job in todo.values()} - {VIT})
    integrity.refuse_changed_run(networks, console, (*integrity.MAP_EVALUATION, *of_comparators))
    prepared.refuse_changed_patients(study.prepared, [job.patient for job in todo.values()], folder)
    prepared.refuse_missing_scans(files_read(todo, study))
    with progress(console) as bar:
        task = bar.add_task("explain", total=len(todo), note="")
        for _ in make(todo, study, folder):
            bar.update(task, advance=1)
    if todo or not finished(folder):
        finish(study, patients, folder)


def files_read(todo: Mapping[str, Job], study: Study) -> Iterator[tuple[Patient, Path]]:
    """Every scan and tumour mask that the jobs will read."""
    for job in todo.values():
        scans = map_files.scans_read(job.patient, study) if job.drawn else []
        yield from ((job.patient, file) for file in (*scans, job.patient.judging_mask) if file)


def of_one(patient: Patient, study: Study, run: Path, split: Split, folder: Path) -> None:
    """Write the maps of one prepared patient into `folder`, by the run's network that was not trained on the patient.

    For a patient who is not in the run that is every network: the first fold's is taken, and `map.json` names it.
    """
    fold = next((index for index, ids in enumerate(split) if patient.id in ids), 0)
    map_files.explain(patient, _network(files.fold_folder(run, 0, fold)), study, folder, NetworkId(VIT, 0, fold))


def make(todo: Mapping[str, Job], study: Study, run: Path) -> Iterator[str]:
    """Do the jobs and yield each patient that is done."""
    together = min(study.prepare.workers, torch.cuda.device_count() or study.prepare.workers)  # one for each GPU
    at = executors.workplace(study, run, "explain", together, study.executor.bundle, imported=(__name__,))
    jobs = {name: (job, study, run) for name, job in todo.items()}
    if at.here and together == 1:
        for name, arguments in jobs.items():
            with working_on(at.home, name):
                done = _do_job(*arguments)
            yield done
        close_ledger(run / files.JOBS / "explain")
    else:
        yield from (name for name, _ in executors.each(_do_job, jobs, at))


def _do_job(job: Job, study: Study, run: Path) -> str:
    threads = 1 if study.prepare.workers > 1 and study.executor.kind == "local" else study.train.threads
    torch.set_num_threads(threads)
    resource.keep_freed_memory()
    own, home = explained(study)[job.model], comparator_folder(run, job.model)
    endpoints = tuple(endpoint.name for endpoint in own.endpoints)
    with threadpool_limits(threads, user_api="blas"):  # NumPy's as well: they would spin on the other workers' cores
        net = network.with_heads(
            _network(files.fold_folder(job.networks, 0, job.fold)), endpoints
        )  # an evaluation may have fewer
        maps = of_patient(job.patient, net, own)  # once, for pictures and scores
        if job.drawn:
            named, made_by = home / files.MAPS / job.patient.id, NetworkId(job.model, 0, job.fold)
            map_files.write_maps(maps, own, named, made_by, maps.score_by_scan)
        if job.scored:
            # Of every fold, and of the fold's control on permuted labels where there is one: no comparator has.
            folders = [files.fold_folder(job.networks, 0, index) for index in range(job.folds)]
            folders.append(files.fold_folder(job.networks / files.CONTROLS / SHUFFLED, 0, job.fold))
            weights = tuple(_weights_of(folder) for folder in folders if (folder / files.WEIGHTS).exists())
            scores = map_scores.scores(maps, _references(weights, job.fold, own.seed, endpoints), own)
            (home / files.SCORES).mkdir(exist_ok=True)
            content = json.dumps(asdict(scores), indent=1, allow_nan=False)
            write_bytes(content.encode(), home / files.SCORES / f"{job.patient.id}.json")
    return job.patient.id


def _weights_of(folder: Path) -> Weights:
    """A fold's weights, of several seeds the first's: maps are of one network."""
    file = folder / files.WEIGHTS
    return file, file.stat().st_mtime_ns if file.exists() else 0


@lru_cache(maxsize=1)  # they hold several networks
def _references(weights: tuple[Weights, ...], fold: int, seed: int, endpoints: tuple[str, ...]) -> ReferenceNetworks:
    """What a fold's maps are compared with; without the control on permuted labels where there is none."""
    networks = {file: network.with_heads(_loaded((file, when)), endpoints) for file, when in weights}
    shuffled = [net for file, net in networks.items() if SHUFFLED in file.parts[-3:]]
    of_folds = [net for net in networks.values() if net not in shuffled]
    return reference_networks(of_folds, fold, shuffled[0] if shuffled else None, seed)


def _network(folder: Path) -> Network:
    """The same object for every patient of a process, until the weights are written again."""
    return _loaded(_weights_of(folder))


@lru_cache(maxsize=16)  # a model's folds and its control: of many comparators not all at once
def _loaded(weights: Weights) -> Network:
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
        maps = comparator_folder(run, model) / files.MAPS
        maps.mkdir(exist_ok=True)
        described = {
            "Name": f"Maps of the study {study.name}" + ("" if model == VIT else f" by its comparator {model}"),
            "BIDSVersion": "1.10.0",
            "DatasetType": "derivative",
            "GeneratedBy": [{"Name": "mri_vit", "Version": version("mri-vit")}],
        }
        write_bytes(json.dumps(described, indent=1).encode(), maps / "dataset_description.json")
    group_maps.write_group_maps(
        run / files.MAPS, patients, study.endpoints, study.grid, run / files.MEAN_MAPS, study.explain.of_maps
    )
