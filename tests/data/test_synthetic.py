"""Synthetic: made-up scans are known by a mark in their headers, whatever patients, tables, folders and studies are called."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from mri_vit.data import nifti, run_cohort
from mri_vit.data.cohort import Patient, read
from mri_vit.data.volume import read as read_volume
from mri_vit.data.volume import write
from mri_vit.errors import UsageError
from mri_vit.settings.schema import Study


def moved(scans: Path, folder: Path) -> Patient:
    """A patient of the built-in cohort under another id, in files of other names."""
    patient = read(scans, ())[0]
    folder.mkdir()
    files: dict[str, Path | None] = {
        channel: Path(shutil.copy(file, folder / f"{channel}_x.nii.gz")) for channel, file in patient.scans.items() if file
    }
    return Patient("P77", files, {}, {})


def file_of(patient: Patient, channel: str) -> Path:
    file = patient.scans[channel]
    assert file
    return file


def saved_elsewhere(patient: Patient, folder: Path) -> Patient:
    """The same voxels as another program writes them, as a real patient's scans come."""
    folder.mkdir()
    scans: dict[str, Path | None] = {}
    for channel in patient.scans:
        image = nib.Nifti1Image.from_filename(file_of(patient, channel))
        target = scans[channel] = folder / f"{channel}.nii.gz"
        nib.save(nib.Nifti1Image(np.asarray(image.dataobj), image.affine), target)
    return Patient("real", scans, {}, {})


def run_of(folder: Path, notes: dict[str, str] | None, ids: list[str], hashed: bool = True) -> Path:
    folder.mkdir(exist_ok=True)
    if notes is not None:
        (folder / "notes.json").write_text(json.dumps(notes))
    if hashed:
        (folder / "hashes.json").write_text(json.dumps({"files": {"notes.json": "…"}}))
    with (folder / "cohort.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["patient"], *([name] for name in ids)])
    return folder


def test_a_made_up_scan_is_known_whatever_it_is_called_and_one_saved_by_another_program_is_real(scans, tmp_path):
    made_up = moved(scans, tmp_path / "a")
    assert run_cohort.real_patients([made_up]) == []
    assert nifti.SYNTHETIC in read_volume(file_of(made_up, "t1")).notes
    real = saved_elsewhere(made_up, tmp_path / "b")
    assert run_cohort.real_patients([made_up, real]) == [real]
    mixed = Patient("mixed", made_up.scans | {"t2": real.scans["t2"]}, {}, {})
    assert run_cohort.real_patients([mixed]) == [mixed]


def test_who_has_no_readable_scan_is_left_to_whoever_prepares_them(tmp_path):
    (tmp_path / "bad.nii.gz").write_bytes(b"nothing")
    assert (
        run_cohort.real_patients(
            [Patient("a", {"t1": tmp_path / "bad.nii.gz", "t2": tmp_path / "gone.nii", "flair": None}, {}, {})]
        )
        == []
    )


def test_a_scan_that_is_written_without_a_mark_has_no_text_in_its_header(scans, tmp_path):
    write(read_volume(file_of(moved(scans, tmp_path / "a"), "t1")), tmp_path / "again.nii.gz")
    assert nib.Nifti1Image.from_filename(tmp_path / "again.nii.gz").header["descrip"].item() == b""


def test_a_run_says_of_itself_that_it_is_synthetic_and_an_older_one_by_its_ids(tmp_path):
    assert run_cohort.synthetic_clause(run_of(tmp_path / "a", {"synthetic": "5 of 5 patients are synthetic"}, ["x"])).startswith(
        "5 of 5"
    )
    assert run_cohort.synthetic_clause(run_of(tmp_path / "b", {}, ["demo-001", "demo-002"])) == ""  # a hospital may call them so
    assert run_cohort.synthetic_clause(run_of(tmp_path / "c", {}, ["demo-001", "demo-002"], hashed=False)).startswith("2 of 2")
    assert run_cohort.synthetic_clause(run_of(tmp_path / "d", None, ["demo-001", "P2"], hashed=False)) == ""


def test_real_patients_are_refused_to_a_synthetic_run_unless_that_is_asked_for(scans, tmp_path):
    made_up = moved(scans, tmp_path / "a")
    real = saved_elsewhere(made_up, tmp_path / "b")
    learned = run_cohort.synthetic_clause(run_of(tmp_path / "m", {"synthetic": "1 of 1 patients are synthetic"}, ["P1"]))
    from_real = run_cohort.synthetic_clause(run_of(tmp_path / "r", {}, ["P1"]))
    with pytest.raises(UsageError, match=r"1 of 1 patients are synthetic.*1 of the 2 patients here are real \(real\).*--allow"):
        run_cohort.refuse_real(tmp_path, learned, [made_up, real], False, "--allow-synthetic")
    assert run_cohort.refuse_real(tmp_path, learned, [made_up, real], True, "--allow-synthetic") == [real]
    assert run_cohort.refuse_real(tmp_path, learned, [made_up], False, "--allow-synthetic") == []
    assert run_cohort.refuse_real(tmp_path, from_real, [made_up, real], False, "--allow-synthetic") == []


def test_a_study_notes_its_marked_patients_and_all_where_its_words_or_ids_say_so(tiny: Study):
    patients = read(tiny.cohort, tiny.endpoints)
    assert run_cohort.synthetic_note(patients, tiny) == {}
    step = {"step": "read", "scans": {"t1": {"notes": [nifti.SYNTHETIC]}}}
    (tiny.prepared / "p03" / "patient.json").write_text(json.dumps({"steps": [step]}))
    assert run_cohort.synthetic_note(patients, tiny) == {"synthetic": "1 of 24 patients are synthetic"}
    renamed = [replace(patient, id=f"demo-{patient.id}") for patient in patients]  # saved again, without a mark
    assert run_cohort.synthetic_note(renamed, tiny) == {"synthetic": "24 of 24 patients are synthetic"}
    assert run_cohort.synthetic_note([*renamed[1:], patients[0]], tiny) == {}
    planted = tiny.model_copy(update={"report": tiny.report.model_copy(update={"expected_verdicts": {"mgmt": "better"}})})
    assert run_cohort.synthetic_note(patients, planted) == {"synthetic": "24 of 24 patients are synthetic"}
