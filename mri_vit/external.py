"""A finished run on other patients: the mean of its fold models, with nothing fitted anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from mri_vit import study as stages
from mri_vit.crossval import folds
from mri_vit.crossval.loop import Tables, by_patient, fold_seed, parts, with_truth
from mri_vit.data import cohort, frozen, predictions
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.data.covariates import clinical_table
from mri_vit.errors import UsageError
from mri_vit.model.weights import image_exposed, label_exposed
from mri_vit.predictors import tabular as controls
from mri_vit.predictors.intensity import intensity_table
from mri_vit.predictors.network import Neural
from mri_vit.predictors.tabular import Regressions
from mri_vit.prepare import stage as preparing
from mri_vit.prepare.prepared import voxels
from mri_vit.prepare.stage import Excluded
from mri_vit.report import assembly
from mri_vit.report.reading import run as reports
from mri_vit.run import files, hashes, intact, origin
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.run.progress import progress
from mri_vit.run.record import as_written, read_json
from mri_vit.run.screen import say
from mri_vit.settings.models import CLINICAL, INTENSITY, VIT, VOLUME
from mri_vit.settings.schema import Study

OWN = ("channels", "grid", "prepare", "model", "train", "controls")  # keys that belong to the run, not to the other cohort


def predict(run: Path, table: Path, output: Path, workers: int, console: Console) -> Excluded:
    """Predict new patients: `predictions.csv` and `survival.csv` in `output`. No label is read."""
    past = finished(run)
    intact.refuse_changed(run, console, intact.OWN)
    study = _on(past, cohort=table.resolve(), output=output.resolve(), prepared=output.resolve() / "prepared", workers=workers)
    with run_folder.claimed(study) as folder:
        patients = cohort.read(study.cohort, (), study.prepare.needs, study.channels)
        excluded = stages.prepare(study, patients, folder, console)
        patients = preparing.without(patients, excluded)
        if patients:
            score, survival = _mean_of_folds(run, study, patients, console)
            predictions.save(survival, folder / files.SURVIVAL)
            predictions.save(score, folder / files.PREDICTIONS)
            say(console, f"predictions: {folder / files.PREDICTIONS}")
    return excluded


def evaluate(run: Path, other: Study, given: set[str], console: Console) -> Excluded:
    """Evaluate a run on another cohort with known labels, and write a report into that study's output.

    `other` names cohort, prepared, output and endpoints; `given` are the sections that its file sets. How scans are prepared
    and what is a model stays the run's own. Thresholds are the mean of the folds'. The controls clinical, volume
    and intensity are those of the run, fitted on the run's own patients.

    Raises UsageError when the file sets a section that is the run's own, names an endpoint that the run does not have, or
    holds a patient of the run (known by the scans' hashes) or one whose labels the run's weights were exposed to (by the id).
    """
    past = finished(run)
    intact.refuse_changed(run, console, intact.OWN)
    study = _elsewhere(run, past, other, given)
    with run_folder.claimed(study) as folder:
        patients = frozen.freeze(study, cohort.of_study(study), folder)
        if inside := _before(run, past, patients, label_exposed):
            raise UsageError(
                f"{study.cohort}: {', '.join(inside)} would be no external test: weights that the run {run} started from knew"
                " labels of patients with these ids; leave them out, or give other people other ids"
            )
        excluded = stages.prepare(study, patients, folder, console)
        patients = preparing.without(patients, excluded)
        if patients:
            _refuse_own_patients(run, study, patients)
            tables, notes = _tables(run, past, study, patients, console)
            _write(run, tables, notes, folder)
            stages.report(folder, console)
    return excluded


def _elsewhere(run: Path, past: Study, other: Study, given: set[str]) -> Study:
    """The run's settings on the other study's cohort. Raises UsageError when the two contradict each other."""
    differing = [name for name in OWN if name in given and getattr(other, name) != getattr(past, name)]
    if differing:
        key = differing[0] if differing[0] == "channels" else f"[{differing[0]}]"
        raise UsageError(f"{key} belongs to the run {run} and cannot be changed for an evaluation; leave it out")
    known = {endpoint.name: endpoint.kind for endpoint in past.endpoints}
    strange = [e.name for e in other.endpoints if known.get(e.name) != e.kind]
    if strange:
        raise UsageError(f"{run} does not predict {strange[0]!r}; it has {', '.join(known)}: name those under [[endpoints]]")
    study = _on(
        past, name=other.name, cohort=other.cohort, output=other.output, prepared=other.prepared, workers=other.prepare.workers
    )
    return study.model_copy(update={"endpoints": other.endpoints, "report": other.report, "qc": other.qc})


def _tables(
    run: Path, past: Study, study: Study, patients: list[Patient], console: Console
) -> tuple[list[Tables], dict[str, str]]:
    """Predictions and survival of the model and of each control that the run had, and what is to be noted of them."""
    tables = [_judged(VIT, _mean_of_folds(run, study, patients, console), patients, study, run)]
    familiar = _before(run, past, patients, image_exposed)
    notes = {"transductive": f"{VIT} ({len(familiar)} patients)" if familiar else ""}
    for name, covariates in ((CLINICAL, _clinical), (VOLUME, _volume), (INTENSITY, _intensity)):
        if name not in past.controls.models:
            continue
        try:
            tables.append(_judged(name, _control(run, past, study, patients, covariates), patients, study, run))
        except UsageError as error:
            notes[name] = str(error)
    return tables, notes | {"clinical_columns": _clinical_columns(run)}


def _write(run: Path, tables: list[Tables], notes: dict[str, str], folder: Path) -> None:
    """The evaluation's records; `predictions.csv` last: where it is, the evaluation has ended."""
    write_bytes(json.dumps(notes, indent=1).encode(), folder / files.NOTES)
    score, survival = (pd.concat(parts) for parts in zip(*tables, strict=True))
    internal = assembly.metrics(reports.read(run)).model_dump(mode="json", exclude={"files", "patients", "failures"})
    last = {files.SURVIVAL: predictions.dumps(survival), files.EVALUATION: json.dumps(internal, indent=1).encode()}
    hashes.write(folder, [], last | {files.PREDICTIONS: predictions.dumps(score)})


def finished(run: Path) -> Study:
    """The settings of a run whose training has ended. Raises UsageError where it has not."""
    if not (run / files.PREDICTIONS).exists() or not (run / files.FOLDS).exists():
        raise UsageError(f"{run}: no {files.PREDICTIONS} and {files.FOLDS}; a run whose training has ended has both")
    return origin.settings(run)


def _on(past: Study, workers: int, **changed: Any) -> Study:
    """The run's settings for other patients, whom its reviewer has not seen."""
    own = {"prepare": past.prepare.model_copy(update={"workers": workers}), "qc": past.qc.model_copy(update={"decisions": None})}
    return past.model_copy(update={**changed, **own})


def _mean_of_folds(run: Path, study: Study, patients: list[Patient], console: Console) -> Tables:
    """As `mean_of_folds`, with a bar."""
    with progress(console) as bar:
        task = bar.add_task("predict", total=None, note="")
        return mean_of_folds(run, study, patients, lambda done, of: bar.update(task, completed=done, total=of))


def mean_of_folds(run: Path, study: Study, patients: list[Patient], report: Callable[[int, int], None]) -> Tables:
    """(patient, endpoint, score, models) and (patient, endpoint, horizon_days, survival, models), averaged over the folds.

    `report` is called with the number of folds whose model has predicted, and of all.
    """
    predicted = []
    homes = sorted(file.parent for file in run.glob(f"{files.FOLD_GLOB}/{files.WEIGHTS}"))
    for done, home in enumerate(homes, 1):
        predicted.append(Neural.fitted(study, home).predict([without_labels(p) for p in patients]))
        report(done, len(homes))
    return _averaged(predicted)


def _averaged(parts: list[Tables]) -> Tables:
    means = []
    for tables, value, keys in (
        ([score for score, _ in parts], "score", ["patient", "endpoint"]),
        ([survival for _, survival in parts], "survival", ["patient", "endpoint", "horizon_days"]),
    ):
        grouped = pd.concat(tables).groupby(keys, sort=False)[value].agg(["mean", "size"])
        grouped.columns = [value, "models"]  # models: how many folds had a head for it
        means.append(grouped.reset_index())
    return means[0], means[1]


def _judged(model: str, tables: Tables, patients: list[Patient], study: Study, run: Path) -> Tables:
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


Covariates = Callable[[list[Patient], Study, Path], pd.DataFrame]


def _control(run: Path, past: Study, study: Study, patients: list[Patient], covariates: Covariates) -> Tables:
    """A control as it was in the run: one regression per fold on the run's own patients, averaged over the folds."""
    inside = frozen.included(past, run)
    inner, outer = covariates(inside, past, run), covariates(patients, study, run)
    if list(inner) != list(outer) or not (inner.dtypes == outer.dtypes).all():
        raise UsageError("its columns are of another kind (numbers or words) in this cohort")
    predicted = []
    for repeat, split in enumerate(folds.load(run / files.FOLDS, inside)):
        for fold, ids in enumerate(split):
            train, _, _ = parts(inside, ids, past, fold_seed(past, repeat, fold))
            regressions = Regressions(past.endpoints)
            regressions.fit(inner, train)
            predicted.append(regressions.predict(outer.loc[[p.id for p in patients]]))
    return _averaged(predicted)


def _clinical_columns(run: Path) -> str:
    return _json(run / files.NOTES).get("clinical_columns", "")


def _json(file: Path) -> Any:
    if not file.exists():
        raise UsageError(f"{file}: no such file; the run was made by an older version, which cannot be evaluated")
    return read_json(file)


def _clinical(patients: list[Patient], study: Study, run: Path) -> pd.DataFrame:
    columns = [name for name in _clinical_columns(run).split(", ") if name]
    lacking = [name for name in columns if name not in patients[0].clinical]
    if lacking or not columns:
        raise UsageError(f"the cohort table has no column {', '.join(lacking)}" if lacking else "the run had no clinical column")
    return clinical_table(patients, columns)


def _volume(patients: list[Patient], study: Study, run: Path) -> pd.DataFrame:
    _require_prepared(patients, study)
    return controls.volume_table(patients, study)


def _intensity(patients: list[Patient], study: Study, run: Path) -> pd.DataFrame:
    _require_prepared(patients, study)
    return intensity_table(patients, study)


def _require_prepared(patients: list[Patient], study: Study) -> None:
    """Raise UsageError that names a patient who is not prepared any more, or whose tumour mask is gone."""
    for patient in patients:
        mask = patient.tumour_mask
        if not (study.prepared / patient.id / files.PATIENT).is_file() or (mask and not mask.is_file()):
            raise UsageError(f"not made: the prepared patient {patient.id}, or their tumour mask, is not there")


def _before(run: Path, past: Study, patients: list[Patient], known: Callable[[Path], list[str]]) -> list[str]:
    """Which of `patients` are, by id, of those whom the weights that the run started from had `known`."""
    own = {patient.subject for patient in cohort.read(run / files.COHORT, past.endpoints, channels=past.channels)}
    found = {subject for file in run.glob(f"{files.FOLD_GLOB}/{files.WEIGHTS}") for subject in known(file)} - own
    return sorted(found & {patient.subject for patient in patients})


def _refuse_own_patients(run: Path, study: Study, patients: list[Patient]) -> None:
    """A patient whom the run was trained on, under whatever id and in whatever file, is no external test."""
    known = _json(run / files.VOXELS)
    with as_written(run / files.VOXELS):
        inside = {sha256: i for i, scans in known.items() for sha256 in scans}
    for patient in patients:
        for sha256 in voxels(study.prepared / patient.id):
            twin = inside.get(sha256)
            if twin:
                raise UsageError(f"{study.cohort}: patient {patient.id} has a scan of {twin}, whom the run {run} was trained on")
