"""Studies of other sequences than the four, by the verbs that a user runs: T1 and FLAIR alone, with T1 as the reference."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from whole_road import SHRUNKEN, every_verb, hurry, mri_vit

from mri_vit import load_run, read_cohort
from mri_vit.data import run_cohort, tokens
from mri_vit.errors import UnusablePatient, UsageError
from mri_vit.model import network
from mri_vit.predictors.patient_tables import STATISTICS, intensity_table
from mri_vit.prepare.prepared import freeze_patients
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Prepare

TWO = ("t1", "flair")
STUDY = """
name = "two"
cohort = "cohort.csv"
prepared = "prepared"
output = "run"
channels = ["t1", "flair"]

[prepare]
reference = "t1"

[[endpoints]]
name = "mgmt"
kind = "binary"

[[endpoints]]
name = "os"
kind = "survival"
time = "os_days"
event = "os_event"
"""
OPTIONS = SHRUNKEN | {
    "controls.models": [],
    "train.epochs": 1,
    "model.zero_head": False,
    "train.modality_dropout": 0.3,
    "explain.scored": 1,
}

pytestmark = [
    pytest.mark.long(32),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
    pytest.mark.usefixtures("in_this_process"),
]


def table(scans: Path, path: Path, sequences: Sequence[str], rows: slice = slice(None)) -> Path:
    """Some patients of the built-in cohort, with these of their sequences and the tumour masks."""
    with scans.open(newline="") as file:
        people = list(csv.DictReader(file))[rows]
    labels = ("mgmt", "os_days", "os_event")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", *sequences, "tumour_mask", *labels])
        for row in people:
            files = [scans.parent / row[name] for name in (*sequences, "tumour_mask")]
            writer.writerow([row["patient"], *files, *(row[name] for name in labels)])
    return path


@pytest.fixture(scope="module")
def road(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the study on two sequences, taken through every verb."""
    folder = tmp_path_factory.mktemp("two")
    table(scans, folder / "cohort.csv", TWO, slice(12))
    others = table(scans, folder / "others.csv", TWO, slice(-2, None))
    (folder / "study.toml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        every_verb(folder / "study.toml", OPTIONS, others, folder / "run", folder / "prepared", ("pretrain",))
    return folder


def test_a_study_of_t1_and_flair_goes_through_every_verb(road: Path):
    for home in (road / "run", road / "run-new", road / "run-external"):
        found = pd.read_csv(home / "predictions.csv")
        assert set(found.endpoint) == {"mgmt", "os"}
        assert np.isfinite(found.score).all()
    stored = tokens.load(next((road / "prepared").glob("demo-*")) / "tokens.safetensors", TWO)
    assert stored.patches.shape[1] == 2 * 8**3
    for weights in (road / "run").glob("fold-*/best.safetensors"):
        net = network.load(weights)
        assert (net.channels, net.model.channels, net.encoder.embed.channels) == (TWO, TWO, 2)


def test_the_intensity_control_has_columns_of_the_two_sequences(road: Path):
    past = study_file.load(road / "run" / "study.toml")
    found = intensity_table(run_cohort.included(past, road / "run")[:2], past)
    assert list(found) == [f"{region}{name}_{figure}" for region in ("", "tumour_") for name in TWO for figure in STATISTICS]
    assert np.isfinite(found.to_numpy()).all()


def test_maps_lie_on_the_two_scans_and_share_scores_between_them(road: Path):
    (file,) = (road / "run" / "maps").glob("*/map.json")
    record = json.loads(file.read_text())
    assert record["brain"].endswith("_space-T1_desc-brain_T1w.nii.gz")
    for one in record["maps"]:
        assert list(one["files"]) == ["t1", "flair", "grid"]
        assert one["by_scan"] is None or sum(one["by_scan"].values()) == pytest.approx(1, abs=1e-3)
    with (road / "run" / "cohort.csv").open() as opened:
        (row,) = (row for row in csv.DictReader(opened) if row["patient"] == record["patient"])
    heat = nib.Nifti1Image.from_filename(file.parent / record["maps"][0]["files"]["flair"])
    assert heat.shape == nib.Nifti1Image.from_filename(road / "run" / row["flair"]).shape
    for parts in record["score_by_scan"].values():
        assert set(parts) == {"evidence", "empty", "t1", "flair"}
        assert parts["t1"] + parts["flair"] == pytest.approx(parts["evidence"] - parts["empty"], abs=1e-3)
    metrics = json.loads((road / "run" / "report" / "metrics.json").read_text())
    assert list(metrics["map_scans"]["scores"]["mgmt"]["scans"]) == ["t1", "flair"]


def test_a_report_names_the_sequences_that_were_used_and_no_others(road: Path):
    report = road / "run" / "report"
    methods = (report / "methods.md").read_text()
    for said in (
        "Two scans of each patient were used: T1 and FLAIR, read with",
        "FLAIR was aligned rigidly to T1 by maximising",
        "The T1 brain was aligned rigidly",
        "A patch of both sequences is embedded by",
        "over the four sets of sequences",
    ):
        assert said in " ".join(methods.split()), said
    page = (report / "index.html").read_text()
    assert "two MRI scans each (T1, FLAIR)" in page
    assert "over the patient's own T1 scan" in page
    written = [*report.glob("*.md"), report / "index.html", *(report / "patients").glob("*.html")]
    assert len(written) >= 4
    for file in written:
        for name in ("T1ce", "T2"):
            assert f" {name} " not in file.read_text(), (file.name, name)
    record = json.loads(next((road / "prepared").glob("demo-*/patient.json")).read_text())
    assert record["reference"] == "t1"
    assert list(record["to_grid"]) == ["t1", "flair"]


def test_a_run_refuses_a_table_without_its_sequences_by_their_names(road: Path, scans: Path, tmp_path: Path, capsys):
    lacking = table(scans, tmp_path / "others.csv", ("t1", "t2"), slice(-1, None))
    assert mri_vit("predict", road / "run", "--cohort", lacking, "--output", tmp_path / "new") == 2
    assert "no column 'flair'; the nearest one is" in capsys.readouterr().err
    (patient,) = read_cohort(lacking, needed=(), channels=("t1", "t2"))
    with pytest.raises(UnusablePatient, match=r"no flair scan; t1, flair are needed"):
        load_run(road / "run").predict([patient])
    text = STUDY.replace('channels = ["t1", "flair"]', 'channels = ["t1", "t2"]').replace("run", str(tmp_path / "out"))
    (tmp_path / "other.toml").write_text(text)
    assert mri_vit("evaluate", road / "run", "--study", tmp_path / "other.toml") == 2
    assert "channels belongs to the run" in capsys.readouterr().err


def test_patients_prepared_with_other_sequences_or_another_reference_are_not_trained_on(road: Path, tmp_path: Path):
    for changed in ({"prepare": Prepare(reference="flair", bias=False)}, {"channels": ("flair", "t1")}):
        past = study_file.load(road / "run" / "study.toml")
        study = Study.model_validate(past.model_dump() | {"model": {}} | changed)
        with pytest.raises(UsageError, match="was prepared with other settings"):
            freeze_patients(study, run_cohort.included(past, road / "run"), tmp_path)
