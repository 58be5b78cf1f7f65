"""How good are the features? Encoders that learned from scans without labels, frozen, and judged by probes with few labels.

.venv/bin/python pipelines/reproduce.py features features.toml --seed 1
.venv/bin/python pipelines/reproduce.py features features_hard.toml --seed 1
.venv/bin/python pipelines/reproduce.py features features.toml --seed 1 --starts 2 --no-curve     (the table alone, shortened)
.venv/bin/python pipelines/reproduce.py features features_upenn.toml                    (UPENN-GBM, once it is imported)
.venv/bin/python pipelines/reproduce.py features features.toml --features out/features.safetensors    (weights of others beside)

Patients who have the label of the study file's first endpoint are judged on, the others learned from. The built-in cohort, or its
hard variant, has 292 patients, and is another one for every seed. A run that was stopped goes on with the encoders that it has.
"""

from pathlib import Path
from typing import Annotated

import pandas as pd
from cyclopts import Parameter
from rich.console import Console

from mri_vit import study, synthetic
from mri_vit.cli.arguments import Seed, Several
from mri_vit.crossval import folds
from mri_vit.data import run_cohort
from mri_vit.predictors.patient_tables import intensity_table
from mri_vit.run import executors, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.run.jobs import Workplace
from mri_vit.run.screen import progress
from mri_vit.settings import file as study_file
from mri_vit.settings import schema
from reproductions import small_tumours
from reproductions.features import encoders, probe_page
from reproductions.features.probe_results import measure, of_brightest
from reproductions.learning_curve.__main__ import SIZES, UNLABELLED

CONFIG = Path(__file__).with_name("features.toml")
EASY, HARD = "features", "features_hard"  # the studies on the built-in cohort and its hard variant
AT_A_TIME = 2  # encoders, each on a thread of its own; no machine has fewer cores today


def main(
    file: Path = CONFIG,
    *,
    seed: Seed = 1,
    starts: Several = encoders.STARTS,
    curve: bool = True,
    features: Annotated[tuple[Path, ...], Parameter(consume_multiple=True)] = (),
) -> None:
    """Write features.html and features.csv, of the cohort and the starts of this seed.

    Parameters
    ----------
    starts : how often each encoder of the table begins, with random weights of its own; 2 or more.
    curve : whether encoders learn from fewer scans too, for the few-shot curve.
    features : files that `mri-vit features` wrote of this study's patients, to stand in the same table.
    """
    console = Console()
    often = (encoders.every_share() if curve else {}) | {1.0: starts}
    settings = of_seed(study_file.load(file), seed)
    endpoint = settings.endpoints[0]
    if settings.name == HARD:
        small_tumours.make(settings.cohort.parent, seed, max(SIZES), UNLABELLED)
    elif settings.name == EASY:
        synthetic.make(settings.cohort.parent, seed, max(SIZES) + UNLABELLED, UNLABELLED)

    with run_folder.claimed(settings) as run:
        patients = study.check(settings, run)
        encoders.encoders_compared(settings, encoders.parted(patients, endpoint)[1], often)  # refused before preparing
        study.prepare(settings, patients, run, console)
        labelled, unlabelled = encoders.parted(run_cohort.included(settings, run), endpoint)
        split = folds.make(labelled, settings.endpoints, settings.train, settings.seed)[0]
        files = encoders.read(features, labelled, [one.name for one in settings.comparators])

        # each encoder learns where it is to learn, is frozen, and is read; then the probes get their labels
        jobs = {
            one.id: (one, labelled, split, endpoint, run / "encoders", seed)
            for one in encoders.encoders_compared(settings, unlabelled, often)
        }
        scores, notes = {}, []
        with progress(console) as bar:
            task = bar.add_task("encoders", total=len(jobs), note="")
            for name, (found, note) in executors.each(encoders.scored, jobs, Workplace(AT_A_TIME)):
                scores[name] = found
                notes += [f"{name}: {note}"] if note else []
                bar.update(task, advance=1, note=name)
        table = pd.concat([scores[name] for name in jobs])  # in the jobs' order, whatever came first
        if files:
            table = pd.concat([table, encoders.scored_from_files(files, labelled, split, endpoint, seed)])
        write_bytes(table.to_csv(index=False).encode(), run / "scores.csv")  # every digit: fewer make ties, and another AUC

        # one line for each encoder, way of reading it, probe and share of the labels, held against random weights
        truth = pd.Series({p.id: p.labels[endpoint.name] for p in labelled})
        lines = measure(table, truth, encoders.beginnings(settings))
        statistics = intensity_table(labelled, settings)
        brightest = of_brightest(statistics, truth, settings.channels)
        notes = [probe_page.beside(brightest), *encoders.notes(files, labelled), *notes]
        probe_page.show(settings, lines, notes, console)
        written = probe_page.write(settings, lines, list(truth.index), notes, run, files)
        screen.say(console, f"page: {written}")


def of_seed(settings: schema.Study, seed: int) -> schema.Study:
    """The study of this seed, on its cohort where that is made up."""
    return study_file.filled(settings, seed=seed).model_copy(update={"seed": seed})
