"""Table: a CSV or a workbook that somebody else made goes in, its rows as text with their lines come out.

Columns are found in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mri_vit.data import sheet
from mri_vit.data.spellings import key
from mri_vit.errors import UsageError

TEXT = ".txt"  # of a table, or of a README
ENDINGS = (  # of tables; not all of them can be read
    *(".csv", ".tsv", ".tab", TEXT, ".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers"),
    *(".sav", ".dta", ".rds", ".sas7bdat", ".parquet"),  # of SPSS, Stata, R, SAS and Arrow
)
HEAD_BYTES = 65536  # of a file that may be a table: enough for its header


@dataclass(frozen=True)
class Row:
    """One line of a table; `cells` are by their column's name without case and signs."""

    file: Path
    line: int  # the header being the first
    cells: Mapping[str, str]
    names: Mapping[str, str]  # of columns, likewise, as the file spells them
    dates: frozenset[str] = frozenset()  # columns, likewise, in which a workbook has a date

    def first(self, sources: Sequence[str]) -> str | None:
        """The first of these columns that the table has, in its spelling."""
        return next((self.names[key(name)] for name in sources if key(name) in self.names), None)

    def cell(self, name: str) -> str:
        """The cell of a column; empty where there is no such column."""
        return self.cells.get(key(name), "")


def read(path: Path) -> Iterator[Row]:
    """The rows of a table. Raises UsageError naming file and line."""
    found = sheet.examine(path)
    sheet.refuse(path, found.faults)
    names = {key(name): name for name in reversed(found.header)}
    dates: dict[int, frozenset[str]] = {}
    for line, name in found.dates:
        dates[line] = dates.get(line, frozenset()) | {key(name)}
    for line, cells in found.rows:
        by_key = {key(name): cell for name, cell in reversed(cells.items())}
        yield Row(path, line, by_key, names, dates.get(line, frozenset()))


def header(path: Path) -> set[str]:
    """The names of a table's columns without case and signs, of text from its beginning; none where it cannot be read."""
    with path.open("rb") as file:
        start = file.read(HEAD_BYTES)
    try:
        names = sheet.columns(path) if start[:2] == b"PK" else sheet.names(start)  # of a workbook, which is a zip archive, all
    except UsageError:
        return set()
    return {key(name) for name in names if name}
