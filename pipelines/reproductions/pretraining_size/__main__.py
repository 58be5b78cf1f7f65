"""How many labelled patients is a pretraining worth? Networks that learned another label first, by the number of its patients.

.venv/bin/python pipelines/reproduce.py pretraining_size                                       (synthetic patients)
.venv/bin/python pipelines/reproduce.py pretraining_size pretraining_size_upenn.toml   (UPENN-GBM, once it is imported)

The study file's first endpoint is the target; the others are pretrained on, of patients whose target is not known. A run that was
stopped goes on with what is done.
"""

import csv
import io
from pathlib import Path

import pandas as pd
from rich.console import Console

from mri_vit import study, synthetic
from mri_vit.cli.arguments import Count, Seed
from mri_vit.crossval import folds
from mri_vit.data import run_cohort
from mri_vit.run import executors, files, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.run.jobs import Workplace
from mri_vit.run.screen import progress
from mri_vit.settings import file as study_file
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study
from reproductions.pretraining_size import encoders, pretraining_page
from reproductions.pretraining_size.size_effects import measure

CONFIG = Path(__file__).with_name("pretraining_size.toml")
MADE_UP = "pretraining_size"  # the study on the built-in cohort
TARGETS, OTHERS = 56, 140  # of its patients; of seven targets six have MGMT, of seven others five have both labels
PLANTED = (
    "MGMT is whether the whole tumour takes up contrast or its rim alone; “solid” is the same cause under another name, of other"
    " patients; PTEN is a coin, which is the control. The figures say how pretraining fares where a cause is shared, and nothing"
    " of real tumours."
)


def main(file: Path = CONFIG, *, seed: Seed = 1, workers: Count = 2) -> None:
    """Write index.html with both figures, of the cohort and start of this seed; `workers` networks learn at a time."""
    console = Console()
    settings = study_file.filled(study_file.load(file), seed=seed).model_copy(update={"seed": seed})
    if settings.name == MADE_UP:
        make(settings, seed)

    with run_folder.claimed(settings) as run:
        patients = study.check(settings, run)
        encoders.parted(settings, patients)  # what is refused is refused before anybody is prepared
        study.prepare(settings, patients, run, console)
        targets, others = encoders.parted(settings, run_cohort.included(settings, run))
        if not (run / files.FOLDS).exists():
            folds.save(folds.make(targets, settings.endpoints[:1], settings.train, seed), seed, run / files.FOLDS)
        split = folds.load(run / files.FOLDS, targets)[0]

        # each start learns its label where it has one, then the target; and the simplest baseline on the same folds
        starts = encoders.starts(settings, others)
        jobs = {start.id: (start, targets, split, run / "starts") for start in starts}
        scores = {"": encoders.controlled(settings, targets, split, run / "controls")}
        with progress(console) as bar:
            task = bar.add_task("starts", total=len(jobs), note="")
            for name, found in executors.each(encoders.scored, jobs, Workplace(workers)):
                scores[name] = found
                bar.update(task, advance=1, note=name)

        table = pd.concat([scores[name] for name in (*jobs, "")], ignore_index=True)  # in the jobs' order, whatever came first
        planted = PLANTED if settings.name == MADE_UP else ""
        page = pretraining_page.write(settings, starts, targets, table, run, planted)
        named, labels = pretraining_page.named(settings), pretraining_page.pretrained_on(settings)
        for sentence in pretraining_page.sentences(measure(table, VIT), named, labels):
            console.print(screen.plain(f"- {sentence}"))
        screen.say(console, f"page: {page}")


def make(settings: Study, seed: int) -> None:
    """The built-in cohort, its table parted in two: some patients have MGMT alone, the others its cause as "solid" and PTEN."""
    whole = synthetic.make(settings.cohort.parent, seed, TARGETS + OTHERS)
    with whole.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for index, row in enumerate(rows):
        cause, coin = row["mgmt"], row["pten"]
        taught = index >= TARGETS and cause and coin  # both labels or none, so that the coin is learned from as many
        row |= {"mgmt": cause if index < TARGETS else "", "solid": cause if taught else "", "pten": coin if taught else ""}
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_bytes(out.getvalue().encode(), settings.cohort)
