"""The part of the bench that writes a whole report of thousands of patients, as `mri-vit report` does it from tables.

.venv/bin/python pipelines/bench.py --part report --repeats 2 --warm-up 0 --before ../older-worktree

Each report is a process of its own, from its start to its end, single-threaded; the tree whose `mri_vit` it imports is on its
PYTHONPATH. Its page's size, how many screens that is as it opens, and its peak memory are printed each time; processor time says
more than the clock on a busy machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.page import screens
from benchmarks.preparation import HERE, commit
from mri_vit.data import predictions
from mri_vit.run import files
from mri_vit.settings.recipe import CLINICAL, INTENSITY, SHUFFLED, VIT, VOLUME

FOLDS = 5
BINARY, SURVIVAL = ("mgmt", "tertp"), "os"
MODELS = (VIT, "densenet", CLINICAL, VOLUME, INTENSITY, SHUFFLED)
SIZES = ((5_000, (VIT, CLINICAL, VOLUME), 5), (10_000, MODELS, 1))  # patients, models and repeats
MEDIAN_DAYS = 450  # of an exponential survival; about that of a glioblastoma


def reports(folder: Path, before: tuple[Path, ...]) -> dict[str, dict[str, Callable[[], Callable[[], Any]]]]:
    """The same tables reported by older trees and by this one."""
    trees = {**{f"before, {commit(tree)}": tree for tree in before}, "now": HERE}
    return {
        f"report, {patients:,} patients × {len(BINARY) + 1} endpoints × {len(models)} models × {repeats} repeats": {
            tree: partial(from_tables, folder / f"of_{patients}", where, patients, models, repeats)
            for tree, where in trees.items()
        }
        for patients, models, repeats in SIZES
    }


def from_tables(folder: Path, tree: Path, patients: int, models: Sequence[str], repeats: int) -> Callable[[], Any]:
    """The tables, untimed, and then a process of that tree that reports them."""
    folder.mkdir(exist_ok=True)
    make(folder, patients, BINARY, models, repeats)
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
        long = screens(page)
        length = "screens not measured, without Chromium" if long is None else f"{long:.1f} screens"
        print(f"{tree.name}: page of {page.stat().st_size / 1e6:.1f} MB and {length}, {used.ru_maxrss / 1e6:.2f} GB at most")

    return run


def make(folder: Path, patients: int, binary: Sequence[str], models: Sequence[str], repeats: int = 1) -> None:
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
    for (strength, model), repeat in product(enumerate(reversed(models)), range(repeats)):
        fold = generator.permutation(patients) % FOLDS if repeat else np.arange(patients) % FOLDS
        position = {"patient": people.patient, "model": model, "repeat": repeat, "fold": fold}
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
