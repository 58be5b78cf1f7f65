"""A run's folder: claimed only where everything that is written lies in it, moved whole, and swept of killed writers' parts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from mri_vit import study as stages
from mri_vit.data.cohort import Patient
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.finished import evaluated_models
from mri_vit.run import atomic
from mri_vit.run import folder as run_folder
from mri_vit.settings.schema import CHANNELS, Study


def study_in(folder: Path, prepared: str = "prepared") -> Study:
    return Study(
        name="x",
        cohort=folder / "in" / "cohort.csv",
        prepared=Path(os.path.abspath(folder / prepared)),
        output=folder / "run",
    )


@pytest.mark.parametrize(
    "inside",
    [
        *(
            "maps",
            "maps/P1",
            "scores",
            "mean_maps",
            "report",
            "report/patients",
            "report/figures",
            "inspect",
            "rivals",
            "controls",
        ),
        *(
            "fold-1",
            "repeat-2-fold-1",
            "fold-1/last",
            "fold-1/tensorboard",
            "rivals/r",
            "rivals/r/fold-1",
            "rivals/r/inspect/figures",
            "controls/c/fold-1/last",
        ),
    ],
)
def test_a_folder_of_a_run_that_leads_elsewhere_is_refused_before_anything_is_written(tmp_path: Path, inside: str):
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "run" / inside
    elsewhere.mkdir()
    link.parent.mkdir(parents=True)
    for target in (elsewhere, tmp_path / "nowhere"):
        link.symlink_to(target)
        with pytest.raises(IntegrityError, match=f"{inside} is a link to"), run_folder.claimed(study_in(tmp_path)):
            raise AssertionError("nothing is to be done")
        link.unlink()
    assert not list(elsewhere.iterdir())
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file()]


def test_a_link_to_a_file_is_replaced_and_the_file_that_it_leads_to_stays(tmp_path: Path):
    """As where a finished run is kept by git-annex."""
    with run_folder.claimed(study_in(tmp_path)):
        pass
    (tmp_path / "store").write_text("kept")
    for name in ("study.toml", ".holder"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).symlink_to(tmp_path / "store")
    with run_folder.claimed(study_in(tmp_path)):
        assert (tmp_path / "run" / ".holder").read_text().startswith("process")
    assert (tmp_path / "store").read_text() == "kept"


@pytest.mark.parametrize("prepared", ["in", "."])
def test_prepared_patients_do_not_go_where_the_cohort_lies(tmp_path: Path, prepared: str):
    study = study_in(tmp_path, prepared)
    with pytest.raises(UsageError, match="holds the cohort"), run_folder.claimed(study):
        raise AssertionError("nothing is to be done")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("listed", ["comparators", "rivals"])
def test_the_settings_of_an_older_versions_run_are_read_under_present_names_and_an_old_option_is_not(tmp_path: Path, listed: str):
    comparator = f'[[{listed}]]\nname = "a"\ntrain = {{rate = 0.2, tune_every = 3, guide_share = 0.0}}\n'
    old = 'name = "x"\ncohort = "in.csv"\nprepared = "p"\noutput = "."\n[train]\nmirror = false\nrate = 0.1\n'
    old += f"mask_supervision_fraction = 1.0\n{comparator}"  # a loss that has left, of which no prediction knows
    (tmp_path / "study.toml").write_text(old)
    study = run_folder.run_settings(tmp_path)
    assert (study.train.flip_lr, study.train.learning_rate) == (False, 0.1)
    assert study.comparators[0].train == {"learning_rate": 0.2, "val_every": 3}
    with pytest.raises(UsageError, match=r"train\.rate is now train\.learning_rate"):
        run_folder.run_settings(tmp_path, {"train.rate": "0.3"})


def test_part_files_that_a_killed_run_left_are_swept_when_it_is_claimed_again_and_nobody_elses(tmp_path: Path):
    names = ("", "fold-1", "fold-1/last", "rivals/r/fold-2", "maps/P1", "another-run/fold-1")
    for name in names:
        (tmp_path / "run" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name / f".state.{atomic.name_for('x').removeprefix('x.')}{atomic.FILE_ENDING}").touch()
    with run_folder.claimed(study_in(tmp_path)):
        left = {path.parent.relative_to(tmp_path / "run") for path in tmp_path.rglob(f"*{atomic.FILE_ENDING}")}
    assert left == {Path("maps/P1"), Path("another-run/fold-1")}


def test_a_prepared_patient_that_is_a_link_is_refused_before_anybody_is_prepared(tmp_path: Path):
    study, elsewhere = study_in(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    study.prepared.mkdir()
    (study.prepared / "P2").symlink_to(elsewhere)
    patients = [Patient(name, dict.fromkeys(CHANNELS), {}, {}) for name in ("P1", "P2")]
    with pytest.raises(IntegrityError, match="P2 is a link to"):
        stages.prepare(study, patients, tmp_path, Console())
    assert not (tmp_path / "excluded.csv").exists()


def test_a_volume_control_whose_prepared_patients_were_not_copied_with_the_run_is_told_as_not_made(tmp_path: Path):
    with pytest.raises(UsageError, match="not made: the prepared patient P1"):  # which an evaluation notes in its report
        evaluated_models.require_prepared([Patient("P1", {}, {}, {})], study_in(tmp_path).prepared)


@pytest.mark.parametrize("told", ["", "avx2", "default"])
def test_the_device_is_named_as_torch_names_it_which_is_not_asked(told: str):
    """An environment that differs from the first is noted as another machine's."""
    code = "from mri_vit.run.folder import device; import sys; print(device()); print('torch' in sys.modules); import torch;"
    code += "print(torch.cuda.is_available() or f'({torch.backends.cpu.get_cpu_capability()}, ' in device())"
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": told}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    _, asked, agrees = done.stdout.splitlines()
    assert agrees == "True"
    assert not told or asked == "True"


def test_vector_instructions_are_told_from_the_processors_flags(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    best = ["fma", "avx2", "avx512f", "avx512vl", "avx512bw", "avx512dq"]
    assert run_folder.instructions_of(best) == "AVX512"
    assert run_folder.instructions_of([flag for flag in best if flag != "avx512dq"]) == "AVX2"
    assert run_folder.instructions_of([flag for flag in best if flag != "fma"]) == ""  # torch is asked
    assert run_folder.instructions_of(()) == ""
