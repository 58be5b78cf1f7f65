"""What an import writes: a table that a study reads, each cell's origin, conflicts, the recommended study; nothing elsewhere."""

from __future__ import annotations

import csv
import json
import tomllib
from datetime import date
from pathlib import Path

import openpyxl
import pytest
from made import dicom
from made.layouts import folder
from rich.console import Console

from mri_vit.cli import app
from mri_vit.crossval import folds
from mri_vit.data import cohort, sheet
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.importers.collections import LAYOUTS
from mri_vit.importers.import_cohort import import_dicom, import_layout
from mri_vit.importers.join import join
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Endpoint, Study

MGMT = Endpoint(name="mgmt", kind="binary")
FILES = {"cohort.csv", "provenance.csv", "conflicts.csv", "excluded.csv", "import.json", "study.toml"}


def brought(name: str, source: Path, home: Path) -> bool:
    return import_layout(name, source, home, Console(quiet=True))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def brats(home: Path, *patients: str, labels: str = "00001,1\n00002,0\n") -> Path:
    names = [f"BraTS2021_{p}/BraTS2021_{p}_{s}.nii.gz" for p in patients for s in ("t1", "t1ce", "t2", "flair")]
    return folder(home, *names, tables={"train_labels.csv": f"BraTS21ID,MGMT_value\n{labels}"})


def test_the_table_is_read_as_a_cohort_and_its_scans_are_found(tmp_path: Path):
    source, home = brats(tmp_path / "some data", "00001", "00002"), tmp_path / "cohorts" / "brats"
    assert not brought("brats2021", source, home)
    assert {path.name for path in home.iterdir()} == FILES
    first, second = cohort.read(home / "cohort.csv", (MGMT,))
    assert first.scans["t1ce"] == (source / "BraTS2021_00001" / "BraTS2021_00001_t1ce.nii.gz").resolve()
    assert (first.labels["mgmt"], second.labels["mgmt"]) == (1.0, 0.0)
    assert "session" not in sheet.columns(home / "cohort.csv")
    written = rows(home / "cohort.csv")[0]
    assert written["t1"] == "../../some data/BraTS2021_00001/BraTS2021_00001_t1.nii.gz"
    (origin,) = (row for row in rows(home / "provenance.csv") if row["patient"] == "BraTS2021_00002")
    assert origin == {
        **{"patient": "BraTS2021_00002", "session": "", "column": "mgmt", "value": "0"},
        **{"file": str(source / "train_labels.csv"), "row": "3", "source_column": "MGMT_value"},
        **{"raw": "0", "rule": "0 is 0"},
    }


def test_a_column_of_visits_is_there_where_visits_differ(tmp_path: Path):
    one = folder(tmp_path / "one", "BraTS-GLI-00000-000-t1c.nii.gz", "BraTS-GLI-00001-000-t1c.nii.gz")
    two = folder(tmp_path / "two", "BraTS-GLI-00000-000-t1c.nii.gz", "BraTS-GLI-00001-001-t1c.nii.gz")
    for source in (one, two):
        brought("brats2023", source, source.parent / f"{source.name}-cohort")
    assert [v.id for v in cohort.read(tmp_path / "one-cohort" / "cohort.csv", ())] == ["BraTS-GLI-00000", "BraTS-GLI-00001"]
    again = cohort.read(tmp_path / "two-cohort" / "cohort.csv", ())
    assert [(v.subject, v.session) for v in again] == [("BraTS-GLI-00000", "000"), ("BraTS-GLI-00001", "001")]


def test_readings_that_disagree_leave_the_cell_empty_and_are_listed(tmp_path: Path):
    source = brats(tmp_path / "in", "00001", "00002", labels="00001,1\n00002,0\n")
    (source / "more.csv").write_text("BraTS21ID,MGMT_value\n00001,0\n00002,0\n")
    assert brought("brats2021", source, tmp_path / "out")
    first, second = rows(tmp_path / "out" / "cohort.csv")
    assert (first["mgmt"], second["mgmt"]) == ("", "0")
    conflicts = rows(tmp_path / "out" / "conflicts.csv")
    assert {(c["patient"], c["column"], Path(c["file"]).name, c["row"], c["value"]) for c in conflicts} == {
        ("BraTS2021_00001", "mgmt", "train_labels.csv", "2", "1"),
        ("BraTS2021_00001", "mgmt", "more.csv", "2", "0"),
    }
    origins = [o for o in rows(tmp_path / "out" / "provenance.csv") if o["patient"] == "BraTS2021_00001"]
    assert [o["value"] for o in origins] == ["", ""]
    assert all(o["rule"].endswith("not used: readings disagree") for o in origins)


def test_a_patient_without_scans_is_left_out_with_the_table(tmp_path: Path):
    source = brats(tmp_path / "in", "00001")
    assert brought("brats2021", source, tmp_path / "out")
    (left,) = rows(tmp_path / "out" / "excluded.csv")
    assert left["patient"] == "BraTS2021_00002"
    assert left["file"].endswith("train_labels.csv")
    assert left["reason"] == "in the table, but without scans"


def test_text_is_text_to_a_spreadsheet_too(tmp_path: Path):
    head = "Brats20ID,Age,Survival_days,Extent_of_Resection\n"
    text = head + "BraTS20_Training_001,60,=1+1,=cmd|' /C calc'!A0\nBraTS20_Training_002,61,-5,@x\n"
    assert brought("brats2020_survival", folder(tmp_path / "in", tables={"survival_info.csv": text}), tmp_path / "out")
    first, second = rows(tmp_path / "out" / "cohort.csv")
    assert (first["resection"], second["resection"]) == ("'=cmd|' /C calc'!A0", "'@x")
    raw = {o["raw"] for o in rows(tmp_path / "out" / "provenance.csv")}
    assert {"'=1+1", "-5"} <= raw  # a number is no formula
    assert not any(cell.startswith(("=", "@")) for cell in raw)
    assert cohort.read(tmp_path / "out" / "cohort.csv", ())[0].clinical["resection"].startswith("'=")


def test_an_import_is_repeated_and_changed_tables_are_not_overwritten(tmp_path: Path):
    source, home = brats(tmp_path / "in", "00001", labels="00001,1\n"), tmp_path / "out"
    brought("brats2021", source, home)
    before = (home / "cohort.csv").read_bytes()
    brought("brats2021", source, home)
    assert (home / "cohort.csv").read_bytes() == before
    (source / "train_labels.csv").write_text("BraTS21ID,MGMT_value\n00001,0\n")
    brought("brats2021", source, home)  # our own table as it was written is replaced
    assert (home / "cohort.csv").read_bytes() != before
    (home / "cohort.csv").write_text("patient,mgmt\nmine,1\n")
    with pytest.raises(UsageError, match=r"cohort\.csv: not as mri-vit wrote it"):
        brought("brats2021", source, home)
    assert (home / "cohort.csv").read_text() == "patient,mgmt\nmine,1\n"


def test_nothing_is_written_into_the_source_or_through_a_link(tmp_path: Path):
    source = brats(tmp_path / "in", "00001")
    before = sorted(source.rglob("*"))
    for home in (source, source / "cohort", source / "train_labels.csv"):
        with pytest.raises(UsageError):
            brought("brats2021", source, home)
    with pytest.raises(UsageError, match="inside the source"):
        brought("rsna_miccai", source / "train_labels.csv", source)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match="a link to"):
        brought("brats2021", source, tmp_path / "link")
    assert sorted(source.rglob("*")) == before
    assert not list((tmp_path / "elsewhere").iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"in", "elsewhere", "link"}


def test_a_table_that_cannot_be_read_writes_nothing(tmp_path: Path):
    source = folder(tmp_path / "in", tables={"t.csv": "BraTS21ID,MGMT_value\n1,1\nsecond,0\n"})
    with pytest.raises(UsageError, match=r"t.csv, row 3, column BraTS21ID: patient id 'second'"):
        brought("rsna_miccai", source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text", ["\ufeffID;MGMT\r\na;Methylated\r\n", "ID\tMGMT\na\tMethylated\n", '"ID","MGMT"\n"a","Methylated"\n']
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_marks_line_ends_and_separators_of_a_table_make_no_difference(tmp_path: Path, text: str, encoding: str):
    (tmp_path / "t.csv").write_bytes(text.removeprefix("\ufeff" if encoding == "utf-16" else "").encode(encoding))
    brought("plain", tmp_path / "t.csv", tmp_path / "out")
    assert rows(tmp_path / "out" / "cohort.csv")[0] | {"t1": ""} == {
        **dict.fromkeys(("t1", "t1ce", "t2", "flair"), ""),
        **{"patient": "a", "mgmt": "1"},
    }


def auto(source: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> str:
    brought_by = Console(width=200)
    import_layout("auto", source, home, brought_by)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        ("brats2021", ["BraTS2021_00001/BraTS2021_00001_t1ce.nii.gz"]),
        ("brats2023", ["BraTS-GLI-00000-000/BraTS-GLI-00000-000-t1c.nii.gz"]),
        ("rsna_miccai", ["00000/T1wCE.nii.gz"]),
        ("ucsf_pdgm", ["UCSF-PDGM-0004_nifti/UCSF-PDGM-0004_T1c.nii.gz"]),
        ("upenn_gbm", ["UPENN-GBM-00001_11/UPENN-GBM-00001_11_T1GD.nii.gz"]),
        ("tcga", ["TCGA-FG-6692/t1ce.nii.gz"]),
        ("mu_glioma_post", ["PatientID_0003/Timepoint_1/PatientID_0003_Timepoint_1_brain_t1c.nii.gz"]),
        ("rhuh_gbm", ["RHUH-0001/0/RHUH-0001_0_t1ce.nii.gz"]),
        ("brats2020_survival", ["BraTS20_Training_001/BraTS20_Training_001_t1ce.nii"]),
        ("nnunet", ["imagesTr/case_0000.nii.gz"]),
        ("bids", ["sub-01/anat/sub-01_T1w.nii.gz"]),
        ("plain", ["P001/t1ce.nii.gz"]),
    ],
)
def test_auto_recognises_each_layout_and_says_what_it_saw(tmp_path: Path, capsys, layout: str, names: list[str]):
    tables = {"dataset.json": '{"channel_names": {"0": "T1ce"}}'} if layout == "nnunet" else {}
    said = auto(folder(tmp_path / "in", *names, tables=tables), tmp_path / "out", capsys)
    assert f"is {layout} (1 NIfTI file, 0 tables)" in said
    assert json.loads((tmp_path / "out" / "import.json").read_text())["layout"] == layout


def test_each_layout_is_one_that_auto_is_tried_on():
    (mark,) = (m for m in test_auto_recognises_each_layout_and_says_what_it_saw.pytestmark if m.name == "parametrize")
    assert [layout for layout, _ in mark.args[1]] == list(LAYOUTS)


def test_auto_takes_the_labels_that_lie_beside_scans(tmp_path: Path, capsys):
    said = auto(brats(tmp_path / "in", "00001", "00002"), tmp_path / "out", capsys)
    assert "is brats2021 (8 NIfTI files, 1 table)" in said
    said = auto(folder(tmp_path / "labels", tables={"l.csv": "BraTS21ID,MGMT_value\n1,1\n"}), tmp_path / "out2", capsys)
    assert "is rsna_miccai (0 NIfTI files, 1 table)" in said


def patients(home: Path) -> dict[str, dict[str, str]]:
    return {row["patient"]: row for row in rows(home / "cohort.csv")}


OWN = "Patient,Age,Sex,MGMT_status,OS (days),Dead\n{}"


def test_auto_joins_a_table_of_ones_own_to_folders_of_a_layout_whatever_its_ids(tmp_path: Path, capsys):
    more = {f"0000{n}": n % 2 for n in range(4, 8)}
    labels = "00001,1\n00002,0\n" + "".join(f"{name},{label}\n" for name, label in more.items())
    source = brats(tmp_path / "in", "00001", "00002", "00003", *more, labels=labels)
    folder(source, tables={"clinical.csv": OWN.format("1,60,M,1,100,1\n00002,50,F,0,200,0\nBraTS2021_00003,40,F,1,300,1\n")})
    auto(source, tmp_path / "out", capsys)
    found = patients(tmp_path / "out")
    assert {name: (row["age"], row["mgmt"], row["os_days"]) for name, row in found.items() if name[-5:] not in more} == {
        "BraTS2021_00001": ("60", "1", "100"),
        "BraTS2021_00002": ("50", "0", "200"),
        "BraTS2021_00003": ("40", "1", "300"),
    }
    study = study_file.load(tmp_path / "out" / "study.toml", {})
    assert [endpoint.name for endpoint in study.endpoints] == ["mgmt", "os"]


def test_a_workbook_beside_folders_is_read_and_one_that_cannot_be_is_left_out_with_the_reason(tmp_path: Path, capsys):
    source = brats(tmp_path / "in", "00001")
    book = openpyxl.Workbook()
    book.worksheets[0].append(["ID", "Age"])
    book.worksheets[0].append([1, 60])
    book.save(source / "clinical.xlsx")
    (source / "~$clinical.xlsx").write_bytes(b"open in Excel")
    auto(source, tmp_path / "out", capsys)
    assert patients(tmp_path / "out")["BraTS2021_00001"]["age"] == "60"
    book.create_sheet("codes").append(["x"])
    book.save(source / "clinical.xlsx")
    assert import_layout("auto", source, tmp_path / "two", Console(quiet=True))
    (left,) = [row for row in rows(tmp_path / "two" / "excluded.csv") if row["file"].endswith(".xlsx")]
    assert "2 sheets" in left["reason"]


def test_reasons_for_leaving_out_that_are_not_printed_are_counted(tmp_path: Path, capsys):
    names = [f"{channel}.{ending}" for channel in ("t1", "t1ce", "t2", "flair") for ending in ("nrrd", "mgz")]
    source = folder(tmp_path / "in", "P0/t1.nii.gz", *(f"P{number}/{name}" for number, name in enumerate(names, 1)))
    said = " ".join(auto(source, tmp_path / "out", capsys).split())
    reasons = {row["reason"] for row in rows(tmp_path / "out" / "excluded.csv")}
    assert len(reasons) > 5
    assert said.count("left out: 1 ×") == 5
    assert f"left out: {len(reasons) - 5} more reasons, in excluded.csv" in said


@pytest.mark.parametrize("name", ["clinical.txt", "clinical.TXT", "clinical.tab"])
def test_a_table_of_text_is_read_under_its_other_endings_and_a_readme_is_none(tmp_path: Path, name: str):
    tables = {name: "patient\tmgmt\n1\t1\n", "README.txt": "Patient\n\nAge, sex, and so on.\n", "NOTE.txt": "a, b\n", "e.txt": ""}
    source = folder(tmp_path / "in", "BraTS2021_00001/BraTS2021_00001_t1.nii.gz", tables=tables)
    assert not import_layout("auto", source, tmp_path / "out", Console(quiet=True))
    assert patients(tmp_path / "out")["BraTS2021_00001"]["mgmt"] == "1"


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.sav", b"$FL2@(#)"), ("a.dta", b"<stata_dta>"), ("a.rds", b"\x1f\x8b\x08"), ("b.dta", b"r\x02\x01\xff")],
)
def test_a_table_of_a_statistics_program_is_left_out_with_the_reason(tmp_path: Path, name: str, content: bytes):
    source = folder(tmp_path / "in", "P1/t1.nii.gz")
    (source / name).write_bytes(content)
    assert import_layout("auto", source, tmp_path / "out", Console(quiet=True))
    assert "not read" in rows(tmp_path / "out" / "excluded.csv")[0]["reason"]


def test_a_date_in_place_of_an_id_is_refused_and_a_folder_that_is_called_like_one_is_a_patient(tmp_path: Path, capsys):
    book = openpyxl.Workbook()
    book.worksheets[0].append(["ID", "Age", "Scan date"])
    book.worksheets[0].append([date(2026, 2, 1), 60, date(2026, 2, 1)])
    book.save(tmp_path / "clinical.xlsx")
    with pytest.raises(UsageError, match=r"row 2, column ID: patient id '2026-02-01' is a date in the workbook"):
        brought("plain", tmp_path / "clinical.xlsx", tmp_path / "out")
    auto(folder(tmp_path / "in", "2026-02-01/t1.nii.gz"), tmp_path / "out", capsys)
    assert list(patients(tmp_path / "out")) == ["2026-02-01"]


def test_columns_of_ones_own_in_a_table_of_the_layout_are_read_too(tmp_path: Path, capsys):
    source = brats(tmp_path / "in", "00001")
    (source / "train_labels.csv").write_text("BraTS21ID,MGMT_value,Age,weight\n1,1,60,70\n")
    said = auto(source, tmp_path / "out", capsys)
    row = patients(tmp_path / "out")["BraTS2021_00001"]
    assert (row["mgmt"], row["age"]) == ("1", "60")
    assert "columns that were not read: weight" in said


def test_folders_that_are_not_of_the_layout_are_read_as_plain_and_the_cohort_is_no_collection(tmp_path: Path, capsys):
    source = folder(brats(tmp_path / "in", "00001"), "H1/t1.nii.gz", "H1/t1ce.nii.gz", "H2_t1.nii")
    said = auto(source, tmp_path / "out", capsys)
    assert "2 patients (H2, H1) are not of the layout brats2021" in said
    found = patients(tmp_path / "out")
    assert set(found) == {"BraTS2021_00001", "H1", "H2"}
    assert "cohort" not in found["H1"]
    assert import_layout("brats2021", source, tmp_path / "brats", Console(quiet=True))
    assert {row["patient"] for row in rows(tmp_path / "brats" / "excluded.csv")} >= {"H1", "H2"}


def test_a_folder_with_scans_of_which_none_is_read_is_left_out_and_not_passed_over(tmp_path: Path, capsys):
    names = (
        "H1/anat/t1.nii.gz",
        "H2/image.mha",
        "BraTS2021_00001/BraTS2021_00001_seg.mha",
        "H3/IM0001.dcm",
        "P 4/t1.nii.gz",
        "derivatives/x/brain.nii.gz",
    )
    source = folder(brats(tmp_path / "in", "00001", labels="00001,1\n"), *names)
    assert import_layout("auto", source, tmp_path / "out", Console(quiet=True))
    left = {row["patient"] for row in rows(tmp_path / "out" / "excluded.csv")}
    assert left == {"H1", "H2", "H3", "P 4", "BraTS2021_00001"}  # the last for its mask, which is no NIfTI


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["siteA/BraTS2021_00001/BraTS2021_00001_t1.nii.gz", "siteA/PAT01/t1.nii.gz"], {"siteA/PAT01"}),
        (["BraTS2021_00001/BraTS2021_00001_t1.nii.gz", "PAT01 t1.nii.gz", "PAT02.t1.nii.gz"], {""}),
        (["P1_t1.nii.gz", "P1_adc.nii.gz", "PAT01 t1.nii.gz"], {""}),
        (["PAT01/t1ce.nii.gz", "PAT01/t1\udce9.nii.gz"], {"PAT01"}),
        (["sub-01/anat/sub-01_T1w.nii.gz", "sub-01/dwi/sub-01_dwi.nii.gz", "derivatives/x/b.nii.gz"], set()),
        (["a/UPENN-GBM-00001_11/UPENN-GBM-00001_11_T1.nii.gz", "DTI/UPENN-GBM-00001_11/UPENN-GBM-00001_11_FA.nii.gz"], set()),
        (["P1_t1.nii.gz", "P1_adc.nii.gz"], set()),
    ],
)
def test_scans_that_are_not_read_are_left_out_unless_they_lie_with_a_patient_s(tmp_path: Path, names: list[str], left: set[str]):
    source = folder(tmp_path / "in", *names)
    assert import_layout("auto", source, tmp_path / "out", Console(quiet=True)) == bool(left)
    assert {row["patient"] for row in rows(tmp_path / "out" / "excluded.csv")} == left


def test_scans_without_a_layout_beside_a_table_are_left_out(tmp_path: Path):
    names = [f"case{n}_000{channel}.nii.gz" for n in (1, 2) for channel in range(4)]
    source = folder(tmp_path / "in", *names, tables={"labels.csv": "patient,mgmt\ncase1,1\ncase2,0\n"})
    assert import_layout("auto", source, tmp_path / "out", Console(quiet=True))
    assert any("8 files" in row["reason"] for row in rows(tmp_path / "out" / "excluded.csv"))


def test_folders_behind_links_are_read_and_one_that_leads_back_ends_nothing(tmp_path: Path, capsys):
    folder(tmp_path / "elsewhere", "t1.nii.gz")
    source = folder(tmp_path / "in", "P1/t1.nii.gz")
    (source / "P2").symlink_to(tmp_path / "elsewhere")
    (source / "P1" / "again").symlink_to(source)
    auto(source, tmp_path / "out", capsys)
    assert list(patients(tmp_path / "out")) == ["P1", "P2"]


@pytest.mark.parametrize(("name", "what"), [("P1/t1.mha", "MetaImage"), ("scan.mgz", "MGZ"), ("a/b/IM1.dcm", "import dicom")])
def test_a_source_without_nifti_names_what_is_there(tmp_path: Path, capsys, name: str, what: str):
    source = folder(tmp_path / "in", name)
    try:
        said = auto(source, tmp_path / "out", capsys)
        said += (tmp_path / "out" / "excluded.csv").read_text()
    except UsageError as error:
        said = str(error)
    assert what in said


def test_auto_refuses_several_layouts_and_none(tmp_path: Path, capsys):
    both = folder(tmp_path / "both", "BraTS2021_00001_t1.nii.gz", "RHUH-0001_0_t1.nii.gz")
    with pytest.raises(UsageError, match=r"brats2021 \(1 NIfTI file, 0 tables\) and rhuh_gbm .*; name the layout"):
        auto(both, tmp_path / "out", capsys)
    with pytest.raises(UsageError, match="1 NIfTI file and 1 table, in none of the layouts"):
        auto(folder(tmp_path / "none", "a/b/c/d.nii", tables={"x.csv": "a,b\n1,2\n"}), tmp_path / "out", capsys)


def test_auto_writes_a_study_that_loads_with_the_endpoints_that_are_known(tmp_path: Path, capsys):
    home = tmp_path / "out"
    ids = [f"0000{n}" for n in range(1, 5)]
    auto(brats(tmp_path / "in", *ids, labels="".join(f"{name},{name[-1] in '12':d}\n" for name in ids)), home, capsys)
    study = study_file.load(home / "study.toml", {})
    assert study.cohort == home / "cohort.csv"
    assert [endpoint.name for endpoint in study.endpoints] == ["mgmt"]
    assert len(cohort.read(study.cohort, study.endpoints)) == len(ids)
    assert sum(line.startswith("#") or "  # " in line for line in (home / "study.toml").read_text().splitlines()) >= 5
    (home / "study.toml").write_text("mine")
    assert "exists and is kept" in auto(tmp_path / "in", home, capsys)
    assert (home / "study.toml").read_text() == "mine"


def test_auto_names_the_sequences_of_a_cohort_without_all_four_and_a_reference_where_t1ce_is_none_of_them(tmp_path: Path, capsys):
    for there, reference in ((("t1", "flair"), "t1"), (("t1ce", "t2"), "t1ce")):
        names = [f"P{number}/{channel}.nii.gz" for number in (1, 2) for channel in there]
        home = tmp_path / f"out-{reference}"
        auto(folder(tmp_path / reference, *names), home, capsys)
        study = study_file.load(home / "study.toml", {})
        assert (study.channels, study.prepare.reference) == (there, reference)
        patients = cohort.read(study.cohort, (), channels=study.channels)
        assert [tuple(name for name, file in patient.scans.items() if file) for patient in patients] == [there] * 2


def test_auto_writes_a_survival_endpoint(tmp_path: Path, capsys):
    lines = (
        "Brats20ID,Survival_days",
        *(f"BraTS20_Training_00{n},{days}" for n, days in enumerate((289, "ALIVE (361 days later)", 90))),
    )
    text = "".join(f"{line}\n" for line in lines)
    auto(folder(tmp_path / "in", tables={"survival_info.csv": text}), tmp_path / "out", capsys)
    study = study_file.load(tmp_path / "out" / "study.toml", {})
    assert [endpoint.columns for endpoint in study.endpoints] == [("os_days", "os_event")]
    assert len(cohort.read(study.cohort, study.endpoints)) == 3


@pytest.mark.parametrize(("ids", "counts"), [(("00001",), "1 patient, 1 visit;"), (("00001", "00002"), "2 patients, 2 visits;")])
def test_printed_counts_agree_in_number(ids: tuple[str, ...], counts: str, tmp_path: Path, capsys):
    source = brats(tmp_path / "in", *ids)
    app(["import", "brats2021", str(source), "-o", str(tmp_path / "out")], result_action="return_value")
    assert counts in " ".join(capsys.readouterr().out.split())


def test_the_verb_prints_counts_and_ends_with_3_where_something_is_left_out(tmp_path: Path, capsys):
    source = brats(tmp_path / "in", "00001", "00002", labels="00001,1\n00002,weak\n")
    code = app(["import", "brats2021", str(source), "-o", str(tmp_path / "out")], result_action="return_value")
    said = " ".join(capsys.readouterr().out.split())
    assert code == 3
    assert "2 patients, 2 visits; scans: t1 2, t1ce 2, t2 2, flair 2" in said
    assert "mgmt 1 1 1 0" in said  # known, missing, no rule, conflict
    assert "no rule for 'weak'" in said
    source = brats(tmp_path / "in2", "00001", "00002")
    assert app(["import", "brats2021", str(source), "-o", str(tmp_path / "out2")], result_action="return_value") == 0


def test_an_unknown_layout_gets_the_nearest_one(tmp_path: Path):
    with pytest.raises(UsageError, match="no layout 'upen'; the nearest one is 'upenn_gbm'"):
        brought("upen", tmp_path, tmp_path / "out")


ROOT = Path(__file__).parents[2]
FOUR_NAMES = {"t1": "T1 AX", "t1ce": "T1 AX POST GD", "t2": "T2 AX", "flair": "FLAIR AX"}
COHORT_KEYS = {"name", "cohort", "prepared", "output", "endpoints", "channels"}  # keys that are the cohort's
PATIENTS = range(1, 11)
LABELS = "patient,mgmt,os_days,dead\n" + "".join(f"P{n},{n % 2},{100 * n},{n % 2}\n" for n in PATIENTS)
SCANS = [f"P{n}/{name}.nii.gz" for n in PATIENTS for name in ("t1", "t1ce", "t2", "flair")]


def settings_of(study: Study) -> dict:
    return study.model_dump(exclude=COHORT_KEYS)


def shipped(name: str) -> dict:
    return settings_of(study_file.load(ROOT / "configs" / name))


def brought_study(home: Path, labels: str = LABELS, *more: str, scans: list[str] = SCANS) -> Study:
    import_layout("auto", folder(home / "in", *scans, *more, tables={"labels.csv": labels}), home / "out", Console(quiet=True))
    return study_file.load(home / "out" / "study.toml")


def test_an_import_writes_the_recommended_study_with_paths_and_endpoints_of_its_cohort(tmp_path: Path):
    study = brought_study(tmp_path)
    assert settings_of(study) == shipped("gbm.toml")
    home = tmp_path / "out"
    assert (study.cohort, study.output) == (home / "cohort.csv", home / "run")
    assert [endpoint.name for endpoint in study.endpoints] == ["mgmt", "os"]
    assert len(cohort.of_study(study)) == len(PATIENTS)


@pytest.mark.parametrize(("masks", "supervised"), [((), False), ((2,), True)])
def test_without_flair_masks_supervise_only_where_the_table_has_one(tmp_path: Path, masks: tuple[int, ...], supervised: bool):
    scans = [name for name in SCANS if "flair" not in name]
    study = brought_study(tmp_path, LABELS, *(f"P{n}/seg.nii.gz" for n in masks), scans=scans)
    assert study.train.mask_supervised == supervised
    assert study.model.pool == ("cls" if supervised else "max")


def test_a_cohort_without_t1ce_gets_another_reference_and_else_the_same_settings(tmp_path: Path):
    study = brought_study(tmp_path, scans=[name for name in SCANS if "t1ce" not in name])
    assert (study.channels, study.prepare.reference) == (("t1", "t2", "flair"), "t1")
    as_ours = study.prepare.model_copy(update={"reference": "t1ce", "needs": ("t1", "t1ce", "t2", "flair")})
    model = study.model.model_copy(update={"channels": ("t1", "t1ce", "t2", "flair")})
    assert settings_of(study.model_copy(update={"prepare": as_ours, "model": model})) == shipped("gbm.toml")


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (
            "patient,mgmt,pten\nP1,1,1\nP2,0,1\nP3,1,\nP4,0,\n",
            "pten; 2 patients with 1 and 0 with 0; training needs 2 patients of the rarer class",
        ),
        ("patient,mgmt,pten\nP1,1,NA\nP2,0,\nP3,1,\nP4,0,\n", "pten; no label is known"),
        (
            "patient,mgmt,pten\nP1,1,1\nP2,0,0\nP3,1,1\nP4,0,\n",
            "pten; 2 patients with 1 and 1 with 0; training needs 2 patients of the rarer class",
        ),
        (
            "patient,mgmt,os_days,dead\nP1,1,100,0\nP2,0,200,0\nP3,1,,\nP4,0,,\n",
            "os; 0 patients with 1 and 2 with 0; training needs 2 deaths",
        ),
        (
            "patient,mgmt,os_days,dead\nP1,1,100,1\nP2,0,200,0\nP3,1,,\nP4,0,,\n",
            "os; 1 patients with 1 and 1 with 0; training needs 2 deaths",
        ),
    ],
)
def test_an_endpoint_of_one_class_is_not_studied_and_the_reason_stands_in_the_file(tmp_path: Path, labels: str, reason: str):
    study = brought_study(tmp_path, labels)
    assert [endpoint.name for endpoint in study.endpoints] == ["mgmt"]
    assert f"# Not studied: {reason}" in (tmp_path / "out" / "study.toml").read_text()


@pytest.mark.parametrize(("rare", "expected"), [(2, 2), (4, 4), (5, 5)])
def test_the_study_has_no_more_folds_than_its_rarest_class_has_patients(tmp_path: Path, rare: int, expected: int):
    study = brought_study(tmp_path, "patient,mgmt\n" + "".join(f"P{n},{int(n > rare)}\n" for n in PATIENTS))
    assert study.train.folds == expected
    folds.check(cohort.of_study(study), study.endpoints, study.train)


@pytest.mark.parametrize(
    ("labels", "cause"),
    [
        ("P1,1\nP2,1\nP3,1", "mgmt: .* add patients"),
        ("P1,1\nP2,1\nP3,0", "mgmt: .* add patients"),
        ("P1,\nP2,", "no label of mgmt"),
    ],
)
def test_a_study_of_which_no_label_can_be_learned_says_at_its_check_what_is_lacking(tmp_path: Path, labels: str, cause: str):
    study = brought_study(tmp_path, f"patient,mgmt\n{labels}\n")
    with pytest.raises(UsageError, match=cause):
        folds.check(cohort.of_study(study), study.endpoints, study.train)


def test_the_check_of_a_study_without_a_label_names_one_column(tmp_path: Path):
    study = brought_study(tmp_path, "patient,age\nP1,60\n")
    with pytest.raises(UsageError, match="no column 'mgmt'") as refused:
        cohort.of_study(study)
    assert str(refused.value).count("no column") == 1


def test_visits_of_a_patient_count_once_in_the_number_of_folds(tmp_path: Path):
    names = [f"sub-{n}/ses-{visit}/anat/sub-{n}_ses-{visit}_FLAIR.nii.gz" for n in range(6) for visit in (1, 2)]
    study = brought_study(tmp_path, "participant_id,mgmt\n" + "".join(f"sub-{n},{n % 2}\n" for n in range(6)), scans=names)
    assert study.train.folds == 3
    folds.check(cohort.of_study(study), study.endpoints, study.train)


def test_an_import_of_dicom_and_a_merge_write_it_too(tmp_path: Path):
    for number, words in enumerate(FOUR_NAMES.values()):
        study = {"StudyInstanceUID": "1.2.3", "SeriesDescription": words, "SeriesNumber": number + 1}
        dicom.write_series(tmp_path / "dicom" / words, dicom.head() + 1000 * number, **study)
    import_dicom(tmp_path / "dicom", tmp_path / "a", Console(quiet=True))
    assert settings_of(study_file.load(tmp_path / "a" / "study.toml")) == shipped("gbm.toml")
    brought_study(tmp_path)
    join([tmp_path / "a", tmp_path / "out"], tmp_path / "merged", (), Console(quiet=True))
    study = study_file.load(tmp_path / "merged" / "study.toml")
    assert settings_of(study) == shipped("gbm.toml")
    assert [endpoint.name for endpoint in study.endpoints] == ["mgmt", "os"]


def test_a_study_file_of_a_usual_cohort_has_four_paths_and_names_and_its_endpoints(tmp_path: Path):
    brought_study(tmp_path)
    text = (tmp_path / "out" / "study.toml").read_text()
    assert list(tomllib.loads(text)) == ["name", "cohort", "prepared", "output", "endpoints"]
