"""Sheet: a table that somebody else made goes in; its columns, its rows as text, and every fault of its cells come out.

It may be an Excel workbook, or CSV, TSV or with semicolons, in UTF-8 or UTF-16, with any line ends. Tables of ours are written
here too, so that no spreadsheet takes text in them for a formula.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mri_vit.data import workbook
from mri_vit.data.workbook import Lines
from mri_vit.errors import UsageError
from mri_vit.settings import source

MOST_SAID = 20  # faults in the message of an error; `mri-vit check` lists all
SEPARATORS = ",;\t|"
# A first line that names the separator to Excel, and empty cells behind it where a spreadsheet saved that line again as a row.
SEPARATOR_LINE = re.compile(r'(?i)"?sep=(.)"?([,;\t|]*)\r?\n')
# First letters by which a spreadsheet takes text for a formula, some as wide as Chinese ones (OWASP, CSV injection).
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
PREFIXED = re.compile(r"'[+-]")
ERROR = re.compile(r"#(N/A|REF!|DIV/0!|VALUE!|NAME\?|NUM!|NULL!|SPILL!|CALC!|#+)")  # of a spreadsheet
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # 1,234 may be a thousand and more

Row = tuple[int, dict[str, str]]  # the line on which it ends, and its cells by column


@dataclass(frozen=True)
class Fault:
    """What is wrong with a table, in words without their place; `row` and `column` are given where it is one's fault."""

    said: str
    row: int | None = None
    column: str = ""

    def sentence(self, path: Path) -> str:
        """The fault as an error says it: file, row and column first."""
        row = f", row {self.row}" if self.row else ""
        column = f", column {self.column}" if self.column else ""
        return f"{path}{row}{column}: {self.said}"


@dataclass(frozen=True)
class Sheet:
    """A table's column names, its rows as far as they can be read, what is wrong with the others, and how cells were read."""

    path: Path
    header: list[str]
    rows: list[Row]
    faults: list[Fault]
    notes: tuple[str, ...] = ()
    dates: frozenset[tuple[int, str]] = frozenset()  # line and column of a workbook's dates


def refuse(path: Path, faults: Sequence[Fault]) -> None:
    """Raise UsageError that names the faults, where there are any."""
    if faults:
        said = [fault.sentence(path) for fault in faults[:MOST_SAID]]
        more = len(faults) - len(said)
        raise UsageError("\n".join(said + [f"and {more} more faults; `mri-vit check` lists all"] * (more > 0)))


def columns(path: Path) -> list[str]:
    """The names of a table's columns."""
    return read(path)[0]


def read(path: Path) -> tuple[list[str], list[Row]]:
    """A table's column names, and each row with its line number; every cell is text. Raises UsageError naming file and lines."""
    found = examine(path)
    refuse(path, found.faults)
    return found.header, found.rows


def examine(path: Path) -> Sheet:
    """The same with all faults of single rows, which are left out. Raises UsageError where there is no table at all."""
    lines, by_comma = _lines(path)
    stripped = ((number, [cell.strip() for cell in cells]) for number, cells in lines.lines)
    filled = [(number, cells) for number, cells in stripped if any(cells)]
    if not filled:
        raise UsageError(f"{path}: an empty table; expected a first line with the columns' names")
    spelled = [" ".join(name.split()) for name in filled[0][1]]
    width = max(index + 1 for index, name in enumerate(spelled) if name) if any(spelled) else 0
    used = {index for _, cells in filled[1:] for index, cell in enumerate(cells[: len(spelled)]) if cell}
    kept = [index for index, name in enumerate(spelled) if name or index in used]  # blank columns are none
    header = [spelled[index] for index in kept]
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice and not twice[0]:
        places = ", ".join(str(index + 1) for index in kept if not spelled[index])
        raise UsageError(
            f"{path}: columns {places} have cells and no name; the first line holds the columns' names: name them, or delete them"
        )
    if twice:
        raise UsageError(f"{path}: column {twice[0]!r} stands more than once")
    rows: list[Row] = []
    found = [Fault(what, row, spelled[index] if index < len(spelled) else "") for what, row, index in lines.faults]
    for number, cells in filled[1:]:
        if len(cells) < width or any(cells[len(spelled) :]):
            comma = "; a number with a decimal comma stands in quotation marks" if by_comma and len(cells) > len(spelled) else ""
            found.append(Fault(f"{len(cells)} cells; expected {len(spelled)}{comma}", number))
            continue
        cells = [*cells, *[""] * (len(spelled) - len(cells))]
        row = {spelled[index]: unprefixed(cells[index]) for index in kept}
        errors = {name: cell for name, cell in row.items() if cell[:1] == "#" and ERROR.fullmatch(cell)}
        found += [
            Fault(f"{cell!r} is an error of the spreadsheet; correct it, or clear the cell", number, n)
            for n, cell in errors.items()
        ]
        rows.append((number, row))
    if not rows and not found:
        raise UsageError(f"{path}: no patient in the table")
    points = () if by_comma else tuple(_with_points(rows))
    dates = frozenset((row, spelled[index]) for row, index in lines.dates if index < len(spelled))
    return Sheet(path, header, rows, found, (*lines.notes, *points), dates)


def _lines(path: Path) -> tuple[Lines, bool]:
    """A table's lines, and whether commas part their cells."""
    raw = _bytes(path)
    if workbook.kind(raw) == workbook.EXCEL:
        return workbook.read(path, raw), False
    text, separator, before = _text(path, raw)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    return Lines([(reader.line_num + before, cells) for cells in _cells(reader, path, before)]), separator == ","


def text(path: Path) -> tuple[str, str]:
    """A table of text, and what parts its cells. Raises UsageError where it is a workbook, or no text."""
    return _text(path, _bytes(path))[:2]


def _parted(text: str) -> tuple[str, str, int]:
    """As `_text`."""
    line = SEPARATOR_LINE.match(text)
    rest = text[line.end() :] if line else text
    if line and not line[2]:
        return rest, line[1], 1
    first = rest.lstrip().partition("\n")[0]
    return rest, max(SEPARATORS, key=first.count), int(line is not None)


def _with_points(rows: list[Row]) -> Iterator[str]:
    """Write decimal commas as points, in place, in columns of numbers alone; cells without a digit may be words for missing.

    Only where commas part no cells: 61,5 is a number there as a spreadsheet in German or French writes it. Not where 1,234 could
    be a thousand and more.
    """
    changed, unclear = [], []
    for name in rows[0][1] if rows else ():
        numbers = [row[name] for _, row in rows if re.search(r"\d", row[name])]
        commas = [cell for cell in numbers if "," in cell]
        if not commas or not all(DECIMAL_COMMA.fullmatch(cell) for cell in numbers):
            continue
        if all(THOUSANDS.fullmatch(cell) for cell in commas):
            unclear.append(name)
            continue
        changed.append(name)
        for _, row in rows:
            if DECIMAL_COMMA.fullmatch(row[name]):
                row[name] = row[name].replace(",", ".")
    if changed:
        yield f"a comma is read as the decimal point in {', '.join(changed)}"
    if unclear:
        yield f"commas in {', '.join(unclear)} may be decimal points or part thousands; write numbers without them"


def names(start: bytes) -> list[str]:
    """The columns' names in the beginning of a file of text, as far as it tells; none where it is no text."""
    try:
        text, separator, _ = _parted(start.decode(_encoding(start), errors="ignore"))
    except UnicodeError:
        return []
    lines = text.lstrip(f"{separator}\r\n ").splitlines()
    return next(csv.reader(lines[:1], delimiter=separator), [])


def to_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A table as a file has it, whose text is text to a spreadsheet too (see `harmless`); names of files may be no UTF-8."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([harmless(cell) for cell in row] for row in rows)
    return out.getvalue().encode(errors="backslashreplace")


def harmless(cell: Any) -> Any:
    """The cell with an apostrophe before text that a spreadsheet would take for a formula; -1.5 is a number and stays."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) and not NUMBER.fullmatch(cell) else cell


def unprefixed(cell: Any) -> Any:
    """The cell without the apostrophe that `harmless` puts before + and -, so that a table that is read again says the same.

    One before = and @ stays: such text is refused in a cohort table.
    """
    return cell[1:] if isinstance(cell, str) and PREFIXED.match(cell) else cell


def _bytes(path: Path) -> bytes:
    if wrong := source.fault(path):
        raise UsageError(f"table {source.shown(path)}: {wrong}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"table {path}: cannot be read: {error.strerror}") from None


def _text(path: Path, raw: bytes) -> tuple[str, str, int]:
    """The text of a table, what parts its cells, and how many lines before it said so and are left out (1 or 0)."""
    if what := workbook.kind(raw):
        raise UsageError(f"{path}: {what}; {workbook.SAVE}")
    try:
        return _parted(raw.decode(_encoding(raw)))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: neither UTF-8 nor UTF-16 ({error}); save it as UTF-8") from None


def _encoding(raw: bytes) -> str:
    """UTF-16 by its mark, or without one by the half of its first letter that is zero; else UTF-8."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if len(raw) > 1 and (raw[0] == 0) != (raw[1] == 0):
        return "utf-16-be" if raw[0] == 0 else "utf-16-le"
    return "utf-8-sig"


def _cells(reader: Any, path: Path, before: int) -> Iterator[list[str]]:
    """The table's lines. Raises UsageError naming one that the csv module cannot part into cells."""
    try:
        yield from reader
    except csv.Error as error:  # a cell of more than 131,072 characters: most often a quotation mark that is never closed
        raise UsageError(
            f"{path}, line {reader.line_num + before + 1}: not CSV: {error}; look for a quotation mark without its pair"
        ) from None
