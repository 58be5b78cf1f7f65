"""The script from a finished run to a ward and back."""

from __future__ import annotations

import shutil
from pathlib import Path

import hospital
import pytest
from orthanc import PLUGIN

from mri_vit.errors import UsageError

pytestmark = [
    pytest.mark.skipif(not PLUGIN.exists(), reason="Orthanc and its DICOMweb are not installed; `make pacs` installs them"),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of answers that the script does not close
]


@pytest.mark.slow
def test_a_run_goes_to_the_ward_and_back(finished: Path, tmp_path: Path, capsys):
    run = shutil.copytree(finished, tmp_path / "finished") / "run"
    hospital.main(run, tmp_path / "hospital")
    said = capsys.readouterr().out
    assert "objects came back from Orthanc as they went in; the service's scores agree" in said
    assert len(list((tmp_path / "hospital" / "served-objects").glob("*.dcm"))) > 5
    with pytest.raises(UsageError, match="is not empty"):
        hospital.main(run, tmp_path / "hospital")
