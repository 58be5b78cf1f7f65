"""The part of the bench that trains independent folds: one after the other with two threads, and two at a time with one each.

.venv/bin/python pipelines/bench.py --part folds --repeats 1 --warm-up 0 --before ../older-worktree

Each way is a process that starts a pool as `mri-vit train --train.workers` has it, starts and imports included. Older code (from
commit 7bc7676 on) trains one fold after the other. The networks are those of shipped study files on patients of random numbers,
the demo's for its own 180 epochs; a round takes about eight minutes.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from benchmarks.inputs import everybody
from benchmarks.preparation import HERE, commit
from mri_vit.crossval import work_units
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

try:
    from mri_vit.run.jobs import Workplace
except ImportError:  # older code took the number of workers itself
    Workplace = int

Run = Callable[[], Any]  # what is timed

NETWORKS = {"demo": (96, 180), "gbm": (24, 12)}  # by study file: patients and epochs
FOLDS = 4  # two for each core


def folds(folder: Path, before: tuple[Path, ...]) -> dict[str, dict[str, Callable[[], Run]]]:
    """What is timed, by group and name; the first of a group is what the others are set against."""
    ways = {f"{commit(tree)}, one after the other, two threads": (tree, 1, 2) for tree in before}
    ways |= {"now, one after the other, two threads": (HERE, 1, 2), "now, two at a time, a thread each": (HERE, 2, 1)}
    return {
        f"{FOLDS} folds of configs/{name}.toml, {patients} patients, {epochs} epochs": {
            way: partial(prepared, folder / name, name, *how) for way, how in ways.items()
        }
        for name, (patients, epochs) in NETWORKS.items()
    }


def prepared(folder: Path, name: str, tree: Path, workers: int, threads: int) -> Run:
    """The patients, untimed, and then a process of that tree that trains all folds from nothing."""
    from benchmarks.pretraining import write  # here: older code cannot import it

    study = study_of(folder, name, threads)
    write(study, everybody(NETWORKS[name][0], study))
    path = os.pathsep.join([str(tree.absolute()), str(HERE / "pipelines")])  # that tree's package, this file's neighbours
    command = [sys.executable, "-W", "ignore", __file__, str(folder), name, str(workers), str(threads)]
    return partial(subprocess.run, command, check=True, env={**os.environ, "PYTHONPATH": path})


def trained(folder: Path, name: str, workers: int, threads: int) -> None:
    """Train all folds of the study's own network."""
    study = study_of(folder, name, threads)
    whom = everybody(NETWORKS[name][0], study)
    split = [[one.id for one in whom[fold::FOLDS]] for fold in range(FOLDS)]
    rmtree(study.output, ignore_errors=True)
    done = list(work_units.work_through(work_units.fold_units(study, whom, [split], study.output), Workplace(workers)))  # type: ignore[arg-type]  # of older code
    assert len(done) == FOLDS


def study_of(folder: Path, name: str, threads: int) -> Study:
    """The study of a shipped file, without what is not its own network."""
    alone = {"controls.models": '["volume"]', "comparators": "[]", "pretrain.method": "none"}
    if "recipe" in Study.model_fields:  # older code knows none; these patients have no masks
        alone["recipe"] = "no-masks"
    study, epochs = study_file.load(HERE / "configs" / f"{name}.toml", alone), NETWORKS[name][1]
    train = study.train.model_copy(update={"epochs": epochs, "patience": epochs, "threads": threads, "folds": FOLDS})
    return study.model_copy(update={"prepared": folder / "prepared", "output": folder / "run", "train": train})


if __name__ == "__main__":
    trained(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
