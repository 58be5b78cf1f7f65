"""A scheduler's workers, by dask.distributed: tasks become futures, whose executor is one of Python's concurrent.futures.

Futures live as long as the process that holds them: when it is stopped, what has not begun is dropped, and what is at work ends.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Collection, Sequence

from mri_vit.errors import UsageError
from mri_vit.run.task import Done, Lost, Task, Where

ANSWER_S = 20  # for the scheduler to answer


class Scheduler:
    """The workers of a scheduler, as `task.Cluster`."""

    def __init__(self, at: Where) -> None:
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
        """Hand tasks in."""
        names = [f"future {len(self._futures) + number}" for number in range(len(tasks))]
        self._futures |= {name: self._executor.submit(task) for name, task in zip(names, tasks, strict=True)}
        return names

    def waiting(self, names: Sequence[str]) -> set[str]:
        """No future outlives the process that held it."""
        return set()

    def ended(self, names: Sequence[str]) -> dict[str, Done | Lost]:
        """Results of those that have some, and what was lost with its workers."""

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
        """Take back what has not begun."""
        for name in names:
            self._futures[name].cancel()

    def left(self, names: Sequence[str]) -> str:
        """They are not left: the scheduler drops what nobody holds."""
        return "interrupted; what workers were at is finished, the rest was taken back; the same command goes on"
