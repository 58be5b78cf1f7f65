"""Layouts: the file names and tables of each publisher become the right patients, visits, sequences and labels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from made.layouts import folder, imported, scans_of

from mri_vit.errors import UsageError
from mri_vit.importers import cohort_table, layout_reader
from mri_vit.importers.collections import LAYOUTS
from mri_vit.importers.layout_reader import recognise_layout

FOUR = {"t1", "t1ce", "t2", "flair"}
ALL = {*FOUR, "tumour_mask"}


def test_brats_2021_is_a_patient_per_number_with_the_labels_beside(tmp_path: Path):
    names = [f"BraTS2021_00002/BraTS2021_00002_{s}.nii.gz" for s in ("t1", "t1ce", "t2", "flair", "seg")]
    found = imported("brats2021", folder(tmp_path, *names, tables={"train_labels.csv": "BraTS21ID,MGMT_value\n2,1\n"}))
    assert scans_of(found) == {("BraTS2021_00002", ""): ALL}
    assert found.cells["BraTS2021_00002", ""] == {"mgmt": "1"}  # a spreadsheet has cut the zeros of 00002


def test_the_last_number_of_brats_2023_is_the_time_point(tmp_path: Path):
    names = [
        f"BraTS-GLI-00000-{time}/BraTS-GLI-00000-{time}-{s}.nii.gz"
        for time in ("000", "001")
        for s in ("t1n", "t1c", "t2w", "t2f")
    ]
    found = imported("brats2023", folder(tmp_path, *names, "BraTS-MET-00003-000/BraTS-MET-00003-000-t1c.nii.gz"))
    assert scans_of(found) == {
        ("BraTS-GLI-00000", "000"): FOUR,
        ("BraTS-GLI-00000", "001"): FOUR,
        ("BraTS-MET-00003", "000"): {"t1ce"},
    }


def test_ids_of_rsna_miccai_are_text_of_five_digits_and_three_are_bad(tmp_path: Path):
    text = "BraTS21ID,MGMT_value\n00000,1\n00002,1\n00109,0\n00123,1\n00709,0\n3,0\n"
    found = imported("rsna_miccai", folder(tmp_path, tables={"train_labels.csv": text}))
    assert {patient: cells["mgmt"] for (patient, _), cells in found.cells.items()} == {"00000": "1", "00002": "1", "00003": "0"}
    assert {left.patient for left in found.left_out} == {"00109", "00123", "00709"}
    assert all("known bad" in left.reason for left in found.left_out)
    assert found.cells["00003", ""]["same_as"] == "brats2021:BraTS2021_00003 rsna_miccai:00003"


def test_images_of_ucsf_pdgm_have_four_digits_and_its_table_three(tmp_path: Path):
    names = [f"UCSF-PDGM-0004_nifti/UCSF-PDGM-0004_{s}.nii.gz" for s in ("T1", "T1c", "T2", "FLAIR", "T1_bias", "ADC", "DWI")]
    masks = [f"UCSF-PDGM-0004_nifti/UCSF-PDGM-0004_{s}_segmentation.nii.gz" for s in ("brain", "tumor")]
    again = "UCSF-PDGM-0429_FU003d_nifti/UCSF-PDGM-0429_FU003d_T1c.nii.gz"
    old = "UCSF-PDGM-0175_nifti/UCSF-PDGM-0175_T1c.nii.gz"
    head = "ID,MGMT status,1-dead 0-alive,OS\n"
    rows = "UCSF-PDGM-004,positive,1,100\nUCSF-PDGM-0429_FU003d,negative,0,50\nUCSF-PDGM-175,negative,1,200\n"
    found = imported("ucsf_pdgm", folder(tmp_path, *names, *masks, again, old, tables={"metadata.csv": head + rows}))
    assert scans_of(found) == {
        ("UCSF-PDGM-0004", "baseline"): {*ALL, "brain_mask"},
        ("UCSF-PDGM-0396", "FU175d"): {"t1ce"},  # as version 1 and 2 called it
        ("UCSF-PDGM-0429", "FU003d"): {"t1ce"},
    }
    times = {visit: cells["os_days"] for visit, cells in found.cells.items()}
    assert list(times.values()) == ["100", "25", "47"]
    assert found.notes[0].startswith("3 other NIfTI files were not read")


def test_upenn_gbm_has_a_visit_before_surgery_and_one_at_recurrence(tmp_path: Path):
    names = [
        f"images/UPENN-GBM-00036_{v}/UPENN-GBM-00036_{v}_{s}.nii.gz" for v in (11, 21) for s in ("T1", "T1GD", "T2", "FLAIR")
    ]
    mask = "images_segm/UPENN-GBM-00036_11_segm.nii.gz"
    found = imported("upenn_gbm", folder(tmp_path, *names, mask))
    assert scans_of(found) == {("UPENN-GBM-00036", "11"): ALL, ("UPENN-GBM-00036", "21"): FOUR}


def test_tcga_is_read_from_names_folders_and_three_tables(tmp_path: Path):
    names = [f"TCGA-02-0006_1996.08.23_{s}.nii.gz" for s in ("t1", "t1Gd", "t2", "flair")]
    folders = [f"TCGA-FG-6692/{s}.nii.gz" for s in ("t1", "t1ce", "t2", "flair")]
    tables = {
        "s1.csv": "Case,MGMT promoter status,TERT promoter status,IDH status,Survival (months),Vital status (1=dead)\n"
        "TCGA-FG-6692,Methylated,Mutant,WT,18.43,1\nTCGA-02-0006,Unmethylated,NA,NA,NA,NA\n",
        "clinical.tsv": "case_submitter_id\tvital_status\tdays_to_death\tdays_to_last_follow_up\n"
        "TCGA-FG-6692\tDead\t561\t'--\nTCGA-02-0006\tAlive\t'--\t300\n",
        "mutations.csv": "Project,Case_ID,PTEN\nTCGA-LGG,TCGA-FG-6692,1\nTCGA-GBM,TCGA-02-0006-01,0\n",
    }
    found = imported("tcga", folder(tmp_path, *names, *folders, tables=tables))
    assert scans_of(found) == {("TCGA-02-0006", ""): FOUR, ("TCGA-FG-6692", ""): FOUR}
    first, second = found.cells["TCGA-FG-6692", ""], found.cells["TCGA-02-0006", ""]
    wanted = {"mgmt": "1", "tertp": "1", "idh": "0", "os_days": "561", "os_event": "1", "pten": "1"}
    assert {name: first[name] for name in wanted} == wanted
    wanted = {"mgmt": "0", "tertp": "", "os_days": "300", "os_event": "0", "pten": "0"}
    assert {name: second[name] for name in wanted} == wanted
    assert not found.conflicts  # 18.43 months and 561 days are one


def test_the_names_of_the_gdc_s_columns_before_2024_and_since_are_both_read(tmp_path: Path):
    text = (
        "cases.submitter_id\tdemographic.vital_status\tdemographic.days_to_death\tdiagnoses.days_to_last_follow_up\n"
        "TCGA-FG-6692\tDead\t561\t'--\nTCGA-FG-6692\tDead\t561\t'--\nTCGA-02-0006\tAlive\t'--\t300\n"
    )
    found = imported("tcga", folder(tmp_path, tables={"clinical.tsv": text}))
    assert found.cells["TCGA-FG-6692", ""] == {"os_days": "561", "os_event": "1"}  # a row for each treatment
    assert found.cells["TCGA-02-0006", ""] == {"os_days": "300", "os_event": "0"}


def test_survival_of_mu_glioma_post_counts_from_each_visit(tmp_path: Path):
    stem = "PatientID_0003/Timepoint_{0}/PatientID_0003_Timepoint_{0}_{1}.nii.gz"
    names = [stem.format(t, s) for t in (1, 2) for s in ("brain_t1n", "brain_t1c", "brain_t2w", "brain_t2f", "tumorMask")]
    alive = "PatientID_0004/Timepoint_1/PatientID_0004_Timepoint_1_brain_t1c.nii.gz"
    days = ",".join(f"Number of Days from Diagnosis to {nth} MRI (Timepoint_{n}) " for n, nth in ((1, "1st"), (2, "2nd")))
    text = (
        f"Patient_ID,MGMT methylation,Overall Survival (Death),Number of days from Diagnosis to death (Days),{days}\n"
        "PatientID_0003,1,1,500,40,\nPatientID_0004,2,0,,10,\n"
    )
    found = imported("mu_glioma_post", folder(tmp_path, *names, alive, tables={"clinical.csv": text}))
    assert scans_of(found) == {
        ("PatientID_0003", "Timepoint_1"): ALL,
        ("PatientID_0003", "Timepoint_2"): ALL,
        ("PatientID_0004", "Timepoint_1"): {"t1ce"},
    }
    survival = {visit: (cells["os_days"], cells["os_event"], cells["mgmt"]) for visit, cells in found.cells.items()}
    assert survival == {
        ("PatientID_0003", "Timepoint_1"): ("460", "1", "1"),
        ("PatientID_0003", "Timepoint_2"): ("", "", "1"),  # the day of the visit is not known
        ("PatientID_0004", "Timepoint_1"): ("", "", ""),  # alive, last seen nobody says when; a 2 has no rule
    }


def test_a_visit_after_the_death_has_no_survival_and_is_listed(tmp_path: Path):
    head = "Patient_ID,MGMT methylation,Overall Survival (Death),Number of days from Diagnosis to death (Days)"
    text = f"{head},Number of Days from Diagnosis to 1st MRI (Timepoint_1)\nPatientID_0003,1,1,500,501\n"
    scan = "PatientID_0003_Timepoint_1_brain_t1c.nii.gz"
    found = imported("mu_glioma_post", folder(tmp_path, scan, tables={"c.csv": text}))
    assert found.cells["PatientID_0003", "Timepoint_1"] == {"mgmt": "1", "os_days": "", "os_event": ""}
    assert [r.column for r in cohort_table.no_rule(found)] == ["os_days"]


def test_survival_of_rhuh_gbm_is_of_the_visit_before_surgery_and_yes_is_censored(tmp_path: Path):
    names = [f"RHUH-000{n}/{v}/RHUH-000{n}_{v}_t1ce.nii.gz" for n in (1, 2) for v in (0, 1, 2)]
    mask = "RHUH-0001/0/RHUH-0001_0_segmentations.nii.gz"
    idh = "IDH status = (mutant [mut], wild type [wt], NOS)"
    head = f'Patient ID,Age,Sex,"{idh}",Overall survival [OS] (days),Right Censored\n'
    rows = "RHUH-0001,60,male,wt,400,yes\nRHUH-0002,50,female,mut,300,no\n"
    found = imported(
        "rhuh_gbm",
        folder(tmp_path, *names, mask, tables={"c.csv": head + rows}),
    )
    assert len(found.visits) == 6
    assert scans_of(found)["RHUH-0001", "0"] == {"t1ce", "tumour_mask"}
    survival = {visit: (cells.get("os_days", ""), cells.get("os_event", "")) for visit, cells in found.cells.items()}
    assert survival["RHUH-0001", "0"] == ("400", "0")
    assert survival["RHUH-0002", "0"] == ("300", "1")
    assert {survival[f"RHUH-000{n}", v] for n in (1, 2) for v in "12"} == {("", "")}
    assert found.cells["RHUH-0002", "2"]["idh"] == "1"


def test_alive_in_brats_2020_is_a_censoring_on_that_day(tmp_path: Path):
    names = [f"BraTS20_Training_084/BraTS20_Training_084_{s}.nii" for s in ("t1", "t1ce", "t2", "flair", "seg")]
    text = "Brats20ID,Age,Survival_days,Extent_of_Resection\nBraTS20_Training_084,61.6,ALIVE (361 days later),GTR\n"
    found = imported("brats2020_survival", folder(tmp_path, *names, tables={"survival_info.csv": text}))
    assert scans_of(found) == {("BraTS20_Training_084", ""): ALL}
    cells = found.cells["BraTS20_Training_084", ""]
    assert (cells["os_days"], cells["os_event"], cells["age"], cells["resection"]) == ("361", "0", "61.6", "GTR")


@pytest.mark.parametrize(
    "told",
    [
        {"channel_names": {"0": "T1", "1": "T1ce", "2": "T2", "3": "FLAIR"}},
        {"modality": {"0": "T1", "1": "T1gd", "2": "T2w", "3": "T2-FLAIR"}},
    ],
)
def test_numbers_of_nnunet_are_what_its_dataset_file_says(tmp_path: Path, told: dict):
    names = [f"imagesTr/case_7_{n:04d}.nii.gz" for n in range(4)]
    source = folder(tmp_path, *names, "labelsTr/case_7.nii.gz", tables={"dataset.json": json.dumps(told)})
    found = imported("nnunet", source)
    assert scans_of(found) == {("case_7", ""): ALL}
    assert found.visits[0].scans["t1ce"].name == "case_7_0001.nii.gz"


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "dataset.json: no such file; it names the sequences 0000 to 0003"),
        ({"dataset.json": '{"channel_names": {"0": "CT"}}'}, "channel 'CT'; expected names of t1, t1ce, t2, flair"),
        ({"dataset.json": '{"labels": {}}'}, 'no "channel_names"'),
    ],
)
def test_numbers_of_nnunet_are_not_guessed(tmp_path: Path, tables: dict[str, str], message: str):
    with pytest.raises(UsageError, match=message):
        imported("nnunet", folder(tmp_path, "imagesTr/case_0000.nii.gz", tables=tables))


def test_an_agent_makes_a_t1w_of_bids_the_t1ce_and_derivatives_are_not_read(tmp_path: Path):
    names = ["T1w", "acq-mprage_ce-GADOLINIUM_T1w", "T2w", "FLAIR"]
    first = [f"sub-01/ses-pre/anat/sub-01_ses-pre_{name}.nii.gz" for name in names]
    second = ["sub-02/anat/sub-02_ce-gd_run-1_T1w.nii.gz", "sub-02/anat/sub-02_acq-ax_T2w.nii.gz"]
    other = ["derivatives/x/sub-01/ses-pre/anat/sub-01_ses-pre_T1w.nii.gz", "sub-02/dwi/sub-02_dwi.nii.gz"]
    text = "participant_id\tage\tsex\tmgmt\nsub-01\t60\tF\tpositive\nsub-02\tn/a\tM\tn/a\n"
    found = imported("bids", folder(tmp_path, *first, *second, *other, tables={"participants.tsv": text}))
    assert scans_of(found) == {("01", "pre"): FOUR, ("02", ""): {"t1ce", "t2"}}
    assert found.visits[0].scans["t1ce"].name == "sub-01_ses-pre_acq-mprage_ce-GADOLINIUM_T1w.nii.gz"
    assert found.cells["01", "pre"] == {"sex": "F", "age": "60", "mgmt": "1"}


@pytest.mark.parametrize(
    ("labels", "channel"),
    [
        *(
            (labels, "t1")
            for labels in ("", "_acq-mprage", "_ce-none", "_ce-NONE", "_ce-nogad", "_acq-precontrast", "_acq-nogad")
        ),
        *(
            (labels, "t1")
            for labels in ("_acq-pre", "_acq-pregd", "_acq-ohneKM", "_acq-postop", "_acq-preop", "_acq-mprageWithoutGd")
        ),
        *(
            (labels, "t1")
            for labels in (
                "_acq-space",
                "_acq-surface",
                "_acq-post6mo",
                "_acq-pre_ce-none",
                "_desc-preproc",
                "_rec-norm",
                "_acq-nativ",
                "_acq-postRT",
                "_acq-postfossa",
            )
        ),
        *(
            (labels, "t1ce")
            for labels in ("_acq-postgd", "_acq-post", "_acq-gd", "_acq-ce", "_acq-gad", "_acq-mprageGd", "_acq-KM")
        ),
        *(
            (labels, "t1ce")
            for labels in ("_ce-gadolinium", "_ce-gd", "_ce-dotarem", "_desc-postgad", "_rec-postcontrast", "_acq-t1c")
        ),
        *((labels, "t1ce") for labels in ("_acq-contrast", "_acq-axPostGad", "_acq-postopGd", "_acq-post_ce-gd", "_ce-gd_run-1")),
        *(
            (labels, None)
            for labels in ("_acq-postgd_ce-none", "_acq-pregd_ce-gadolinium", "_acq-prepost", "_ce-unknown", "_acq-nc")
        ),
        *((labels, None) for labels in ("_acq-post3d", "_acq-1mmpost", "_acq-fsgd", "_acq-flash3dgd", "_acq-3dt1c", "_acq-c")),
    ],
)
def test_labels_of_bids_say_whether_a_t1w_is_the_t1ce_and_those_that_do_not_leave_it_out(
    tmp_path: Path, labels: str, channel: str | None
):
    names = [f"sub-01/ses-post/anat/sub-01_ses-post{name}.nii.gz" for name in (f"{labels}_T1w", "_T2w", "_FLAIR")]
    found = imported("bids", folder(tmp_path, *names))
    assert scans_of(found)["01", "post"] == {"t2", "flair", *([channel] if channel else [])}
    assert [left.reason for left in found.left_out if "T1 or T1ce" not in left.reason or labels not in left.reason] == []
    assert len(found.left_out) == (channel is None)


def test_the_t1w_of_bids_is_never_the_first_of_several(tmp_path: Path):
    names = [f"sub-01/anat/sub-01_{name}.nii.gz" for name in ("acq-ax_T1w", "acq-sag_T1w", "T2w")]
    found = imported(
        "bids", folder(tmp_path, *names, "sub-02/anat/sub-02_acq-pre_T1w.nii.gz", "sub-02/anat/sub-02_acq-post_T1w.nii.gz")
    )
    assert scans_of(found) == {("02", ""): {"t1", "t1ce"}}
    assert found.left_out[0].reason.startswith("several files for t1 ")


def test_of_t2w_and_flair_those_with_an_agent_are_not_read(tmp_path: Path):
    names = [f"sub-01/anat/sub-01_{name}.nii.gz" for name in ("ce-none_T2w", "ce-gd_FLAIR", "acq-post_FLAIR", "T1w")]
    found = imported("bids", folder(tmp_path, *names))
    assert scans_of(found) == {("01", ""): {"t1", "t2", "flair"}}
    assert found.visits[0].scans["flair"].name == "sub-01_acq-post_FLAIR.nii.gz"


def test_several_runs_of_a_sequence_leave_the_visit_out(tmp_path: Path):
    names = ["sub-01/anat/sub-01_run-1_T2w.nii.gz", "sub-01/anat/sub-01_run-2_T2w.nii.gz", "sub-02/anat/sub-02_T2w.nii.gz"]
    found = imported("bids", folder(tmp_path, *names))
    assert list(scans_of(found)) == [("02", "")]
    (left,) = found.left_out
    assert left.patient == "01"
    assert left.reason == "several files for t2 (sub-01_run-1_T2w.nii.gz, sub-01_run-2_T2w.nii.gz); expected one"


def test_a_mask_without_a_scan_is_left_out(tmp_path: Path):
    found = imported("upenn_gbm", folder(tmp_path, "UPENN-GBM-00001_11_T1.nii.gz", "UPENN-GBM-00002_11_segm.nii.gz"))
    assert list(scans_of(found)) == [("UPENN-GBM-00001", "11")]
    assert [(left.patient, left.reason) for left in found.left_out] == [("UPENN-GBM-00002", "a mask, but no scan")]


def test_the_layout_that_the_documentation_adds_is_30_lines_and_works(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs" / "extending" / "layout.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(code.splitlines()) <= 30
    module: dict[str, Any] = {"__name__": "example"}
    exec(code, module)
    names = [f"scans/H000{n}_{v}_{s}.nii.gz" for n, v in ((1, "v1"), (1, "v2"), (2, "v1")) for s in ("T1", "T1KM", "T2", "dark")]
    text = (
        "Pseudonym;Geschlecht;Alter;MGMT;Follow-up (weeks);tot\n"
        "H0001;F;61;methyliert;52;nein\nH0002;M;;grenzwertig;10;ja\nH0003;d;44;fraglich;1;ja\n"
    )
    found = cohort_table.merge(
        layout_reader.read_source(module["LAYOUT"], folder(tmp_path, *names, tables={"register.csv": text}))
    )
    assert scans_of(found) == {("H0001", "v1"): FOUR, ("H0001", "v2"): FOUR, ("H0002", "v1"): FOUR}
    assert found.cells["H0001", "v1"] == {"sex": "F", "age": "61", "mgmt": "1", "os_days": "364", "os_event": "0"}
    assert found.cells["H0001", "v2"] == {"sex": "F", "age": "61", "mgmt": "1"}
    assert found.cells["H0002", "v1"] == {"sex": "M", "age": "", "mgmt": "", "os_days": "70", "os_event": "1"}
    assert [left.patient for left in found.left_out] == ["H0003"]


def test_scans_of_the_two_visits_of_a_patient_keep_their_own_labels(tmp_path: Path):
    """As of UPENN-GBM's patient 00352, whose MGMT is unmethylated at first and methylated at recurrence."""
    text = (
        "ID,MGMT,Survival_from_surgery_days_UPDATED,Survival_Status,Survival_Censor\n"
        "UPENN-GBM-00352_11,Unmethylated,617,Deceased,Not Available\n"
        "UPENN-GBM-00352_21,Methylated,519,Deceased,Not Available\n"
        "UPENN-GBM-00353_21,Methylated,10,Deceased,Not Available\n"
    )
    names = [f"UPENN-GBM-00352_{v}_T1.nii.gz" for v in (11, 21)] + ["UPENN-GBM-00353_11_T1.nii.gz"]
    found = imported("upenn_gbm", folder(tmp_path, *names, tables={"c.csv": text}))
    assert [(c.get("mgmt"), c.get("os_days")) for c in found.cells.values()] == [("0", "617"), ("1", "519"), (None, None)]
    (left,) = found.left_out
    assert (left.patient, left.reason) == ("UPENN-GBM-00353", "visit 21 is in the table, but without scans")


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_empty_folder_is_refused_with_what_is_expected(tmp_path: Path, name: str):
    with pytest.raises(UsageError, match=f"nothing in the layout {name}, such as .*; found no NIfTI file and no table"):
        imported(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("upenn_gbm", "ID,MGMT\nUPENN-GBM-00001_11,Methylated\n", "no column 'Survival_from_surgery_days_UPDATED'; the nearest"),
        ("rsna_miccai", "BraTS21ID,MGMT_value\n../../x,1\n", "row 2, column BraTS21ID: patient id '../../x'; expected one as in"),
        ("plain", "patient_id,mgmt\na,1\n<script>,1\n", "row 3, column patient_id: patient id '<script>'; expected letters"),
        ("plain", "id,visit,mgmt\na,../x,1\n", "row 2, column visit: visit '../x'"),
        ("plain", "id,mgmt\nCON,1\n", "row 2, column id: patient id 'CON'"),
        ("plain", "id,mgmt\na,1\nA,0\n", "patient 'A' is 'a' in another spelling"),
        ("plain", "id,t1\na,x.nii\na,y.nii\n", "patient a: two sets of scans"),
        ("plain", "id,mgmt\na,1,2\n", "row 2: 3 cells; expected 2"),
        ("brats2023", "id,mgmt\na,1\n", "the layout brats2023 has no table"),
    ],
)
def test_an_unusable_table_is_refused_with_file_row_and_column(tmp_path: Path, name: str, text: str, message: str):
    with pytest.raises(UsageError) as error:
        imported(name, folder(tmp_path, tables={"t.csv": text}) / "t.csv")
    assert message in str(error.value)
    if "spelling" not in message and "two sets" not in message:
        assert "t.csv" in str(error.value)


def test_a_hospital_s_folders_of_five_digits_are_not_those_of_rsna_miccai(tmp_path: Path):
    home = folder(tmp_path, "00097/t1.nii.gz", "00109/t1.nii.gz", tables={"reg.csv": "patient,mgmt\n00097,1\n00109,0\n"})
    chosen, _ = recognise_layout(home, LAYOUTS)
    assert chosen.name == "plain"
    assert imported("plain", home).cells["00109", ""] == {"mgmt": "0"}
    assert "reg.csv was not read: no table of the layout rsna_miccai" in imported("rsna_miccai", home).notes


def test_a_time_of_a_patient_is_none_of_several_visits(tmp_path: Path):
    names = [f"sub-1/ses-{visit}/anat/sub-1_ses-{visit}_T1w.nii.gz" for visit in ("a", "b")] + ["sub-2/anat/sub-2_T1w.nii.gz"]
    table = "participant_id\tmgmt\tos_days\tos_event\nsub-1\t1\t400\t1\nsub-2\t0\t300\t1\n"
    found = imported("bids", folder(tmp_path, *names, tables={"participants.tsv": table}))
    assert {row["os_days"] for (patient, _), row in found.cells.items() if patient.endswith("1")} == {""}
    assert {row["mgmt"] for (patient, _), row in found.cells.items() if patient.endswith("1")} == {"1"}
    assert {row["os_days"] for (patient, _), row in found.cells.items() if patient.endswith("2")} == {"300"}


def test_a_death_without_its_day_is_not_on_the_day_of_the_last_visit(tmp_path: Path):
    for prefix, patient in (("", "case_submitter_id"), ("demographic.", "cases.submitter_id")):
        last = "diagnoses.days_to_last_follow_up" if prefix else "days_to_last_follow_up"
        text = f"{patient}\t{prefix}vital_status\t{prefix}days_to_death\t{last}\nTCGA-02-0006\tDead\t'--\t300\n"
        found = imported("tcga", folder(tmp_path / f"in{prefix}", tables={"clinical.tsv": text}))
        assert found.cells["TCGA-02-0006", ""] == {"os_days": "", "os_event": ""}


def test_a_coarser_reading_agrees_with_a_finer_one(tmp_path: Path):
    tables = {
        "mutations.csv": "Project,Case_ID,PTEN,Age_at_diagnosis\nTCGA-LGG,TCGA-FG-6692,1,61.3\nTCGA-LGG,TCGA-FG-6693,1,63.1\n",
        "s1.csv": "Case,MGMT promoter status,TERT promoter status,Age (years at diagnosis),Survival (months),"
        "Vital status (1=dead)\nTCGA-FG-6692,NA,NA,61,18.4,1\nTCGA-FG-6693,NA,NA,61,10,1\n",
        "clinical.tsv": "case_submitter_id\tvital_status\tdays_to_death\tdays_to_last_follow_up\nTCGA-FG-6692\tDead\t561\t'--\n",
    }
    found = imported("tcga", folder(tmp_path, tables=tables))
    assert {name: found.cells["TCGA-FG-6692", ""][name] for name in ("age", "os_days")} == {"age": "61.3", "os_days": "561"}
    assert {(r.patient, r.raw) for r in found.conflicts} == {("TCGA-FG-6693", "63.1"), ("TCGA-FG-6693", "61")}


def test_numbers_count_only_where_they_can_mean_one_thing(tmp_path: Path):
    head = "patient,vital_status,mgmt,pten,os_days"
    text = f"{head}\nA,1,1,0,100\nB,2,2,1,200\nC,dead,methylated,1,300\n"
    found = imported("plain", folder(tmp_path, tables={"t.csv": text}))
    assert [[row[name] for name in ("os_event", "mgmt", "pten")] for row in found.cells.values()] == [
        ["", "", "0"],
        ["", "", "1"],
        ["1", "1", "1"],
    ]
    assert len(cohort_table.no_rule(found)) == 4


def test_columns_that_mean_one_thing_may_disagree_and_two_files_may_not(tmp_path: Path):
    text = "patient,mgmt,mgmt_status,os_days,os_months,dead\nA,1,unmethylated,300,5,1\nB,1,methylated,300,10,1\n"
    found = imported("plain", folder(tmp_path / "a", tables={"t.csv": text}))
    assert [[row[name] for name in ("mgmt", "os_days")] for row in found.cells.values()] == [["", ""], ["1", "300"]]
    assert {r.column for r in found.conflicts} == {"mgmt", "os_days"}
    two = folder(tmp_path / "b", tables={"t.csv": "patient,t1ce,t1c\nA,a.nii.gz,NA\nB,a.nii.gz,b.nii.gz\n"})
    with pytest.raises(UsageError, match="row 3, column t1c: a second file for t1ce"):
        imported("plain", two)


def test_patients_who_look_like_visits_are_told(tmp_path: Path):
    found = imported("plain", folder(tmp_path, "P1_v1_t1.nii.gz", "P1_v2_t1.nii.gz", "P2_t1.nii.gz"))
    assert "P1_v1 and P1_v2 look like visits of one patient: give them a `session`" in found.notes
