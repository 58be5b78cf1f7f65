"""The stage that looks: what it writes, whom it excludes, and that a reviewer overrules it."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
from made.browser import driven, open_page
from made.prepared import add_records
from PIL import Image
from rich.console import Console

from mri_vit.data import tokens
from mri_vit.data.cohort import Patient
from mri_vit.errors import IntegrityError, UsageError
from mri_vit.prepare.patient import kind_of_reason
from mri_vit.qc import check, page
from mri_vit.run import files
from mri_vit.settings.schema import Study
from mri_vit.settings.sections import Grid

NAMES = ("ann", "bob", "cid", "dot")
GRID = Grid(edge=8, spacing_mm=10.0, patch=2)


@pytest.fixture
def study(tmp_path):
    """Four prepared patients: bob's FLAIR is mirrored, and cid's T2 has ghosts."""
    made = Study(name="s", cohort=tmp_path / "cohort.csv", prepared=tmp_path / "prepared", output=tmp_path / "run", grid=GRID)
    made.output.mkdir()
    random = np.random.default_rng(0)
    brain = np.zeros((8, 8, 8), bool)
    brain[1:7, 1:7, 1:7] = True
    for name in NAMES:
        folder = made.prepared / name
        folder.mkdir(parents=True)
        tokens.save(tokens.from_volume(random.normal(size=(4, 8, 8, 8)), brain, made.grid, "-"), folder / files.TOKENS)
    add_records(made, NAMES)
    for name in NAMES:
        Image.new("RGB", (896, 722)).save(made.prepared / name / files.QC)
    change(made, "bob", "flair", own_to_mirrored=0.7, reversed=1.6)
    change(made, "cid", "t2", ghosts=0.2)
    return made


def change(study, name, scan, **figures):
    file = study.prepared / name / files.PATIENT
    record = json.loads(file.read_text())
    record["quality"]["scans"][scan] |= figures
    file.write_text(json.dumps(record))


def looked(study, unprepared=()):
    patients = [Patient(name, {}, {}, {}) for name in (*NAMES, *(row["patient"] for row in unprepared))]
    return looked_at(study, patients, unprepared)


def looked_at(study, patients, unprepared=()):
    decided = check.decisions_of(study, {patient.id for patient in patients}, lambda said: None)
    return check.check_cohort(study, patients, list(unprepared), decided, study.output, Console(quiet=True))


def rows(study, name):
    with (study.output / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_is_wrong_excludes_and_what_is_poor_flags(study):
    found = looked(study)
    assert [row["patient"] for row in found.excluded] == ["bob"]
    reason = rows(study, files.EXCLUDED)[0]["reason"]
    assert "flair is mirrored" in reason
    assert kind_of_reason(reason) == "qc: flair mirrored"
    assert [(row["patient"], row["reason"], row["became"]) for row in rows(study, files.FINDINGS)] == [
        ("bob", "mirrored", "excluded"),
        ("cid", "ghosts", "flagged"),
    ]


def test_a_study_chooses_which_reasons_exclude(study):
    chosen = study.model_copy(update={"qc": study.qc.model_copy(update={"exclude": ("ghosts",)})})
    assert [row["patient"] for row in looked(chosen).excluded] == ["cid"]


def test_those_who_could_not_be_prepared_stay_excluded_in_the_tables_order(study):
    found = looked(study, [{"patient": "eve", "file": "t1.nii", "reason": "0 bytes"}])
    assert [row["patient"] for row in found.excluded] == ["bob", "eve"]


def test_a_reviewers_decisions_beside_the_cohort_table_overrule(study):
    table = "patient,decision,who,why\nbob,keep,Dr A,checked against the DICOM\ndot,drop,Dr A,moved\n"
    (study.cohort.parent / files.DECISIONS).write_text(table)
    found = looked(study)
    assert found.excluded == [{"patient": "dot", "file": "", "reason": "dropped by a reviewer (Dr A: moved)"}]
    assert kind_of_reason(found.excluded[0]["reason"]) == "dropped by a reviewer"
    assert rows(study, files.FINDINGS)[0]["became"] == "kept"
    assert (study.output / files.DECISIONS).read_text() == table


def test_once_folds_are_made_who_is_excluded_stays_as_it_was(study):
    looked(study)
    (study.output / files.FOLDS).write_text("{}")
    before = {name: (study.output / name).read_bytes() for name in (files.EXCLUDED, files.FINDINGS, files.DECISIONS)}
    (study.cohort.parent / files.DECISIONS).write_text("patient,decision,who,why\nbob,keep,Dr A,fine\ndot,drop,Dr A,moved\n")
    with pytest.raises(UsageError, match=r"dot would be excluded; bob would be kept.*another output"):
        looked(study)
    assert before == {name: (study.output / name).read_bytes() for name in before}
    (study.cohort.parent / files.DECISIONS).write_text("patient,decision,who,why\ncid,keep,Dr A,only a ghost\n")
    assert [row["patient"] for row in looked(study).excluded] == ["bob"]


def test_decisions_of_another_cohort_in_the_same_folder_are_passed_over_and_named_ones_are_refused(study):
    table = study.cohort.parent / files.DECISIONS
    table.write_text("patient,decision,who,why\nzoe,drop,Dr A,moved\nbob,keep,Dr A,fine\n")
    said = []
    assert list(check.decisions_of(study, set(NAMES), said.append)) == ["bob"]
    assert "1 decisions" in said[0]
    assert "zoe" in said[0]
    named = study.model_copy(update={"qc": study.qc.model_copy(update={"decisions": table})})
    with pytest.raises(UsageError, match="'zoe' is not in the cohort table"):
        check.decisions_of(named, set(NAMES), said.append)


def test_a_copy_under_another_name_is_flagged_on_both_and_a_visit_is_not(study):
    shutil.copy(study.prepared / "ann" / files.TOKENS, study.prepared / "dot" / files.TOKENS)
    duplicates = [(row["patient"], row["words"]) for row in stage_rows(study) if row["reason"] == "near-duplicate"]
    assert [name for name, _ in duplicates] == ["ann", "dot"]
    assert "looks like dot" in duplicates[0][1]
    for name, visit in (("ann", "eve_1"), ("dot", "eve_2")):
        (study.prepared / name).rename(study.prepared / visit)
    visits = [Patient(f"eve_{n}", {}, {}, {}, session=n) for n in ("1", "2")] + [
        Patient("bob", {}, {}, {}),
        Patient("cid", {}, {}, {}),
    ]
    looked_at(study, visits)
    assert not [row for row in rows(study, files.FINDINGS) if row["reason"] == "near-duplicate"]


def stage_rows(study):
    looked(study)
    return rows(study, files.FINDINGS)


def test_the_page_has_the_worst_first_and_every_picture(study):
    page.write(study, looked(study), study.output / files.QC_FOLDER, Console(quiet=True))
    text = (study.output / files.QC_FOLDER / files.PAGE).read_text()
    positions = [text.index(f'<article id="{name}"') for name in ("bob", "cid", "ann", "dot")]
    assert positions == sorted(positions)
    pictures = {file.name for file in (study.output / files.QC_FOLDER).glob("*.webp")}
    assert pictures == {f"{name}.webp" for name in NAMES}
    assert all(f'"{name}"' in text for name in pictures)
    assert "http" not in text  # it opens offline


def test_pictures_have_their_place_before_they_are_loaded_and_are_loaded_where_they_are_looked_at(study):
    page.write(study, looked(study), study.output / files.QC_FOLDER, Console(quiet=True))
    text = (study.output / files.QC_FOLDER / files.PAGE).read_text()
    pictures = re.findall(r"<img [^>]*src=[^>]*>", text)
    assert len(pictures) == len(NAMES)
    assert all('loading="lazy"' in tag and 'width="896" height="722"' in tag for tag in pictures)
    assert "data:" not in text
    cards = text.split("<article")[1:]
    assert max(map(len, cards[:-1])) < 4000  # letters: 20 MB of page for 5,000 patients


def test_pictures_stand_side_by_side_as_wide_as_the_window_lets_them(study, tmp_path):
    page.write(study, looked(study), study.output / files.QC_FOLDER, Console(quiet=True))
    home = study.output / files.QC_FOLDER
    measure = """
    const told = {};
    for (const width of [1920, 1280, 400]) {
      document.body.style.width = `${width}px`;
      const boxes = [...document.querySelectorAll(".picture img")].map((one) => one.getBoundingClientRect());
      told[width] = [new Set(boxes.map((box) => box.left)).size, boxes[0].width, boxes[0].width / boxes[0].height];
    }
    document.body.dataset.told = JSON.stringify(told);"""
    told = open_page(home, driven(home / files.PAGE, measure), tmp_path, (1920, 1080)).told("told")
    assert {width: columns for width, (columns, _, _) in told.items()} == {"1920": 3, "1280": 2, "400": 1}
    for width, (columns, picture, ratio) in told.items():
        assert columns * picture > 0.85 * int(width)  # beside pictures there is no empty space
        assert ratio == pytest.approx(896 / 722, rel=0.01)
    assert min(told["1920"][1], told["1280"][1]) > 4 * 140  # four scans in a row


def test_a_scans_row_says_how_far_from_the_others_it_is_what_its_field_of_view_holds_and_what_bias_correction_left(study):
    file = study.prepared / "cid" / files.PATIENT
    record = json.loads(file.read_text())
    record["steps"] += [
        {"step": "overlap", "shares": {"t2": 0.93}},
        {"step": "bias", "scans": {"t2": {"lesion_like_contrast": [1.25, 1.5]}}},
    ]
    file.write_text(json.dumps(record))
    found = looked(study)
    far = {"likeness": {"t2": {"cid": -4.25}}, "histogram": {}}
    page.write(study, dataclasses.replace(found, deviations=far), study.output / files.QC_FOLDER, Console(quiet=True))
    text = (study.output / files.QC_FOLDER / files.PAGE).read_text()
    row = next(line for line in text.split('id="cid"')[1].splitlines() if '<th scope="row">t2' in line)
    cells = re.findall("<td>(.*?)</td>", row)
    assert len(cells) == len(page.COLUMNS_OF_SCAN)
    assert cells[-4:] == ["−4.2", "–", "0.93", "1.25 to 1.50"]


def test_a_page_is_written_anew_and_nothing_else_is_written_over(study):
    home = study.output / files.QC_FOLDER
    page.write(study, looked(study), home, Console(quiet=True))
    shutil.rmtree(study.prepared / "dot")
    fewer = looked_at(study, [Patient(name, {}, {}, {}) for name in NAMES[:3]])
    page.write(study, fewer, home, Console(quiet=True))
    assert not list(home.glob("dot*"))
    (home / "notes.txt").write_text("mine")
    with pytest.raises(Exception, match=r"notes\.txt"):
        page.write(study, fewer, home, Console(quiet=True))


def test_a_record_that_lost_its_figures_is_named_with_what_to_do(study):
    file = study.prepared / "bob" / files.PATIENT
    record = json.loads(file.read_text())
    del record["quality"]
    file.write_text(json.dumps(record))
    with pytest.raises(IntegrityError, match=r"bob.*no 'quality'.*delete its folder"):
        looked(study)
