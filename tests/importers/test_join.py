"""Merging cohorts: each person stands once, with all labels, and in one fold; what disagrees is empty unless a rule decides."""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mri_vit.cli import app
from mri_vit.crossval import folds
from mri_vit.data import cohort
from mri_vit.data.volume import Volume, read, write
from mri_vit.errors import UsageError
from mri_vit.importers.join import OWN, Conflict, Row, merge_cohorts
from mri_vit.importers.persons import Link, SourceCohort, Subject, declared_links, links_by_voxels, person_numbers, unknown_links
from mri_vit.settings.schema import Endpoint, Train

COMMON, DISAGREE = 247, 27  # patients of UCSF-PDGM with a label in RSNA-MICCAI as well, and those whose labels differ
UCSF_ALONE, RSNA_ALONE = 12, 30
MGMT = Endpoint(name="mgmt", kind="binary")
STUDY = """
name = "both"
cohort = "cohort.csv"
prepared = "prepared"
output = "run"
seed = 0

[[endpoints]]
name = "mgmt"
kind = "binary"
{0}
"""


def run(*arguments: str | Path) -> int:
    return app([str(one) for one in arguments], result_action="return_value")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables such as the two collections publish, imported. Where the index is 1, RSNA-MICCAI has another label in 27."""
    home = tmp_path_factory.mktemp("collections")
    ucsf, rsna = ["ID,MGMT status,MGMT index,1-dead 0-alive,OS,BraTS21 ID"], ["BraTS21ID,MGMT_value"]
    for n in range(COMMON + UCSF_ALONE):
        methylated = n % 3 > 0 and n >= DISAGREE
        index = 1 if n < DISAGREE else 6 if methylated else 0
        brats = f"BraTS2021_{n + 2000:05}" if n < COMMON else ""
        ucsf.append(f"UCSF-PDGM-{n + 1:03},{'positive' if methylated else 'negative'},{index},1,{n + 100},{brats}")
        if brats:
            rsna.append(f"{n + 2000:05},{int(methylated or index == 1)}")
    rsna += [f"{n + 3000:05},{n % 2}" for n in range(RSNA_ALONE)]
    for layout, name, lines in (("ucsf_pdgm", "UCSF-PDGM-metadata_v2.csv", ucsf), ("rsna_miccai", "train_labels.csv", rsna)):
        (home / "source" / layout).mkdir(parents=True)
        (home / "source" / layout / name).write_text("\n".join([*lines, ""]))
        assert run("import", layout, home / "source" / layout, "-o", home / layout) == 0
    return home


def test_two_collections_of_the_same_people_make_one_table_of_persons(imported: Path, tmp_path: Path) -> None:
    assert run("cohort", "merge", imported / "ucsf_pdgm", imported / "rsna_miccai", "-o", tmp_path) == 3
    table = rows(tmp_path / "cohort.csv")
    assert len({row["patient"] for row in table}) == COMMON + UCSF_ALONE + RSNA_ALONE
    assert Counter(row["cohort"] for row in table if row["scan_cohort"] == "rsna_miccai") == {
        "ucsf_pdgm": COMMON,
        "rsna_miccai": RSNA_ALONE,
    }
    people = rows(tmp_path / "people.csv")
    assert len(people) == 2 * COMMON + UCSF_ALONE + RSNA_ALONE
    assert Counter(row["joined_by"] for row in people) == {
        "same_as of ucsf_pdgm; same_as of rsna_miccai": 2 * COMMON,
        "": UCSF_ALONE + RSNA_ALONE,
    }


def test_labels_that_disagree_are_empty_and_listed_with_what_each_cohort_says(imported: Path, tmp_path: Path) -> None:
    run("cohort", "merge", imported / "ucsf_pdgm", imported / "rsna_miccai", "-o", tmp_path)
    conflicts = rows(tmp_path / "conflicts.csv")
    assert Counter((row["cohort"], row["says"], row["rule"], row["value"]) for row in conflicts) == {
        ("ucsf_pdgm", "0", "", ""): DISAGREE,
        ("rsna_miccai", "1", "", ""): DISAGREE,
    }
    patients = {row["patient"] for row in conflicts}
    empty = {row["patient"] for row in rows(tmp_path / "cohort.csv") if not row["mgmt"]}
    assert empty == patients
    index = {row["patient"]: row["mgmt_index"] for row in rows(tmp_path / "cohort.csv") if row["mgmt_index"]}
    assert {index[patient] for patient in patients} == {"1"}


@pytest.mark.parametrize(("right", "value"), [("ucsf_pdgm", "0"), ("rsna_miccai", "1")])
def test_a_disagreement_is_settled_by_the_study_file_alone(imported: Path, tmp_path: Path, right: str, value: str) -> None:
    (tmp_path / "study.toml").write_text(STUDY.format(f'prefer = "{right}"'))
    both = imported / "ucsf_pdgm", imported / "rsna_miccai"
    assert run("cohort", "merge", *both, "-o", tmp_path / "out", "--study", tmp_path / "study.toml") == 0
    conflicts = rows(tmp_path / "out" / "conflicts.csv")
    assert {(row["rule"], row["value"]) for row in conflicts} == {(f"mgmt is that of {right}", value)}
    patients = {row["patient"] for row in conflicts}
    assert {row["mgmt"] for row in rows(tmp_path / "out" / "cohort.csv") if row["patient"] in patients} == {value}


def test_folds_hold_every_person_once_and_a_cohort_can_be_left_out(imported: Path, tmp_path: Path) -> None:
    run("cohort", "merge", imported / "rsna_miccai", imported / "ucsf_pdgm", "-o", tmp_path)
    patients = [p for p in cohort.read(tmp_path / "cohort.csv", (MGMT,), needed=()) if not np.isnan(p.labels["mgmt"])]
    assert len(patients) > len({p.subject for p in patients})  # some have two visits
    subject = {p.id: p.subject for p in patients}
    for train in (Train(folds=5), Train(leave_out="cohort"), Train(leave_out="site")):
        (split,) = folds.make(patients, (MGMT,), train, seed=0)
        held = [{subject[visit] for visit in fold} for fold in split]
        assert sum(map(len, held)) == len(set.union(*held)) == len(set(subject.values()))  # in one fold each
        assert sum(map(len, split)) == len(patients)
    (split,) = folds.make(patients, (MGMT,), Train(leave_out="cohort"), seed=0)
    assert sorted(len({subject[visit] for visit in fold}) for fold in split) == [UCSF_ALONE, COMMON + RSNA_ALONE - DISAGREE]


@pytest.mark.long
def test_a_patient_under_two_ids_is_found_by_voxels_and_a_copy_by_its_likeness(shared: Path, tmp_path: Path) -> None:
    for name, copy, own in (("a", "P1", "BraTS2021_01477"), ("a", "P2", "BraTS2021_01479"), ("b", "Q1", "BraTS2021_01477")):
        (tmp_path / name / copy).mkdir(parents=True)
        for channel in ("t1", "t1ce", "t2", "flair"):
            shutil.copy(shared / "data" / "tumours" / own / f"{channel}.nii.gz", tmp_path / name / copy)
    scan = read(shared / "data" / "tumours" / "BraTS2021_01479" / "flair.nii.gz")
    (tmp_path / "b" / "Q2").mkdir()
    bent = (3 * np.maximum(scan.array, 0) ** 0.8).astype(np.float32)
    write(Volume(bent, scan.affine), tmp_path / "b" / "Q2" / "flair.nii.gz")  # other voxels, one brain
    for name in ("a", "b"):
        run("import", "plain", tmp_path / name, "-o", tmp_path / f"cohort_{name}")
    assert run("cohort", "merge", tmp_path / "cohort_a", tmp_path / "cohort_b", "-o", tmp_path / "out") == 3
    assert [row["patient"] for row in rows(tmp_path / "out" / "cohort.csv")] == ["P1", "P2", "Q2"]
    (pair,) = rows(tmp_path / "out" / "alike.csv")
    assert (pair["patient"], pair["other_patient"]) == ("P2", "Q2")
    assert float(pair["correlation"]) > 0.9
    assert {row["joined_by"] for row in rows(tmp_path / "out" / "people.csv")} == {"scans of the same voxels", ""}


def test_a_merged_cohort_goes_on_to_be_merged_and_written_again(imported: Path, tmp_path: Path) -> None:
    (tmp_path / "brats").mkdir()
    lines = [f"BraTS2021_{n + 2000:05},1" for n in range(COMMON)]
    (tmp_path / "brats" / "cohort.csv").write_text("\n".join(["patient,idh,cohort", *(f"{x},brats2021" for x in lines), ""]))
    for _ in range(2):  # the second time over our own
        run("cohort", "merge", imported / "ucsf_pdgm", imported / "rsna_miccai", "-o", tmp_path / "both")
    run("cohort", "merge", tmp_path / "both", tmp_path / "brats", "-o", tmp_path / "all")
    table = rows(tmp_path / "all" / "cohort.csv")
    assert len({row["patient"] for row in table}) == COMMON + UCSF_ALONE + RSNA_ALONE
    assert {row["idh"] for row in table if row["patient"] == "UCSF-PDGM-0001"} == {"1"}
    said = {(row["cohort"], row["patient_there"]) for row in rows(tmp_path / "all" / "provenance.csv") if row["column"] == "idh"}
    assert ("brats2021", "BraTS2021_02000") in said


def test_a_table_that_is_somebody_s_stays(imported: Path, tmp_path: Path) -> None:
    (tmp_path / "cohort.csv").write_text("patient\nmine\n")
    with pytest.raises(UsageError, match="mri-vit did not write it"):
        run("cohort", "merge", imported / "ucsf_pdgm", imported / "rsna_miccai", "-o", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["cohort.csv"]


def test_a_folder_s_name_that_is_no_name_for_a_cohort_is_refused(imported: Path, tmp_path: Path) -> None:
    (tmp_path / "my cohort").mkdir()
    (tmp_path / "my cohort" / "cohort.csv").write_text("patient\nP1\n")
    with pytest.raises(UsageError, match="the cohort's name is 'my cohort'; expected letters"):
        run("cohort", "merge", imported / "ucsf_pdgm", tmp_path / "my cohort", "-o", tmp_path / "out")


def test_files_of_further_sequences_are_found_from_the_new_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cohort.csv").write_text("patient,adc\n" + f"{name}1,scans/{name}.nii.gz\n")
    run("cohort", "merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "deep" / "out")
    assert [row["adc"] for row in rows(tmp_path / "deep" / "out" / "cohort.csv")] == [
        "../../a/scans/a.nii.gz",
        "../../b/scans/b.nii.gz",
    ]


def test_cohorts_of_one_name_are_not_merged(imported: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two or more cohorts of different names, found ucsf_pdgm, ucsf_pdgm"):
        run("cohort", "merge", imported / "ucsf_pdgm", imported / "ucsf_pdgm" / "cohort.csv", "-o", tmp_path)


def test_folders_of_one_name_do_not_join_their_patients(tmp_path: Path) -> None:
    for home, name in (("h1", "cohort"), ("h1", "z"), ("h2", "cohort")):
        (tmp_path / home / name).mkdir(parents=True)
        (tmp_path / home / name / "cohort.csv").write_text(f"patient,mgmt\n{'Z' if name == 'z' else 'P1'},1\n")
    run("cohort", "merge", tmp_path / "h1" / "cohort", tmp_path / "h1" / "z", "-o", tmp_path / "all")
    run("cohort", "merge", tmp_path / "all", tmp_path / "h2" / "cohort", "-o", tmp_path / "more")
    assert [row["patient"] for row in rows(tmp_path / "more" / "cohort.csv")] == ["all-P1", "Z", "cohort-P1"]


def test_a_table_that_our_reader_would_refuse_is_not_written(tmp_path: Path) -> None:
    for name, table in (("a", "patient,session\nP1,1\nP1,2\n"), ("b", "patient\nP1_2\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cohort.csv").write_text(table)
    with pytest.raises(UsageError, match="patient id 'P1_2'"):
        run("cohort", "merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_an_endpoint_by_another_name_settles_its_columns(tmp_path: Path) -> None:
    for name, days in (("a", 100), ("b", 120)):
        scan = tmp_path / name / "s.nii.gz"
        scan.parent.mkdir()
        write(Volume(np.arange(8000, dtype=np.float32).reshape(20, 20, 20), np.diag([8.0, 8, 8, 1])), scan)
        (scan.parent / "cohort.csv").write_text(f"patient,t1,os_days,os_event\nP{name},s.nii.gz,{days},1\n")
    survival = 'name = "survival"\nkind = "survival"\ntime = "os_days"\nevent = "os_event"\nprefer = "a"'
    (tmp_path / "study.toml").write_text(STUDY.format("").replace('name = "mgmt"\nkind = "binary"', survival))
    run("cohort", "merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "out", "--study", tmp_path / "study.toml")
    conflicts = rows(tmp_path / "out" / "conflicts.csv")
    assert {(row["endpoint"], row["rule"], row["value"]) for row in conflicts} == {("survival", "survival is that of a", "100 1")}


def test_somebody_s_table_of_people_stays(imported: Path, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("mine")
    with pytest.raises(UsageError, match=r"people\.csv: mri-vit did not write it"):
        run("cohort", "merge", imported / "ucsf_pdgm", imported / "rsna_miccai", "-o", tmp_path)


PTEN = Endpoint(name="pten", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")


def source(folder: Path, name: str, table: str) -> SourceCohort:
    """A cohort of this table, whose header names no scan columns: each patient's four are there by name."""
    header, *lines = table.strip().split("\n")
    scans = ["t1", "t1ce", "t2", "flair"]
    rows_of = []
    for line in lines:
        patient = "-".join(line.split(",")[:2])
        rows_of.append(f"{line},{','.join(f'{name}-{patient}-{channel}.nii.gz' for channel in scans)}")
    path = folder / f"{name}.csv"
    path.write_text("\n".join([f"{header},{','.join(scans)}", *rows_of]) + "\n")
    return SourceCohort(name, path, cohort.read(path, ()))


@pytest.fixture
def two(tmp_path) -> list[SourceCohort]:
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
    return merge_cohorts(sources, person_numbers(sources, links), hashes or {}, endpoints)


def cells(row: Row, *names: str) -> list[str]:
    return [row.cells[name].value if name in row.cells else "" for name in names]


def test_declared_patients_are_one_person_and_others_keep_to_themselves(two):
    links = declared_links(two)
    assert links == [Link(Subject("ucsf", "004"), Subject("brats", "B97"), "same_as of ucsf")]
    rows_of, _ = merged(two, links)
    assert [(row.patient, row.session) for row in rows_of] == [
        ("004", "ucsf"),
        ("004", "brats"),
        ("005", ""),
        ("ucsf-X1", ""),
        ("brats-X1", ""),
        ("B98", ""),
    ]


def test_markers_are_the_person_s_and_what_is_of_a_visit_stays_with_it(two):
    """Scans of other voxels may be of another day: neither survival nor age goes from one to the other."""
    rows_of, conflicts = merged(two, declared_links(two))
    first, second = rows_of[:2]
    assert cells(first, "mgmt", "pten", "os_days", "os_event", "age") == ["", "1", "1303", "1", "66"]
    assert cells(second, "mgmt", "pten", "os_days", "os_event", "age") == ["", "1", "", "", ""]
    assert second.cells["pten"].sources == (Subject("brats", "B97"),)
    said = ((Subject("ucsf", "004"), ("0",)), (Subject("brats", "B97"), ("1",)))
    assert conflicts == [Conflict("004", "mgmt", said, "", ("",))]


def test_a_rule_settles_a_disagreement_and_is_written_beside_it(two):
    rows_of, conflicts = merged(two, declared_links(two), prefer="brats")
    assert cells(rows_of[0], "mgmt") == cells(rows_of[1], "mgmt") == ["1"]
    assert (conflicts[0].rule, conflicts[0].value) == ("mgmt is that of brats", ("1",))
    with pytest.raises(UsageError, match="endpoint mgmt prefers 'tcga', which is not merged"):
        merged(two, prefer="tcga")


def test_of_scans_with_the_same_voxels_throughout_the_first_stays(two):
    scans = [list(patient.scans.values()) for patient in (two[0].patients[1], two[1].patients[2])]
    hashes = {path: f"hash {index}" for paths in scans for index, path in enumerate(paths) if path}
    links = links_by_voxels(two, hashes)
    assert [(link.one, link.other) for link in links] == 4 * [(Subject("ucsf", "005"), Subject("brats", "B98"))]
    rows_of, conflicts = merged(two, links, hashes)
    kept = [(row.session, *cells(row, "mgmt", "os_days", "age")) for row in rows_of if row.patient == "005"]
    assert kept == [("", "1", "274", "80")]
    assert not conflicts
    one = {path: value for path, value in hashes.items() if value == "hash 0"}  # one scan alone is the same
    rows_of, _ = merged(two, links_by_voxels(two, one), one)
    assert [row.session for row in rows_of if row.patient == "005"] == ["ucsf", "brats"]


def test_scans_of_one_value_are_nobodys(two):
    blank = {path: "" for own in two for patient in own.patients for path in patient.scans.values() if path}
    assert links_by_voxels(two, blank) == []


def test_links_go_on_through_others(tmp_path):
    three = [
        source(tmp_path, "a", "patient,same_as\nP,b:Q"),
        source(tmp_path, "b", "patient,same_as\nQ,c:R nowhere:Z b:unknown"),
        source(tmp_path, "c", "patient\nR\nS"),
    ]
    person = person_numbers(three, declared_links(three))
    assert [person[Subject(*name)] for name in (("a", "P"), ("b", "Q"), ("c", "R"), ("c", "S"))] == [0, 0, 0, 1]
    rows_of, _ = merged(three, declared_links(three))
    assert [(row.patient, row.session) for row in rows_of] == [("P", "a"), ("P", "b"), ("P", "c"), ("S", "")]


def test_survival_of_patients_with_several_visits_stays_with_the_visit(tmp_path):
    """Time counts from imaging, and which visit of one cohort is that of another is not known."""
    sources = [
        source(tmp_path, "a", "patient,session,os_days,os_event,mgmt,same_as\nP,11,400,1,1,b:Q\nP,21,250,1,1,b:Q"),
        source(tmp_path, "b", "patient,os_days,os_event\nQ,390,1"),
    ]
    rows_of, conflicts = merged(sources, declared_links(sources))
    assert [(row.session, *cells(row, "os_days", "mgmt")) for row in rows_of] == [
        ("11", "400", "1"),
        ("21", "250", "1"),
        ("b", "390", "1"),
    ]
    assert not conflicts


def test_a_cell_that_names_no_cohort_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"patient P, column same_as: 'B97'; expected cohort:patient"):
        declared_links([source(tmp_path, "a", "patient,same_as\nP,B97")])


def test_a_visit_of_labels_alone_gives_them_to_the_visit_with_scans(two, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("patient,pten,os_days,os_event,kps,same_as\nL4,1,1303,1,090,ucsf:X1\nL5,0,,,,\n")
    sources = [two[0], SourceCohort("labels", path, cohort.read(path, (), needed=()))]
    rows_of, _ = merged(sources, declared_links(sources))
    assert [(row.patient, *cells(row, "pten", "kps", "os_days")) for row in rows_of] == [
        ("004", "", "", "1303"),
        ("005", "", "", "274"),
        ("X1", "1", "090", "1303"),
        ("L5", "0", "", ""),
    ]


def test_a_merged_table_merges_on_with_those_whom_its_persons_are_said_to_be(tmp_path):
    a = source(tmp_path, "a", "patient,same_as\nU1,brats:B1")
    b = source(tmp_path, "b", "patient,same_as\nV1,brats:B1")
    rows_of, _ = merged([a, b], declared_links([a, b]))
    assert [row.patient for row in rows_of] == ["U1", "U1"]  # though brats itself is not there
    ab = source(tmp_path, "ab", "patient,same_as\nU1,a:U1 b:V1 brats:B1")
    both = [ab, source(tmp_path, "brats", "patient\nB1")]
    rows_of, _ = merged(both, declared_links(both))
    assert [row.patient for row in rows_of] == ["U1", "U1"]


def test_a_declared_patient_who_is_not_there_is_told(tmp_path):
    sources = [source(tmp_path, "a", "patient,same_as\nP,b:q b:Q elsewhere:Z"), source(tmp_path, "b", "patient\nQ")]
    assert [link.other for link in unknown_links(sources, declared_links(sources))] == [Subject("b", "q")]


def test_two_patients_of_one_cohort_who_are_one_person_may_disagree(tmp_path):
    sources = [source(tmp_path, "a", "patient,mgmt,same_as\nP1,1,\nP2,0,a:P1"), source(tmp_path, "b", "patient,mgmt\nQ,1")]
    rows_of, (conflict,) = merged(sources, declared_links(sources))
    assert [(row.patient, row.session, *cells(row, "mgmt")) for row in rows_of[:2]] == [("P1", "a", ""), ("P1", "a-2", "")]
    assert conflict.statements == ((Subject("a", "P1"), ("1",)), (Subject("a", "P2"), ("0",)))


def test_a_marker_that_differs_between_visits_stays_with_them_and_others_are_told(tmp_path):
    table = "patient,session,mgmt,same_as\nP,11,1,b:Q\nP,21,0,b:Q"
    sources = [source(tmp_path, "a", table), source(tmp_path, "b", "patient,mgmt\nQ,0")]
    rows_of, (conflict,) = merged(sources, declared_links(sources))
    assert [cells(row, "mgmt") for row in rows_of] == [["1"], ["0"], ["0"]]
    assert (conflict.rule, conflict.value) == ("", OWN)


def test_names_stay_apart_whatever_their_case_and_prefixes(tmp_path):
    sources = [
        source(tmp_path, "a", "patient,same_as\nP1,\nb-P1,\nR,b:r"),
        source(tmp_path, "b", "patient,session\np1,\nr,pre\nr,Pre2"),
    ]
    rows_of, _ = merged(sources, declared_links(sources))
    names = [(row.patient, row.session) for row in rows_of]
    assert names == [("a-P1", ""), ("b-P1", ""), ("R", "a"), ("R", "pre"), ("R", "Pre2"), ("b-p1-2", "")]


def test_of_a_copy_s_cells_those_that_the_visit_lacks_are_taken(tmp_path):
    sources = [
        source(tmp_path, "a", "patient,age,mgmt\nP,50,1"),
        source(tmp_path, "b", "patient,kps,pten,os_days,os_event\nQ,90,0,300,1"),
    ]
    scans = [list(own.patients[0].scans.values()) for own in sources]
    hashes = {path: f"hash {index}" for paths in scans for index, path in enumerate(paths) if path}
    (row,), conflicts = merged(sources, links_by_voxels(sources, hashes), hashes)
    assert cells(row, "age", "mgmt", "kps", "pten", "os_days", "os_event") == ["50", "1", "90", "0", "300", "1"]
    assert not conflicts


def test_a_visit_without_scans_beside_others_of_its_patient_gives_markers_alone(tmp_path):
    table = source(tmp_path, "a", "patient,session,mgmt,os_days,os_event\nP,01,,,\nP,02,1,90,1")
    bare = [table.patients[0], replace(table.patients[1], scans=dict.fromkeys(table.patients[1].scans))]
    (row,), (left,) = merged([SourceCohort("a", table.table, bare)])
    assert (row.session, *cells(row, "mgmt", "os_days")) == ("01", "1", "")
    assert (left.statements, left.rule) == (((Subject("a", "P"), ("90", "1")),), "of visits without scans, and left out")


def test_half_of_a_time_and_its_event_is_no_label(tmp_path):
    sources = [
        source(tmp_path, "a", "patient,os_days,same_as\nP,100,b:Q"),
        source(tmp_path, "b", "patient,os_days,os_event\nQ,90,1"),
    ]
    rows_of, _ = merged(sources, declared_links(sources))
    assert [cells(row, "os_days", "os_event") for row in rows_of] == [["", ""], ["90", "1"]]
