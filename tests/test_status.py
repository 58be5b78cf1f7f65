"""How far a run is, told by its files alone."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from whole_road import mri_vit

from mri_vit import status
from mri_vit import study as stages
from mri_vit.crossval import folds
from mri_vit.data import cohort, run_cohort
from mri_vit.errors import UsageError
from mri_vit.run import executors, files, jobs
from mri_vit.run import folder as run_folder
from mri_vit.settings.recipe import Comparator
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Controls

BEGAN, TOOK_S = 1_700_000_000, 100


@pytest.fixture
def study(tiny: Study) -> Study:
    """Two folds of the study's network, of a comparator that is pretrained, and of the control on permuted labels."""
    comparators = (Comparator(name="own", pretrain={"method": "mae", "patients": "others"}),)
    return tiny.model_copy(update={"comparators": comparators, "controls": Controls(models=("shuffled",))})


@pytest.fixture
def run(study: Study) -> Path:
    """A run whose patients are prepared but for the last four, one of whom is excluded; its folds are made."""
    with run_folder.claimed(study) as run:
        patients = run_cohort.freeze(study, cohort.of_study(study), run)
        for number, patient in enumerate(patients[:20]):
            file = study.prepared / patient.id / files.PATIENT
            file.touch()
            os.utime(file, (BEGAN, BEGAN + 10 * number))
        (run / files.EXCLUDED).write_text(f"patient,file,reason\n{patients[-1].id},,no scan\n")
        splits = folds.make(patients[:-1], study.endpoints, study.train, study.seed)
        folds.save(splits, study.seed, run / files.FOLDS)
    return run


def made(folder: Path) -> None:
    """A fold that took `TOOK_S`."""
    folder.mkdir(parents=True)
    (folder / files.ENVIRONMENT).write_text(json.dumps({"started": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(BEGAN))}))
    (folder / files.PREDICTIONS).touch()
    os.utime(folder / files.PREDICTIONS, (BEGAN, BEGAN + TOOK_S))


def of(study: Study) -> dict[str, status.Stage]:
    return {stage.name: stage for stage in status.status(study).stages}


def test_every_patient_and_every_fold_is_counted_once(study, run):
    made(run / "fold-1")
    found = of(study)
    assert (found["prepare"].done, found["prepare"].waiting, found["prepare"].jobs) == (21, 3, 24)
    assert (found["pretrain"].done, found["pretrain"].waiting) == (0, 2)
    assert (found["train"].done, found["train"].waiting) == (1, 5)
    assert found["explain"].waiting == 23
    assert found["report"].waiting == 1


def test_who_is_at_work_is_told_with_machine_and_time_and_who_died_here_is_not(study, run):
    home = run / files.JOBS / "train"
    with jobs.working_on(home, "own fold-2"):
        (one,) = of(study)["train"].working
        assert (one["job"], one["process"]) == ("own fold-2", os.getpid())
        assert of(study)["train"].waiting == 5
        (file,) = home.iterdir()
        file.write_text(json.dumps(one | {"process": 2**22 + 1}))  # more than Linux gives out
        assert of(study)["train"].working == []


def test_what_failed_is_told_with_its_reason_until_it_is_done(study, run, capsys):
    jobs.Ledger("slurm", failed={"own fold-1": "lost 3 times; see jobs/train/7_0/7_0_0_log.out"}).write(
        run / files.JOBS / "train"
    )
    assert list(of(study)["train"].failed) == ["own fold-1"]
    assert mri_vit("status", run) == 0
    assert "failed: train own fold-1: lost 3 times; see jobs/train/7_0/7_0_0_log.out" in capsys.readouterr().out
    made(run / "rivals" / "own" / "fold-1")
    assert of(study)["train"].failed == {}


def test_the_time_left_is_as_long_as_the_folds_that_are_done_took(study, run):
    made(run / "fold-1")
    made(run / "rivals" / "own" / "fold-1")
    with jobs.working_on(run / files.JOBS / "train", "fold-2"), jobs.working_on(run / files.JOBS / "train", "own fold-2"):
        assert of(study)["train"].seconds_left == 4 * TOOK_S / 2, "four are left, two at a time"


def test_the_time_left_for_patients_is_as_they_came_since_the_run_is_held(study, run):
    with run_folder.claimed(study):
        assert of(study)["prepare"].seconds_left is None, "all were prepared before"
        os.utime(run / ".holder", (BEGAN, BEGAN))
        assert of(study)["prepare"].seconds_left == pytest.approx(3 * 10)


def test_a_process_that_trains_one_fold_after_the_other_is_seen_at_the_last_that_it_began(study, run):
    home = run / files.JOBS / "train"
    jobs.turn_to_job(home, "fold-1")
    made(run / "fold-1")
    jobs.turn_to_job(home, "fold-2")
    assert [one["job"] for one in of(study)["train"].working] == ["fold-2"]
    assert len(list(home.iterdir())) == 1


def test_who_holds_a_run_is_told_unless_that_process_died(study, run, capsys):
    with run_folder.claimed(study):
        assert mri_vit("status", run) == 0
        assert f"held by process {os.getpid()} on" in capsys.readouterr().out
        (run / ".holder").write_text((run / ".holder").read_text().replace(str(os.getpid()), str(2**22 + 1)))
        assert mri_vit("status", run) == 0
        assert "no process holds this run" in capsys.readouterr().out


def test_what_failed_and_is_done_again_counts_once(study, run):
    home = run / files.JOBS / "train"
    jobs.Ledger("slurm", failed={"fold-2": "lost 3 times"}).write(home)
    with jobs.working_on(home, "fold-2"):
        stage = of(study)["train"]
        assert (len(stage.working), stage.failed, stage.waiting, stage.jobs) == (1, {}, 5, 6)


def test_nothing_is_written(study, run):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert mri_vit("status", run) == 0
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_folder_without_a_run_is_refused(study):
    with pytest.raises(UsageError, match="no run"):
        status.status(study)


def test_an_evaluation_has_no_training_and_is_continued_by_its_own_verb(study, run, capsys):
    (run / files.FOLDS).unlink()
    (run / files.EVALUATION).write_text("{}")
    (run / files.PREDICTIONS).touch()
    found = status.status(study)
    assert [stage.name for stage in found.stages] == ["prepare", *(["explain"] if study.explained else []), "report"]
    assert mri_vit("status", run) == 0
    assert "`mri-vit evaluate` continues it" in " ".join(capsys.readouterr().out.split())


def test_an_evaluation_that_still_prepares_has_no_training_either(study, run):
    (run / files.FOLDS).unlink()
    (run / files.EVALUATED).write_text("{}")
    found = status.status(study)
    assert found.verb == "evaluate"
    assert [stage.name for stage in found.stages] == ["prepare", *(["explain"] if study.explained else []), "report"]


def test_an_evaluations_folder_is_not_trained_in(study, run):
    (run / files.FOLDS).unlink()
    (run / files.EVALUATION).write_text("{}")
    with pytest.raises(UsageError, match="holds another run's evaluation"):
        stages.divide(study, cohort.of_study(study), run)
    assert not (run / files.FOLDS).exists()


def test_a_folder_of_predictions_is_no_run(study, run):
    (run / files.FOLDS).unlink()
    (run / files.PREDICTIONS).touch()
    with pytest.raises(UsageError, match="holds predictions by another run"):
        status.status(study)


def test_a_detached_run_returns_at_once_and_leaves_what_it_prints_in_its_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "study.toml").write_text('name = "s"\ncohort = "missing.csv"\nprepared = "p"\noutput = "run"\n')
    assert mri_vit("run", tmp_path / "study.toml", "--detach", "--train.epochs", "3") == 0
    assert "mri-vit status" in capsys.readouterr().out
    log, until = tmp_path / "run" / files.LOG, time.monotonic() + 60
    while "missing.csv" not in log.read_text() and time.monotonic() < until:
        time.sleep(0.2)
    assert "missing.csv" in log.read_text()


def test_a_mistake_is_told_before_a_detached_run_begins(tmp_path):
    (tmp_path / "study.toml").write_text('name = "s"\ncohort = "c.csv"\nprepared = "p"\noutput = "run"\n')
    assert mri_vit("run", tmp_path / "study.toml", "--detach", "--train.epochs", "none") == 2
    assert not (tmp_path / "run").exists()


def test_the_executor_stands_in_the_study_file_and_on_the_command_line(tmp_path):
    from mri_vit.settings import file as study_file

    (tmp_path / "study.toml").write_text('name="s"\ncohort="c"\nprepared="p"\noutput="r"\n[executor]\nkind="dask://host:8786"\n')
    assert study_file.load(tmp_path / "study.toml").executor.kind == "dask://host:8786"
    with pytest.raises(UsageError, match=r"executor\.kind"):
        study_file.load(tmp_path / "study.toml", {"executor.kind": "ray"})
    study = study_file.load(tmp_path / "study.toml", {"executor.kind": "slurm", "slurm.options": '{account = "neuro"}'})
    at = executors.workplace(study, tmp_path, "train", 1)
    assert (at.slurm.cpus, at.slurm.options) == (study.train.threads, {"account": "neuro"})
