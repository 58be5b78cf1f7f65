"""The story of a study: check -> prepare -> (pretrain ->) cross-validate -> explain -> report.

Each stage reads only the files of earlier ones. Pretraining is a stage of its own only where it is asked for by name.
Every stage can be stopped and started again: what is done is skipped.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from mri_vit.crossval import comparators, folds
from mri_vit.data import cohort, frozen
from mri_vit.data.cohort import Patient
from mri_vit.data.volume import read
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.prepare import unchanged
from mri_vit.prepare.prepared import PREPARE_AGAIN, config_sha256, load_record, voxels
from mri_vit.run import executor, intact, parts
from mri_vit.run import folder as run_folder
from mri_vit.run.atomic import write_bytes
from mri_vit.run.ownership import refuse_link
from mri_vit.run.record import as_written, read_json
from mri_vit.run.screen import WARNING, plain, printable, progress, say
from mri_vit.settings.schema import CHANNELS, Study
from mri_vit.settings.source import shown

if TYPE_CHECKING:
    from mri_vit.report.pages.html import Written

EXCLUDE_AGAIN = "delete it and run `mri-vit prepare` again"
Excluded = list[dict[str, str]]  # rows of excluded.csv: patient, file, reason


def run(study: Study, console: Console) -> Excluded:
    """All stages in order; the report's path and a table of results end it."""
    with run_folder.claimed(study) as folder:
        patients = check(study, folder)
        excluded = prepare(study, patients, folder, console)
        train(study, folder, console)
        explain(study, folder, console)
        report(folder, console)
    return excluded


def check(study: Study, folder: Path) -> list[Patient]:
    """Read the cohort table, see that folds and networks can be made, and freeze the table in the run's folder."""
    patients = cohort.read(study.cohort, study.endpoints, study.prepare.needs)
    folds.check(patients, study.endpoints, study.train)
    comparators.check(study, patients)
    return freeze(study, patients, folder)


def freeze(study: Study, patients: list[Patient], folder: Path) -> list[Patient]:
    """Write the table that the run is made from. Raises UsageError when folds were made from another."""
    if (folder / "cohort.csv").exists() and frozen.is_frozen(patients, folder):
        return patients
    if (folder / "folds.json").exists():
        raise UsageError(
            f"{folder}: the cohort table has changed since this run's folds were made; choose another output or delete it"
        )
    write_bytes(frozen.table(patients, folder), folder / "cohort.csv")
    run_folder.settle(study, folder)
    return patients


def prepare(study: Study, patients: list[Patient], folder: Path, console: Console) -> Excluded:
    """Prepare every patient; those who cannot be are written to `excluded.csv` with file and reason."""
    excluded: Excluded = []
    _make_prepared(study)
    for patient in patients:
        refuse_link(study.prepared / patient.id)
    parts.sweep_older(study.prepared, {patient.id for patient in patients})
    with progress(console) as bar:
        task = bar.add_task("prepare", total=len(patients), note="")
        jobs = {patient.id: (patient, study) for patient in patients}
        for name, fault in _survivors(jobs, study.prepare.workers):
            if fault:
                excluded.append({"patient": name, **fault})
                say(bar.console, f"excluded {name}: {fault['file']} {fault['reason']}", WARNING)
            bar.update(task, advance=1, note=f"{len(excluded)} excluded" if excluded else "")
    order = {patient.id: index for index, patient in enumerate(patients)}
    excluded.sort(key=lambda row: order[row["patient"]])
    _refuse_twins(study, [p for p in patients if p.id not in {row["patient"] for row in excluded}])
    out = io.StringIO()
    writer = csv.DictWriter(out, ["patient", "file", "reason"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(excluded)
    write_bytes(out.getvalue().encode(), folder / "excluded.csv")
    return excluded


def _make_prepared(study: Study) -> None:
    """The folder for prepared patients. Raises UsageError where something else has its name."""
    try:
        study.prepared.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"prepared {study.prepared}: not a folder; choose another place for prepared patients") from None


def _survivors(jobs: dict[str, tuple[Patient, Study]], at_a_time: int) -> Iterator[tuple[str, dict[str, str] | None]]:
    """Each patient's fault, or None; to have had one's process killed, even alone, is a fault like others."""
    try:
        yield from executor.each(_prepare_one, jobs, at_a_time)
    except executor.Killed as end:
        for patient, how in end.how.items():
            yield patient, {"file": "", "reason": how}


def _prepare_one(patient: Patient, study: Study) -> dict[str, str] | None:
    """In a worker: None when prepared, else file and reason."""
    from mri_vit.prepare import tumour  # here, because ITK takes seconds
    from mri_vit.prepare.patient import prepare as prepare_patient

    found = [channel for channel in CHANNELS if patient.scans[channel]]
    if lacking := [channel for channel in CHANNELS if channel in study.prepare.needs and channel not in found]:
        return {"file": "", "reason": f"found {', '.join(found) or 'no scan'}; need {', '.join(lacking)} as well"}
    try:
        if patient.tumour_mask:
            read(patient.tumour_mask)  # a damaged one is told before the minutes that preparing takes
        folder = prepare_patient(patient, study)
        if patient.tumour_mask:
            tumour.check(patient.tumour_mask, folder)  # the volume control and the judging of maps come hours later
    except UnusablePatient as fault:  # the table's own name for the file: a report must not tell where it lay
        file = os.path.relpath(fault.file, study.cohort.parent) if fault.file else ""
        return {"file": shown(printable(file)), "reason": printable(fault.reason)}
    return None


def _refuse_twins(study: Study, patients: list[Patient]) -> None:
    """The same scan under two ids would sit on both sides of a fold."""
    seen: dict[str, list[str]] = defaultdict(list)
    for patient in patients:
        for sha256 in voxels(study.prepared / patient.id):
            seen[sha256].append(patient.id)
    twins = next((ids for ids in seen.values() if len(ids) > 1), None)
    if twins:
        raise UsageError(f"{study.cohort}: patients {' and '.join(twins)} share a scan's voxels; keep one of them")


def included(study: Study, folder: Path) -> list[Patient]:
    """The frozen cohort less the excluded. Raises UsageError when an earlier stage is lacking."""
    for file, stage in (("cohort.csv", "prepare"), ("excluded.csv", "prepare")):
        if not (folder / file).exists():
            raise UsageError(f"{folder}: no {file}; run `mri-vit {stage}` first")
    with as_written(folder / "excluded.csv", EXCLUDE_AGAIN), (folder / "excluded.csv").open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        if "patient" not in (table.fieldnames or ()):
            raise ValueError("no column patient")
        out = {row["patient"] for row in table}
    return [patient for patient in frozen.patients(folder, study.endpoints) if patient.id not in out]


def pretrain(study: Study, folder: Path, console: Console) -> None:
    """Write the folds, then make the encoders that training starts from, which `train` finds; tell how each ended.

    Raises UsageError when nobody pretrains.
    """
    from mri_vit.crossval import comparison

    if not comparison.pretrains(study):
        raise UsageError('nobody is pretrained: give the study or one of its comparators pretrain.method "mae" or "dino"')
    patients, splits = divided(study, folder)
    with progress(console) as bar:
        made = comparison.pretrain(study, patients, splits, folder, partial(_begin, bar, study))
    for one in made:
        say(console, f"{one.title}: last loss {one.loss:.3f}, {one.file}")
        if one.collapsed:
            say(console, f"{one.title}: {one.collapsed}", WARNING)


def train(study: Study, folder: Path, console: Console) -> None:
    """Write the folds, then fit and predict each: the model, and the controls that it must beat."""
    from mri_vit.crossval import comparison

    patients, splits = divided(study, folder)
    intact.refuse_changed(folder, console, intact.OWN)  # whose weights are read again; of the others' folds their tables alone,
    intact.refuse_changed(folder, console, names=intact.TABLES)  # for a pipeline may have thrown their weights away
    with progress(console) as bar:
        comparison.hold(study, patients, splits, folder, partial(_begin, bar, study))


def divided(study: Study, folder: Path) -> tuple[list[Patient], list[folds.Split]]:
    """The prepared patients and their folds, which are written where they are not there yet."""
    patients = included(study, folder)
    if not (folder / "folds.json").exists():
        folds.save(folds.make(patients, study.endpoints, study.train, study.seed), study.seed, folder / "folds.json")
    splits = folds.load(folder / "folds.json", patients)
    _check_prepared(study, patients, folder)
    return patients, splits


def _begin(bar: Progress, study: Study, title: str) -> Callable[[int, int, float, float], None]:
    """A new line of progress, and what moves it on after an epoch."""
    task = bar.add_task(title, total=study.train.epochs, note="")

    def epoch(done: int, epochs: int, loss: float, rate: float) -> None:
        bar.update(task, completed=done, total=epochs, note=f"loss {loss:.3f}, {rate:.1f} patients/s")

    return epoch


def _check_prepared(study: Study, patients: list[Patient], folder: Path) -> None:
    """The prepared patients are of this study's settings, and those that its first fold was trained on."""
    found = {}
    for patient in patients:
        if not (study.prepared / patient.id / "patient.json").exists():
            raise UsageError(f"{study.prepared}: patient {patient.id} is not prepared; run `mri-vit prepare` first")
        record = load_record(study.prepared / patient.id)
        if record["config_sha256"] != config_sha256(study):
            raise UsageError(
                f"{study.prepared}: patient {patient.id} was prepared with other settings; run `mri-vit prepare` again"
            )
        with as_written(study.prepared / patient.id / "patient.json", PREPARE_AGAIN):
            found[patient.id] = {name: scan["sha256"] for name, scan in record["inputs"].items()}
    file = folder / "inputs.json"
    before = read_json(file) if file.exists() else found
    changed = sorted(i for i in before | found if before.get(i) != found.get(i))
    if changed:
        raise UsageError(
            f"{folder}: scans of {', '.join(changed)} changed since training began; choose another output or delete it"
        )
    unchanged.refuse_changed_patients(study, patients, folder)
    unchanged.remember_patients(study, patients, folder)  # before inputs.json, which alone is an older version's
    write_bytes(json.dumps(found, indent=1).encode(), file)
    seen = {p.id: voxels(study.prepared / p.id) for p in patients}  # by which another cohort is known to hold none of these
    write_bytes(json.dumps(seen, indent=1).encode(), folder / "voxels.json")


def explain(study: Study, folder: Path, console: Console) -> None:
    """Maps of each patient from the model that had not seen them, how far they can be believed, and the cohort's mean maps."""
    from mri_vit.explain import stage as explaining

    patients = _trained(study, folder)
    jobs = explaining.jobs(study, patients, folds.load(folder / "folds.json", patients)[0], folder)
    intact.refuse_changed(folder, console, intact.WITNESSES)
    unchanged.refuse_changed_patients(study, [job.patient for job in jobs.values()], folder)
    drawn = [job.patient for job in jobs.values() if job.drawn]
    unchanged.refuse_missing_scans(drawn, [job.patient for job in jobs.values() if job.scored])
    with progress(console) as bar:
        task = bar.add_task("explain", total=len(jobs), note="")
        for _ in explaining.make(jobs, study, folder):
            bar.update(task, advance=1)
    if jobs or not explaining.finished(folder):
        explaining.finish(study, patients, folder)


def _trained(study: Study, folder: Path) -> list[Patient]:
    """The patients of a run that has been cross-validated. Raises UsageError where it has not."""
    if (folder / "evaluation.json").exists():
        raise UsageError(f"{folder}: holds another run's evaluation, which has no network of its own; name that run")
    patients = included(study, folder)
    if not (folder / "predictions.csv").exists():
        raise UsageError(f"{folder}: no predictions.csv; run `mri-vit train` first")
    return patients


def inspect(
    study: Study,
    folder: Path,
    fold: int | None,
    patient: str | None,
    place_mm: tuple[float, float, float] | None,
    layer: int | None,
    head: int | None,
    output: Path | None,
    console: Console,
) -> Path:
    """Write a page on what a fold's network has learned, shown on a patient that it was not trained on; print where it is."""
    from mri_vit.crossval import comparison
    from mri_vit.crossval.loop import fold_folder, fold_seed, parts
    from mri_vit.explain.inspection import page as inspection_page
    from mri_vit.predictors.network import Neural
    from mri_vit.train.loop import untrained

    if study.model.architecture != "vit" or study.model.pool == "class_attention":
        raise UsageError(f"{folder}: the inspection is of Vision Transformers whose CLS goes through every block")
    output = output or folder / "inspect"
    inspection_page.refuse(output)
    patients = _trained(study, folder)
    split = folds.load(folder / "folds.json", patients)[0]
    if fold is None:
        fold = next((index for index, ids in enumerate(split, 1) if patient in ids), 1)
    if not 1 <= fold <= len(split):
        raise UsageError(f"--fold {fold}: the run has folds 1 to {len(split)}")
    seed = fold_seed(study, 0, fold - 1)
    train_patients, _, test = parts(patients, split[fold - 1], study, seed)
    if patient and patient not in {p.id for p in test}:
        raise UsageError(f"--patient {patient}: not a test patient of fold {fold} ({', '.join(p.id for p in test)})")
    home = fold_folder(folder, 0, fold - 1)
    intact.refuse_changed(folder, console, [home.name])
    unchanged.refuse_changed_patients(study, test, folder)
    after = Neural.fitted(study, home).network.eval()
    before = untrained(train_patients, comparison.began(study, folder, home), seed).to(after.encoder.cls.device).eval()
    shown = sorted(test, key=lambda p: p.id != patient)  # the one asked for first, else the first of the fold
    subject = inspection_page.Subject(study, f"{study.name}, fold {fold}", before, after, shown)
    with run_folder.held(output, ["figures"]):
        page = inspection_page.write(subject, output, place_mm, layer, head)
    say(console, f"inspection: {page}")
    return page


def report(folder: Path, console: Console) -> Path:
    """Write the report of a run folder and print where it is, with a short table of results and the verdicts."""
    from mri_vit.report.pages import html
    from mri_vit.report.reading.run import read

    if not (folder / "predictions.csv").exists():
        raise UsageError(f"{folder}: no predictions.csv; run `mri-vit train` first")
    intact.refuse_changed(folder, console, names=intact.TABLES)
    written = html.write_report(read(folder), folder / "report")
    tell(written, console)
    return written.page


def report_table(scores: Path, people: Path, output: Path, subgroups: tuple[str, ...], console: Console) -> Path:
    """Write a report into `output` from a table of predictions made elsewhere, about the patients of a cohort table.

    `subgroups` are columns to look into beside the usual ones.
    """
    from mri_vit.report.pages import home, html
    from mri_vit.report.reading.run import from_tables

    home.refuse(output)
    run = from_tables(scores, people, output, subgroups)
    with run_folder.held(output, home.FOLDERS):
        written = html.write_report(run, output)
    tell(written, console)
    return written.page


def tell(written: Written, console: Console) -> None:
    """Print a report's results and its path."""
    from mri_vit.report.words import terminal

    table = Table(title="Results", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)  # 80 columns
    for column in terminal.COLUMNS:
        table.add_column(plain(column))
    for row in terminal.rows(written.metrics):
        table.add_row(*(plain(cell) for cell in astuple(row)))
    console.print(table)
    for sentence in terminal.verdicts(written.metrics):
        console.print(plain(f"- {sentence}"))
    say(console, f"report: {written.page}")
