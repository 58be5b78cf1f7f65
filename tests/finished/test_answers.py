"""A new patient's set: every fold's model against its own test patients, by a count of each pair."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mri_vit.finished.answers import answer, fold_scores
from mri_vit.finished.network_outputs import FoldOutputs
from mri_vit.settings.schema import Endpoint

MARKER = Endpoint(name="mgmt", kind="binary")
NUMBER = Endpoint(name="ki67", kind="continuous")
DEATH = Endpoint(name="os", kind="survival", time="days", event="died")
FOLDS, N = 3, 60


def table(repeats: int = 1, n: int = N) -> pd.DataFrame:
    """Rows as a run's own model has them; folds of unlike scales."""
    random = np.random.default_rng(0)
    truth, parts = np.arange(n) % 2, []
    for repeat in range(repeats):
        fold = random.permutation(n) % FOLDS
        score = (2 * truth + random.normal(size=n)) * np.array([0.1, 1.0, 10.0])[fold]
        named = {"patient": [f"p{i:02d}" for i in range(n)], "model": "vit", "repeat": repeat, "fold": fold}
        parts.append(
            pd.DataFrame({**named, "score": score, "truth": truth.astype(float), "session": "", "class": "", "threshold": 0.5})
        )
    return pd.concat(parts, ignore_index=True)


def outputs(name: str, value: float, scales: tuple[float, ...] = (0.1, 1.0, 10.0), repeats: int = 1) -> list[FoldOutputs]:
    return [
        FoldOutputs(repeat, fold, ({name: np.array([value * scale])},), ({},), np.zeros(1))
        for repeat in range(repeats)
        for fold, scale in enumerate(scales)
    ]


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("value", [-2.0, 0.0, 0.8, 1.2, 2.0, 4.0])
def test_a_markers_set_is_that_of_counts_within_each_fold(value: float, repeats: int):
    rows = table(repeats)
    found = answer(MARKER, outputs("mgmt", value, repeats=repeats), fold_scores(MARKER, rows))
    assert found
    p = {"negative": [], "positive": []}
    for _, here in rows.groupby("repeat"):
        own = here.score / here.fold.map({0: 0.1, 1: 1.0, 2: 10.0})
        p["positive"].append((1 + (own[here.truth == 1] <= value).sum()) / (1 + N // 2))
        p["negative"].append((1 + (own[here.truth == 0] >= value).sum()) / (1 + N // 2))
    assert found.classes == tuple(name for name, of in p.items() if np.mean(of) > 0.1)


def test_a_numbers_interval_is_that_of_cv_plus():
    rows = table().assign(endpoint="ki67")
    found = answer(NUMBER, outputs("ki67", 1.0, (1.0, 2.0, 3.0)), fold_scores(NUMBER, rows))
    assert found
    residual, centre = (rows.truth - rows.score).abs(), rows.fold.map({0: 1.0, 1: 2.0, 2: 3.0})
    assert found.low == pytest.approx(np.sort(centre - residual)[5])  # floor(0.1 * 61) = 6, from either end
    assert found.high == pytest.approx(np.sort(centre + residual)[-6])


def test_what_cannot_be_said_is_left_out():
    assert fold_scores(DEATH, table()) == ()
    assert answer(DEATH, outputs("os", 1.0), ()) is None
    assert answer(MARKER, outputs("mgmt", 1.0), fold_scores(MARKER, table(n=18))) is None  # nine of either class
    assert answer(MARKER, outputs("mgmt", 1.0), fold_scores(MARKER, table(n=20))) is not None


def test_the_document_holds_sorted_scores_and_no_patient():
    for one in fold_scores(MARKER, table()):
        assert all(list(own) == sorted(own) for own in one.own)
        assert "p00" not in one.model_dump_json()
