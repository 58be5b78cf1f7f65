"""Models: what each model of a run predicts of another cohort, in the form of a run's tables, and notes on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from mri_vit.crossval.loop import Tables, by_patient, with_truth
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.external import controls, ensemble, familiar
from mri_vit.model.weights import image_exposed
from mri_vit.run import files
from mri_vit.settings.models import VIT
from mri_vit.settings.schema import Study


def tables(
    run: Path, past: Study, study: Study, patients: Sequence[Patient], console: Console
) -> tuple[list[Tables], dict[str, str]]:
    """Predictions and survival of the model and of each control that the run had, and what is to be noted of them."""
    found = [_judged(VIT, ensemble.with_bar(run, study, patients, console), patients, study, run)]
    known = familiar.before(run, past, patients, image_exposed)
    notes = {"transductive": f"{VIT} ({len(known)} patients)" if known else ""}
    for name, covariates in controls.COVARIATES.items():
        if name not in past.controls.models:
            continue
        try:
            found.append(_judged(name, controls.control(run, past, study, patients, covariates), patients, study, run))
        except UsageError as error:
            notes[name] = str(error)
    return found, notes | {"clinical_columns": controls.clinical_columns(run)}


def _judged(model: str, tables: Tables, patients: Sequence[Patient], study: Study, run: Path) -> Tables:
    """The ensemble's tables in the form of a run's, with the labels joined and the mean of the folds' thresholds."""
    asked = f"endpoint in {[endpoint.name for endpoint in study.endpoints]}"
    score, survival = (table.query(asked).reset_index(drop=True) for table in tables)
    past = predictions.load(run / files.PREDICTIONS).query("model == @model").groupby("endpoint").threshold.mean()
    score = with_truth(score, patients, study.endpoints)
    score = score.assign(threshold=score.endpoint.map(past).astype(float))
    place = {"model": model, "repeat": 0, "fold": 0}
    return (
        by_patient(score, patients).assign(**place).reindex(columns=predictions.COLUMNS),
        by_patient(survival, patients).assign(**place).reindex(columns=predictions.SURVIVAL_COLUMNS),
    )
