"""The study file that every import writes: the study that we recommend, which loads and names what can be learned."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

import pytest
from made import dicom
from made.layouts import folder
from rich.console import Console

from mri_vit.crossval import folds
from mri_vit.data import cohort
from mri_vit.errors import UsageError
from mri_vit.importers import recommended
from mri_vit.importers.join import join
from mri_vit.importers.stage import import_dicom, import_layout
from mri_vit.settings import file as study_file
from mri_vit.settings.schema import Study

ROOT = Path(__file__).parents[2]
FOUR = {"t1": "T1 AX", "t1ce": "T1 AX POST GD", "t2": "T2 AX", "flair": "FLAIR AX"}
OWN = {"name", "cohort", "prepared", "output", "endpoints", "channels"}  # keys that are the cohort's
PATIENTS = range(1, 11)
LABELS = "patient,mgmt,os_days,dead\n" + "".join(f"P{n},{n % 2},{100 * n},{n % 2}\n" for n in PATIENTS)
SCANS = [f"P{n}/{name}.nii.gz" for n in PATIENTS for name in ("t1", "t1ce", "t2", "flair")]


def settings(study: Study) -> dict:
    return study.model_dump(exclude=OWN)


def shipped(name: str) -> dict:
    return settings(study_file.load(ROOT / "configs" / name))


def brought(home: Path, labels: str = LABELS, *more: str, scans: list[str] = SCANS) -> Study:
    import_layout("auto", folder(home / "in", *scans, *more, tables={"labels.csv": labels}), home / "out", Console(quiet=True))
    return study_file.load(home / "out" / "study.toml")


@pytest.mark.parametrize("name", [recommended.WITHOUT_MASKS, recommended.WITH_MASKS])
def test_the_package_ships_the_studies_that_we_recommend(name: str):
    assert (resources.files("mri_vit.settings") / name).read_text("utf-8") == (ROOT / "configs" / name).read_text("utf-8")


def test_an_import_writes_the_recommended_study_with_paths_and_endpoints_of_its_cohort(tmp_path: Path):
    study = brought(tmp_path)
    assert settings(study) == shipped("gbm.toml")
    home = tmp_path / "out"
    assert (study.cohort, study.output) == (home / "cohort.csv", home / "run")
    assert [endpoint.name for endpoint in study.endpoints] == ["mgmt", "os"]
    assert len(cohort.of_study(study)) == len(PATIENTS)


@pytest.mark.parametrize(("masks", "name"), [((1, 2, 3, 4, 5, 6), "gbm_masks.toml"), ((1, 2, 3, 4, 5), "gbm.toml")])
def test_with_masks_of_most_patients_it_is_the_study_with_masks(tmp_path: Path, masks: tuple[int, ...], name: str):
    assert settings(brought(tmp_path, LABELS, *(f"P{n}/seg.nii.gz" for n in masks))) == shipped(name)


def test_a_cohort_without_t1ce_gets_another_reference_and_else_the_same_settings(tmp_path: Path):
    study = brought(tmp_path, scans=[name for name in SCANS if "t1ce" not in name])
    assert (study.channels, study.prepare.reference) == (("t1", "t2", "flair"), "t1")
    as_ours = study.prepare.model_copy(update={"reference": "t1ce", "needs": ("t1", "t1ce", "t2", "flair")})
    model = study.model.model_copy(update={"channels": ("t1", "t1ce", "t2", "flair")})
    assert settings(study.model_copy(update={"prepare": as_ours, "model": model})) == shipped("gbm.toml")


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ("patient,mgmt,pten\nP1,1,1\nP2,0,1\nP3,1,\nP4,0,\n", "pten; all 2 labels are 1"),
        ("patient,mgmt,pten\nP1,1,NA\nP2,0,\nP3,1,\nP4,0,\n", "pten; no label is known"),
        ("patient,mgmt,pten\nP1,1,1\nP2,0,0\nP3,1,1\nP4,0,\n", "pten; of 3 labels one alone is 0"),
        ("patient,mgmt,os_days,dead\nP1,1,100,0\nP2,0,200,0\nP3,1,,\nP4,0,,\n", "os; none of 2 patients died"),
        ("patient,mgmt,os_days,dead\nP1,1,100,1\nP2,0,200,0\nP3,1,,\nP4,0,,\n", "os; 1 of 2 patients died"),
    ],
)
def test_an_endpoint_of_one_class_is_not_studied_and_the_reason_stands_in_the_file(tmp_path: Path, labels: str, reason: str):
    study = brought(tmp_path, labels)
    assert [endpoint.name for endpoint in study.endpoints] == ["mgmt"]
    assert f"# Not studied: {reason}" in (tmp_path / "out" / "study.toml").read_text()


@pytest.mark.parametrize(("rare", "expected"), [(2, 2), (4, 4), (5, 5)])
def test_the_study_has_no_more_folds_than_its_rarest_class_has_patients(tmp_path: Path, rare: int, expected: int):
    study = brought(tmp_path, "patient,mgmt\n" + "".join(f"P{n},{int(n > rare)}\n" for n in PATIENTS))
    assert study.train.folds == expected
    folds.check(cohort.of_study(study), study.endpoints, study.train)


@pytest.mark.parametrize(
    ("labels", "cause"),
    [
        ("P1,1\nP2,1\nP3,1", "mgmt: .* add patients"),
        ("P1,1\nP2,1\nP3,0", "mgmt: .* add patients"),
        ("P1,\nP2,", "no label of mgmt"),
    ],
)
def test_a_study_of_which_no_label_can_be_learned_says_at_its_check_what_is_lacking(tmp_path: Path, labels: str, cause: str):
    study = brought(tmp_path, f"patient,mgmt\n{labels}\n")
    with pytest.raises(UsageError, match=cause):
        folds.check(cohort.of_study(study), study.endpoints, study.train)


def test_the_check_of_a_study_without_a_label_names_one_column(tmp_path: Path):
    study = brought(tmp_path, "patient,age\nP1,60\n")
    with pytest.raises(UsageError, match="no column 'mgmt'") as refused:
        cohort.of_study(study)
    assert str(refused.value).count("no column") == 1


def test_visits_of_a_patient_count_once_in_the_number_of_folds(tmp_path: Path):
    names = [f"sub-{n}/ses-{visit}/anat/sub-{n}_ses-{visit}_FLAIR.nii.gz" for n in range(6) for visit in (1, 2)]
    study = brought(tmp_path, "participant_id,mgmt\n" + "".join(f"sub-{n},{n % 2}\n" for n in range(6)), scans=names)
    assert study.train.folds == 3
    folds.check(cohort.of_study(study), study.endpoints, study.train)


def test_an_import_of_dicom_and_a_merge_write_it_too(tmp_path: Path):
    for number, words in enumerate(FOUR.values()):
        study = {"StudyInstanceUID": "1.2.3", "SeriesDescription": words, "SeriesNumber": number + 1}
        dicom.write_series(tmp_path / "dicom" / words, dicom.head() + 1000 * number, **study)
    import_dicom(tmp_path / "dicom", tmp_path / "a", Console(quiet=True))
    assert settings(study_file.load(tmp_path / "a" / "study.toml")) == shipped("gbm.toml")
    brought(tmp_path)
    join([tmp_path / "a", tmp_path / "out"], tmp_path / "merged", (), Console(quiet=True))
    study = study_file.load(tmp_path / "merged" / "study.toml")
    assert settings(study) == shipped("gbm.toml")
    assert [endpoint.name for endpoint in study.endpoints] == ["mgmt", "os"]


def test_every_study_file_is_whole_toml_whatever_its_comments(tmp_path: Path):
    brought(tmp_path)
    text = (tmp_path / "out" / "study.toml").read_text()
    assert set(tomllib.loads(text)) == {*tomllib.loads((ROOT / "configs" / "gbm.toml").read_text()), "endpoints"}
