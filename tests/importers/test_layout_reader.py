"""Plain: common names are read in any case, what a name may mean is suggested, and no patient is guessed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from made.layouts import folder, imported, scans_of

from mri_vit.errors import UsageError
from mri_vit.importers import cohort_table, layout_reader
from mri_vit.importers.collections import LAYOUTS
from mri_vit.importers.layout import Reading, SourceContents, Visit

FOUR = {"t1", "t1ce", "t2", "flair"}
ALL = {*FOUR, "tumour_mask"}


@pytest.mark.parametrize(
    ("names", "patient"),
    [
        (("P1/T1.nii.gz", "P1/T1CE.nii.gz", "P1/t2.nii", "P1/Flair.nii.gz", "P1/SEG.nii.gz"), "P1"),
        (("P1/P1_t1n.nii.gz", "P1/P1-t1c.nii.gz", "P1/P1_T2w.nii.gz", "P1/P1_t2f.nii.gz", "P1/P1_tumorMask.nii.gz"), "P1"),
        (("P_1_T1w.nii.gz", "P_1_T1-Gd.nii.gz", "P_1_T2.nii.gz", "P_1_T2_FLAIR.nii.gz", "P_1_seg.nii.gz"), "P_1"),
    ],
)
def test_a_plain_folder_is_read_under_common_names_in_any_case(tmp_path: Path, names: tuple[str, ...], patient: str):
    assert scans_of(imported("plain", folder(tmp_path, *names))) == {(patient, ""): ALL}


def test_a_plain_folder_is_not_read_where_the_patient_is_not_clear(tmp_path: Path):
    found = imported("plain", folder(tmp_path, "P1/t1ce.nii.gz", "P2/scans/t1ce.nii.gz", "P1/brain_mask_t1.nii.gz"))
    assert scans_of(found) == {("P1", ""): {"t1ce"}}
    assert "2 other NIfTI files were not read" in found.notes[0]


@pytest.mark.parametrize("name", ["patient_id", "BraTS21ID", "Subject", "PARTICIPANT_ID", "patient"])
def test_a_plain_table_is_read_under_common_names_in_any_case(tmp_path: Path, name: str):
    head = f"{name};T1;T1CE;T2;FLAIR;Gender;MGMT_value;OS (months);Vital Status\n"
    text = f"{head}007;a.nii;b.nii;c.nii;d.nii;male;Methylated;12;Dead\n"
    found = imported("plain", folder(tmp_path, tables={"table.csv": text}) / "table.csv")
    assert scans_of(found) == {("007", ""): FOUR}
    assert found.visits[0].scans["t1ce"] == tmp_path / "b.nii"
    assert found.cells["007", ""] == {"sex": "M", "mgmt": "1", "os_days": "365", "os_event": "1"}


def test_where_a_table_names_the_scans_these_are_the_scans(tmp_path: Path):
    names = [f"P1/{name}.nii.gz" for name in ("t1", "t1ce", "t2", "flair", "seg")]
    text = "patient,t1,t1ce,t2,flair\nP1,P1/t1.nii.gz,P1/t1ce.nii.gz,P1/t2.nii.gz,P1/flair.nii.gz\n"
    found = imported("plain", folder(tmp_path, *names, "P2/t1.nii.gz", tables={"cohort.csv": text}))
    assert scans_of(found) == {("P1", ""): FOUR}
    assert found.visits[0].scans["t1"] == tmp_path / "P1" / "t1.nii.gz"


def test_a_plain_column_that_is_not_known_is_suggested_and_not_read(tmp_path: Path):
    text = "patient,MGMT_stat,weight\nP1,1,70\n"
    with pytest.raises(UsageError, match="no column 'patient'; the nearest one is 'weight'"):
        imported("plain", folder(tmp_path, tables={"t.csv": text.replace("patient", "who")}) / "t.csv")
    (tmp_path / "t.csv").write_text(text.replace("weight", "sex").replace("70", "F"))
    found = imported("plain", tmp_path / "t.csv")
    assert found.cells["P1", ""] == {"sex": "F"}
    assert found.notes == ("t.csv: columns that were not read: MGMT_stat (mgmt?)",)


def test_a_death_on_day_0_is_not_used_and_a_censoring_is(tmp_path: Path):
    text = "patient,os_days,dead\nP1,0,1\nP2,0,0\nP3,5,1\n"
    found = imported("plain", folder(tmp_path, tables={"t.csv": text}) / "t.csv")
    assert [(c["os_days"], c["os_event"]) for c in found.cells.values()] == [("", ""), ("0", "0"), ("5", "1")]
    assert all(r.rule.endswith("not used: a death on day 0") for r in found.readings if r.patient == "P1")


def test_a_plain_time_without_a_unit_is_missing_and_listed(tmp_path: Path):
    found = imported("plain", folder(tmp_path, tables={"t.csv": "patient,OS,dead\nP1,18,1\n"}) / "t.csv")
    assert found.cells["P1", ""] == {"os_days": "", "os_event": ""}
    assert {r.column: r.rule for r in found.readings} == {"os_days": "no rule", "os_event": "1 is 1; not used: no os_days"}


def test_a_folder_whose_name_is_no_id_is_left_out(tmp_path: Path):
    found = imported("plain", folder(tmp_path, "P 1/t1.nii.gz", "aux/t1.nii.gz", "P2/t1.nii.gz"))
    assert list(scans_of(found)) == [("P2", "")]
    assert {left.patient: left.reason for left in found.left_out} == dict.fromkeys(
        ("P 1", "aux"), "expected an id of letters, digits, '.', '_' or '-'"
    )


def labelled(home: Path, ids: tuple[str, ...], text: str) -> Path:
    """Folders of scans with these ids beside a table."""
    return folder(home, *(f"{name}/t1ce.nii.gz" for name in ids), tables={"labels.csv": text})


@pytest.mark.parametrize("name", ["12", "12.0", "sub-12", "0012"])
def test_labels_under_an_id_of_another_form_are_never_lost_without_a_word(tmp_path: Path, name: str):
    source = labelled(tmp_path, ("00012", "7"), f"patient,mgmt\n{name},1\n")
    with pytest.raises(UsageError, match=f"{name} is in the table, 00012 among the scans: .*zeros lost. .1 of 1 .* joins the 1 "):
        imported("plain", source)
    found = layout_reader.read_source(LAYOUTS["plain"], source)
    joined = cohort_table.merge(cohort_table.with_ids_of_scans(found))
    assert joined.cells["00012", ""] == {"mgmt": "1"}
    assert joined.readings[0].rule == f"1 is 1; the table's id is {name}"
    assert not joined.left_out


def test_of_ids_of_which_two_could_be_meant_none_is_joined(tmp_path: Path):
    source = labelled(tmp_path, ("01", "2", "a_3"), "patient,mgmt\n1,1\n001,0\n2,1\nA-3,0\n")
    found = imported("plain", source)
    assert {left.patient for left in found.left_out} == {"1", "001", "A-3"}
    assert all("differs only in form" in left.reason for left in found.left_out)
    assert any(re.search(r"zeros lost\? \(3 of 4 ids of the table; .* joins the 1 that", note) for note in found.notes)
    assert any("1, 001 differ only in form" in note for note in found.notes)
    joined = cohort_table.merge(cohort_table.with_ids_of_scans(layout_reader.read_source(LAYOUTS["plain"], source)))
    assert joined.cells == {("01", ""): {}, ("2", ""): {"mgmt": "1"}, ("a_3", ""): {"mgmt": "0"}}


def test_ids_of_other_patients_are_refused_as_such_and_a_table_of_more_patients_is_not(tmp_path: Path):
    with pytest.raises(UsageError, match=r"of 1 patients none is among the 1 with scans.*B2 is in the table, A1 among the scans"):
        imported("plain", labelled(tmp_path / "none", ("A1",), "patient,mgmt\nB2,1\n"))
    found = imported("plain", labelled(tmp_path / "some", ("A1", "C3"), "patient,mgmt\nA1,1\nB2,1\n"))
    assert [left.reason for left in found.left_out] == ["in the table, but without scans"]
    assert found.notes == ("patients with scans who are in no table: 1, such as C3",)


def test_a_number_s_notation_in_a_table_is_an_id_of_a_scan_or_of_nobody(tmp_path: Path):
    source = labelled(tmp_path, ("100000", "7"), "patient,mgmt\n1E+05,1\n7,0\n")
    joined = cohort_table.merge(cohort_table.with_ids_of_scans(layout_reader.read_source(LAYOUTS["plain"], source)))
    assert joined.cells["100000", ""] == {"mgmt": "1"}
    with pytest.raises(UsageError, match=r"labels\.csv, row 2: patient id '1E\+05'"):
        imported("plain", source / "labels.csv")


def test_a_visit_of_another_form_is_named_and_joined_on_request(tmp_path: Path):
    visits = tuple(Visit("P1", session, {"t1": tmp_path / session}) for session in ("01", "02"))
    cells = (
        (session, "mgmt", value, tmp_path / "t.csv", 2, "mgmt", value, "as it is") for session, value in (("1", "1"), ("02", "0"))
    )
    found = SourceContents(visits, tuple(Reading("P1", *cell) for cell in cells))
    (left,) = cohort_table.merge(found).left_out
    assert left.reason == "visit 1 is in the table, but without scans; '01' is: zeros lost?"
    joined = cohort_table.merge(cohort_table.with_ids_of_scans(found))
    assert [row["mgmt"] for row in joined.cells.values()] == ["1", "0"]


@pytest.mark.parametrize(("cell", "value"), [("061Y", "61"), ("018M", "1.5"), ("-1", ""), ("999", ""), ("121", ""), ("61,5", "")])
def test_ages_are_in_years_and_what_cannot_be_one_is_missing_and_listed(tmp_path: Path, cell: str, value: str):
    found = imported("plain", folder(tmp_path, tables={"t.csv": f'patient,age\nP1,"{cell}"\nP2,60\n'}) / "t.csv")
    assert [row["age"] for row in found.cells.values()] == [value, "60"]
    assert [(r.raw, r.row) for r in cohort_table.no_rule(found)] == ([] if value else [(cell, 2)])


def test_ages_of_0_are_counted(tmp_path: Path):
    found = imported("plain", folder(tmp_path, tables={"t.csv": "patient,age\nP1,0\nP2,60\nP3,0\n"}) / "t.csv")
    assert found.notes == ("age: 0 in 2 cells counts as unknown (rows 2, 4)",)
