"""The story of a study: check -> prepare -> cross-validate -> explain -> report. Each stage reads only the files of earlier ones.

Every stage can be stopped and started again: what is done is skipped.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mri_vit import cohort, config, workspace
from mri_vit.cohort import Patient
from mri_vit.config import CHANNELS, Study
from mri_vit.errors import OutOfResource, UnusablePatient, UsageError
from mri_vit.volume import write_bytes

Excluded = list[dict[str, str]]  # rows of excluded.csv: patient, file, reason


def run(study: Study, console: Console) -> Excluded:
    """All stages in order; the report's path and a table of results end it."""
    with workspace.claimed(study) as folder:
        patients = check(study, folder)
        excluded = prepare(study, patients, folder, console)
        train(study, folder, console)
        explain(study, folder, console)
        report(folder, console)
    return excluded


def check(study: Study, folder: Path) -> list[Patient]:
    """Read the cohort table, see that folds can be made from it, and freeze it in the run's folder."""
    patients = cohort.read(study.cohort, study.endpoints)
    cohort.make_folds(patients, study.endpoints, study.train.folds, repeats=1, seed=study.seed)
    return freeze(study, patients, folder)


def freeze(study: Study, patients: list[Patient], folder: Path) -> list[Patient]:
    """Write the table that the run is made from. Raises UsageError when folds were made from another."""
    frozen, table = folder / "cohort.csv", cohort.dumps(patients)
    if (folder / "folds.json").exists() and frozen.read_bytes() != table:
        raise UsageError(
            f"{folder}: the cohort table has changed since this run's folds were made; choose another output or delete it"
        )
    write_bytes(table, frozen)
    return patients


def prepare(study: Study, patients: list[Patient], folder: Path, console: Console) -> Excluded:
    """Prepare every patient; those who cannot be are written to `excluded.csv` with file and reason."""
    excluded: Excluded = []
    study.prepared.mkdir(parents=True, exist_ok=True)
    context = get_context("spawn")  # fork and running threads (torch, ITK) do not go together
    with _progress(console) as bar, ProcessPoolExecutor(study.prepare.workers, context) as pool:
        task = bar.add_task("prepare", total=len(patients), note="")
        jobs = {pool.submit(_prepare_one, patient, study): patient for patient in patients}
        try:
            for job in as_completed(jobs):
                patient, fault = jobs[job], job.result()
                if fault:
                    excluded.append({"patient": patient.id, **fault})
                    bar.console.print(f"[yellow]excluded[/] {patient.id}: {fault['file']} {fault['reason']}", highlight=False)
                bar.update(task, advance=1, note=f"{len(excluded)} excluded" if excluded else "")
        except BrokenProcessPool:
            unfinished = sorted(p.id for job, p in jobs.items() if not job.done() or job.exception())
            raise OutOfResource(
                f"a worker was killed, probably for lack of memory; not prepared yet: {', '.join(unfinished)}; "
                "run again to go on, with fewer prepare.workers"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    order = {patient.id: index for index, patient in enumerate(patients)}
    excluded.sort(key=lambda row: order[row["patient"]])
    _refuse_twins(study, [p for p in patients if p.id not in {row["patient"] for row in excluded}])
    out = io.StringIO()
    writer = csv.DictWriter(out, ["patient", "file", "reason"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(excluded)
    write_bytes(out.getvalue().encode(), folder / "excluded.csv")
    return excluded


def _prepare_one(patient: Patient, study: Study) -> dict[str, str] | None:
    """In a worker: None when prepared, else file and reason."""
    from mri_vit.prepare.patient import prepare as prepare_patient  # here, because ITK and nilearn take seconds

    found = [channel for channel in CHANNELS if patient.scans[channel]]
    if len(found) < len(CHANNELS):
        lacking = [channel for channel in CHANNELS if channel not in found]
        return {"file": "", "reason": f"found {', '.join(found) or 'no scan'}; need {', '.join(lacking)} as well"}
    try:
        prepare_patient(patient, study)
    except UnusablePatient as fault:  # the table's own name for the file: a report must not tell where it lay
        return {"file": os.path.relpath(fault.file, study.cohort.parent) if fault.file else "", "reason": fault.reason}
    return None


def _refuse_twins(study: Study, patients: list[Patient]) -> None:
    """The same scan under two ids would sit on both sides of a fold."""
    from mri_vit.prepare.patient import load_record

    seen: dict[str, list[str]] = defaultdict(list)
    for patient in patients:
        read = next(step for step in load_record(study.prepared / patient.id)["steps"] if step["step"] == "read")
        for scan in read["scans"].values():
            seen[scan["voxels_sha256"]].append(patient.id)
    twins = next((ids for ids in seen.values() if len(ids) > 1), None)
    if twins:
        raise UsageError(f"{study.cohort}: patients {' and '.join(twins)} share a scan's voxels; keep one of them")


def included(study: Study, folder: Path) -> list[Patient]:
    """The frozen cohort less the excluded. Raises UsageError when an earlier stage is lacking."""
    for file, stage in (("cohort.csv", "prepare"), ("excluded.csv", "prepare")):
        if not (folder / file).exists():
            raise UsageError(f"{folder}: no {file}; run `mri-vit {stage}` first")
    with (folder / "excluded.csv").open(newline="") as file:
        out = {row["patient"] for row in csv.DictReader(file)}
    return [patient for patient in cohort.read(folder / "cohort.csv", study.endpoints) if patient.id not in out]


def train(study: Study, folder: Path, console: Console) -> None:
    """Write the folds, then fit and predict each."""
    from mri_vit.crossval import cross_validate
    from mri_vit.train import Report
    from mri_vit.vit import VisionTransformer

    patients = included(study, folder)
    if not (folder / "folds.json").exists():
        folds = cohort.make_folds(patients, study.endpoints, study.train.folds, study.train.repeats, study.seed)
        cohort.save_folds(folds, study.seed, folder / "folds.json")
    folds = cohort.load_folds(folder / "folds.json")
    differing = {i for fold in folds[0] for i in fold} ^ {p.id for p in patients}
    if differing:
        raise UsageError(
            f"{folder}: folds.json was made without or with {', '.join(sorted(differing))}; choose another output or delete it"
        )
    _check_prepared(study, patients, folder)
    with _progress(console) as bar:

        def build(fold_folder: Path, seed: int) -> VisionTransformer:
            task = bar.add_task(fold_folder.name, total=study.train.epochs, note="")

            def report_epoch(epoch: int, epochs: int, loss: float, rate: float) -> None:
                bar.update(task, completed=epoch, total=epochs, note=f"loss {loss:.3f}, {rate:.1f} patients/s")

            callback: Report = report_epoch
            return VisionTransformer(study, fold_folder, seed, callback)

        cross_validate(patients, folds, study, folder, "vit", build)


def _check_prepared(study: Study, patients: list[Patient], folder: Path) -> None:
    """The prepared patients are of this study's settings, and those that its first fold was trained on."""
    from mri_vit.prepare.patient import config_sha256, load_record

    found = {}
    for patient in patients:
        if not (study.prepared / patient.id / "patient.json").exists():
            raise UsageError(f"{study.prepared}: patient {patient.id} is not prepared; run `mri-vit prepare` first")
        record = load_record(study.prepared / patient.id)
        if record["config_sha256"] != config_sha256(study):
            raise UsageError(
                f"{study.prepared}: patient {patient.id} was prepared with other settings; run `mri-vit prepare` again"
            )
        found[patient.id] = {name: scan["sha256"] for name, scan in record["inputs"].items()}
    file = folder / "inputs.json"
    before = json.loads(file.read_text()) if file.exists() else found
    changed = sorted(i for i in before | found if before.get(i) != found.get(i))
    if changed:
        raise UsageError(
            f"{folder}: scans of {', '.join(changed)} changed since training began; choose another output or delete it"
        )
    write_bytes(json.dumps(found, indent=1).encode(), file)


def explain(study: Study, folder: Path, console: Console) -> None:
    """An attention map for each patient, from the model that had not seen it."""
    from mri_vit.crossval import fold_folder
    from mri_vit.explain.patient import explain as explain_patient
    from mri_vit.vit import VisionTransformer

    patients = included(study, folder)[: study.explain.patients]
    if not (folder / "predictions.csv").exists():
        raise UsageError(f"{folder}: no predictions.csv; run `mri-vit train` first")
    fold_of = {i: fold for fold, ids in enumerate(cohort.load_folds(folder / "folds.json")[0]) for i in ids}
    networks = {
        fold: VisionTransformer.fitted(study, fold_folder(folder, 0, fold)).network for fold in {fold_of[p.id] for p in patients}
    }
    with _progress(console) as bar:
        task = bar.add_task("explain", total=len(patients), note="")
        for patient in patients:
            maps, fold = folder / "maps" / patient.id, fold_of[patient.id]
            if not (maps / "map.json").exists():
                explain_patient(patient, networks[fold], study, maps, {"model": "vit", "repeat": 0, "fold": fold})
            bar.update(task, advance=1)


def report(folder: Path, console: Console) -> Path:
    """Write the report and print where it is, with a short table of results."""
    from mri_vit.report import html

    if not (folder / "predictions.csv").exists():
        raise UsageError(f"{folder}: no predictions.csv; run `mri-vit train` first")
    page = html.write(folder)
    rows = html.summary(json.loads((page.parent / "metrics.json").read_text()))
    table = Table(
        title="Out-of-fold results", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False
    )  # 80 columns
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)
    console.print(f"report: {page}", soft_wrap=True, highlight=False)
    return page


def predict(run_folder: Path, table: Path, output: Path, workers: int, console: Console) -> Excluded:
    """Predict new patients with the mean of a run's fold models: `predictions.csv` and `survival.csv` in `output`."""
    import pandas as pd

    from mri_vit import predictions
    from mri_vit.vit import VisionTransformer

    past = config.load(run_folder / "study.toml")
    study = past.model_copy(
        update={
            "cohort": table.resolve(),
            "output": output.resolve(),
            "prepared": output.resolve() / "prepared",
            "prepare": past.prepare.model_copy(update={"workers": workers}),
        }
    )
    models = sorted(run_folder.glob("*fold-*/best.safetensors"))
    if not (run_folder / "predictions.csv").exists():
        raise UsageError(f"{run_folder}: no predictions.csv; its training has not ended")
    with workspace.claimed(study) as folder:
        patients = cohort.read(study.cohort, endpoints=())
        excluded = prepare(study, patients, folder, console)
        out = {row["patient"] for row in excluded}
        patients = [p for p in patients if p.id not in out]
        if not patients:
            return excluded
        parts: list[tuple[Any, Any]] = []
        with _progress(console) as bar:
            task = bar.add_task("predict", total=len(models), note="")
            for file in models:
                parts.append(VisionTransformer.fitted(study, file.parent).predict(patients))
                bar.update(task, advance=1)
        for name, tables, keys in (
            ("predictions.csv", [p for p, _ in parts], ["patient", "endpoint"]),
            ("survival.csv", [s for _, s in parts], ["patient", "endpoint", "horizon_days"]),
        ):
            grouped = pd.concat(tables).groupby(keys, sort=False).agg(["mean", "size"])  # models: how many had a head for it
            grouped.columns = ["score" if name == "predictions.csv" else "survival", "models"]
            predictions.save(grouped.reset_index(), folder / name)
        console.print(f"predictions: {folder / 'predictions.csv'}", soft_wrap=True, highlight=False)
    return excluded


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=console)
