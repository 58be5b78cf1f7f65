"""Ledger: what becomes of each series, `series.csv` of it, and the table of choices that overrides it.

A terminal gets UIDs; tables and reasons that are written have hashes instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

from mri_vit.data import sheet
from mri_vit.errors import UsageError
from mri_vit.importers.dicom.channel import Candidate, series_summary
from mri_vit.importers.dicom.identity import Fault, Hasher
from mri_vit.importers.dicom.series import Contents, Series
from mri_vit.importers.layout import LeftOut
from mri_vit.run.atomic import write_bytes

SERIES_TABLE = "series.csv"
NO_SERIES = "none"  # in a table of choices: the channel stays empty
CHOICE_COLUMNS = ("patient", "session", "channel", "series")  # of a table of choices; a copied `series.csv` has them and more


@dataclass(frozen=True)
class SeriesRow:
    """One series of one visit; all names are hashes."""

    patient: str
    session: str
    series: str
    channel: str  # what it was taken for; "" for nothing that was asked for
    chosen: str  # yes or no
    reason: str
    geometry: str = ""  # slices, voxels, plane; "" of a series that was refused or not looked at


def write_series_table(rows: Iterable[SeriesRow], folder: Path) -> None:
    """Write `series.csv`, in the order of patients, visits and channels."""
    ordered = sorted(rows, key=lambda row: (row.patient, row.session, row.channel, row.series))
    write_bytes(
        sheet.to_csv([field.name for field in fields(SeriesRow)], (astuple(row) for row in ordered)), folder / SERIES_TABLE
    )


def read_choices(path: Path, channels: Iterable[str]) -> dict[tuple[str, str, str], str]:
    """By patient, session and channel, the series to take: a CSV of `COLUMNS`, or `series.csv` with `chosen` edited.

    Where a column `chosen` is there, only rows with "yes" are choices; commas, semicolons or tabs may part cells.

    Raises
    ------
    UsageError
        The table cannot be read, a column is missing, a channel unknown, or two rows choose for the same channel.
    """
    header, rows = sheet.read(path)
    absent = [column for column in CHOICE_COLUMNS if column not in header]
    if absent:
        raise UsageError(f"{path}: no column {', '.join(absent)}; expected {', '.join(CHOICE_COLUMNS)}")
    choices: dict[tuple[str, str, str], str] = {}
    for line, row in rows:
        chosen = row.get("chosen", "yes").lower()
        if chosen not in ("yes", "no"):
            raise UsageError(f"{path}, row {line}, column chosen: {row['chosen']!r}; expected yes or no")
        if chosen == "no" or not row["channel"]:
            continue
        where = (row["patient"], row["session"], row["channel"])
        if row["channel"] not in channels:
            raise UsageError(f"{path}, row {line}: channel {row['channel']!r}; expected one of {', '.join(channels)}")
        if where in choices:
            raise UsageError(f"{path}, row {line}: a second choice for {row['channel']} of patient {row['patient']}")
        choices[where] = row["series"]
    return choices


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
    rows: list[SeriesRow] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def unread(self, contents: Contents) -> None:
        """Files that cannot be read, and those that a DICOMDIR lists and the folder lacks; their paths may name patients."""
        for files, what in (
            (contents.unreadable, "that look like DICOM, by start or name, and cannot be read"),
            (contents.missing, "that a DICOMDIR lists and the folder lacks"),
        ):
            self._each(files, what)
        for oddity in contents.oddities:
            self.say(oddity.with_uids())

    def refused(self, place: Place, candidate: Candidate, faults: Sequence[Fault]) -> None:
        """A series that is left out."""
        for fault in faults:
            self.say(f"series {candidate.series.series_uid}: {fault.with_uids()}")
        reason = "; ".join(fault.with_hashes(self.hasher.uid) for fault in faults)
        self.left_out.append(LeftOut(place.patient, None, f"series {candidate.name}: {reason}"))
        self._row(place, candidate.name, candidate.guess.channel or "", False, f"refused: {reason}")

    def refused_study(self, place: Place, series: Sequence[Candidate], fault: Fault) -> None:
        """A study that is left out, with all its series."""
        self.say(fault.with_uids())
        reason = fault.with_hashes(self.hasher.uid)
        self.left_out.append(LeftOut(place.patient, None, reason))
        for one in series:
            self._row(place, one.name, one.guess.channel or "", False, f"refused: {reason}")

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
        cure = f"set `channel` and `chosen` in a copy of {SERIES_TABLE} and give it with --choices"
        self.left_out.append(
            LeftOut(place.patient, None, f"{_visit(place)}T1 or T1ce is undecided of series {names}: {why}; {cure}")
        )

    def nothing_of(self, place: Place, channels: Sequence[str]) -> None:
        """A visit without any scan."""
        self.left_out.append(LeftOut(place.patient, None, f"{_visit(place)}no series could be used as {', '.join(channels)}"))

    def _each(self, files: Sequence[Path], what: str) -> None:
        for path in files:
            self.say(f"{path}: one of the files {what}")
        if files:
            self.left_out.append(LeftOut("", None, f"files {what}: {len(files)}"))

    def _candidate(self, place: Place, candidate: Candidate, channel: str, taken: bool, reason: str) -> None:
        oddity = f"; {candidate.series.oddity}" if candidate.series.oddity else ""
        self._row(place, candidate.name, channel, taken, reason + oddity, series_summary(candidate.series))

    def _row(self, place: Place, name: str, channel: str, taken: bool, reason: str, geometry: str = "") -> None:
        chosen = "yes" if taken else "no"
        self.rows.append(SeriesRow(place.patient, place.session, name, channel, chosen, reason, geometry))


def _visit(place: Place) -> str:
    return f"visit {place.session}: " if place.session else ""
