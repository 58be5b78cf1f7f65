"""Columns: numbers, categories and neither are told apart by their cells, and no cell is lost or gained without a word."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mri_vit.data.columns import contents, numbers

ROWS = 97
RANDOM = np.random.default_rng(0)
AGES = [str(age) for age in np.clip(RANDOM.normal(60, 11, ROWS), 22, 88).astype(int)]
VISITS = [f"p{row}" for row in range(ROWS)]


def held(name: str, cells: list[str], subjects: list[str] | None = None):
    return contents(name, cells, subjects or [f"p{row}" for row in range(len(cells))])


def with_cell(cell: str, cells: list[str] = AGES) -> list[str]:
    return [*cells[:5], cell, *cells[6:]]


@pytest.mark.parametrize("cell", [">89", "061Y", "62y", "61 years", "90+", "1,234", "sixty", "60-65", "?"])
def test_one_cell_that_is_no_number_loses_the_column_and_is_named(cell: str):
    found = held("age", with_cell(cell))
    assert (found.kind, found.rows) == (None, (5,))
    assert repr(cell) in found.remark
    assert repr(cell) in found.why
    assert "not read" in found.remark
    assert numbers("age", with_cell(cell)) is None


def test_few_different_ages_with_an_odd_one_are_no_category():
    assert held("age", ["50", "61", "44"] * 8 + [">89"]).kind is None
    assert held("weight", [str(50 + row % 9) for row in range(40)] + ["61 kg"]).kind is None
    assert held("age", ["50", "61", ">89", "44", "73", "66", "58", "80"]).kind is None


def test_a_cell_that_says_nothing_is_missing_and_the_others_are_numbers():
    values = numbers("age", with_cell("unknown"))
    assert values is not None
    assert [row for row, value in enumerate(values) if math.isnan(value)] == [5]
    assert held("age", with_cell("unknown")).remark == ""


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        ([f"{age},5" for age in AGES], [int(age) + 0.5 for age in AGES]),
        (["0,731", "1,204", "0,9", "1,1"], [0.731, 1.204, 0.9, 1.1]),
        ([f"0{age}Y" for age in AGES], [float(age) for age in AGES]),
        (["006M", "018M", "730D", "003Y"], [0.5, 1.5, 730 / 365.25, 3.0]),
        (["1e3", "+2.5", "-.5", "7."], [1000.0, 2.5, -0.5, 7.0]),
    ],
)
def test_a_notation_that_all_cells_have_is_read(cells: list[str], values: list[float]):
    assert numbers("value", cells) == pytest.approx(values)
    assert held("value", cells).kind == "number"
    assert held("value", cells).remark == ""


def test_a_single_decimal_comma_is_read_and_named_and_beside_points_it_is_not_read():
    found = held("age", with_cell("61,5"))
    assert (found.kind, found.rows) == ("number", (5,))
    assert "'61,5'" in found.remark
    points = [f"{age}.5" for age in AGES]
    assert held("age", with_cell("61,5", points)).kind is None
    assert held("age", with_cell("61,5", points)).rows == (5,)


def test_commas_that_may_part_thousands_are_not_read():
    found = held("volume", [f"{1 + row},{200 + row}" for row in range(ROWS)])
    assert found.kind is None
    assert "'1,200'" in found.remark


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("", AGES),
        ("Unnamed: 0", AGES),
        ("...1", ["a", "b"] * 40),
        ("x", [str(row + 1) for row in range(ROWS)]),
        ("x", [str(row) for row in range(ROWS)]),
        ("x", [str(ROWS - row) for row in range(ROWS)]),
        ("x", [str(row) for row in np.random.default_rng(1).permutation(ROWS)]),
        ("x", [str(row) for row in range(ROWS) if row % 3]),  # patients are excluded
        ("age", [str(row + 1) for row in range(ROWS)]),
        ("sid", [str(1000 + row) for row in range(ROWS)]),
        ("order", [str(10 * (row + 1)) for row in range(ROWS)]),
        ("order", [str(row - (row > 40)) for row in range(ROWS)]),  # one number stands twice
        ("order", [str(row % 20 + 1) for row in range(ROWS)]),  # of each of several sites
        ("seen", [f"202401{row % 28 + 1:02}" for row in range(ROWS)]),
        ("patient_id", [str(row) for row in np.random.default_rng(2).choice(10**6, ROWS, replace=False)]),
        ("who", [f"{row:07}" for row in np.random.default_rng(3).choice(10**6, ROWS, replace=False)]),
        ("hospital", [f"H{row}" for row in range(8)]),
        ("note", [f"seen on day {row}" for row in range(ROWS)]),
        ("same", ["1"] * ROWS),
        ("same", ["x"] * ROWS),
        ("empty", [""] * ROWS),
        ("adc", [f"{row}.nii.gz" for row in range(ROWS)]),
    ],
)
def test_what_names_or_counts_patients_or_says_nothing_is_not_read_and_why_is_said(name: str, cells: list[str]):
    found = held(name, cells)
    assert found.kind is None
    assert found.why


def test_long_numbers_that_stand_once_are_read_and_named_as_perhaps_an_id():
    numbers_of_cases = [str(value) for value in np.random.default_rng(7).choice(np.arange(10**7, 10**8), ROWS, replace=False)]
    found = held("Fallzahl", numbers_of_cases)
    assert found.kind == "number"
    assert "if it is an id" in found.remark


def test_an_age_that_a_spreadsheet_shows_as_a_date_is_named():
    found = held("age", [f"1900-02-{row % 28 + 1:02}" for row in range(ROWS)])
    assert found.kind is None
    assert "'1900-02-01'" in found.remark
    assert held("age", ["40-49", "50-59"] * 20).kind == "category"


def test_a_running_number_of_patients_stands_in_each_of_their_visits():
    visits = [f"p{row // 2}" for row in range(40)]
    assert held("x", [str(row // 2) for row in range(40)], visits).kind is None
    assert held("x", [str(row) for row in range(40)], visits).kind is None


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("age", AGES, "number"),
        ("age", sorted(set(AGES)), "number"),
        ("age", [str(50 + row) for row in range(8)], "number"),
        ("Age_in_days", [str(365 * int(age)) for age in AGES], "number"),
        (
            "volume",
            sorted((str(v) for v in np.random.default_rng(4).choice(np.arange(5, 150), 30, replace=False)), key=int),
            "number",
        ),
        ("lesions", [str(v) for v in np.random.default_rng(5).integers(1, 6, ROWS)], "number"),
        ("score", [f"{v:.2f}" for v in np.random.default_rng(6).normal(0, 1, ROWS)], "number"),
        ("sex", ["M", "F"] * 40, "category"),
        ("sex", ["M", "F"], "category"),
        ("age_group", ["<60", ">=60"] * 20, "category"),
        ("age_group", ["under 60", "60-69", "70+"] * 20, "category"),
        ("scanner", ["A1", "B2", "C3"] * 30, "category"),
    ],
)
def test_a_sound_column_is_read_without_a_word(name: str, cells: list[str], kind: str):
    found = held(name, cells)
    assert (found.kind, found.why, found.remark) == (kind, "", "")


def test_words_among_a_few_numbers_make_a_category_and_are_named():
    found = held("grade", ["2", "3", "4", "NOS"] * 10)
    assert found.kind == "category"
    assert "'NOS'" in found.remark


KPS, WEIGHTS = ([str(10 * v) for v in RANDOM.integers(5, 11, ROWS)], [str(v) for v in RANDOM.integers(45, 110, ROWS)])


@pytest.mark.parametrize(
    ("name", "cells", "cell"),
    [
        *[("age", AGES, cell) for cell in ("-1", "-999", "999", "0", "121", "9999", "-5")],
        ("Age_at_scan_years", AGES, "-1"),
        ("KPS", KPS, "-1"),
        ("karnofsky_preop", KPS, "999"),
        ("ecog", [str(v) for v in RANDOM.integers(0, 4, ROWS)], "9"),
        ("weight", WEIGHTS, "-1"),
        ("weight", WEIGHTS, "999"),
    ],
)
def test_a_value_that_cannot_be_counts_as_unknown_and_is_named(name: str, cells: list[str], cell: str):
    values = numbers(name, with_cell(cell, cells))
    assert values is not None
    assert [row for row, value in enumerate(values) if math.isnan(value)] == [5]
    found = held(name, with_cell(cell, cells))
    assert (found.kind, found.rows) == ("number", (5,))
    assert repr(cell) in found.remark
    assert "unknown" in found.remark


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("age", with_cell("99")),
        ("age", with_cell("0", [str(v) for v in np.random.default_rng(7).integers(1, 18, ROWS)])),  # an infant among children
        ("volume_ml", [*(str(v) for v in np.random.default_rng(8).integers(5, 2500, ROWS)), "999"]),
        ("score", with_cell("-1", [f"{v:.0f}" for v in np.random.default_rng(9).normal(0, 3, ROWS)])),
        ("Alter_in_Tagen", [str(365 * int(age)) for age in AGES]),
        ("percentage", [str(v) for v in np.random.default_rng(10).integers(0, 900, ROWS)]),
    ],
)
def test_a_value_that_can_be_stays(name: str, cells: list[str]):
    values = numbers(name, cells)
    assert values is not None
    assert not np.isnan(values).any()


def test_the_only_negative_value_of_a_scale_is_read_and_asked_about():
    cells = [str(v) for v in np.random.default_rng(11).integers(-1, 2, ROWS)]
    values = numbers("change", cells)
    assert values is not None
    assert not np.isnan(values).any()
    assert "-1, the only negative value" in held("change", cells).remark
