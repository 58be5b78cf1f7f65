"""`mri-vit tumour`: masks without a run. What is written where, and what is left alone."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from mri_vit.data import sheet
from mri_vit.data.cohort import read
from mri_vit.data.volume import read as read_scan
from mri_vit.errors import UsageError
from mri_vit.tumours import MASK, PICTURE, TABLE, find_tumours


def test_each_patient_gets_a_mask_in_the_reference_s_space_or_a_reason(scans: Path, tmp_path: Path):
    patient = read(scans, ())[0]
    spoiled = tmp_path / "spoiled.nii.gz"
    spoiled.write_bytes(b"no scan")
    rows = [["A", patient.scans["flair"], patient.scans["t1"]], ["B", spoiled, ""]]
    table = tmp_path / "cohort.csv"
    table.write_bytes(sheet.to_csv(["patient", "flair", "t1"], rows))
    out = tmp_path / "out"
    assert find_tumours(table, out, Console(quiet=True)) == 1
    found = pd.read_csv(out / TABLE, index_col="patient", dtype=str, keep_default_na=False)
    assert list(found.index) == ["A", "B"]
    assert found.space_of["A"] == "t1"
    assert "spoiled.nii.gz" in found.remark["B"]
    assert (out / f"A{PICTURE}").is_file()
    mask, scan = read_scan(out / f"A{MASK}"), read_scan(patient.scans["t1"] or tmp_path)
    assert mask.shape == scan.shape
    np.testing.assert_allclose(mask.affine, scan.affine, atol=1e-4)
    assert float(found.tumour_ml["A"]) == pytest.approx(mask.array.sum() * np.prod(mask.spacing_mm) / 1000, rel=0.01)
    before = (out / TABLE).read_bytes()
    assert find_tumours(table, out, Console(quiet=True)) == 1  # again, into the same folder
    assert (out / TABLE).read_bytes() == before
    table.write_bytes(sheet.to_csv(["patient", "flair"], [["C", spoiled]]))
    assert find_tumours(table, out, Console(quiet=True)) == 1
    assert (out / TABLE).read_bytes().startswith(before)  # who was looked at before stays
    table.write_bytes(sheet.to_csv(["patient", "flair"], [["A", spoiled]]))
    assert find_tumours(table, out, Console(quiet=True)) == 1
    assert not (out / f"A{MASK}").exists()  # it was another scan's


def test_a_folder_with_something_else_is_left_alone(scans: Path, tmp_path: Path):
    (tmp_path / "thesis.docx").touch()
    with pytest.raises(UsageError, match=r"holds thesis\.docx"):
        find_tumours(scans, tmp_path, Console(quiet=True))


def test_flair_is_needed(tmp_path: Path):
    table = tmp_path / "cohort.csv"
    table.write_text("patient,t1\nA,t1.nii.gz\n")
    with pytest.raises(UsageError, match="no column 'flair'"):
        find_tumours(table, tmp_path / "out", Console(quiet=True))
    assert not (tmp_path / "out").exists()
