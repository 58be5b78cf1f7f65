"""Evaluated models: what each model of a run predicts for another cohort, notes on them, and the evaluation's records.

Networks predict as they are. The regressions of each fold, and vit+clinical, are fitted again on the run's own patients only:
the run does not store them (two weights and a small regression), and the same patients determine them in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from rich.console import Console

from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.loop import Tables, by_patient, sites, stacked, with_truth
from mri_vit.data import predictions
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.data.covariates import clinical_table, remarks
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.finished import trained_run
from mri_vit.finished.network_outputs import averaged, mean_of_folds
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.model.weights import image_exposed
from mri_vit.predictors import patient_tables, regressions
from mri_vit.predictors.late_fusion import LateFusion, equally_weighted
from mri_vit.predictors.network import Neural
from mri_vit.predictors.patient_tables import intensity_table
from mri_vit.predictors.slices import slices_table
from mri_vit.report import assembly
from mri_vit.report.reading.run import read_run
from mri_vit.run import files, integrity
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import read_json
from mri_vit.run.screen import WARNING, progress, say
from mri_vit.settings.recipe import CLINICAL, FUSED, INTENSITY, PERMUTED, SITE, SLICES, VIT, VOLUME
from mri_vit.settings.schema import Endpoint, Study
from mri_vit.settings.sections import Controls

COVARIATES = (CLINICAL, VOLUME, INTENSITY, SLICES, SITE)  # controls that are regressions on columns
COLUMNS_NAMED = 5  # in a message, of those that the other cohort lacks
KEPT_NOTES = ("clinical_columns", "clinical_withheld")
Notes = dict[str, str]  # by model, why it is not judged; and by topic, remarks on the others
# A value away from 0.5 would be no fault either: a permutation of few labels is rarely unrelated to the true ones.
NO_LEAK = "not tested here: its labels were permuted among the run's own patients, so other patients have nothing to recover"
OF_SCANS = {VOLUME: patient_tables.volume_table, INTENSITY: intensity_table, SLICES: slices_table}


def write(run: TrainedRun, endpoints: tuple[Endpoint, ...], predicted: list[Tables], notes: Notes, folder: Path) -> None:
    """The evaluation's records; `predictions.csv` last: where it is, the evaluation has ended.

    The run's own tables are copied for the endpoints and models judged here, with numbers instead of patients' ids.
    """
    write_bytes(json.dumps(notes, indent=1).encode(), folder / files.NOTES)
    score, survival = (stacked(parts) for parts in zip(*predicted, strict=True))
    internal = assembly.metrics(read_run(run.folder)).model_dump(mode="json", exclude={"files", "patients", "failures"})
    records = {files.SURVIVAL: predictions.dumps(survival), files.EVALUATION: json.dumps(internal, indent=1).encode()}
    scores = predictions.load(run.folder / files.PREDICTIONS, run.study.endpoints)
    own = scores, predictions.load_survival(run.folder / files.SURVIVAL)
    numbers = {name: str(number) for number, name in enumerate(own[0].patient.unique(), 1)}
    names = [endpoint.name for endpoint in endpoints]
    for file, table in zip(integrity.INTERNAL_TABLES, own, strict=True):
        judged = table.loc[table.endpoint.isin(names) & table.model.isin(score.model)]
        records[file] = predictions.dumps(judged.assign(patient=judged.patient.map(numbers)))
    integrity.write_hashed(folder, [], records | {files.PREDICTIONS: predictions.dumps(score)})


def tables(run: TrainedRun, study: Study, patients: Sequence[Patient], console: Console) -> tuple[list[Tables], Notes]:
    """Predictions and survival of each model of the run, and notes: remarks on them, and why a model is not judged.

    Models predict one after another, networks one fold at a time. Raises UsageError where none can predict.
    """
    gone, past = trained_run.lacking(run), run.study
    exposed = trained_run.exposed_patients(run, patients, image_exposed)
    if past.fused:
        exposed[FUSED] = exposed[VIT]
    transductive = ", ".join(f"{name} ({len(subjects)} patients)" for name, subjects in exposed.items() if subjects)
    notes: Notes = {"transductive": transductive} | gone
    of_run = predictions.load(run.folder / files.PREDICTIONS, run.study.endpoints)
    judged = []
    with progress(console) as bar:
        for name, of in networks(study).items():
            if name not in gone:
                task = bar.add_task(f"predict, {name}", note="")
                predicted = mean_of_folds(
                    comparator_folder(run.folder, name),
                    of,
                    patients,
                    lambda done, total, task=task: bar.update(task, completed=done, total=total),
                )
                judged.append(_judged(name, predicted, patients, study, of_run))
    for name in [*([FUSED] if past.fused else ()), *(name for name in COVARIATES if name in past.controls.models)]:
        if name not in of_run.model.unique():
            if reason := run.notes.get(name):
                notes[name] = f"the run has none: {reason}"
        elif name == FUSED and VIT in gone:
            notes[name] = gone[VIT]
        else:
            try:
                predicted, note = fused(run, study, patients) if name == FUSED else (control(name, run, study, patients), "")
            except UsageError as error:
                notes[name] = str(error)
            else:
                notes |= {name: note} if note else {}
                judged.append(_judged(name, predicted, patients, study, of_run))
    if not judged:
        raise UsageError(f"{run.folder}: none of its models can predict: {'; '.join(notes.values()).strip('; ')}")
    notes |= {name: NO_LEAK for name in PERMUTED if name in of_run.model.unique()}
    if columns := _clinical_columns(run):
        odd = remarks(patients, study.model_copy(update={"controls": Controls(columns=tuple(columns))}))
        for remark in odd:
            say(console, remark, WARNING)
        notes |= {f"{CLINICAL}_remarks": "; ".join(odd)} if odd else {}
    return judged, notes | {"clinical_columns": ""} | {key: note for key, note in run.notes.items() if key in KEPT_NOTES}


def _judged(model: str, predicted: Tables, patients: Sequence[Patient], study: Study, of_run: pd.DataFrame) -> Tables:
    """The ensemble's tables in the form of a run's, with the labels and the mean of the run's thresholds."""
    endpoints = [endpoint.name for endpoint in study.endpoints]
    score, survival = (table.loc[table.endpoint.isin(endpoints)].reset_index(drop=True) for table in predicted)
    thresholds = of_run.loc[of_run.model == model].groupby("endpoint").threshold.mean()
    score = with_truth(score, patients, study.endpoints)
    score = score.assign(threshold=score.endpoint.map(thresholds).astype(float))
    place = {"model": model, "repeat": 0, "fold": 0}
    return (
        by_patient(score, patients).assign(**place).reindex(columns=predictions.COLUMNS),
        by_patient(survival, patients).assign(**place).reindex(columns=predictions.SURVIVAL_COLUMNS),
    )


def control(name: str, run: TrainedRun, study: Study, patients: Sequence[Patient]) -> Tables:
    """A control as in the run: one regression per fold on the run's own patients, averaged over the folds.

    Raises UsageError with the reason where it cannot predict.
    """
    inner, outer = covariates(name, run, study, patients)
    predicted = []
    for _, train, val, _ in run.fold_patients():
        regression = regressions.control(name, inner, run.study)
        regression.fit(train, val)
        predicted.append(regression.of(outer).predict([without_labels(patient) for patient in patients]))
    return averaged(predicted)


def covariates(name: str, run: TrainedRun, study: Study, patients: Sequence[Patient]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A control's columns of the run's own patients, and of the others. Raises UsageError where their types differ."""
    inner, outer = covariate_table(name, run, run.study, run.patients), covariate_table(name, run, study, patients)
    if absent := [str(column) for column in inner if column not in outer]:
        more = f" and {len(absent) - COLUMNS_NAMED} more" if len(absent) > COLUMNS_NAMED else ""
        masks = "; tumour columns need tumour masks" if any(name.startswith("tumour_") for name in absent) else ""
        raise UsageError(f"this cohort lacks columns of the run's patients: {', '.join(absent[:COLUMNS_NAMED])}{more}{masks}")
    differ = [column for column in inner if inner[column].dtype != outer[column].dtype]
    if differ or list(inner) != list(outer):
        raise UsageError(f"columns have another type (numbers or words) in this cohort: {', '.join(map(str, differ))}")
    return inner, outer


def covariate_table(name: str, run: TrainedRun, study: Study, patients: Sequence[Patient]) -> pd.DataFrame:
    """A control's columns of patients. Raises UsageError where they cannot be had: no such column, site or prepared patient."""
    if name == CLINICAL:
        return clinical(run, patients)
    if name == SITE:
        return _site(run, patients)
    require_prepared(patients, study.prepared)
    if name == SLICES and study.controls.slices is None:
        raise UsageError("the run has none: no file of a 2D Vision Transformer was given")
    return OF_SCANS[name](patients, study)


def _clinical_columns(run: TrainedRun) -> list[str]:
    return [name for name in run.notes.get("clinical_columns", "").split(", ") if name]


def clinical(run: TrainedRun, patients: Sequence[Patient]) -> pd.DataFrame:
    """The run's clinical columns of these patients. Raises UsageError where their table lacks one."""
    columns = _clinical_columns(run)
    absent = [name for name in columns if name not in patients[0].clinical | patients[0].labels]
    if absent or not columns:
        raise UsageError(f"the cohort table has no column {', '.join(absent)}" if absent else "the run had no clinical column")
    return clinical_table(patients, columns)


def _site(run: TrainedRun, patients: Sequence[Patient]) -> pd.DataFrame:
    """The site of each patient, where the run's regression knows it.

    Raises UsageError where the control would be constant.
    """
    known = set(sites(run.patients).values())
    of = {patient.id: name if (name := patient.clinical.get("site", "")) in known else None for patient in patients}
    if not any(of.values()):
        raise UsageError("no patient here is of a site that the run was trained on, so the control would be constant")
    if len(set(of.values())) < 2:
        raise UsageError("all patients here are of one site, so the control would be constant")
    return pd.DataFrame({"site": list(of.values())}, pd.Index(list(of)), dtype=object)


def require_prepared(patients: Sequence[Patient], prepared: Path) -> None:
    """Raise UsageError that names a patient who is no longer prepared, or whose tumour mask is gone."""
    for patient in patients:
        mask = patient.tumour_mask
        if not (prepared / patient.id / files.PATIENT).is_file() or (mask and not mask.is_file()):
            raise UsageError(f"not made: the prepared patient {patient.id}, or their tumour mask, no longer exists")


def fused(run: TrainedRun, study: Study, patients: Sequence[Patient]) -> tuple[Tables, str]:
    """vit+clinical's mean over the folds, and which folds weight network and columns equally.

    Raises
    ------
    UsageError
        The run's patients are no longer prepared, or this cohort lacks a clinical column.
    IntegrityError
        A fold's fusion, fitted again, gets other weights than the run recorded.
    """
    home = comparator_folder(run.folder, FUSED)
    return averaged(_each_fold(run, study, patients)), equally_weighted([files.fold_folder(home, *at) for at in run.places])


def _each_fold(run: TrainedRun, study: Study, patients: Sequence[Patient]) -> Iterator[Tables]:
    require_prepared(run.patients, run.study.prepared)
    inner, outer = covariates(CLINICAL, run, study, patients)
    for place, train, val, _ in run.fold_patients():
        home = files.fold_folder(comparator_folder(run.folder, FUSED), *place)
        fold = files.fold_folder(run.folder, *place)
        with TemporaryDirectory(prefix="mri-vit-") as temporary:  # a run that is evaluated is not written to
            fusion = LateFusion(Neural.fitted(networks(run.study)[VIT], fold), inner, Path(temporary))
            fusion.fit(train, val)
            if read_json(Path(temporary) / files.FUSION) != read_json(home / files.FUSION):
                raise IntegrityError(f"{home / files.FUSION}: fitted again, {FUSED} gets other weights; train the run again")
            network = Neural.fitted(networks(study)[VIT], fold)
            yield fusion.of(network, outer).predict([without_labels(patient) for patient in patients])
