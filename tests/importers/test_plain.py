"""Plain: common names are read in any case, what a name may mean is suggested, and no patient is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
from made.layouts import folder, imported, scans_of

from mri_vit.errors import UsageError

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
