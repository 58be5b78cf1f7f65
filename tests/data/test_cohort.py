"""The cohort table: what is wrong is named with its row, what is missing stays missing."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mri_vit.data import cohort, columns
from mri_vit.data.covariates import clinical_columns
from mri_vit.errors import UsageError
from mri_vit.settings.schema import Endpoint, Study
from mri_vit.settings.sections import Prepare

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
HEAD = "patient,t1,t1ce,t2,flair,age,mgmt,os_days,os_event\n"


def table(folder: Path, *rows: str, head: str = HEAD) -> Path:
    path = folder / "cohort.csv"
    path.write_text(head + "".join(row + "\n" for row in rows))
    return path


def row(name: str, mgmt: str = "1", days: str = "100", event: str = "1") -> str:
    return f"{name},a.nii,b.nii,c.nii,d.nii,60,{mgmt},{days},{event}"


def test_labels_are_read_and_what_is_missing_stays_missing(tmp_path):
    patients = cohort.read(table(tmp_path, row("007", "1"), row("1e5", "NA", "", ""), row("x", "0", "5.5", "0")), (MGMT, OS))
    assert [p.id for p in patients] == ["007", "1e5", "x"]
    assert patients[0].labels == {"mgmt": 1.0, "os_days": 100.0, "os_event": 1.0}
    assert all(math.isnan(v) for v in patients[1].labels.values())
    assert patients[0].scans["t1ce"] == (tmp_path / "b.nii").resolve()
    assert patients[0].clinical == {"age": "60"}
    assert [p.knows(OS) for p in patients] == [True, False, True]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_marks_line_ends_and_separators_of_spreadsheets_are_read(tmp_path, encoding: str, separator: str):
    text = (HEAD + row("p1") + "\n\n").replace(",", separator).replace("\n", "\r\n")
    (tmp_path / "cohort.csv").write_bytes(text.encode(encoding))
    assert [p.id for p in cohort.read(tmp_path / "cohort.csv", (MGMT, OS))] == ["p1"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("a", "2")], r"row 2, column mgmt: '2'; expected 0, 1, or empty"),
        ([row("a"), row("b", "yes")], r"row 3, column mgmt: 'yes'"),
        ([row("a", "0.5")], "column mgmt: '0.5'"),
        ([row("a", days="-3")], r"row 2, column os_days: '-3'; expected days"),
        ([row("a", days="inf")], "column os_days"),
        ([row("a", days="0")], "an event on day 0"),
        ([row("a", days="")], "os_days and os_event must both be filled"),
        ([row("a", event="NA")], "os_days and os_event must both be filled"),
        ([row("a"), row("a")], "row 3: patient id 'a' repeats 'a' in row 2"),
        ([row("a"), row("A")], "row 3: patient id 'A' repeats 'a' in row 2"),
        ([row("../../x")], r"row 2: patient id '../../x'; expected"),
        ([row("/etc/x")], "patient id '/etc/x'"),
        ([row("C:\\x")], "patient id"),
        ([row("CON")], "patient id 'CON'"),
        ([row("a\u202eb")], "patient id"),
        ([row("x" * 300)], "patient id"),
        ([row("<script>")], "patient id '<script>'"),
        ([row("a").replace("60", "=cmd|x")], "row 2, column age: '=cmd|x' looks like a spreadsheet formula"),
        ([row("a") + ",extra"], "row 2: 10 cells; expected 9"),
        ([], "no patient"),
    ],
)
def test_a_wrong_table_is_refused_naming_row_and_column(tmp_path, rows: list[str], message: str):
    with pytest.raises(UsageError, match=message):
        cohort.read(table(tmp_path, *rows), (MGMT, OS))


def test_case_hides_no_near_name():
    assert columns.nearest("mgmt", ["patient", "t1", "t2", "MGMTx", "os_days"]) == "MGMTx"


def test_a_missing_column_gets_the_nearest_name(tmp_path):
    with pytest.raises(UsageError, match="no column 'mgmt'; the nearest one is 'mgmt_status'"):
        cohort.read(table(tmp_path, row("a"), head=HEAD.replace("mgmt", "mgmt_status")), (MGMT, OS))


@pytest.mark.parametrize("name", ["patient_id", "BraTS21ID", "Subject", "participant_id"])
def test_a_patient_column_in_another_spelling_is_the_one_suggested(tmp_path, name: str):
    (tmp_path / "t.csv").write_text(f"os_event,{name},t1,T1-CE,t2,flair,pat\n")
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text() + "1,a,b,c,d,e,f\n")
    with pytest.raises(UsageError, match=f"no column 'patient'; the nearest one is '{name}'"):
        cohort.read(tmp_path / "t.csv", ())
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace(name, "patient"))
    with pytest.raises(UsageError, match="no column 't1ce'; the nearest one is 'T1-CE'"):
        cohort.read(tmp_path / "t.csv", ())


def test_the_scans_are_the_columns_that_a_study_names_and_other_files_are_no_covariates(tmp_path):
    people = (f"p{number},a{number}.nii,b.nii,adc{number}.nii.gz,swi.nii,{50 + number},{number % 2}" for number in range(6))
    path = table(tmp_path, *people, head="patient,t1,flair,adc,t2,age,mgmt\n")
    with pytest.raises(UsageError, match=r"no column 't1ce'; .*; a study without that sequence names its own in `channels`"):
        cohort.read(path, (MGMT,))
    patients = cohort.read(path, (MGMT,), channels=("flair", "adc"))
    assert patients[0].scans == {"flair": tmp_path / "b.nii", "adc": tmp_path / "adc0.nii.gz"}
    assert set(patients[0].clinical) == {"age"}
    two = Study(
        name="x", cohort=path, prepared=path, output=path, channels=("t1", "flair"),
        prepare=Prepare(reference="t1"), endpoints=(MGMT,),
    )  # fmt: skip
    assert clinical_columns(cohort.of_study(two), two) == ["age"]  # adc, which it does not name, varies and is no category
    (tmp_path / "again.csv").write_bytes(cohort.dumps(patients))
    assert cohort.read(tmp_path / "again.csv", (MGMT,), channels=("flair", "adc")) == patients


def test_a_column_of_a_scan_that_nobody_needs_may_lack(tmp_path):
    text = table(tmp_path, row("a", "1")).read_text().splitlines()
    header = text[0].split(",")
    gone = header.index("t1")
    lines = [",".join(cell for i, cell in enumerate(line.split(",")) if i != gone) for line in text]
    (tmp_path / "less.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match="no column 't1'"):
        cohort.read(tmp_path / "less.csv", (MGMT,))
    (patient,) = cohort.read(tmp_path / "less.csv", (MGMT,), needed=("t1ce", "t2", "flair"))
    assert patient.scans["t1"] is None
    assert patient.scans["t1ce"] is not None


def test_sessions_of_a_patient_are_visits_of_one_subject(tmp_path):
    rows = [f"{name},a,b,c,d,60,1,9,1,{session}" for name, session in (("a", "1"), ("a", "2"), ("b", ""))]
    path = table(tmp_path, *rows, head=HEAD.strip() + ",session\n")
    visits = cohort.read(path, (MGMT, OS))
    assert [(v.id, v.subject, v.session) for v in visits] == [("a_1", "a", "1"), ("a_2", "a", "2"), ("b", "b", "")]
    assert [v.id for v in cohort.first_visits(visits)] == ["a_1", "b"]
    (tmp_path / "again.csv").write_bytes(cohort.dumps(visits))
    assert [repr(p) for p in cohort.read(tmp_path / "again.csv", (MGMT, OS))] == [repr(p) for p in visits]


@pytest.mark.parametrize(
    ("visits", "message"),
    [
        ((("a", "1"), ("a", "1")), "row 3: patient id 'a_1' repeats 'a_1' in row 2"),
        ((("a", "1"), ("a_1", "")), "row 3: patient id 'a_1' repeats 'a_1' in row 2"),
        ((("a", "1"), ("A", "2")), "row 3: patient id 'A' repeats 'a' in row 2 in another spelling"),
        ((("a", "../x"),), "row 2: session '../x'"),
    ],
)
def test_a_visit_that_is_there_twice_or_strangely_named_is_refused(tmp_path, visits, message: str):
    rows = [f"{name},a,b,c,d,60,1,9,1,{session}" for name, session in visits]
    with pytest.raises(UsageError, match=message):
        cohort.read(table(tmp_path, *rows, head=HEAD.strip() + ",session\n"), (MGMT, OS))


def test_a_written_table_is_read_back_the_same(tmp_path):
    patients = cohort.read(table(tmp_path, row("a"), row("b", "", "1095.7275", "0"), row("c", "0", "", "")), (MGMT, OS))
    (tmp_path / "again.csv").write_bytes(cohort.dumps(patients))
    again = cohort.read(tmp_path / "again.csv", (MGMT, OS))
    assert [repr(p) for p in again] == [repr(p) for p in patients]


def test_all_faults_of_a_table_are_named_at_once(tmp_path):
    rows = [row("../x"), row("a", "2"), row("a"), row("b", days="soon"), row("c", days=""), row("d") + ",extra"]
    with pytest.raises(UsageError) as found:
        cohort.read(table(tmp_path, *rows, head=HEAD.replace("flair", "FLAIR")), (MGMT, OS))
    said = str(found.value)
    words = ("no column 'flair'", "'../x'", "mgmt: '2'", "repeats", "'soon'", "both", "10 cells")
    assert [word for word in words if word not in said] == []
    assert len(said.splitlines()) == len(words)


def test_an_error_names_twenty_faults_and_counts_the_others(tmp_path):
    with pytest.raises(UsageError, match="and 5 more faults; `mri-vit check` lists all") as found:
        cohort.read(table(tmp_path, *(row(f"p{index}", "2") for index in range(25))), (MGMT, OS))
    assert len(str(found.value).splitlines()) == 21
