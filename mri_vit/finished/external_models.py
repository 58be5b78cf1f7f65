"""External models: what each model of a run predicts of another cohort, in the form of a run's tables, and notes on it.

Networks predict as they are. Each fold's regressions, and vit+clinical, are fitted again on the run's own patients alone:
what they learned is not kept in the run (two weights and a small regression), which the same patients determine anew in
seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from rich.console import Console

from mri_vit.crossval import folds
from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.leakage import sites
from mri_vit.crossval.loop import Tables, by_patient, fold_seed, parts, with_truth
from mri_vit.data import predictions, run_cohort
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.data.covariates import clinical_table, remarks
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.finished import overlap, trained_run
from mri_vit.finished.trained_run import averaged, notes_of, places
from mri_vit.model.weights import image_exposed
from mri_vit.predictors.late_fusion import LateFusion, equally_weighted
from mri_vit.predictors.network import Neural
from mri_vit.predictors.patient_tables import intensity_table, volume_table
from mri_vit.predictors.regressions import control as built
from mri_vit.predictors.slices import slices_table
from mri_vit.run import files, folder
from mri_vit.run.integrity import read_json
from mri_vit.run.screen import WARNING, say
from mri_vit.settings.recipe import CLINICAL, FUSED, INTENSITY, PERMUTED, SITE, SLICES, VIT, VOLUME
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Controls

Notes = dict[str, str]  # by model, why it is not judged; and by topic, on what the others rest
# Nor would a value beside 0.5 be a fault: a permutation of few labels is seldom quite without a relation to the true ones.
NO_LEAK = "not asked here: its labels were permuted among the run's own patients, so that others' hold nothing to find again"
Covariates = Callable[[Sequence[Patient], Study, Path], pd.DataFrame]  # patients, their study and the run's folder in


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
            said = trained_run.with_bar(comparator_folder(run, name), of, patients, console, f"predict, {name}")
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
    asked = [name for name in COVARIATES if name in past.controls.models]
    return [FUSED, *asked] if past.fused else asked


def _refitted(name: str, run: Path, past: Study, study: Study, patients: Sequence[Patient]) -> tuple[Tables, str]:
    """The tables of one of these, and a note."""
    if name == FUSED:
        return fused(run, past, study, patients)
    return control(name, run, past, study, patients), ""


def _transductive(run: Path, past: Study, patients: Sequence[Patient]) -> str:
    """Which networks started from weights that are image-exposed to patients whom they are judged on here."""
    found = overlap.patients_known_by_network(run, past, patients, image_exposed)
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


def control(name: str, run: Path, past: Study, study: Study, patients: Sequence[Patient]) -> Tables:
    """A control as it was in the run: one regression per fold on the run's own patients, averaged over the folds.

    Raises UsageError where it cannot be asked, with the reason.
    """
    inside = run_cohort.included(past, run)
    inner, outer = covariates(COVARIATES[name], run, past, inside, study, patients)
    predicted = []
    for repeat, split in enumerate(folds.load(run / files.FOLDS, inside)):
        for fold, ids in enumerate(split):
            train, tune, _ = parts(inside, ids, past, fold_seed(past, repeat, fold))
            regression = built(name, inner, past)
            regression.fit(train, tune)
            predicted.append(regression.of(outer).predict([without_labels(p) for p in patients]))
    return averaged(predicted)


def covariates(
    read: Covariates, run: Path, past: Study, inside: Sequence[Patient], study: Study, patients: Sequence[Patient]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What a control reads of the run's own patients `inside`, and of the others. Raises UsageError where they differ in kind."""
    inner, outer = read(inside, past, run), read(patients, study, run)
    differ = [name for name in inner if name not in outer or inner[name].dtype != outer[name].dtype]
    if differ or list(inner) != list(outer):
        raise UsageError(f"columns are of another kind (numbers or words) in this cohort: {', '.join(map(str, differ))}")
    return inner, outer


def clinical(patients: Sequence[Patient], study: Study, run: Path) -> pd.DataFrame:
    """The run's clinical columns of these patients. Raises UsageError where their table lacks one."""
    columns = [name for name in notes_of(run).get("clinical_columns", "").split(", ") if name]
    lacking = [name for name in columns if name not in patients[0].clinical | patients[0].labels]
    if lacking or not columns:
        raise UsageError(f"the cohort table has no column {', '.join(lacking)}" if lacking else "the run had no clinical column")
    return clinical_table(patients, columns)


def volume(patients: Sequence[Patient], study: Study, run: Path) -> pd.DataFrame:
    """The volumes of these patients. Raises UsageError where one is not prepared any more."""
    require_prepared(patients, study)
    return volume_table(patients, study)


def intensity(patients: Sequence[Patient], study: Study, run: Path) -> pd.DataFrame:
    """The intensities of these patients. Raises UsageError where one is not prepared any more."""
    require_prepared(patients, study)
    return intensity_table(patients, study)


def slices(patients: Sequence[Patient], study: Study, run: Path) -> pd.DataFrame:
    """The frozen features of these patients' slices. Raises UsageError where one is not prepared any more or without the file."""
    require_prepared(patients, study)
    if study.controls.slices is None:
        raise UsageError("the run has none: no file of a 2D Vision Transformer was given")
    return slices_table(patients, study)


def site(patients: Sequence[Patient], study: Study, run: Path) -> pd.DataFrame:
    """The site of each, where it is one of those that the run's regression knows.

    Raises UsageError where it could say nothing that differs between these patients.
    """
    known = set(sites(run_cohort.included(folder.run_settings(run), run)).values())
    of = {p.id: name if (name := p.clinical.get("site", "")) in known else None for p in patients}
    if not any(of.values()):
        raise UsageError("no patient here is of a site that the run was trained on, so it would say the same of everybody")
    if len(set(of.values())) < 2:
        raise UsageError("all patients here are of one site, so it would say the same of everybody")
    return pd.DataFrame({"site": list(of.values())}, pd.Index(list(of)), dtype=object)


# By control.
COVARIATES: dict[str, Covariates] = {CLINICAL: clinical, VOLUME: volume, INTENSITY: intensity, SLICES: slices, SITE: site}


def require_prepared(patients: Sequence[Patient], study: Study) -> None:
    """Raise UsageError that names a patient who is not prepared any more, or whose tumour mask is gone."""
    for patient in patients:
        mask = patient.tumour_mask
        if not (study.prepared / patient.id / files.PATIENT).is_file() or (mask and not mask.is_file()):
            raise UsageError(f"not made: the prepared patient {patient.id}, or their tumour mask, is not there")


def fused(run: Path, past: Study, study: Study, patients: Sequence[Patient]) -> tuple[Tables, str]:
    """The mean over the folds, and which of them weigh network and columns equally.

    Raises
    ------
    UsageError
        The run's patients are not prepared any more, or this cohort lacks a clinical column; with the reason.
    IntegrityError
        A fold's fusion, fitted again, is weighed otherwise than the run says.
    """
    homes = [home for home, _, _ in _folds(run, past)]
    return averaged(_each_fold(run, past, study, patients)), equally_weighted(homes)


def _each_fold(run: Path, past: Study, study: Study, patients: Sequence[Patient]) -> Iterator[Tables]:
    inside = run_cohort.included(past, run)
    require_prepared(inside, past)
    inner, outer = covariates(clinical, run, past, inside, study, patients)
    for home, fold, (train, tune) in _folds(run, past):
        with TemporaryDirectory(prefix="mri-vit-") as nowhere:  # a run that is evaluated is not written to
            fusion = LateFusion(Neural.fitted(networks(past)[VIT], fold), inner, Path(nowhere))
            fusion.fit(train, tune)
            if read_json(Path(nowhere) / files.FUSION) != read_json(home / files.FUSION):
                raise IntegrityError(f"{home / files.FUSION}: fitted again, {FUSED} is weighed otherwise; train the run again")
            yield fusion.of(Neural.fitted(networks(study)[VIT], fold), outer).predict([without_labels(p) for p in patients])


def _folds(run: Path, past: Study) -> Iterator[tuple[Path, Path, tuple[list[Patient], list[Patient]]]]:
    """Of each fold the fusion's folder, the network's, and the training and tuning patients."""
    inside = run_cohort.included(past, run)
    for repeat, split in enumerate(folds.load(run / files.FOLDS, inside)):
        for fold, ids in enumerate(split):
            train, tune, _ = parts(inside, ids, past, fold_seed(past, repeat, fold))
            home = comparator_folder(run, FUSED)
            yield files.fold_folder(home, repeat, fold), files.fold_folder(run, repeat, fold), (train, tune)
