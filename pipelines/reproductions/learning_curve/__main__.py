"""Learning curves on synthetic cohorts whose tumours are small: .venv/bin/python pipelines/reproduce.py learning_curve

For each data seed 192 labelled and 100 unlabelled patients are made and prepared. Encoders are pretrained on the unlabelled
ones alone, once; then every model of learning_curve.toml is cross-validated on the first 48, 96 and 192 labelled
patients. What is done is found done when it is started again. Result: runs/learning-curve/index.html
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
from cyclopts import Parameter
from rich.console import Console

from mri_vit import study
from mri_vit.cli.arguments import Count, Seeds
from mri_vit.crossval import comparison, folds
from mri_vit.crossval.loop import cross_validate
from mri_vit.data import cohort, predictions, run_cohort
from mri_vit.predictors.network import PRETRAINED, Neural
from mri_vit.pretrain.dino import collapsed
from mri_vit.pretrain.encoder import pretrained
from mri_vit.run import executors, files, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.run.jobs import Workplace
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import CLINICAL, VIT, Comparator
from mri_vit.settings.schema import Study
from reproductions import over_sizes, small_tumours
from reproductions.learning_curve import curve

SETTINGS = Path(__file__).with_name("learning_curve.toml")
RUNS = Path(__file__).parents[3] / "runs" / "learning-curve"
SEEDS = (1, 2, 3)  # of cohorts; settings were chosen on another
Cohorts = Annotated[Seeds, Parameter(consume_multiple=True)]  # --seeds 1 2
SIZES = (48, 96, 192)  # labelled patients
UNLABELLED = 100
NAMES = {
    VIT: "Recommended ViT",
    "vit-mae": "ViT after MAE",
    "vit-dino": "ViT after DINO",
    "vit-plain": "Plain ViT from scratch",
    "hybrid": "Hybrid of ResNet-10 and ViT",
    "resnet10": "3D ResNet-10",
    CLINICAL: "Clinical columns only",
}


def settings(seed: int, labelled: int) -> Study:
    """The study of one cohort and size; each size trains for as many steps, so fewer patients are seen more often."""
    read = study_file.filled(study_file.load(SETTINGS), seed=seed, labelled=labelled)
    return over_sizes.as_long(read, max(SIZES) // labelled).model_copy(update={"seed": seed})


def make(seed: int, console: Console) -> None:
    """One cohort, its tables of each size, and all its patients prepared."""
    whole = settings(seed, max(SIZES))
    table = small_tumours.make(whole.cohort.parent, seed, max(SIZES), UNLABELLED)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for size in SIZES:
        out = io.StringIO()
        writer = csv.DictWriter(out, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[:size])
        write_bytes(out.getvalue().encode(), settings(seed, size).cohort)
    with run_folder.claimed(everyone := whole.model_copy(update={"cohort": table, "output": table.parent / "run"})) as run:
        study.prepare(everyone, run_cohort.freeze(everyone, cohort.read(table, everyone.endpoints), run), run, console)


def pretrain(seed: int, name: str) -> None:
    """In a worker: one comparator's encoder, from the unlabelled patients of one cohort."""
    whole = settings(seed, max(SIZES))
    patients = cohort.read(whole.cohort.parent / "cohort.csv", whole.endpoints)
    of = whole.of(next(comparator for comparator in whole.comparators if comparator.name == name))
    pretrained(of, patients[max(SIZES) :], encoder(seed, name), seed)


def encoder(seed: int, name: str) -> Path:
    return settings(seed, max(SIZES)).cohort.parent / name / PRETRAINED


def begun(of: Study, seed: int) -> Study:
    """The study with its pretraining comparators starting from the encoders that are there."""

    def started(comparator: Comparator) -> Comparator:
        if not comparator.pretrain:
            return comparator
        return comparator.model_copy(
            update={"model": comparator.model | {"weights": encoder(seed, comparator.name)}, "pretrain": {}}
        )

    return of.model_copy(update={"comparators": tuple(started(comparator) for comparator in of.comparators)})


def fit(seed: int, labelled: int, name: str) -> None:
    """In a worker: one model's folds on one cohort and size."""
    of = begun(settings(seed, labelled), seed)
    own = {comparator.name: of.of(comparator) for comparator in of.comparators} | {VIT: of}
    run = of.output
    patients = run_cohort.included(of, run)
    home = comparison.comparator_folder(run, name)
    cross_validate(
        patients,
        folds.load(run / files.FOLDS, patients),
        own[name],
        home,
        name,
        lambda folder, fold_seed: Neural(own[name], folder, fold_seed),
    )


def divide(seed: int, labelled: int, console: Console) -> None:
    """One size of one cohort: its table read, its folds written."""
    of = begun(settings(seed, labelled), seed)
    with run_folder.claimed(of) as run:
        if (run / files.FOLDS).exists():  # written last
            return
        patients = study.check(of, run)
        study.prepare(of, patients, run, console)  # they are prepared: this writes who is in
        folds.save(folds.make(patients, of.endpoints, of.train, of.seed), of.seed, run / files.FOLDS)


def held(seed: int, labelled: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One size of one cohort, when its folds are trained: predictions of all models, and what each fold cost."""
    of = begun(settings(seed, labelled), seed)
    with run_folder.claimed(of) as run:
        patients = run_cohort.included(of, run)
        comparison.run(of, patients, folds.load(run / files.FOLDS, patients), run, lambda title: lambda *_: None, print)
        return predictions.load(run / files.PREDICTIONS).assign(seed=seed, labelled=labelled), over_sizes.costs(run, NAMES)


def facts(seeds: Sequence[int]) -> list[str]:
    of = settings(seeds[0], max(SIZES))
    least, most = small_tumours.DIAMETER_MM
    return [
        f"Cohorts are made up (seeds {', '.join(map(str, seeds))}): tumours are {least} to {most} mm across, and MGMT shows in "
        f"the brightness of a rim of {small_tumours.RIM_MM:g} mm alone.",
        f"Out-of-fold predictions of {of.train.folds} folds, the same for every model; {of.train.val_fraction:.0%} of a "
        "training fold choose the epoch.",
        f"Encoders were pretrained on {UNLABELLED} unlabelled patients of the same cohort, who are in no fold. "
        + (" ".join(collapses(seeds)) or "No teacher of DINO collapsed."),
        *over_sizes.recipes(of, NAMES, VIT),
        "Epochs are those at the largest size; a smaller one has more, so that each has as many steps.",
        over_sizes.endings((settings(seed, size).output for seed in seeds for size in SIZES), NAMES),
        "An interval is the wider of two: DeLong's within cohorts, normal, and Student's t between cohorts; a p is the larger.",
    ]


def collapses(seeds: Sequence[int]) -> list[str]:
    """A sentence for each DINO encoder whose teacher had collapsed."""
    found = []
    for seed in seeds:
        for comparator in settings(seed, max(SIZES)).comparators:
            if comparator.pretrain.get("method") == "dino":
                said = collapsed(pd.read_csv(encoder(seed, comparator.name).with_suffix(".csv")))
                found += [f"Cohort {seed}: {said}"] if said else []
    return found


def main(*, seeds: Cohorts = SEEDS, workers: Count = 2) -> None:
    """Train every model on the cohorts of these data seeds, at each size, and write the page.

    Parameters
    ----------
    workers : trainings side by side, each on one thread.
    """
    console = Console()
    comparators = {comparator.name: comparator for comparator in study_file.load(SETTINGS).comparators}
    sizes = [(seed, size) for size in reversed(SIZES) for seed in seeds]

    # cohorts, each prepared once for all sizes
    for seed in seeds:
        make(seed, console)

    # encoders, then the folds and every model's training on them, the slow ones first so that no worker ends alone
    jobs = {f"{seed} {name}": (seed, name) for seed in seeds for name, comparator in comparators.items() if comparator.pretrain}
    for done, _ in executors.each(pretrain, jobs, Workplace(workers)):
        screen.say(console, f"pretrained {done}")
    for seed, size in sizes:
        divide(seed, size, console)
    slow = [name for name, comparator in comparators.items() if "architecture" in comparator.model]  # convolutional ones
    cells = [(seed, size, name) for name in (*slow, *comparators, VIT) for seed, size in sizes]
    for done, _ in executors.each(fit, {" ".join(map(str, cell)): cell for cell in cells}, Workplace(workers)):
        screen.say(console, f"trained {done}")

    # one table of predictions, and the page
    parts = [held(seed, size) for seed, size in sizes]
    predicted, costs = (pd.concat(tables) for tables in zip(*parts, strict=True))
    page = curve.write(predicted, NAMES, facts(seeds), over_sizes.spent(costs), RUNS)
    for sentence in curve.sentences(curve.curve(predicted), curve.against(predicted), NAMES):
        console.print(screen.plain(sentence))
    screen.say(console, f"learning curves: {page}")
