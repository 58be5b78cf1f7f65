"""Does a network's risk add to clinical columns and markers? A finished run with a survival endpoint in; a page out.

.venv/bin/python pipelines/added_value.py runs/demo
.venv/bin/python pipelines/added_value.py runs/survival --model hybrid --covariates age,sex

The risk is a covariate of a multivariable Cox regression, out of fold, as Lee et al. 2023 (doi:10.1093/neuonc/noad202) have it
of an external test set: hazard ratios without and with it, likelihood ratio, change of Harrell's C, and the same the other way
round. Any run of configs/survival.toml's kind will do, and an evaluation of a run on another cohort. Result:
RUN/added_value/index.html, in seconds. pipelines/null_added_value.py says how often it finds what is not there.
"""

import sys
from pathlib import Path

from rich.console import Console

from mri_vit.cli import exit_code
from mri_vit.run import screen
from mri_vit.studies.added_value import page as added_value
from mri_vit.studies.added_value import words as added_value_words
from mri_vit.studies.added_value.findings import find
from mri_vit.studies.added_value.people import asked


def main(run: Path, *, covariates: str = "", model: str = "", endpoint: str = "", output: Path | None = None) -> None:
    """Write the page of what a risk adds.

    Parameters
    ----------
    run
        Folder of a finished run.
    covariates
        Columns of the cohort table, with commas between them; else the clinical columns and the binary markers.
    model
        Whose risk; else the study's own.
    endpoint
        Which survival endpoint, where there are several.
    output
        Folder of the page; else `added_value` in the run, with the model's name where it is not the study's own.
    """
    names = [name.strip() for name in covariates.split(",") if name.strip()] or None
    found = find(asked(run, names, model, endpoint))
    console = Console()
    for sentence in added_value_words.sentences(found):
        screen.say(console, f"- {sentence}")
    screen.say(console, f"page: {added_value.write(found, output or run / added_value.home(found))}")


if __name__ == "__main__":
    sys.exit(exit_code.of_script(main))
