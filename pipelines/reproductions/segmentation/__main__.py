"""Does attention segment the tumour, unasked? Figure 4 of Caron et al. 2021 (DINO) on brain scans with tumour masks.

.venv/bin/python pipelines/reproduce.py segmentation segmentation.toml             (the built-in cohort)
.venv/bin/python pipelines/reproduce.py segmentation segmentation_ucsf_pdgm.toml   (a public one, once its table is written)

The first fold's patients are judged; encoders learn from the others. A run that was stopped goes on with its encoders.
Result: segmentation/index.html in the run's folder.
"""

from pathlib import Path

import pandas as pd
from rich.console import Console

from mri_vit import study, synthetic
from mri_vit.crossval import folds
from mri_vit.crossval.loop import fold_seed, parts
from mri_vit.data import run_cohort
from mri_vit.data.cohort import first_visits
from mri_vit.errors import UsageError
from mri_vit.run import executors, files, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.jobs import Workplace
from mri_vit.run.screen import progress
from mri_vit.settings import file as study_file
from reproductions.segmentation import encoders, overlap, overlap_page

CONFIG = Path(__file__).with_name("segmentation.toml")
MADE_UP = "segmentation"  # the study on the built-in cohort, which it shares with the demo
PATIENTS = synthetic.PATIENTS
AT_A_TIME = 2  # encoders, each on a thread of its own; no machine has fewer cores today
FEWEST = 4  # patients to judge: two in each half, of whom one alone would choose heads


def main(file: Path = CONFIG) -> None:
    """Learn the encoders, read their attention, and write the page."""
    console = Console()
    settings = study_file.load(file)
    asked = {one.id: one for one in encoders.encoder_runs(settings)}
    if settings.name == MADE_UP:
        synthetic.make(settings.cohort.parent, patients=PATIENTS)

    with run_folder.claimed(settings) as run:
        study.prepare(settings, study.check(settings, run), run, console)
        patients = run_cohort.included(settings, run)
        if not (run / files.FOLDS).exists():  # with them the settings are settled: encoders of others would be taken for these
            made = folds.make(patients, settings.endpoints, settings.train, settings.seed)
            folds.save(made, settings.seed, run / files.FOLDS)
        split = folds.load(run / files.FOLDS, patients)[0]
        train, val, test = parts(patients, split[0], settings, fold_seed(settings.seed, 0, 0))

        # who can be judged, by the first visit: those with a tumour mask that fills a place or more
        test = first_visits(test)
        found = {patient.id: encoders.subject(patient, settings) for patient in test}
        subjects = [one for one in found.values() if one]
        if len(subjects) < FEWEST:
            raise UsageError(
                f"{settings.cohort}: found {len(subjects)} patients to judge with a tumour_mask; {FEWEST} are needed"
            )
        judged = [patient for patient in test if found[patient.id]]

        # each encoder learns where it is to learn, and is asked where it looks
        jobs = {name: (one, (train, val), judged, run / "encoders") for name, one in asked.items()}
        attention, notes = {}, []
        with progress(console) as bar:
            task = bar.add_task("encoders", total=len(jobs), note="")
            for name, (maps, note) in executors.each(encoders.attentions, jobs, Workplace(AT_A_TIME)):
                attention[asked[name].name, asked[name].start] = maps
                notes += [f"{name}: {note}"] if note else []
                bar.update(task, advance=1, note=name)

        # then what they looked at is held against the masks
        table = pd.concat(
            [
                overlap.judged(one.name, one.start, attention[one.name, one.start], subjects, settings.seed)
                for one in asked.values()
            ],
            ignore_index=True,
        )
        learners = len(train) + len(val)
        home = run / "segmentation"
        page = overlap_page.write(settings, table, attention, subjects, test, learners, notes, home)
        screen.say(console, f"page: {page}")
