"""Does the Vision Transformer learn what a threshold cannot? Everybody on the same folds of cohorts with simulated effects.

pipelines/reproduce.py simulated_effects benchmark.toml  (tokens and controls)
pipelines/reproduce.py simulated_effects benchmark_convolutional.toml (convolutional networks, on the same page)
pipelines/reproduce.py simulated_effects benchmark_parts.toml  (the parts of the network, on a page of their own)
pipelines/reproduce.py simulated_effects benchmark_learning.toml  (the parts of how it learns, likewise)
pipelines/reproduce.py simulated_effects benchmark_around_tumours.toml (scans cut around true tumours, likewise)
pipelines/reproduce.py simulated_effects benchmark_384.toml  (384 patients, on a page of its own)
pipelines/reproduce.py simulated_effects benchmark_search.toml  (recipes for each network, on a cohort of its own)
pipelines/reproduce.py simulated_effects benchmark_search_convolutional.toml (of convolutional networks, on the same page)
pipelines/reproduce.py simulated_effects benchmark.toml --seeds 2  (one data seed: one stage)

Cohorts and folds of all files are the same; where another file that has run has the same recipe, the Vision Transformer's folds
are taken over from its run. Result, beside the study files: <file>_cohorts.csv, the figures of each data seed, which may be of
several machines, and benchmark.md or <file>.md, made of them; the reports lie in the runs' folders. What is done stays done when
it is started again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.torch
import torch
from rich.console import Console

from mri_vit import study
from mri_vit.cli.arguments import Count, Seeds
from mri_vit.crossval.comparators import comparator_folder
from mri_vit.data import predictions
from mri_vit.run import files, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import SITE, VIT
from mri_vit.settings.schema import Study
from reproductions.simulated_effects import benchmark_pages, effects, patients_needed
from reproductions.simulated_effects.cohort_scores import of_cohort

HOME = Path(__file__).parent  # of figures and pages
CONFIG = HOME / "benchmark.toml"
PAGES = (  # files on one page; the first has the recipe
    ("benchmark.toml", "benchmark_convolutional.toml"),  # everybody in them is a bar
    ("benchmark_search.toml", "benchmark_search_convolutional.toml"),
)
PATIENTS = 192  # all labelled: the largest size of the learning curves
LARGER, TWICE = "benchmark_384.toml", 384  # the file of larger cohorts, and their patients
AS_MANY = "benchmark_convolutional.toml"  # has run all comparators of it on 192
EARLIER = {  # recipes of the committed figures: the files', and a loss that has left; see decisions.md
    *("f113a049401a", "aa0d55a854dd", "77e0dae812b5", "e642ded61b02", "5c065494acc0"),
    *("c4db9b9d8f9a", "35f43a006af6", "d441c7bf9606", "0550ebfc9cfe"),
}
LOSS_MORE = """
*Trained by an earlier version, with one loss more: each patch predicted its tumour fraction (`mask_supervision_fraction = 1.0`;
the network `without-share` is without). It was not shown to help and has left; [masks](masks.md) has networks without it.*
"""
WIDTH_2D, DEPTH_2D, PATCH_2D, IMAGE_2D = 192, 4, 16, 112  # of the 2D network: small, so that features take minutes


def seeds_of(file: Path) -> tuple[int, ...]:
    """The data seeds that a study file's page is made of."""
    if file.name == LARGER:
        return benchmark_pages.NEW
    return benchmark_pages.DRAFT if study_file.load(file).name in benchmark_pages.SEARCHES else benchmark_pages.SEEDS


def patients_of(file: Path) -> int:
    """How many labelled patients a study file's cohorts have."""
    return TWICE if file.name == LARGER else PATIENTS


def page_of(file: Path) -> tuple[Path, ...]:
    """The study files that are on one page with a study file, the one with the recipe first; all others have their own."""
    (names,) = [names for names in PAGES if file.name in names] or [(file.name,)]
    return tuple(file.with_name(name) for name in names)


def lenders(file: Path, seed: int) -> list[Study]:
    """The studies whose networks a study file's run may take over: those of all benchmarks here, `benchmark.toml`'s first."""
    return [of_seed(one, seed) for one in sorted(file.parent.glob("benchmark*.toml")) if one != file]


def of_seed(file: Path, seed: int) -> Study:
    return study_file.filled(study_file.load(file), seed=seed).model_copy(update={"seed": seed})


def run_benchmark(of: Study, others: Sequence[Study], patients: int, console: Console) -> None:
    """One cohort, made, prepared, everybody trained on it, and its report written."""
    effects.make(of.cohort.parent, of.seed, patients, workers=of.prepare.workers)
    if of.controls.slices and not of.controls.slices.exists():
        network_2d(of.controls.slices)
    with run_folder.claimed(of) as run:
        study.prepare(of, study.check(of, run), run, console)
        borrow(of, others)
        study.train(of, run, console)
        study.report(run, console)


def borrow(of: Study, others: Sequence[Study]) -> None:
    """Take over folds and networks of another run on the same patients whose own recipe is the same, where one is finished."""
    same = (one.output for one in others if own_part(one) == own_part(of) and (one.output / files.PREDICTIONS).exists())
    source = next(same, None)
    if source is None or (of.output / files.FOLDS).exists():
        return
    for fold in range(of.train.folds):
        home = files.fold_folder(source, 0, fold)
        shutil.copytree(home, files.fold_folder(of.output, 0, fold), dirs_exist_ok=True)
    for name in (
        Path(files.FOLDS).with_suffix(".sha256"),
        files.FOLDS,
    ):  # the folds' hash, and last what says that they are there
        shutil.copyfile(source / name, of.output / name)


def own_part(of: Study) -> dict[str, Any]:
    """What the study's own networks depend on."""
    return of.model_dump(exclude={"name", "output", "comparators", "controls", "report"})


def network_2d(file: Path) -> None:
    """A 2D Vision Transformer with random weights, in the names of its usual files: no file of learned ones is shipped."""
    random, d = torch.Generator().manual_seed(0), WIDTH_2D
    shapes = {"patch_embed.proj": (d, 3, PATCH_2D, PATCH_2D)}
    for block in range(DEPTH_2D):
        inside = {"attn.qkv": (3 * d, d), "attn.proj": (d, d), "mlp.fc1": (4 * d, d), "mlp.fc2": (d, 4 * d)}
        shapes |= {f"blocks.{block}.{name}": shape for name, shape in inside.items()}
    weights = {f"{name}.weight": torch.randn(shape, generator=random) / shape[1] ** 0.5 for name, shape in shapes.items()}
    weights |= {f"{name}.bias": torch.zeros(shape[0]) for name, shape in shapes.items()}
    norms = ["norm", *(f"blocks.{block}.norm{number}" for block in range(DEPTH_2D) for number in (1, 2))]
    weights |= {f"{name}.weight": torch.ones(d) for name in norms} | {f"{name}.bias": torch.zeros(d) for name in norms}
    positions = 1 + (IMAGE_2D // PATCH_2D) ** 2
    weights |= {"cls_token": torch.zeros(1, 1, d), "pos_embed": 0.02 * torch.randn(1, positions, d, generator=random)}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(safetensors.torch.save(weights), file)


def trapped(metrics: dict[str, Any]) -> dict[str, str]:
    """A report's verdict on each model that went into the trap."""
    models = metrics["endpoints"].get(benchmark_pages.TRAP, {"models": {}})["models"]
    return {name: one["verdict"] for name, one in models.items() if one["verdict_kind"] == "better" and name != SITE}


def losses(of: Study) -> pd.DataFrame:
    """Of each network (model, first_loss, last_loss): the training loss of its first epoch and of its last, medians of folds."""
    homes = {VIT: of.output} | {one.name: comparator_folder(of.output, one.name) for one in of.comparators}
    rows = []
    for model, home in homes.items():
        histories = [pd.read_csv(files.fold_folder(home, 0, fold) / files.HISTORY).loss for fold in range(of.train.folds)]
        first, last = (float(np.median([history.iloc[at] for history in histories])) for at in (0, -1))
        rows.append({"model": model, "first_loss": first, "last_loss": last})
    return pd.DataFrame(rows)


def of_run(of: Study) -> pd.DataFrame:
    """What a data seed gave: the rows of `of_cohort`, each with the seed, how many patients were left, what training the
    network took and how far it came, and of the trap the report's verdict.
    """
    predicted = predictions.load(of.output / files.PREDICTIONS).dropna(subset=["truth"])
    metrics = json.loads((of.output / files.REPORT / files.METRICS).read_bytes())
    networks = pd.DataFrame(metrics["compared_models"])[["model", "parameters", "training_seconds", "flat", "trainings"]]
    rows = of_cohort(predicted, VIT).merge(networks, how="left", on="model").merge(losses(of), how="left", on="model")
    rows["verdict"] = rows.model.map(trapped(metrics)).where(rows.cause == benchmark_pages.TRAP)
    rows.insert(0, "patients", predicted.patient.nunique())
    rows.insert(0, "seed", of.seed)
    return rows


def recipe(of: Study, patients: int) -> str:
    """What tells figures of one recipe from those of another, whatever machine and data seed they are of."""
    told = of.model_dump(
        mode="json",
        exclude={
            "name": True,
            "cohort": True,
            "prepared": True,
            "output": True,
            "seed": True,
            "report": True,
            "qc": True,  # who is left is counted in the rows; limits of quality were others when they were made
            "controls": {"slices"},
        },
    )
    return hashlib.sha256(json.dumps([told, patients, effects.RECIPE], sort_keys=True).encode()).hexdigest()[:12]


def results(file: Path) -> Path:
    """Where the rows of all data seeds of a study file lie."""
    return HOME / f"{file.stem}_cohorts.csv"


def rows_of(path: Path) -> pd.DataFrame:
    """The rows of `results`; a recipe of digits alone, or with one "e" among them, is no number."""
    return pd.read_csv(path, dtype={"recipe": str})


def keep(file: Path, seed: int, patients: int) -> None:
    """Write the rows of a data seed in place of those that are there of it; those of others stay, wherever they were run."""
    path, of = results(file), of_seed(file, seed)
    rows = of_run(of).assign(recipe=recipe(of, patients))
    if path.exists():
        before = rows_of(path)
        rows = pd.DataFrame(pd.concat([before[before.seed != seed], rows])).sort_values("seed", kind="stable")
    write_bytes(rows.to_csv(index=False, float_format="%.6g").encode(), path)


def kept(file: Path, patients: int) -> pd.DataFrame:
    """The rows of a study file as it is now, of its page's data seeds; where it has not run, those of `EARLIER`."""
    rows, seeds = rows_of(results(file)), seeds_of(file)
    rows, now = rows[rows.seed.isin(seeds)], recipe(of_seed(file, seeds[0]), patients)
    if patients == patients_of(file) and not (rows.recipe == now).any():
        return pd.DataFrame(rows[rows.recipe.isin(EARLIER)])
    return pd.DataFrame(rows[rows.recipe == now])


def anew(first: pd.DataFrame, other: pd.DataFrame) -> float:
    """How far AUC of the Vision Transformer in a file's rows are at most from those of the page's first file, on the same data
    seeds and causes; 0 where its networks were taken over, and not trained anew on another machine.
    """
    both = [rows[rows.model == VIT].set_index(["seed", "cause"]).auc for rows in (first, other)]
    return float((both[0] - both[1]).abs().max())


def write(files_together: Sequence[Path], patients: int) -> Path | None:
    """The page: of the data seeds on which the first file has run, whoever has run on enough of them. None where it has not.

    Figures of another recipe than the file has, of other patients, and of drafts on other data seeds stay out of it.
    """
    by_file = {file: kept(file, patients) for file in files_together if results(file).exists()}
    seeds = set(by_file[files_together[0]].seed) if files_together[0] in by_file else set()
    if not seeds:
        return None
    enough = min(benchmark_pages.FEWEST, len(seeds))
    shown = {file: rows[rows.seed.isin(seeds)] for file, rows in by_file.items() if len(seeds & set(rows.seed)) >= enough}
    left_out = [study_file.load(file).name for file in files_together if file not in shown and file.exists()]
    rows = pd.DataFrame(pd.concat(shown.values())).drop_duplicates(["seed", "cause", "model"])  # of our own the first file's
    studies = [of_seed(file, min(seeds)) for file in shown]
    path, beside = HOME / f"{files_together[0].stem}.md", files_together[0].with_name(AS_MANY)
    if studies[0].name in benchmark_pages.SEARCHES:
        text = benchmark_pages.search_document(rows, studies, patients, left_out)
    else:
        apart = max(anew(pd.DataFrame(shown[files_together[0]]), pd.DataFrame(other)) for other in shown.values())
        text = benchmark_pages.document(rows, studies, patients, left_out, apart)
        if files_together[0].name == LARGER and results(beside).exists():
            by_size = {PATIENTS: kept(beside, PATIENTS), patients: rows}
            names = [one.name for one in studies[0].comparators]
            text += (
                "\n## With how many patients leads would show\n\n"
                + patients_needed.section(by_size, benchmark_pages.FIT, names)
                + "\n"
            )
    if EARLIER & set(rows.recipe):
        text += LOSS_MORE
    write_bytes(text.encode(), path)
    return path


def main(*study_files: Path, seeds: Seeds | None = None, patients: Count | None = None) -> None:
    """Compare everybody on these data seeds, without any on all that their pages are made of, and write the pages that they are
    on, of all data seeds that have run anywhere. Without `patients` there are as many as a page is made of.
    """
    console, asked = Console(), study_files or (CONFIG,)
    # all files are read before hours are spent on the first
    stages = [(file, seed, of_seed(file, seed)) for file in asked for seed in seeds or seeds_of(file)]
    for file, seed, of in stages:
        many = patients or patients_of(file)
        run_benchmark(of, lenders(file, seed), many, console)
        keep(file, seed, many)
    for some in sorted({page_of(file) for file in asked}):
        path = write(some, patients or patients_of(some[0]))
        screen.say(
            console, f"table: {path}" if path else f"no page yet: {some[0].name}, the first on it, has not run on its data seeds"
        )
