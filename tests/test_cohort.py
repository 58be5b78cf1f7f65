"""The cohort table: what is wrong is named with its row, what is missing stays missing, and folds are fair."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mri_vit import cohort
from mri_vit.cohort import Patient
from mri_vit.config import Endpoint
from mri_vit.errors import IntegrityError, UsageError

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
HEAD = "patient,t1,t1ce,t2,flair,age,mgmt,os_days,os_event\n"


def table(folder: Path, *rows: str, head: str = HEAD) -> Path:
    path = folder / "cohort.csv"
    path.write_text(head + "".join(row + "\n" for row in rows))
    return path


def row(name: str, mgmt: str = "1", days: str = "100", event: str = "1") -> str:
    return f"{name},a.nii,b.nii,c.nii,d.nii,60,{mgmt},{days},{event}"


def test_labels_are_read_and_what_is_missing_stays_missing(tmp_path):
    patients = cohort.read(table(tmp_path, row("007", "1"), row("1e5", "NA", "", ""), row("x", "0", "5.5", "0")), (MGMT, OS))
    assert [p.id for p in patients] == ["007", "1e5", "x"]
    assert patients[0].labels == {"mgmt": 1.0, "os_days": 100.0, "os_event": 1.0}
    assert all(math.isnan(v) for v in patients[1].labels.values())
    assert patients[0].scans["t1ce"] == (tmp_path / "b.nii").resolve()
    assert patients[0].clinical == {"age": "60"}
    assert [p.knows(OS) for p in patients] == [True, False, True]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_marks_line_ends_and_separators_of_spreadsheets_are_read(tmp_path, encoding: str, separator: str):
    text = (HEAD + row("p1") + "\n\n").replace(",", separator).replace("\n", "\r\n")
    (tmp_path / "cohort.csv").write_bytes(text.encode(encoding))
    assert [p.id for p in cohort.read(tmp_path / "cohort.csv", (MGMT, OS))] == ["p1"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("a", "2")], r"row 2, column mgmt: '2'; expected 0, 1, or empty"),
        ([row("a"), row("b", "yes")], r"row 3, column mgmt: 'yes'"),
        ([row("a", "0.5")], "column mgmt: '0.5'"),
        ([row("a", days="-3")], r"row 2, column os_days: '-3'; expected days"),
        ([row("a", days="inf")], "column os_days"),
        ([row("a", days="0")], "an event on day 0"),
        ([row("a", days="")], "os_days and os_event must both be filled"),
        ([row("a", event="NA")], "os_days and os_event must both be filled"),
        ([row("a"), row("a")], "patient id 'a' in row 3 repeats 'a' in row 2"),
        ([row("a"), row("A")], "patient id 'A' in row 3 repeats 'a' in row 2"),
        ([row("../../x")], r"row 2: patient id '../../x'; expected"),
        ([row("/etc/x")], "patient id '/etc/x'"),
        ([row("C:\\x")], "patient id"),
        ([row("CON")], "patient id 'CON'"),
        ([row("a\u202eb")], "patient id"),
        ([row("x" * 300)], "patient id"),
        ([row("<script>")], "patient id '<script>'"),
        ([row("a").replace("60", "=cmd|x")], "row 2, column age: '=cmd|x' looks like a spreadsheet formula"),
        ([row("a") + ",extra"], "line 2: 10 cells; expected 9"),
        ([], "no patient"),
    ],
)
def test_a_wrong_table_is_refused_naming_row_and_column(tmp_path, rows: list[str], message: str):
    with pytest.raises(UsageError, match=message):
        cohort.read(table(tmp_path, *rows), (MGMT, OS))


def test_a_missing_column_gets_the_nearest_name(tmp_path):
    with pytest.raises(UsageError, match="no column 'mgmt'; the nearest one is 'mgmt_status'"):
        cohort.read(table(tmp_path, row("a"), head=HEAD.replace("mgmt", "mgmt_status")), (MGMT, OS))


def test_two_sessions_of_a_patient_are_refused_with_both_rows(tmp_path):
    rows = [f"{name},a,b,c,d,60,1,9,1,{session}" for name, session in (("a", "1"), ("a", "2"))]
    with pytest.raises(UsageError, match="sessions in rows 2 and 3"):
        cohort.read(table(tmp_path, *rows, head=HEAD.strip() + ",session\n"), (MGMT, OS))


def test_a_written_table_is_read_back_the_same(tmp_path):
    patients = cohort.read(table(tmp_path, row("a"), row("b", "", "1095.7275", "0"), row("c", "0", "", "")), (MGMT, OS))
    (tmp_path / "again.csv").write_bytes(cohort.dumps(patients))
    again = cohort.read(tmp_path / "again.csv", (MGMT, OS))
    assert [repr(p) for p in again] == [repr(p) for p in patients]


def patient(index: int, mgmt: float, event: float) -> Patient:
    days = math.nan if math.isnan(event) else 100.0 + index
    return Patient(f"p{index}", {}, {"mgmt": mgmt, "os_days": days, "os_event": event}, {})


label = st.sampled_from([0.0, 1.0, math.nan])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(label, label), min_size=12, max_size=60), st.integers(2, 4), st.integers(0, 99))
def test_folds_hold_everyone_once_and_balance_the_classes(labels: list[tuple[float, float]], k: int, seed: int):
    patients = [patient(i, mgmt, event) for i, (mgmt, event) in enumerate(labels)]
    ones = [sum(m == value for m, _ in labels) for value in (0, 1)]
    deaths = sum(e == 1 for _, e in labels)
    censored = sum(e == 0 for _, e in labels)
    if not sum(ones) + deaths + censored:
        with pytest.raises(UsageError, match="nothing to learn"):
            cohort.make_folds(patients, (MGMT, OS), k, 1, seed)
        return
    if (sum(ones) and min(ones) < k) or (deaths + censored and deaths < k):
        with pytest.raises(UsageError, match=f"{k} folds"):
            cohort.make_folds(patients, (MGMT, OS), k, 1, seed)
        return
    folds = cohort.make_folds(patients, (MGMT, OS), k, repeats=2, seed=seed)
    for division in folds:
        assert sorted(i for fold in division for i in fold) == sorted(p.id for p in patients)
        assert max(map(len, division)) - min(map(len, division)) <= 9  # strata are dealt one by one; nine pairs of classes
    assert folds == cohort.make_folds(patients, (MGMT, OS), k, repeats=2, seed=seed)


def test_each_fold_has_its_share_of_ones():
    patients = [patient(i, float(i % 3 == 0), float(i % 2)) for i in range(96)]
    for fold in cohort.make_folds(patients, (MGMT, OS), 4, 1, seed=3)[0]:
        assert sum(int(i[1:]) % 3 == 0 for i in fold) == 8


def test_the_tuning_split_takes_its_share_and_shares_nobody():
    patients = [patient(i, float(i % 2), 1.0) for i in range(40)]
    train, tune = cohort.tuning_split(patients, (MGMT, OS), 0.2, seed=1)
    assert (len(train), len(tune)) == (32, 8)
    assert not {p.id for p in train} & {p.id for p in tune}
    assert sum(p.labels["mgmt"] for p in tune) == 4


def test_folds_are_hashed_and_a_patient_in_two_folds_is_refused(tmp_path):
    first = cohort.save_folds([[["a"], ["b"]]], 0, tmp_path / "folds.json")
    assert first == cohort.save_folds([[["a"], ["b"]]], 0, tmp_path / "folds.json")
    assert first != cohort.save_folds([[["b"], ["a"]]], 0, tmp_path / "folds.json")
    (tmp_path / "folds.json").write_text(json.dumps({"repeats": [{"folds": [["a"], ["b"]]}]}))
    with pytest.raises(IntegrityError, match="was changed after"):
        cohort.load_folds(tmp_path / "folds.json")
    cohort.save_folds([[["a"], ["a"]]], 0, tmp_path / "folds.json")
    with pytest.raises(IntegrityError, match="two folds"):
        cohort.load_folds(tmp_path / "folds.json")
