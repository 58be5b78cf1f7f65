"""SLURM, by submitit: tasks become jobs of its queue, and files tell how they ended. No port is opened.

A job that is preempted or out of time goes back into the queue and on from its own files. Of one that was killed nothing tells
where SLURM keeps no accounts; it is lost when it is in the queue no more and has left no result.
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mri_vit.errors import OutOfResource, UsageError
from mri_vit.run.task import Done, Lost, Task, Where

if TYPE_CHECKING:
    import submitit

ARRAY = 500  # jobs in an array: SLURM's MaxArraySize is 1001 unless the cluster says otherwise
TERMS = 1000  # how often a job that ran out of time goes on; submitit's 3 would end a long fold
LATE_S = 20.0  # a result may be seen that much later than its job leaves the queue, on a disk over a network
ASKING_S = 60  # for squeue and scancel; a busy scheduler takes its time


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
    """The queue of a cluster, as `task.Cluster`."""

    def __init__(self, at: Where) -> None:
        try:
            import submitit
        except ImportError:
            raise UsageError('executor "slurm" needs the extra cluster: pip install "mri-vit[cluster]"') from None
        assert at.home is not None
        logging.getLogger("submitit").setLevel(logging.ERROR)
        self._folder, asked = at.home / "%j", at.slurm
        try:
            self._sbatch = submitit.SlurmExecutor(self._folder, max_num_timeout=TERMS)
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

    most = ARRAY

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
        """Take back what has not begun."""
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
        said = _ask("squeue", "--noheader", "--array", "--format=%i", f"--jobs={whole}")
        return set(said.split())


def _ask(*command: str) -> str:
    """What a command of SLURM's prints. Raises OutOfResource where it does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASKING_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OutOfResource(f"{command[0]}: {error}; jobs go on, and the same command waits for them again") from None
    if done.returncode and "Invalid job id" not in done.stderr:  # all have long ended
        raise OutOfResource(f"{command[0]}: {done.stderr.strip()}; jobs go on, and the same command waits for them again")
    return done.stdout
