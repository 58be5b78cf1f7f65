"""Models: what each model of a run predicts of another cohort, in the form of a run's tables, and notes on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.loop import Tables, by_patient, with_truth
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient
from mri_vit.data.covariates import remarks
from mri_vit.errors import UsageError
from mri_vit.external import controls, ensemble, familiar, fusion
from mri_vit.external.finished import notes_of, places
from mri_vit.model.weights import image_exposed
from mri_vit.run import files
from mri_vit.run.screen import WARNING, say
from mri_vit.settings.recipe import CLINICAL, FUSED, PERMUTED, VIT
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Controls

Notes = dict[str, str]  # by model, why it is not judged; and by topic, on what the others rest
# Nor would a value beside 0.5 be a fault: a permutation of few labels is seldom quite without a relation to the true ones.
NO_LEAK = "not asked here: its labels were permuted among the run's own patients, so that others' hold nothing to find again"


def lacking(run: Path, past: Study) -> Notes:
    """By network of the run, of which folds the weights are gone; only networks that lack some, which cannot be asked."""
    found = {}
    for name, of in networks(past).items():
        homes = [files.fold_folder(comparator_folder(run, name), *place) for place in places(run)]
        each = {home.name: [files.seed_folder(home, seed) for seed in range(of.train.seeds)] for home in homes}
        gone = [fold for fold, seeds in each.items() if not all((seed / files.WEIGHTS).is_file() for seed in seeds)]
        if gone:
            found[name] = f"not judged here: the weights of {', '.join(gone)} are not there any more"
    return found


def tables(run: Path, past: Study, study: Study, patients: Sequence[Patient], console: Console) -> tuple[list[Tables], Notes]:
    """Predictions and survival of each model that the run had, and notes: on what they rest, and why one is not judged.

    The models come one after another, and of a network one fold at a time. Raises UsageError where none can be asked.
    """
    gone = lacking(run, past)
    notes: Notes = {"transductive": _transductive(run, past, patients)} | gone
    made = predictions.load(run / files.PREDICTIONS)
    found = []
    for name, of in networks(study).items():
        if name not in gone:
            said = ensemble.with_bar(comparator_folder(run, name), of, patients, console, f"predict, {name}")
            found.append(_judged(name, said, patients, study, made))
    for name in _regressions(past):
        if name not in made.model.unique():
            if why := notes_of(run).get(name):
                notes[name] = f"the run has none: {why}"
        elif name == FUSED and VIT in gone:
            notes[name] = gone[VIT]
        else:
            try:
                said, note = _refitted(name, run, past, study, patients)
            except UsageError as error:
                notes[name] = str(error)
            else:
                notes |= {name: note} if note else {}
                found.append(_judged(name, said, patients, study, made))
    if not found:
        raise UsageError(f"{run}: none of its models can be asked: {'; '.join(notes.values()).strip('; ')}")
    notes |= {name: NO_LEAK for name in PERMUTED if name in made.model.unique()}
    kept = ("clinical_columns", "clinical_withheld")
    odd = _of_clinical(run, study, patients)
    for remark in odd:
        say(console, remark, WARNING)
    notes |= {f"{CLINICAL}_remarks": "; ".join(odd)} if odd else {}
    return found, notes | {"clinical_columns": ""} | {key: said for key, said in notes_of(run).items() if key in kept}


def _of_clinical(run: Path, study: Study, patients: Sequence[Patient]) -> list[str]:
    """What is odd in the columns that the run's clinical models read, as this cohort has them."""
    columns = [name for name in notes_of(run).get("clinical_columns", "").split(", ") if name]
    return remarks(patients, study.model_copy(update={"controls": Controls(columns=tuple(columns))})) if columns else []


def _regressions(past: Study) -> list[str]:
    """The models of which the run keeps no more than the patients that determine them: late fusion and controls."""
    asked = [name for name in controls.COVARIATES if name in past.controls.models]
    return [FUSED, *asked] if past.fused else asked


def _refitted(name: str, run: Path, past: Study, study: Study, patients: Sequence[Patient]) -> tuple[Tables, str]:
    """The tables of one of these, and a note."""
    if name == FUSED:
        return fusion.fused(run, past, study, patients)
    return controls.control(name, run, past, study, patients), ""


def _transductive(run: Path, past: Study, patients: Sequence[Patient]) -> str:
    """Which networks started from weights that are image-exposed to patients whom they are judged on here."""
    found = familiar.by_network(run, past, patients, image_exposed)
    if past.fused:
        found[FUSED] = found[VIT]
    return ", ".join(f"{name} ({len(subjects)} patients)" for name, subjects in found.items() if subjects)


def _judged(model: str, tables: Tables, patients: Sequence[Patient], study: Study, made: pd.DataFrame) -> Tables:
    """The ensemble's tables in the form of a run's, with the labels joined and the mean of the thresholds that the run `made`."""
    asked = f"endpoint in {[endpoint.name for endpoint in study.endpoints]}"
    score, survival = (table.query(asked).reset_index(drop=True) for table in tables)
    past = made.query("model == @model").groupby("endpoint").threshold.mean()
    score = with_truth(score, patients, study.endpoints)
    score = score.assign(threshold=score.endpoint.map(past).astype(float))
    place = {"model": model, "repeat": 0, "fold": 0}
    return (
        by_patient(score, patients).assign(**place).reindex(columns=predictions.COLUMNS),
        by_patient(survival, patients).assign(**place).reindex(columns=predictions.SURVIVAL_COLUMNS),
    )
