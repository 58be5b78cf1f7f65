"""Merging: a person stands once, with all labels, and what cohorts disagree about is empty unless a rule says who is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mri_vit.data import cohort
from mri_vit.errors import UsageError
from mri_vit.importers.joined import OWN, Conflict, Row, merge
from mri_vit.importers.persons import Link, Source, Subject, by_voxels, declared, joined, unknown
from mri_vit.settings.endpoint import Endpoint

MGMT = Endpoint(name="mgmt", kind="binary")
PTEN = Endpoint(name="pten", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")


def source(folder: Path, name: str, table: str) -> Source:
    """A cohort of this table, whose header names no scan columns: each patient's four are there by name."""
    header, *lines = table.strip().split("\n")
    scans = ["t1", "t1ce", "t2", "flair"]
    rows = []
    for line in lines:
        patient = "-".join(line.split(",")[:2])
        rows.append(f"{line},{','.join(f'{name}-{patient}-{channel}.nii.gz' for channel in scans)}")
    path = folder / f"{name}.csv"
    path.write_text("\n".join([f"{header},{','.join(scans)}", *rows]) + "\n")
    return Source(name, path, cohort.read(path, ()))


@pytest.fixture
def two(tmp_path) -> list[Source]:
    """Two cohorts with one patient in common under two ids, and one id that is of two persons."""
    return [
        source(
            tmp_path, "ucsf", "patient,age,mgmt,os_days,os_event,same_as\n004,66,0,1303,1,brats:B97\n005,80,,274,1,\nX1,50,1,,,"
        ),
        source(tmp_path, "brats", "patient,mgmt,pten\nB97,1,1\nX1,0,0\nB98,1,"),
    ]


def merged(sources, links=(), hashes=None, prefer=None) -> tuple[list[Row], list[Conflict]]:
    """The merged rows, and what disagrees; `prefer` is the cohort that is right about MGMT."""
    endpoints = (MGMT.model_copy(update={"prefer": prefer}), PTEN, OS)
    return merge(sources, joined(sources, links), hashes or {}, endpoints)


def cells(row: Row, *names: str) -> list[str]:
    return [row.cells[name].value if name in row.cells else "" for name in names]


def test_declared_patients_are_one_person_and_others_keep_to_themselves(two):
    links = declared(two)
    assert links == [Link(Subject("ucsf", "004"), Subject("brats", "B97"), "same_as of ucsf")]
    rows, _ = merged(two, links)
    assert [(row.patient, row.session) for row in rows] == [
        ("004", "ucsf"),
        ("004", "brats"),
        ("005", ""),
        ("ucsf-X1", ""),
        ("brats-X1", ""),
        ("B98", ""),
    ]


def test_markers_are_the_person_s_and_what_is_of_a_visit_stays_with_it(two):
    """Scans of other voxels may be of another day: neither survival nor age goes from one to the other."""
    rows, conflicts = merged(two, declared(two))
    first, second = rows[:2]
    assert cells(first, "mgmt", "pten", "os_days", "os_event", "age") == ["", "1", "1303", "1", "66"]
    assert cells(second, "mgmt", "pten", "os_days", "os_event", "age") == ["", "1", "", "", ""]
    assert second.cells["pten"].said_by == (Subject("brats", "B97"),)
    said = ((Subject("ucsf", "004"), ("0",)), (Subject("brats", "B97"), ("1",)))
    assert conflicts == [Conflict("004", "mgmt", said, "", ("",))]


def test_a_rule_settles_a_disagreement_and_is_written_beside_it(two):
    rows, conflicts = merged(two, declared(two), prefer="brats")
    assert cells(rows[0], "mgmt") == cells(rows[1], "mgmt") == ["1"]
    assert (conflicts[0].rule, conflicts[0].value) == ("mgmt is that of brats", ("1",))
    with pytest.raises(UsageError, match="endpoint mgmt prefers 'tcga', which is not merged"):
        merged(two, prefer="tcga")


def test_of_scans_with_the_same_voxels_throughout_the_first_stays(two):
    scans = [list(patient.scans.values()) for patient in (two[0].patients[1], two[1].patients[2])]
    hashes = {path: f"hash {index}" for paths in scans for index, path in enumerate(paths) if path}
    links = by_voxels(two, hashes)
    assert [(link.one, link.other) for link in links] == 4 * [(Subject("ucsf", "005"), Subject("brats", "B98"))]
    rows, conflicts = merged(two, links, hashes)
    kept = [(row.session, *cells(row, "mgmt", "os_days", "age")) for row in rows if row.patient == "005"]
    assert kept == [("", "1", "274", "80")]
    assert not conflicts
    one = {path: value for path, value in hashes.items() if value == "hash 0"}  # one scan alone is the same
    rows, _ = merged(two, by_voxels(two, one), one)
    assert [row.session for row in rows if row.patient == "005"] == ["ucsf", "brats"]


def test_scans_of_one_value_are_nobodys(two):
    blank = {path: "" for own in two for patient in own.patients for path in patient.scans.values() if path}
    assert by_voxels(two, blank) == []


def test_links_go_on_through_others(tmp_path):
    three = [
        source(tmp_path, "a", "patient,same_as\nP,b:Q"),
        source(tmp_path, "b", "patient,same_as\nQ,c:R nowhere:Z b:unknown"),
        source(tmp_path, "c", "patient\nR\nS"),
    ]
    person = joined(three, declared(three))
    assert [person[Subject(*name)] for name in (("a", "P"), ("b", "Q"), ("c", "R"), ("c", "S"))] == [0, 0, 0, 1]
    rows, _ = merged(three, declared(three))
    assert [(row.patient, row.session) for row in rows] == [("P", "a"), ("P", "b"), ("P", "c"), ("S", "")]


def test_survival_of_patients_with_several_visits_stays_with_the_visit(tmp_path):
    """Time counts from imaging, and which visit of one cohort is that of another is not known."""
    sources = [
        source(tmp_path, "a", "patient,session,os_days,os_event,mgmt,same_as\nP,11,400,1,1,b:Q\nP,21,250,1,1,b:Q"),
        source(tmp_path, "b", "patient,os_days,os_event\nQ,390,1"),
    ]
    rows, conflicts = merged(sources, declared(sources))
    assert [(row.session, *cells(row, "os_days", "mgmt")) for row in rows] == [
        ("11", "400", "1"),
        ("21", "250", "1"),
        ("b", "390", "1"),
    ]
    assert not conflicts


def test_a_cell_that_names_no_cohort_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"patient P, column same_as: 'B97'; expected cohort:patient"):
        declared([source(tmp_path, "a", "patient,same_as\nP,B97")])


def test_a_visit_of_labels_alone_gives_them_to_the_visit_with_scans(two, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("patient,pten,os_days,os_event,kps,same_as\nL4,1,1303,1,090,ucsf:X1\nL5,0,,,,\n")
    sources = [two[0], Source("labels", path, cohort.read(path, (), needed=()))]
    rows, _ = merged(sources, declared(sources))
    assert [(row.patient, *cells(row, "pten", "kps", "os_days")) for row in rows] == [
        ("004", "", "", "1303"),
        ("005", "", "", "274"),
        ("X1", "1", "090", "1303"),
        ("L5", "0", "", ""),
    ]


def test_a_merged_table_merges_on_with_those_whom_its_persons_are_said_to_be(tmp_path):
    a = source(tmp_path, "a", "patient,same_as\nU1,brats:B1")
    b = source(tmp_path, "b", "patient,same_as\nV1,brats:B1")
    rows, _ = merged([a, b], declared([a, b]))
    assert [row.patient for row in rows] == ["U1", "U1"]  # though brats itself is not there
    ab = source(tmp_path, "ab", "patient,same_as\nU1,a:U1 b:V1 brats:B1")
    both = [ab, source(tmp_path, "brats", "patient\nB1")]
    rows, _ = merged(both, declared(both))
    assert [row.patient for row in rows] == ["U1", "U1"]


def test_a_declared_patient_who_is_not_there_is_told(tmp_path):
    sources = [source(tmp_path, "a", "patient,same_as\nP,b:q b:Q elsewhere:Z"), source(tmp_path, "b", "patient\nQ")]
    assert [link.other for link in unknown(sources, declared(sources))] == [Subject("b", "q")]


def test_two_patients_of_one_cohort_who_are_one_person_may_disagree(tmp_path):
    sources = [source(tmp_path, "a", "patient,mgmt,same_as\nP1,1,\nP2,0,a:P1"), source(tmp_path, "b", "patient,mgmt\nQ,1")]
    rows, (conflict,) = merged(sources, declared(sources))
    assert [(row.patient, row.session, *cells(row, "mgmt")) for row in rows[:2]] == [("P1", "a", ""), ("P1", "a-2", "")]
    assert conflict.said == ((Subject("a", "P1"), ("1",)), (Subject("a", "P2"), ("0",)))


def test_a_marker_that_differs_between_visits_stays_with_them_and_others_are_told(tmp_path):
    table = "patient,session,mgmt,same_as\nP,11,1,b:Q\nP,21,0,b:Q"
    sources = [source(tmp_path, "a", table), source(tmp_path, "b", "patient,mgmt\nQ,0")]
    rows, (conflict,) = merged(sources, declared(sources))
    assert [cells(row, "mgmt") for row in rows] == [["1"], ["0"], ["0"]]
    assert (conflict.rule, conflict.value) == ("", OWN)


def test_names_stay_apart_whatever_their_case_and_prefixes(tmp_path):
    sources = [
        source(tmp_path, "a", "patient,same_as\nP1,\nb-P1,\nR,b:r"),
        source(tmp_path, "b", "patient,session\np1,\nr,pre\nr,Pre2"),
    ]
    rows, _ = merged(sources, declared(sources))
    names = [(row.patient, row.session) for row in rows]
    assert names == [("a-P1", ""), ("b-P1", ""), ("R", "a"), ("R", "pre"), ("R", "Pre2"), ("b-p1-2", "")]


def test_of_a_copy_s_cells_those_that_the_visit_lacks_are_taken(tmp_path):
    sources = [
        source(tmp_path, "a", "patient,age,mgmt\nP,50,1"),
        source(tmp_path, "b", "patient,kps,pten,os_days,os_event\nQ,90,0,300,1"),
    ]
    scans = [list(own.patients[0].scans.values()) for own in sources]
    hashes = {path: f"hash {index}" for paths in scans for index, path in enumerate(paths) if path}
    (row,), conflicts = merged(sources, by_voxels(sources, hashes), hashes)
    assert cells(row, "age", "mgmt", "kps", "pten", "os_days", "os_event") == ["50", "1", "90", "0", "300", "1"]
    assert not conflicts


def test_a_visit_without_scans_beside_others_of_its_patient_gives_markers_alone(tmp_path):
    table = source(tmp_path, "a", "patient,session,mgmt,os_days,os_event\nP,01,,,\nP,02,1,90,1")
    bare = [table.patients[0], replace(table.patients[1], scans=dict.fromkeys(table.patients[1].scans))]
    (row,), (left,) = merged([Source("a", table.table, bare)])
    assert (row.session, *cells(row, "mgmt", "os_days")) == ("01", "1", "")
    assert (left.said, left.rule) == (((Subject("a", "P"), ("90", "1")),), "of visits without scans, and left out")


def test_half_of_a_time_and_its_event_is_no_label(tmp_path):
    sources = [
        source(tmp_path, "a", "patient,os_days,same_as\nP,100,b:Q"),
        source(tmp_path, "b", "patient,os_days,os_event\nQ,90,1"),
    ]
    rows, _ = merged(sources, declared(sources))
    assert [cells(row, "os_days", "os_event") for row in rows] == [["", ""], ["90", "1"]]
