"""Status: a run's files in; jobs done, running, waiting and failed in each stage, and the time left, out.

Only files are read, so the status can be shown on any machine that sees the run's folder, while others work in it. Results show
what is done; the ledger of the process that assigned the jobs shows what is running and what failed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mri_vit.crossval.comparators import comparator_folder, control_folder, networks
from mri_vit.crossval.folds import Split
from mri_vit.crossval.folds import load as load_folds
from mri_vit.data import run_cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.explain import map_list
from mri_vit.explain.methods.catalogue import explained
from mri_vit.run import files
from mri_vit.run.atomic import lives
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.run.jobs import read_ledger, workers
from mri_vit.run.screen import WARNING, duration, say
from mri_vit.settings.recipe import RESHUFFLED, SHUFFLED, VIT
from mri_vit.settings.schema import Study

SHOWN_JOBS = 12  # running jobs that are listed
RECENT_PATIENTS = 50  # patients whose times give the pace: the current one, not that of the first


@dataclass(frozen=True)
class Stage:
    """A stage's jobs; `seconds_left` is None where too few are done to estimate it, or none is running."""

    name: str
    done: int
    waiting: int
    working: list[dict[str, Any]]  # as `workers`
    failed: dict[str, str]
    seconds_left: float | None

    @property
    def jobs(self) -> int:
        """All of them."""
        return self.done + self.waiting + len(self.working) + len(self.failed)


@dataclass(frozen=True)
class Status:
    """The process that holds a run ("" for none), and its stages."""

    held: str
    stages: list[Stage]
    verb: str = "run"  # that continues it


def status(study: Study) -> Status:
    """The status of the run, or evaluation, in the study's output. Raises UsageError where there is none."""
    run = study.output
    begun = (run / files.EVALUATED).exists() and not (run / files.FOLDS).exists()
    evaluated = begun or (run / files.EVALUATION).exists()
    if not (run / files.ENVIRONMENT).exists():
        raise UsageError(f"{run}: no run has begun here")
    if (run / files.PREDICTIONS).exists() and not (evaluated or (run / files.FOLDS).exists()):
        raise UsageError(f"{run}: holds predictions by another run, and has no stages of its own; name that run")
    held, began = _holder(run / ".holder")
    if not (run / files.COHORT).exists():
        return Status(held, [], "evaluate" if evaluated else "run")
    patients = run_cohort.patients(run, study)
    out = run_cohort.excluded(run) if (run / files.EXCLUDED).exists() else set()
    there = {p.id: when for p in patients if (when := _written(study.prepared / p.id / files.PATIENT))}
    stages = [_of_patients("prepare", run, [p.id for p in patients], there, out, began)]
    included = [patient for patient in patients if patient.id not in out]
    splits = load_folds(run / files.FOLDS, included) if (run / files.FOLDS).exists() else []
    folds = [len(split) for split in splits] or [study.train.folds] * study.train.repeats
    if not evaluated:
        if encoders := dict(_encoders(study, run, folds)):
            stages.append(_of_networks("pretrain", run, encoders, held))
        stages.append(_of_networks("train", run, dict(_networks(study, run, folds)), held))
    if study.explained:
        stages.append(_of_maps(study, included, splits, run, began, evaluated))
    page = run / files.REPORT / files.PAGE
    written = page.exists() and page.stat().st_mtime >= (run / files.PREDICTIONS).stat().st_mtime
    stages.append(Stage("report", int(written), int(not written), [], {}, None))
    return Status(held, stages, "evaluate" if evaluated else "run")


def _holder(file: Path) -> tuple[str, float]:
    """The process that holds a run, and since when; "" where it is dead. A process of another machine counts as alive."""
    try:
        held, began = file.read_text(encoding="utf-8"), file.stat().st_mtime
    except OSError:
        return "", time.time()
    words = held.split()
    known = len(words) > 3 and words[1].isdigit()
    return (held, began) if not known or lives(words[3], int(words[1])) else ("", time.time())


def _at_work(run: Path, *stages: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The running jobs of these stages, without those of dead processes here; and the failed jobs with the reason."""
    homes = [run / files.JOBS / stage for stage in stages]
    working = [one for home in homes for one in workers(home) if lives(one["host"], one["process"])]
    pages = [page for home in homes if (page := read_ledger(home))]
    again = {one["job"] for one in working}
    return working, {name: why for page in pages for name, why in page.failed.items() if name not in again}


def _of_patients(
    stage: str, run: Path, patients: Sequence[str], times: Mapping[str, float], out: set[str], began: float
) -> Stage:
    """A stage whose jobs are patients: those with a time were done then, those who are `out` are excluded."""
    working, failed = _at_work(run, stage)
    done = times.keys() | out
    working = [one for one in working if one["job"] not in done]
    failed = {name: why for name, why in failed.items() if name not in done}
    waiting = len(patients) - len(done) - len(working) - len(failed)
    return Stage(stage, len(done), waiting, working, failed, _paced(times.values(), waiting + len(working), began))


def _paced(times: Iterable[float], left: int, began: float) -> float | None:
    """Seconds for the jobs left, at the pace of the last ones done since the run `began`."""
    if not left:
        return 0.0
    recent = sorted(when for when in times if when >= began)[-RECENT_PATIENTS:]
    if len(recent) < 2:
        return None
    return left * (recent[-1] - recent[0]) / (len(recent) - 1)


def _of_networks(stage: str, run: Path, made: Mapping[str, Path], held: str) -> Stage:
    """A stage whose jobs are folds or encoders, each done where its file exists."""
    working, failed = _at_work(run, "pretrain", "train", "confirm")
    done = {name for name, file in made.items() if file.exists()}
    working = [one for one in working if one["job"] in made and one["job"] not in done]
    failed = {name: why for name, why in failed.items() if name in made and name not in done}
    waiting = len(made) - len(done) - len(working) - len(failed)
    names = [name for name in made if name not in done and name not in failed]
    return Stage(
        stage, len(done), waiting, working, failed, _summed(made, done, names, len(working)) if held or working else None
    )


def _summed(made: Mapping[str, Path], done: set[str], left: Sequence[str], at_a_time: int) -> float | None:
    """Seconds for the jobs left: the median of the network's other jobs, or of all."""
    took: dict[str, list[float]] = defaultdict(list)
    for name in done:
        began, ended = _begun(made[name].parent), _written(made[name])
        if began and ended:
            took[_network(name)].append(ended - began)
    if not left:
        return 0.0
    if not took:
        return None
    usual = median(second for seconds in took.values() for second in seconds)
    return sum(median(took.get(_network(name), [usual])) for name in left) / max(1, at_a_time)


def _network(name: str) -> str:
    """The network of a fold's job."""
    return name.rpartition(" ")[0]


def _begun(folder: Path) -> float | None:
    """The time at which work in a fold's folder began."""
    started = read_json_or_empty(folder / files.ENVIRONMENT).get("started")
    return datetime.fromisoformat(started).timestamp() if started else None


def _of_maps(
    study: Study, patients: Sequence[Patient], splits: Sequence[Split], run: Path, began: float, evaluated: bool
) -> Stage:
    limits = [len(patients) if most is None else most for most in (study.explain.patients, study.explain.scored)]
    wanted = {
        map_list.job_name(model, patient.id): (patient.id, comparator_folder(run, model))
        for model in explained(study)
        for patient in patients[: max(limits)]
    }
    last = {
        name: home / files.MAPS / patient / files.MAP if limits[0] else home / files.SCORES / f"{patient}.json"
        for name, (patient, home) in wanted.items()
    }
    if evaluated:
        left = {name for name, file in last.items() if not file.exists()}
    else:
        left = set(map_list.jobs(study, patients, splits[0], run) if splits else wanted)
    times = {name: _written(file) or began for name, file in last.items() if name not in left}
    return _of_patients("explain", run, list(wanted), times, set(), began)


def _encoders(study: Study, run: Path, folds: Sequence[int]) -> Iterator[tuple[str, Path]]:
    for name, of in networks(study).items():
        title, home = "pretrain" if name == VIT else f"pretrain {name}", comparator_folder(run, name)
        if of.pretrain.method != "none" and of.pretrain.patients != "others":
            yield title, home / files.PRETRAINED
        elif of.pretrain.method != "none":
            yield from ((f"{title} {folder.name}", folder / files.PRETRAINED) for folder in _folders(home, folds))


def _networks(study: Study, run: Path, folds: Sequence[int]) -> Iterator[tuple[str, Path]]:
    for name in networks(study):
        for folder in _folders(comparator_folder(run, name), folds):
            yield folder.name if name == VIT else f"{name} {folder.name}", folder / files.PREDICTIONS
    for name in (SHUFFLED, RESHUFFLED):
        home = control_folder(run, name)
        if home.exists() or (name == SHUFFLED and SHUFFLED in study.controls.models):
            yield from ((f"{name} {folder.name}", folder / files.PREDICTIONS) for folder in _folders(home, folds[:1]))


def _folders(home: Path, folds: Sequence[int]) -> Iterator[Path]:
    for repeat, count in enumerate(folds):
        yield from (files.fold_folder(home, repeat, fold) for fold in range(count))


def _written(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def show(found: Status, console: Console) -> None:
    """Print the process that holds the run, a table of its stages, the running jobs, and the failed ones."""
    done = found.stages and all(stage.done == stage.jobs for stage in found.stages)
    idle = "this run is done" if done else f"no process holds this run; `mri-vit {found.verb}` continues it"
    say(console, f"held by {found.held}" if found.held else idle)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for column in ("stage", "done", "running", "waiting", "failed", "time left"):
        table.add_column(column)
    for stage in found.stages:
        left = "" if stage.seconds_left is None or stage.done == stage.jobs else duration(stage.seconds_left)
        counts = (len(stage.working), stage.waiting, len(stage.failed))
        table.add_row(stage.name, f"{stage.done} of {stage.jobs}", *(str(count or "") for count in counts), left)
    console.print(table)
    for stage in found.stages:
        for one in stage.working[:SHOWN_JOBS]:
            say(console, f"running: {stage.name} {one['job']}, process {one['process']} on {one['host']} since {one['since']}")
        if len(stage.working) > SHOWN_JOBS:
            say(console, f"and {len(stage.working) - SHOWN_JOBS} more running")
        for name, why in stage.failed.items():
            say(console, f"failed: {stage.name} {name}: {why}", WARNING)
