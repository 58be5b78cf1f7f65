"""A finished run: its settings, what it says of its folds and controls, and its settings on other patients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mri_vit.errors import UsageError
from mri_vit.run import files, folder
from mri_vit.run.integrity import as_written, read_json
from mri_vit.settings.schema import Study

OLDER = "the run was made by an older version, which cannot be evaluated"


def finished(run: Path) -> Study:
    """The settings of a run whose training has ended. Raises UsageError where it has not."""
    if not (run / files.PREDICTIONS).exists() or not (run / files.FOLDS).exists():
        raise UsageError(f"{run}: no {files.PREDICTIONS} and {files.FOLDS}; a run whose training has ended has both")
    return folder.run_settings(run)


def on_others(past: Study, workers: int, **changed: Any) -> Study:
    """The run's settings for other patients, whom its reviewer has not seen."""
    own = {"prepare": past.prepare.model_copy(update={"workers": workers}), "qc": past.qc.model_copy(update={"decisions": None})}
    return past.model_copy(update={**changed, **own})


def places(run: Path) -> list[tuple[int, int]]:
    """Repeat and fold, counted from 0, of each fold of the run."""
    with as_written(run / files.FOLDS):
        repeats = read_json(run / files.FOLDS)["repeats"]
        return [(repeat, fold) for repeat, split in enumerate(repeats) for fold in range(len(split["folds"]))]


def notes_of(run: Path) -> dict[str, str]:
    """What the run says that its models rest on. Raises UsageError where it says nothing."""
    return read_json(known(run / files.NOTES))


def known(file: Path) -> Path:
    """The same record of a run. Raises UsageError where there is none."""
    if not file.exists():
        raise UsageError(f"{file}: no such file; {OLDER}")
    return file
