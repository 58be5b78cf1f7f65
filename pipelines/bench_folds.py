"""The part of the bench that trains independent folds: one after the other with two threads, and two at a time with one each.

.venv/bin/python pipelines/bench.py --part folds --repeats 3

Each way is a pool of processes as `mri-vit train --train.workers` has it; what a process takes to start and to import is in it
once. The networks are those of shipped study files on patients of random numbers; epochs are so many that a round takes a minute.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from bench_pretraining import write
from bench_training import everybody

from mri_vit.crossval import in_parallel
from mri_vit.run.task import Where
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

Run = Callable[[], Any]  # what is timed

CONFIGS = Path(__file__).parents[1] / "configs"
NETWORKS = {"demo": (96, 60), "gbm": (24, 4)}  # by study file: patients and epochs
FOLDS = 4  # two for each core


def folds(folder: Path) -> dict[str, dict[str, Callable[[], Run]]]:
    """What is timed, by group and name; the first of a group is what the others are set against."""
    ways = {"one after the other, two threads": (1, 2), "two at a time, a thread each": (2, 1)}
    return {
        f"{FOLDS} folds of configs/{name}.toml, {patients} patients, {epochs} epochs": {
            way: partial(trained, folder / name, name, patients, epochs, *how) for way, how in ways.items()
        }
        for name, (patients, epochs) in NETWORKS.items()
    }


def trained(folder: Path, name: str, patients: int, epochs: int, workers: int, threads: int) -> Run:
    """Train all folds of the study's own network from nothing."""
    study = study_of(folder, name, epochs, threads)
    whom = everybody(patients, study)
    write(study, whom)
    split = [[one.id for one in whom[fold::FOLDS]] for fold in range(FOLDS)]

    def run() -> None:
        rmtree(study.output, ignore_errors=True)
        done = list(in_parallel.fit(in_parallel.folds(study, whom, [split], study.output), Where(workers)))
        assert len(done) == FOLDS

    return run


def study_of(folder: Path, name: str, epochs: int, threads: int) -> Study:
    """The study of a shipped file, without what is not its own network."""
    study = study_file.load(
        CONFIGS / f"{name}.toml", {"controls.models": '["volume"]', "comparators": "[]", "pretrain.method": "none"}
    )
    train = study.train.model_copy(update={"epochs": epochs, "patience": epochs, "threads": threads, "folds": FOLDS})
    return study.model_copy(update={"prepared": folder / "prepared", "output": folder / "run", "train": train})
