"""The part of the bench that writes a whole report of thousands of patients, as `mri-vit report` does it from tables.

.venv/bin/python pipelines/bench.py --part report --repeats 2 --warm-up 0 --before ../older-worktree

Each report is a process of its own, from its start to its end, single-threaded; the tree whose `mri_vit` it imports is on its
PYTHONPATH. Its page's size and its peak memory are printed each time; processor time says more than the clock on a busy machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.preparation import HERE, commit
from mri_vit.data import predictions
from mri_vit.run import files
from mri_vit.settings.recipe import CLINICAL, SHUFFLED, VIT, VOLUME

PATIENTS, FOLDS = 5000, 5
BINARY, SURVIVAL = ("mgmt", "tertp"), "os"
MODELS = (VIT, "densenet", CLINICAL, VOLUME, SHUFFLED)
MEDIAN_DAYS = 450  # of an exponential survival; about that of a glioblastoma


def reports(folder: Path, before: tuple[Path, ...]) -> dict[str, dict[str, Callable[[], Callable[[], Any]]]]:
    """The same tables reported by older trees and by this one."""
    trees = {**{f"before, {commit(tree)}": tree for tree in before}, "now": HERE}
    name = f"report, {PATIENTS:,} patients × {len(BINARY) + 1} endpoints × {len(MODELS)} models"
    return {name: {tree: partial(from_tables, folder, where) for tree, where in trees.items()}}


def from_tables(folder: Path, tree: Path) -> Callable[[], Any]:
    """The tables, untimed, and then a process of that tree that reports them."""
    make(folder, PATIENTS, BINARY, MODELS)
    command = [sys.executable, "-W", "ignore", "-c", "from mri_vit.cli import main; main()", "report"]
    command += ["--predictions", str(folder / files.PREDICTIONS), "--cohort", str(folder / files.COHORT)]
    command += ["--output", str(folder / files.REPORT)]
    environment = {**os.environ, "PYTHONPATH": str(tree.absolute()), "OMP_NUM_THREADS": "1"}

    def run() -> None:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)  # not a tree's
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"the report of {tree} ended with exit code {process.returncode}")
        page = folder / files.REPORT / files.PAGE
        print(f"{tree.name}: page of {page.stat().st_size / 1e6:.1f} MB, {used.ru_maxrss / 1e6:.2f} GB at most")

    return run


def make(folder: Path, patients: int, binary: Sequence[str], models: Sequence[str]) -> None:
    """Tables of a cohort and of predictions of it; of the models the first is the strongest, and the last knows nothing."""
    generator = np.random.default_rng(0)
    people = pd.DataFrame({"patient": [f"P{i:04d}" for i in range(patients)]})
    people = people.assign(age=generator.normal(60, 11, patients).round(), sex=generator.choice(["F", "M"], patients))
    people = people.assign(site=generator.choice(list("ABCD"), patients))
    for name in binary:
        people[name] = (generator.random(patients) < 0.45).astype(int)
    people["os_days"] = np.ceil(MEDIAN_DAYS * generator.exponential(size=patients))
    people["os_event"] = (generator.random(patients) < 0.7).astype(int)
    people.to_csv(folder / files.COHORT, index=False)
    scores, survivals = [], []
    for strength, model in enumerate(reversed(models)):
        position = {"patient": people.patient, "model": model, "repeat": 0, "fold": np.arange(patients) % FOLDS}
        for name in binary:
            score = 1 / (1 + np.exp(-generator.normal(size=patients) - strength * (people[name] - 0.5)))
            scores.append(pd.DataFrame({**position, "endpoint": name, "score": score, "threshold": 0.5}))
        risk = generator.normal(size=patients) - strength * np.log(people.os_days / MEDIAN_DAYS) / 3
        scores.append(pd.DataFrame({**position, "endpoint": SURVIVAL, "score": risk, "threshold": 0.0}))
        for days in predictions.HORIZONS_DAYS:
            alive = np.exp(-days / MEDIAN_DAYS * np.exp(risk / 2))
            survivals.append(pd.DataFrame({**position, "endpoint": SURVIVAL, "horizon_days": days, "survival": alive}))
    predictions.save(pd.concat(scores), folder / files.PREDICTIONS)
    predictions.save(pd.concat(survivals), folder / files.SURVIVAL)
