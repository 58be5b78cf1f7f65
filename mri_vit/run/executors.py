"""Executors: how a stage's jobs are done, on this machine, in SLURM's queue (by submitit) or by a scheduler's workers (dask).

A job is a function's arguments under a name. The function reads and writes files, goes on from its own, and may be done twice at
once without harm: a cluster that lost sight of a job starts it again.
"""

from __future__ import annotations

import concurrent.futures
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mri_vit.errors import JobsLeft, Killed, OutOfResource, UsageError
from mri_vit.run import files
from mri_vit.run.jobs import (
    Cluster,
    Done,
    Ledger,
    Lost,
    Task,
    Workplace,
    close_ledger,
    do_job,
    forget_worker,
    read_ledger,
    run_in_processes,
)
from mri_vit.settings.schema import Study

if TYPE_CHECKING:
    import submitit

T = TypeVar("T")
POLL_S = 5.0  # between two looks at a cluster's queue, whose scheduler serves many
ARRAY_JOBS = 500  # jobs in an array: SLURM's MaxArraySize is 1001 unless the cluster says otherwise
MAX_TIMEOUTS = 1000  # how often a job that ran out of time goes on; submitit's 3 would end a long fold
LATE_S = 20.0  # a result may be seen that much later than its job leaves the queue, on a disk over a network
ASKING_S = 60  # for squeue and scancel; a busy scheduler takes its time
ANSWER_S = 20  # for dask's scheduler to answer


def workplace(
    study: Study, run: Path, stage: str, workers: int, bundle: int = 1, devices: int = 1, imported: tuple[str, ...] = ()
) -> Workplace:
    """Where a stage of a study is done, whose run lies in `run`: by so many workers, with so many GPUs each, or in bundles.

    `imported` are modules that all workers need.
    """
    asked = study.slurm.model_copy(update={"cpus": study.slurm.cpus or study.train.threads})
    return Workplace(workers, run / files.JOBS / stage, bundle, study.executor, asked, devices, imported)


def each(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], at: Workplace) -> Iterator[tuple[str, Any]]:
    """A job's name and `function`'s result for its arguments, as they come; what has not begun is dropped on an error.

    Raises what `function` raises; when all others are done, `Killed` naming the jobs on which processes were killed; and
    JobsLeft when somebody stops this process while a cluster works.
    """
    if at.home and (at.here or not jobs):
        close_ledger(at.home)  # what an earlier process left: it works no more, for this one holds the run
    if not jobs:
        return
    try:
        if at.here:
            wrapped = {name: (at.home, name, function, arguments) for name, arguments in jobs.items()}
            yield from run_in_processes(do_job, wrapped, at)
        else:
            yield from _elsewhere(function, jobs, at)
    except Killed as end:
        if at.home:
            Ledger(at.settings.kind, failed=end.how).write(at.home)
        raise
    if at.home:
        close_ledger(at.home)


def _elsewhere(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], at: Workplace) -> Iterator[tuple[str, Any]]:
    """Hand bundles to a cluster until all are done. Jobs of a bundle that was lost are handed in again, each alone."""
    assert at.home is not None  # a cluster's jobs leave their logs there
    with _cluster(at) as cluster:
        page = _found_again(Task(function, dict(jobs), at.home), at, cluster)
        running, tries, failed = page.submitted, Counter[str](), dict[str, str]()
        at_work = {name for mine in running.values() for name in mine}
        todo = _bundles([name for name in jobs if name not in at_work], at.bundle)
        page.write(at.home)
        try:
            while todo or running:
                for names in _bundles(todo, cluster.most):
                    tasks = [Task(function, {name: jobs[name] for name in mine}, at.home) for mine in names]
                    running.update(zip(cluster.submit(tasks), [task.digests() for task in tasks], strict=True))
                    page.write(at.home)
                todo, ended = [], cluster.ended(list(running))
                for task, outcome in ended.items():
                    mine = list(running.pop(task))
                    if isinstance(outcome, Lost):
                        todo += _again(mine, outcome, tries, at, failed)
                    else:
                        yield from _results(outcome, mine)
                if running and not ended:
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            raise JobsLeft(cluster.left(list(running))) from None
        except SystemExit:  # SIGTERM
            print(f"mri-vit: {cluster.left(list(running))}", file=sys.stderr)
            raise
        except Exception:
            with suppress(OutOfResource):  # of a queue that does not answer; what had gone wrong before is raised
                cluster.drop(list(running))
            raise
    if failed:
        raise Killed(failed)


def _found_again(task: Task, at: Workplace, cluster: Cluster) -> Ledger:
    """What an earlier process handed in of the same work and still waits or is at work: by task the jobs that are wanted."""
    before, page = read_ledger(task.home), Ledger(at.settings.kind)
    if before and before.executor == page.executor and before.submitted:
        wanted, alive = task.digests(), cluster.waiting(list(before.submitted))
        matching = {name: dict(mine.items() & wanted.items()) for name, mine in before.submitted.items() if name in alive}
        page.submitted = {name: mine for name, mine in matching.items() if mine}
    return page


def _bundles(items: Sequence[T], size: int) -> list[list[T]]:
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


def _results(outcome: Done, mine: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for name, (fault, result) in outcome.items():
        if fault:
            raise fault
        if name in mine:
            yield name, result


def _again(names: Sequence[str], outcome: Lost, tries: Counter[str], at: Workplace, failed: dict[str, str]) -> list[list[str]]:
    """What is handed in again of a task that was lost; a job that was lost alone too often is given up."""
    again = []
    for name in names:
        forget_worker(at.home, name)
        tries[name] += 1
        if len(names) == 1 and tries[name] > at.settings.retries:
            failed[name] = f"lost {tries[name]} times; {outcome.how}"
        else:
            again.append([name])
    return again


def _cluster(at: Workplace) -> AbstractContextManager[Cluster]:
    """The cluster that the settings name, as a context. Raises UsageError where it cannot be reached."""
    return Queue(at) if at.settings.kind == "slurm" else Scheduler(at)


class Resumed:
    """A task that SLURM may take off a machine, and that goes on from its own files on another."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(self) -> Done:
        return self.task()

    def checkpoint(self) -> Any:
        """What goes back into the queue: the same."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


class Queue:
    """SLURM's queue, by submitit, as `Cluster`: tasks become jobs, and files record how they ended. No port is opened.

    A job that is preempted or out of time goes back into the queue and on from its own files. Of one that was killed there is
    no record where SLURM keeps no accounts; it is lost when it is in the queue no more and has left no result.
    """

    def __init__(self, at: Workplace) -> None:
        try:
            import submitit
        except ImportError:
            raise UsageError('executor "slurm" needs the extra cluster: pip install "mri-vit[cluster]"') from None
        assert at.home is not None
        logging.getLogger("submitit").setLevel(logging.ERROR)
        self._folder, asked = at.home / "%j", at.slurm
        try:
            self._sbatch = submitit.SlurmExecutor(self._folder, max_num_timeout=MAX_TIMEOUTS)
        except RuntimeError:
            raise UsageError('executor "slurm": no srun here; run on a machine from which jobs are handed in') from None
        wanted = {"partition": asked.partition, "gpus_per_node": asked.gpus or None}
        self._sbatch.update_parameters(
            job_name="mri-vit",
            time=asked.time,
            cpus_per_task=asked.cpus,
            mem=f"{round(asked.memory_gb * 1024)}M",
            array_parallelism=asked.at_a_time,
            stderr_to_stdout=True,
            additional_parameters=dict(asked.options),
            **{key: value for key, value in wanted.items() if value},
        )
        self._missing: dict[str, float] = {}  # since when a job has been neither in the queue nor done

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    most = ARRAY_JOBS

    def submit(self, tasks: Sequence[Task]) -> list[str]:
        """Hand tasks in, as an array. Raises UsageError with what sbatch says."""
        from submitit.core.utils import FailedJobError

        try:
            with self._sbatch.batch():
                jobs = [self._sbatch.submit(Resumed(task)) for task in tasks]
        except (FailedJobError, subprocess.CalledProcessError) as error:
            raise UsageError(f"sbatch refuses the jobs: {' '.join(str(error).split())[-300:]}") from None
        return [job.job_id for job in jobs]

    def waiting(self, names: Sequence[str]) -> set[str]:
        """Which of the jobs that an earlier process handed in are in the queue or at work; raises OutOfResource as `_ask`."""
        return self._queued(names) & set(names)

    def ended(self, names: Sequence[str]) -> dict[str, Done | Lost]:
        """Results of those that have some, and what is lost; nothing is while squeue does not answer."""
        found: dict[str, Done | Lost] = {name: self._read(name) for name in names if self._result(name).exists()}
        open_, now = [name for name in names if name not in found], time.monotonic()
        try:
            queued = self._queued(open_)
        except OutOfResource:
            self._missing.clear()
            return found
        for name in open_:
            if name in queued:
                self._missing.pop(name, None)
            elif now - self._missing.setdefault(name, now) >= LATE_S:
                found[name] = Lost(f"SLURM's job {name} ended without a result; see {self.log(name)}")
        return found

    def drop(self, names: Sequence[str]) -> None:
        if names:
            _ask("scancel", "--state=PENDING", *names)

    def left(self, names: Sequence[str]) -> str:
        """How to go on, or to end them."""
        whole = " ".join(sorted({name.partition("_")[0] for name in names}))
        return (
            f"interrupted; {len(names)} jobs stay in the queue and do their work: the same command waits for them again,"
            f" `mri-vit status` shows them, `scancel {whole}` ends them"
        )

    def log(self, name: str) -> Path:
        """What a job printed."""
        return self._job(name).paths.stdout

    def _job(self, name: str) -> submitit.SlurmJob[Any]:
        import submitit

        return submitit.SlurmJob(self._folder, name)

    def _result(self, name: str) -> Path:
        return self._job(name).paths.result_pickle

    def _read(self, name: str) -> Done | Lost:
        from submitit.core.utils import FailedJobError, UncompletedJobError

        try:
            return self._job(name).result()
        except (FailedJobError, UncompletedJobError):  # before our function, or after it: it raises nothing itself
            return Lost(f"SLURM's job {name} failed; see {self.log(name)}")

    def _queued(self, names: Sequence[str]) -> set[str]:
        """Which of the jobs wait or run."""
        if not names:
            return set()
        whole = ",".join(sorted({name.partition("_")[0] for name in names}))
        printed = _ask("squeue", "--noheader", "--array", "--format=%i", f"--jobs={whole}")
        return set(printed.split())


def _ask(*command: str) -> str:
    """What a command of SLURM's prints. Raises OutOfResource where it does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASKING_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OutOfResource(f"{command[0]}: {error}; jobs go on, and the same command waits for them again") from None
    if done.returncode and "Invalid job id" not in done.stderr:  # all have long ended
        raise OutOfResource(f"{command[0]}: {done.stderr.strip()}; jobs go on, and the same command waits for them again")
    return done.stdout


class Scheduler:
    """A scheduler's workers, by dask.distributed, as `Cluster`: tasks become futures of one of Python's executors.

    Futures live as long as the process that holds them: when it is stopped, what has not begun is dropped, and what is at work
    ends.
    """

    def __init__(self, at: Workplace) -> None:
        try:
            import distributed
            from distributed.scheduler import KilledWorker
        except ImportError:
            raise UsageError(f'executor "{at.settings.kind}" needs the extra cluster: pip install "mri-vit[cluster]"') from None
        address = at.settings.kind.replace("dask://", "tcp://")
        try:
            self._client = distributed.Client(address, timeout=ANSWER_S, set_as_default=False)
        except OSError:
            raise UsageError(f'executor "{at.settings.kind}": no scheduler answers there within {ANSWER_S} s') from None
        threads: Collection[int] = self._client.nthreads().values()  # type: ignore[attr-defined]  # a coroutine only where asked for
        if any(count > 1 for count in threads):
            self._client.close()
            raise UsageError(
                f'executor "{at.settings.kind}": a worker has {max(threads)} threads, and PyTorch\'s settings are of a process;'
                " start workers with --nthreads 1"
            )
        self._killed = KilledWorker
        self._executor: concurrent.futures.Executor = self._client.get_executor(pure=False)
        self._futures: dict[str, concurrent.futures.Future[Done]] = {}

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    most = 10_000  # in a message to the scheduler

    def submit(self, tasks: Sequence[Task]) -> list[str]:
        names = [f"future {len(self._futures) + number}" for number in range(len(tasks))]
        self._futures |= {name: self._executor.submit(task) for name, task in zip(names, tasks, strict=True)}
        return names

    def waiting(self, names: Sequence[str]) -> set[str]:
        return set()  # no future outlives the process that held it

    def ended(self, names: Sequence[str]) -> dict[str, Done | Lost]:
        found: dict[str, Done | Lost] = {}
        for name in names:
            future = self._futures[name]
            if future.done():
                try:
                    found[name] = future.result()
                except (self._killed, concurrent.futures.CancelledError, concurrent.futures.BrokenExecutor) as error:
                    found[name] = Lost(f"its workers died ({' '.join(str(error).split())[:200]})")
        return found

    def drop(self, names: Sequence[str]) -> None:
        for name in names:
            self._futures[name].cancel()

    def left(self, names: Sequence[str]) -> str:
        """They are not left: the scheduler drops what no client holds."""
        return "interrupted; what workers were at is finished, the rest was taken back; the same command goes on"
