"""The story of the project on the built-in cohort: 96 synthetic patients, from NIfTI files to a report and attention maps.

Run from the checkout: .venv/bin/python pipelines/demo.py     (as `make demo` does; about 4 minutes on two idle cores)
"""

import sys
from pathlib import Path

if __name__ == "__main__":  # worker processes import this file; they need not wait for all that the whole story needs
    from rich.console import Console

    from mri_vit import study, synthetic
    from mri_vit.run import folder as run_folder
    from mri_vit.settings import file as study_file

    console = Console()
    settings = study_file.load(Path(__file__).parents[1] / "configs" / "demo.toml")

    # scans on different grids, a table with missing labels, and a README that says what is planted
    synthetic.make(settings.cohort.parent)

    with run_folder.claimed(settings) as run:
        # the table is read and frozen; faults are named before anything is started
        patients = study.check(settings, run)

        # each patient's four scans are aligned, corrected and cut into the patches that hold brain
        excluded = study.prepare(settings, patients, run, console)

        # folds are written and hashed; then each is learned without its test patients and predicted once
        study.train(settings, run, console)

        # what the class token drew on, carried back into each patient's own T1ce
        study.explain(settings, run, console)

        # one page that separates signal from noise; it ends with what was planted beside what was found
        written = study.report(run, console)

    sys.exit(study.exit_code(excluded, written))
