"""Arguments: what verbs of the command line take, a study file or the folder of a run, with overrides of its keys; and scripts'
numbers, which are refused before anything is begun.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from cyclopts import Parameter
from cyclopts.validators import Number

from mri_vit.errors import UsageError
from mri_vit.run import files
from mri_vit.settings import options

if TYPE_CHECKING:
    from mri_vit.settings.schema import Study

StudyFile = Annotated[Path, Parameter(help="Study file, or the folder of a run.")]
Count = Annotated[int, Parameter(validator=Number(gte=1))]  # of patients, or of jobs side by side
Several = Annotated[int, Parameter(validator=Number(gte=2))]  # of what has a spread
Seed = Annotated[int, Parameter(validator=Number(gte=0))]  # NumPy takes no other
Seeds = Annotated[tuple[int, ...], Parameter(validator=Number(gte=0))]
Output = Parameter(alias="-o")  # of every verb with --output; the key of the study file has it too
if TYPE_CHECKING:
    Overrides = str  # of any key
else:
    Overrides = Unpack[options.overrides()]


def loaded(study: Path, overrides: dict[str, str]) -> Study:
    """The settings of a study file, or of the run in a folder, with the keys that were given."""
    from mri_vit.run import folder
    from mri_vit.settings import file as study_file

    if not os.path.isdir(study):  # unlike Path.is_dir, it takes any name
        return study_file.load(study, overrides)
    here = study.resolve()
    if not (here / files.ENVIRONMENT).exists():  # a folder with a study file in it is no run
        return study_file.load(here / files.STUDY, overrides)
    if "output" in overrides:
        raise UsageError(f"{study} is a run, which is its own output; leave --output out, or name the study file")
    study_of_run = folder.run_settings(here, overrides)
    return study_of_run.model_copy(update={"output": here})  # it may have been moved since its settings were written


def trained(study: Study) -> Study:
    """The same study. Raises UsageError where its output holds no run to go on with, before a folder is made for it."""
    if not (study.output / files.PREDICTIONS).exists():
        raise UsageError(f"{study.output}: no {files.PREDICTIONS}; run `mri-vit train` first")
    return study
