"""Controls: a run's regressions on another cohort, each fold's fitted again on the run's own patients alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from mri_vit.crossval import folds
from mri_vit.crossval.loop import Tables, fold_seed, parts
from mri_vit.crossval.site_probe import sites
from mri_vit.data import frozen
from mri_vit.data.cohort import Patient, without_labels
from mri_vit.data.covariates import clinical_table
from mri_vit.errors import UsageError
from mri_vit.external.ensemble import averaged
from mri_vit.external.finished import notes_of
from mri_vit.predictors import tabular
from mri_vit.predictors.control import control as built
from mri_vit.predictors.intensity import intensity_table
from mri_vit.predictors.slices import slices_table
from mri_vit.run import files, folder
from mri_vit.settings.recipe import CLINICAL, INTENSITY, SITE, SLICES, VOLUME
from mri_vit.settings.schema import Study

Covariates = Callable[[Sequence[Patient], Study, Path], pd.DataFrame]  # patients, their study and the run's folder in


def control(name: str, run: Path, past: Study, study: Study, patients: Sequence[Patient]) -> Tables:
    """A control as it was in the run: one regression per fold on the run's own patients, averaged over the folds.

    Raises UsageError where it cannot be asked, with the reason.
    """
    inside = frozen.included(past, run)
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
    return tabular.volume_table(patients, study)


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
    known = set(sites(frozen.included(folder.run_settings(run), run)).values())
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
