"""Your own cohort, stage by stage: .venv/bin/python pipelines/cohort.py configs/gbm.toml

The same as `mri-vit run configs/gbm.toml`; copy this file where a study needs a step of its own between two stages.
"""

import sys
from pathlib import Path

from rich.console import Console

from mri_vit import study
from mri_vit.run import files, screen
from mri_vit.run import folder as run_folder
from mri_vit.settings import file as study_file

if __name__ == "__main__":  # patients are prepared in worker processes, which import this file
    console = Console()
    settings = study_file.load(Path(sys.argv[1]))
    with run_folder.claimed(settings) as run:
        patients = study.check(settings, run)
        excluded = study.prepare(settings, patients, run, console)
        screen.say(
            console,
            f"{len(patients) - len(excluded)} of {len(patients)} patients go on; the others are in {run / files.EXCLUDED}",
        )
        study.train(settings, run, console)
        study.explain(settings, run, console)
        study.report(run, console)
