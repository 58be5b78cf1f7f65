"""The ladder of inductive bias: numbers without place, a convolutional network and a Vision Transformer on ever fewer patients.

.venv/bin/python pipelines/reproduce.py ladder ladder.toml                 (synthetic patients)
.venv/bin/python pipelines/reproduce.py ladder ladder_brats2021.toml       (a cohort of yours, once its table is written)

The patients with a label are put into a random order; all of them, then the first half, a quarter and so on are cross-validated.
Every model of a size has the same folds. What is done is found done when it is started again. Result: index.html beside the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from mri_vit import study, synthetic
from mri_vit.cli.arguments import Seeds
from mri_vit.crossval import comparators, folds, work_units
from mri_vit.crossval.comparators import control_folder
from mri_vit.crossval.folds import Split
from mri_vit.crossval.loop import cross_validate
from mri_vit.data import cohort, predictions, run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.data.predictions import Predictor
from mri_vit.errors import UsageError
from mri_vit.predictors.regressions import Tabular
from mri_vit.report.words.notation import percent
from mri_vit.run import files, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.jobs import Workplace
from mri_vit.run.screen import progress
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study
from reproductions import over_sizes
from reproductions.ladder import ladder_page, perceptron
from reproductions.ladder.first_order import BINS, NUMBERS, first_order_table
from reproductions.ladder.perceptron import Perceptron

CONFIG = Path(__file__).with_name("ladder.toml")
MADE_UP = "ladder"  # the study on the built-in cohort
PATIENTS = 96  # of it, as the demo has
PLANTED = {"mgmt": "brightness", "tertp": "side", "pten": "nothing, a coin"}  # see the cohort's README
AT_A_TIME = 2  # trainings, each on a thread of its own; no machine has fewer cores today


@dataclass(frozen=True)
class Rung:
    """A size of a cohort: its study, and who takes part."""

    study: Study
    patients: list[Patient]
    size: int  # people, who may have several visits


def rungs(settings: Study) -> list[Rung]:
    """The sizes of one cohort, the largest first, each the first of the same random order of the patients with a label.

    Raises UsageError for an endpoint that is not binary, several repeats, a comparator that is pretrained, or too few patients.
    """
    if wrong := [endpoint.name for endpoint in settings.endpoints if endpoint.kind != "binary"]:
        raise UsageError(f"{settings.name}: the ladder is of binary markers; found the endpoint {wrong[0]}")
    if settings.train.repeats > 1:
        raise UsageError(f"{settings.name}: the ladder divides the patients once; found train.repeats {settings.train.repeats}")
    if first := [name for name, of in comparators.networks(settings).items() if of.pretrain.method != "none"]:
        raise UsageError(f"{settings.name}: every network of the ladder learns from labels alone; {first[0]} is pretrained")
    people = [p for p in cohort.of_study(settings) if any(p.knows(endpoint) for endpoint in settings.endpoints)]
    order = np.random.default_rng(settings.seed).permutation(sorted({p.subject for p in people})).tolist()
    sizes = over_sizes.halved(len(order), ladder_page.FEWEST)
    if not sizes:
        raise UsageError(f"{settings.cohort}: {len(order)} patients with a label; a ladder needs {ladder_page.FEWEST} or more")
    made = []
    for size in sizes:
        here = set(order[:size])
        of = over_sizes.as_long(study_file.filled(settings, patients=size), sizes[0] // size)
        made.append(Rung(of, [p for p in people if p.subject in here], size))
    return made


def divide(rung: Rung, run: Path, console: Console) -> tuple[list[Patient], list[Split]]:
    """A rung's patients, prepared and written down, and their folds."""
    of = rung.study
    folds.check(rung.patients, of.endpoints, of.train)
    comparators.check(of, rung.patients)
    study.prepare(of, run_cohort.freeze(of, rung.patients, run), run, console)
    return study.divided_before(of, run)


def first_order(of: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path) -> pd.DataFrame:
    """The predictions of the models that read first-order numbers, on the folds of the networks."""
    numbers = first_order_table(patients, of)
    brightest = pd.DataFrame(numbers[[f"{channel}_max" for channel in of.channels]])
    builders: dict[str, partial[Predictor]] = {
        ladder_page.BRIGHTEST: partial(_regression, brightest, of),
        ladder_page.LOGISTIC: partial(_regression, numbers, of),
        ladder_page.MLP: partial(_perceptron, numbers, of),
    }
    return pd.concat(
        [cross_validate(patients, splits, of, control_folder(run, name), name, build)[0] for name, build in builders.items()]
    )


def _regression(numbers: pd.DataFrame, of: Study, folder: Path, seed: int) -> Tabular:
    return Tabular(numbers, of.endpoints)


def _perceptron(numbers: pd.DataFrame, of: Study, folder: Path, seed: int) -> Perceptron:
    return Perceptron(numbers, of.endpoints, seed)


def facts(whole: Study, made: Sequence[tuple[Rung, Path]], names: dict[str, str], seeds: Sequence[int]) -> list[str]:
    """How the ladder was made, and what limits it."""
    train, inputs = whole.train, len(NUMBERS) * len(whole.channels)
    several = f" The same was done on {len(seeds)} cohorts (seeds {', '.join(map(str, seeds))})." if len(seeds) > 1 else ""
    return [
        f"A random order of the patients with a label was drawn once; each size is the first so many of it, and was divided into "
        f"{train.folds} folds, the same for every model.{several}",
        f"A network has a head for each marker, and chooses its epoch on {percent(train.val_fraction)} of a training fold; of "
        "the first-order MLP each marker has its own, which chooses its penalty there.",
        *over_sizes.recipes(whole, names, VIT),
        "Epochs are those at the largest size; a smaller one has more, so that each has as many steps.",
        over_sizes.endings((run for _, run in made), names),
        f"First-order numbers are {len(NUMBERS)} of each of {len(whole.channels)} sequences over the whole brain, as IBSI defines"
        f" them (arXiv:1612.07003): {', '.join(NUMBERS)}; the last two of a histogram of {BINS} bins. No tumour mask is used.",
        f"The first-order MLP, a fully connected network, has {perceptron.HIDDEN[0]} hidden units "
        f"({perceptron.parameters(inputs):,} weights for {inputs} numbers) and is optimised to the end of its loss by L-BFGS, "
        "with each of the penalties "
        f"{', '.join(f'{penalty:g}' for penalty in perceptron.PENALTIES)}. The regressions have the penalty 1.",
        "An interval is of one figure; a mark is of a test among those of all markers, models and sizes. So a figure whose "
        "interval leaves out 0.5 may not be told from chance.",
        "The interval holds the patients' luck and that of refitting, not which patients were drawn into a smaller size nor the "
        "initial weights, which other cohorts or seeds would show.",
    ]


def main(file: Path = CONFIG, *, seeds: Seeds = ()) -> None:
    """Write the page of a ladder. `seeds` are those of synthetic cohorts, over which figures are averaged; the file's is one."""
    console = Console()
    read = study_file.load(file)
    if seeds and read.name != MADE_UP:
        raise UsageError(f"{file}: seeds are those of synthetic cohorts; this study has a cohort of its own")
    studies = [
        study_file.filled(read, seed=seed, patients="{patients}").model_copy(update={"seed": seed})
        for seed in seeds or (read.seed,)
    ]
    made: list[tuple[Rung, Path]] = []
    with ExitStack() as held:
        # cohorts, each prepared once for all sizes; the folds that all models of a size share
        divided = []
        for of in studies:
            if read.name == MADE_UP:
                synthetic.make(of.cohort.parent, of.seed, PATIENTS)
            for rung in rungs(of):
                run = held.enter_context(run_folder.claimed(rung.study))
                divided.append(divide(rung, run, console))
                made.append((rung, run))

        # every network's folds of all sizes, several at a time
        units = [
            replace(unit, title=f"cohort {rung.study.seed}, {rung.size} patients, {unit.title}")
            for (rung, run), (patients, splits) in zip(made, divided, strict=True)
            for unit in work_units.fold_units(rung.study, patients, splits, run)
        ]
        with progress(console) as bar:
            task = bar.add_task("folds", total=len(units), note="")
            for unit in work_units.work_through(units, Workplace(AT_A_TIME)):
                bar.update(task, advance=1, note=unit.title)

        # then what reads first-order numbers; one table of predictions
        tables = []
        for (rung, run), (patients, splits) in zip(made, divided, strict=True):
            study.train(rung.study, run, console, (patients, splits))
            both = pd.concat([predictions.load(run / files.PREDICTIONS), first_order(rung.study, patients, splits, run)])
            tables.append(ladder_page.of_patients(both).assign(seed=rung.study.seed, labelled=rung.size))

        whole, names = made[0][0].study, ladder_page.called(read)
        costs = over_sizes.spent(pd.concat([over_sizes.costs(run, names) for _, run in made]))
        order = [endpoint.name for endpoint in read.endpoints]
        predicted = pd.concat(tables).sort_values("endpoint", key=lambda column: column.map(order.index), kind="stable")
        told = facts(whole, made, names, [of.seed for of in studies])
        planted = PLANTED if read.name == MADE_UP else {}
        page = ladder_page.write(predicted, names, planted, told, costs, whole.output.parent)
        screen.say(console, f"ladder: {page}")
