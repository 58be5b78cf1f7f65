"""A real archive: the series in, the prediction's objects in by both ways, and all of it out again as it was."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import highdicom as hd
import numpy as np
import pytest
from made.exported import PERSON, make_predicted
from orthanc import AET, PLUGIN, Archive, orthanc
from PIL import Image
from pydicom import Dataset, dcmread
from pydicom.uid import SecondaryCaptureImageStorage
from rich.console import Console

from mri_vit.finished.export.dicom.dicom_objects import export_dicom

pytestmark = [
    pytest.mark.long(12),
    pytest.mark.skipif(not PLUGIN.exists(), reason="Orthanc and its DICOMweb are not installed; `make pacs` installs them"),
]

STUDY = PERSON["StudyInstanceUID"]
SERIES_UID, SOP_UID = "0020000E", "00080018"  # tags in DICOM's JSON


def c_store(archive: Archive, files: list[Path]) -> None:
    program = shutil.which("storescu")
    if not program:
        pytest.skip("storescu is not installed (Debian: apt-get install dcmtk)")
    command = [program, "-aec", AET, "--required", "127.0.0.1", str(archive.dicom), *map(str, files)]
    subprocess.run(command, check=True, capture_output=True)


def stow(archive: Archive, files: list[Path]) -> None:
    assert archive.store(files) == 200


def instances(archive: Archive) -> dict[str, str]:
    """The series of each instance that the archive knows of the study."""
    found = archive.found(f"studies/{STUDY}/instances")
    return {one[SOP_UID]["Value"][0]: one[SERIES_UID]["Value"][0] for one in found}


@pytest.mark.parametrize("send", [stow, c_store])
def test_objects_come_back_from_an_archive_as_they_went_in(tmp_path, send):
    made = make_predicted(tmp_path / "made")
    with orthanc(tmp_path) as archive:
        c_store(archive, sorted(made.series["t1ce"].iterdir()))
        scans = instances(archive)
        fetched = tmp_path / "fetched"
        fetched.mkdir()
        for uid, series in scans.items():  # the archive's own copies are the source
            (fetched / f"{uid}.dcm").write_bytes(archive.instance(STUDY, series, uid))
        files = export_dicom(made.folder, fetched, tmp_path / "out", Console(quiet=True))
        send(archive, files)
        assert len(archive.found("studies")) == 1
        known = instances(archive)
        assert set(known) == {*scans, *(str(dcmread(file).SOPInstanceUID) for file in files)}
        for file in files:
            sent = dcmread(file)
            back = dcmread(io.BytesIO(archive.instance(STUDY, sent.SeriesInstanceUID, sent.SOPInstanceUID)))
            assert without_meta(back) == without_meta(sent), file.name
            if sent.Modality == "SEG":
                assert hd.seg.Segmentation.from_dataset(back).get_volume().array.sum() == made.tumour.sum()
            if sent.Modality == "SR":
                assert hd.sr.EnhancedSR.from_dataset(back).CompletionFlag == "COMPLETE"
            if "FloatPixelData" in sent:
                pixels = hd.pm.ParametricMap.from_dataset(back).get_frames()
                assert np.array_equal(np.sort(pixels.ravel()), np.sort(made.map.ravel()))


def test_every_capture_is_rendered(tmp_path):
    made = make_predicted(tmp_path / "made")
    files = export_dicom(made.folder, made.series["t1ce"], tmp_path / "out", Console(quiet=True))
    with orthanc(tmp_path) as archive:
        stow(archive, files)
        for file in files:
            sent = dcmread(file)
            if sent.SOPClassUID == SecondaryCaptureImageStorage:
                path = f"studies/{STUDY}/series/{sent.SeriesInstanceUID}/instances/{sent.SOPInstanceUID}/rendered"
                status, content = archive.get(path, "image/png")
                assert status == 200
                with Image.open(io.BytesIO(content)) as picture:
                    assert np.array_equal(np.asarray(picture.convert("RGB")), sent.pixel_array)


def without_meta(dataset: Dataset) -> Dataset:
    """A data set without its file's meta information, of which an archive writes its own."""
    plain = Dataset()
    for element in dataset:
        plain[element.tag] = element
    return plain
