"""Two made-up runs that can be compared, and what a test changes in one of them."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from made.run import add_comparators, make_run
from mri_vit.data import predictions
from mri_vit.finished import paired_runs
from mri_vit.finished.paired_runs import Runs

MODELS = ("vit", "twin", "clinical", "shuffled")


def make_a(folder: Path, repeats: int = 1, patients: int = 60, seed: int = 0) -> Path:
    """A run with one comparator, `twin`."""
    made = make_run(folder, repeats=repeats, models=MODELS, patients=patients, seed=seed)
    add_comparators(made, {"twin": ""})
    return made


def copied(run: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table) -> Path:
    """A copy of a run beside it whose predictions are changed."""
    other = shutil.copytree(run, run.parent / name)
    predictions.save(change(predictions.load(other / "predictions.csv")), other / "predictions.csv")
    return other


def as_vit(model: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """What makes another model the study's own, and drops the own."""
    return lambda table: table.loc[table.model != "vit"].replace({"model": {model: "vit"}})


def divided_anew(run: Path, name: str, seed: int = 9) -> Path:
    """A copy of a run with other folds, in which everybody keeps their scores; predictions of repeats stay with their repeat."""
    generator = np.random.default_rng(seed)
    file = run / "folds.json"
    written = json.loads(file.read_text())
    home: dict[tuple[str, int], int] = {}
    for repeat, split in enumerate(written["repeats"]):
        people = sorted({visit.removesuffix("_a").removesuffix("_b") for fold in split["folds"] for visit in fold})
        deal = generator.permutation(len(people)) % len(split["folds"])
        home |= {(person, repeat): int(fold) for person, fold in zip(people, deal, strict=True)}
        visits = [visit for fold in split["folds"] for visit in fold]
        of = {visit: home[visit.removesuffix("_a").removesuffix("_b"), repeat] for visit in visits}
        split["folds"] = [[visit for visit in visits if of[visit] == fold] for fold in range(len(split["folds"]))]
    other = copied(
        run,
        name,
        lambda table: table.assign(
            fold=[home[key] for key in zip(table.patient, table.repeat.astype(int), strict=True)], threshold=np.nan
        ),
    )
    (other / "folds.json").write_text(json.dumps(written))
    return other


def opened(a: Path, b: Path) -> Runs:
    return paired_runs.read_both(a, b, Console(file=io.StringIO()))
