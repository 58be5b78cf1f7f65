"""Run metrics: a finished run goes in, the numbers of its report come out; from the report where that is valid."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from mri_vit.report.schema.metrics import Metrics
from mri_vit.run import files, integrity

Source = Literal["report", "computed"]  # where the metrics of a finished run are from


def metrics_of_folder(run: Path) -> tuple[Metrics, Source]:
    """A finished run's metrics, from its report's `metrics.json` where that is valid, else computed (seconds).

    The file is valid where it is complete, names the run's folds and is not older than the out-of-fold predictions. Assumes that
    the run's tables are unchanged (`integrity.refuse_changed_run`).
    """
    if reported := _reported(run):
        return reported, "report"
    from mri_vit.report.assembly import metrics  # here, because it takes half a second and is seldom needed
    from mri_vit.report.reading.run import read_run

    return metrics(read_run(run)), "computed"


def _reported(run: Path) -> Metrics | None:
    file, table = run / files.REPORT / files.METRICS, run / files.PREDICTIONS
    try:
        if file.stat().st_mtime_ns < table.stat().st_mtime_ns:
            return None
        reported = Metrics.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):  # none, another version's, or damaged
        return None
    return reported if reported.folds_sha256 == integrity.sha256(run / files.FOLDS) else None
