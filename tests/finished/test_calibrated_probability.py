"""A calibrated probability is the share of the marker among patients with such scores, or is not given at all."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from mri_vit.finished.prediction_document import Calibrated
from mri_vit.kinds.binary.shown import calibrated_line, calibrated_probability


def drawn(n: int, slope: float, seed: int = 0, repeats: int = 1) -> pd.DataFrame:
    """Scores whose true log odds are 0.3 + slope · logit(score), of every patient in every repeat."""
    generator = np.random.default_rng(seed)
    base = generator.normal(size=n)
    truth = generator.random(n) < expit(0.3 + slope * base)
    people = [f"P{i}" for i in range(n)]
    scores = expit(base)
    return pd.concat(
        [
            pd.DataFrame({"patient": people, "repeat": r, "score": scores, "truth": truth * 1.0, "threshold": 0.5})
            for r in range(repeats)
        ]
    )


def calibrated(rows: pd.DataFrame, scores: np.ndarray, generator: np.random.Generator) -> tuple[Calibrated | None, str | None]:
    """The probability of a patient with these scores of the folds, or why there is none."""
    line, reason = calibrated_line(rows, generator)
    return (calibrated_probability(line, scores) if line else None), reason


def test_a_line_that_is_there_is_found_and_its_interval_covers_the_truth():
    covered = 0
    for seed in range(20):
        found, reason = calibrated(drawn(150, 1.2, seed), np.array([0.8]), np.random.default_rng(1))
        assert found is not None, reason
        covered += found.low <= expit(0.3 + 1.2 * logit(0.8)) <= found.high
    assert covered >= 16, "95 % of 20 is 19"
    large, _ = calibrated(drawn(20_000, 0.7), np.array([0.8]), np.random.default_rng(1))
    assert large is not None
    assert large.value == pytest.approx(expit(0.3 + 0.7 * logit(0.8)), abs=0.02)
    assert large.n == 20_000


def test_each_folds_score_is_calibrated_by_itself_and_the_mean_is_given():
    rows = drawn(200, 1.0)
    both, _ = calibrated(rows, np.array([0.1, 0.9]), np.random.default_rng(1))
    single = [calibrated(rows, np.array([one]), np.random.default_rng(1))[0] for one in (0.1, 0.9)]
    values = [one.value for one in single if one]
    assert both is not None
    assert both.value == pytest.approx(np.mean(values))
    assert (both.least, both.most) == (pytest.approx(values[0]), pytest.approx(values[1]))


def test_a_patients_rows_of_several_repeats_are_drawn_together_so_that_repeats_make_nothing_surer():
    one, _ = calibrated(drawn(80, 1.0), np.array([0.7]), np.random.default_rng(1))
    five, _ = calibrated(drawn(80, 1.0, repeats=5), np.array([0.7]), np.random.default_rng(1))
    assert one is not None
    assert five is not None
    assert five.n == one.n == 80
    assert five.high - five.low == pytest.approx(one.high - one.low, rel=1e-6)


def test_what_cannot_be_calibrated_is_not_and_the_reason_says_why():
    generator = np.random.default_rng(1)
    separated = drawn(60, 1.0).assign(truth=lambda t: (t.score > 0.5) * 1.0)
    few = drawn(60, 1.0).assign(truth=lambda t: (np.arange(len(t)) < 9) * 1.0)
    nothing = drawn(60, 0.0)
    unknown = drawn(60, 1.0).assign(truth=np.nan)
    for rows, said in ((separated, "perfectly"), (few, "9 of 60"), (nothing, "slope"), (unknown, "0 of 0")):
        found, reason = calibrated(rows, np.array([0.7]), generator)
        assert found is None
        assert said in str(reason)
