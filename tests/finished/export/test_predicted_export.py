"""From DICOM series to a prediction and back to DICOM: the folder that `mri-vit predict` writes is what the export reads."""

from __future__ import annotations

import shutil

import nibabel as nib
import numpy as np
import pytest
from made import dicom
from pydicom import dcmread
from scipy.spatial.transform import Rotation
from whole_road import mri_vit

from mri_vit import read_cohort
from mri_vit.data.volume import Volume, read

pytestmark = [
    pytest.mark.long(20),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]

STUDY = {"StudyInstanceUID": "1.2.77", "FrameOfReferenceUID": "1.2.78"}


def test_a_predicted_patient_goes_back_to_the_series_that_were_predicted(finished, in_this_process, tmp_path, capsys):
    patient, other = read_cohort(finished / "others.csv")[:2]
    tilted = np.eye(4)
    tilted[:3, :3] = Rotation.from_euler("xyz", [12, -7, 5], degrees=True).as_matrix()
    series = {}
    for number, (name, words) in enumerate(dicom.FOUR.items(), start=1):
        for whose, home in ((patient, tmp_path / "study"), (other, tmp_path / "other")):
            file = whose.scans[name]
            assert file
            scan = read(file)
            large = Volume(scan.array - scan.array.min(), tilted @ scan.affine)
            dicom.write_volume(home / name, large, SeriesDescription=words, SeriesNumber=number, **STUDY)
        series[name] = tmp_path / "study" / name
    run = shutil.copytree(finished / "run", tmp_path / "run")
    out = tmp_path / "predicted"
    assert mri_vit("predict", run, tmp_path / "study", "-o", out, "--show-untrusted", "--allow-synthetic") == 0
    home = out / "study"
    assert mri_vit("export", "dicom", home, "--source", series["t1ce"], "-o", tmp_path / "objects") == 0
    names = sorted(file.name for file in (tmp_path / "objects").iterdir())
    assert {"summary.dcm", "report.dcm", "tumour.dcm"} <= set(names)
    assert sum(name.startswith("map-") for name in names) == sum(name.startswith("overlay-") for name in names) == 3
    found = dcmread(tmp_path / "objects" / next(name for name in names if name.startswith("map-1")))
    pixels = np.frombuffer(found.FloatPixelData, np.float32)
    (stored,) = (home / "maps").glob("*space-T1ce_desc-rollout_map.nii.gz")
    wanted = nib.Nifti1Image.load(stored).get_fdata().astype(np.float32)
    assert np.array_equal(np.sort(pixels), np.sort(wanted.ravel()))
    # no map is ever laid on another person's head, were the archive to give it the same study and place
    for name in ("t1ce", "flair"):
        target = tmp_path / f"wrong-{name}"
        assert mri_vit("export", "dicom", home, "--source", tmp_path / "other" / name, "-o", target) == 2
        assert "ANOTHER PATIENT" in capsys.readouterr().err
        assert not target.exists()


def test_what_was_withheld_is_exported_as_a_reason(finished, in_this_process, tmp_path):
    patient = read_cohort(finished / "others.csv")[0]
    home = tmp_path / "P7"
    home.mkdir()
    for channel, file in patient.scans.items():
        assert file
        shutil.copy(file, home / f"{channel}.nii.gz")
    run = shutil.copytree(finished / "run", tmp_path / "run")
    assert mri_vit("predict", run, home, "-o", tmp_path / "predicted") == 0
    assert mri_vit("export", "dicom", tmp_path / "predicted" / "P7", "-o", tmp_path / "objects") == 0
    files = {file.name for file in (tmp_path / "objects").iterdir()}
    assert files == {"summary.dcm", "report.dcm", "tumour.dcm"}
    report = dcmread(tmp_path / "objects" / "report.dcm")
    numbers = [element for element in report.iterall() if element.keyword == "NumericValue"]
    assert len(numbers) == 1  # the tumour's volume alone
    said = [str(element.value) for element in report.iterall() if element.keyword == "TextValue"]
    assert sum("verdict is" in text for text in said) == 2
    assert not any("P7" in text for text in said)
