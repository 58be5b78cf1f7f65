"""The predictions table: what is wrong with one is named with its row, and a leak in it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from mri_vit.data import predictions
from mri_vit.errors import BadNumbers, UsageError

HEAD = "patient,model,repeat,fold,endpoint,score,truth,time_days,event,session,threshold\n"


def table(folder: Path, rows: str, head: str = HEAD) -> Path:
    (folder / "predictions.csv").write_text(head + rows)
    return folder / "predictions.csv"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("p1,vit,0,0,mgmt,0.5,1,,,,\n" * 2, r"p1 is predicted more than once: rows \[2, 3\]"),
        ("p1,vit,0,0,mgmt,0.5,1,,,1,\np1,vit,0,1,mgmt,0.5,1,,,2,\n", "patient p1 is tested in 2 folds of one repeat by vit"),
        ("p1,vit,0,0,mgmt,0.5,1,,,1,\np1,vit,0,1,os,0.5,,9,1,1,\n", "patient p1 is tested in 2 folds"),
        (
            "p1,vit,0,0,mgmt,0.5,1,,,,0.4\np2,vit,0,0,mgmt,0.5,0,,,,0.6\n",
            "mgmt, model vit, repeat 0, fold 0: more than one threshold",
        ),
        ("p1,vit,0,0,mgmt,0.5,1,,,,0.4\np2,vit,0,0,mgmt,0.5,0,,,,\n", "more than one threshold"),
        ("p1,vit,0,0,mgmt,high,1,,,,\n", "row 2, column score: 'high'; expected a finite number"),
        ("p1,vit,0,0,mgmt,inf,1,,,,\n", "column score: 'inf'; expected a finite number"),
        ("p1,vit,0,0,mgmt,0.5,yes,,,,\n", "row 2, column truth: 'yes'"),
        ("p1,vit,0,0,mgmt,0.5,2,,,,\n", "row 2, column truth: '2.*'; expected 0, 1, or empty"),
        ("p1,vit,0,0,os,0.5,,9,2,,\n", "row 2, column event: '2.*'; expected 0, 1, or empty"),
        ("p1,vit,0,0,os,0.5,,-9,1,,\n", "row 2, column time_days: '-9.*'; expected days"),
        ("p1,vit,0,0.5,os,0.5,,9,1,,\n", "row 2, column fold: '0.5'; expected a whole number"),
        ("p1,,0,0,os,0.5,,9,1,,\n", "row 2: no model"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused_with_its_row(tmp_path, rows: str, message: str):
    with pytest.raises(UsageError, match=message):
        predictions.load(table(tmp_path, rows))


def test_a_missing_score_ends_as_a_diverged_training_does(tmp_path):
    with pytest.raises(BadNumbers, match="1 rows have no score, the first is row 3: p2"):
        predictions.load(table(tmp_path, "p1,vit,0,0,mgmt,0.5,1,,,,\np2,vit,0,0,mgmt,NaN,0,,,,\n"))


def test_a_table_from_elsewhere_needs_only_patient_endpoint_and_score(tmp_path):
    read = predictions.load(table(tmp_path, "007,mgmt,0.5\n1e5,mgmt,0.25\nNA,mgmt,0.75\n", head="patient,endpoint,score\n"))
    assert list(read.columns) == predictions.COLUMNS
    assert list(read.patient) == ["007", "1e5", "NA"]
    assert set(read.model) == {"model"}
    assert read.truth.isna().all()
    assert read.threshold.isna().all()


def test_a_table_of_a_spreadsheet_with_semicolons_is_read(tmp_path):
    read = predictions.load(table(tmp_path, "p1;mgmt;0.5\n", head="\ufeffpatient;endpoint;score\n"))
    assert read.score.tolist() == [0.5]


def test_a_table_without_a_needed_column_is_refused_with_what_was_found(tmp_path):
    with pytest.raises(UsageError, match="no column endpoint; found patient, score"):
        predictions.load(table(tmp_path, "p1,1\n", head="patient,score\n"))
    with pytest.raises(UsageError, match="no such table"):
        predictions.load(tmp_path / "nothing.csv")


def test_a_survival_outside_0_to_1_is_refused_with_its_row(tmp_path):
    (tmp_path / "survival.csv").write_text("patient,endpoint,horizon_days,survival\np1,os,365,0.5\np2,os,365,50\n")
    with pytest.raises(UsageError, match=r"row 3, column survival: '50\.0'; expected a probability"):
        predictions.load_survival(tmp_path / "survival.csv")


def test_a_written_table_is_read_back_and_written_again_with_the_same_bytes(tmp_path):
    first = table(tmp_path, "p1,vit,0,0,mgmt,0.123456789,1,,,,0.4\np2,vit,0,0,mgmt,1e-07,0,,,,0.4\n").read_bytes()
    predictions.save(predictions.load(tmp_path / "predictions.csv"), tmp_path / "again.csv")
    again = (tmp_path / "again.csv").read_bytes()
    predictions.save(predictions.load(tmp_path / "again.csv"), tmp_path / "third.csv")
    assert again == (tmp_path / "third.csv").read_bytes()
    assert b"0.123456789" in first
    assert b"0.123456789" in again
