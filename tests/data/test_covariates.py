"""Covariates: which columns each endpoint's regression may read, above all that no label is read for itself."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mri_vit.data.cohort import Patient
from mri_vit.data.covariates import clinical_columns, clinical_table, read_by, withheld, withheld_in_words
from mri_vit.errors import UsageError
from mri_vit.settings.schema import Endpoint, Study
from mri_vit.settings.sections import Controls

MGMT, TERTP = (Endpoint(name=name, kind="binary") for name in ("mgmt", "tertp"))
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
PFS = Endpoint(name="pfs", kind="survival", time="pfs_days", event="pfs_event")


def asking(*columns: str, endpoints: tuple[Endpoint, ...] = (MGMT, TERTP, OS)) -> Study:
    made = Study(name="covariates", cohort=Path("cohort.csv"), prepared=Path("p"), output=Path("run"), endpoints=endpoints)
    return made.model_copy(update={"controls": Controls(columns=columns or None)})


def people(**more: str) -> list[Patient]:
    """Eight patients; of every fourth MGMT is not known."""
    return [
        Patient(
            f"p{i}",
            {},
            {"mgmt": math.nan if i % 4 == 3 else i % 2.0, "tertp": i // 4.0, "os_days": 100.0 + i, "os_event": float(i % 3 > 0)},
            {"age": str(50 + i), "Extent_of_Resection": ("GTR", "STR")[i % 2]} | more,
        )
        for i in range(8)
    ]


def test_a_marker_that_is_an_endpoint_is_a_column_where_it_is_named_and_missing_where_it_is_not_known():
    assert clinical_columns(people(), asking()) == ["age", "Extent_of_Resection"]
    assert clinical_columns(people(), asking("age", "mgmt")) == ["age", "mgmt"]
    table = clinical_table(people(), ["age", "mgmt"])
    np.testing.assert_array_equal(table.mgmt, [0, 1, 0, math.nan] * 2)
    assert table.mgmt.dtype == float


def test_markers_and_the_extent_of_resection_are_read_for_survival_alone_and_no_label_for_itself():
    columns = ["age", "mgmt", "MGMT index", "Extent_of_Resection"]
    apart = withheld(columns, asking(*columns))
    table = clinical_table(people(**{"MGMT index": "3"}), columns)
    assert list(read_by(MGMT, table, apart)) == ["age"]
    assert list(read_by(TERTP, table, apart)) == ["age"]
    assert list(read_by(OS, table, apart)) == columns
    assert withheld_in_words(apart) == (
        "mgmt not for mgmt (it is named after the label itself); "
        "MGMT index not for mgmt (it is named after the label itself); "
        "Extent_of_Resection not for mgmt, tertp (the extent of resection is for survival alone); "
        "mgmt not for tertp (a label of another endpoint is for survival alone); "
        "MGMT index not for tertp (a label of another endpoint is for survival alone)"
    )
    assert withheld_in_words(withheld(["age", "sex"], asking())) == ""


@pytest.mark.parametrize("name", ["Extent_of_Resection", "EOR", "GTR_over90percent", "percent_resected"])
def test_the_extent_of_resection_goes_by_the_names_of_public_tables(name: str):
    assert set(withheld([name], asking())) == {"mgmt", "tertp"}


@pytest.mark.parametrize("name", ["eortc_trial", "gtr2", "kps"])
def test_a_name_that_only_looks_like_it_is_read_for_all(name: str):
    assert withheld([name], asking()) == {}


@pytest.mark.parametrize("name", ["vital_status", "days_to_death", "progression", "PFS"])
def test_what_is_named_like_an_outcome_is_never_read_for_survival(name: str):
    patients = [replace(p, clinical=p.clinical | {name: str(i)}) for i, p in enumerate(people())]
    assert clinical_columns(patients, asking(name)) == [name]  # as it was asked for, of the binary endpoints
    assert set(withheld([name], asking())) == {"os"}


@pytest.mark.parametrize(
    ("columns", "endpoints", "message"),
    [
        (("os_days",), (MGMT, OS), r"controls\.columns: 'os_days' is the outcome of os, after the scans; leave it out"),
        (("os_event",), (MGMT, PFS, OS), r"'os_event' is the outcome of os"),
        (("mgmt",), (MGMT,), r"no endpoint can be held against 'mgmt': mgmt not for mgmt \(it is named after the label itself\)"),
        (("mgmt",), (MGMT, TERTP), r"not for mgmt .* not for tertp \(a label of another endpoint is for survival alone\)"),
        (("vital",), (OS,), r"no endpoint can be held against 'vital': vital not for os \(it is named like an outcome\)"),
        (("OS",), (MGMT, OS), r"'OS': OS not for mgmt .*; OS not for os \(it is named after the label itself\)"),
        (("pten",), (MGMT, OS), r"no column 'pten' in the cohort table \(found age, Extent_of_Resection, vital, OS, mgmt\)"),
    ],
)
def test_a_column_that_no_endpoint_may_read_is_refused_with_the_reason(
    columns: tuple[str, ...], endpoints: tuple[Endpoint, ...], message: str
):
    with pytest.raises(UsageError, match=message):
        clinical_columns(people(vital="1", OS="3"), asking(*columns, endpoints=endpoints))


def test_another_survival_endpoint_lies_in_the_future_as_well():
    assert set(withheld(["pfs_days"], asking(endpoints=(PFS, OS)))) == {"pfs", "os"}
    assert set(withheld(["dfs"], asking(endpoints=(OS, PFS.model_copy(update={"name": "dfs"}))))) == {"os", "dfs"}
