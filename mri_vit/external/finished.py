"""A finished run: its settings, and the same settings on other patients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mri_vit.errors import UsageError
from mri_vit.run import files, origin
from mri_vit.settings.schema import Study


def finished(run: Path) -> Study:
    """The settings of a run whose training has ended. Raises UsageError where it has not."""
    if not (run / files.PREDICTIONS).exists() or not (run / files.FOLDS).exists():
        raise UsageError(f"{run}: no {files.PREDICTIONS} and {files.FOLDS}; a run whose training has ended has both")
    return origin.settings(run)


def on_others(past: Study, workers: int, **changed: Any) -> Study:
    """The run's settings for other patients, whom its reviewer has not seen."""
    own = {"prepare": past.prepare.model_copy(update={"workers": workers}), "qc": past.qc.model_copy(update={"decisions": None})}
    return past.model_copy(update={**changed, **own})
