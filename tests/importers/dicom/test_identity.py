"""Who headers speak of: ids, dates and names that stand for nobody, and what cannot be of one person."""

from __future__ import annotations

import pytest

from mri_vit.importers.dicom import identity

PLACEHOLDERS = """
, ,0,000000,ANONYMOUS,anonymous,Anonymous^Patient,ANON,ANONYMIZED,anonymised,UNKNOWN,Unknown^^,TEST,Test Patient,NONE,NA,N/A,n.a.
XXXX,x,PATIENT,PatientID,no name,NULL,-,???,de-identified,DEIDENTIFIED,REMOVED,Anónimo,ANONYME,unbekannt,익명,환자,99999999,111111
ANON-STUDY,PHI REMOVED,UNSET,NotSet,unassigned,VOLUNTEER,RESEARCH,STUDY,PROJECT,CONTROL,MRN,PID
XYZ,ABC,123456,111-11111,匿名,익명화,geanonimiseerd
"""
OWN = """
MRN-1,1,12,STUDY-0012,CONTROL7,ABC12,12345,PID-3,00012,100,1111,4711,ANON001,Anonym-17,TEST01,PATIENT7,sub-01,TCGA-FG-6692,dicom2nifti,XX12,Doe^Jane,Kim^Nan,김철수
"""


@pytest.mark.parametrize("text", [text for line in PLACEHOLDERS.strip("\n").split("\n") for text in line.split(",")])
def test_an_id_that_stands_for_nobody_is_a_placeholder_however_it_is_written(text: str) -> None:
    assert identity.is_placeholder(text)


@pytest.mark.parametrize("text", [*OWN.strip().split(","), "x" * 63 + "1", "anonym" * 10 + "1"])
def test_an_id_of_a_person_is_none(text: str) -> None:
    assert not identity.is_placeholder(text)


@pytest.mark.parametrize("text", ["JOHNDOE", "DOE^JOHN", "Jane Doe", "Max Mustermann", "ANONYMOUS", ""])
def test_the_name_of_a_made_up_person_is_no_id(text: str) -> None:
    assert identity.is_placeholder_id(text)


@pytest.mark.parametrize("text", ["DOE", "DOE17", "JOHNDOE3", "Smith^John"])
def test_an_id_that_resembles_one_of_a_made_up_person_stays(text: str) -> None:
    assert not identity.is_placeholder_id(text)


@pytest.mark.parametrize(
    "text", ["", "19000101", "00010101", "19700101", "0", "20240230", "99991231", "11111111", "unknown", "00000000"]
)
def test_a_date_that_stands_for_none_is_none(text: str) -> None:
    assert identity.date_of(text) is None


def test_a_real_date_is_read_in_both_ways_of_writing_it() -> None:
    assert identity.date_of("20240131") == identity.date_of("2024.01.31") is not None


def described(
    date: str = "20190601", sex: str = "", birth: str = "", age: str = "", name: str = "", study: str = "1"
) -> identity.Person:
    return identity.person_of("MRN-1", study, date, sex, birth, age, name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"age": "061Y"}, {"age": "062Y", "date": "20200601"}),
        ({"age": "061Y"}, {"age": "071Y", "date": "20290601"}),
        ({"age": "061Y", "birth": "19580301"}, {"age": "062Y", "birth": "19580301", "date": "20200601"}),
        ({"birth": "19580301"}, {"age": "061Y"}),
        ({"birth": "19250301"}, {"age": "090Y"}),
        ({"age": "061Y", "date": ""}, {"age": "064Y", "date": "", "study": "2"}),
        ({"age": "018M"}, {"age": "002Y"}),
        ({"age": "000Y"}, {"age": "061Y"}),
        ({"sex": "M"}, {"sex": "O"}),
        ({"sex": "M"}, {"sex": ""}),
        ({"sex": "M"}, {"sex": "male"}),
        ({"birth": "19580301"}, {"birth": "19000101"}),
        ({"birth": "19580301"}, {"birth": "20190601"}),  # the study's own date in place of a birth date
        ({"birth": "19580301"}, {"birth": "19580101"}),
        ({"birth": "19580301", "name": "Doe^Jane", "sex": "F", "age": "061Y"}, {"name": "ANONYMOUS"}),
        ({"name": "Doe^Jane"}, {"name": "Anonymous^Female"}),
        ({"name": "Doe^Jane"}, {"name": "DOE^JANE^MARIE"}),
        ({"name": "Doe^Jane"}, {"name": "Jane Doe"}),
        ({"name": "Doe^Jane"}, {"name": "Doe^J."}),
        ({"name": "Doe^Jane^^Dr"}, {"name": "Doe, Jane"}),
        ({"name": "Müller^Zoë"}, {"name": "MUELLER^ZOE"}),
        ({"name": "Sørensen^Åse"}, {"name": "SOERENSEN^ASE"}),
        ({"name": "Meyer-Schmidt^Anne-Marie"}, {"name": "MEYER SCHMIDT^ANNEMARIE"}),
        ({"name": "Hong^Gildong=洪^吉洞=홍^길동"}, {"name": "홍길동"}),
        ({"name": "Hong^Gildong"}, {"name": "홍^길동"}),
        ({"name": "Doe^Jane", "birth": "19580301"}, {"name": "Smith^Jane", "birth": "19580301"}),
        ({"name": "case 01 pre"}, {"name": "case 02 post"}),
    ],
)
def test_headers_of_one_person_do_not_disagree(one: dict[str, str], other: dict[str, str]) -> None:
    assert not identity.disagreements(described(**one), described(**other), of_placeholder=False)
    assert not identity.disagreements(described(**other), described(**one), of_placeholder=False)


@pytest.mark.parametrize(
    ("one", "other", "kinds"),
    [
        ({"sex": "M"}, {"sex": "F"}, ["sex"]),
        ({"sex": "m"}, {"sex": "W"}, ["sex"]),
        ({"age": "061Y"}, {"age": "034Y"}, ["age"]),
        ({"age": "061Y"}, {"age": "061Y", "date": "20240601"}, ["age"]),
        ({"age": "061Y", "date": "19000101"}, {"age": "034Y", "date": "19000101", "study": "2"}, ["age"]),
        ({"age": "061Y", "date": ""}, {"age": "064Y", "date": ""}, ["age"]),
        ({"birth": "19580301"}, {"birth": "19850712"}, ["birth date"]),
        ({"birth": "19580301"}, {"birth": "19580712"}, ["birth date"]),
        ({"birth": "19580301"}, {"age": "034Y"}, ["birth date against age"]),
        ({"name": "Doe^Jane"}, {"name": "Doe^John"}, ["name"]),
        ({"name": "Doe^Jane"}, {"name": "Smith^Jane"}, ["name"]),
        ({"name": "Doe^Jane", "birth": "19580301"}, {"name": "Smith^Ann", "birth": "19580301"}, ["name"]),
        ({"name": "김^철수"}, {"name": "홍^길동"}, ["name"]),
        ({"sex": "M", "age": "061Y", "name": "A^B"}, {"sex": "F", "age": "034Y", "name": "C^D"}, ["sex", "age", "name"]),
    ],
)
def test_headers_of_two_people_disagree_by_kind(one: dict[str, str], other: dict[str, str], kinds: list[str]) -> None:
    assert identity.disagreements(described(**one), described(**other), of_placeholder=False) == kinds
    assert identity.disagreements(described(**other), described(**one), of_placeholder=False) == kinds


def test_under_an_id_that_stands_for_nobody_a_name_does_not_change_by_marriage() -> None:
    one, other = described(name="Doe^Jane", birth="19580301"), described(name="Smith^Jane", birth="19580301")
    assert identity.disagreements(one, other, of_placeholder=True) == ["name"]
