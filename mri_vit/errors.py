"""The ways a run can end badly, each with its exit code; plain data, importable by all."""

from __future__ import annotations

from collections.abc import Mapping


class MriVitError(Exception):
    """A fault of ours (exit code 1); its subclasses are faults with a known remedy."""

    exit_code = 1


class UsageError(MriVitError):
    """Usage, study file or cohort table is wrong: nothing was started."""

    exit_code = 2


class UnusablePatient(MriVitError):
    """One patient cannot be used; the others go on and the run ends with exit code 3.

    `file` is the scan to blame (or "" when none is), `reason` says what was found and what is expected.
    """

    exit_code = 3

    def __init__(self, reason: str, file: str = "") -> None:
        super().__init__(f"{file}: {reason}" if file else reason)
        self.reason = reason
        self.file = file


class OutOfResource(MriVitError):
    """Disk, memory, a process or a writable folder is lacking; the run can be resumed."""

    exit_code = 4


class Killed(OutOfResource):
    """Processes were killed, each when it worked on one job alone; `how` says by job what ended it. All other jobs are done."""

    def __init__(self, how: Mapping[str, str]) -> None:
        failed = "; ".join(f"{job}: {ending}" for job, ending in how.items())
        super().__init__(f"{failed}. All others are done; run again to try once more, with more memory or with a smaller setting")
        self.how = dict(how)

    def __reduce__(self) -> tuple[type[Killed], tuple[dict[str, str]]]:
        return type(self), (self.how,)


class JobsLeft(KeyboardInterrupt):
    """Somebody stopped the run while jobs of a cluster were at work: they go on, and the message says how to end them."""


class BadNumbers(MriVitError):
    """A model produced numbers that are none (a NaN loss, an infinite gradient, an empty score); other settings may help."""

    exit_code = 7


class FolderHeld(MriVitError):
    """Another run holds the folder."""

    exit_code = 5


class IntegrityError(MriVitError):
    """A file is not what it claims to be (damaged weights, a link that leaves the folder)."""

    exit_code = 6
