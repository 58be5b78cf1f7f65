"""Evaluate a run on another cohort with known labels: its models' predictions there, notes on them, and a report.

What prepares and predicts is imported once nothing is left to refuse.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.data import cohort, run_cohort
from mri_vit.errors import UsageError
from mri_vit.finished import trained_run
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.run import files, integrity
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Endpoint, Study, folded

if TYPE_CHECKING:
    from mri_vit.prepare.patient import Excluded

OF_RUN = ("channels", "grid", "prepare", "model", "train", "controls")  # keys that belong to the run, not to the other cohort


def evaluate(home: Path, other: Study, given: set[str], console: Console, allow_synthetic: bool = False) -> Excluded:
    """Evaluate a run on another cohort with known labels, and write a report into that study's output.

    `other` names cohort, prepared, output and endpoints; `given` are the sections that its file sets. Preparation and models
    are the run's. Every model of the run is judged (see `evaluated_models.tables`); thresholds are the mean of the folds'. Late
    fusion and controls are fitted on the run's own patients.

    Raises UsageError when the file sets a section that belongs to the run, names an endpoint that the run does not have, or
    contains a patient of the run (by the scans' hashes) or one whose labels the run's weights were exposed to (by the id); and
    where a run of synthetic patients is evaluated on real ones without `allow_synthetic`, which makes the report warn of it.
    """
    run = trained_run.open_run(home)
    gone = trained_run.lacking(run)
    folds = (comparator_folder(run.folder, name).relative_to(run.folder) for name in networks(run.study) if name not in gone)
    integrity.refuse_changed_run(run.folder, console, [str(folder / files.FOLD_GLOB) for folder in folds])
    study = study_of_other_cohort(run, other, given)
    with run_folder.claimed(study) as folder:
        write_bytes(json.dumps({"run": run.folder.name}).encode(), folder / files.EVALUATED)
        patients = cohort.of_study(study)
        real = run_cohort.refuse_real(run.folder, run.synthetic, patients, allow_synthetic, "--allow-synthetic")
        patients = run_cohort.freeze(study, patients, folder)
        from mri_vit.explain import map_jobs
        from mri_vit.finished import evaluated_models
        from mri_vit.model.weights import label_exposed
        from mri_vit.prepare.patient import without_excluded
        from mri_vit.qc.check import prepare
        from mri_vit.report.pages.report_files import report_run

        if known := sorted(set().union(*trained_run.exposed_patients(run, patients, label_exposed).values())):
            raise UsageError(
                f"{study.cohort}: {', '.join(known)} would be no external test: weights that the run {run.folder} started from"
                " were trained on labels of patients with these ids; leave them out, or rename them if they are other people"
            )
        excluded = prepare(study, patients, folder, console)
        patients = run_cohort.segmented(without_excluded(patients, excluded), study)
        if patients:
            trained_run.refuse_own_patients(run, study, patients)
            predicted, notes = evaluated_models.tables(run, study, patients, console)
            if learned := run_cohort.synthetic_clause(run.folder):
                notes[run_cohort.SYNTHETIC_NOTE] = (
                    f"the run was trained on synthetic patients ({learned}); {len(real)} of the patients judged here are real"
                )
            evaluated_models.write(run, study.endpoints, predicted, notes, folder)
            if study.explained and VIT not in notes:
                map_jobs.run_on_unseen(study, patients, run.folder, sum(repeat == 0 for repeat, _ in run.places), folder, console)
            report_run(folder, console)
    return excluded


def study_of_other_cohort(run: TrainedRun, other: Study, given: set[str]) -> Study:
    """The run's settings on the other study's cohort; comparators get no maps there.

    Raises UsageError when the two contradict each other.
    """
    past = run.study
    if differing := [name for name in OF_RUN if name in given and getattr(other, name) != getattr(past, name)]:
        key = differing[0] if differing[0] == "channels" else f"[{differing[0]}]"
        raise UsageError(f"{key} belongs to the run {run.folder} and cannot be changed for an evaluation; leave it out")
    known = {endpoint.name: endpoint for endpoint in past.endpoints}
    endpoints = tuple(_as_learned(known.get(endpoint.name), endpoint, run) for endpoint in other.endpoints)
    # another architecture than a ViT has no maps, whatever the file asks for
    explain = other.explain if "explain" in given and past.model.attends else past.explain
    return past.model_copy(
        update={name: getattr(other, name) for name in ("name", "cohort", "output", "prepared", "report", "qc")}
        | {"endpoints": endpoints}
        | {"prepare": past.prepare.model_copy(update={"workers": other.prepare.workers})}
        | {"explain": explain.model_copy(update={"comparators": ()})}
    )


def _as_learned(own: Endpoint | None, other: Endpoint, run: TrainedRun) -> Endpoint:
    """The run's endpoint on the other study's columns: its classes, of which a cohort may lack some, and its unit.

    Raises UsageError where the run has no such endpoint, or another of that name.
    """
    if own is None or own.kind != other.kind:
        has = ", ".join(endpoint.name for endpoint in run.study.endpoints)
        raise UsageError(f"{run.folder} does not predict {other.name!r}; it has {has}: name those under [[endpoints]]")
    names = {folded(name) for name in own.classes or ()}
    if foreign := [name for name in other.classes or () if folded(name) not in names]:
        raise UsageError(
            f"{other.name}: the run {run.folder} never saw the class {foreign[0]!r}; it has {', '.join(own.classes or ())}: "
            "empty the cells of patients of other classes, or name the class as the run does"
        )
    if other.unit and other.unit != own.unit:
        raise UsageError(f"{other.name} is in {own.unit or 'no unit'} in the run {run.folder} and in {other.unit} here")
    if (own.competing is None) != (other.competing is None):
        has, here = (f"competing = {one.competing!r}" if one.competing else "no competing event" for one in (own, other))
        raise UsageError(f"{other.name} has {has} in the run {run.folder} and {here} here; both must count the same deaths")
    return own.model_copy(update={key: getattr(other, key) for key in ("time", "event", "competing", "prefer")})
