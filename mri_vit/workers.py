"""Patients in processes of their own: one after the other per process, several processes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from mri_vit.errors import OutOfResource


def each(function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], workers: int) -> Iterator[tuple[str, Any]]:
    """Patient and `function`'s result for the patient's arguments, as they come; what has not begun is dropped on an error.

    Raises what `function` raises, and OutOfResource naming the unfinished when a process was killed.
    """
    context = get_context("spawn")  # fork and running threads (torch, ITK) do not go together
    with ProcessPoolExecutor(workers, context) as pool:
        running = {pool.submit(function, *arguments): patient for patient, arguments in jobs.items()}
        try:
            for job in as_completed(running):
                yield running[job], job.result()
        except BrokenProcessPool:
            unfinished = sorted(patient for job, patient in running.items() if not job.done() or job.exception())
            raise OutOfResource(
                f"a worker was killed, probably for lack of memory; not done yet: {', '.join(unfinished)}; "
                "run again to go on, with fewer workers at a time"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
