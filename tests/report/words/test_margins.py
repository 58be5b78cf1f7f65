"""What is said of a margin: by the interval alone, never "equal", and with a warning where the other model is weak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made.report import measure
from made.run import make_run
from pydantic import ValidationError

from mri_vit.report.reading.run import read_run
from mri_vit.report.schema.parts import Comparison
from mri_vit.report.verdicts import Verdict
from mri_vit.report.words.margins import margins
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


def test_two_models_have_one_test_and_not_the_same_turned_round(found):
    pairs = [frozenset({model, test["other"]}) for model, one in found["margins"]["mgmt"].items() for test in one["tests"]]
    assert len(pairs) == len(set(pairs))
    assert {"vit", "other"} in pairs


def test_a_control_that_could_not_be_compared_is_named_and_leaves_the_claim_open():
    test = Comparison(difference=0.2, low=0.1, high=0.3, z=4.0, p=1e-4, p_adjusted=1e-4, n=90, nadeau_bengio=None)
    models: Any = {
        name: SimpleNamespace(versus_controls={}, versus_own=None) for name in ("vit", "clinical", "volume", "intensity")
    }
    models["vit"].versus_controls = {"clinical": test, "volume": test}
    judged = {one: Verdict("better", "better", None, is_tied=False, leaks=False) for one in models}
    every = margins({"mgmt": models}, {"mgmt": judged}, 0.1)["mgmt"]["vit"].every_control
    assert every
    assert (every.compared, every.left_out, every.not_inferior) == (("clinical", "volume"), ("intensity",), False)
    assert "not inferior to clinical and volume by" in every.sentence
    assert "not compared with intensity" in every.sentence


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
