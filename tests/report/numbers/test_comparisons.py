"""All models against all: the same as two by two, on the patients that both predicted."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from mri_vit.metrics import calibration, intervals, ipcw
from mri_vit.report.numbers import comparisons
from mri_vit.report.numbers.judged import averaged, flags, floats
from mri_vit.report.schema.parts import Difference, Pair
from mri_vit.settings.schema import Endpoint

MGMT = Endpoint(name="mgmt", kind="binary")
OS = Endpoint(name="os", kind="survival", time="os_days", event="os_event")
DAYS = pd.Index([100.0, 200.0, 300.0])


def tables(n=40, repeats=1, seed=0) -> dict[str, pd.DataFrame]:
    """Rows of three models; `small` lacks every fifth patient, and `shuffled` has labels of its own."""
    generator = np.random.default_rng(seed)
    risk, patients = generator.normal(size=n), [f"p{i:02d}" for i in range(n)]
    labels = {
        "truth": risk + generator.normal(size=n) > 0,
        "time_days": np.ceil(generator.exponential(400 * np.exp(-0.7 * risk))),
        "event": generator.random(n) < 0.7,
    }
    found = {}
    for model, noise in (("vit", 0.5), ("clinical", 1.5), ("small", 1.0), ("shuffled", 3.0)):
        rows = [
            pd.DataFrame({"patient": patients, "repeat": repeat, "fold": np.arange(n) % 4, **labels}) for repeat in range(repeats)
        ]
        rows = pd.concat(rows, ignore_index=True)
        score = 1 / (1 + np.exp(-np.tile(risk, repeats) - noise * generator.normal(size=len(rows))))
        found[model] = rows.assign(score=score)
    found["small"] = found["small"].loc[found["small"].patient.str[1:].astype(int) % 5 > 0].reset_index(drop=True)
    return found


def alive_of(found: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    people = {model: averaged(rows) for model, rows in found.items()}
    return {
        model: pd.DataFrame(np.exp(-np.outer(own.score, DAYS) / 250), index=own.patient, columns=DAYS)
        for model, own in people.items()
    }


def differences(pair: Pair) -> tuple[float, ...]:
    return tuple(pair.score.model_dump().values())


def brier_of(pair: Pair) -> Difference:
    assert pair.brier is not None
    return pair.brier


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("endpoint", [MGMT, OS], ids=["binary", "survival"])
def test_every_two_models_differ_as_when_they_are_compared_alone(endpoint, repeats):
    found = tables(repeats=repeats)
    pairs = comparisons.pairs_of_endpoint(endpoint, found, alive_of(found), 1.3, 1.1, seed=3)
    assert [(pair.model, pair.other) for pair in pairs] == list(itertools.combinations(["vit", "clinical", "small"], 2))
    for pair in pairs:
        alone = comparisons.versus(endpoint, found[pair.model], found[pair.other], 1.3)
        assert alone is not None
        assert differences(pair) == (alone.difference, alone.low, alone.high, alone.p)
        assert pair.n == alone.n == (32 if "small" in (pair.model, pair.other) else 40)


def test_brier_scores_differ_by_a_paired_bootstrap_of_patients():
    found = tables()
    brier = brier_of(comparisons.pairs_of_endpoint(MGMT, found, {}, 1.1, 1.3, seed=3)[0])
    ours, theirs = averaged(found["vit"]), averaged(found["clinical"])
    truth, a, b = flags(ours.truth), floats(ours.score), floats(theirs.score)
    assert brier.difference == pytest.approx(calibration.brier(truth, a) - calibration.brier(truth, b))
    draws = []
    for counts in intervals.counts(np.zeros(40), np.random.default_rng(3), 2000).astype(int):
        rows = np.repeat(np.arange(40), counts)
        draws.append(((a[rows] - truth[rows]) ** 2 - (b[rows] - truth[rows]) ** 2).mean())
    reach = norm.ppf(0.975) * 1.3 * np.std(draws, ddof=1)
    assert (brier.low, brier.high) == pytest.approx((brier.difference - reach, brier.difference + reach), abs=1e-12)
    assert brier.p == pytest.approx(2 * norm.sf(abs(brier.difference) / (1.3 * np.std(draws, ddof=1))))


def test_integrated_brier_scores_differ_on_patients_whose_probabilities_both_models_have():
    found = tables()
    alive = alive_of(found)
    alive["clinical"] = alive["clinical"].iloc[3:]
    brier = brier_of(comparisons.pairs_of_endpoint(OS, found, alive, 1.1, 1.3, seed=3)[0])
    people = averaged(found["vit"]).set_index("patient").loc[alive["clinical"].index]
    scores = [
        ipcw.integrated_brier(
            floats(people.time_days), flags(people.event), alive[model].loc[people.index].to_numpy(), DAYS.to_numpy()
        )
        for model in ("vit", "clinical")
    ]
    assert brier.difference == pytest.approx(scores[0] - scores[1])
    assert brier.low < brier.difference < brier.high


def test_without_probabilities_brier_scores_are_not_compared():
    found = tables()
    found["vit"] = found["vit"].assign(score=5 * found["vit"].score)
    assert [pair.brier is None for pair in comparisons.pairs_of_endpoint(MGMT, found, {}, 1.0, 1.0, seed=0)] == [
        True,
        True,
        False,
    ]
    alive = alive_of(found)
    alive["vit"] = pd.DataFrame(index=pd.Index([], dtype=str))
    alive["small"] = alive["small"].rename(columns={300.0: 350.0})
    assert all(pair.brier is None for pair in comparisons.pairs_of_endpoint(OS, found, alive, 1.0, 1.0, seed=0))


@pytest.mark.parametrize("endpoint", [MGMT, OS], ids=["binary", "survival"])
def test_of_patients_who_are_alike_nothing_is_known_and_nothing_warns(endpoint):
    found = {model: rows.assign(truth=True, event=False) for model, rows in tables(n=6).items()}
    pairs = comparisons.pairs_of_endpoint(endpoint, found, alive_of(found), 1.0, 1.0, seed=0)
    assert all(math.isnan(value) for pair in pairs for value in differences(pair))
    found["clinical"] = found["clinical"].assign(patient="x" + found["clinical"].patient)
    pairs = comparisons.pairs_of_endpoint(endpoint, found, alive_of(found), 1.0, 1.0, seed=0)
    assert [(pair.model, pair.other) for pair in pairs] == [("vit", "small")]
