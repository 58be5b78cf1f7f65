"""A study on clusters that run on this machine: as on one process, byte for byte, whatever is killed on the way. Minutes long.

SLURM wants Debian's packages, see `slurm.py`; where they are missing, or this is not root, its tests skip.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from made.jobs import square
from made.study import made_here

from cluster import slurm
from mri_vit import synthetic
from mri_vit.errors import Killed
from mri_vit.run import executors, files
from mri_vit.run import jobs as ledger
from mri_vit.run.jobs import Workplace
from mri_vit.settings.sections import Executor, Slurm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
COMMAND = (sys.executable, "-c", "from mri_vit.cli import main; main()")
STUDY = """
name = "small"
cohort = "scans/cohort.csv"
prepared = "prepared"
output = "run"
grid = { edge = 32, spacing_mm = 7.0, patch = 8 }
prepare = { bias = false }
model = { dim = 16, depth = 2, heads = 2, mlp = 32, tokens = "foreground" }
train = { folds = 3, epochs = 3, batch_size = 4, token_budget = 16, threads = 1 }
explain = { patients = 4, scored = 4 }
executor = { bundle = 4 }
slurm = { memory_gb = 2, time = 60, partition = "low" }
comparators = [{ name = "resnet10", model = { architecture = "resnet10" } }]
endpoints = [{ name = "mgmt", kind = "binary" }, { name = "os", kind = "survival", time = "os_days", event = "os_event" }]
"""
LONG = ("--train.epochs", "10000", "--train.patience", "10000", "--train.val_every", "100", "--controls.models", '["volume"]')
NEVER_S = 900.0  # within which whatever is waited for has happened


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve patients, three folds, one comparator, and how they come out in one process: `local` beside the study file."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        made_here(patch)
        synthetic.make(folder / "scans", seed=5, patients=12)
    (folder / "study.toml").write_text(STUDY)
    assert run(folder / "study.toml", "--output", folder / "local", "--prepared", folder / "local-prepared").wait() == 0
    return folder / "study.toml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ExitStack, Path, dict[str, int]]]:
    if lacking := slurm.lacking():
        pytest.skip(f"SLURM cannot be started here: {', '.join(lacking)}")
    folder = tmp_path_factory.mktemp("slurm")
    with ExitStack() as stack:
        yield stack, folder, stack.enter_context(slurm.running(folder))


def run(study: Path, *words: object, log: Path = Path(os.devnull)) -> subprocess.Popen[bytes]:
    """`mri-vit run`, begun."""
    with log.open("ab") as file:
        return subprocess.Popen([*COMMAND, "run", str(study), *map(str, words)], stdout=file, stderr=file)


def waited(ready: Callable[[], object]) -> None:
    until = time.monotonic() + NEVER_S
    while not ready():
        assert time.monotonic() < until, "it has not happened"
        time.sleep(0.05)


def same(folder: Path, other: Path) -> None:
    """What two runs have found is the same."""
    names = [files.PREDICTIONS, files.SURVIVAL, files.EXCLUDED, *(f"scores/{path.name}" for path in (other / "scores").iterdir())]
    for name in names:
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name


def at_work(home: Path, host: str) -> bool:
    """Whether a job of a stage is at work on one of the machines, which all have this one's name: told by SLURM."""
    return bool(list(home.glob(f"*{ledger.WORKING_ENDING}"))) and host in slurm.asked(
        "squeue", "--noheader", "--states=R", "--format=%N"
    )


def test_a_study_is_the_same_though_a_machine_dies_while_it_prepares_trains_and_explains(study, cluster):
    stack, folder, machines = cluster
    here = study.parent / "slurm"
    process = run(study, "--executor", "slurm", "--output", here, "--prepared", study.parent / "slurm-prepared")
    for stage in ("prepare", "train", "explain"):
        waited(lambda stage=stage: at_work(here / files.JOBS / stage, "n1"))
        slurm.killed(machines["n1"], "n1")
        waited(lambda: "n1" not in slurm.asked("squeue", "--noheader", "--states=R", "--format=%N"))
        machines["n1"] = slurm.start(stack, folder, "n1")
    assert process.wait() == 0
    same(here, study.parent / "local")
    assert not (here / files.JOBS).exists()


def test_who_always_dies_is_named_after_the_retries_and_the_rest_is_done(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # a job finds what the tests have made
    jobs = {f"p{number}": (number, tmp_path) for number in range(1, 6)}
    at = Workplace(1, tmp_path / "jobs" / "s", 5, Executor(kind="slurm", retries=1), Slurm(partition="low", memory_gb=1, cpus=1))
    found = {}
    with pytest.raises(Killed, match=r"p3: lost 2 times.*SLURM's job \d+.*_log\.out") as end:  # noqa: PT012 (it raises last)
        for name, result in executors.each(square, jobs, at):
            found[name] = result
    assert found == {f"p{number}": number**2 for number in (1, 2, 4, 5)}
    assert list(end.value.how) == ["p3"]


def test_a_preempted_fold_goes_on_from_its_checkpoint(study, cluster):
    here, other = study.parent / "preempted", study.parent / "undisturbed"
    words = (*LONG, "--comparators", "[]", "--explain.patients", "0", "--explain.scored", "0")
    plain = run(study, *words, "--train.workers", "2", "--output", other, "--prepared", study.parent / "local-prepared")
    process = run(study, *words, "--executor", "slurm", "--output", here, "--prepared", study.parent / "local-prepared")
    waited(lambda: list(here.glob(f"fold-*/{files.STATE}")))
    (state, *_) = here.glob(f"fold-*/{files.STATE}")
    for _node in slurm.NODES:
        subprocess.run(["sbatch", "--partition=high", "--output=/dev/null", "--wrap", "sleep 5"], check=True, capture_output=True)
    assert process.wait() == plain.wait() == 0
    assert len(list((state.parents[1] / "tensorboard").iterdir())) == 2, "it began twice"
    assert _first_step(sorted((state.parents[1] / "tensorboard").iterdir())[1]) > 0, "the second time not from nothing"
    same_tables = [files.PREDICTIONS, files.SURVIVAL]
    assert all((here / name).read_bytes() == (other / name).read_bytes() for name in same_tables)


def _first_step(events: Path) -> int:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return next(event.step for event in EventFileLoader(str(events)).Load() if event.summary.value)


def test_a_coordinator_that_dies_or_is_stopped_finds_its_jobs_when_it_is_started_again(study, cluster, tmp_path):
    here, log = study.parent / "again", tmp_path / "log"
    quick = (*LONG, "--train.epochs", "2000", "--comparators", "[]", "--explain.patients", "0", "--explain.scored", "0")
    words = (study, "--executor", "slurm", "--output", here, "--prepared", study.parent / "local-prepared", *quick)
    home = here / files.JOBS / "train"
    handed_in = []
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        began, process = time.time(), run(*words, log=log)
        waited(lambda began=began: _changed(home / ledger.LEDGER) > began and list(home.glob(f"*{ledger.WORKING_ENDING}")))
        said = subprocess.run([*COMMAND, "status", str(here)], capture_output=True, check=True).stdout.decode()
        assert f"held by process {process.pid}" in said
        assert "running: train fold-" in said
        process.send_signal(number)
        assert process.wait() == code
        handed_in.append(set(json.loads((home / ledger.LEDGER).read_bytes())["submitted"]))
    assert "scancel" in log.read_text()
    assert run(*words).wait() == 0
    assert handed_in[1] <= handed_in[0], "nothing was handed in twice"
    assert not home.exists()


def _changed(file: Path) -> float:
    return file.stat().st_mtime if file.exists() else 0.0


@contextmanager
def workers(count: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler of Dask and so many workers, in processes of this machine; the address, and the workers."""
    dask = Path(sys.executable).with_name("dask")
    port = slurm.free_ports(1)[0]
    scheduler = [str(dask), "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-show"]
    worker = [str(dask), "worker", f"tcp://127.0.0.1:{port}", "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    with ExitStack() as stack:
        begun = [
            subprocess.Popen(one, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for one in [scheduler] + [worker] * count
        ]
        for process in begun:
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield f"dask://127.0.0.1:{port}", begun[1:]


def test_a_study_is_the_same_on_the_workers_of_a_scheduler_though_one_is_killed(study):
    here = study.parent / "dask"
    with workers(2) as (address, processes):
        process = run(study, "--executor", address, "--output", here, "--prepared", study.parent / "dask-prepared")
        home = here / files.JOBS / "train"
        waited(lambda: _process(home) in {one.pid for one in processes})
        os.kill(_process(home), signal.SIGKILL)
        assert process.wait() == 0
    same(here, study.parent / "local")


def _process(home: Path) -> int:
    """One that is at work."""
    found: Sequence[dict[str, int]] = ledger.workers(home)
    return found[0]["process"] if found else 0


def test_a_scheduler_that_does_not_answer_or_has_workers_of_several_threads_is_refused(study):
    words = ("--output", study.parent / "refused", "--prepared", study.parent / "refused-prepared")
    assert run(study, "--executor", "dask://127.0.0.1:1", *words).wait() == 2
