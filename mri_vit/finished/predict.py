"""Predict new patients: a finished run and a patient's scans, or a table of several, in; a folder per patient and tables out."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Literal

from rich.console import Console

from mri_vit.data import cohort, predictions, run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.data.columns import OURS, key
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.finished import predicted_endpoints, predicted_patient, reference, trained_run
from mri_vit.finished.predicted_endpoints import RunResults
from mri_vit.finished.predicted_patient import Basis
from mri_vit.finished.prediction_document import Prediction, RunFacts, Weights
from mri_vit.finished.trained_run import TrainedRun
from mri_vit.importers import dicom
from mri_vit.importers.collections import LAYOUTS
from mri_vit.importers.layout import Visit, files_below
from mri_vit.importers.layout_reader import visits_among
from mri_vit.prepare.patient import Excluded, excluded_table, without_excluded
from mri_vit.qc.check import prepare
from mri_vit.run import atomic, files, integrity
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import complete, write_bytes
from mri_vit.run.integrity import read_json
from mri_vit.run.screen import WARNING, printable, progress, say
from mri_vit.settings import source as source_file
from mri_vit.settings.schema import Study
from mri_vit.settings.source import licence_caution, licence_text, stated_licence

CONVERTED = "scans"  # folder in the output, for scans converted from DICOM
RESERVED = {  # names in the output
    *(files.STUDY, files.ENVIRONMENT, files.ORIGIN, files.COHORT, files.EXCLUDED, files.FINDINGS, files.DECISIONS, files.JOBS),
    *(files.PREDICTIONS, files.SURVIVAL, files.PAGE, files.LOG, "prepared", CONVERTED),
}
STARTED = "training started from external weights ({file}), {licence}"
OWN_LICENCE = "trained in this study from random weights; the owner of the run sets the terms"
SYNTHETIC = f"the run was trained on synthetic patients ({{learned}}), but this patient is real: {run_cohort.NO_FINDING}"
PRETRAINED = "pretrained without labels ({method}) on the study's own patients, then trained in this study"
NAMES = "P001_t1ce.nii.gz or t1ce.nii.gz"
SHOWN_FILES = 8  # files that a message names
HASH_DIGITS = 8  # hexadecimal digits: among 1,000 names that differ only in punctuation, two agree once in 8,600 times


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
        new = read_new_patients(source, study, output, lambda line: say(console, line, WARNING))
        real = run_cohort.refuse_real(run.folder, new.patients, allowed.synthetic, "--allow-synthetic")
        for table in (files.PREDICTIONS, files.SURVIVAL):  # of an earlier command, which may have shown more
            (folder / table).unlink(missing_ok=True)
        began = time.monotonic()
        excluded = prepare(study, new.patients, folder, console)
        patients = without_excluded(new.patients, excluded)
        if patients:
            seconds = {"prepare": (time.monotonic() - began) / len(new.patients)}
            excluded += _predicted(run, study, patients, new, real, allowed, seconds, folder, console)
            write_bytes(excluded_table(excluded), folder / files.EXCLUDED)
        for row in excluded:
            predicted_patient.forget(home_of(row["patient"], folder))
    return excluded


def study_of_new_patients(past: Study, source: Path, output: Path, workers: int) -> Study:
    """The run's settings for other patients, without its reviewer's decisions.

    A tumour is segmented only where scans are cropped around it: nothing else in a prediction needs one.
    """
    tumour_command = past.prepare.tumour_command if past.prepare.tumour_crop_margin_mm is not None else ()
    return past.model_copy(
        update={
            "cohort": source.resolve(),
            "output": output.resolve(),
            "prepared": output.resolve() / "prepared",
            "prepare": past.prepare.model_copy(update={"workers": workers, "tumour_command": tumour_command}),
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
    if not run.networks:
        raise UsageError(f"{run.folder}: no fold has {files.WEIGHTS}; the networks of a run are needed to predict")
    overlaps = trained_run.overlap(run, study.prepared, patients, console)
    excluded = [] if allowed.known else trained_run.refused_patients(run, study.cohort, overlaps, console)
    patients = without_excluded(patients, excluded)
    from mri_vit.report import assembly  # here, because it imports what a report needs, for seconds

    metrics, verdicts = assembly.metrics_of_folder(run.folder)
    with progress(console) as bar:
        total = len(run.networks)
        task = bar.add_task("compare", total=total, note="with the run's patients, once per run")
        began = time.monotonic()
        of_run = reference.reference_of_run(run, lambda: bar.update(task, advance=1))
        bar.update(task, completed=total, note="")
        compared = time.monotonic()
        task = bar.add_task("predict", total=total, note="")
        outputs = trained_run.fold_outputs(run, study, patients, lambda: bar.update(task, advance=1))
        seconds |= {"reference": (compared - began) / len(patients), "networks": (time.monotonic() - compared) / len(patients)}
    facts = _facts(run, verdicts)
    basis = Basis(
        facts=facts,
        of_run=RunResults.of(metrics, predictions.load(run.folder / files.PREDICTIONS), run.study.seed),
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


def _facts(run: TrainedRun, verdicts: Literal["report", "computed"]) -> RunFacts:
    study, home = run.study, run.folder
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


@dataclass(frozen=True)
class NewPatients:
    """The patients to predict, the folder that their files are named from, and remarks for the reader."""

    patients: list[Patient]
    home: Path
    remarks: tuple[str, ...] = ()


def read_new_patients(source: Path, study: Study, output: Path, say: Callable[[str], None]) -> NewPatients:
    """The patients of a cohort table, or the one whose folder it is.

    Parameters
    ----------
    source
        A table (CSV, TSV); or a folder with one patient's scans, as NIfTI files named in any layout that can be imported, or as
        DICOM series. Masks of the brain and the tumour may lie beside NIfTI files.
    study
        Of the run: its `channels` are looked for, and those that `prepare.needs` names must be there.
    output
        DICOM series are converted into its folder `scans`.
    say
        Prints a line for each refused series. These lines are personal data.

    Raises
    ------
    UsageError
        The table is wrong; or the scans of a folder cannot be identified, are of several patients, or a needed one is missing:
        the message names what was found and what is missing.
    """
    if not source.is_dir():
        return NewPatients(cohort.read(source, (), study.prepare.needs, study.channels), source.parent)
    if output.resolve().is_relative_to(source.resolve()):
        raise UsageError(f"output {output} lies inside the patient's folder {source}; choose a folder outside it")
    patient, changed = safe_id(source.resolve().name)
    niftis, _, images = files_below(source)
    if not niftis and (other := next(filter(source_file.other_format, images), None)):
        raise UsageError(f"{other}: {source_file.other_format(other)}")
    if niftis:
        home, (scans, unread) = source, _identified(source, niftis, study)
    else:
        home, scans = _converted(source, patient, output, say)
        unread = []
    if lacking := [channel for channel in study.prepare.needs if channel not in scans]:
        names = ", ".join(f"{name} ({file.relative_to(home).as_posix()})" for name, file in scans.items()) or "no sequence"
        others = f"; not identified: {_first_few(unread)}" if unread else ""
        raise UsageError(f"{source}: found {names}{others}; need {', '.join(lacking)} as well, with names like {NAMES}")
    remarks = [f"the patient is called {patient}, because the folder's own name cannot be an id"] if changed else []
    if unread:
        remarks.append(f"files not read: {_first_few(unread)}")
    channels = {channel: scans.get(channel) for channel in study.channels}
    found = Patient(patient, channels, {}, {}, brain_mask=scans.get("brain_mask"), tumour_mask=scans.get("tumour_mask"))
    return NewPatients([found], home, tuple(remarks))


def safe_id(name: str) -> tuple[str, bool]:
    """A folder's name as a patient's id, and whether it was changed.

    Characters that no id may have become a hyphen; a hash of the name then ends the id, so that two names get two ids.
    """
    if (safe := _hyphenated(name)) == name:
        return name, False
    return f"{safe[: 64 - HASH_DIGITS - 1]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:HASH_DIGITS]}", True


def _hyphenated(name: str) -> str:
    """The part of a folder's name that an id may have; several names can give the same."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64].rstrip("-._")
    if not cohort.is_patient_id(safe):
        safe = f"patient-{safe}"[:64].rstrip("-._")  # nothing was left, or a device's name
    return safe


def _identified(source: Path, niftis: Sequence[Path], study: Study) -> tuple[dict[str, Path], list[str]]:
    """Scans and masks by name, from the layout that identifies most sequences; and the files that were not read."""
    scans: dict[str, Path] = {}
    for root in (Path("/", _hyphenated(source.resolve().name)), Path("/")):  # layouts read the patient's id in the folder or file
        real = {root / PurePosixPath(file.relative_to(source).as_posix()): file for file in niftis}
        for layout in LAYOUTS.values():
            if not layout.scans or layout.read_sequences:
                continue
            visits, left_out, _ = visits_among(layout, Path("/"), list(real))
            if len({(visit.patient, visit.session) for visit in visits}) > 1:
                names = sorted({" ".join(filter(None, (visit.patient, visit.session))) for visit in visits})
                raise UsageError(
                    f"{source}: scans of {len(names)} patients or visits ({_first_few(names)}); expected one: name one's folder,"
                    " or make a table of all with `mri-vit import`"
                )
            if not visits and (several := [row.reason for row in left_out if row.reason.startswith("several files")]):
                raise UsageError(f"{source}: {'; '.join(several)}")
            by_name = _files(visits[0], real) if visits else {}
            if sum(channel in by_name for channel in study.channels) > sum(channel in scans for channel in study.channels):
                scans = by_name
    scans |= {name: file for name, file in _by_ending(niftis, study.channels).items() if name not in scans}
    read = set(scans.values())
    return scans, [file.relative_to(source).as_posix() for file in niftis if file not in read]


def _files(visit: Visit, real: Mapping[Path, Path]) -> dict[str, Path]:
    masks = {"brain_mask": visit.brain_mask, "tumour_mask": visit.tumour_mask}
    return {name: real[path] for name, path in {**visit.scans, **masks}.items() if path}


def _by_ending(niftis: Sequence[Path], channels: tuple[str, ...]) -> dict[str, Path]:
    """Files whose name ends with a word for one of the study's sequences, where only one file does."""
    wanted = {key(channel): channel for channel in channels} | {w: o for w, o in OURS.items() if o in channels}
    candidates: dict[str, list[Path]] = {}
    for file in niftis:
        words = re.split(r"[^A-Za-z0-9]+", re.sub(r"(?i)\.nii(\.gz)?$", "", file.name))
        if name := wanted.get(words[-1].lower()):
            candidates.setdefault(name, []).append(file)
    return {name: matching[0] for name, matching in candidates.items() if len(matching) == 1}


def _converted(source: Path, patient: str, output: Path, say: Callable[[str], None]) -> tuple[Path, dict[str, Path]]:
    """The folder and scans converted from DICOM to NIfTI; nothing that identifies the person is kept from the headers."""
    importer = dicom.reader()
    target = output.resolve() / CONVERTED / patient
    with TemporaryDirectory(prefix="mri-vit-") as secret, complete(target, _refuse_foreign) as beside:
        try:
            imported = importer.read(source, beside / "dicom", Path(secret) / "key", say=say)
        except UsageError as error:
            if "holds no DICOM image" in str(error):
                raise UsageError(f"{source}: neither a NIfTI file nor a DICOM image; expected names like {NAMES}") from None
            raise
        if len(imported.visits) != 1:
            reasons = "; ".join(dict.fromkeys(row.reason for row in imported.left_out)) or "no series is one of the sequences"
            what = f"{len(imported.visits)} patients or visits" if imported.visits else f"no usable scan ({reasons})"
            raise UsageError(f"{source}: DICOM series of {what}; expected one patient's visit: name its folder")
        scans = {name: file.relative_to(beside) for name, file in imported.visits[0].scans.items()}
    return target, {name: target / file for name, file in scans.items()}


def _refuse_foreign(folder: Path) -> None:
    """Raise UsageError unless `folder` is absent, or holds only converted scans."""
    atomic.refuse_link(folder)
    if foreign := [name for name in atomic.entries(folder) if name != "dicom"]:
        raise UsageError(f"{folder} holds {foreign[0]}, which is no converted scan; it is left unchanged: choose another output")


def _first_few(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_FILES
    return ", ".join(names[:SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")
