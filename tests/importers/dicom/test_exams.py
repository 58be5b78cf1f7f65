"""Whose scans a visit holds, and of which study: told by voxels, which say where each scan comes from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from made import dicom

from mri_vit.data import volume
from mri_vit.importers.dicom import importer
from mri_vit.importers.layout import SourceContents

MAN = {"PatientID": "ANONYMOUS", "PatientName": "", "PatientSex": "M", "PatientAge": "061Y", "StudyDate": "19000101"}
WOMAN = MAN | {"PatientSex": "F", "PatientAge": "034Y"}
SILENT = {"PatientName": "", "PatientSex": "", "PatientAge": "", "PatientBirthDate": ""}


def bring_in(tmp_path: Path, **options: Any) -> tuple[SourceContents, list[str]]:
    lines: list[str] = []
    return importer.read(tmp_path / "in", tmp_path / "out", say=lines.append, **options), lines


def drawn_from(found: SourceContents) -> list[tuple[str, dict[str, int]]]:
    """Of each visit its session, and by channel the number of the study from which its scan is."""
    visits = []
    for visit in found.visits:
        studies = {}
        for channel, path in visit.scans.items():
            lowest = int(volume.read(path).array.min())
            assert lowest % 10_000 // 1000 == list(dicom.FOUR).index(channel)
            studies[channel] = lowest // 10_000
        visits.append((visit.session, studies))
    return visits


def all_of(number: int) -> dict[str, int]:
    return dict.fromkeys(dicom.FOUR, number)


def write(tmp_path: Path, *studies: tuple[int, Sequence[str], dict[str, Any]]) -> None:
    for number, channels, tags in studies:
        dicom.write_study(tmp_path / "in" / str(number), number, channels or tuple(dicom.FOUR), **tags)


def test_two_people_under_one_placeholder_id_are_never_one_patient(tmp_path: Path) -> None:
    write(tmp_path, (1, ["flair"], MAN), (2, ["t1", "t1ce", "t2"], WOMAN))
    found, lines = bring_in(tmp_path)
    assert not found.visits
    assert len(found.left_out) == 2
    for left_out in found.left_out:
        assert "sex" in left_out.reason
        assert "age" in left_out.reason
        assert "1.2." not in left_out.reason
    for number in (1, 2):
        assert sum(line.startswith(f"study 1.2.{number}:") for line in lines) == 1


@pytest.mark.parametrize("patient_id", ["ANONYMOUS", "", "0", "Unknown", "xxxx"])
def test_two_studies_under_a_placeholder_id_whose_headers_are_silent_are_both_refused(tmp_path: Path, patient_id: str) -> None:
    write(
        tmp_path,
        (1, [], SILENT | {"PatientID": patient_id}),
        (2, [], SILENT | {"PatientID": patient_id, "StudyDate": "20200505"}),
    )
    found, lines = bring_in(tmp_path)
    assert not found.visits
    assert [one.patient for one in found.left_out] == ["", ""]
    assert [line.split(":")[0] for line in lines] == ["study 1.2.1", "study 1.2.2"]


@pytest.mark.parametrize(
    "change",
    [
        {"PatientSex": "F"},
        {"PatientBirthDate": "19850712"},
        {"PatientAge": "034Y"},
        {"PatientName": "Roe^Richard"},
    ],
)
@pytest.mark.parametrize("patient_id", ["MRN-1", "TEST"])
def test_one_field_that_disagrees_is_enough_under_any_id(tmp_path: Path, patient_id: str, change: dict[str, str]) -> None:
    known = {
        "PatientSex": "M",
        "PatientBirthDate": "19580301",
        "PatientAge": "061Y",
        "StudyDate": "20190601",
        "PatientID": patient_id,
    }
    write(tmp_path, (1, ["t1", "t1ce"], known), (2, ["t2", "flair"], known | change))
    found, _ = bring_in(tmp_path)
    assert not found.visits
    assert len(found.left_out) == 2


def test_a_person_whose_headers_are_partly_anonymised_stays_one(tmp_path: Path) -> None:
    known = {"PatientSex": "M", "PatientBirthDate": "19580301", "PatientAge": "061Y", "StudyDate": "20190601"}
    write(
        tmp_path,
        (1, [], known),
        (
            2,
            [],
            {
                "PatientName": "ANONYMOUS",
                "PatientSex": "O",
                "PatientBirthDate": "19000101",
                "PatientAge": "062Y",
                "StudyDate": "20200601",
            },
        ),
    )
    found, _ = bring_in(tmp_path)
    assert drawn_from(found) == [("01", all_of(1)), ("02", all_of(2))]
    assert len({visit.patient for visit in found.visits}) == 1
    assert not found.left_out


def test_one_study_under_a_placeholder_id_is_a_patient_of_its_own_in_every_import(tmp_path: Path) -> None:
    patients = set()
    for number in (1, 2):
        dicom.write_study(tmp_path / f"in{number}", number, **MAN)
        found = importer.read(tmp_path / f"in{number}", tmp_path / f"out{number}", tmp_path / "key")
        assert drawn_from(found) == [("", all_of(number))]
        patients.add(found.visits[0].patient)
    assert len(patients) == 2


@pytest.mark.parametrize("tags", [{}, {"StudyDate": ""}, {"PatientID": ""}, {"PatientID": "", "StudyDate": ""}])
def test_a_patient_of_whom_nothing_is_recognised_is_listed_with_every_series(tmp_path: Path, tags: dict[str, str]) -> None:
    for name in ("a", "b"):
        series: dict[str, Any] = {"StudyInstanceUID": f"1.2.{name == 'a':d}", "SeriesDescription": "unnamed"} | tags
        dicom.write_series(tmp_path / "in" / name, **series)
    found, _ = bring_in(tmp_path)
    assert not found.visits
    assert ["no series could be used" in one.reason for one in found.left_out] == [True]
    assert len((tmp_path / "out" / "series.csv").read_text().splitlines()) == 3


def test_one_study_of_two_people_is_refused(tmp_path: Path) -> None:
    write(
        tmp_path,
        (1, ["t1", "t1ce"], MAN | {"StudyInstanceUID": "1.2.9"}),
        (2, ["t2", "flair"], WOMAN | {"StudyInstanceUID": "1.2.9"}),
    )
    found, _ = bring_in(tmp_path)
    assert not found.visits


def test_without_id_and_date_scans_of_two_frames_of_reference_are_not_mixed(tmp_path: Path) -> None:
    both = SILENT | {"PatientID": "0", "StudyDate": "19000101", "StudyInstanceUID": "1.2.9"}
    write(tmp_path, (1, ["t1", "t1ce"], both), (2, ["t2", "flair"], both))
    assert not bring_in(tmp_path)[0].visits


@pytest.mark.parametrize("patient_id", ["0", "MRN-1"])
def test_two_whole_frames_of_reference_without_a_date_are_refused(tmp_path: Path, patient_id: str) -> None:
    both = SILENT | {"PatientID": patient_id, "StudyDate": "19000101", "StudyInstanceUID": "1.2.9"}
    write(tmp_path, (1, [], both), (2, [], both))
    assert not bring_in(tmp_path)[0].visits


def test_a_patient_who_was_laid_anew_within_a_study_is_one_visit(tmp_path: Path) -> None:
    both = {"StudyInstanceUID": "1.2.9"}
    write(tmp_path, (1, ["t1", "t1ce"], both), (2, ["t2", "flair"], both))
    assert drawn_from(bring_in(tmp_path)[0]) == [("", {"t1": 1, "t1ce": 1, "t2": 2, "flair": 2})]


def test_studies_without_a_date_are_not_numbered_by_their_uids(tmp_path: Path) -> None:
    write(tmp_path, (1, [], {"StudyDate": "19000101"}), (2, [], {"StudyDate": ""}), (3, [], {}))
    found, _ = bring_in(tmp_path)
    assert drawn_from(found) == [("", all_of(3))]
    assert len(found.left_out) == 2


@pytest.mark.parametrize(("morning", "evening"), [(1, 2), (2, 1)])
def test_studies_before_and_after_an_operation_are_two_visits_in_order_of_time(
    tmp_path: Path, morning: int, evening: int
) -> None:
    write(tmp_path, (evening, [], {"StudyTime": "190000"}), (morning, [], {"StudyTime": "080000.000"}))
    found, lines = bring_in(tmp_path)
    assert drawn_from(found) == [("01", all_of(morning)), ("02", all_of(evening))]
    assert any(f"1.2.{morning}, 1.2.{evening}" in line for line in lines)


@pytest.mark.parametrize("whole", [1, 2])
@pytest.mark.parametrize("time", ["093000", "190000", ""])
def test_a_visit_is_drawn_from_the_one_study_that_has_all(tmp_path: Path, whole: int, time: str) -> None:
    write(tmp_path, (whole, [], {"StudyTime": "080000"}), (3 - whole, ["t1ce", "flair"], {"StudyTime": time}))
    found, lines = bring_in(tmp_path)
    assert drawn_from(found) == [("", all_of(whole))]
    assert any(f"1.2.{3 - whole}" in line for line in lines)


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_studies_of_one_hour_complete_each_other_in_order_of_time(tmp_path: Path, first: int, second: int) -> None:
    write(
        tmp_path,
        (first, ["t1", "t2"], {"StudyTime": "080000", "SeriesTime": "081000"}),
        (second, ["t1", "t1ce", "flair"], {"StudyTime": "084500", "SeriesTime": "085000"}),
    )
    found, lines = bring_in(tmp_path)
    assert drawn_from(found) == [("", {"t1": first, "t2": first, "t1ce": second, "flair": second})]
    assert any(f"1.2.{first}, 1.2.{second}" in line for line in lines)


def test_series_with_a_study_uid_each_are_one_visit_where_the_study_s_time_is_one(tmp_path: Path) -> None:
    for number, channel in enumerate(dicom.FOUR, start=1):
        dicom.write_study(tmp_path / "in" / str(number), number, [channel], StudyTime="080000")
    found, lines = bring_in(tmp_path)
    assert drawn_from(found) == [("", {"t1": 1, "t1ce": 2, "t2": 3, "flair": 4})]
    assert len(lines) == 1


def test_a_study_does_not_complete_another_over_hours(tmp_path: Path) -> None:
    write(tmp_path, (1, ["t1", "t1ce", "t2"], {"StudyTime": "080000"}), (2, ["t1", "flair"], {"StudyTime": "190000"}))
    found, lines = bring_in(tmp_path)
    assert drawn_from(found) == [("01", {"t1": 1, "t1ce": 1, "t2": 1}), ("02", {"t1": 2, "flair": 2})]
    assert lines


@pytest.mark.parametrize("time", ["", "000000", "080000"])
def test_studies_of_one_day_whose_order_no_time_tells_are_refused(tmp_path: Path, time: str) -> None:
    write(tmp_path, (1, [], {"StudyTime": time}), (2, [], {"StudyTime": time}), (3, [], {"StudyDate": "20250505"}))
    found, _ = bring_in(tmp_path)
    assert drawn_from(found) == [("02", all_of(3))]  # a visit that is refused stays one


@pytest.mark.parametrize("evening", [("t1", "t1ce", "t2", "flair"), ("t1ce", "flair")])
def test_scans_of_one_study_that_lie_hours_apart_are_not_mixed(tmp_path: Path, evening: Sequence[str]) -> None:
    one = {"StudyInstanceUID": "1.2.9", "StudyTime": "080000"}
    write(
        tmp_path,
        (1, [], one | {"AcquisitionTime": "081500"}),
        (2, evening, one | {"AcquisitionTime": "190000", "SeriesNumber": 9}),
    )
    found, _ = bring_in(tmp_path)
    expected = [("01", all_of(1)), ("02", all_of(2))] if len(evening) == 4 else [("", all_of(1))]
    assert drawn_from(found) == expected


def test_a_study_over_midnight_is_one_visit(tmp_path: Path) -> None:
    one = {"StudyInstanceUID": "1.2.9", "StudyTime": "234000"}
    write(
        tmp_path,
        (1, ["t1", "t2"], one | {"AcquisitionTime": "235000"}),
        (2, ["t1ce", "flair"], one | {"AcquisitionTime": "001000"}),
    )
    assert drawn_from(bring_in(tmp_path)[0]) == [("", {"t1": 1, "t2": 1, "t1ce": 2, "flair": 2})]


def test_an_extra_may_come_from_a_study_of_the_same_hour(tmp_path: Path) -> None:
    write(tmp_path, (1, [], {"StudyTime": "080000"}))
    dicom.write_series(tmp_path / "in" / "adc", SeriesDescription="ep2d_diff_ADC", StudyInstanceUID="1.2.2", StudyTime="083000")
    found, _ = bring_in(tmp_path, also=("adc",))
    assert set(found.visits[0].scans) == {*dicom.FOUR, "adc"}


def test_a_choice_may_take_a_scan_of_a_study_that_is_left_aside(tmp_path: Path) -> None:
    write(tmp_path, (1, [], {"StudyTime": "080000"}), (2, ["flair"], {"StudyTime": "190000"}))
    first, _ = bring_in(tmp_path)
    rows = (tmp_path / "out" / "series.csv").read_text().splitlines()
    (aside,) = (row.split(",")[2] for row in rows if ",flair,no," in row)
    choices = tmp_path / "choices.csv"
    choices.write_text(f"patient,session,channel,series\n{first.visits[0].patient},,flair,{aside}\n")
    second = importer.read(tmp_path / "in", tmp_path / "out2", tmp_path / "out.key", choices)
    assert drawn_from(second) == [("", all_of(1) | {"flair": 2})]


def test_no_value_of_a_field_is_told_that_disagrees(tmp_path: Path) -> None:
    secret = {"PatientName": "Secretname^Planted", "PatientBirthDate": "19511224", "PatientAge": "067Y", "StudyDate": "20190817"}
    write(tmp_path, (1, [], secret), (2, [], {"StudyDate": "20190817", "PatientBirthDate": "19810203"}))
    found, lines = bring_in(tmp_path)
    written = " ".join([*lines, *(one.reason for one in found.left_out), (tmp_path / "out" / "series.csv").read_text()]).lower()
    assert "birth date" in written
    # whole words: a pseudonym is drawn from a random key and may hold any three figures
    words = set(re.split(r"\W+", written))
    assert not words & {"secretname", "planted", "19511224", "1951", "067", "067y", "20190817", "2019", "19810203", "1981", "doe"}


def test_sequences_of_two_people_under_one_series_uid_keep_voxels_of_their_own(tmp_path: Path) -> None:
    for number in (1, 2):
        write(tmp_path, (number, [], {"PatientID": f"MRN-{number}", "SeriesInstanceUID": "1.9.9"}))
    found, _ = bring_in(tmp_path)
    assert sorted(studies["t1"] for _, studies in drawn_from(found)) == [1, 2]
    assert all(studies == all_of(studies["t1"]) for _, studies in drawn_from(found))


@pytest.mark.parametrize("uid", ["1.2.9", ""])
@pytest.mark.parametrize("keyword", ["StudyDate", "AcquisitionDate", "SeriesDate"])
def test_a_study_of_several_days_is_refused(tmp_path: Path, uid: str, keyword: str) -> None:
    days = [{"StudyDate": "", "StudyInstanceUID": uid} | {keyword: day} for day in ("20200301", "20200901")]
    write(tmp_path, (1, ["t1", "t1ce"], days[0]), (2, ["t2", "flair"], days[1]))
    found, _ = bring_in(tmp_path)
    assert not found.visits
    assert "several days" in found.left_out[0].reason


def test_studies_of_one_date_whose_scans_are_months_apart_are_refused(tmp_path: Path) -> None:
    for number, day in ((1, "20200301"), (2, "20200901")):
        write(tmp_path, (number, [], {"AcquisitionDate": day, "StudyTime": f"0{number}3000"}))
    assert not bring_in(tmp_path)[0].visits


def test_a_study_whose_scans_lie_before_and_after_midnight_is_one_visit(tmp_path: Path) -> None:
    both = {"StudyInstanceUID": "1.2.9", "StudyDate": "20200301"}
    write(tmp_path, (1, ["t1", "t1ce"], both | {"AcquisitionDate": "20200301"}))
    write(tmp_path, (2, ["t2", "flair"], both | {"AcquisitionDate": "20200302"}))
    assert len(bring_in(tmp_path)[0].visits) == 1


@pytest.mark.parametrize("patient_id", ["MRN-1", "ANONYMOUS"])
def test_whole_frames_of_reference_without_times_are_not_mixed(tmp_path: Path, patient_id: str) -> None:
    both = SILENT | {"StudyInstanceUID": "1.2.9", "PatientID": patient_id}
    write(tmp_path, (1, [], both), (2, [], both))
    assert not bring_in(tmp_path)[0].visits


def test_halves_of_a_placeholder_s_study_in_two_frames_without_times_are_refused(tmp_path: Path) -> None:
    both = SILENT | {"StudyInstanceUID": "1.2.9", "PatientID": "ANONYMOUS"}
    write(tmp_path, (1, ["t1", "t1ce"], both), (2, ["t2", "flair"], both))
    assert not bring_in(tmp_path)[0].visits


@pytest.mark.parametrize("patient_id", ["MRN-1", "ANONYMOUS"])
@pytest.mark.parametrize("full", [1, 2])
def test_without_times_a_visit_is_drawn_from_the_one_frame_that_has_all(tmp_path: Path, patient_id: str, full: int) -> None:
    both = {"StudyInstanceUID": "1.2.9", "PatientID": patient_id}
    write(tmp_path, (full, [], both), (3 - full, ["t1", "t2"], both | {"SeriesNumber": 9}))
    found, lines = bring_in(tmp_path)
    assert drawn_from(found) == [("", all_of(full))]
    assert any("that has all" in line for line in lines)


def test_one_id_of_two_issuers_is_not_one_patient(tmp_path: Path) -> None:
    write(tmp_path, (1, ["t1", "t1ce"], {"StudyTime": "080000", "IssuerOfPatientID": "HOSP_A"}))
    write(tmp_path, (2, ["t2", "flair"], {"StudyTime": "083000", "IssuerOfPatientID": "HOSP_B"}))
    found, _ = bring_in(tmp_path)
    assert not found.visits
    assert "issuer" in found.left_out[0].reason


@pytest.mark.parametrize("issuers", [("HOSP_A", ""), ("HOSP_A", "Hosp A"), ("HOSP_A", "UNKNOWN")])
def test_one_issuer_that_is_written_in_two_ways_is_one(tmp_path: Path, issuers: tuple[str, str]) -> None:
    write(tmp_path, (1, ["t1", "t1ce"], {"StudyTime": "080000", "IssuerOfPatientID": issuers[0]}))
    write(tmp_path, (2, ["t2", "flair"], {"StudyTime": "083000", "IssuerOfPatientID": issuers[1]}))
    assert len(bring_in(tmp_path)[0].visits) == 1


@pytest.mark.parametrize("day", ["20150101", "20150615", "20150701"])
def test_halves_of_a_date_that_stands_for_a_year_are_refused(tmp_path: Path, day: str) -> None:
    write(tmp_path, (1, ["t1", "t1ce"], {"StudyDate": day, "StudyTime": "080000"}))
    write(tmp_path, (2, ["t2", "flair"], {"StudyDate": day, "StudyTime": "083000"}))
    assert not bring_in(tmp_path)[0].visits


@pytest.mark.parametrize("time", ["120000", "000001.00", "235959"])
def test_halves_of_a_time_that_stands_for_none_are_refused(tmp_path: Path, time: str) -> None:
    write(tmp_path, (1, ["t1", "t1ce"], {"StudyTime": time}), (2, ["t2", "flair"], {"StudyTime": time, "SeriesTime": time}))
    assert not bring_in(tmp_path)[0].visits


def test_a_study_on_the_first_of_july_is_a_visit(tmp_path: Path) -> None:
    write(tmp_path, (1, [], {"StudyDate": "20150701"}))
    assert drawn_from(bring_in(tmp_path)[0]) == [("", all_of(1))]


def test_a_study_under_several_patient_ids_is_named(tmp_path: Path) -> None:
    for number, channel in enumerate(dicom.FOUR):
        write(tmp_path, (number + 1, [channel], {"PatientID": f"MRN-{number}", "StudyInstanceUID": "1.2.9"}))
    assert sum("4 different PatientIDs" in line for line in bring_in(tmp_path)[1]) == 1
