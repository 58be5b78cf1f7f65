"""Variants of the Vision Transformer on the same folds: positions, norms, attention; and score against compute.

.venv/bin/python pipelines/reproduce.py ablation/variants variants.toml  (synthetic patients; what it takes stands in that file)
.venv/bin/python pipelines/reproduce.py ablation/variants variants_gbm.toml  (your own cohort)

Every model is trained `train.seeds` times in each fold, which are the runs. The variants are those of vit_variants.py;
the study file's comparators are what else is placed in the figure of score against compute. A run that was stopped goes on where
it was. Result: variants/index.html in the study's output folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from threadpoolctl import threadpool_limits

from mri_vit import study, synthetic
from mri_vit.cli.arguments import Count
from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import fit_fold, fold_seed, parts
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient, first_visits, visit_id
from mri_vit.errors import UsageError
from mri_vit.model.network import Encode, encoder
from mri_vit.predictors.network import Neural
from mri_vit.run import executors, files, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.jobs import Workplace
from mri_vit.run.screen import progress
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study
from mri_vit.train.supervised import schedule
from reproductions.ablation import variants_page
from reproductions.ablation.variants_page import Cost, measure, training_flops
from reproductions.ablation.vit_variants import VARIANTS

MADE_UP = "variants"  # the study on the built-in cohort
PATIENTS = 130  # a third more than the demo's: intervals are narrower, and each fold still trains in seconds
SEED = 4242  # of these patients; settings were chosen on the demo's
FOLDER = "variants"  # of the page, in the run
OF_VISIT = ["endpoint", "patient", "session"]


def compared_networks(settings: Study) -> dict[str, tuple[Study, Encode]]:
    """What each network is trained by and built by: the study's own, its variants, and the study's comparators.

    Raises UsageError where an endpoint is not binary, where nothing was asked to be run more than once, or a name is taken.
    """
    if kinds := [endpoint.name for endpoint in settings.endpoints if endpoint.kind != "binary"]:
        raise UsageError(f"endpoint {kinds[0]} is not binary; variants are compared by AUC")
    if settings.train.seeds < 2:
        raise UsageError("train.seeds is the number of runs, whose spread is shown; give 2 or more, the ViT paper has 3")
    if taken := sorted(VARIANTS.keys() & {comparator.name for comparator in settings.comparators}):
        raise UsageError(f"comparator {taken[0]} has the name of a variant; give it another")
    own, *others = networks(settings).items()
    varied = {name: (own[1], kind.encode) for name, kind in VARIANTS.items()}
    return {own[0]: (own[1], encoder), **varied, **{name: (of, encoder) for name, of in others}}


def fit(
    patients: list[Patient], ids: list[str], of: Study, encode: Encode, home: Path, name: str, repeat: int, fold: int
) -> None:
    """In a worker: one model's fold, all its runs."""
    with threadpool_limits(of.train.threads, user_api="blas"):
        fit_fold(patients, ids, of, home, name, repeat, fold, lambda folder, seed: Neural(of, folder, seed, encode=encode))


def scored(name: str, patients: Sequence[Patient], splits: Sequence[Split], of: Study, run: Path) -> pd.DataFrame:
    """A model's scores of every run with the truth, of first visits; a repeat's runs are runs of their own."""
    home, first, tables = comparator_folder(run, name), {p.id for p in first_visits(patients)}, []
    for repeat, split in enumerate(splits):
        for fold in range(len(split)):
            folder = files.fold_folder(home, repeat, fold)
            truth = predictions.load(folder / files.PREDICTIONS)[[*OF_VISIT, "truth"]]
            each = predictions.load_seeds(folder / files.SEEDS).merge(truth, on=OF_VISIT, validate="many_to_one")
            tables.append(each.assign(seed=each.seed + repeat * of.train.seeds))
    table = pd.concat(tables)
    return pd.DataFrame(table[[visit_id(*visit) in first for visit in zip(table.patient, table.session, strict=True)]])


def cost(name: str, patients: Sequence[Patient], splits: Sequence[Split], of: Study, encode: Encode, run: Path) -> Cost:
    """What one run of a model cost, as its folds wrote it down; mean over folds."""
    rows = []
    for repeat, split in enumerate(splits):
        for fold, ids in enumerate(split):
            folder = files.fold_folder(comparator_folder(run, name), repeat, fold)
            train, _, _ = parts(patients, ids, of, fold_seed(of.seed, repeat, fold))
            labelled = sum(any(p.knows(endpoint) for endpoint in of.endpoints) for p in train)
            plan = schedule(labelled, of, folder, seed=0)
            homes = [files.seed_folder(folder, number) for number in range(of.train.seeds)]
            epochs = float(np.mean([pd.read_csv(home / files.HISTORY).epoch.iloc[-1] for home in homes]))
            spent = json.loads((folder / files.COST).read_text())  # of all runs together
            once = {key: spent[key] / of.train.seeds for key in ("parameters", "flops", "training_seconds")}
            rows.append([*once.values(), training_flops(of, encode, round(epochs * plan.per_epoch * plan.batch))])
    parameters, flops, seconds, training = np.mean(rows, axis=0).tolist()
    return Cost(name, parameters, flops, training, seconds)


def main(file: Path, *, workers: Count = 2) -> None:
    """Cross-validate every model, several folds at a time; then write the page.

    Parameters
    ----------
    workers : folds side by side, each on train.threads threads.
    """
    console, settings = Console(), study_file.load(file)
    own = compared_networks(settings)
    if settings.name == MADE_UP:
        synthetic.make(settings.cohort.parent, SEED, PATIENTS)
    with run_folder.claimed(settings) as run:
        study.prepare(settings, study.check(settings, run), run, console)
        patients, splits = study.divided_before(settings, run)
        jobs = {
            f"{name} {repeat + 1}-{fold + 1}": (patients, ids, of, encode, comparator_folder(run, name), name, repeat, fold)
            for name, (of, encode) in own.items()
            for repeat, split in enumerate(splits)
            for fold, ids in enumerate(split)
        }
        with progress(console) as bar:
            task = bar.add_task("folds", total=len(jobs), note="")
            for name, _ in executors.each(fit, jobs, Workplace(workers)):
                bar.update(task, advance=1, note=name)

        scores = pd.concat([scored(name, patients, splits, of, run) for name, (of, _) in own.items()])
        costs = [cost(name, patients, splits, of, encode, run) for name, (of, encode) in own.items()]
        page = variants_page.write(settings, measure(scores, VIT, VARIANTS), costs, run / FOLDER, settings.name == MADE_UP)
        screen.say(console, f"variants: {page}")
