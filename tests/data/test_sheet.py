"""The table that somebody made: what a spreadsheet does to it is undone or named, and what we write is no formula."""

from __future__ import annotations

import builtins
import csv
import io
import tracemalloc
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pytest

from mri_vit.data import cohort, predictions, run_cohort, sheet
from mri_vit.errors import UsageError
from mri_vit.prepare.patient import excluded_table
from mri_vit.qc import check
from mri_vit.qc.check import Decision
from mri_vit.report.pages import csv_tables


def book(path: Path, *rows: list[Any], **formats: str) -> Path:
    """A workbook of these rows, some of whose cells have a number format."""
    made = openpyxl.Workbook()
    lines = made.worksheets[0]
    for row in rows:
        lines.append(row)
    for position, form in formats.items():
        lines[position].number_format = form
    made.save(path)
    return path


def text(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(content.encode(encoding))
    return path


def cells(path: Path) -> list[dict[str, str]]:
    return [row for _, row in sheet.read(path)[1]]


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (12, "General", "12"),
        (12.0, "General", "12"),
        (12, "00000", "00012"),
        (1, '"sub-"00', "sub-01"),
        (100000, "General", "100000"),
        (61.5, "0", "61.5"),  # shown as 62, but no digit is lost
        (0.1 + 0.2, "General", "0.3"),
        (0.55, "0%", "55%"),
        (-1.5, "General", "-1.5"),
        (True, "General", "TRUE"),
        ("00012", "General", "00012"),
        (" 1-2 ", "General", "1-2"),
        (datetime(2026, 2, 1), "d-mmm", "2026-02-01"),
        (datetime(2026, 2, 1, 8, 30), "yyyy-mm-dd h:mm", "2026-02-01 08:30:00"),
    ],
)
def test_a_cell_of_a_workbook_is_read_as_excel_shows_it(tmp_path: Path, value: object, form: str, shown: str):
    path = book(tmp_path / "t.xlsx", ["patient", "value"], ["a", value], B2=form)
    assert cells(path) == [{"patient": "a", "value": shown}]


def test_a_workbook_and_a_csv_of_the_same_cells_are_one_table(tmp_path: Path):
    rows: list[list[Any]] = [["patient", "age", "site"], ["a", 61.5, "x;y"], ["b", None, 'q"']]
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    same = text(tmp_path / "t.csv", out.getvalue())
    assert sheet.read(book(tmp_path / "t.xlsx", *rows)) == sheet.read(same)


def test_blank_rows_before_a_workbooks_table_and_other_empty_sheets_are_nothing(tmp_path: Path):
    path = book(tmp_path / "t.xlsx", [], [None, "patient", "age"], [], [None, "a", 60])
    made = openpyxl.load_workbook(path)
    made.create_sheet("Sheet2")
    made.save(path)
    assert sheet.read(path) == (["patient", "age"], [(4, {"patient": "a", "age": "60"})])


def test_a_cell_with_a_style_alone_far_from_the_table_costs_nothing(tmp_path: Path):
    path = book(tmp_path / "t.xlsx", ["patient", "age"], ["a", 60], ["b", datetime(2026, 1, 2)], J300000="0.00")
    tracemalloc.start()
    sheet_read = sheet.examine(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [row for _, row in sheet_read.rows] == [{"patient": "a", "age": "60"}, {"patient": "b", "age": "2026-01-02"}]
    assert "1 of 2 cells of column B are dates" in sheet_read.notes[0]
    assert most < 20e6  # bytes; every cell of 300,000 rows takes a gigabyte


def test_a_number_of_more_digits_than_excel_keeps_is_a_fault(tmp_path: Path):
    with pytest.raises(UsageError, match=r"row 2, column patient: 1234567890123456: .* 15 digits"):
        sheet.read(book(tmp_path / "t.xlsx", ["patient", "age"], [1234567890123456, 60]))


def test_dates_among_other_cells_and_hidden_columns_are_noted(tmp_path: Path):
    path = book(tmp_path / "t.xlsx", ["patient", "grade"], ["a", datetime(2026, 2, 1)], ["b", "3"])
    made = openpyxl.load_workbook(path)
    made.worksheets[0].column_dimensions["B"].hidden = True
    made.save(path)
    notes = sheet.examine(path).notes
    assert any("hidden" in note and "B" in note for note in notes)
    assert any("1 of 2 cells of column B are dates" in note for note in notes)


def test_a_workbook_without_openpyxl_gets_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, usual = book(tmp_path / "t.xlsx", ["patient"], ["a"]), builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "openpyxl":
            raise ImportError(name)
        return usual(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"this is an Excel workbook: save it as CSV UTF-8, or install mri_vit\[excel\]"):
        sheet.read(path)


@pytest.mark.parametrize(
    "content",
    [
        *(b"PK\x03\x04broken", b"\x1f\x8b\x08", b"%PDF-1.7", b"PAR1"),
        *("patient,age\na,60\n".encode(name) for name in ("utf-32", "utf-32-le", "utf-32-be")),
        *("\ufeff\n<HTML><table><tr><td>patient</td></tr></table>".encode(name) for name in ("utf-8", "utf-16-le")),
        *(b"<!DOCTYPE html><html>", b"<table border=1>", b'<?xml version="1.0"?><Workbook>'),
    ],
)
def test_a_file_that_is_no_table_is_named_as_what_it_is(tmp_path: Path, content: bytes):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UsageError, match=r"(archive|gzip|PDF|Parquet|UTF-32|HTML).*; save it as CSV UTF-8"):
        sheet.read(tmp_path / "t.csv")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_table_is_one_whatever_its_encoding_and_line_ends(tmp_path: Path, encoding: str, end: str):
    path = text(tmp_path / "t.csv", f"patient;Ort{end}a;Köln 서울{end}", encoding)
    assert cells(path) == [{"patient": "a", "Ort": "Köln 서울"}]


@pytest.mark.parametrize("line", ["sep=;\n", "SEP=;\r\n", '"sep=;"\n'])
def test_a_line_that_names_the_separator_is_none_of_the_table(tmp_path: Path, line: str):
    assert sheet.read(text(tmp_path / "t.csv", f"{line}a,b;c\nx,y;3\n")) == (["a,b", "c"], [(3, {"a,b": "x,y", "c": "3"})])


@pytest.mark.parametrize("line", ["sep=;,,\n", "sep=,,,\r\n", '"sep=,",,\n', "sep=\t,,\n"])
def test_a_line_of_the_separator_that_a_spreadsheet_saved_again_is_none_of_the_table(tmp_path: Path, line: str):
    assert sheet.read(text(tmp_path / "t.csv", f"{line}a,b,c\nx,y,3\n")) == (
        ["a", "b", "c"],
        [(3, {"a": "x", "b": "y", "c": "3"})],
    )


def test_blank_columns_are_none_and_cells_under_no_name_are_refused(tmp_path: Path):
    assert cells(text(tmp_path / "t.csv", ",a,,b,,\n,1,,2,\n,3,,4,,,\n")) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert cells(text(tmp_path / "t.csv", ",a\n0,1\n1,2\n")) == [{"": "0", "a": "1"}, {"": "1", "a": "2"}]  # as pandas writes
    with pytest.raises(UsageError, match="columns 1, 3 have cells and no name"):
        sheet.read(text(tmp_path / "t.csv", ",a,\n0,1,x\n"))


@pytest.mark.parametrize(
    ("column", "read", "note"),
    [
        (["61,5", "60", "NA", ""], ["61.5", "60", "NA", ""], "decimal point"),
        (["-0,5", "1,25"], ["-0.5", "1.25"], "decimal point"),
        (["1,234", "2,500"], ["1,234", "2,500"], "thousands"),
        (["61,5", "61.5"], ["61,5", "61.5"], ""),  # which of the two is meant is not known
        (["61,5", "old"], ["61.5", "old"], "decimal point"),
        (["1,5 mm", "2"], ["1,5 mm", "2"], ""),
    ],
)
def test_a_decimal_comma_is_a_point_where_commas_part_no_cells(tmp_path: Path, column: list[str], read: list[str], note: str):
    found = sheet.examine(text(tmp_path / "t.csv", "p;x\n" + "".join(f"a;{cell}\n" for cell in column)))
    assert [row["x"] for _, row in found.rows] == read
    assert (len(found.notes), any(note in said for said in found.notes)) == ((1, True) if note else (0, False))
    quoted = sheet.examine(text(tmp_path / "q.csv", "p,x\n" + "".join(f'a,"{cell}"\n' for cell in column)))
    assert [row["x"] for _, row in quoted.rows] == column


def test_the_errors_of_a_spreadsheet_are_faults(tmp_path: Path):
    faults = sheet.examine(text(tmp_path / "t.csv", "p,x\na,#REF!\nb,#1\nc,#####\n")).faults
    assert [(fault.row, fault.column) for fault in faults] == [(2, "x"), (4, "x")]


FORMULAS = ["=1+1", "+49 30", "-2+3", "-", "@SUM(A1)", "＝1", "+"]
NUMBERS = ["-1.5", "+3", "-1e-05", "-.5", "-1."]


@pytest.mark.parametrize(("cell", "prefixed"), [(c, True) for c in FORMULAS] + [(c, False) for c in (*NUMBERS, "1-2", "a=b")])
def test_text_that_a_spreadsheet_takes_for_a_formula_is_prefixed_and_read_back(tmp_path: Path, cell: str, prefixed: bool):
    (tmp_path / "t.csv").write_bytes(sheet.to_csv(["patient", "x"], [["a", cell]]))
    ((_, written),) = list(csv.reader((tmp_path / "t.csv").read_text().splitlines()))[1:]
    assert written == (f"'{cell}" if prefixed else cell)
    assert cells(tmp_path / "t.csv")[0]["x"] == (cell if cell[0] in "+-" or not prefixed else written)


def test_every_table_of_a_run_keeps_text_from_being_a_formula(tmp_path: Path):
    evil = "-2+3|cmd"
    patient = cohort.Patient("a", {"t1": None}, {"mgmt": 1.0}, {"ihc": evil, "change": "-1.5"}, session="-1")
    of_session = pd.DataFrame([{"patient": "a", "session": "-b", "score": -1.5}])
    written = [
        run_cohort.table([patient], tmp_path),
        excluded_table([{"patient": "a", "file": evil, "reason": evil}]),
        check.dump_decisions([Decision("a", True, evil, evil)]),
        predictions.dumps(of_session),
        csv_tables.to_csv(pd.DataFrame([{"patient": "a", "reason": evil, "score": -1.5}])).encode(),
    ]
    for content in written:
        rows = list(csv.reader(content.decode().splitlines()))[1:]
        assert not [c for row in rows for c in row if c.startswith(("=", "+", "-", "@")) and not sheet.NUMBER.fullmatch(c)]
        assert any(c.startswith("'-") for row in rows for c in row)
    (tmp_path / "cohort.csv").write_bytes(written[0])
    (again,) = cohort.read(tmp_path / "cohort.csv", (), needed=(), channels=("t1",))
    assert again.clinical["ihc"] == evil  # so that a category is the same in a run and in the table that it was made from
    assert run_cohort.is_frozen([patient], tmp_path)
    (tmp_path / "cohort.csv").write_bytes(written[0].replace(b"'-", b"-"))  # as runs of earlier versions have it
    assert run_cohort.is_frozen([patient], tmp_path)


@pytest.mark.parametrize(
    "cell",
    [
        '"a b/t1.nii.gz"',
        "'a b/t1.nii.gz'",
        "a b\\t1.nii.gz",
        "~/a b/t1.nii.gz",
        "{home}/a b/t1.nii.gz",
        '"{home}\\a b\\t1.nii.gz"',
    ],
)
def test_a_path_is_found_as_a_person_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: str):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "t1.nii.gz").touch()
    assert cohort.located(tmp_path, cell.format(home=tmp_path)) == tmp_path / "a b" / "t1.nii.gz"


@pytest.mark.parametrize("name", ["'x'.nii", "~t1.nii", "a\\b.nii"])
def test_a_file_of_exactly_the_cells_name_goes_before_any_other_reading(tmp_path: Path, name: str):
    (tmp_path / name).touch()
    assert cohort.located(tmp_path, name) == tmp_path / name


def test_a_name_that_is_not_utf8_is_refused_where_a_table_would_hold_it(tmp_path: Path):
    with pytest.raises(UsageError, match="not UTF-8, as a table must be; rename it"):
        cohort.way(tmp_path / "t1-\udce9.nii")


def test_reading_a_workbook_warns_of_nothing(tmp_path: Path):
    path = book(tmp_path / "t.xlsx", ["patient"], ["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cells(path) == [{"patient": "a"}]
