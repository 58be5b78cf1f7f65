"""From a patient's scans to a folder of records: whole, withheld where the run knows nothing, refused where it knows them."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from whole_road import mri_vit

from mri_vit import load_run, read_cohort
from mri_vit.data.cohort import Patient
from mri_vit.errors import UsageError
from mri_vit.finished import reference
from mri_vit.finished.predict import study_of_new_patients
from mri_vit.finished.prediction_document import Prediction
from mri_vit.importers.new_patients import safe_id
from mri_vit.run import integrity
from mri_vit.settings.schema import Study

FOUR = ("t1", "t1ce", "t2", "flair")

pytestmark = [
    pytest.mark.long(35),
    pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*"),  # Fabric's and torch's notes on this machine
]


@pytest.fixture(scope="module")
def road(finished: Path, tmp_path_factory: pytest.TempPathFactory, in_this_process: None) -> Path:
    """A run of twelve patients, whom nothing tells from chance, and a table of four others."""
    return shutil.copytree(finished, tmp_path_factory.mktemp("predicted") / "finished")


@pytest.fixture
def new(road: Path, tmp_path: Path) -> Path:
    """The folder of a patient whom the run does not know, with a name that is no id."""
    patient = read_cohort(road / "others.csv")[0]
    home = tmp_path / "new <b>patient"
    home.mkdir()
    for channel, file in patient.scans.items():
        assert file
        shutil.copy(file, home / f"X_{channel}.nii.gz")
    return home


def read(folder: Path) -> Prediction:
    return Prediction.model_validate_json((folder / "prediction.json").read_text(encoding="utf-8"))


def test_what_the_run_did_not_tell_from_chance_is_nowhere_unless_asked_for_and_then_marked(
    road: Path, new: Path, tmp_path: Path, capsys
):
    before = {path: path.read_bytes() for path in (road / "run").rglob("*") if path.is_file()}
    out, shown = tmp_path / "out", tmp_path / "shown"
    assert mri_vit("predict", road / "run", new, "-o", out) == 0
    assert "--show-untrusted" in capsys.readouterr().out
    assert mri_vit("predict", road / "run", new, "-o", shown, "--show-untrusted") == 0
    (home,) = [path for path in out.iterdir() if (path / "prediction.json").exists()]
    assert re.fullmatch("new-b-patient-[0-9a-f]{8}", home.name)
    made, marked = read(home), read(shown / home.name)
    assert all(one.value is None and one.withheld and not one.untrusted for one in made.endpoints.values())
    assert made.maps is None
    assert "withheld" in str(made.no_maps)
    assert not (home / "maps").exists()
    score = {name: one.value.score for name, one in marked.endpoints.items() if one.value}
    assert set(score) == {"mgmt", "os"}
    assert all(one.untrusted and not one.withheld for one in marked.endpoints.values())
    assert any("unreliable" in remark for remark in marked.remarks)
    everything = "".join(path.read_text(errors="replace") for path in out.rglob("*") if path.suffix in (".json", ".csv"))
    digits = [f"{n.score:.6g}" for one in marked.endpoints.values() if one.value for n in one.value.networks]
    assert digits
    assert not [d for d in (*digits, *(f"{value:.6g}" for value in score.values())) if d in everything]
    assert pd.read_csv(shown / "predictions.csv").untrusted.notna().all()
    assert pd.read_csv(shown / "survival.csv").untrusted.notna().all()
    table = pd.read_csv(out / "predictions.csv")
    assert table.score.isna().all()
    assert table.withheld.notna().all()
    assert pd.read_csv(out / "survival.csv").survival.isna().all()
    assert marked.maps
    for one in marked.maps.maps:
        for file in (one.overlay, *one.files.values()):
            assert (shown / home.name / file).is_file(), file
    assert not list((shown / home.name).glob(".*")), "no folder of parts is left"
    after = {path: path.read_bytes() for path in (road / "run").rglob("*") if path.is_file()}
    assert {path.name for path in set(after) - set(before)} == {reference.FILE}
    assert {path: after[path] for path in before} == before


def test_scores_are_those_of_the_runs_ensemble_and_no_label_is_read(road: Path, tmp_path: Path):
    out = tmp_path / "out"
    assert mri_vit("predict", road / "run", "--cohort", road / "others.csv", "--output", out, "--show-untrusted") == 0
    patients = read_cohort(road / "others.csv")
    expected = load_run(road / "run").predict(patients, out / "prepared")
    found = pd.read_csv(out / "predictions.csv")
    keys = ["patient", "endpoint"]
    both = found.merge(expected, on=keys, suffixes=("", "_of_run"))
    assert len(both) == len(expected) == 8
    assert both.score.to_numpy() == pytest.approx(both.score_of_run.to_numpy(), abs=1e-6)
    assert (both.models == both.models_of_run).all()
    for patient in patients:
        made = read(out / patient.id)
        assert {one.holds for one in made.preparation.read} == {*FOUR, "tumour_mask"}
        assert made.distribution.placement == "not known"
        assert "12 patients" in str(made.distribution.reason)
        for endpoint in made.endpoints.values():
            assert endpoint.value
            assert endpoint.value.spread.networks == 2


def test_a_patient_of_the_run_is_refused_by_their_voxels_and_marked_where_allowed(road: Path, tmp_path: Path, capsys):
    known = read_cohort(road / "cohort.csv")[0]
    with (road / "cohort.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    table = tmp_path / "table" / "new.csv"
    table.parent.mkdir()
    table.write_text("patient,t1,t1ce,t2,flair\n" + ",".join(["somebody", *(row[c] for c in FOUR)]) + "\n")
    assert mri_vit("predict", road / "run", table, "-o", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "somebody" in said
    assert known.id in said
    assert not (tmp_path / "out" / "somebody").exists()
    assert mri_vit("predict", road / "run", table, "-o", tmp_path / "out", "--allow-known") == 0
    made = read(tmp_path / "out" / "somebody")
    assert made.known.twin == known.id
    assert "1 of 2 networks saw this patient in training" in made.known.sentence
    assert made.remarks[1] == made.known.sentence  # behind that the run is of synthetic patients


def test_of_several_patients_those_whom_the_run_knows_are_excluded_and_the_others_are_done(road: Path, tmp_path: Path):
    other = read_cohort(road / "others.csv")[0]
    with (road / "cohort.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    rows = [["somebody", *((road / row[c]).resolve() for c in FOUR)], [other.id, *(other.scans[c] for c in FOUR)]]
    (tmp_path / "new.csv").write_text("\n".join(["patient,t1,t1ce,t2,flair", *(",".join(map(str, one)) for one in rows)]) + "\n")
    assert mri_vit("predict", road / "run", tmp_path / "new.csv", "-o", tmp_path / "out") == 3
    excluded = pd.read_csv(tmp_path / "out" / "excluded.csv")
    assert excluded.patient.tolist() == ["somebody"]
    assert row["patient"] in excluded.reason[0]
    assert set(pd.read_csv(tmp_path / "out" / "predictions.csv").patient) == {other.id}
    assert not (tmp_path / "out" / "somebody").exists()


def test_nothing_that_was_shown_before_stays_of_a_patient_who_is_excluded_now(road: Path, tmp_path: Path):
    patient = read_cohort(road / "others.csv")[0]

    def ask(t1: Path, *options: str) -> int:
        scans = [str(t1), *(str(patient.scans[c]) for c in FOUR[1:])]
        (tmp_path / "new.csv").write_text(f"patient,t1,t1ce,t2,flair\nP1,{','.join(scans)}\n")
        return mri_vit("predict", road / "run", tmp_path / "new.csv", "-o", tmp_path / "out", *options)

    assert patient.scans["t1"]
    assert ask(patient.scans["t1"], "--show-untrusted") == 0
    assert (tmp_path / "out" / "P1" / "index.html").exists()
    (tmp_path / "bad.nii.gz").write_bytes(b"nothing")
    assert ask(tmp_path / "bad.nii.gz") == 3
    assert not (tmp_path / "out" / "P1").exists()
    assert not (tmp_path / "out" / "predictions.csv").exists()
    assert not (tmp_path / "out" / "survival.csv").exists()


def test_an_equal_id_alone_is_a_warning(road: Path, new: Path, tmp_path: Path):
    called = read_cohort(road / "cohort.csv")[0].id
    new.rename(tmp_path / called)
    assert mri_vit("predict", road / "run", tmp_path / called, "-o", tmp_path / "out") == 0
    made = read(tmp_path / "out" / called)
    assert made.known.same_id
    assert made.known.twin is None
    assert called in made.remarks[1]


def test_who_cannot_be_prepared_is_excluded_and_the_others_are_done(road: Path, tmp_path: Path):
    patients = read_cohort(road / "others.csv")[:2]
    bad = tmp_path / "bad.nii.gz"
    bad.write_bytes(b"nothing")
    rows = [[p.id, *(str(p.scans[c]) for c in FOUR)] for p in patients]
    rows[0][2] = str(bad)
    (tmp_path / "new.csv").write_text("\n".join(["patient,t1,t1ce,t2,flair", *(",".join(row) for row in rows)]) + "\n")
    assert mri_vit("predict", road / "run", tmp_path / "new.csv", "-o", tmp_path / "out") == 3
    assert pd.read_csv(tmp_path / "out" / "excluded.csv").patient.tolist() == [patients[0].id]
    assert read(tmp_path / "out" / patients[1].id).patient == patients[1].id
    assert not (tmp_path / "out" / patients[0].id).exists()


def test_a_real_patient_is_refused_to_a_run_of_synthetic_ones_and_marked_everywhere_where_asked_for(road, new, tmp_path, capsys):
    home = tmp_path / "P7"
    home.mkdir()
    for file in new.iterdir():  # as another program saves it, without our mark
        image = nib.Nifti1Image.load(file)
        nib.save(nib.Nifti1Image(np.asarray(image.dataobj), image.affine), home / file.name)
    out = tmp_path / "out"
    assert mri_vit("predict", road / "run", home, "-o", out, "--show-untrusted") == 2
    refused = capsys.readouterr().err
    assert "12 of 12 patients are synthetic" in refused
    assert "--allow-synthetic" in refused
    assert not (out / "P7").exists()
    assert not (out / "predictions.csv").exists()
    with pytest.raises(UsageError, match="allow_synthetic=True"):
        load_run(road / "run").predict([Patient("P7", dict.fromkeys(FOUR, home / "X_t1.nii.gz"), {}, {})])
    assert mri_vit("predict", road / "run", home, "-o", out, "--show-untrusted", "--allow-synthetic") == 0
    assert "synthetic" in capsys.readouterr().out
    made = read(out / "P7")
    assert made.run.synthetic == "12 of 12 patients are synthetic"
    assert "synthetic" in made.remarks[0]
    assert all("synthetic" in str(one.untrusted) for one in made.endpoints.values())
    page = (out / "P7" / "index.html").read_text()
    assert page.index("synthetic") < page.index('class="cards"')
    for name in ("predictions.csv", "survival.csv"):
        table = pd.read_csv(out / name)
        assert table.synthetic.all()
        assert not table.trusted.any()
        assert table.untrusted.str.contains("synthetic").all()
        assert table.outside.isna().all()  # twelve patients cannot say


def test_what_is_not_ours_is_left_alone(road: Path, new: Path, tmp_path: Path, capsys):
    home = tmp_path / "out" / safe_id(new.name)[0]
    home.mkdir(parents=True)
    (home / "mine.txt").write_text("mine")
    assert mri_vit("predict", road / "run", new, "-o", tmp_path / "out") == 2
    assert "left unchanged" in capsys.readouterr().err
    assert (home / "mine.txt").read_text() == "mine"


def test_patients_whose_names_are_those_of_files_of_the_output_are_predicted_under_their_names(road: Path, tmp_path: Path):
    patients = read_cohort(road / "others.csv")[:3]
    names = ["scans", "Prepared", "predictions.csv"]
    rows = [[name, *(str(p.scans[c]) for c in FOUR)] for name, p in zip(names, patients, strict=True)]
    (tmp_path / "new.csv").write_text("\n".join(["patient,t1,t1ce,t2,flair", *(",".join(row) for row in rows)]) + "\n")
    assert mri_vit("predict", road / "run", tmp_path / "new.csv", "-o", tmp_path / "out") == 0
    assert list(dict.fromkeys(pd.read_csv(tmp_path / "out" / "predictions.csv").patient)) == names
    assert [read(tmp_path / "out" / f"_{name}").patient for name in names] == names
    folder = tmp_path / "scans"  # a patient's own, whose name the output has too
    folder.mkdir()
    for channel, file in patients[0].scans.items():
        shutil.copy(str(file), folder / f"{channel}.nii.gz")
    assert mri_vit("predict", road / "run", folder, "-o", tmp_path / "other") == 0
    assert read(tmp_path / "other" / "_scans").patient == "scans"


def test_a_reference_is_made_once_anew_where_its_weights_changed_and_not_without_prepared_patients(
    road: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from rich.console import Console

    from mri_vit.finished.trained_run import TrainedRun, open_run

    run = road / "run"
    (run / reference.FILE).unlink(missing_ok=True)
    past = open_run(run)
    steps: list[int] = []
    made = reference.reference_of_run(past, lambda: steps.append(1))
    assert isinstance(made, reference.Reference)
    assert len(steps) == 2
    again = reference.reference_of_run(past, lambda: steps.append(1))
    assert isinstance(again, reference.Reference)
    assert len(steps) == 2
    assert again.patients == made.patients
    assert again.distance.tolist() == made.distance.tolist()
    assert json.dumps([cloud.precision.tolist() for cloud in again.clouds.values()])
    integrity.refuse_changed_run(run, Console(quiet=True))
    gone = TrainedRun(run, past.study.model_copy(update={"prepared": tmp_path}))
    (run / reference.FILE).write_bytes(b"damaged")
    reason = reference.reference_of_run(gone, lambda: None)
    assert isinstance(reason, str)
    assert "is not prepared here" in reason
    (run / reference.FILE).unlink()
    monkeypatch.setattr(reference.prepared, "SCHEMA", reference.prepared.SCHEMA + 1)  # figures are measured otherwise since
    assert "prepared with an earlier version" in str(reference.reference_of_run(past, lambda: None))
    assert not (run / reference.FILE).exists()


def test_nobodys_tumour_is_segmented_to_be_predicted(tiny: Study, tmp_path: Path):
    past = tiny.model_copy(update={"prepare": tiny.prepare.model_copy(update={"tumour_command": ("seg",)})})
    assert study_of_new_patients(past, tmp_path / "new", tmp_path / "out", 1).prepare.tumour_command == ()
