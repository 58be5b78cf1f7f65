"""Ledger: what happens to each series, written as `series.csv`, and the table of choices that overrides it.

The terminal gets UIDs; tables and reasons that are written have hashes instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

from mri_vit.data import sheet
from mri_vit.errors import UsageError
from mri_vit.importers.dicom.channel import Candidate, series_summary
from mri_vit.importers.dicom.identity import Fault, Hasher
from mri_vit.importers.dicom.series import Contents
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
    channel: str  # as which it was recognised; "" for none of those wanted
    chosen: str  # yes or no
    reason: str
    geometry: str = ""  # slices, voxels, plane; "" of a series that was refused or not checked


def write_series_table(rows: Iterable[SeriesRow], folder: Path) -> None:
    """Write `series.csv`, in the order of patients, visits and channels."""
    ordered = sorted(rows, key=lambda row: (row.patient, row.session, row.channel, row.series))
    header = [field.name for field in fields(SeriesRow)]
    write_bytes(sheet.to_csv(header, (astuple(row) for row in ordered)), folder / SERIES_TABLE)


def read_choices(path: Path, channels: Iterable[str]) -> dict[tuple[str, str, str], str]:
    """By patient, session and channel, the series to take: a CSV of `CHOICE_COLUMNS`, or `series.csv` with `chosen` edited.

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
class VisitId:
    """A visit: the hash of a patient, and the session."""

    patient: str
    session: str


@dataclass(frozen=True)
class Ledger:
    """Rows of `series.csv` and patients or series that are left out, collected during an import."""

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
            for path in files:
                self.say(f"{path}: one of the files {what}")
            if files:
                self.left_out.append(LeftOut("", None, f"files {what}: {len(files)}"))
        for oddity in contents.oddities:
            self.say(oddity.with_uids())

    def refused(self, visit: VisitId, candidate: Candidate, faults: Sequence[Fault]) -> None:
        """A series that is left out."""
        for fault in faults:
            self.say(f"series {candidate.series.series_uid}: {fault.with_uids()}")
        reason = "; ".join(fault.with_hashes(self.hasher.uid) for fault in faults)
        self.left_out.append(LeftOut(visit.patient, None, f"series {candidate.name}: {reason}"))
        self._row(visit, candidate, candidate.guess.channel or "", "no", f"refused: {reason}")

    def refused_study(self, visit: VisitId, candidates: Sequence[Candidate], fault: Fault) -> None:
        """A study that is left out, with all its series."""
        self.say(fault.with_uids())
        reason = fault.with_hashes(self.hasher.uid)
        self.left_out.append(LeftOut(visit.patient, None, reason))
        for candidate in candidates:
            self._row(visit, candidate, candidate.guess.channel or "", "no", f"refused: {reason}")

    def not_used(self, visit: VisitId, candidate: Candidate, reason: str) -> None:
        """A series that is not needed, for which no patient is left out."""
        self._row(visit, candidate, "", "no", reason)

    def chosen(self, visit: VisitId, candidate: Candidate, channel: str) -> None:
        """The series of a channel."""
        self._described(visit, candidate, channel, "yes", candidate.guess.reason)

    def not_chosen(self, visit: VisitId, candidate: Candidate, channel: str, why: str) -> None:
        """A series that could have been the one of a channel."""
        self._described(visit, candidate, channel, "no", f"{candidate.guess.reason}; {why}")

    def undecided(self, visit: VisitId, t1s: Sequence[Candidate], why: str) -> None:
        """Series that are T1 or T1ce, undecided which."""
        for candidate in t1s:
            self._described(visit, candidate, "", "no", f"{candidate.guess.reason}; T1 or T1ce is undecided: {why}")
        names = ", ".join(sorted(candidate.name for candidate in t1s))
        remedy = f"set `channel` and `chosen` in a copy of {SERIES_TABLE} and give it with --choices"
        self._left_out(visit, f"T1 or T1ce is undecided of series {names}: {why}; {remedy}")

    def no_scan(self, visit: VisitId, channels: Sequence[str]) -> None:
        """A visit without any scan."""
        self._left_out(visit, f"no series could be used as {', '.join(channels)}")

    def _left_out(self, visit: VisitId, reason: str) -> None:
        session = f"visit {visit.session}: " if visit.session else ""
        self.left_out.append(LeftOut(visit.patient, None, session + reason))

    def _described(self, visit: VisitId, candidate: Candidate, channel: str, chosen: str, reason: str) -> None:
        oddity = f"; {candidate.series.oddity}" if candidate.series.oddity else ""
        self._row(visit, candidate, channel, chosen, reason + oddity, series_summary(candidate.series))

    def _row(self, visit: VisitId, candidate: Candidate, channel: str, chosen: str, reason: str, geometry: str = "") -> None:
        self.rows.append(SeriesRow(visit.patient, visit.session, candidate.name, channel, chosen, reason, geometry))
