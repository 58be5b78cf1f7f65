"""Predict new patients: a finished run and a patient's scans, or a table of several, in; a folder per patient and tables out.

What prepares and predicts is imported once nothing is left to refuse.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from mri_vit.data import run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.finished import trained_run
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.importers.new_patients import CONVERTED, NewPatients, read_new_patients
from mri_vit.run import files, integrity, resource
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import read_json
from mri_vit.run.screen import WARNING, printable, progress, say
from mri_vit.settings.schema import Study
from mri_vit.settings.source import licence_caution, licence_text, stated_licence

if TYPE_CHECKING:
    from mri_vit.finished.predicted_patient import Basis
    from mri_vit.finished.prediction_document import Prediction, RunFacts
    from mri_vit.prepare.patient import Excluded
    from mri_vit.report.schema.metrics import Metrics

RESERVED = {  # names in the output
    *(files.STUDY, files.ENVIRONMENT, files.ORIGIN, files.COHORT, files.EXCLUDED, files.FINDINGS, files.DECISIONS, files.JOBS),
    *(files.PREDICTIONS, files.SURVIVAL, files.PAGE, files.LOG, "prepared", CONVERTED),
}
STARTED = "training started from external weights ({file}), {licence}"
OWN_LICENCE = "trained in this study from random weights; the owner of the run sets the terms"
SYNTHETIC = f"the run was trained on synthetic patients ({{learned}}), but this patient is real: {run_cohort.NO_FINDING}"
PRETRAINED = "pretrained without labels ({method}) on the study's own patients, then trained in this study"


@dataclass(frozen=True)
class Allowed:
    """What is predicted, and marked, only on request."""

    untrusted: bool = False  # endpoints that the run predicts no better than chance
    known: bool = False  # patients that the run was trained on
    synthetic: bool = False  # real patients by a run of synthetic ones


def predict(run_home: Path, source: Path, output: Path, workers: int, allowed: Allowed, console: Console) -> Excluded:
    """Predict new patients by the mean of a run's fold models; nothing is fitted anew, and no label is read.

    Parameters
    ----------
    run_home
        Folder of a run whose training has ended.
    source
        A cohort table, or the folder of one patient's scans (see `read_new_patients`).
    output
        For each patient a folder with `prediction.json`, `qc.png` and `maps`, complete or absent; beside them
        `predictions.csv`, `survival.csv` and `excluded.csv`. Patients who are prepared there are not prepared again.
    workers
        Patients prepared in parallel.

    Returns
    -------
    Rows of `excluded.csv`: patients who could not be prepared or drawn, with file and reason.

    Raises
    ------
    UsageError
        No finished run, scans that cannot be identified, a patient the run was trained on, or a real patient where the run's
        were synthetic.
    IntegrityError
        A file of the run was changed after it was written.
    """
    run = trained_run.open_run(run_home)
    integrity.refuse_changed_run(run.folder, console, integrity.OWN_FOLDS)
    study = study_of_new_patients(run.study, source, output, workers)
    with run_folder.claimed(study) as folder:
        new = read_new_patients(source, study.channels, study.prepare.needs, output, lambda line: say(console, line, WARNING))
        real = run_cohort.refuse_real(run.folder, new.patients, allowed.synthetic, "--allow-synthetic")
        if not run.networks:
            raise UsageError(f"{run.folder}: no fold has {files.WEIGHTS}; the networks of a run are needed to predict")
        from mri_vit.finished import predicted_patient
        from mri_vit.prepare.patient import excluded_table, without_excluded
        from mri_vit.qc.check import prepare

        for table in (files.PREDICTIONS, files.SURVIVAL):  # of an earlier command, which may have shown more
            (folder / table).unlink(missing_ok=True)
        began = time.monotonic()
        excluded = prepare(study, new.patients, folder, console)
        patients = run_cohort.segmented(without_excluded(new.patients, excluded), study)
        if patients:
            seconds = {"prepare": (time.monotonic() - began) / len(new.patients)}
            excluded += _predicted(run, study, patients, new, real, allowed, seconds, folder, console)
            write_bytes(excluded_table(excluded), folder / files.EXCLUDED)
        for row in excluded:
            predicted_patient.forget(home_of(row["patient"], folder))
    return excluded


def study_of_new_patients(past: Study, source: Path, output: Path, workers: int) -> Study:
    """The run's settings for other patients, without its reviewer's decisions.

    A program of the user's own finds a tumour only where scans are cropped around it: nothing else in a prediction needs one.
    """
    prepare: dict[str, Any] = {"workers": workers}
    if past.prepare.tumour_command and past.prepare.tumour_crop_margin_mm is None:
        prepare |= {"tumour_command": (), "tumour": "given"}  # the finder's masks are not that program's
    return past.model_copy(
        update={
            "cohort": source.resolve(),
            "output": output.resolve(),
            "prepared": output.resolve() / "prepared",
            "prepare": past.prepare.model_copy(update=prepare),
            "qc": past.qc.model_copy(update={"decisions": None}),
        }
    )


def home_of(patient: str, folder: Path) -> Path:
    """A patient's folder in the output; a leading _, which no id has, keeps it apart from the output's own files."""
    return folder / (f"_{patient}" if patient.casefold() in RESERVED else patient)


def _predicted(
    run: TrainedRun,
    study: Study,
    patients: list[Patient],
    new: NewPatients,
    real: Sequence[Patient],
    allowed: Allowed,
    seconds: dict[str, float],
    folder: Path,
    console: Console,
) -> Excluded:
    """Write the folders and tables of prepared patients; returns those whose scans could not be read for the maps."""
    from mri_vit.data import predictions
    from mri_vit.finished import network_outputs, predicted_endpoints, predicted_patient, reference, run_metrics
    from mri_vit.finished.predicted_endpoints import RunResults
    from mri_vit.finished.predicted_patient import Basis
    from mri_vit.prepare.patient import without_excluded

    resource.keep_freed_memory()
    overlaps = trained_run.overlap(run, study.prepared, patients, console)
    excluded = [] if allowed.known else trained_run.refused_patients(run, study.cohort, overlaps, console)
    patients = without_excluded(patients, excluded)
    metrics, verdicts = run_metrics.metrics_of_folder(run.folder)
    with progress(console) as bar:
        total = len(run.networks)
        task = bar.add_task("compare", total=total, note="with the run's patients, once per run")
        began = time.monotonic()
        of_run = reference.reference_of_run(run, lambda: bar.update(task, advance=1))
        bar.update(task, completed=total, note="")
        compared = time.monotonic()
        task = bar.add_task("predict", total=total, note="")
        outputs = network_outputs.fold_outputs(run, study, patients, lambda: bar.update(task, advance=1))
        seconds |= {"reference": (compared - began) / len(patients), "networks": (time.monotonic() - compared) / len(patients)}
    facts = _facts(run, metrics, verdicts)
    basis = Basis(
        facts=facts,
        of_run=RunResults.of(metrics, predictions.load(run.folder / files.PREDICTIONS, run.study.endpoints), run.study),
        reference=of_run,
        weights={place: home / files.WEIGHTS for place, home in run.networks.items()},
        synthetic={patient.id: SYNTHETIC.format(learned=facts.synthetic) for patient in real},
        show_untrusted=allowed.untrusted,
        home=new.home,
        remarks=new.remarks,
        seconds=seconds,
        versions={name: version(name) for name in ("mri-vit", "torch", "numpy", "SimpleITK", "nibabel")},
    )
    written: dict[str, Prediction] = {}
    with progress(console) as bar:
        task = bar.add_task("write", total=len(patients), note="")
        for patient in patients:
            name = patient.id
            try:
                written[name] = predicted_patient.write_patient(
                    patient, study, outputs[name], overlaps[name], basis, home_of(name, folder)
                )
            except UnusablePatient as error:
                excluded.append({"patient": name, "file": printable(Path(error.file).name), "reason": printable(error.reason)})
                say(bar.console, f"excluded {name}: {error}", WARNING)
            bar.update(task, advance=1)
    for table, name in zip(predicted_endpoints.tables(written, outputs), (files.PREDICTIONS, files.SURVIVAL), strict=True):
        predictions.save(table, folder / name)
    _print_cautions(written, basis, folder, console)
    return excluded


def _facts(run: TrainedRun, metrics: Metrics, verdicts: Literal["report", "computed"]) -> RunFacts:
    from mri_vit.finished.prediction_document import RunFacts, Weights
    from mri_vit.report.words.protocol import tumour_masks

    study, home = run.study, run.folder
    masks = tumour_masks(study.prepare, study.channels, tuple(metrics.tumours.values()))
    weights = [
        files.seed_folder(fold, seed) / files.WEIGHTS for fold in run.networks.values() for seed in range(study.train.seeds)
    ]
    beginning, licence = beginning_and_licence(study)
    return RunFacts(
        study=study.name,
        patients=len({patient.subject for patient in run.patients}),
        folds=len(run.splits[0]),
        repeats=len(run.splits),
        seeds=study.train.seeds,
        folds_sha256=integrity.sha256(home / files.FOLDS),
        predictions_sha256=integrity.sha256(home / files.PREDICTIONS),
        verdicts=verdicts,
        weights=tuple(Weights(file=file.relative_to(home).as_posix(), sha256=integrity.sha256(file)) for file in weights),
        beginning=beginning,
        tumour_masks=masks if study.train.uses_tumour_masks else None,
        licence=licence,
        versions=read_json(home / files.ENVIRONMENT, ("versions",))["versions"],
        synthetic=run_cohort.synthetic_clause(home) or None,
    )


def beginning_and_licence(study: Study) -> tuple[str, str]:
    """Where training started from, and the licence of the weights: for external weights the one that the study states."""
    pretrained = PRETRAINED.format(method=study.pretrain.method) if study.pretrain.method != "none" else ""
    if study.model.weights is None:
        return pretrained or "trained in this study from random weights", OWN_LICENCE
    name = study.model.weights.name
    beginning = f"started from the weights {name}" + (f", {pretrained}" if pretrained else ", then trained in this study")
    stated = stated_licence(study.model.weights_licence)
    terms = STARTED.format(file=name, licence=licence_text(stated))
    return beginning, "; ".join(filter(None, [terms, licence_caution(name, stated)]))


def _print_cautions(written: Mapping[str, Prediction], basis: Basis, folder: Path, console: Console) -> None:
    for sentence in dict.fromkeys(basis.synthetic.values()):
        say(console, sentence, WARNING)
    for name, made in written.items():
        for endpoint, result in made.endpoints.items():
            if result.withheld:
                say(console, f"{name}: {endpoint} withheld: {result.withheld}")
        if all(result.withheld for result in made.endpoints.values()):
            say(console, f"{name}: all endpoints are withheld; --show-untrusted shows them, marked as unreliable", WARNING)
        if made.distribution.placement != "within":
            say(console, f"{name}: {made.distribution.sentence}", WARNING)
    say(console, f"predictions: {folder / files.PREDICTIONS}, and a folder per patient beside it")
