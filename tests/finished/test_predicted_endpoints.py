"""Endpoints: a card makes one call, and its per cent, its words, its drawing and its maps agree with it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from mri_vit.finished import out_of_fold, predicted_endpoints, predicted_patient
from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.finished.out_of_fold import OutOfFold
from mri_vit.finished.prediction_document import Binary
from mri_vit.kinds.binary.shown import on_line
from mri_vit.report.schema.metrics import Metrics
from mri_vit.settings.schema import Endpoint

MARKER = Endpoint(name="mgmt", kind="binary")


def run(threshold: float, shift: float = 0.3, patients: int = 120) -> OutOfFold:
    """A run whose scores are too low by `shift` in log odds, and whose threshold was chosen for its own scores."""
    generator = np.random.default_rng(0)
    base = generator.normal(size=patients)
    truth = generator.random(patients) < expit(1.5 * base + shift)
    rows = {"patient": [f"R{i}" for i in range(patients)], "model": "vit", "endpoint": "mgmt", "repeat": 0, "fold": 0}
    table = pd.DataFrame({**rows, "score": expit(base), "truth": truth * 1.0, "threshold": threshold})
    return out_of_fold.of_endpoint(MARKER, table, Metrics.model_construct(endpoints={}), 0)


def said(*scores: float) -> list[FoldOutputs]:
    return [FoldOutputs(0, fold, ({"mgmt": np.array([score])},), ({},), np.zeros(1)) for fold, score in enumerate(scores)]


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run told every endpoint from chance."""
    monkeypatch.setattr(out_of_fold, "reason_withheld", lambda *_: None)
    monkeypatch.setattr(out_of_fold, "result_of_run", lambda *_: None)


def shown(scores: list[float], threshold: float, shift: float = 0.3, doubt: str | None = None) -> Binary:
    found = predicted_endpoints.of_endpoint(MARKER, said(*scores), run(threshold, shift), False, doubt)
    assert isinstance(found, Binary)
    assert found.value
    return found


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.802, float("nan")])
@pytest.mark.parametrize("score", [0.05, 0.4, 0.47, 0.54, 0.9])
def test_a_call_is_positive_just_where_the_calibrated_probability_is_at_least_one_half(score: float, threshold: float):
    value = shown([score, score - 0.02, score + 0.03], threshold).value
    assert value
    assert value.probability
    assert value.side == ("positive" if value.probability.value >= 0.5 else "negative")
    assert value.call.startswith(f"Called {value.side}: {predicted_endpoints.per_cent(value.probability.value)} is ")
    if not np.isnan(threshold):
        line = value.probability
        assert line.threshold == pytest.approx(float(on_line(line.slope, line.intercept, np.array([threshold]))[0]))
        assert predicted_endpoints.per_cent(line.threshold) in value.call


def test_55_per_cent_is_never_called_negative_for_the_threshold_of_the_runs_own_scores():
    value = shown([0.54, 0.54], 0.802).value
    assert value
    assert value.score < value.threshold
    assert value.side == "positive"
    assert "score" not in value.call.replace("run's own scores", "")


def test_without_a_probability_the_score_is_held_against_the_threshold_and_without_either_nothing_is_called():
    doubted = shown([0.54, 0.54], 0.802, doubt="the run is synthetic")
    assert doubted.untrusted == "the run is synthetic"
    assert doubted.value
    assert (doubted.value.probability, doubted.value.side) == (None, "negative")
    assert doubted.value.call == "Called negative: score 0.540, threshold 0.802."
    nothing = shown([0.54], float("nan"), doubt="the run is synthetic").value
    assert nothing
    assert nothing.side is None
    assert nothing.call.startswith("Not called")


@pytest.mark.parametrize(
    ("share", "text"), [(0.5, "50 %"), (0.49999, "49.9 %"), (0.496, "49.6 %"), (0.494, "49 %"), (0.504, "50 %"), (0.553, "55 %")]
)
def test_what_is_below_one_half_never_reads_as_50_per_cent(share: float, text: str):
    assert predicted_endpoints.per_cent(share) == text


def test_maps_are_of_a_network_that_makes_the_call_itself_where_one_does():
    told = {"mgmt": shown([0.2, 0.9, 0.95], 0.5)}
    value = told["mgmt"].value
    assert value
    assert value.side == "positive"
    folds = said(0.2, 0.9, 0.95)
    assert predicted_patient.opposed(folds[0], told) == ["mgmt"]
    assert predicted_patient.explained_fold(folds, told).fold == 1
    assert predicted_patient.opposed(predicted_patient.explained_fold(folds, told), told) == []
    assert predicted_patient.explained_fold(said(0.9, 0.8), told).fold == 0
