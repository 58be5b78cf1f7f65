"""Sheet: a table that somebody else made goes in; its columns, its rows as text, and every fault of its cells come out.

It may be an Excel workbook (known by its content; openpyxl, which reads it, is an extra), or CSV, TSV or with semicolons, in
UTF-8 or UTF-16, with any line ends. Tables of ours are written here too, so that no spreadsheet takes text in them for a formula.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from mri_vit.errors import UsageError
from mri_vit.settings import source

SHOWN_FAULTS = 20  # faults in the message of an error; `mri-vit check` lists all
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
EXCEL = "an Excel workbook (.xlsx)"
SAVE_AS_CSV = "save it as CSV UTF-8"
MAGIC_BYTES = {  # of files that are no text
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
ARCHIVE_KINDS = {  # files in a zip archive by which it is known
    "xl/workbook.xml": EXCEL,
    "xl/workbook.bin": "a binary Excel workbook (.xlsb)",
    "content.xml": "an OpenDocument spreadsheet (.ods)",
    "Index/Document.iwa": "a Numbers document",
}
MAX_UNPACKED_BYTES = 1 << 28  # that a workbook unpacks to: some million cells; more is damage or a bomb
EXCEL_DIGITS = 15  # that Excel keeps of a number
SHOWN_ROWS = 5  # rows that a note names


@dataclass(frozen=True)
class Fault:
    """What is wrong with a table, in words without their place; `row` and `column` are given where it is one's fault."""

    problem: str
    row: int | None = None
    column: str = ""

    def sentence(self, path: Path) -> str:
        """The fault as an error says it: file, row and column first."""
        row = f", row {self.row}" if self.row else ""
        column = f", column {self.column}" if self.column else ""
        return f"{path}{row}{column}: {self.problem}"


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
        shown = [fault.sentence(path) for fault in faults[:SHOWN_FAULTS]]
        more = len(faults) - len(shown)
        raise UsageError("\n".join(shown + [f"and {more} more faults; `mri-vit check` lists all"] * (more > 0)))


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
    if file_kind(raw) == EXCEL:
        return read_workbook(path, raw), False
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
    """The columns' names in the beginning of a file of text, as far as they can be read; none where it is no text."""
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
    """The text of a table, what parts its cells, and how many lines before it (1 or 0) name the separator and are left out."""
    if what := file_kind(raw):
        raise UsageError(f"{path}: {what}; {SAVE_AS_CSV}")
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


@dataclass(frozen=True)
class Lines:
    """A sheet's lines, each with its row number; faults as (what, row, index of the cell); what a reader should know; and where
    a workbook has dates, by row and index.
    """

    lines: list[tuple[int, list[str]]]
    faults: list[tuple[str, int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dates: set[tuple[int, int]] = field(default_factory=set)


def file_kind(raw: bytes) -> str:
    """What a file is that is no text, by its content; "" for any other."""
    if raw[:4] == b"PK\x03\x04":
        try:
            names = set(zipfile.ZipFile(io.BytesIO(raw)).namelist())
        except zipfile.BadZipFile:
            return "a damaged zip archive or workbook"
        return next((what for name, what in ARCHIVE_KINDS.items() if name in names), "a zip archive")
    if UTF_32.match(raw):
        return "text in UTF-32"
    if MARKUP.match(raw[:HEAD_BYTES].replace(b"\0", b"")):  # of UTF-16 too
        return "a page of HTML or XML, whatever its ending"
    return next((what for start, what in MAGIC_BYTES.items() if raw.startswith(start)), "")


def read_workbook(path: Path, raw: bytes) -> Lines:
    """The lines of a workbook's one sheet that has cells. Raises UsageError where there is no such sheet, or no openpyxl."""
    try:
        import openpyxl
    except ImportError:
        raise UsageError(f"{path}: this is an Excel workbook: {SAVE_AS_CSV}, or install mri_vit[excel]") from None
    archive = zipfile.ZipFile(io.BytesIO(raw))
    size = sum(part.file_size for part in archive.infolist())
    if size > MAX_UNPACKED_BYTES:
        raise UsageError(
            f"{path}: an Excel workbook that unpacks to {size:,} bytes; more than {MAX_UNPACKED_BYTES:,} is refused; "
            f"{SAVE_AS_CSV}"
        )
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
        raise UsageError(f"{path}: an Excel workbook that cannot be read ({error}); {SAVE_AS_CSV}") from None
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
            elif isinstance(cell.value, int | float) and abs(cell.value) >= 10**EXCEL_DIGITS:
                faults.append(
                    (f"{texts[index]}: of such a number Excel keeps {EXCEL_DIGITS} digits; write it as text", number, index)
                )
        lines.append((number, texts))
        dates |= {(number, index) for index, cell in enumerate(cells) if isinstance(cell.value, date)}
    return Lines(lines, faults, list(_notes(book, sheet, last_row, last_column)), dates)


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
        return f"{100 * value:.{EXCEL_DIGITS}g}%"
    if value == int(value):
        padded = re.fullmatch(r'(?:"([^"]*)")?(0+)', form)  # such as 00000, by which 12 is shown as 00012
        return f"{padded[1] or ''}{int(value):0{len(padded[2])}d}" if padded else str(int(value))
    return f"{value:.{EXCEL_DIGITS}g}"


def _notes(book: Any, sheet: Any, last_row: int, last_column: int) -> Iterator[str]:
    """Hidden rows and columns, which are read; hidden sheets, which are not; and columns in which some cells alone are dates."""
    rows = [number for number in range(1, last_row + 1) if sheet.row_dimensions[number].hidden]
    if rows:
        more = ", …" if len(rows) > SHOWN_ROWS else ""
        yield f"{len(rows)} rows are hidden in the workbook, and are read: {', '.join(map(str, rows[:SHOWN_ROWS]))}{more}"
    columns = [letter for letter, one in sheet.column_dimensions.items() if one.hidden]
    if columns:
        yield f"columns are hidden in the workbook, and are read: {', '.join(columns)}"
    others = [repr(other.title) for other in book.worksheets if other is not sheet and _is_filled(other)]
    if others:
        yield f"hidden sheets of the workbook are not read: {', '.join(others)}"
    for cells in sheet.iter_cols(min_row=2, max_row=max(last_row, 2), max_col=last_column):
        filled = [cell for cell in cells if cell.value is not None]
        dates = [cell for cell in filled if isinstance(cell.value, date)]
        if 0 < len(dates) < len(filled):
            yield (
                f"{len(dates)} of {len(filled)} cells of column {dates[0].column_letter} are dates (first: row {dates[0].row});"
                " a spreadsheet makes a date of 1-2"
            )
