"""What is said of a margin: by the interval alone, never "equal", and with a warning where the other model is weak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made.report import measure
from made.run import make_run
from pydantic import ValidationError

from mri_vit.report.reading.run import read_run
from mri_vit.settings.sections import Report

pytestmark = pytest.mark.long(20)


def with_margin(folder: Path, margin: float | None) -> dict[str, Any]:
    run = read_run(folder)
    report = run.study.report.model_copy(update={"margin": margin})
    return measure(replace(run, study=run.study.model_copy(update={"report": report})))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run of the own model, a comparator and two controls, with a margin of 0.1."""
    models = ("vit", "other", "clinical", "volume", "shuffled")
    return with_margin(make_run(tmp_path_factory.mktemp("runs") / "run", patients=90, models=models), 0.1)


def test_every_claim_is_that_of_the_interval_of_its_paired_test(found):
    assert found["margin"] == 0.1
    seen = set()
    for name, models in found["margins"].items():
        for model, against in models.items():
            result = found["endpoints"][name]["models"]
            for test in against["tests"]:
                low, high = test["low"], test["high"]
                paired = result[model]["versus_controls"].get(test["other"])
                paired = paired or result[model]["versus_own"] or result[test["other"]]["versus_own"]
                assert abs(test["difference"]) == abs(paired["difference"])
                assert (test["claim"] in ("equivalent", "not inferior")) == (low > -0.1)
                assert (test["claim"] == "equivalent") == (low > -0.1 and high < 0.1)
                assert (test["claim"] == "inferior") == (high < -0.1)
                assert "equal" not in test["sentence"]
                seen.add(test["claim"])
    assert {"not inferior", "open"} <= seen
    assert "shuffled" not in {model for models in found["margins"].values() for model in models}


def test_the_own_model_and_a_comparator_have_one_difference_from_both_sides(found):
    of_mgmt = found["margins"]["mgmt"]
    own = next(test for test in of_mgmt["vit"]["tests"] if test["other"] == "other")
    other = next(test for test in of_mgmt["other"]["tests"] if test["other"] == "vit")
    assert (own["difference"], own["low"], own["high"]) == (-other["difference"], -other["high"], -other["low"])
    assert own["p_lower"] == pytest.approx(other["p_upper"])


def test_against_every_control_the_largest_p_counts_and_a_weak_control_is_named_as_one(found):
    of_mgmt = found["margins"]["mgmt"]["vit"]
    p = {test["other"]: test["p_lower"] for test in of_mgmt["tests"] if test["other"] in ("clinical", "volume")}
    assert of_mgmt["every_control"]["least"] == max(p, key=lambda name: p[name])
    assert of_mgmt["every_control"]["p"] == max(p.values())
    assert of_mgmt["every_control"]["p_adjusted"] >= max(p.values())
    assert any("itself not shown to beat chance, so that says little" in test["sentence"] for test in of_mgmt["tests"])


def test_without_a_margin_nothing_is_said_and_no_key_is_written(tmp_path):
    found = with_margin(make_run(tmp_path / "run", patients=30, models=("vit",)), None)
    assert "margin" not in found
    assert "margins" not in found


@pytest.mark.parametrize("margin", [0.0, -0.05, 0.5, 2])
def test_a_margin_lies_between_nothing_and_the_way_from_chance_to_perfect(margin):
    with pytest.raises(ValidationError):
        Report(margin=margin)
