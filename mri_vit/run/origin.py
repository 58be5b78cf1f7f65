"""Origin: paths in a run's records are relative to the run, so that a tree of studies can be copied; a run alone finds what
it was made from where it was then, which `origin.json` says.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.ownership import record
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study


def known(run: Path) -> bool:
    """Whether the run says where it was made; one by a version before 0.5 does not, and has absolute paths."""
    return (run / files.ORIGIN).is_file()


def write(run: Path) -> None:
    """Say that the paths in the run's records are relative to where it is now."""
    write_bytes(json.dumps({"folder": os.path.realpath(run)}).encode(), run / files.ORIGIN)


def find(run: Path, text: str) -> str:
    """The path that a record of the run means by `text`: as seen from here if that is there, else as seen from its origin."""
    here = os.path.abspath(os.path.join(os.path.realpath(run), text))  # no link behind the run is followed
    origin = record(run / files.ORIGIN).get("folder")
    if not isinstance(origin, str) or os.path.exists(here):
        return here
    there = os.path.abspath(os.path.join(origin, text))
    return there if os.path.exists(there) else here


def settings(run: Path, overrides: dict[str, str] | None = None) -> Study:
    """The settings of a run, with every path as `find` finds it."""
    return study_file.load(run / files.STUDY, overrides, lambda text: find(run, text))


def written(study: Study, run: Path) -> bytes:
    """The study file of a run: its paths relative to it. Those that the present file has already are kept as they are spelled."""
    words: dict[str, str] = {}

    def remembered(text: str) -> str:
        if not os.path.isabs(text):
            words[find(run, text)] = text
        return text

    if (run / files.STUDY).exists() and (run / files.COHORT).exists():
        study_file.load(run / files.STUDY, place=remembered)
    relative = study_file.with_paths(study, lambda path: words.get(path) or os.path.relpath(path, os.path.realpath(run)))
    return study_file.dumps(relative.model_copy(update={"output": Path()})).encode()
