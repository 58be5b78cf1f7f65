"""The verb that merges: two imported collections, what they disagree about, and folds that hold every person once."""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mri_vit.cli import app
from mri_vit.crossval import folds
from mri_vit.data import cohort
from mri_vit.data.volume import Volume, read, write
from mri_vit.errors import UsageError
from mri_vit.settings.endpoint import Endpoint
from mri_vit.settings.schema import Train

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
