"""Table: `series.csv`, which says of every series whether it was chosen and why; and the table of choices that overrides it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from mri_vit.data import sheet
from mri_vit.errors import UsageError
from mri_vit.run.atomic import write_bytes

SERIES = "series.csv"
NOTHING = "none"  # in a table of choices: the channel stays empty
COLUMNS = ("patient", "session", "channel", "series")  # of a table of choices; a copied `series.csv` has them and more


@dataclass(frozen=True)
class Row:
    """One series of one visit; all names are hashes."""

    patient: str
    session: str
    series: str
    channel: str  # what it was taken for; "" for nothing that was asked for
    chosen: str  # yes or no
    reason: str
    geometry: str = ""  # slices, voxels, plane; "" of a series that was refused or not looked at


def write(rows: Iterable[Row], folder: Path) -> None:
    """Write `series.csv`, in the order of patients, visits and channels."""
    ordered = sorted(rows, key=lambda row: (row.patient, row.session, row.channel, row.series))
    write_bytes(sheet.to_csv([field.name for field in fields(Row)], (astuple(row) for row in ordered)), folder / SERIES)


def choices(path: Path, channels: Iterable[str]) -> dict[tuple[str, str, str], str]:
    """By patient, session and channel, the series to take: a CSV of `COLUMNS`, or `series.csv` with `chosen` edited.

    Where a column `chosen` is there, only rows with "yes" are choices; commas, semicolons or tabs may part cells.

    Raises
    ------
    UsageError
        The table cannot be read, a column is missing, a channel unknown, or two rows choose for the same channel.
    """
    header, rows = sheet.read(path)
    absent = [column for column in COLUMNS if column not in header]
    if absent:
        raise UsageError(f"{path}: no column {', '.join(absent)}; expected {', '.join(COLUMNS)}")
    found: dict[tuple[str, str, str], str] = {}
    for line, row in rows:
        chosen = row.get("chosen", "yes").lower()
        if chosen not in ("yes", "no"):
            raise UsageError(f"{path}, row {line}, column chosen: {row['chosen']!r}; expected yes or no")
        if chosen == "no" or not row["channel"]:
            continue
        where = (row["patient"], row["session"], row["channel"])
        if row["channel"] not in channels:
            raise UsageError(f"{path}, row {line}: channel {row['channel']!r}; expected one of {', '.join(channels)}")
        if where in found:
            raise UsageError(f"{path}, row {line}: a second choice for {row['channel']} of patient {row['patient']}")
        found[where] = row["series"]
    return found
