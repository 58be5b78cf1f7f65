"""Preflight: what can be wrong with a study before hours go into it; quick to import, so that a wrong path is named at once."""

from __future__ import annotations

from rich.console import Console

from mri_vit.crossval import comparators, folds
from mri_vit.data import cohort
from mri_vit.data.cohort import Patient
from mri_vit.run.screen import WARNING, say
from mri_vit.settings import source
from mri_vit.settings.models import CLINICAL
from mri_vit.settings.schema import Prepare, Study


def check(study: Study, console: Console) -> int:
    """Check table, folds and networks, print what is known, and give the number of patients who will be excluded.

    Raises UsageError where the study cannot be run; IntegrityError for damaged weights.
    """
    patients = cohort.read(study.cohort, study.endpoints, study.prepare.needs)
    folds.check(patients, study.endpoints, study.train)
    columns = []
    if CLINICAL in study.controls.models:
        from mri_vit.data.covariates import clinical_columns  # here, because pandas takes half a second

        columns = clinical_columns(patients, study)
    comparators.check(study, patients)
    known = ", ".join(f"{e.name} {sum(p.knows(e) for p in patients)}" for e in study.endpoints)
    say(console, f"{study.name}: {len(patients)} patients; labels known: {known}")
    if CLINICAL in study.controls.models:
        say(console, f"the control clinical-only reads {', '.join(columns) or 'no column: there will be no such control'}")
    return sum(_is_excluded(patient, study.prepare, console) for patient in patients)


def _is_excluded(patient: Patient, prepare: Prepare, console: Console) -> bool:
    """Whether the patient's files, of which those that are not as they should be are printed, exclude the patient."""
    masks = {"tumour_mask": patient.tumour_mask}
    if prepare.brain in ("auto", "mask"):
        masks["brain_mask"] = patient.brain_mask
    wrong = {
        name: f"no {name}" + f" ({why})" * (why != source.ABSENT)
        for name, file in (patient.scans | masks).items()
        if file and (why := source.fault(file))
    }
    empty = {name: f"no {name}" for name, file in patient.scans.items() if not file}
    if not wrong and not empty:
        return False
    excluded = bool(wrong) or any(name in prepare.needs for name in empty)  # a file that is named must be there
    then = "the patient will be excluded" if excluded else "it is left empty"
    say(console, f"{patient.id}: {', '.join((empty | wrong).values())}; {then}", WARNING)
    return excluded
