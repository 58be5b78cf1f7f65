"""Decisions: a reviewer's table is read whole, or refused with the row."""

from __future__ import annotations

import pytest

from mri_vit.errors import UsageError
from mri_vit.qc import check

HEAD = "patient,decision,who,why\n"


def test_decisions_are_read_and_written_back_alike(tmp_path):
    file = tmp_path / "qc_decisions.csv"
    file.write_text(HEAD + 'a,keep,Dr A,"seen, fine"\nb,DROP,Dr B,moved\n')
    found = check.read_decisions(file, {"a", "b", "c"})
    assert found["a"] == check.Decision("a", True, "Dr A", "seen, fine")
    assert not found["b"].keep
    file.write_bytes(check.dump_decisions(found.values()))
    assert check.read_decisions(file, {"a", "b"}) == found


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("patient,who,why\na,A,x\n", "no column 'decision'"),
        (HEAD + "a,maybe,A,x\n", "row 2: decision 'maybe'; expected keep or drop"),
        (HEAD + "a,keep,,x\n", "row 2: who is empty"),
        (HEAD + "z,keep,A,x\n", "row 2: patient 'z' is not in the cohort table"),
        (HEAD + "B,keep,A,x\n", "patient 'B' is not in the cohort table; 'b' is: another case?"),
        (HEAD + "a,keep,A,x\na,drop,B,y\n", "row 3: patient 'a' has a decision already"),
    ],
)
def test_a_faulty_table_is_refused_with_the_row(tmp_path, table, words):
    file = tmp_path / "qc_decisions.csv"
    file.write_text(table)
    with pytest.raises(UsageError, match=words):
        check.read_decisions(file, {"a", "b"})
