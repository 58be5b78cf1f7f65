"""Controls: a run's regressions on another cohort, each fold's fitted again on the run's own patients alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from mri_vit.crossval import folds
from mri_vit.crossval.loop import Tables, fold_seed, parts
from mri_vit.data import frozen
from mri_vit.data.cohort import Patient
from mri_vit.data.covariates import clinical_table
from mri_vit.errors import UsageError
from mri_vit.external.ensemble import averaged
from mri_vit.external.familiar import OLDER
from mri_vit.predictors import tabular
from mri_vit.predictors.intensity import intensity_table
from mri_vit.predictors.tabular import Regressions
from mri_vit.run import files
from mri_vit.run.record import read_json
from mri_vit.settings.models import CLINICAL, INTENSITY, VOLUME
from mri_vit.settings.schema import Study

Covariates = Callable[[Sequence[Patient], Study, Path], pd.DataFrame]  # patients, their study and the run's folder in


def control(run: Path, past: Study, study: Study, patients: Sequence[Patient], covariates: Covariates) -> Tables:
    """A control as it was in the run: one regression per fold on the run's own patients, averaged over the folds.

    Raises UsageError where it cannot be asked, with the reason.
    """
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
    return averaged(predicted)


def clinical_columns(run: Path) -> str:
    """The columns of the run's control clinical, parted by ", "; "" where it had none."""
    if not (run / files.NOTES).exists():
        raise UsageError(f"{run / files.NOTES}: no such file; {OLDER}")
    return read_json(run / files.NOTES).get("clinical_columns", "")


def clinical(patients: Sequence[Patient], study: Study, run: Path) -> pd.DataFrame:
    """The run's clinical columns of these patients. Raises UsageError where their table lacks one."""
    columns = [name for name in clinical_columns(run).split(", ") if name]
    lacking = [name for name in columns if name not in patients[0].clinical]
    if lacking or not columns:
        raise UsageError(f"the cohort table has no column {', '.join(lacking)}" if lacking else "the run had no clinical column")
    return clinical_table(patients, columns)


def volume(patients: Sequence[Patient], study: Study, run: Path) -> pd.DataFrame:
    """The volumes of these patients. Raises UsageError where one is not prepared any more."""
    _require_prepared(patients, study)
    return tabular.volume_table(patients, study)


def intensity(patients: Sequence[Patient], study: Study, run: Path) -> pd.DataFrame:
    """The intensities of these patients. Raises UsageError where one is not prepared any more."""
    _require_prepared(patients, study)
    return intensity_table(patients, study)


COVARIATES: dict[str, Covariates] = {CLINICAL: clinical, VOLUME: volume, INTENSITY: intensity}  # by control


def _require_prepared(patients: Sequence[Patient], study: Study) -> None:
    """Raise UsageError that names a patient who is not prepared any more, or whose tumour mask is gone."""
    for patient in patients:
        mask = patient.tumour_mask
        if not (study.prepared / patient.id / files.PATIENT).is_file() or (mask and not mask.is_file()):
            raise UsageError(f"not made: the prepared patient {patient.id}, or their tumour mask, is not there")
