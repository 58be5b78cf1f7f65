"""The parts that a page is put together from: figures, pictures, tables and the way that numbers are written."""

from __future__ import annotations

import base64
import io
import itertools
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as some
from made.metrics import part
from PIL import Image

from mri_vit import style
from mri_vit.report.figures import endpoint_curves, gallery, panels
from mri_vit.report.figures import endpoint_curves as survival_figures
from mri_vit.report.numbers import results
from mri_vit.report.pages import csv_tables, page_pictures
from mri_vit.report.schema.binary import BinaryResult, Roc
from mri_vit.report.schema.parts import Band, CalibrationGroup, Comparison, Estimate
from mri_vit.report.schema.survival import Group, OverTime, SurvivalResult
from mri_vit.report.words import notation
from mri_vit.settings import recipe


@pytest.mark.parametrize(
    ("value", "digits", "n", "expected"),
    [
        (0.9125, 3, None, "0.912"),
        (-0.04, 2, None, "−0.04"),
        (-0.0004, 3, None, "0.000"),
        (None, 3, 7, "undefined (n = 7)"),
        (math.nan, 3, None, "undefined"),
    ],
)
def test_a_number_is_written_with_its_digits_and_a_true_minus(value, digits, n, expected):
    assert notation.number(value, digits, n) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0312, "p = 0.031"),
        (0.21, "p = 0.21"),
        (1.0, "p = 1.00"),
        (0.0001, "p < 0.001"),
        (0.0, "p < 0.001"),
        (None, "p undefined"),
    ],
)
def test_a_p_value_is_never_zero_and_says_whether_it_is_adjusted(value, expected):
    assert notation.p_value(value) == expected
    assert notation.adjusted_p(value) == f"adjusted {expected}"
    assert expected.endswith(notation.p_alone(value))


def test_an_interval_that_is_undefined_says_so():
    assert notation.interval(part(Estimate, {"value": 0.7}), 4) == "0.700 [undefined (n = 4)]"
    assert notation.interval(Estimate(value=1.26, low=1.04, high=2.16), digits=1) == "1.3 [1.0, 2.2]"
    assert notation.signed(part(Comparison, {"difference": -0.1, "low": -0.2, "high": 0.05}), 9) == "−0.100 [−0.200, +0.050]"
    assert notation.change(0.1, math.nan, math.nan) == "+0.100"


@given(some.lists(some.text(min_size=1, max_size=8), min_size=2, max_size=6, unique=True))
def test_two_models_never_share_a_file_and_none_leaves_its_folder(models):
    names = [notation.file_name("roc", "mgmt", model) for model in models]
    assert len(set(names)) == len(names)
    assert not any(set(name) & set('/\\:*?"<>| ') for name in names)


@given(some.text(max_size=12))
def test_no_text_cell_begins_like_a_formula(text):
    cell = csv_tables.to_csv(pd.DataFrame({"reason": [text]})).split("\n", 1)[1].removeprefix('"')
    assert not cell.startswith(("=", "+", "-", "@"))


def test_numbers_in_a_table_are_not_touched():
    table = pd.DataFrame({"low": [-0.5, math.nan], "text": ["-0.5", "-0.5+1"]})
    assert csv_tables.to_csv(table) == "low,text\n-0.5,-0.5\n,'-0.5+1\n"


def test_every_control_has_its_name_and_its_stroke():
    assert set(notation.EXPLAINED) == set(panels.OF_CONTROLS) == set(recipe.NOT_COMPARED)


def test_no_two_models_look_alike_even_without_colour():
    candidates = [f"candidate {number}" for number in range(results.MAX_SHOWN_MODELS)]
    styles = panels.strokes([*candidates, *recipe.NOT_COMPARED])
    assert len(panels.COMPARED) == results.MAX_SHOWN_MODELS
    for one, other in itertools.combinations([styles[name] for name in (*candidates, *recipe.NOT_COMPARED)], 2):
        assert one.colour != other.colour
        assert one.line != other.line
        assert one.marker != other.marker


def test_a_picture_keeps_its_shape_and_stays_within_the_budget(tmp_path):
    paths = []
    for index in range(5):
        paths.append(tmp_path / f"{index}.png")
        Image.effect_noise((600, 300), 80).save(paths[-1])
    whole = page_pictures.shrunk(paths, width=200, quality=60, budget=10**7)
    assert len(whole) == 5
    content = base64.b64decode(whole[0].removeprefix("data:image/webp;base64,"))
    with Image.open(io.BytesIO(content)) as small:
        assert small.size == (200, 100)
    some_of_them = page_pictures.shrunk(paths, width=200, quality=60, budget=len(whole[0]) + len(whole[1]))
    assert some_of_them == whole[:2]


def test_a_small_picture_is_not_enlarged(tmp_path):
    Image.new("RGB", (20, 10)).save(tmp_path / "small.png")
    content = page_pictures.shrunk([tmp_path / "small.png"], width=200, quality=60, budget=10**6)[0]
    with Image.open(io.BytesIO(base64.b64decode(content.partition(",")[2]))) as small:
        assert small.size == (20, 10)


def test_what_is_undefined_is_left_out_of_a_figure_without_a_fault():
    nothing, grid = [math.nan] * 3, [0.0, 0.5, 1.0]
    roc = part(Roc, {"false_positives": grid, **dict.fromkeys(("mean", "deviation", "pooled", "low", "high"), nothing)})
    row = panels.ForestRow("vit", "undefined (n = 3)", math.nan, math.nan, math.nan, panels.COMPARED[0], filled=False)
    survivors = pd.DataFrame({key: [] for key in ("group", "days", "survival", "low", "high", "censored")})
    group = part(Group, {"at_risk": [0]})
    over_time = {"days": [182], "auc": [None], "brier": [None], "reference": [None]}
    drawn = [
        endpoint_curves.roc([], roc),
        endpoint_curves.precision_recall({"vit": part(BinaryResult)}, 0.0),
        endpoint_curves.calibration({"vit": []}, {}),
        endpoint_curves.net_benefit({"vit": nothing}, grid, nothing, {"vit": Band(low=tuple(nothing), high=tuple(nothing))}),
        survival_figures.auc_over_time({"vit": part(SurvivalResult, {"auc_at": [{"days": 182}]})}),
        survival_figures.brier_over_time({"vit": part(OverTime, over_time)}),
        endpoint_curves.survival_calibration({"vit": [part(CalibrationGroup)]}, {}, 182),
        survival_figures.kaplan_meier(survivors, {"low risk": group, "high risk": group}, [0]),
        panels.forest([("MGMT", [row])], "AUC"),
    ]
    assert all(style.to_bytes(figure, "svg").startswith(b"<?xml") for figure in drawn)


@pytest.mark.parametrize(
    ("verdict", "text", "low"), [("undefined", "AUC 0.000", 0.0), ("chance", "AUC 0.000 [-0.100, 0.400]", -0.1)]
)
def test_a_forest_shows_no_interval_of_a_result_that_cannot_be_judged(verdict, text, low):
    overall = part(BinaryResult, {"n": 7, "verdict_kind": verdict, "judged": {"value": 0.0, "low": -0.1, "high": 0.4}})
    row = gallery._whole("all patients", overall, panels.COMPARED[0])
    assert (row.text.replace("\N{MINUS SIGN}", "-"), row.low, row.filled) == (text, low, False)


def test_equal_figures_are_equal_bytes():
    def drawn() -> bytes:
        return style.to_bytes(endpoint_curves.calibration({"$x_1$": []}, {}), "svg")

    assert drawn() == drawn()
