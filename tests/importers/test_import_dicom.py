"""From DICOM to a cohort's folder: its tables, labels of a hospital's own table, a second import, and no personal data."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from made import dicom
from pydicom.dataset import Dataset
from pydicom.uid import UID
from rich.console import Console

from mri_vit.cli import app
from mri_vit.data import cohort
from mri_vit.data.volume import Volume
from mri_vit.errors import UsageError
from mri_vit.importers import import_cohort
from mri_vit.importers.dicom import conversion, header, identity, importer
from mri_vit.importers.dicom.series import Series

FOUR = {"t1": "t1 mprage", "t1ce": "t1 mprage post", "t2": "t2 tse", "flair": "t2 flair"}


def write_visit(folder: Path, **tags: Any) -> None:
    for number, words in enumerate(FOUR.values()):
        study = {"StudyInstanceUID": "1.2.3", "SeriesDescription": words, "SeriesNumber": number + 1} | tags
        dicom.write_series(folder / words, dicom.head() + 1000 * number, **study)


def fixed_key(path: Path) -> Path:
    """A key as a user may have one: hashes are the same in every run, and these hold none of the short values looked for."""
    path.touch(mode=0o600)
    path.write_text("5a" * identity.KEY_BYTES)
    return path


def bring_in(tmp_path: Path, **options: Any) -> bool:
    return import_cohort.import_dicom(tmp_path / "in", tmp_path / "out", Console(), **options)


def rows(tmp_path: Path, name: str) -> list[dict[str, str]]:
    with (tmp_path / "out" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_becomes_a_cohort_that_our_readers_take(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    assert not bring_in(tmp_path)
    (patient,) = cohort.read(tmp_path / "out" / "cohort.csv", ())
    assert all(path and path.is_file() for path in patient.scans.values())
    assert rows(tmp_path, "cohort.csv")[0]["t1"] == f"scans/{patient.id}/t1.nii.gz"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        ["cohort.csv", "conflicts.csv", "excluded.csv", "import.json", "provenance.csv", "scans", "series.csv", "study.toml"]
    )


def test_labels_under_the_ids_of_the_headers_find_their_patients(tmp_path: Path) -> None:
    write_visit(tmp_path / "in", PatientID="0042")
    labels = tmp_path / "register.csv"
    labels.write_text("patient_id,MGMT,age\n0042,methylated,61\n0043,unmethylated,50\n")
    assert bring_in(tmp_path, labels=labels)
    (row,) = rows(tmp_path, "cohort.csv")
    assert (row["mgmt"], row["age"]) == ("1", "61")
    assert {(r["file"], r["row"], r["raw"]) for r in rows(tmp_path, "provenance.csv")} == {
        ("labels", "2", "methylated"),
        ("labels", "2", "61"),
    }
    (left_out,) = rows(tmp_path, "excluded.csv")
    assert left_out["patient"].startswith("P")
    assert left_out["reason"] == "in the table, but without scans"


def test_labels_of_a_study_without_a_patient_id_are_found_under_its_uid(tmp_path: Path) -> None:
    write_visit(tmp_path / "in", PatientID="ANONYMOUS")
    labels = tmp_path / "register.csv"
    labels.write_text("patient,mgmt\n1.2.3,1\nANONYMOUS,0\n")
    assert bring_in(tmp_path, labels=labels)
    assert [row["mgmt"] for row in rows(tmp_path, "cohort.csv")] == ["1"]
    assert [row["reason"] for row in rows(tmp_path, "excluded.csv")] == ["in the table, but without scans"]


def test_sequences_that_were_asked_for_are_columns(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    dicom.write_series(tmp_path / "in" / "swi", SeriesDescription="SWI", StudyInstanceUID="1.2.3")
    options = ["--output", str(tmp_path / "out"), "--also", "swi"]
    assert app(["import", "dicom", str(tmp_path / "in"), *options], result_action="return_value") == 0
    assert rows(tmp_path, "cohort.csv")[0]["swi"].endswith("swi.nii.gz")


def test_a_second_import_goes_on_where_the_first_is_our_own(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    bring_in(tmp_path)
    for name in ("cohort.csv", "provenance.csv", "excluded.csv"):
        (tmp_path / "out" / name).unlink()  # cut off before its tables were written
    assert not bring_in(tmp_path)
    assert not bring_in(tmp_path)
    (tmp_path / "out" / "cohort.csv").write_text("patient\nmine\n")
    with pytest.raises(UsageError, match=r"cohort\.csv: not as mri-vit wrote it"):
        bring_in(tmp_path)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    write_visit(tmp_path / "in")
    (tmp_path / "out" / "scans").mkdir(parents=True)
    (tmp_path / "out" / "scans" / "mine.nii").write_text("mine")
    with pytest.raises(UsageError, match="scans: mri-vit did not write it"):
        bring_in(tmp_path)
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["scans", "mine.nii"]
    assert not (tmp_path / "out.key").exists()


def test_what_an_import_left_that_was_killed_is_deleted_and_never_in_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_visit(tmp_path / "in")
    for what in ("dcm2niix", "dicomweb"):
        (tmp_path / f".out.{what}").mkdir()
        (tmp_path / f".out.{what}" / "DOE_JANE.dcm").write_bytes(b"a whole header")
    seen: list[list[str]] = []

    def convert_and_look(series: Series, scratch: Path) -> Volume:
        seen.append([path.name for path in (tmp_path / "out").rglob(".*")])
        return volume_of(series, scratch)

    volume_of = conversion.convert_series
    monkeypatch.setattr(importer, "convert_series", convert_and_look)
    bring_in(tmp_path)
    assert seen == [[]] * 4  # while it converts
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("visit", ["2024-01-31", "20240131", "before"])
def test_a_date_in_place_of_a_visit_s_number_is_refused_with_its_row(tmp_path: Path, visit: str) -> None:
    write_visit(tmp_path / "in")
    labels = tmp_path / "register.csv"
    labels.write_text(f"patient,visit,mgmt\n0042,{visit},1\n")
    with pytest.raises(UsageError, match=f"row 2: visit '{visit}'; expected the number of a visit"):
        bring_in(tmp_path, labels=labels)
    assert not (tmp_path / "out").exists()


def test_a_patient_s_only_visit_may_be_called_the_first(tmp_path: Path) -> None:
    write_visit(tmp_path / "in", PatientID="0042")
    labels = tmp_path / "register.csv"
    labels.write_text("patient,visit,mgmt\n0042,01,1\n0042,02,0\n")
    assert bring_in(tmp_path, labels=labels)
    assert [row["mgmt"] for row in rows(tmp_path, "cohort.csv")] == ["1"]
    assert [row["reason"] for row in rows(tmp_path, "excluded.csv")] == ["visit 02 is in the table, but without scans"]


PLANTED = {
    "PatientName": "Secretname^Planted",
    "PatientID": "SECRETID77",
    "PatientBirthDate": "19511224",
    "PatientComments": "SECRETCOMMENT",
    "StudyDate": "20190817",
    "SeriesDate": "20190818",
    "AcquisitionDate": "20190819",
    "ContentDate": "20190820",
    "StudyTime": "091653.123",
    "SeriesTime": "091754.123",
    "AcquisitionTime": "091855.123",
    "AccessionNumber": "SECRETACC",
    "StudyID": "SECRETSTUDYID",
    "InstitutionName": "SECRETHOSPITAL",
    "InstitutionAddress": "SECRETSTREET 5",
    "StationName": "SECRETSTATION",
    "ReferringPhysicianName": "SECRETREFERRER^A",
    "PerformingPhysicianName": "SECRETPERFORMER^A",
    "OperatorsName": "SECRETOPERATOR^A",
    "StudyDescription": "SECRETSTUDY",
    "ImageComments": "SECRETIMAGECOMMENT",
    "DeviceSerialNumber": "SECRETSERIAL",
    "ManufacturerModelName": "SECRETMODEL",
    "SoftwareVersions": "SECRETSOFTWARE",
    "SequenceName": "SECRETSEQ",
    "ProtocolName": "SECRETPROTOCOL",
    "ContrastBolusAgent": "SECRETAGENT",
    "StudyInstanceUID": "1.2.77777.1",
    "SeriesInstanceUID": "1.2.77777.2",
    "FrameOfReferenceUID": "1.2.77777.3",
    "ImageType": ["ORIGINAL", "PRIMARY", "M", "SECRETTYPE"],
    "ScanningSequence": "SECRETSCAN",
    "SequenceVariant": "SECRETVARIANT",
}
SECRETS = [b"secret", b"planted", b"doe_jane", b"77777", b"1951", b"20190", b"2019-0", b"0916", b"0917", b"0918"]


def _plant(folder: Path, name: str, words: str, steps: Sequence[int] | None = None, **tags: Any) -> None:
    """A series whose every field of text holds a secret."""

    def edit(dataset: Dataset, number: int) -> None:
        with header.lenient():
            for keyword, value in (PLANTED | {"SeriesDescription": f"{words} SECRETSERIES"} | tags).items():
                setattr(dataset, keyword, value)
        dataset.SeriesInstanceUID = f"1.2.77777.2.{int.from_bytes(name.encode())}"
        dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = UID(f"{dataset.SeriesInstanceUID}.{number + 1}")
        dataset.private_block(0x0029, "SECRETCREATOR", create=True).add_new(0x01, "LO", "SECRETPRIVATE")

    with header.lenient():
        dicom.write_series(folder / "DOE_JANE" / name, edit=edit, steps=steps)


def _leaks(content: bytes) -> list[bytes]:
    return [secret for secret in SECRETS if secret in content.lower()]


def _outputs(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every output by name, as it is and decompressed."""
    for path in folder.rglob("*"):
        yield f"name of {path.relative_to(folder)}", str(path.relative_to(folder)).encode()
        if path.is_file():
            yield str(path), path.read_bytes()
        if path.name.endswith(".gz"):
            yield f"{path}, decompressed", gzip.decompress(path.read_bytes())


def test_no_name_date_id_uid_or_text_of_a_header_is_in_any_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for channel, words in (FOUR | {"t1": "t1 mprage pre", "t1ce": "t1 mprage"}).items():
        _plant(tmp_path / "in", channel, words)
    _plant(tmp_path / "in", "extra", "t2 tse")  # not chosen
    _plant(tmp_path / "in", "gap", "t2 tse", steps=[0, 1, 2, 4, 5, 6])
    _plant(tmp_path / "in", "unknown", "SECRETWORDS", EchoTime="12", RepetitionTime="4000")
    _plant(tmp_path / "in", "localizer", "localizer")
    _plant(tmp_path / "in", "modality", "t2", Modality="SECRETMODALITY")
    _plant(tmp_path / "in", "matrix", "t2", ImageOrientationPatient=[1, 0, 0, 1, 0, 0])
    (tmp_path / "in" / "DOE_JANE" / "secret").write_bytes(b"\0" * 128 + b"DICM" + b"\xff" * 50)
    key = fixed_key(tmp_path / "key")
    (tmp_path / "secret labels").mkdir()
    labels = tmp_path / "secret labels" / "labels.csv"
    labels.write_text("patient,mgmt,pten,SECRETCOLUMN,same_as\nSECRETID77,1,SECRETWORD,SECRETCELL,a:SECRETID\nSECRETID78,0,,x,\n")
    assert bring_in(tmp_path, key=key, labels=labels)
    assert len(rows(tmp_path, "excluded.csv")) == 5
    assert {len(_leaks(path.read_bytes())) > 3 for path in (tmp_path / "in" / "DOE_JANE" / "t1").iterdir()} == {True}
    printed = capsys.readouterr().out  # tells a hospital where to look, and is no output
    assert "1.2.77777" in printed
    for name, content in _outputs(tmp_path / "out"):
        assert not _leaks(content), name
    for path in (tmp_path / "out").rglob("*.nii.gz"):
        raw = gzip.decompress(path.read_bytes())
        assert not any(raw[4:32] + raw[148:252] + raw[328:344])  # data_type, db_name; descrip, aux_file; intent_name


def test_labels_under_an_id_whose_zeros_are_lost_are_named_and_joined_on_request(tmp_path: Path, capsys) -> None:
    write_visit(tmp_path / "in", PatientID="00042")
    labels = tmp_path / "register.csv"
    labels.write_text("patient_id,MGMT,age\n42,methylated,61\n43,unmethylated,-1\n")
    fixed_key(tmp_path / "out.key")  # which `identity.default_key` names
    with pytest.raises(UsageError, match="none is among the 1 with scans"):
        bring_in(tmp_path, labels=labels)
    said = " ".join(capsys.readouterr().out.split())
    assert "42 is in the table, 00042 among the scans: zeros lost? (1 of 2 ids" in said
    assert bring_in(tmp_path, labels=labels, join_similar_ids=True)
    assert [(row["mgmt"], row["age"]) for row in rows(tmp_path, "cohort.csv")] == [("1", "61")]
    assert not any(b"00042" in path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
