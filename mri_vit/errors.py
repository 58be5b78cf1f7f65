"""The ways a run can end badly, each with its exit code; plain data, importable by all."""

from __future__ import annotations


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


class BadNumbers(MriVitError):
    """A model produced numbers that are none (a NaN loss, an infinite gradient, an empty score); other settings may help."""

    exit_code = 7


class FolderHeld(MriVitError):
    """Another run holds the folder."""

    exit_code = 5


class IntegrityError(MriVitError):
    """A file is not what it claims to be (damaged weights, a link that leaves the folder)."""

    exit_code = 6
