"""The stages of a study: check -> prepare -> (pretrain ->) cross-validate -> explain -> report.

Each stage reads only files of earlier ones, and can be stopped and started again: finished work is skipped. Training pretrains
where the study asks for it; `pretrain` does only that. What a stage works with is imported when it begins, so that a study that
cannot run is refused at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mri_vit.crossval import comparators, folds
from mri_vit.crossval.folds import Split
from mri_vit.data import cohort, run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.run import executors, files, integrity, jobs
from mri_vit.run import folder as run_folder
from mri_vit.run.screen import WARNING, progress, say, stop_clocks
from mri_vit.settings.schema import Study

if TYPE_CHECKING:
    from rich.progress import Progress

    from mri_vit.crossval.work_units import Unit
    from mri_vit.explain.inspection.request import Request
    from mri_vit.prepare.patient import Excluded
    from mri_vit.report.pages.report_files import Written
    from mri_vit.train.loop import Report

Divided = tuple[list[Patient], list[Split]]  # the prepared patients and their folds, one split per repeat


def run(study: Study, console: Console) -> int:
    """Run all stages in order, ending with the report's path and a table of results. Returns the exit code, see `exit_code`."""
    with run_folder.claimed(study) as folder:
        _refuse_evaluation(folder)
        patients = check(study, folder)
        from mri_vit.crossval import power
        from mri_vit.prepare.patient import without_excluded

        say(console, _device(study))
        if not (folder / files.FOLDS).exists():
            expected = folds.make(patients, study.endpoints, study.train, study.seed)
            for caution in power.power_cautions(patients, study.endpoints, expected, comparators.judged(study, True)):
                say(console, caution, WARNING)
        excluded = prepare(study, patients, folder, console)
        divided = divide(study, run_cohort.segmented(without_excluded(patients, excluded), study), folder)
        train(study, folder, console, divided)
        explain(study, folder, console, divided)
        return exit_code(excluded, report(folder, console))


def _device(study: Study) -> str:
    """A line on the devices that train the study's networks."""
    if study.executor.kind != "local":
        return f"networks are trained on machines of {study.executor.kind}"
    several = f"{study.train.devices} times " * (study.train.devices > 1)
    return f"networks are trained on {several}{run_folder.device()}"


def exit_code(excluded: Excluded, written: Written) -> int:
    """1 where a verdict differs from a simulated effect, 3 where patients are excluded, else 0."""
    if not all(effect.as_expected for effect in written.metrics.expected_verdicts.values()):
        return 1
    return 3 if excluded else 0


def check(study: Study, folder: Path) -> list[Patient]:
    """Read the cohort table, check that folds and networks can be made, and freeze the table in the run's folder."""
    patients = cohort.of_study(study)
    folds.check(patients, study.endpoints, study.train)
    comparators.check(study, patients)
    return run_cohort.freeze(study, patients, folder)


def prepare(study: Study, patients: list[Patient], folder: Path, console: Console) -> Excluded:
    """Prepare and check every patient, see `qc.check.prepare`."""
    from mri_vit.qc import check as quality

    return quality.prepare(study, patients, folder, console)


def pretrain(study: Study, folder: Path, console: Console) -> None:
    """Write the folds and pretrain the encoders that `train` starts from; print the last loss of each.

    Raises UsageError when no network of the study is pretrained.
    """
    if not comparators.pretrains(study):
        raise UsageError('no network has pretraining enabled: set pretrain.method = "mae" or "dino" in the study or a comparator')
    comparators.refuse_missing_gpus(study)
    patients, splits = divided_before(study, folder)
    from mri_vit.crossval import work_units

    _side_by_side(study, folder, console, "pretrain", work_units.encoder_units(study, patients, splits, folder))
    with progress(console) as bar:
        made = work_units.pretrain(study, patients, splits, folder, partial(_begin, bar, study, splits, folder))
    jobs.close_ledger(folder / files.JOBS / "train")
    for one in made:
        say(console, f"{one.title}: last loss {one.loss:.3f}, {one.file}")
        if one.collapsed:
            say(console, f"{one.title}: {one.collapsed}", WARNING)


def train(study: Study, folder: Path, console: Console, divided: Divided | None = None) -> None:
    """Write the folds, then train and test every model on each: the study's own, its comparators and controls.

    `divided` are the patients and folds, where they have been read already.
    """
    if divided is None:
        comparators.refuse_missing_gpus(study)
        say(console, _device(study))
    patients, splits = divided or divided_before(study, folder)
    from mri_vit.crossval import comparison, work_units

    for caution in comparators.cautions(study):
        say(console, caution, WARNING)
    integrity.refuse_changed_run(
        folder, console, integrity.OWN_FOLDS
    )  # their weights are read again; of the other models only tables are checked,
    integrity.refuse_changed_run(folder, console, names=integrity.TABLES)  # because a pipeline may have deleted their weights
    for name, units in (
        ("pretrain", work_units.encoder_units),
        ("train", work_units.fold_units),
        ("confirm", work_units.confirmation_units),
    ):
        _side_by_side(study, folder, console, name, units(study, patients, splits, folder))
    with progress(console) as bar:
        warn = partial(say, console, style=WARNING)
        comparison.run(study, patients, splits, folder, partial(_begin, bar, study, splits, folder), warn)
    jobs.close_ledger(folder / files.JOBS / "train")


def _side_by_side(study: Study, folder: Path, console: Console, name: str, units: Sequence[Unit]) -> None:
    """Run independent jobs in several processes, where the study asks for them; the next stage finds them done."""
    from mri_vit.crossval import work_units

    asked = study.train
    at = executors.workplace(study, folder, name, asked.workers, devices=asked.devices, imported=work_units.IMPORTED)
    if (at.here and at.workers == 1) or not units:
        return
    with progress(console) as bar:
        task = bar.add_task(f"{name}, {f'{at.workers} at a time' if at.here else study.executor.kind}", total=len(units), note="")
        for unit in work_units.work_through(units, at):
            bar.update(task, advance=1, note=unit.title)


def divided_before(study: Study, folder: Path) -> Divided:
    """The patients that an earlier stage prepared, and their folds."""
    return divide(study, run_cohort.included(study, folder), folder)


def divide(study: Study, patients: list[Patient], folder: Path) -> Divided:
    """The prepared patients and their folds, which are made and written where there are none yet."""
    file = folder / files.FOLDS
    if file.exists():
        splits = folds.load(file, patients)
    else:
        _refuse_evaluation(folder)
        splits = folds.make(patients, study.endpoints, study.train, study.seed)
        folds.save(splits, study.seed, file)
    from mri_vit.prepare import prepared

    prepared.freeze_patients(study, patients, folder)
    return patients, splits


def _begin(bar: Progress, study: Study, splits: Sequence[Split], folder: Path, title: str) -> Report:
    """A new progress bar, and the function that advances it after an epoch; `status` shows it too."""
    jobs.turn_to_job(folder / files.JOBS / "train", title)
    stop_clocks(bar)  # the fold before, which may have ended early
    task = bar.add_task(_progress_title(title, splits), total=study.train.epochs, note="")

    def epoch(done: int, epochs: int, loss: float, rate: float) -> None:
        bar.update(task, completed=done, total=epochs, note=f"loss {loss:.3f}, {rate:.1f} patients/s")

    return epoch


def _progress_title(title: str, splits: Sequence[Split]) -> str:
    """A network's title for the progress bar, such as "train fold 2 of 3" for a title that ends with fold-2."""
    name, _, fold = title.rpartition(" ")
    if re.fullmatch(r"(repeat-\d+-)?fold-\d+", fold):
        fold = f"{fold.replace('-', ' ')} of {len(splits[0])}"
    stage = "" if title.startswith("pretrain") else "train"
    return " ".join(filter(None, [stage, name, fold]))


def explain(study: Study, folder: Path, console: Console, divided: Divided | None = None) -> None:
    """Maps of each patient from the model that was not trained on them, their scores, and the cohort's mean maps.

    `divided` are the patients and folds, where they have been read already.
    """
    patients, splits = divided or _trained(study, folder)
    from mri_vit.explain import map_jobs

    map_jobs.run(study, patients, splits[0], folder, console)


def report(folder: Path, console: Console) -> Written:
    """Write a run's report and print its results, see `report_files.report_run`."""
    from mri_vit.report.pages import report_files

    return report_files.report_run(folder, console)


def _trained(study: Study, folder: Path) -> Divided:
    """The patients and folds of a cross-validated run. Raises UsageError for any other."""
    _refuse_evaluation(folder)
    patients = run_cohort.included(study, folder)
    if not (folder / files.PREDICTIONS).exists():
        raise UsageError(f"{folder}: no {files.PREDICTIONS}; run `mri-vit train` first")
    return patients, folds.load(folder / files.FOLDS, patients)


def _refuse_evaluation(folder: Path) -> None:
    if (folder / files.EVALUATION).exists():
        raise UsageError(f"{folder}: holds another run's evaluation, which has no network of its own; name that run")


def inspect(study: Study, folder: Path, wanted: Request, output: Path | None, console: Console) -> Path:
    """Write a page on what a fold's network has learned, shown on one of its test patients; prints the page's path."""
    patients, splits = _trained(study, folder)
    from mri_vit.explain.inspection.request import chosen_fold

    chosen_fold(study, splits[0], wanted)  # before what takes longer to import
    from mri_vit.explain.inspection import inspect_network

    return inspect_network.run(study, patients, splits[0], folder, wanted, output, console)
