"""Identifiers: ids that differ only in form find each other, and where two could be meant none is taken."""

from __future__ import annotations

import pytest

from mri_vit.data.columns import alike, counterparts, elsewhere, hint, id_spellings, unambiguous

PAIRS = [
    ("12", "00012"),
    ("12.0", "00012"),
    ("1E+05", "100000"),
    ("sub-01", "1"),
    ("1", "sub-01"),
    ("p001", "P001"),
    ("P-001", "P_1"),
    ("P 12", "p12"),
    ("02-006", "02-0006"),
]


@pytest.mark.parametrize(("name", "other"), PAIRS)
def test_ids_that_differ_only_in_form_are_joined(name: str, other: str):
    pairs = counterparts([name, "77"], [other, "A9"])
    assert pairs == {name: [other]}
    assert unambiguous([name, "77"], pairs) == {name: other}
    assert hint(name, other).endswith("?")


@pytest.mark.parametrize(("name", "other"), PAIRS)
def test_an_id_is_among_the_spellings_of_its_counterpart(name: str, other: str):
    assert other in id_spellings(name)


@pytest.mark.parametrize(
    ("name", "other"), [("A12", "B12"), ("12", "120"), ("1-2", "12"), ("12", "12b"), ("P1-2", "2"), ("--", "__")]
)
def test_other_ids_are_not(name: str, other: str):
    assert counterparts([name], [other]) == {}


@pytest.mark.parametrize(
    ("names", "others"),
    [
        (["1", "01"], ["001"]),  # two of the table
        (["1"], ["01", "001"]),  # two scans
        (["1", "01"], ["01"]),  # the scan has its own row
        (["1"], ["pat-1", "sub-1"]),
    ],
)
def test_where_two_could_be_meant_none_is(names: list[str], others: list[str]):
    pairs = counterparts(names, others)
    assert pairs
    assert unambiguous(names, pairs) == {}


def test_zeros_that_are_lost_are_named_as_such():
    assert "zeros lost?" in hint("12", "00012")
    assert elsewhere("12", ["00012", "7"]) == "; '00012' is: zeros lost?"
    assert elsewhere("12", ["7"]) == ""


def test_ids_of_one_table_that_are_nearly_one_are_grouped():
    assert alike(["1", "2", "001", "0001", "2"]) == [["1", "001", "0001"]]
    assert alike(["TCGA-02-0006", "TCGA-20-0006", "UPENN-GBM-00001", "UPENN-GBM-00010"]) == []
