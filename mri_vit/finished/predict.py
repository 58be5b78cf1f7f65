"""Predict new patients: a trained model and a patient's scans, or a table of several, in; a folder per patient and tables out.

What prepares and predicts is imported once nothing is left to refuse.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mri_vit.data import run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.finished import exported_model, trained_run
from mri_vit.finished.exported_model import ExportedModel
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.importers.new_patients import CONVERTED, NewPatients, read_new_patients
from mri_vit.run import files, resource
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.run.screen import WARNING, printable, progress, say
from mri_vit.settings.schema import Study

if TYPE_CHECKING:
    from mri_vit.finished.predicted_patient import Basis
    from mri_vit.finished.prediction_document import Prediction
    from mri_vit.prepare.patient import Excluded

RESERVED = {  # names in the output
    *(files.STUDY, files.ENVIRONMENT, files.ORIGIN, files.COHORT, files.EXCLUDED, files.FINDINGS, files.DECISIONS, files.JOBS),
    *(files.PREDICTIONS, files.SURVIVAL, files.PAGE, files.LOG, "prepared", CONVERTED),
}
SYNTHETIC = f"the run was trained on synthetic patients ({{learned}}), but this patient is real: {run_cohort.NO_FINDING}"


@dataclass(frozen=True)
class Allowed:
    """What is predicted, and marked, only on request."""

    untrusted: bool = False  # endpoints that the run predicts no better than chance
    known: bool = False  # patients that the run was trained on
    synthetic: bool = False  # real patients by a run of synthetic ones


def predict(home: Path, source: Path, output: Path, workers: int, allowed: Allowed, console: Console) -> Excluded:
    """Predict new patients by the mean of a run's fold models; nothing is fitted anew, and no label is read.

    Parameters
    ----------
    home
        Folder of a run whose training has ended, or of a model that was exported from one.
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
    opened = exported_model.open_model(home) if exported_model.is_model(home) else trained_run.open_run(home)
    opened.refuse_changed(console)
    return predict_by(opened, source, output, workers, allowed, console)


def predict_by(
    opened: TrainedRun | ExportedModel, source: Path, output: Path, workers: int, allowed: Allowed, console: Console
) -> Excluded:
    """As `predict`, by a run or model that is open and was found unchanged."""
    home = opened.folder
    study = study_of_new_patients(opened.study, source, output, workers)
    with run_folder.claimed(study) as folder:
        new = read_new_patients(source, study.channels, study.prepare.needs, output, lambda line: say(console, line, WARNING))
        real = run_cohort.refuse_real(home, opened.synthetic, new.patients, allowed.synthetic, "--allow-synthetic")
        if not opened.networks:
            raise UsageError(f"{home}: no fold has {files.WEIGHTS}; the networks of a run are needed to predict")
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
            excluded += _predicted(opened, study, patients, new, real, allowed, seconds, folder, console)
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
    opened: TrainedRun | ExportedModel,
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
    from mri_vit.finished import known_patients, network_outputs, predicted_endpoints, predicted_patient, trained_model
    from mri_vit.finished.predicted_patient import Basis
    from mri_vit.prepare.patient import without_excluded

    resource.keep_freed_memory()
    model = trained_model.of_run(opened) if isinstance(opened, TrainedRun) else opened.model
    overlaps = known_patients.overlap(model.known, study.prepared, patients, console)
    excluded = [] if allowed.known else known_patients.refused_patients(opened.folder, study.cohort, overlaps, console)
    patients = without_excluded(patients, excluded)
    with progress(console) as bar:
        total = len(model.networks)
        task = bar.add_task("compare", total=total, note="with the run's patients, once per run")
        began = time.monotonic()
        of_run = model.reference(lambda: bar.update(task, advance=1))
        bar.update(task, completed=total, note="")
        compared = time.monotonic()
        task = bar.add_task("predict", total=total, note="")
        outputs = network_outputs.fold_outputs(
            model.networks, model.of_fold, study, patients, lambda: bar.update(task, advance=1)
        )
        seconds |= {"reference": (compared - began) / len(patients), "networks": (time.monotonic() - compared) / len(patients)}
    basis = Basis(
        model=model,
        reference=of_run,
        synthetic={patient.id: SYNTHETIC.format(learned=opened.synthetic) for patient in real},
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
