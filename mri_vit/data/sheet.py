"""Sheet: a table (CSV) that somebody else made goes in; its columns, its rows as text, and every fault of its cells come out.

It may be CSV, TSV or with semicolons, in UTF-8 or UTF-16, with any line ends.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mri_vit.errors import UsageError
from mri_vit.settings import source

MOST_SAID = 20  # faults in the message of an error; `mri-vit check` lists all

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
    """A table's column names, its rows as far as they can be read, and what is wrong with the others."""

    path: Path
    header: list[str]
    rows: list[Row]
    faults: list[Fault]


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
    text = _text(path)
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
    lines = _cells(reader, path)
    header = [name.strip() for name in next(lines, [])]
    if not any(header):
        raise UsageError(f"{path}: an empty table; expected a first line with the columns' names")
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise UsageError(f"{path}: column {twice[0]!r} stands more than once")
    rows: list[Row] = []
    faults = []
    for cells in lines:
        if not any(cells):
            continue
        if len(cells) == len(header):
            rows.append((reader.line_num, dict(zip(header, (cell.strip() for cell in cells), strict=True))))
        else:
            faults.append(Fault(f"{len(cells)} cells; expected {len(header)}", reader.line_num))
    if not rows and not faults:
        raise UsageError(f"{path}: no patient in the table")
    return Sheet(path, header, rows, faults)


def _text(path: Path) -> str:
    if wrong := source.fault(path):
        raise UsageError(f"table {source.shown(path)}: {wrong}")
    try:
        raw = path.read_bytes()
        return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except OSError as error:
        raise UsageError(f"table {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: neither UTF-8 nor UTF-16 ({error}); save it as UTF-8") from None


def _cells(reader: Any, path: Path) -> Iterator[list[str]]:
    """The table's lines. Raises UsageError naming one that the csv module cannot part into cells."""
    try:
        yield from reader
    except csv.Error as error:  # a cell of more than 131,072 characters: most often a quotation mark that is never closed
        raise UsageError(
            f"{path}, line {reader.line_num + 1}: not CSV: {error}; look for a quotation mark without its pair"
        ) from None
