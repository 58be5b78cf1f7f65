"""The summary that leaves for an archive, by kind of endpoint."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from made.prediction import EXAMPLE

from mri_vit.finished.export.dicom.secondary_capture import summary_picture
from mri_vit.finished.export.dicom.summary import RESEARCH_USE, Summary, summary_of
from mri_vit.finished.prediction_document import Prediction

SHARED = {key: EXAMPLE["endpoints"]["os"]["value"][key] for key in ("score", "threshold", "networks", "spread")} | {  # type: ignore[index]
    "percentile": 61.0,
    "percentile_n": 96,
    "percentile_note": "…",
}
SPREAD = SHARED["spread"]


def summary(value: dict[str, Any] | None = None, **endpoint: Any) -> Summary:
    document: dict[str, Any] = copy.deepcopy(EXAMPLE)
    document["distribution"]["placement"] = "within"
    if endpoint:
        about = {"of_run": EXAMPLE["endpoints"]["mgmt"]["of_run"], "withheld": None, "untrusted": None}  # type: ignore[index]
        document["endpoints"] = {"grade": about | endpoint | {"value": value}}
    return summary_of(Prediction.model_validate(document))


@pytest.mark.parametrize("kind", ["multiclass", "ordinal"])
def test_classes_have_a_probability_each(kind):
    probabilities = {"low": 0.2, "high": 0.8}
    value = SHARED | {
        "side": "high",
        "call": "Called high: 80 %.",
        "probabilities": probabilities,
        "spreads": {"low": SPREAD, "high": SPREAD},
    }
    (one,) = summary(value, kind=kind, classes=["low", "high"]).endpoints
    assert {figure.name: figure.value for figure in one.figures} == {"Probability of low": 0.2, "Probability of high": 0.8}
    assert one.headline == "high"


def test_a_number_has_its_unit_and_interval():
    (one,) = summary(SHARED | {"side": None, "low": 0.1, "high": 0.9}, kind="continuous", unit="mm").endpoints
    assert [(figure.value, figure.unit) for figure in one.figures] == [(0.4, "mm"), (0.1, "mm"), (0.9, "mm")]
    assert one.headline == "score 0.4 mm"


def test_an_undefined_number_is_left_out():
    (one,) = summary(SHARED | {"side": None, "low": None, "high": None}, kind="continuous", unit="").endpoints
    assert [figure.code for figure in one.figures] == ["score"]


def test_codes_fit_what_the_standard_allows():
    for one in summary().endpoints:
        assert all(len(figure.code) <= 16 and figure.code.isascii() for figure in one.figures)


def test_what_is_unreliable_says_so_in_its_headline():
    document: dict[str, Any] = copy.deepcopy(EXAMPLE)  # of a patient who is outside
    found = {one.title: one for one in summary_of(Prediction.model_validate(document)).endpoints}
    assert found["MGMT promoter methylation"].headline == "positive (not reliable)"
    assert found["PTEN alteration"].headline == "withheld"
    assert not found["PTEN alteration"].figures


def test_the_picture_grows_with_its_text_and_stays_black_at_its_border():
    short, long = summary_picture(summary()), summary_picture(Summary(("caution " * 400,), (), RESEARCH_USE, None, (), ""))
    for picture in (short, long):
        assert picture.dtype == np.uint8
        assert not picture[:, :30].any()
        assert not picture[:, -30:].any()
        assert not picture[-20:].any()
        assert picture.any()
