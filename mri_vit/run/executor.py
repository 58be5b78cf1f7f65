"""Patients in processes of their own: one after the other per process, several processes at a time.

A process that is killed (by the kernel, where memory runs out) takes the pool with it. Whoever was being worked on then is tried
again alone, one after the other; who is killed even so is to blame, and the others go on.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from mri_vit.errors import MriVitError, OutOfResource

CONTEXT = get_context("spawn")  # fork and running threads (torch, ITK) do not go together


class Killed(OutOfResource):
    """Processes were killed, each when it worked on one job alone; `how` says by job what ended it. All other jobs are done."""

    def __init__(self, how: Mapping[str, str]) -> None:
        said = "; ".join(f"{job}: {ending}" for job, ending in how.items())
        super().__init__(f"{said}. All others are done; run again to try once more, with more memory or with a smaller setting")
        self.how = dict(how)


def each(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], workers: int) -> Iterator[tuple[str, Any]]:
    """Patient and `function`'s result for the patient's arguments, as they come; what has not begun is dropped on an error.

    Raises what `function` raises, and, when all others are done, `Killed` naming the patients on whom a process was killed.
    """
    waiting, how = deque(jobs), dict[str, str]()
    while waiting:
        suspects = yield from _together(function, jobs, waiting, workers)
        for patient in suspects:
            ending, result = _alone(patient, function, jobs[patient])
            if ending:
                how[patient] = ending
            else:
                yield patient, result
    if how:
        raise Killed(how)


def _together(
    function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], waiting: deque[str], workers: int
) -> Generator[tuple[str, Any], None, list[str]]:
    """Work through `waiting` until it is empty or a process is killed; returns who was being worked on then."""
    with ProcessPoolExecutor(workers, CONTEXT) as pool:
        running: dict[Future[Any], str] = {}
        try:
            while waiting or running:
                while waiting and len(running) < workers:  # no more than are worked on, so that a killed pool's are known
                    running[pool.submit(function, *jobs[waiting[0]])] = waiting[0]
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


def _alone(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """How a process that does this and nothing else was killed ("" where it was not), and the result."""
    receiving, sending = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_report, args=(sending, function, arguments))
    process.start()
    sending.close()
    try:
        fault, result = receiving.recv()
    except EOFError:  # it ended without a word
        process.join()
        code = process.exitcode or 0
        if code >= 0:  # nobody killed it: it cannot even start, which is no job's fault
            raise MriVitError(f"a process ended with exit code {code} before it gave a result (for {name})") from None
        return _ending(code), None
    except BaseException:  # interrupted: nobody waits for it any more
        process.terminate()
        raise
    process.join()
    if fault:
        raise fault
    return "", result


def _report(sending: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """In the process."""
    try:
        done = None, function(*arguments)
    except Exception as error:
        done = error, None
    sending.send(done)


def _ending(code: int) -> str:
    """What the exit code of a process says that a signal ended."""
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    cause = ", probably for lack of memory" if code == -signal.SIGKILL else ""
    return f"its process was killed ({name}) while it worked on nothing else{cause}"
