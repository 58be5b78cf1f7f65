"""What was changed after it was written is found by the stage that reads it, and a run that was moved finds what it needs."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from made.metrics import filled
from made.prepared import add_records
from made.study import make_tiny
from whole_road import mri_vit

from mri_vit.data import cohort, run_cohort
from mri_vit.explain.inspection.inspect_network import LearnedResults
from mri_vit.report.pages import report_files
from mri_vit.run import files
from mri_vit.run import folder as run_folder
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Controls, Explain

pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA|GPU|isinstance).*")  # Fabric's and torch's notes on this machine

NAMES = [f"p{index:02d}" for index in range(24)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cohort, its prepared patients, a study file and a trained run."""
    folder = tmp_path_factory.mktemp("tree")
    tiny = make_tiny(folder)
    train = tiny.train.model_copy(update={"epochs": 1})
    changed = {"train": train, "controls": Controls(models=()), "explain": Explain(patients=0, scored=2, methods=("rollout",))}
    study = Study.model_validate(tiny.model_dump() | changed)
    add_records(study, NAMES)
    (folder / "study.toml").write_text(study_file.dumps(study).replace(f"{folder}/", ""))
    with run_folder.claimed(study) as run:
        run_cohort.freeze(study, cohort.read(study.cohort, study.endpoints), run)
    (study.output / "excluded.csv").write_text("patient,file,reason\n")
    assert mri_vit("train", folder / "study.toml") == 0
    return folder


@pytest.fixture
def copy(tree: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tree, tmp_path / "copy"))


def flip(file: Path, at: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def verbs(folder: Path, *names: str) -> dict[str, int]:
    """The exit code of each verb on a tree's run."""
    run, out = folder / "run", folder / "out"
    commands = {
        "train": ("train", folder / "study.toml"),
        "explain": ("explain", run),
        "inspect": ("inspect", run, "-o", out),
        "report": ("report", run),
        "predict": ("predict", run, folder / "in" / "cohort.csv", out),
        "evaluate": ("evaluate", run, "--study", folder / "study.toml", "--output", out),
    }
    return {name: mri_vit(*commands[name]) for name in names}


def test_a_flipped_bit_in_a_folds_weights_is_found_by_every_stage_that_reads_them(copy: Path, capsys):
    flip(copy / "run" / "fold-1" / "best.safetensors")
    stages_of_weights = ("train", "explain", "inspect", "predict", "evaluate")
    assert verbs(copy, *stages_of_weights) == dict.fromkeys(stages_of_weights, 6)
    said = capsys.readouterr().err
    assert said.count("fold-1/best.safetensors: it was changed after it was written") == len(stages_of_weights)
    assert f"delete {copy / 'run' / 'fold-1'} and run `mri-vit train` again" in said


@pytest.mark.parametrize("table", ["predictions.csv", "survival.csv", "fold-2/predictions.csv"])
def test_rows_that_are_missing_from_a_table_are_found(copy: Path, table: str, capsys):
    file = copy / "run" / table
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-8]))
    assert verbs(copy, "report", "train") == {"report": 6, "train": 6}
    assert f"{table}: it was changed after it was written" in capsys.readouterr().err


def test_what_the_message_says_mends_the_run(copy: Path):
    before = (copy / "run" / "predictions.csv").read_bytes()
    (copy / "run" / "predictions.csv").write_bytes(before[:-100])
    assert verbs(copy, "train") == {"train": 6}
    (copy / "run" / "predictions.csv").unlink()
    assert verbs(copy, "train") == {"train": 0}
    assert (copy / "run" / "predictions.csv").read_bytes() == before


def test_tokens_of_another_patient_are_found_by_every_stage_that_reads_them(copy: Path, capsys):
    test_patient = json.loads((copy / "run" / "folds.json").read_text())["repeats"][0]["folds"][0][0]
    changed = {"p00", "p01", test_patient}  # those whose maps are scored, and one of the fold that is inspected
    other = next(name for name in NAMES if name not in changed)
    for one in changed:
        shutil.copy(copy / "in" / "prepared" / other / "tokens.safetensors", copy / "in" / "prepared" / one)
    assert verbs(copy, "train", "explain", "inspect") == {"train": 6, "explain": 6, "inspect": 6}
    assert "tokens.safetensors: it was changed after it was written" in capsys.readouterr().err


def test_patients_who_were_prepared_anew_with_another_result_are_not_those_that_a_run_was_trained_on(copy: Path, capsys):
    study = run_folder.run_settings(copy / "run")
    shutil.copy(study.prepared / "p05" / "tokens.safetensors", study.prepared / "p00")
    add_records(study, ["p00"])
    assert verbs(copy, "explain") == {"explain": 2}
    assert "patient p00 was prepared anew, with another result" in capsys.readouterr().err


def test_a_run_without_hashes_is_taken_as_it_is_and_a_note_tells(copy: Path, capsys):
    for file in copy.rglob("hashes.json"):
        file.unlink()
    flip(copy / "run" / "fold-1" / "predictions.csv", -2)
    assert verbs(copy, "explain") == {"explain": 0}
    assert "no hashes.json of run, fold-1, fold-2; written by an older version" in capsys.readouterr().out.replace("\n", " ")


def test_a_run_of_an_older_version_is_explained_on_the_patients_that_it_was_trained_on_and_on_no_others(copy: Path, capsys):
    (copy / "run" / "prepared.json").unlink()
    for file in copy.rglob("patient.json"):
        record = json.loads(file.read_text())
        del record["files"]
        file.write_text(json.dumps(record | {"schema": 1}))
    assert verbs(copy, "explain") == {"explain": 0}
    shutil.rmtree(copy / "run" / "scores")
    add_records(run_folder.run_settings(copy / "run"), NAMES)  # prepared again, by this version
    assert verbs(copy, "explain", "train") == {"explain": 2, "train": 2}
    assert "its training began with a version before 0.5, and patient p00 was prepared anew" in capsys.readouterr().err


def test_no_record_of_a_run_tells_where_the_tree_lies(tree: Path):
    for name in ("study.toml", "cohort.csv"):
        assert str(tree) not in (tree / "run" / name).read_text()


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Pages are read for and not drawn, which takes seconds."""
    monkeypatch.setattr("mri_vit.explain.inspection.inspect_network.write_page", lambda _, output, *__: output)
    monkeypatch.setattr("mri_vit.explain.inspection.inspect_network.measure_learned", lambda *_: LearnedResults())
    monkeypatch.setattr(
        "mri_vit.report.pages.report_files.write_report", lambda _, home, __: report_files.Written(home, filled({}))
    )
    monkeypatch.setattr("mri_vit.report.pages.report_files.print_results", lambda *_: None)


def test_a_tree_that_was_copied_works_by_itself(copy: Path, tree: Path, undrawn):
    """The one that it was copied from need not be there: nothing in it is read."""
    study = run_folder.run_settings(copy / "run")
    assert (study.cohort, study.prepared) == (copy / "in" / "cohort.csv", copy / "in" / "prepared")
    scans = {path for patient in run_cohort.patients(copy / "run", study) for path in patient.scans.values()}
    assert {path.parent for path in scans if path} == {copy / "in"}
    before = (copy / "run" / "cohort.csv").read_bytes()
    assert verbs(copy, "train", "explain", "inspect") == {"train": 0, "explain": 0, "inspect": 0}
    assert (copy / "run" / "cohort.csv").read_bytes() == before
    assert str(tree) not in (copy / "run" / "study.toml").read_text()


def test_a_copied_table_of_paths_near_and_far_is_still_the_frozen_one(tmp_path: Path):
    near, far = tmp_path / "first" / "scan.nii", tmp_path / "far" / "scan.nii"
    for path in (near, far):
        path.parent.mkdir(parents=True)
        path.touch()
    run = tmp_path / "first" / "run"
    run.mkdir()
    patient = cohort.Patient("p", {"t1": near, "t1ce": far, "t2": None, "flair": None}, {"mgmt": 1.0}, {"age": "60"})
    (run / "cohort.csv").write_bytes(run_cohort.table([patient], run))
    run_folder.write_origin(run)
    copied = tmp_path / "second" / "deeper"
    shutil.copytree(tmp_path / "first", copied)
    moved = replace(patient, scans=patient.scans | {"t1": copied / "scan.nii"})
    assert run_cohort.is_frozen([moved], copied / "run")
    assert not run_cohort.is_frozen([replace(moved, labels={"mgmt": 0.0})], copied / "run")
    assert not run_cohort.is_frozen([replace(moved, scans=patient.scans | {"t2": far})], copied / "run")
    assert not run_cohort.is_frozen([moved, moved], copied / "run")


def test_a_run_that_was_moved_alone_finds_what_it_was_made_from_also_a_second_time(tree: Path, tmp_path: Path):
    for place in (tmp_path / "first", tmp_path / "second" / "deeper"):
        shutil.copytree(tree / "run" if place.name == "first" else tmp_path / "first", place)
        assert run_folder.run_settings(place).prepared == tree / "in" / "prepared"
        assert mri_vit("explain", place, "--prepare.workers", "1") == 0
        assert mri_vit("train", tree / "study.toml", "--output", place) == 0


def test_a_run_alone_is_reported_and_says_what_else_is_missing(copy: Path, tmp_path: Path, capsys, undrawn):
    run = Path(shutil.move(copy / "run", tmp_path / "elsewhere"))
    (run / files.ORIGIN).write_text(json.dumps({"folder": "/nowhere/run"}))  # made on another machine
    shutil.move(copy / "in", tmp_path / "data")
    assert mri_vit("report", run) == 0
    for verb in ("explain", "inspect"):
        assert mri_vit(verb, run) == 2
        said = capsys.readouterr().err
        assert "is not prepared here" in said
        assert "name their folder with --prepared" in said
    assert mri_vit("explain", run, "--prepared", tmp_path / "data" / "prepared") == 0
    assert mri_vit("inspect", run) == 0  # the run has learned where they are


def test_maps_of_scans_that_are_not_there_are_refused_at_the_start(copy: Path, capsys):
    assert mri_vit("explain", copy / "run", "--explain.patients", "1") == 2
    assert "patient p00: " in (said := capsys.readouterr().err)
    assert "a.nii.gz is not there; maps need it" in said


def test_a_run_of_an_older_version_with_absolute_paths_goes_on(copy: Path):
    run, study = copy / "run", study_file.load(copy / "study.toml")
    (run / "study.toml").write_text(study_file.dumps(study))
    (run / "cohort.csv").write_bytes(cohort.dumps(cohort.read(study.cohort, study.endpoints)))
    for name in (files.ORIGIN, "predictions.csv"):
        (run / name).unlink()
    assert verbs(copy, "train") == {"train": 0}
    with run_folder.claimed(study):
        run_cohort.freeze(study, cohort.read(study.cohort, study.endpoints), run)
    assert os.path.isabs(cohort.read(run / "cohort.csv", study.endpoints)[0].scans["t1"] or "")
