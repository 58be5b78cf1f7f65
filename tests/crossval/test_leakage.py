"""The alarm: silent on what knows nothing, and it names the endpoint that is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from mri_vit.crossval.loop import suspected_leaks
from mri_vit.settings.schema import DEFAULT_ENDPOINTS, Endpoint

MGMT, PTEN, _, OS = DEFAULT_ENDPOINTS


def table(generator: np.random.Generator, signal: dict[str, float], n: int = 90) -> pd.DataFrame:
    """Predictions of three folds, whose scores contain so much of each endpoint's label; some labels are missing."""
    parts = []
    place = pd.DataFrame({"patient": [f"p{i}" for i in range(n)], "fold": np.arange(n) % 3, "repeat": 0})
    for endpoint in (MGMT, PTEN):
        truth = (generator.random(n) < 0.5).astype(float)
        score = generator.normal(size=n) + signal.get(endpoint.name, 0.0) * truth
        parts.append(place.assign(endpoint=endpoint.name, score=score, truth=np.where(generator.random(n) < 0.1, np.nan, truth)))
    days = generator.exponential(300, n)
    score = generator.normal(size=n) - signal.get("os", 0.0) * np.log(days)
    event = (generator.random(n) < 0.7).astype(float)
    parts.append(place.assign(endpoint="os", score=score, time_days=days, event=event))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("name", ["mgmt", "os"])
def test_the_endpoint_that_is_known_is_named(name: str):
    assert suspected_leaks(table(np.random.default_rng(0), {name: 3.0}), (MGMT, PTEN, OS)) == [name]


def test_few_studies_that_know_nothing_are_suspicious():
    generator = np.random.default_rng(1)
    false = sum(bool(suspected_leaks(table(generator, {}), (MGMT, PTEN, OS))) for _ in range(60))
    assert false <= 8  # each endpoint is at √(0.01 / 3) = 0.058 or less, and the error is inflated for refits that are not there


def test_an_endpoint_without_predictions_or_of_one_class_is_not_suspicious():
    found = table(np.random.default_rng(2), {"mgmt": 3.0})
    found.loc[found.endpoint == "mgmt", "truth"] = 1.0
    other = Endpoint(name="idh1", kind="binary")
    assert suspected_leaks(found, (MGMT, other)) == []


def test_visits_of_a_patient_speak_as_one():
    found = table(np.random.default_rng(3), {"mgmt": 0.8})
    assert suspected_leaks(pd.concat([found] * 9), (MGMT, PTEN, OS)) == suspected_leaks(found, (MGMT, PTEN, OS))


# --- Leaks, each of which a study has in both permutations ---------------------------------------------------------------------


def dealt(generator: np.random.Generator, n: int, endpoints: int) -> np.ndarray:
    """Labels [n, endpoints] that nothing tells."""
    return np.stack([generator.permutation(np.arange(n) % 2 == 1) for _ in range(endpoints)], axis=1)


def scored(labels: np.ndarray, score: np.ndarray, fold: np.ndarray) -> pd.DataFrame:
    place = {"patient": [f"p{i}" for i in range(len(fold))], "fold": fold, "repeat": 0}
    columns = zip((e.name for e in DEFAULT_ENDPOINTS), labels.T, score.T, strict=False)
    return pd.concat([pd.DataFrame({**place, "endpoint": name, "truth": t.astype(float), "score": s}) for name, t, s in columns])


def caught(leak, studies: int, n: int, endpoints: int) -> float:
    """Share of studies in which the same endpoint is suspicious in two permutations in a row."""
    generator, asked, found = np.random.default_rng(5), DEFAULT_ENDPOINTS[:endpoints], 0
    fold = np.arange(n) % 3
    for _ in range(studies):
        both = []
        for _ in range(2):
            labels = dealt(generator, n, endpoints)
            both.append(set(suspected_leaks(scored(labels, leak(generator, labels, fold), fold), asked)))
        found += bool(both[0] & both[1])
    return found / studies


def fitted_on_everybody(generator: np.random.Generator, labels: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Ridge regression on 20 features, its test patients among the training ones."""
    x = generator.normal(size=(len(labels), 20))
    return x @ np.linalg.solve(x.T @ x + np.eye(20), x.T @ (labels - 0.5))


def stopped_on_test(generator: np.random.Generator, labels: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Scores of nothing that wander over 36 epochs, of which each fold keeps the one that suits its test patients best."""
    score = np.zeros(labels.shape)
    for k in range(3):
        truth = labels[fold == k]
        epochs = [generator.normal(size=truth.shape)]
        for _ in range(35):
            epochs.append(0.8 * epochs[-1] + 0.6 * generator.normal(size=truth.shape))
        aucs = [np.mean([rankdata(scores)[known].mean() for scores, known in zip(one.T, truth.T, strict=True)]) for one in epochs]
        score[fold == k] = epochs[int(np.argmax(aucs))]
    return score


def honest(generator: np.random.Generator, labels: np.ndarray, fold: np.ndarray) -> np.ndarray:
    return generator.normal(size=labels.shape)


def test_test_labels_that_reach_the_fit_are_caught():
    assert caught(fitted_on_everybody, 20, 82, 3) >= 0.95


def test_test_labels_that_stop_the_training_are_caught_where_one_endpoint_decides_when():
    assert caught(stopped_on_test, 20, 200, 1) >= 0.95


def test_an_honest_study_is_not():
    assert caught(honest, 60, 82, 3) <= 1 / 60
