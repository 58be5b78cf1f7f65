"""Prediction: patients without labels in, the run's mean scores and survival of each out."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from mri_vit import study as stages
from mri_vit.data import cohort, predictions
from mri_vit.external import ensemble
from mri_vit.external.finished import finished, on_others
from mri_vit.prepare import stage as preparing
from mri_vit.prepare.stage import Excluded
from mri_vit.run import files, intact
from mri_vit.run import folder as run_folder
from mri_vit.run.screen import say


def predict(run: Path, table: Path, output: Path, workers: int, console: Console) -> Excluded:
    """Predict new patients: `predictions.csv` and `survival.csv` in `output`. No label is read."""
    past = finished(run)
    intact.refuse_changed(run, console, intact.OWN)
    study = on_others(
        past, cohort=table.resolve(), output=output.resolve(), prepared=output.resolve() / "prepared", workers=workers
    )
    with run_folder.claimed(study) as folder:
        patients = cohort.read(study.cohort, (), study.prepare.needs, study.channels)
        excluded = stages.prepare(study, patients, folder, console)
        patients = preparing.without(patients, excluded)
        if patients:
            score, survival = ensemble.with_bar(run, study, patients, console)
            predictions.save(survival, folder / files.SURVIVAL)
            predictions.save(score, folder / files.PREDICTIONS)
            say(console, f"predictions: {folder / files.PREDICTIONS}")
    return excluded
