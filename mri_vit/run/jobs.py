"""Jobs: work in processes of this machine, a GPU for each; what a cluster's process is handed; and the ledger of a run's stage.

The ledger is small files in the run's folder that say, while a stage runs, which process works on which job, what was handed out
and what failed. Any process may read them. Results are not in it: a job is done when its own files are there.

A process that is killed (by the kernel, where memory runs out) takes the pool with it. The jobs that were being worked on then
are tried again alone, one after the other; a job whose process is killed even so fails, and the others go on.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from mri_vit.errors import Killed, MriVitError
from mri_vit.run import files
from mri_vit.run.atomic import write_bytes
from mri_vit.run.integrity import read_json_or_empty
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Executor, Slurm

if sys.platform == "win32":  # which cannot copy a process
    from multiprocessing.context import SpawnContext as ForkServerContext
else:
    from multiprocessing.context import ForkServerContext

T = TypeVar("T")
LEDGER = "handed_out.json"
WORKING_ENDING = ".working.json"  # how the files of those who work end
FROM_OUTSIDE = ("submitit", "subprocess", "torch.multiprocessing")  # whose errors say that a process was stopped, not what it did
Done = dict[str, tuple[Exception | None, Any]]  # by job what its function raised, or gave
CONTEXT = get_context("spawn")  # fork and running threads (torch, ITK) do not go together
MAX_WORKERS = 61 if sys.platform == "win32" else sys.maxsize  # processes that a pool of Python's can wait for on Windows
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"  # the GPUs that a process sees, by number or name


@dataclass
class Ledger:
    """What was handed out: to which worker, each task's jobs with hashes of what there is to do, and what failed."""

    executor: str
    submitted: dict[str, dict[str, str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def write(self, home: Path) -> None:
        """Replace what stands in the stage's folder."""
        home.mkdir(parents=True, exist_ok=True)
        write_bytes(json.dumps(asdict(self)).encode(), home / LEDGER)


def read_ledger(home: Path) -> Ledger | None:
    """What was handed out in a stage's folder; None where nothing was, or it cannot be read."""
    content = read_json_or_empty(home / LEDGER)
    try:
        return Ledger(**content) if content else None
    except TypeError:  # of another version
        return None


@contextmanager
def working_on(home: Path | None, name: str) -> Iterator[None]:
    """Record in `home` which process works on a job for as long as the block lasts; without a `home` there is no record."""
    if home is None:
        yield
        return
    file = _sign(home, name)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def turn_to_job(home: Path, name: str) -> None:
    """Say in `home` that this process works on a job now, and no longer on another."""
    for file in home.glob(f"*{WORKING_ENDING}"):
        if read_json_or_empty(file).get("process") == os.getpid():
            file.unlink(missing_ok=True)
    _sign(home, name)


def _sign(home: Path, name: str) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    file = home / f"{name.replace(' ', '+')}{WORKING_ENDING}"
    record = {"job": name, "host": platform.node(), "process": os.getpid()}
    write_bytes(json.dumps({**record, "since": datetime.now(UTC).isoformat(timespec="seconds")}).encode(), file)
    return file


def workers(home: Path) -> list[dict[str, Any]]:
    """Who works in a stage's folder: job, host, process, since. Who was killed is among them until somebody notices."""
    found = [read_json_or_empty(file) for file in sorted(home.glob(f"*{WORKING_ENDING}"))]
    return [one for one in found if {"job", "host", "process", "since"} <= one.keys()]


def forget_worker(home: Path | None, name: str) -> None:
    """The process that worked on this was killed."""
    if home is None:
        return
    (home / f"{name.replace(' ', '+')}{WORKING_ENDING}").unlink(missing_ok=True)


def close_ledger(home: Path) -> None:
    """Everything is done: the stage's folder goes, and that of all stages with the last."""
    shutil.rmtree(home, ignore_errors=True)
    with suppress(OSError):
        home.parent.rmdir()


@dataclass(frozen=True)
class Workplace:
    """Where jobs are done: in so many processes here, or as the settings say, so many in a bundle; what is known is in `home`."""

    workers: int
    home: Path | None = None
    bundle: int = 1
    settings: Executor = field(default_factory=Executor)
    slurm: Slurm = field(default_factory=Slurm)
    devices: int = 1  # GPUs that a process here sees, where there are any
    imported: tuple[str, ...] = ()  # modules that its processes here need, which are imported once for all of them

    @property
    def here(self) -> bool:
        """Whether it is this machine."""
        return self.settings.kind == "local"


@dataclass(frozen=True)
class Lost:
    """How work ended that came to nothing: its process was killed, or its machine went away."""

    how: str


@dataclass(frozen=True)
class Task:
    """Some of a stage's jobs, which a process does one after the other; what it gives is as `Done`."""

    function: Callable[..., Any]
    jobs: dict[str, tuple[Any, ...]]
    home: Path

    def digests(self) -> dict[str, str]:
        """By job a hash of what is to be done, by which a process that starts again knows what it had handed in."""
        return {name: hashlib.sha256(job_text((self.function, given)).encode()).hexdigest() for name, given in self.jobs.items()}

    def __call__(self) -> Done:
        done: Done = {}
        for name, arguments in self.jobs.items():
            try:
                done[name] = None, do_job(self.home, name, self.function, arguments)
            except Exception as error:
                if type(error).__module__.startswith(FROM_OUTSIDE):
                    raise
                traceback.print_exc()
                error.add_note(f"in the job {name}, where it was raised:\n{traceback.format_exc()}")
                done[name] = error, None  # whoever handed it out raises it
                break
        return done


@runtime_checkable
class Cluster(Protocol):
    """What does tasks elsewhere. A task is known by the name that the cluster gave it."""

    most: int  # tasks that are handed in at a time

    def submit(self, tasks: Sequence[Task]) -> list[str]:
        """Hand tasks in; their names, in this order."""
        ...

    def waiting(self, names: Sequence[str]) -> set[str]:
        """Which of the tasks that an earlier process handed in are in the queue or at work."""
        ...

    def ended(self, names: Sequence[str]) -> dict[str, Done | Lost]:
        """Those of the tasks that have ended."""
        ...

    def drop(self, names: Sequence[str]) -> None:
        """Take back those of the tasks that have not begun."""
        ...

    def left(self, names: Sequence[str]) -> str:
        """What becomes of tasks whose results are no longer awaited, and how to end them."""
        ...


def job_text(given: Any) -> str:
    """What a job is given, in words that are the same in every process; where it is to be done is no part of it."""
    if isinstance(given, Study):
        return repr(given.model_copy(update={"executor": Executor(), "slurm": Slurm()}))
    if is_dataclass(given):
        return f"{type(given).__qualname__}({', '.join(job_text(getattr(given, one.name)) for one in fields(given))})"
    if isinstance(given, (list, tuple)):
        return f"[{', '.join(map(job_text, given))}]"
    return f"{given.__module__}.{given.__qualname__}" if callable(given) else repr(given)


def do_job(home: Path | None, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Do a job, and say in `home` who works on it."""
    with working_on(home, name):
        return function(*arguments)


def gpus(devices: int) -> list[str]:
    """The GPUs that this process sees, as `VISIBLE_GPUS` names them, in hands of so many; what is left over belongs to none."""
    if (seen := os.environ.get(VISIBLE_GPUS)) is not None:
        names = [name for name in seen.split(",") if name.strip()]
    else:
        import torch

        names = [str(number) for number in range(torch.cuda.device_count())]
    return [",".join(names[start : start + devices]) for start in range(0, len(names) - devices + 1, devices)]


def run_in_processes(
    function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], at: Workplace
) -> Iterator[tuple[str, Any]]:
    """A job's name and `function`'s result for its arguments, as they come; what has not begun is dropped on an error.

    Raises what `function` raises, and, when all others are done, `Killed` naming the jobs on which a process was killed.
    """
    waiting, how, assigned, context = deque(jobs), dict[str, str](), gpus(at.devices), _context(at.imported)
    while waiting:
        suspects = yield from _together(function, jobs, waiting, at.workers, assigned, context)
        for name in suspects:
            ending, result = _alone(name, function, jobs[name], assigned[:1], context)
            if ending:
                how[name] = ending
            else:
                yield name, result
    if how:
        raise Killed(how)


def _context(imported: Sequence[str]) -> SpawnContext | ForkServerContext:
    """How processes start: each anew, or, where modules are named, as a copy of one that did nothing but import these.

    To import PyTorch and Fabric takes longer than many a job. The first list that a process names holds for its later ones too.
    A copy ends without what was registered with `atexit`. Windows has no copies: there each starts anew.
    """
    if not imported or sys.platform == "win32" or "forkserver" not in get_all_start_methods():
        return CONTEXT
    from multiprocessing import forkserver

    context = get_context("forkserver")
    context.set_forkserver_preload(list(imported))
    before = dict(os.environ)
    # Before Python 3.13 it looks for modules in the current folder, and not where this process does (CPython issue 117378).
    os.environ |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    try:
        forkserver.ensure_running()
    finally:
        _set_environment(before)
    return context


def _started(start: Callable[[], T]) -> T:
    """What `start` gives, which may start a process."""
    try:
        return start()
    except (ConnectionError, EOFError) as error:
        raise MriVitError("the process whose copies do the work was killed, or cannot import what they need") from error


def _set_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _together(
    function: Callable[..., Any],
    jobs: Mapping[str, tuple[Any, ...]],
    waiting: deque[str],
    workers: int,
    assigned: list[str],
    context: SpawnContext | ForkServerContext,
) -> Generator[tuple[str, Any], None, list[str]]:
    """Work through `waiting` until it is empty or a process is killed; returns who was being worked on then."""
    workers = min(workers, MAX_WORKERS)
    cards = context.SimpleQueue()
    for worker in range(workers):
        cards.put(assigned[worker % len(assigned)] if assigned else "")
    with ProcessPoolExecutor(workers, context, _begin, (cards, dict(os.environ))) as pool:
        running: dict[Future[Any], str] = {}
        try:
            while waiting or running:
                while waiting and len(running) < workers:  # no more than are worked on, so that a killed pool's are known
                    running[_started(partial(pool.submit, function, *jobs[waiting[0]]))] = waiting[0]
                    waiting.popleft()
                for job in wait(running, return_when=FIRST_COMPLETED).done:
                    result = job.result()
                    yield running.pop(job), result
        except BrokenProcessPool:
            done = [job for job in running if job.done() and not job.exception()]
            for job in done:
                yield running.pop(job), job.result()
            return list(running.values())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return []


def _begin(cards: Any, environment: Mapping[str, str]) -> None:
    """In a process, before it looks for a GPU: it sees its own alone, so that it takes no memory of another's."""
    end_with_parent()
    _set_environment(environment)
    if card := cards.get():
        os.environ[VISIBLE_GPUS] = card


def end_with_parent() -> None:
    """In a process: end with the one that started it, however that was killed; else it would wait for work and hold memory."""
    parent = parent_process()
    assert parent

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _alone(
    name: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    assigned: list[str],
    context: SpawnContext | ForkServerContext,
) -> tuple[str, Any]:
    """How a process that does this and nothing else was killed ("" where it was not), and the result."""
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(sending, function, arguments, assigned, dict(os.environ)))
    _started(process.start)
    sending.close()
    try:
        fault, result = receiving.recv()
    except EOFError:  # it ended without a word
        process.join()
        code = process.exitcode or 0
        if code >= 0:  # it was not killed: it cannot even start, which is no job's fault
            raise MriVitError(f"a process ended with exit code {code} before it gave a result (for {name})") from None
        return _ending(code), None
    except BaseException:  # interrupted: its result is no longer awaited
        process.terminate()
        raise
    process.join()
    if fault:
        raise fault
    return "", result


def _report(
    sending: Connection,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    assigned: list[str],
    environment: Mapping[str, str],
) -> None:
    """In the process."""
    end_with_parent()
    _set_environment(environment)
    if assigned:
        os.environ[VISIBLE_GPUS] = assigned[0]
    try:
        done = None, function(*arguments)
    except Exception as error:
        done = error, None
    sending.send(done)


def _ending(code: int) -> str:
    """What the exit code of a process says that a signal ended."""
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    cause = ", probably for lack of memory" if name == "SIGKILL" else ""
    return f"its process was killed ({name}) while it worked on nothing else{cause}"


def detached(words: Sequence[str], folder: Path) -> int:
    """Start `mri-vit` with these words, printing to the log in `folder`; the number of its process, which runs on by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", "from mri_vit.cli import main; main()", *words]
    apart = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.DETACHED_PROCESS if sys.platform == "win32" else 0
    with (folder / files.LOG).open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # which Windows ignores
            creationflags=apart,
        )
    process.returncode = 0  # nothing here waits for its end, and Python needs no reminder of that
    return process.pid
