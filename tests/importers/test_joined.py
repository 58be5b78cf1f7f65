"""Merging: a person stands once, with all labels, and what cohorts disagree about is empty unless a rule says who is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from mri_vit.data import cohort
from mri_vit.errors import UsageError
from mri_vit.importers.joined import Conflict, Row, columns, merge
from mri_vit.importers.persons import Link, Source, Subject, by_voxels, declared, joined
from mri_vit.settings.schema import Endpoint

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


def test_labels_of_all_cohorts_are_the_person_s_and_ages_stay_with_their_visit(two):
    rows, conflicts = merged(two, declared(two))
    first, second = rows[:2]
    assert first.labels == second.labels == {"mgmt": "", "pten": "1", "os_days": "1303", "os_event": "1"}
    assert conflicts == [Conflict("004", "mgmt", {"ucsf": ("0",), "brats": ("1",)}, "", ("",))]
    assert (first.visit.clinical["age"], second.visit.clinical.get("age")) == ("66", None)
    assert columns(rows) == ["age"]


def test_a_rule_settles_a_disagreement_and_is_written_beside_it(two):
    rows, conflicts = merged(two, declared(two), prefer="brats")
    assert rows[0].labels["mgmt"] == rows[1].labels["mgmt"] == "1"
    assert (conflicts[0].rule, conflicts[0].value) == ("mgmt is that of brats", ("1",))
    with pytest.raises(UsageError, match="endpoint mgmt prefers 'tcga', which is not merged"):
        merged(two, prefer="tcga")


def test_of_scans_with_the_same_voxels_throughout_the_first_stays(two):
    scans = [list(patient.scans.values()) for patient in (two[0].patients[1], two[1].patients[2])]
    hashes = {path: f"hash {index}" for paths in scans for index, path in enumerate(paths) if path}
    links = by_voxels(two, hashes)
    assert [(link.one, link.other) for link in links] == 4 * [(Subject("ucsf", "005"), Subject("brats", "B98"))]
    rows, conflicts = merged(two, links, hashes)
    assert [(row.patient, row.session, row.labels["mgmt"]) for row in rows if row.patient == "005"] == [("005", "", "1")]
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
    assert list(joined(three, declared(three)).values()) == [0, 0, 0, 1]
    rows, _ = merged(three, declared(three))
    assert [(row.patient, row.session) for row in rows] == [("P", "a"), ("P", "b"), ("P", "c"), ("S", "")]


def test_survival_of_patients_with_several_visits_stays_with_the_visit(tmp_path):
    """Time counts from imaging, and which visit of one cohort is that of another is not known."""
    sources = [
        source(tmp_path, "a", "patient,session,os_days,os_event,mgmt,same_as\nP,11,400,1,1,b:Q\nP,21,250,1,1,b:Q"),
        source(tmp_path, "b", "patient,os_days,os_event\nQ,390,1"),
    ]
    rows, conflicts = merged(sources, declared(sources))
    assert [(row.session, row.labels["os_days"], row.labels["mgmt"]) for row in rows] == [
        ("11", "400", "1"),
        ("21", "250", "1"),
        ("b", "390", "1"),
    ]
    assert not conflicts


def test_a_cell_that_names_no_cohort_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"patient P, column same_as: 'B97'; expected cohort:patient"):
        declared([source(tmp_path, "a", "patient,same_as\nP,B97")])


def test_a_visit_of_labels_alone_gives_them_to_the_visits_with_scans(two, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("patient,pten,same_as\nL4,1,ucsf:004\nL5,0,\n")
    sources = [two[0], Source("labels", path, cohort.read(path, (), needed=()))]
    rows, _ = merged(sources, declared(sources))
    assert [(row.patient, row.labels["pten"]) for row in rows] == [("004", "1"), ("005", ""), ("X1", ""), ("L5", "0")]
