"""Evaluation: a run and another cohort with known labels in, its models' predictions and a report of them out."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from rich.console import Console

from mri_vit import study as stages
from mri_vit.crossval.comparators import comparator_folder, networks
from mri_vit.crossval.loop import Tables, stacked
from mri_vit.data import cohort, predictions, run_cohort
from mri_vit.errors import UsageError
from mri_vit.explain import map_jobs
from mri_vit.finished import external_models, overlap
from mri_vit.finished.trained_run import finished, on_others, places
from mri_vit.model.weights import label_exposed
from mri_vit.prepare.patient import Excluded, without_excluded
from mri_vit.report import assembly
from mri_vit.report.reading import run as reports
from mri_vit.run import files, integrity
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.settings.recipe import VIT
from mri_vit.settings.schema import Study

OWN = ("channels", "grid", "prepare", "model", "train", "controls")  # keys that belong to the run, not to the other cohort


def evaluate(run: Path, other: Study, given: set[str], console: Console, allow_synthetic: bool = False) -> Excluded:
    """Evaluate a run on another cohort with known labels, and write a report into that study's output.

    `other` names cohort, prepared, output and endpoints; `given` are the sections that its file sets. How scans are prepared
    and what is a model stays the run's own. Every model of the run is judged, as `models.tables` has it; thresholds are the mean
    of the folds'. Late fusion and controls are those of the run, fitted on the run's own patients.

    Raises UsageError when the file sets a section that is the run's own, names an endpoint that the run does not have, or
    holds a patient of the run (known by the scans' hashes) or one whose labels the run's weights were exposed to (by the id); and
    where a run of synthetic patients is asked about real ones, unless `allow_synthetic`: then the report says so.
    """
    past = finished(run)
    integrity.refuse_changed_run(run, console, _asked(run, past))
    study = elsewhere(run, past, other, given)
    with run_folder.claimed(study) as folder:
        patients = cohort.of_study(study)
        asked = run_cohort.refuse_real(run, patients, allow_synthetic, "--allow-synthetic")
        patients = run_cohort.freeze(study, patients, folder)
        if inside := overlap.patients_known_before(run, past, patients, label_exposed):
            raise UsageError(
                f"{study.cohort}: {', '.join(inside)} would be no external test: weights that the run {run} started from knew"
                " labels of patients with these ids; leave them out, or give other people other ids"
            )
        excluded = stages.prepare(study, patients, folder, console)
        patients = without_excluded(patients, excluded)
        if patients:
            overlap.refuse_own_patients(run, study, patients)
            tables, notes = external_models.tables(run, past, study, patients, console)
            if learned := run_cohort.synthetic_clause(run):
                notes[run_cohort.SYNTHETIC_NOTE] = (
                    f"the run was trained on synthetic patients ({learned}); {len(asked)} of those judged here are real"
                )
            _write(run, study, tables, notes, folder)
            if study.explained and VIT not in notes:
                of_first_repeat = sum(repeat == 0 for repeat, _ in places(run))
                map_jobs.run_on_unseen(study, patients, run, of_first_repeat, folder, console)
            stages.report(folder, console)
    return excluded


def _asked(run: Path, past: Study) -> list[str]:
    """Globs of the folders of folds whose networks are asked: of one that lacks weights, it is noted."""
    gone = external_models.lacking(run, past)
    homes = (comparator_folder(run, name).relative_to(run) for name in networks(past) if name not in gone)
    return [str(home / files.FOLD_GLOB) for home in homes]


def elsewhere(run: Path, past: Study, other: Study, given: set[str]) -> Study:
    """The run's settings on the other study's cohort; comparators have no maps there, whichever had some in the run.

    Raises UsageError when the two contradict each other.
    """
    differing = [name for name in OWN if name in given and getattr(other, name) != getattr(past, name)]
    if differing:
        key = differing[0] if differing[0] == "channels" else f"[{differing[0]}]"
        raise UsageError(f"{key} belongs to the run {run} and cannot be changed for an evaluation; leave it out")
    known = {endpoint.name: endpoint.kind for endpoint in past.endpoints}
    strange = [e.name for e in other.endpoints if known.get(e.name) != e.kind]
    if strange:
        raise UsageError(f"{run} does not predict {strange[0]!r}; it has {', '.join(known)}: name those under [[endpoints]]")
    study = on_others(
        past, name=other.name, cohort=other.cohort, output=other.output, prepared=other.prepared, workers=other.prepare.workers
    )
    theirs = {"endpoints": other.endpoints, "report": other.report, "qc": other.qc}
    if "explain" in given and past.model.attends:  # another network has no maps, whatever is asked for
        theirs["explain"] = other.explain
    study = study.model_copy(update=theirs)
    return study.model_copy(update={"explain": study.explain.model_copy(update={"comparators": ()})})


def _write(run: Path, study: Study, tables: list[Tables], notes: dict[str, str], folder: Path) -> None:
    """The evaluation's records; `predictions.csv` last: where it is, the evaluation has ended."""
    write_bytes(json.dumps(notes, indent=1).encode(), folder / files.NOTES)
    score, survival = (stacked(parts) for parts in zip(*tables, strict=True))
    internal = assembly.metrics(reports.read_run(run)).model_dump(mode="json", exclude={"files", "patients", "failures"})
    last = {files.SURVIVAL: predictions.dumps(survival), files.EVALUATION: json.dumps(internal, indent=1).encode()}
    last |= dict(zip(integrity.INTERNAL_TABLES, map(predictions.dumps, _internal(run, study, score)), strict=True))
    integrity.write_hashed(folder, [], last | {files.PREDICTIONS: predictions.dumps(score)})


def _internal(run: Path, study: Study, score: pd.DataFrame) -> Tables:
    """The run's own tables of the endpoints and models that are judged here; no patient of the run is named elsewhere."""
    tables = predictions.load(run / files.PREDICTIONS), predictions.load_survival(run / files.SURVIVAL)
    names = [endpoint.name for endpoint in study.endpoints]
    numbers = {name: str(number) for number, name in enumerate(tables[0].patient.unique(), 1)}
    inside, alive = (table.loc[table.endpoint.isin(names) & table.model.isin(score.model)] for table in tables)
    return inside.assign(patient=inside.patient.map(numbers)), alive.assign(patient=alive.patient.map(numbers))
