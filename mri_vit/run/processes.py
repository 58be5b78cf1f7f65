"""Jobs in processes of this machine: one after the other per process, several processes at a time, a GPU for each.

A process that is killed (by the kernel, where memory runs out) takes the pool with it. Whoever was being worked on then is tried
again alone, one after the other; who is killed even so is to blame, and the others go on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from mri_vit.errors import Killed, MriVitError
from mri_vit.run import files

CONTEXT = get_context("spawn")  # fork and running threads (torch, ITK) do not go together
VISIBLE = "CUDA_VISIBLE_DEVICES"  # the GPUs that a process sees, by number or name


def gpus(devices: int) -> list[str]:
    """The GPUs that this process sees, as `VISIBLE` names them, in hands of so many; what is left over belongs to none."""
    if (seen := os.environ.get(VISIBLE)) is not None:
        names = [name for name in seen.split(",") if name.strip()]
    else:
        import torch

        names = [str(number) for number in range(torch.cuda.device_count())]
    return [",".join(names[start : start + devices]) for start in range(0, len(names) - devices + 1, devices)]


def each(
    function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], workers: int, devices: int = 1
) -> Iterator[tuple[str, Any]]:
    """A job's name and `function`'s result for its arguments, as they come; what has not begun is dropped on an error.

    Raises what `function` raises, and, when all others are done, `Killed` naming the jobs on which a process was killed.
    """
    waiting, how, dealt = deque(jobs), dict[str, str](), gpus(devices)
    while waiting:
        suspects = yield from _together(function, jobs, waiting, workers, dealt)
        for name in suspects:
            ending, result = _alone(name, function, jobs[name], dealt[:1])
            if ending:
                how[name] = ending
            else:
                yield name, result
    if how:
        raise Killed(how)


def _together(
    function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], waiting: deque[str], workers: int, dealt: list[str]
) -> Generator[tuple[str, Any], None, list[str]]:
    """Work through `waiting` until it is empty or a process is killed; returns who was being worked on then."""
    cards = CONTEXT.SimpleQueue()
    for worker in range(workers):
        cards.put(dealt[worker % len(dealt)] if dealt else "")
    with ProcessPoolExecutor(workers, CONTEXT, _begin, (cards,)) as pool:
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


def _begin(cards: Any) -> None:
    """In a process, before it looks for a GPU: it sees its own alone, so that it takes no memory of another's."""
    end_with_parent()
    if card := cards.get():
        os.environ[VISIBLE] = card


def end_with_parent() -> None:
    """In a process: end with the one that started it, however that was killed; else it would wait for work and hold memory."""
    parent = parent_process()
    assert parent

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _alone(name: str, function: Callable[..., Any], arguments: tuple[Any, ...], dealt: list[str]) -> tuple[str, Any]:
    """How a process that does this and nothing else was killed ("" where it was not), and the result."""
    receiving, sending = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_report, args=(sending, function, arguments, dealt))
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


def _report(sending: Connection, function: Callable[..., Any], arguments: tuple[Any, ...], dealt: list[str]) -> None:
    """In the process."""
    end_with_parent()
    if dealt:
        os.environ[VISIBLE] = dealt[0]
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


def detached(words: Sequence[str], folder: Path) -> int:
    """Start `mri-vit` with these words, printing to the log in `folder`; the number of its process, which nobody waits for."""
    folder.mkdir(parents=True, exist_ok=True)
    log = str(folder / files.LOG)
    command = [sys.executable, "-c", "from mri_vit.cli import main; main()", *words]
    printing = (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    reading = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    both = (os.POSIX_SPAWN_DUP2, 1, 2)
    return os.posix_spawn(sys.executable, command, os.environ, file_actions=[reading, printing, both], setsid=True)
