"""Workbook: an Excel file goes in; the lines of its one sheet come out as text, as Excel shows it, with what is wrong in them.

A file is known by its content, whatever its name. openpyxl, which reads workbooks, is an extra.
"""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from mri_vit.errors import UsageError

EXCEL = "an Excel workbook (.xlsx)"
SAVE = "save it as CSV UTF-8"
STARTS = {  # of files that are no text
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an Excel workbook of the kind before 2007 (.xls), or one with a password",
    b"\x1f\x8b": "compressed with gzip",
    b"%PDF": "a PDF document",
    b"PAR1": "a Parquet table",
    b"$FL": "a table of SPSS (.sav)",
    b"<stata_dta>": "a table of Stata (.dta)",
}
UTF_32 = re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff|\0\0\0[^\0]|[^\0]\0\0\0")
MARKUP = re.compile(rb"(?i)(\xef\xbb\xbf|\xff\xfe|\xfe\xff)?\s*<(!doctype|html|head|meta|style|table|\?xml)[\s>]")
HEAD_BYTES = 512  # of a file: enough for the first tag of a page
INSIDE = {  # files in a zip archive by which it is known
    "xl/workbook.xml": EXCEL,
    "xl/workbook.bin": "a binary Excel workbook (.xlsb)",
    "content.xml": "an OpenDocument spreadsheet (.ods)",
    "Index/Document.iwa": "a Numbers document",
}
MOST_BYTES = 1 << 28  # that a workbook unpacks to: some million cells; more is damage or a bomb
DIGITS = 15  # that Excel keeps of a number
SHOWN = 5  # rows that a note names


@dataclass(frozen=True)
class Lines:
    """A sheet's lines, each with its row number; faults as (what, row, index of the cell); what a reader should know; and where
    a workbook has dates, by row and index.
    """

    lines: list[tuple[int, list[str]]]
    faults: list[tuple[str, int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dates: set[tuple[int, int]] = field(default_factory=set)


def kind(raw: bytes) -> str:
    """What a file is that is no text, by its content; "" for any other."""
    if raw[:4] == b"PK\x03\x04":
        try:
            names = set(zipfile.ZipFile(io.BytesIO(raw)).namelist())
        except zipfile.BadZipFile:
            return "a damaged zip archive or workbook"
        return next((what for name, what in INSIDE.items() if name in names), "a zip archive")
    if UTF_32.match(raw):
        return "text in UTF-32"
    if MARKUP.match(raw[:HEAD_BYTES].replace(b"\0", b"")):  # of UTF-16 too
        return "a page of HTML or XML, whatever its ending"
    return next((what for start, what in STARTS.items() if raw.startswith(start)), "")


def read(path: Path, raw: bytes) -> Lines:
    """The lines of a workbook's one sheet that has cells. Raises UsageError where there is no such sheet, or no openpyxl."""
    try:
        import openpyxl
    except ImportError:
        raise UsageError(f"{path}: this is an Excel workbook: {SAVE}, or install mri_vit[excel]") from None
    archive = zipfile.ZipFile(io.BytesIO(raw))
    size = sum(part.file_size for part in archive.infolist())
    if size > MOST_BYTES:
        raise UsageError(f"{path}: an Excel workbook that unpacks to {size:,} bytes; more than {MOST_BYTES:,} is refused; {SAVE}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and validations that openpyxl does not keep
            book = openpyxl.load_workbook(io.BytesIO(raw), data_only=True)
            sheet = _only_sheet(path, book)
            computed = any(b"<f" in archive.read(name) for name in archive.namelist() if name.startswith("xl/worksheets/"))
            formulas = openpyxl.load_workbook(io.BytesIO(raw))[sheet.title] if computed else None
    except UsageError:
        raise
    except Exception as error:  # openpyxl raises many kinds for a damaged workbook
        raise UsageError(f"{path}: an Excel workbook that cannot be read ({error}); {SAVE}") from None
    merged = [span for span in sheet.merged_cells.ranges if sheet.cell(span.min_row, span.min_col).value is not None]
    faults = [
        (
            f"cells {span.coord} are merged, and the first alone has the value; unmerge and fill them",
            span.min_row,
            span.min_col - 1,
        )
        for span in merged
    ]
    lines: list[tuple[int, list[str]]] = []
    dates: set[tuple[int, int]] = set()
    last_row, last_column = _last(sheet, *([] if formulas is None else [formulas]))
    for cells in sheet.iter_rows(max_row=last_row, max_col=last_column):
        texts = [_shown(cell) for cell in cells]
        number = cells[0].row
        for index, cell in enumerate(cells):
            if (
                formulas is not None
                and cell.data_type == "n"
                and cell.value is None
                and formulas.cell(number, index + 1).value is not None
            ):
                faults.append(("a formula whose result the workbook does not hold; open it in Excel and save it", number, index))
            elif _cut(cell.value):
                faults.append((f"{texts[index]}: of such a number Excel keeps {DIGITS} digits; write it as text", number, index))
        lines.append((number, texts))
        dates |= {(number, index) for index, cell in enumerate(cells) if isinstance(cell.value, date)}
    return Lines(
        lines, faults, [*_hidden(sheet, last_row), *_other_sheets(book, sheet), *_dates(sheet, last_row, last_column)], dates
    )


def _only_sheet(path: Path, book: Any) -> Any:
    """The one sheet that is shown and has cells."""
    filled = [sheet for sheet in book.worksheets if _is_filled(sheet)]
    shown = [sheet for sheet in filled if sheet.sheet_state == "visible"]
    if not filled:
        raise UsageError(f"{path}: an empty table; expected a first line with the columns' names")
    if len(shown or filled) > 1:
        names = ", ".join(repr(sheet.title) for sheet in shown or filled)
        raise UsageError(
            f"{path}: an Excel workbook with {len(shown or filled)} sheets ({names}); expected one: save the one as CSV UTF-8"
        )
    return (shown or filled)[0]


def _is_filled(sheet: Any) -> bool:
    return any(cell.value is not None for cell in sheet._cells.values())


def _last(*sheets: Any) -> tuple[int, int]:
    """The last row and the last column in which a sheet has values; openpyxl's `max_row` counts cells with a style alone too."""
    filled = [place for sheet in sheets for place, cell in sheet._cells.items() if cell.value is not None]
    return max(row for row, _ in filled), max(column for _, column in filled)


def _shown(cell: Any) -> str:
    """A cell as Excel shows it, dates in the form 2026-01-31, numbers with all their digits."""
    value, form = cell.value, str(cell.number_format).partition(";")[0]
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(sep=" ")
    if isinstance(value, date | time | timedelta):
        return str(value)
    if not isinstance(value, int | float):
        return str(value)
    if "%" in form:
        return f"{100 * value:.{DIGITS}g}%"
    if value == int(value):
        padded = re.fullmatch(r'(?:"([^"]*)")?(0+)', form)  # such as 00000, by which 12 is shown as 00012
        return f"{padded[1] or ''}{int(value):0{len(padded[2])}d}" if padded else str(int(value))
    return f"{value:.{DIGITS}g}"


def _cut(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= 10**DIGITS


def _hidden(sheet: Any, last_row: int) -> Iterator[str]:
    """Rows and columns that Excel does not show, by a filter for instance, and that are read all the same."""
    rows = [number for number in range(1, last_row + 1) if sheet.row_dimensions[number].hidden]
    if rows:
        more = ", …" if len(rows) > SHOWN else ""
        yield f"{len(rows)} rows are hidden in the workbook, and are read: {', '.join(map(str, rows[:SHOWN]))}{more}"
    columns = [letter for letter, one in sheet.column_dimensions.items() if one.hidden]
    if columns:
        yield f"columns are hidden in the workbook, and are read: {', '.join(columns)}"


def _other_sheets(book: Any, sheet: Any) -> Iterator[str]:
    others = [repr(other.title) for other in book.worksheets if other is not sheet and _is_filled(other)]
    if others:
        yield f"hidden sheets of the workbook are not read: {', '.join(others)}"


def _dates(sheet: Any, last_row: int, last_column: int) -> Iterator[str]:
    """Columns in which some cells are dates and others are not: Excel makes a date of 1-2."""
    for cells in sheet.iter_cols(min_row=2, max_row=max(last_row, 2), max_col=last_column):
        filled = [cell for cell in cells if cell.value is not None]
        dates = [cell for cell in filled if isinstance(cell.value, date)]
        if 0 < len(dates) < len(filled):
            yield (
                f"{len(dates)} of {len(filled)} cells of column {dates[0].column_letter} are dates (first: row {dates[0].row});"
                " a spreadsheet makes a date of 1-2"
            )
