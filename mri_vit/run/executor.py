"""Executor: the one seam through which a stage's jobs are done, wherever that is. Jobs go in, results come out as they come.

A job is a function's arguments under a name. The function reads and writes files, goes on from its own, and may be done twice at
once without harm: a cluster that lost sight of a job starts it again.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar

from mri_vit.errors import JobsLeft, Killed, OutOfResource
from mri_vit.run import files, ledger, processes
from mri_vit.run.task import Cluster, Done, Lost, Task, Where, said
from mri_vit.settings.schema import Study

T = TypeVar("T")
POLL_S = 5.0  # between two looks at a cluster's queue, whose scheduler serves many


def where(study: Study, run: Path, stage: str, workers: int, bundle: int = 1, devices: int = 1) -> Where:
    """Where a stage of a study is done, whose run lies in `run`: by so many workers, with so many GPUs each, or in bundles."""
    asked = study.slurm.model_copy(update={"cpus": study.slurm.cpus or study.train.threads})
    return Where(workers, run / files.JOBS / stage, bundle, study.executor, asked, devices)


def each(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], at: Where) -> Iterator[tuple[str, Any]]:
    """A job's name and `function`'s result for its arguments, as they come; what has not begun is dropped on an error.

    Raises what `function` raises; when all others are done, `Killed` naming the jobs on which processes were killed; and
    JobsLeft when somebody stops this process while a cluster works.
    """
    if at.home and (at.here or not jobs):
        ledger.close(at.home)  # what an earlier process left: it works no more, for this one holds the run
    if not jobs:
        return
    try:
        yield from _here(function, jobs, at) if at.here else _elsewhere(function, jobs, at)
    except Killed as end:
        if at.home:
            ledger.Page(at.settings.kind, failed=end.how).write(at.home)
        raise
    if at.home:
        ledger.close(at.home)


def _here(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], at: Where) -> Iterator[tuple[str, Any]]:
    wrapped = {name: (at.home, name, function, arguments) for name, arguments in jobs.items()}
    yield from processes.each(said, wrapped, at.workers, at.devices)


def _elsewhere(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], at: Where) -> Iterator[tuple[str, Any]]:
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


def _found_again(task: Task, at: Where, cluster: Cluster) -> ledger.Page:
    """What an earlier process handed in of the same work and still waits or is at work: by task the jobs that are wanted."""
    before, page = ledger.read(task.home), ledger.Page(at.settings.kind)
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


def _again(names: Sequence[str], outcome: Lost, tries: Counter[str], at: Where, failed: dict[str, str]) -> list[list[str]]:
    """What is handed in again of a task that was lost; a job that was lost alone too often is given up."""
    again = []
    for name in names:
        ledger.forget(at.home, name)
        tries[name] += 1
        if len(names) == 1 and tries[name] > at.settings.retries:
            failed[name] = f"lost {tries[name]} times; {outcome.how}"
        else:
            again.append([name])
    return again


def _cluster(at: Where) -> AbstractContextManager[Cluster]:
    """The cluster that the settings name, as a context. Raises UsageError where it cannot be reached."""
    if at.settings.kind == "slurm":
        from mri_vit.run.slurm import Queue

        return Queue(at)
    from mri_vit.run.dask import Scheduler

    return Scheduler(at)
