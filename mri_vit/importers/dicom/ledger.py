"""Ledger: what becomes of each series. A terminal is told with UIDs; tables and reasons that are written have hashes instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mri_vit.importers.dicom import candidates, table
from mri_vit.importers.dicom.candidates import Candidate
from mri_vit.importers.dicom.fault import Fault
from mri_vit.importers.dicom.identity import Hasher
from mri_vit.importers.dicom.series import Contents, Series
from mri_vit.importers.found import LeftOut


@dataclass(frozen=True)
class Place:
    """A visit: the hash of a patient, and the session."""

    patient: str
    session: str


@dataclass(frozen=True)
class Ledger:
    """Rows of `series.csv` and what is left out, as they come up."""

    hasher: Hasher
    say: Callable[[str], None]
    rows: list[table.Row] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def unread(self, contents: Contents) -> None:
        """Files that cannot be read, and those that a DICOMDIR lists and the folder lacks; their paths may name patients."""
        for files, what in (
            (contents.unreadable, "start as DICOM and cannot be read"),
            (contents.missing, "are listed in a DICOMDIR and missing"),
        ):
            self._each("file", files, what)

    def refused(self, place: Place, series: Series, channel: str, faults: Sequence[Fault]) -> None:
        """A series that is left out."""
        name = self.hasher.uid(series.name)
        for fault in faults:
            self.say(f"series {series.series_uid}: {fault.with_uids()}")
        reason = "; ".join(fault.with_hashes(self.hasher.uid) for fault in faults)
        self.left_out.append(LeftOut(place.patient, None, f"series {name}: {reason}"))
        self._row(place, name, channel, False, f"refused: {reason}")

    def passed_over(self, place: Place, series: Series, reason: str) -> None:
        """A series that is of no use here, which leaves nobody out."""
        self._row(place, self.hasher.uid(series.name), "", False, reason)

    def chosen(self, place: Place, candidate: Candidate, channel: str) -> None:
        """The series of a channel."""
        self._candidate(place, candidate, channel, True, candidate.guess.reason)

    def not_chosen(self, place: Place, candidate: Candidate, channel: str, why: str) -> None:
        """A series that could have been the one of a channel."""
        self._candidate(place, candidate, channel, False, f"{candidate.guess.reason}; {why}")

    def undecided(self, place: Place, t1s: Sequence[Candidate], why: str) -> None:
        """Series that are T1 or T1ce, and of which it cannot be said which."""
        for one in t1s:
            self._candidate(place, one, "", False, f"{one.guess.reason}; T1 or T1ce is undecided: {why}")
        names = ", ".join(sorted(one.name for one in t1s))
        cure = f"set `channel` and `chosen` in a copy of {table.SERIES} and give it with --choices"
        self.left_out.append(
            LeftOut(place.patient, None, f"{_visit(place)}T1 or T1ce is undecided of series {names}: {why}; {cure}")
        )

    def nothing_of(self, place: Place, channels: Sequence[str]) -> None:
        """A visit without any scan."""
        self.left_out.append(LeftOut(place.patient, None, f"{_visit(place)}no series could be used as {', '.join(channels)}"))

    def _each(self, noun: str, files: Sequence[Path], what: str) -> None:
        for path in files:
            self.say(f"{path}: {what}")
        if files:
            self.left_out.append(LeftOut("", None, f"{len(files)} {noun}s {what}"))

    def _candidate(self, place: Place, candidate: Candidate, channel: str, taken: bool, reason: str) -> None:
        self._row(place, candidate.name, channel, taken, reason, candidates.summary(candidate.series))

    def _row(self, place: Place, name: str, channel: str, taken: bool, reason: str, geometry: str = "") -> None:
        chosen = "yes" if taken else "no"
        self.rows.append(table.Row(place.patient, place.session, name, channel, chosen, reason, geometry))


def _visit(place: Place) -> str:
    return f"visit {place.session}: " if place.session else ""
