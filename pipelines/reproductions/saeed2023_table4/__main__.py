"""Saeed et al. 2023, Table 4, again: its 35 rows on a cohort with MGMT labels, ours beside the published figures.

.venv/bin/python pipelines/reproduce.py saeed2023_table4 table4_demo.toml  (synthetic patients; 8 to 14 minutes on two cores)
.venv/bin/python pipelines/reproduce.py saeed2023_table4 table4_brats2021.toml  (the paper's cohort, once its table is written)

A run that was stopped goes on where it was.
"""

from pathlib import Path

from rich.console import Console

from mri_vit import study, synthetic
from mri_vit.crossval import work_units
from mri_vit.report.reading.run import read_run
from mri_vit.run import files, screen
from mri_vit.run import folder as run_folder
from mri_vit.run.jobs import Workplace
from mri_vit.run.screen import progress
from mri_vit.settings import file as study_file
from reproductions.saeed2023_table4 import table_page
from reproductions.saeed2023_table4.table_rows import measure, with_comparators

MADE_UP = "table4_demo"  # the study on the built-in cohort
PATIENTS = 64  # of it: two thirds of the demo's
AT_A_TIME = 2  # comparators; no machine has fewer cores today


def main(file: Path) -> None:
    """Cross-validate every row of the table and the study's own ViT; write report and table."""
    console = Console()

    # the study file has the common settings; each row of the table is a comparator that changes network and scans
    settings = with_comparators(study_file.load(file))
    if settings.name == MADE_UP:
        synthetic.make(settings.cohort.parent, patients=PATIENTS)

    with run_folder.claimed(settings) as run:
        patients = study.check(settings, run)
        study.prepare(settings, patients, run, console)

        # the folds that all rows share, several at a time
        patients, splits = study.divided_before(settings, run)
        for _ in work_units.work_through(work_units.encoder_units(settings, patients, splits, run), Workplace(AT_A_TIME)):
            pass
        trainings = work_units.fold_units(settings, patients, splits, run)
        with progress(console) as bar:
            task = bar.add_task("folds", total=len(trainings), note="")
            for unit in work_units.work_through(trainings, Workplace(AT_A_TIME)):
                bar.update(task, advance=1, note=unit.title)
                if settings.name == MADE_UP and run / files.COMPARATORS in unit.folder.parents:
                    (unit.folder / files.WEIGHTS).unlink()  # 13 GB for all rows, of networks that have learned nothing

        # then the controls; one table of predictions
        study.train(settings, run, console)
        study.report(run, console)

        found = read_run(run)
        table_page.show(measure(found), table_page.both_sides(found), console)
        screen.say(console, f"table: {table_page.write(found, run / 'report')}")
