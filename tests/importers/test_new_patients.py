"""Which file of a patient's folder is which: by the names of published layouts, by plain names, and a clear error otherwise."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from made import dicom

from mri_vit.data import cohort
from mri_vit.errors import UsageError
from mri_vit.importers import new_patients

FOUR = ("t1", "t1ce", "t2", "flair")


def folder(tmp_path: Path, name: str, *files: str) -> Path:
    home = tmp_path / name
    for file in files:
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).touch()
    return home


def told(source: Path, tmp_path: Path, channels: tuple[str, ...] = FOUR, needs: tuple[str, ...] = FOUR) -> dict[str, str]:
    given = new_patients.read_new_patients(source, channels, needs, tmp_path / "out", print)
    (patient,) = given.patients
    files = {**patient.scans, "brain_mask": patient.brain_mask, "tumour_mask": patient.tumour_mask}
    return {"id": patient.id} | {name: file.relative_to(source).as_posix() for name, file in files.items() if file}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("BraTS2021_00001", {c: f"BraTS2021_00001_{c}.nii.gz" for c in FOUR} | {"tumour_mask": "BraTS2021_00001_seg.nii.gz"}),
        ("x", {c: f"BraTS2021_00001_{c}.nii.gz" for c in FOUR}),
        ("BraTS2021_01477", {c: f"{c}.nii.gz" for c in FOUR} | {"tumour_mask": "seg.nii.gz"}),
        (
            "BraTS-GLI-00000-000",
            {c: f"BraTS-GLI-00000-000-{w}.nii.gz" for c, w in zip(FOUR, ("t1n", "t1c", "t2w", "t2f"), strict=True)},
        ),
        (
            "sub-01",
            {
                "t1": "anat/sub-01_T1w.nii.gz",
                "t1ce": "anat/sub-01_ce-GADOLINIUM_T1w.nii.gz",
                "t2": "anat/sub-01_T2w.nii.gz",
                "flair": "anat/sub-01_FLAIR.nii.gz",
            },
        ),
        ("new patient (2)", {c: f"ABC_{c.upper()}.nii" for c in FOUR} | {"brain_mask": "ABC_brain_mask.nii"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_scans_of_published_and_plain_names_are_told_apart(name: str, files: dict[str, str], tmp_path: Path):
    found = told(folder(tmp_path, name, *files.values()), tmp_path)
    assert found.pop("id") == new_patients.safe_id(name)[0]
    assert found == files


def test_a_further_sequence_is_known_by_the_last_word_of_its_name(tmp_path: Path):
    home = folder(tmp_path, "p", "p_t1ce.nii.gz", "p_adc.nii.gz")
    found = told(home, tmp_path, ("t1ce", "adc"), ("t1ce", "adc"))
    assert (found["t1ce"], found["adc"]) == ("p_t1ce.nii.gz", "p_adc.nii.gz")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["t1.nii.gz", "t2.nii.gz", "other.nii.gz"], r"found t1 \(t1.nii.gz\), t2 .*not identified: other.*need t1ce, flair"),
        ([f"{i}.nii.gz" for i in range(20)], r"found no sequence; not identified: 0.nii.gz.* and 12 more; need t1, t1ce"),
        (["A_t1.nii.gz", "B_t1.nii.gz"], r"scans of 2 patients or visits \(A, B\)"),
        (["t1.nii", "t1.nii.gz", "t2.nii"], r"several files for t1"),
        ([], "neither a NIfTI file nor a DICOM image"),
        (["notes.txt"], "neither a NIfTI file nor a DICOM image"),
    ],
)
def test_what_cannot_be_told_apart_is_named(files: list[str], said: str, tmp_path: Path):
    home = folder(tmp_path, "p", *files)
    home.mkdir(exist_ok=True)
    with pytest.raises(UsageError, match=said):
        told(home, tmp_path)
    assert not (tmp_path / "out" / "scans" / "p").exists()


def test_a_folder_without_a_file_is_refused_before_the_reader_of_dicom_is_imported(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(new_patients.dicom, "reader", pytest.fail)
    home = folder(tmp_path, "p")
    (home / "deeper").mkdir(parents=True)
    (home / "deeper" / "away.nii.dcm").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="neither a NIfTI file nor a DICOM image"):
        told(home, tmp_path)


def test_an_output_among_the_scans_is_refused(tmp_path: Path):
    home = folder(tmp_path, "p", *(f"{c}.nii" for c in FOUR))
    with pytest.raises(UsageError, match="lies in"):
        new_patients.read_new_patients(home, FOUR, FOUR, home / "out", print)


@pytest.mark.parametrize("name", ["P001", "../x", "a b", "con", "", "…", "<b>x</b>", "a" * 100, ".hidden", "a."])
def test_a_folders_name_becomes_an_id_that_is_safe(name: str):
    safe, changed = new_patients.safe_id(name)
    assert cohort.is_patient_id(safe)
    assert changed == (safe != name)


def test_two_folders_names_are_never_one_id():
    names = [
        "환자가",
        "환자나",
        "A b",
        "A-b",
        "A  b",
        "a" * 64,
        "a" * 65,
        "a" * 66,
        "con",
        "patient-con",
        "x\udce9",
        "x\udce8",
        "x",
    ]
    ids = [new_patients.safe_id(name)[0] for name in names]
    assert len(set(ids)) == len(names)
    assert all(map(cohort.is_patient_id, ids))
    assert ids == [new_patients.safe_id(name)[0] for name in names]
    assert [new_patients.safe_id(name) for name in ("A-b", "patient-con", "x")] == [
        ("A-b", False),
        ("patient-con", False),
        ("x", False),
    ]


WORDS = {"t1": "t1 mprage", "t1ce": "t1 mprage post", "t2": "t2 tse", "flair": "t2 flair"}


def series(home: Path, **tags: Any) -> Path:
    for number, (channel, said) in enumerate(WORDS.items()):
        known = {"StudyInstanceUID": "1.2.3", "SeriesDescription": said, "SeriesNumber": number + 1} | tags
        dicom.write_series(home / channel, dicom.head() + 1000 * number, **known)
    return home


def test_dicom_series_of_a_patient_are_converted_under_the_folders_name_and_nothing_else_is_left(tmp_path: Path):
    home = series(tmp_path / "P7")
    out = tmp_path / "out"
    for _ in range(2):  # the second time in place of the first
        given = new_patients.read_new_patients(home, FOUR, FOUR, out, print)
        (patient,) = given.patients
        assert patient.id == "P7"
        assert [file is not None and file.is_file() for file in patient.scans.values()] == [True] * 4
        assert all(file and file.is_relative_to(out / "scans" / "P7") for file in patient.scans.values())
        assert [path.name for path in (out / "scans").iterdir()] == ["P7"]
        assert len(list((out / "scans" / "P7").rglob("*.nii.gz"))) == 4


def test_dicom_series_of_two_visits_are_refused(tmp_path: Path):
    home = series(tmp_path / "P7")
    series(home / "later", StudyInstanceUID="1.2.4", StudyDate="20250101")
    with pytest.raises(UsageError, match="2 patients or visits"):
        new_patients.read_new_patients(home, FOUR, FOUR, tmp_path / "out", print)


def test_dicom_series_without_a_needed_sequence_name_what_is_missing(tmp_path: Path):
    home = series(tmp_path / "P7")
    shutil.rmtree(home / "t1ce")
    with pytest.raises(UsageError, match="need t1ce"):
        new_patients.read_new_patients(home, FOUR, FOUR, tmp_path / "out", print)
